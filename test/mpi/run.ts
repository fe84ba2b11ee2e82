/**
 * Everything that several processes must do, with every MPI that is installed:
 *
 *   npm run test:mpi [-- --part goldens|parallel|faults] [--processes 2,4,8] [--mpi openmpi|mpich]
 *
 * `goldens` compares with the values of `test/goldens`; `parallel` runs the tests of `src/parallel` in every process;
 * `faults` is what `test/mpi.test.ts`, `test/mpiTraining.test.ts` and `test/elastic.test.ts` hold. The last lines are a table of all of it.
 */
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { type Ended, ended, findLaunchers, type Launcher, launch, noLauncher } from "../support/launchers.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const here = (name: string) => fileURLToPath(new URL(name, import.meta.url));
const typescript = ["--import", join(root, "scripts/typescript.mjs")];

/** A job may take this long on a machine with fewer cores than processes. */
const LIMIT_MS = 3_000_000;

interface Row {
  readonly part: string;
  readonly mpi: string;
  readonly processes: string;
  readonly passed: number;
  readonly failed: number;
  readonly seconds: number;
}

/** The tests of parallel layers, pipelines and training steps; schedules that are only drawn are left out. */
function parallelTests(): string[] {
  return ["src/parallel", "src/parallel/schedule"]
    .flatMap((folder) => readdirSync(join(root, folder)).map((file) => join(root, folder, file)))
    .filter((file) => file.endsWith(".test.ts") && !/schedule\/(schedule|simulate)\.test/.test(file))
    .map((file) => relative(process.cwd(), file));
}

/** What a job said at its end: `N passed, M failed`; one that says nothing has failed. */
function readRow(part: string, mpi: string, processes: string, { code, out, err, milliseconds }: Ended): Row {
  const [, passed = "0", said = "0"] = /(\d+) passed, (\d+) failed\s*$/.exec(out) ?? [];
  const failed = Math.max(Number(said), code === 0 && Number(passed) > 0 ? 0 : 1);
  if (failed > 0) process.stdout.write(`${part}, ${mpi}, ${processes} processes:\n${out}${err}\n`);
  return { part, mpi, processes, passed: Number(passed), failed, seconds: milliseconds / 1000 };
}

async function goldens(launcher: Launcher, count: number): Promise<Row> {
  const args = [...typescript, join(root, "test/conformance/goldens/main.ts"), join(root, "test/goldens")];
  const job = launch(launcher, count, [...args, "--engine", "mpi"]);
  return readRow("goldens", launcher.name, String(count), await ended(job, LIMIT_MS));
}

/** Runs test files in every process. */
async function parallel(launcher: Launcher, count: number): Promise<Row> {
  const args = [...typescript, "--import", here("hooks.mjs"), here("suite.ts"), ...parallelTests()];
  const job = launch(launcher, count, args, {
    SHARDWISE_ENGINE: here("wholeEngine.ts"),
    SHARDWISE_FLIGHT: "",
  });
  return readRow("parallel", launcher.name, String(count), await ended(job, LIMIT_MS));
}

async function faults(): Promise<Row> {
  const vitest = join(root, "node_modules/vitest/vitest.mjs");
  const files = ["test/mpi.test.ts", "test/mpiTraining.test.ts", "test/elastic.test.ts", "src/engines/mpi"];
  const job = spawn(process.execPath, [vitest, "run", ...files], {
    cwd: root,
    env: { ...process.env, SHARDWISE_ALL_MPI: "1", NO_COLOR: "1" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  return readRow("faults and training", "all", "2, 4", await ended(job, LIMIT_MS));
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      part: { type: "string" },
      processes: { type: "string", default: "2,4,8" },
      mpi: { type: "string" },
    },
  });
  const wanted = values.mpi === "mpich" ? "MPICH" : values.mpi === "openmpi" ? "Open MPI" : undefined;
  const launchers = findLaunchers().filter(({ name }) => wanted === undefined || name === wanted);
  if (launchers.length === 0) throw new Error(noLauncher);
  const isWanted = (part: string) => values.part === undefined || values.part === part;
  const rows: Row[] = [];
  const add = (row: Row) => {
    rows.push(row);
    console.error(`${row.part}, ${row.mpi}, ${row.processes}: ${row.passed} passed, ${row.failed} failed`);
  };
  for (const launcher of launchers) {
    for (const count of values.processes.split(",").map(Number)) {
      if (isWanted("goldens")) add(await goldens(launcher, count));
      if (isWanted("parallel")) add(await parallel(launcher, count));
    }
  }
  if (isWanted("faults")) add(await faults());
  console.table(rows.map((row) => ({ ...row, seconds: Math.round(row.seconds) })));
  const sum = (of: (row: Row) => number) => rows.reduce((total, row) => total + of(row), 0);
  const [passed, failed] = [sum((row) => row.passed), sum((row) => row.failed)];
  console.log(`${passed} passed, ${failed} failed`);
  return failed > 0 || passed === 0 ? 1 : 0;
}

process.exitCode = await main();
