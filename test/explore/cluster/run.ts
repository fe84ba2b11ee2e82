/**
 * Runs a training job on simulated clusters.
 *
 *   npm run explore:cluster                      # 10,000 seeds
 *   npm run explore:cluster -- --seeds 200       # some; --from 201 begins with another one
 *   npm run explore:cluster -- --seed 17         # one again; a failure is made short
 *   npm run explore:cluster -- --mutants         # plants every bug and looks for it; --update writes seeds.json
 *   npm run explore:cluster -- --mutant "synced" # how planted bugs whose names contain a text are found
 */
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { mutants } from "./mutants.js";
import { findBug } from "./plant.js";
import { describePlan, Jobs, type Result } from "./search.js";
import { loadJob } from "./setting.js";
import { describeSummary, runSeeds } from "./summary.js";

const { values: options } = parseArgs({
  options: {
    seed: { type: "string" },
    from: { type: "string", default: "1" },
    seeds: { type: "string", default: "10000" },
    mutants: { type: "boolean", default: false },
    mutant: { type: "string" },
    update: { type: "boolean", default: false },
  },
});

const code = await loadJob();
const jobs = new Jobs(code);

function report(seed: number, result: Result, used = code): void {
  const { plan, failure, outcome } = result;
  console.log(`seed ${seed}: ${describePlan(plan)}`);
  for (const error of outcome?.errors ?? []) console.log(`  a process ended with ${error}`);
  if (outcome) console.log(`  the values of the undisturbed job after ${outcome.numStarts} starts`);
  if (failure === undefined) return;
  console.log(`${failure.kind}: ${failure.message}`);
  console.log(`the shortest plan that fails so: ${describePlan(jobs.minimise(used, seed, result))}`);
}

async function exploreMutants(): Promise<void> {
  const seeds: Record<string, number> = {};
  let numLost = 0;
  for (const mutant of mutants) {
    const found = await findBug(jobs, mutant, 150);
    if (found) seeds[mutant.name] = found.seed;
    else numLost++;
    console.log(
      `${mutant.file}: ${mutant.name}: ${found ? `seed ${found.seed}, ${found.result.failure?.kind}: ${found.result.failure?.message.slice(0, 120)}` : "NOT FOUND"}`,
    );
  }
  console.log(`${mutants.length - numLost} of ${mutants.length} found`);
  if (options.update)
    writeFileSync(new URL("seeds.json", import.meta.url), `${JSON.stringify(seeds, null, 2)}\n`);
  if (numLost > 0) process.exitCode = 1;
}

if (options.seed !== undefined) {
  const result = jobs.run(code, Number(options.seed));
  report(Number(options.seed), result);
  if (result.failure) process.exitCode = 1;
} else if (options.mutant !== undefined) {
  for (const mutant of mutants.filter(({ name }) => name.includes(options.mutant ?? ""))) {
    const found = await findBug(jobs, mutant, 150);
    console.log(`${mutant.file}: ${mutant.name}${found ? "" : ": NOT FOUND"}`);
    if (found) report(found.seed, found.result, await loadJob([mutant]));
  }
} else if (options.mutants) await exploreMutants();
else {
  const summary = runSeeds(jobs, code, Number(options.from), Number(options.seeds));
  for (const line of describeSummary(summary)) console.log(line);
  for (const { seed, result } of summary.failures) report(seed, result);
  if (summary.failures.length > 0) process.exitCode = 1;
}
