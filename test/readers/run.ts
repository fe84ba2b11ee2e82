/**
 * Reads millions of changed files and messages; each must be read or refused with an error of the library's own, in
 * bounded time and memory. Inputs that reach new places of a reader are kept and changed further.
 *
 *   npm run fuzz:readers                                       # 10 million inputs
 *   npm run fuzz:readers -- --inputs 200000 --seed 7           # fewer in all, other ones
 *   npm run fuzz:readers -- --minutes 5 --reader manifest      # for so long, some readers
 *   npm run fuzz:readers -- --minutes 5 --jobs 16              # in 16 processes, with seeds from --seed on
 *   npm run fuzz:readers -- --reader manifest --file bad.bin   # one input again
 *
 * A time is shared equally among the readers, but each is given 1,000 inputs in every process.
 */
import { fork } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { fuzzReader, type Reader } from "./fuzz.js";
import { MAX_BYTES } from "./mutate.js";
import { readers } from "./readers.js";
import { byReader, describeReader, describeSum, type Report } from "./reports.js";
import { watch } from "./watchdog.js";

const { values: options } = parseArgs({
  options: {
    reader: { type: "string", default: "" },
    inputs: { type: "string" },
    minutes: { type: "string" },
    seed: { type: "string", default: "1" },
    jobs: { type: "string", default: "1" },
    file: { type: "string" },
    out: { type: "string", default: "runs/readers" },
  },
});
const [seed, numJobs, minutes] = [
  Number(options.seed),
  Number(options.jobs),
  Number(options.minutes ?? Infinity),
];
/** Without a number of inputs, a time is the only end. */
const numInputs = Number(options.inputs ?? (options.minutes === undefined ? 10_000_000 : Infinity));

/** Inputs that each reader is given even if its time is over: slow ones are to be tried as well. */
const MIN_INPUTS = 1000;

const chosen = readers.filter(({ name }) => name.includes(options.reader));
if (chosen.length === 0) {
  console.error(`no reader ${options.reader}: choose from ${readers.map(({ name }) => name).join(", ")}`);
  process.exit(2);
}
if (options.file !== undefined) for (const reader of chosen) await readAgain(reader, options.file);
else if (process.send) await fuzzAll(send);
else await fuzzAndReport();
process.exit();

/** Reads one input, among the files that the samples of the reader come with. */
async function readAgain(reader: Reader, file: string): Promise<void> {
  reader.samples();
  await reader.read(readFileSync(file));
}

/** Sends a report to the process that has started this one. */
function send(report: Report): Promise<void> {
  return new Promise((resolve) => void process.send?.(report, undefined, undefined, () => resolve()));
}

/** Reads with all readers in this process, and tells what came of each. */
async function fuzzAll(tell: (report: Report) => void | Promise<void>): Promise<void> {
  mkdirSync(options.out, { recursive: true });
  const end = performance.now() + 60_000 * minutes;
  for (const [i, reader] of chosen.entries()) {
    const file = join(options.out, `${reader.name.replace(/\W+/g, "-")}-${seed}.bin`);
    const since = performance.now();
    const watching = watch(reader.name, file, MAX_BYTES);
    const { bad, ...counts } = await fuzzReader(reader, {
      seed,
      numInputs: Math.ceil(numInputs / chosen.length),
      until: since + (end - since) / (chosen.length - i),
      atLeast: MIN_INPUTS,
      notice: watching.notice,
    });
    watching.stop();
    if (bad) writeFileSync(file, bad.bytes);
    const text = (error: unknown) => String((error instanceof Error && error.stack) || error);
    const failure = bad && { file, error: text(bad.error) };
    await tell({ ...counts, reader: reader.name, seconds: (performance.now() - since) / 1000, failure });
  }
}

/** Fuzzes in one or more processes; a line about each reader when the last one has finished it. */
async function fuzzAndReport(): Promise<void> {
  const begin = performance.now();
  const reports: Report[] = [];
  const lost: string[] = [];
  const tell = (report: Report) => {
    reports.push(report);
    const own = reports.filter(({ reader }) => reader === report.reader);
    if (own.length === numJobs) console.log(describeReader(own));
  };
  if (numJobs === 1) await fuzzAll(tell);
  else {
    const jobs = Array.from({ length: numJobs }, (_, job) => fuzzBeside(seed + job, numJobs, tell));
    for (const problem of await Promise.all(jobs)) if (problem) lost.push(problem);
  }
  // Those that an ended process has not come to.
  for (const own of byReader(reports)) if (own.length < numJobs) console.log(describeReader(own));
  for (const problem of lost) console.log(problem);
  console.log(describeSum(reports, (performance.now() - begin) / 1000));
  if (lost.length > 0 || reports.some(({ failure }) => failure)) process.exitCode = 1;
}

/** Fuzzes in another process. @returns what is wrong if it has ended early; the watch has said why */
function fuzzBeside(
  ownSeed: number,
  among: number,
  tell: (report: Report) => void,
): Promise<string | undefined> {
  const args = ["--reader", options.reader, "--seed", String(ownSeed), "--out", options.out];
  if (options.minutes !== undefined) args.push("--minutes", options.minutes);
  if (numInputs < Infinity) args.push("--inputs", String(Math.ceil(numInputs / among)));
  return new Promise((resolve) => {
    const child = fork(fileURLToPath(import.meta.url), args);
    child.on("message", (report: Report) => tell(report));
    child.on("exit", (code, signal) =>
      resolve(code === 0 ? undefined : `the process with seed ${ownSeed} ended with ${signal ?? code}`),
    );
  });
}
