import { beforeAll, describe, expect, test } from "vitest";
import { mutants } from "./mutants.js";
import { findBug } from "./plant.js";
import { type Code, Jobs } from "./search.js";
import seeds from "./seeds.json" with { type: "json" };
import { loadJob } from "./setting.js";

let code: Code;
let jobs: Jobs;
beforeAll(async () => {
  code = await loadJob();
  jobs = new Jobs(code);
});

describe("a job of several processes", () => {
  test("ends with the bits of the undisturbed job, or with an error that its faults explain", () => {
    for (const seed of [3, 4]) {
      const { failure } = jobs.run(code, seed);
      expect(failure, `npm run explore:cluster -- --seed ${seed}`).toBeUndefined();
    }
  });

  test("is the same when a seed is used again", () => {
    const [first, second] = [jobs.run(code, 2), jobs.run(code, 2)];
    expect(second.outcome).toEqual(first.outcome);
  });

  test("does not pass with planted bugs", async () => {
    const known = new Map<string, number>(Object.entries(seeds));
    expect([...known.keys()].sort()).toEqual(mutants.map(({ name }) => name).sort());
    const day = Math.floor(Date.now() / 86_400_000);
    const mutant = mutants[day % mutants.length];
    if (mutant === undefined) throw new Error("there are no planted bugs");
    expect(await findBug(jobs, mutant, 1, known.get(mutant.name)), mutant.name).toBeDefined();
  });
});
