import { expect, test } from "vitest";
import { pageMutants } from "./oneThreadMutants.js";
import { findPageBug, loadPage, runPagePlan } from "./oneThreadRuns.js";
import seeds from "./oneThreadSeeds.json" with { type: "json" };

test("a page computes on devices of one worker what it must, or has an error that names what happened", async () => {
  const code = await loadPage();
  for (let seed = 1; seed <= 25; seed++) {
    const { failure } = runPagePlan(code, seed);
    expect(failure, `npm run explore:oneThread -- --seed ${seed}`).toBeUndefined();
  }
});

test("a seed gives the same again", async () => {
  const code = await loadPage();
  expect(runPagePlan(code, 9)).toEqual(runPagePlan(code, 9));
});

test("planted bugs are found by their seeds", async () => {
  const known = new Map<string, number>(Object.entries(seeds));
  expect([...known.keys()].sort()).toEqual(pageMutants.map(({ name }) => name).sort());
  for (const mutant of pageMutants)
    expect(await findPageBug(mutant, known.get(mutant.name) ?? 0, 1), mutant.name).toBeDefined();
}, 240_000);
