/**
 * Runs test files in this process, one of several of a job that all do the same, and says in process 0 how many passed.
 * What fails in any process is printed.
 *
 * `mpirun -n 2 node --import …/typescript.mjs --import …/hooks.mjs suite.ts FILE…`
 */
import { pathToFileURL } from "node:url";
import { type File, startTests, type Task, type VitestRunner } from "@vitest/runner";
import { importEngine } from "../../src/engines/index.js";
import { detectLaunch } from "../../src/engines/launch.js";

const files = process.argv.slice(2);
const rank = detectLaunch()?.rank ?? 0;

const runner: VitestRunner = {
  config: {
    root: process.cwd(),
    setupFiles: [],
    name: undefined,
    passWithNoTests: false,
    testNamePattern: undefined,
    allowOnly: false,
    sequence: { shuffle: false, concurrent: false, seed: 0, hooks: "stack", setupFiles: "list" },
    chaiConfig: undefined,
    maxConcurrency: 1,
    testTimeout: 600_000,
    hookTimeout: 600_000,
    retry: 0,
    includeTaskLocation: undefined,
    tags: [],
    tagsFilter: undefined,
    strictTags: false,
  },
  pool: "mpi",
  importFile: (path) => import(pathToFileURL(path).href),
};

function testsOf(task: Task): Task[] {
  return task.type === "test" ? [task] : task.tasks.flatMap(testsOf);
}

function failuresOf(file: File): string[] {
  const failed = testsOf(file).filter(({ result }) => result?.state === "fail");
  const found = failed.flatMap(({ name, result }) =>
    (result?.errors ?? []).map(({ message }) => `${name}: ${message}`),
  );
  // A file that does not load, or a hook that throws, fails without any failed test.
  const whole = file.result?.state === "fail" && found.length === 0;
  return whole ? [(file.result?.errors ?? []).map(({ message }) => message).join(" | ")] : found;
}

await importEngine(process.env.SHARDWISE_ENGINE ?? "mpi");
const run = await startTests(files, runner);
const failures = run.flatMap((file) => failuresOf(file).map((text) => `${file.name} > ${text}`));
for (const text of failures) console.log(`FAIL process ${rank}: ${text.replaceAll(/\s*\n\s*/g, " | ")}`);
const passed = run.flatMap(testsOf).filter(({ result }) => result?.state === "pass").length;
if (rank === 0) console.log(`${passed} passed, ${failures.length} failed`);
process.exitCode = failures.length > 0 || passed === 0 ? 1 : 0;
// The process of an engine, such as that of Python, would keep this one alive; those of a job end together.
if (detectLaunch() === undefined) process.exit();
