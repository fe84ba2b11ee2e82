/**
 * Runs a training job on simulated clusters.
 *
 *   npm run explore:cluster                      # 10,000 seeds
 *   npm run explore:cluster -- --seeds 200       # some; --from 201 begins with another one
 *   npm run explore:cluster -- --jobs 16         # in 16 processes; --minutes 8 ends it early, --out FILE keeps what it prints
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
import { runSideBySide } from "./sideBySide.js";
import { describeSummary, runSeeds } from "./summary.js";

const { values: options } = parseArgs({
  options: {
    seed: { type: "string" },
    from: { type: "string", default: "1" },
    seeds: { type: "string", default: "10000" },
    jobs: { type: "string", default: "1" },
    minutes: { type: "string" },
    out: { type: "string" },
    mutants: { type: "boolean", default: false },
    mutant: { type: "string" },
    update: { type: "boolean", default: false },
  },
});

const begin = Date.now();

async function openJobs() {
  const code = await loadJob();
  return { code, jobs: new Jobs(code) };
}

function report(jobs: Jobs, seed: number, result: Result, code = jobs.sound): void {
  const { plan, failure, outcome } = result;
  console.log(`seed ${seed}: ${describePlan(plan)}`);
  for (const error of outcome?.errors ?? []) console.log(`  a process ended with ${error}`);
  if (outcome) console.log(`  the values of the undisturbed job after ${outcome.numStarts} starts`);
  if (failure === undefined) return;
  console.log(`${failure.kind}: ${failure.message}`);
  console.log(`the shortest plan that fails so: ${describePlan(jobs.minimise(code, seed, result))}`);
}

async function exploreMutants(): Promise<void> {
  const { jobs } = await openJobs();
  const seeds: Record<string, number> = {};
  let numLost = 0;
  for (const mutant of mutants) {
    const found = await findBug(jobs, mutant, 300);
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

/** To make a failure short takes a while, and the first ones show what is wrong. */
const MAX_REPORTS = 5;

async function exploreSeeds(from: number, count: number, numProcesses: number): Promise<void> {
  const until = options.minutes === undefined ? Infinity : begin + 60_000 * Number(options.minutes);
  const { summary, lost } = await (numProcesses > 1
    ? runSideBySide(numProcesses, from, count, until)
    : openJobs().then(({ jobs }) => ({ summary: runSeeds(jobs, from, count, until), lost: [] })));
  const seconds = Math.round((Date.now() - begin) / 1000);
  const lines = [
    `${summary.numSeeds} of ${count} seeds from ${from}, in ${seconds} s and ${numProcesses} processes`,
    ...describeSummary(summary),
    ...lost.map((seeds) => `not finished: seeds ${seeds}`),
  ];
  for (const line of lines) console.log(line);
  if (options.out !== undefined) writeFileSync(options.out, `${lines.join("\n")}\n`);
  if (summary.failures.length === 0 && lost.length === 0) return;
  process.exitCode = 1;
  const { code, jobs } = await openJobs();
  for (const { seed } of summary.failures.slice(0, MAX_REPORTS)) report(jobs, seed, jobs.run(code, seed));
}

if (options.seed !== undefined) {
  const { code, jobs } = await openJobs();
  const result = jobs.run(code, Number(options.seed));
  report(jobs, Number(options.seed), result);
  if (result.failure) process.exitCode = 1;
} else if (options.mutant !== undefined) {
  const { jobs } = await openJobs();
  for (const mutant of mutants.filter(({ name }) => name.includes(options.mutant ?? ""))) {
    const found = await findBug(jobs, mutant, 300);
    console.log(`${mutant.file}: ${mutant.name}${found ? "" : ": NOT FOUND"}`);
    if (found) report(jobs, found.seed, found.result, await loadJob([mutant]));
  }
} else if (options.mutants) await exploreMutants();
else await exploreSeeds(Number(options.from), Number(options.seeds), Number(options.jobs));
