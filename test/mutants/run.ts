/**
 * The mutation check: changes operators and constants of the rule tables one at a time, and reports the changes
 * that no test notices.
 *
 *   npm run test:mutants                                  # a sample of all rule tables
 *   npm run test:mutants -- --file src/transforms/vjp     # only files that begin so
 *   npm run test:mutants -- --count 600 --seed 7 --jobs 4
 *   npm run test:mutants -- --again mutants.log           # only what survived in a run whose output is kept there
 *
 * A change that alters nothing is listed in equivalent.json with the reason; an entry that is no mutant any more,
 * or that a test notices, fails the check, and so does a change that survives without a reason.
 */
import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { endGroup } from "../support/processGroup.js";
import { type Mutant, mutantsOf } from "./mutate.js";
import { type Target, targets } from "./targets.js";

interface Equivalent {
  readonly file: string;
  readonly before: string;
  readonly after: string;
  readonly reason: string;
}

interface Planned {
  readonly mutant: Mutant;
  readonly tests: readonly string[];
}

type Outcome = "killed" | "survived" | "timeout";

/** A mutant that loops for ever counts as noticed after so long. */
const TIME_LIMIT_MS = 240_000;

const { values: options } = parseArgs({
  options: {
    file: { type: "string", default: "" },
    count: { type: "string", default: "320" },
    seed: { type: "string", default: "1" },
    jobs: { type: "string", default: "2" },
    minutes: { type: "string", default: "120" },
    again: { type: "string" },
  },
});

function sourcesOf({ sources }: Target): string[] {
  return sources.flatMap((path) => {
    if (!statSync(path).isDirectory()) return [path];
    return readdirSync(path)
      .filter((name) => name.endsWith(".ts") && !name.endsWith(".test.ts"))
      .map((name) => join(path, name));
  });
}

/** The tests of a source: those of the file beside it, then those of its target. */
function testsOf(file: string, { tests }: Target): string[] {
  const own = file.replace(/\.ts$/, ".test.ts");
  return existsSync(own) ? [...new Set([own, ...tests])] : [...tests];
}

/** A number that a text and the seed determine, to shuffle by. */
function hash(text: string): number {
  let state = Number(options.seed) | 0;
  for (let i = 0; i < text.length; i++) state = Math.imul(state ^ text.charCodeAt(i), 0x01000193);
  return Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) >>> 0;
}

/** Whether a mutant is wanted: all are, or those that survived in the run to be repeated. */
function chooser(): (mutant: Mutant) => boolean {
  if (options.again === undefined) return () => true;
  const log = readFileSync(options.again, "utf8");
  return (mutant) => log.includes(` SURVIVED ${show(mutant)}\n`);
}

/** Mutants of all files in turn, those of one file in the order of the seed. */
function plan(): Planned[] {
  const isWanted = chooser();
  const files = targets.flatMap((target) =>
    sourcesOf(target)
      .filter((file) => file.startsWith(options.file))
      .map((file) => {
        const mutants = mutantsOf(file, readFileSync(file, "utf8")).filter(isWanted);
        const order = mutants.map((mutant) => ({ mutant, key: hash(`${file}:${mutant.start}`) }));
        const tests = testsOf(file, target);
        return order.sort((a, b) => a.key - b.key).map(({ mutant }) => ({ mutant, tests }));
      }),
  );
  const chosen: Planned[] = [];
  for (let round = 0; chosen.length < Number(options.count); round++) {
    const next = files.flatMap((mutants) => mutants.slice(round, round + 1));
    if (next.length === 0) break;
    chosen.push(...next);
  }
  return chosen.slice(0, Number(options.count));
}

/** A change of a file that whoever loads it notices. */
const unloadable = (file: string): Mutant => ({
  file,
  start: 0,
  end: 0,
  text: 'throw new Error("unloadable");\n',
  before: "",
  after: "",
});

/** Runs tests on a mutant in a process of their own. */
function runTests(mutant: Mutant | undefined, tests: readonly string[]): Promise<Outcome> {
  const command = [
    "node_modules/vitest/vitest.mjs",
    "run",
    "--config",
    "test/mutants/vitest.config.ts",
    ...tests,
  ];
  return new Promise((resolve) => {
    const child = spawn(process.execPath, command, {
      env: {
        ...process.env,
        FUZZ_PROGRAMS: "40",
        ...(mutant && { SHARDWISE_MUTANT: JSON.stringify(mutant) }),
      },
      stdio: "ignore",
      detached: true,
    });
    const timer = setTimeout(() => {
      endGroup(child);
      resolve("timeout");
    }, TIME_LIMIT_MS);
    child.on("exit", (code) => {
      clearTimeout(timer);
      resolve(code === 0 ? "survived" : "killed");
    });
  });
}

async function outcomeOf({ mutant, tests }: Planned): Promise<Outcome> {
  for (const test of tests) {
    const outcome = await runTests(mutant, [test]);
    if (outcome !== "survived") return outcome;
  }
  return "survived";
}

const isSame = (a: Equivalent | Mutant, b: Equivalent | Mutant): boolean =>
  a.file === b.file && a.before === b.before && a.after === b.after;

const show = ({ file, before, after }: Equivalent | Mutant): string =>
  `${file}\n    - ${before}\n    + ${after}`;

/** Entries of the list that are no mutant of today's sources. */
function staleEntries(list: readonly Equivalent[]): Equivalent[] {
  const all = targets.flatMap(sourcesOf).flatMap((file) => mutantsOf(file, readFileSync(file, "utf8")));
  return list.filter((entry) => !all.some((mutant) => isSame(mutant, entry)));
}

/** Does something with items, as many at a time as there are jobs, and begins with none after a time. */
async function forEach<T>(items: readonly T[], end: number, work: (item: T) => Promise<void>): Promise<void> {
  const rest = items.values();
  const job = async (): Promise<void> => {
    for (const item of rest) {
      if (Date.now() >= end) return;
      await work(item);
    }
  };
  await Promise.all(Array.from({ length: Number(options.jobs) }, job));
}

async function main(): Promise<void> {
  const equivalent: Equivalent[] = JSON.parse(
    readFileSync(new URL("equivalent.json", import.meta.url), "utf8"),
  );
  const problems = staleEntries(equivalent).map(
    (entry) => `listed as equivalent, but no mutant: ${show(entry)}`,
  );
  const planned = plan();
  const end = Date.now() + Number(options.minutes) * 60_000;
  await forEach([...new Set(planned.flatMap(({ tests }) => tests))], end, async (test) => {
    if ((await runTests(undefined, [test])) === "survived") return;
    process.stdout.write(`✗ ${test} fails without any change: mend it first\n`);
    process.exit(1);
  });
  const [first] = planned;
  if (first && (await outcomeOf({ ...first, mutant: unloadable(first.mutant.file) })) !== "killed") {
    process.stdout.write(
      `✗ a change of ${first.mutant.file} does not reach its tests: mend the check first\n`,
    );
    process.exit(1);
  }
  const counts = { killed: 0, equivalent: 0, survived: 0 };
  let done = 0;
  await forEach(planned, end, async (one) => {
    const known = equivalent.find((entry) => isSame(entry, one.mutant));
    const isNoticed = (await outcomeOf(one)) !== "survived";
    if (isNoticed) counts.killed++;
    else if (known) counts.equivalent++;
    else counts.survived++;
    if (isNoticed && known) problems.push(`listed as equivalent, but a test notices it: ${show(known)}`);
    if (!isNoticed && !known) problems.push(`survived: ${show(one.mutant)}`);
    process.stdout.write(
      `${++done}/${planned.length} ${isNoticed ? "killed" : known ? "equivalent" : "SURVIVED"} ${show(one.mutant)}\n`,
    );
  });
  for (const problem of problems) process.stdout.write(`✗ ${problem}\n`);
  const share = ((100 * (counts.survived + counts.equivalent)) / Math.max(1, done)).toFixed(1);
  process.stdout.write(
    `${done} of ${planned.length} mutants: ${counts.killed} killed, ${counts.equivalent} equivalent, ` +
      `${counts.survived} survived (${share} % not killed)\n`,
  );
  process.exitCode = problems.length === 0 && done === planned.length ? 0 : 1;
}

await main();
