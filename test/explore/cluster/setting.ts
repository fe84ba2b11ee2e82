/** What runs on a simulated cluster: the MPI engine and checkpoints, as they are, on simulated processes. */
import { constants } from "../constants.js";
import { type Change, type Exports, loadModules, type Setting } from "../load.js";
import { type Callable, current, globalsFor, invoke } from "../runtime.js";
import { ClusterPromise, currentLoop, settled, startAsync } from "./eventLoop.js";
import { ANSWER_MS } from "./faults.js";
import type { ClusterMachine } from "./machine.js";

const here = "test/explore/cluster";

/** The words that make few steps reach what is rare; memory is taken from a pool, because systems limit its number. */
const ownConstants: readonly Change[] = [
  ...constants.filter(({ file }) => /signals|recorder/.test(file)),
  // Sums of both kinds are formed.
  { file: "src/engines/mpi/library/mpiGroup.ts", from: "WHOLE_BYTES = 16 * 1024", to: "WHOLE_BYTES = 128" },
  // Some hear what others say before they come to the same place.
  { file: "src/engines/mpi/library/calls.ts", from: "LISTEN_MS = 250", to: "LISTEN_MS = 25" },
  // Those who are asked have to answer before their own watchdogs would make them speak.
  {
    file: "src/engines/mpi/failureReport.ts",
    from: "ANSWER_MS = 2000",
    to: `ANSWER_MS = ${ANSWER_MS}`,
  },
  { file: "src/engines/protocol/commands.ts", from: "RING_WORDS = 1 << 17", to: "RING_WORDS = 1 << 10" },
  {
    file: "src/engines/memory/memoryLayout.ts",
    from: "new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })",
    to: "takeMemory(pages)",
  },
  {
    file: "src/train/files/checkpoints/pieceFiles.ts",
    from: "const idle: ChecksumMemory[] = [];",
    to: "const idle: ChecksumMemory[] = checksumMemories;",
  },
];

const machine = () => current.machine as ClusterMachine;
currentLoop.get = () => machine().loop;

/** Memories by their number of pages: those in use, and those that a job before has left. */
const pool = { used: new Map<number, WebAssembly.Memory[]>(), free: new Map<number, WebAssembly.Memory[]>() };

/** A memory that nobody uses. */
export function takeMemory(pages: number): WebAssembly.Memory {
  const left = pool.free.get(pages)?.pop();
  if (left) new Uint8Array(left.buffer).fill(0);
  const memory = left ?? new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  pool.used.set(pages, [...(pool.used.get(pages) ?? []), memory]);
  return memory;
}

/** Says that no process uses memory any more. */
export function giveBackMemories(): void {
  for (const [pages, memories] of pool.used)
    pool.free.set(pages, [...(pool.free.get(pages) ?? []), ...memories]);
  pool.used.clear();
}

/** What processes that have ended used for checksums. */
const checksumMemories: unknown[] = [];

let numIds = 0;

/** What code sees as `process`: that of the process which runs. */
const processGlobal = new Proxy({}, { get: (_, name) => Reflect.get(machine().process.global, name) });

/** What code of a simulated process sees as globals. */
export function clusterGlobals(): Exports {
  const { $, ...globals } = globalsFor(() => ({ SimulatedPromise: ClusterPromise }));
  return {
    ...globals,
    $: { ...($ as Exports), settled, async: startAsync },
    Promise: ClusterPromise,
    performance: { now: () => machine().process.now(), timeOrigin: 0 },
    setTimeout: (action: Callable, ms = 0, ...args: unknown[]) =>
      machine().loop.setTimer(action, ms, args, false),
    setInterval: (action: Callable, ms = 0, ...args: unknown[]) =>
      machine().loop.setTimer(action, ms, args, true),
    clearTimeout: (timer: never) => machine().loop.clearTimer(timer),
    clearInterval: (timer: never) => machine().loop.clearTimer(timer),
    queueMicrotask: (task: Callable) => machine().loop.queue(() => invoke(task, undefined, [])),
    crypto: { randomUUID: () => `id-${numIds++}` },
    process: processGlobal,
  };
}

const setting: Setting = {
  simulated: [
    "src/compiler/kernel/callbackStep.ts",
    "src/engines/collectives/",
    "src/engines/devices/",
    "src/engines/flight/",
    "src/engines/memory/",
    "src/engines/mpi/",
    "src/engines/protocol/",
    "src/engines/shell.ts",
    "src/engines/workers/",
    "src/train/files/checkpoints/checkpoint.ts",
    "src/train/files/checkpoints/checkpointWrite.ts",
    "src/train/files/disk/files.ts",
    "src/train/files/disk/heldBytes.ts",
    "src/train/files/checkpoints/newestSound.ts",
    "src/train/files/checkpoints/processGroup.ts",
    "src/train/files/safetensors/safetensors.ts",
    "src/train/files/checkpoints/pieceFiles.ts",
    "test/explore/simulated/",
    `${here}/simulated/`,
  ],
  standIns: {
    "src/engines/mpi/library/library.ts": `${here}/simulated/library.ts`,
    "src/engines/mpi/workerCode.ts": "test/explore/simulated/workerCode.ts",
    "src/engines/system/codeMemory.ts": `${here}/simulated/codeMemory.ts`,
    "src/engines/system/koffi.ts": `${here}/simulated/koffi.ts`,
    "src/engines/system/pages.ts": "test/explore/simulated/pages.ts",
    "src/engines/system/v8Flags.ts": `${here}/cached/v8Flags.ts`,
    "src/engines/kernels/compileWith.ts": `${here}/cached/compileWith.ts`,
    "src/train/files/checkpoints/checkpointSnapshot.ts": `${here}/simulated/checkpointSnapshot.ts`,
    "src/platform/fs.ts": `${here}/simulated/fs.ts`,
    "src/platform/system.ts": `${here}/simulated/system.ts`,
    "src/platform/threads.ts": "test/explore/simulated/threads.ts",
    "test/explore/simulated/eventLoop.ts": `${here}/simulated/eventLoop.ts`,
  },
  constants: ownConstants,
  globals: () => ({ ...clusterGlobals(), takeMemory, checksumMemories }),
};

/** Prepares the code of the job; each call of the result gives the modules of a new process. */
export async function loadJob(changes: readonly Change[] = []): Promise<() => Callable> {
  // Machine code is for the memory of real devices.
  process.env.SHARDWISE_KERNELS = "wasm";
  const instantiate = await loadModules(`${here}/simulated/job.ts`, changes, setting);
  return () => instantiate().train as Callable;
}
