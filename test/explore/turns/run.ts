/**
 * Runs code that waits for others, with what it waits for in every order that a seed can think of: texts that join and
 * leave a model which continues others, and threads that compile.
 *
 *   npm run explore:turns                                  # 20,000 seeds of each; --from 20001 begins with another one
 *   npm run explore:turns -- --scenario texts --seed 17    # one again
 *   npm run explore:turns -- --mutants                     # plants every bug and looks for it; --update writes turnsSeeds.json
 */
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { findTurnsBug, scenarios } from "./scenarios.js";

const { values: options } = parseArgs({
  options: {
    scenario: { type: "string", default: "" },
    seed: { type: "string" },
    from: { type: "string", default: "1" },
    seeds: { type: "string", default: "20000" },
    mutants: { type: "boolean", default: false },
    update: { type: "boolean", default: false },
  },
});

const chosen = scenarios.filter(({ name }) => name.includes(options.scenario));

async function exploreMutants(): Promise<void> {
  const seeds: Record<string, number> = {};
  let numPlanted = 0;
  for (const scenario of chosen)
    for (const mutant of scenario.mutants) {
      numPlanted++;
      const found = await findTurnsBug(scenario, mutant, 1, 5000);
      if (found) seeds[mutant.name] = found.seed;
      const how = found ? `seed ${found.seed}, ${found.failure.kind}: ${found.failure.message}` : "NOT FOUND";
      console.log(`${mutant.file}: ${mutant.name}: ${how.slice(0, 200)}`);
    }
  const numFound = Object.keys(seeds).length;
  console.log(`${numFound} of ${numPlanted} found`);
  if (options.update)
    writeFileSync(new URL("turnsSeeds.json", import.meta.url), `${JSON.stringify(seeds, null, 2)}\n`);
  if (numFound < numPlanted) process.exitCode = 1;
}

async function exploreSeeds(first: number, count: number): Promise<void> {
  let [numSchedules, numMoments, numFailures] = [0, 0, 0];
  for (const { name, load } of chosen) {
    const run = await load();
    for (let seed = first; seed < first + count; seed++) {
      const outcome = await run(seed);
      numSchedules++;
      numMoments += outcome.numMoments;
      if (outcome.failure === undefined) continue;
      numFailures++;
      const { kind, message } = outcome.failure;
      console.log(`npm run explore:turns -- --scenario ${name} --seed ${seed}`);
      console.log(`${kind}: ${message}\n${JSON.stringify(outcome.plan)}`);
    }
  }
  const number = new Intl.NumberFormat("en");
  console.log(
    `${number.format(numSchedules)} schedules from seed ${first} of ${chosen.map(({ name }) => name).join(", ")}, with ${number.format(numMoments)} choices, ${numFailures} failures`,
  );
  if (numFailures > 0) process.exitCode = 1;
}

if (options.mutants) await exploreMutants();
else if (options.seed !== undefined) await exploreSeeds(Number(options.seed), 1);
else await exploreSeeds(Number(options.from), Number(options.seeds));
