/**
 * Checks a folder of reference values:
 *
 *   npm run conformance -- DIR [--engine NAME|PACKAGE|PATH] [--area AREA]
 *   npm run conformance -- DIR --engine mpi [--processes N] [--mpi openmpi|mpich]
 */
import { parseArgs } from "node:util";
import "../../../src/index.js";
import { engineNames, importEngine, openEngine } from "../../../src/engines/index.js";
import { detectLaunch } from "../../../src/engines/launch.js";
import { ShardwiseError, ValueError } from "../../../src/ir/errors.js";
import { ended, findLaunchers, launch, noLauncher } from "../../support/launchers.js";
import { runConformance } from "./run.js";

const usage = `usage: npm run conformance -- DIR [--engine ${engineNames.join("|")}|PACKAGE|PATH] [--area AREA] [--processes N] [--mpi openmpi|mpich]`;

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      engine: { type: "string", default: "threads" },
      area: { type: "string" },
      processes: { type: "string", default: "2" },
      mpi: { type: "string" },
    },
  });
  const [folder, ...more] = positionals;
  if (folder === undefined || more.length > 0) {
    console.error(usage);
    return 2;
  }
  const { engine, area } = values;
  if (engine === "mpi" && detectLaunch() === undefined) return startProcesses(values.processes, values.mpi);
  await importEngine(engine);
  const rank = detectLaunch()?.rank ?? 0;
  // What fails in one process only has to be seen, the closing line once.
  const print = (line: string) => {
    if (rank === 0) console.log(line);
    else if (line.startsWith("FAIL")) console.log(`process ${rank}: ${line}`);
  };
  // Processes without a device of a case wait at the next one until the others have computed it.
  const patience = engine === "mpi" ? { deadlineMs: 900_000 } : {};
  const { passed, failed } = await runConformance({
    folder,
    openEngine: (numDevices) => openEngine(engine, { numDevices, ...patience }),
    area,
    print,
  });
  return failed > 0 || passed === 0 ? 1 : 0;
}

/** Runs this same command in several processes. */
async function startProcesses(processes: string, mpi: string | undefined): Promise<number> {
  const count = Number(processes);
  if (!Number.isInteger(count) || count < 1) {
    throw new ValueError(`--processes ${processes} is not a number of processes`);
  }
  const wanted = mpi === "mpich" ? "MPICH" : mpi === "openmpi" ? "Open MPI" : undefined;
  const launcher = findLaunchers().find(({ name }) => wanted === undefined || name === wanted);
  if (launcher === undefined) throw new ValueError(`--engine mpi: ${noLauncher}`);
  const child = launch(launcher, count, [...process.execArgv, ...process.argv.slice(1)]);
  child.stdout?.pipe(process.stdout);
  child.stderr?.pipe(process.stderr);
  return (await ended(child, 3_600_000)).code ?? 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  const isUsage = error instanceof TypeError && "code" in error;
  console.error(
    error instanceof ShardwiseError ? error.message : isUsage ? `${error.message}\n${usage}` : error,
  );
  process.exitCode = 2;
}
