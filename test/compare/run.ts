/**
 * Runs random programs on an engine and compares them with the interpreter: results, errors of callbacks, donated and
 * other inputs. A program that differs is made small and printed, in the form that `parseProgram` reads.
 *
 *   npm run compare                                     # threads, 1000 programs
 *   npm run compare -- --engine inline,threads,mpi,xla  # several engines; xla needs a Python with jax (SHARDWISE_PYTHON)
 *   npm run compare -- --engine webgpu --programs 100   # on the GPU that Node finds
 *   npm run compare -- --seed 17 --programs 1           # one program again
 */
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { createInlineEngine } from "../../src/engines/inline/engine.js";
import { detectLaunch } from "../../src/engines/launch.js";
import { createOneThreadEngine } from "../../src/engines/oneThread/engine.js";
import { createThreadsEngine } from "../../src/engines/threads/engine.js";
import { createWebGpuEngine } from "../../src/engines/webgpu/engine.js";
import { dtypes } from "../../src/ir/dtype.js";
import type { Engine } from "../../src/ir/engine.js";
import type { Allowances } from "../conformance/engine/differences.js";
import { leftToDriver } from "../conformance/engine/leftToDriver.js";
import { createEngine as createMpi } from "../mpi/wholeEngine.js";
import { createEngine as createXla } from "../stablehlo/jaxEngine.js";
import { ended, findLaunchers, launch, noLauncher } from "../support/launchers.js";
import { type CaseOptions, caseOf } from "./cases.js";
import { differenceOn } from "./compare.js";
import { minimise, printCase } from "./minimise.js";

const { values: options } = parseArgs({
  options: {
    engine: { type: "string", default: "threads" },
    seed: { type: "string", default: "1" },
    programs: { type: "string", default: "1000" },
  },
});

interface Compared extends CaseOptions {
  readonly open: () => Engine;
  /** In what it may differ, or how to find that out. */
  readonly allowances?: Allowances | ((engine: Engine) => Promise<Allowances>);
}

const numDevices = 4;
const engines: Readonly<Record<string, Compared>> = {
  threads: { open: () => createThreadsEngine({ numDevices }), callbacks: "all" },
  inline: { open: () => createInlineEngine({ numDevices }), callbacks: "all" },
  oneThread: { open: () => createOneThreadEngine({ numDevices }), callbacks: "all" },
  // A callback that throws in one process ends the job, so that nothing can be compared after it.
  mpi: { open: () => createMpi({ numDevices }), callbacks: "computing" },
  // Simulated devices of jaxlib call no functions of Node.
  xla: { open: () => createXla(), callbacks: "none", allowances: { flushesTiny: true, joinsOps: true } },
  webgpu: {
    open: () => createWebGpuEngine({ numDevices }),
    callbacks: "all",
    types: dtypes.filter((dtype) => dtype !== "float64"),
    allowances: leftToDriver,
  },
};

/** Compares programs on an engine. @returns how many differ */
async function compareAll(
  name: string,
  { open, allowances: allowed = {}, ...having }: Compared,
): Promise<number> {
  const first = Number(options.seed);
  const isFirst = (detectLaunch()?.rank ?? 0) === 0;
  let engine = open();
  const allowances = typeof allowed === "function" ? await allowed(engine) : allowed;
  let numDiffering = 0;
  const differs = async (one: Parameters<typeof differenceOn>[1]): Promise<string | undefined> => {
    if (engine.isOpen === false) engine = open();
    return differenceOn(engine, one, allowances);
  };
  for (let seed = first; seed < first + Number(options.programs); seed++) {
    const one = caseOf(seed, having);
    const difference = await differs(one);
    if (difference === undefined) continue;
    numDiffering++;
    const small = await minimise(one, async (next) => (await differs(next)) !== undefined);
    if (isFirst) console.log(`${name}: ${(await differs(small)) ?? difference}\n${printCase(small)}\n`);
  }
  await engine.close();
  if (isFirst)
    console.log(`${name}: ${options.programs} programs from seed ${first}, ${numDiffering} differ`);
  return numDiffering;
}

/** Starts this program again as two processes of an MPI job. */
async function compareWithMpi(): Promise<number> {
  const [launcher] = findLaunchers();
  if (launcher === undefined) {
    console.log(`mpi: ${noLauncher}`);
    return 0;
  }
  const args = ["--engine", "mpi", "--seed", options.seed, "--programs", options.programs];
  const own = [...process.execArgv, fileURLToPath(import.meta.url), ...args];
  const { code, out, err } = await ended(launch(launcher, 2, own), 3_600_000);
  process.stdout.write(code === 0 ? out : `${out}${err}`);
  return code ?? 1;
}

let numDiffering = 0;
for (const name of options.engine.split(",")) {
  const compared = engines[name];
  if (compared === undefined) {
    console.error(`unknown engine ${name}: choose from ${Object.keys(engines).join(", ")}`);
    process.exit(2);
  }
  numDiffering +=
    name === "mpi" && detectLaunch() === undefined
      ? await compareWithMpi()
      : await compareAll(name, compared);
}
process.exit(numDiffering > 0 ? 1 : 0);
