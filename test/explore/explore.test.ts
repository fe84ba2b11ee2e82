import { describe, expect, test } from "vitest";
import { findMutant, scenarioFiles, scenariosOf } from "./catalogue.js";
import { exploreAll, exploreSeed, minimise, printSchedule } from "./explore.js";
import { loadSimulated } from "./load.js";
import { mutants } from "./mutants.js";
import recorded from "./seeds.json" with { type: "json" };

const seeds: Readonly<Record<string, { readonly scenario: string; readonly seed: number } | undefined>> =
  recorded;

describe("the protocols that threads share", () => {
  test.each(scenarioFiles)("keep their promises under a sample of schedules of %s", async (file) => {
    const code = await loadSimulated(file, []);
    // A whole engine takes long: it has one schedule of each kind.
    const numSeeds = file.endsWith("engine.ts") ? 2 : 6;
    for (const scenario of scenariosOf(code)) {
      for (let seed = 1; seed <= numSeeds; seed++) {
        const { found } = exploreSeed(code, scenario, seed);
        expect(found && `${scenario.name}, seed ${seed}: ${found.failure.message}`).toBeUndefined();
      }
      const { found } = scenario.isSmall ? exploreAll(code, scenario, 300) : {};
      expect(found?.failure.message).toBeUndefined();
    }
  });
});

describe("planted bugs", () => {
  test("have names of their own", () => {
    expect(new Set(mutants.map(({ name }) => name)).size).toBe(mutants.length);
    expect(Object.keys(recorded).sort()).toEqual(mutants.map(({ name }) => name).sort());
  });

  test("are found by their seeds", async () => {
    const lost: string[] = [];
    // `npm run explore -- --mutants` plants all of them.
    for (const mutant of mutants.filter((_, i) => i % 4 === 0)) {
      const known = seeds[mutant.name];
      // Where the code has changed, another seed near by may find it; `npm run explore -- --mutants --update` notes it.
      const found = known && (await findMutant(mutant, 20, known.seed, known.scenario));
      if (!found) lost.push(`${mutant.file}: ${mutant.name}`);
    }
    expect(lost).toEqual([]);
  });

  test("are shown by a schedule that is short and repeats itself", async () => {
    const mutant = mutants.find(
      ({ name }) => name === "dismissed helpers are notified without a change of their word",
    );
    const known = mutant && seeds[mutant.name];
    const found = mutant && known && (await findMutant(mutant, 20, known.seed, known.scenario));
    if (!found) throw new Error("not found");
    const { code, run, found: failure } = found;
    const shortest = minimise(code, run, failure);
    expect(shortest.size).toBeLessThan(failure.decisions.length / 4);
    const text = printSchedule(code, run, shortest, failure.stopsAtPlain);
    expect(text).toBe(printSchedule(code, run, shortest, failure.stopsAtPlain));
    expect(text).toMatch(/protocol\/crew\.ts:\d+ {2}Atomics\.notify\(words, WORD\.doorbell\)/);
    expect(text.split("\n").at(-1)).toMatch(/^lost wake-up: .*helper \d sleeps at protocol\/crew\.ts:\d+/);
  });
});
