/**
 * Reads millions of changed files and messages; each must be read or refused with an error of the library's own, in
 * bounded time and memory. Inputs that reach new places of a reader are kept and changed further.
 *
 *   npm run fuzz:readers                                       # 10 million inputs
 *   npm run fuzz:readers -- --inputs 200000 --seed 7           # fewer in all, other ones
 *   npm run fuzz:readers -- --minutes 5 --reader manifest      # for so long at most, some readers
 *   npm run fuzz:readers -- --reader manifest --file bad.bin   # one input again
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { fuzzReader, type Reader } from "./fuzz.js";
import { MAX_BYTES } from "./mutate.js";
import { readers } from "./readers.js";
import { watch } from "./watchdog.js";

const { values: options } = parseArgs({
  options: {
    reader: { type: "string", default: "" },
    inputs: { type: "string", default: "10000000" },
    minutes: { type: "string" },
    seed: { type: "string", default: "1" },
    file: { type: "string" },
    out: { type: "string", default: "runs/readers" },
  },
});

const chosen = readers.filter(({ name }) => name.includes(options.reader));
if (chosen.length === 0) {
  console.error(`no reader ${options.reader}: choose from ${readers.map(({ name }) => name).join(", ")}`);
  process.exit(2);
}
if (options.file !== undefined) for (const reader of chosen) await readAgain(reader, options.file);
else await fuzzAll();

/** Reads one input, among the files that the samples of the reader come with. */
async function readAgain(reader: Reader, file: string): Promise<void> {
  reader.samples();
  await reader.read(readFileSync(file));
}

async function fuzzAll(): Promise<void> {
  const number = new Intl.NumberFormat("en");
  mkdirSync(options.out, { recursive: true });
  const end = performance.now() + 60_000 * Number(options.minutes ?? Infinity);
  let [total, numBad, numCovered] = [0, 0, 0];
  const begin = performance.now();
  for (const [i, reader] of chosen.entries()) {
    const file = join(options.out, `${reader.name.replace(/\W+/g, "-")}-${options.seed}.bin`);
    const since = performance.now();
    const share = chosen.length - i;
    const watching = watch(reader.name, file, MAX_BYTES);
    const result = await fuzzReader(reader, {
      seed: Number(options.seed),
      numInputs: Math.ceil(Number(options.inputs) / chosen.length),
      until: since + (end - since) / share,
      notice: watching.notice,
    });
    watching.stop();
    total += result.numInputs;
    numCovered += result.numCovered;
    const seconds = (performance.now() - since) / 1000;
    console.log(
      `${reader.name}: ${number.format(result.numInputs)} tried at ${number.format(Math.round(result.numInputs / seconds))} a second, ${number.format(result.numAccepted)} accepted, ${result.numKept} kept, ${number.format(result.numCovered)} characters of the sources reached`,
    );
    if (result.bad === undefined) continue;
    numBad++;
    writeFileSync(file, result.bad.bytes);
    console.log(`  npm run fuzz:readers -- --reader ${JSON.stringify(reader.name)} --file ${file}`);
    console.log(result.bad.error);
  }
  const seconds = Math.round((performance.now() - begin) / 1000);
  console.log(`coverage: ${number.format(numCovered)} characters of the sources of ${chosen.length} readers`);
  console.log(`${number.format(total)} inputs in ${seconds} s, ${numBad} readers failed`);
  process.exit(numBad > 0 ? 1 : 0);
}
