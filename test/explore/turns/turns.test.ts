import { describe, expect, test } from "vitest";
import { findTurnsBug, scenarios } from "./scenarios.js";
import seeds from "./turnsSeeds.json" with { type: "json" };

const known = new Map<string, number>(Object.entries(seeds));

describe.each(scenarios)("$name in every order", (scenario) => {
  test("end as they must", async () => {
    const run = await scenario.load();
    for (let seed = 1; seed <= 300; seed++) {
      const { failure } = await run(seed);
      expect(failure, `npm run explore:turns -- --scenario ${scenario.name} --seed ${seed}`).toBeUndefined();
    }
  });

  test("are the same when a seed is used again", async () => {
    const run = await scenario.load();
    expect(await run(9)).toEqual(await run(9));
  });

  test.each(scenario.mutants)("do not with a planted bug: $name", async (mutant) => {
    expect(await findTurnsBug(scenario, mutant, known.get(mutant.name) ?? 0, 1)).toBeDefined();
  });
});

test("every seed belongs to a planted bug", () => {
  const names = scenarios.flatMap(({ mutants }) => mutants.map(({ name }) => name));
  expect([...known.keys()].sort()).toEqual(names.sort());
});
