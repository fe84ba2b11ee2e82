/**
 * Explores schedules of the protocols that threads share.
 *
 *   npm run explore                                    # all scenarios: small ones exhaustively, then 2000 seeds each
 *   npm run explore -- --scenario crew --seeds 100000  # scenarios whose names contain a text; --from 2001 begins later
 *   npm run explore -- --scenario "crew: one job" --seed 7    # one schedule again, printed and made short
 *   npm run explore -- --mutants                       # plants every bug and looks for it; --update writes seeds.json
 *   npm run explore -- --mutant "two threads" --seed 7 # the schedule that finds a planted bug
 */
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { findMutant, scenarioFiles, scenariosOf } from "./catalogue.js";
import {
  type Explored,
  exploreAll,
  exploreSeed,
  type Found,
  minimise,
  printSchedule,
  transitions,
} from "./explore.js";
import { loadSimulated, type SimulatedCode } from "./load.js";
import { mutants } from "./mutants.js";
import type { Scenario } from "./scenario.js";

const { values: options } = parseArgs({
  options: {
    scenario: { type: "string", default: "" },
    seed: { type: "string" },
    from: { type: "string", default: "1" },
    seeds: { type: "string", default: "2000" },
    seconds: { type: "string", default: "60" },
    mutants: { type: "boolean", default: false },
    mutant: { type: "string" },
    update: { type: "boolean", default: false },
  },
});

const number = new Intl.NumberFormat("en");

function report(code: SimulatedCode, scenario: Scenario, found: Found): void {
  const shortest = minimise(code, scenario, found);
  console.log(printSchedule(code, scenario, shortest, found.stopsAtPlain));
  console.log(`${shortest.size} decisions of ${found.decisions.length} are needed`);
  process.exitCode = 1;
}

function describe({ numSchedules, numSteps, numStates, isComplete }: Explored, ms: number): string {
  const rate = number.format(Math.round(numSteps / (ms / 1000)));
  const extent = isComplete ? "all schedules" : "stopped";
  return `${number.format(numSchedules)} schedules, ${number.format(numStates)} states, ${rate} steps/s, ${extent}`;
}

/** Runs an action and returns its result with the processor time that it took, in milliseconds. */
function timed<T>(action: () => T): [T, number] {
  const before = process.cpuUsage();
  const result = action();
  const { user, system } = process.cpuUsage(before);
  return [result, (user + system) / 1000];
}

function exploreSeeds(
  code: SimulatedCode,
  scenario: Scenario,
  count: number,
): Explored & { readonly seed: number } {
  let [numSteps, numSchedules] = [0, 0];
  const first = Number(options.from);
  for (let seed = first; seed < first + count; seed++) {
    const one = exploreSeed(code, scenario, seed);
    numSteps += one.numSteps;
    numSchedules++;
    if (one.found) return { ...one, numSteps, numSchedules, numStates: numSteps, seed };
  }
  return { found: undefined, numSteps, numSchedules, numStates: numSteps, isComplete: false, seed: 0 };
}

async function exploreScenarios(): Promise<void> {
  let sites: SimulatedCode["sites"] = [];
  for (const file of scenarioFiles) {
    const code = await loadSimulated(file, []);
    sites = code.sites;
    for (const scenario of scenariosOf(code)) {
      if (!scenario.name.includes(options.scenario)) continue;
      if (options.seed !== undefined) {
        const { found } = exploreSeed(code, scenario, Number(options.seed));
        console.log(`${scenario.name}, seed ${options.seed}: ${found ? found.failure.kind : "no failure"}`);
        if (found) report(code, scenario, found);
        continue;
      }
      console.log(scenario.name);
      if (scenario.isSmall) {
        const [all, ms] = timed(() => exploreAll(code, scenario, 1000 * Number(options.seconds)));
        console.log(`  exhaustive: ${describe(all, ms)}`);
        if (all.found) report(code, scenario, all.found);
      }
      const [some, ms] = timed(() => exploreSeeds(code, scenario, Number(options.seeds)));
      console.log(`  seeds: ${describe(some, ms)}`);
      if (some.found) {
        console.log(`  npm run explore -- --scenario ${JSON.stringify(scenario.name)} --seed ${some.seed}`);
        report(code, scenario, some.found);
      }
    }
  }
  console.log(transitions.describe(sites));
}

/** Plants every bug and looks for the first seed that finds it. */
async function exploreMutants(): Promise<void> {
  const seeds: Record<string, { scenario: string; seed: number }> = {};
  let numLost = 0;
  for (const mutant of mutants) {
    const found = await findMutant(mutant, 200);
    if (found) seeds[mutant.name] = { scenario: found.scenario, seed: found.seed };
    else numLost++;
    const how = found ? `${found.kind}, ${found.scenario}, seed ${found.seed}` : "NOT FOUND";
    console.log(`${mutant.file.replace("src/engines/", "")}: ${mutant.name}: ${how}`);
  }
  console.log(`${mutants.length - numLost} of ${mutants.length} found`);
  if (options.update)
    writeFileSync(new URL("seeds.json", import.meta.url), `${JSON.stringify(seeds, null, 2)}\n`);
  if (numLost > 0) process.exitCode = 1;
}

/** Shows how a planted bug is found. */
async function exploreMutant(name: string): Promise<void> {
  for (const mutant of mutants.filter((one) => one.name.includes(name))) {
    const found = await findMutant(mutant, 200, options.seed === undefined ? 1 : Number(options.seed));
    console.log(
      `${mutant.file}: ${mutant.name}: ${found ? `${found.scenario}, seed ${found.seed}` : "NOT FOUND"}`,
    );
    if (!found) continue;
    const shortest = minimise(found.code, found.run, found.found);
    console.log(printSchedule(found.code, found.run, shortest, found.found.stopsAtPlain));
  }
}

if (options.mutant !== undefined) await exploreMutant(options.mutant);
else if (options.mutants) await exploreMutants();
else await exploreScenarios();
