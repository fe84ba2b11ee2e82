import { expect, test } from "vitest";
import { storeMutants } from "./storeMutants.js";
import { findStoreBug, loadStore, runStorePlan } from "./storeRuns.js";
import seeds from "./storeSeeds.json" with { type: "json" };

test("processes find each other, or end with an error that names what happened", async () => {
  const code = await loadStore();
  for (let seed = 1; seed <= 25; seed++) {
    const { failure } = runStorePlan(code, seed);
    expect(failure, `npm run explore:store -- --seed ${seed}`).toBeUndefined();
  }
});

test("a seed gives the same again", async () => {
  const code = await loadStore();
  expect(runStorePlan(code, 9)).toEqual(runStorePlan(code, 9));
});

test("planted bugs are found by their seeds", async () => {
  const known = new Map<string, number>(Object.entries(seeds));
  expect([...known.keys()].sort()).toEqual(storeMutants.map(({ name }) => name).sort());
  for (const mutant of storeMutants)
    expect(await findStoreBug(mutant, known.get(mutant.name) ?? 0, 1), mutant.name).toBeDefined();
}, 60_000);
