import type { CollectiveSpec, CompiledProgram, Step } from "../src/compiler/steps.js";
import { createThreadsEngine, type ThreadsEngine } from "../src/engines/threads/engine.js";
import type { CompileOptions, Engine, Executable } from "../src/ir/engine.js";
import type { MeshShape } from "../src/ir/mesh.js";
import { at, range, tensorType } from "../src/ir/shape.js";
import { collectiveSpec, handProgram } from "../test/support/threadsPrograms.js";
import { median, type Report, type Row } from "./measure.js";
import { countsOption, option } from "./options.js";

/**
 * Collectives at several sizes, in µs each, on `--devices` devices (2): the time of a loop of them inside one run,
 * divided by their number, and what it costs to start a run from the main thread.
 */
const SECONDS = Number(process.env.SECONDS ?? 1);
/** The sizes that are measured, in bytes. */
export const collectiveSizes = [64, 4 * 1024, 64 * 1024, 1024 * 1024, 16 * 1024 * 1024];

/** The collectives that are measured, by their usual names. */
export const collectiveKinds: readonly (readonly [name: string, kind: CollectiveSpec["kind"]])[] = [
  ["all-reduce", "allReduce"],
  ["all-gather", "allGather"],
  ["reduce-scatter", "reduceScatter"],
  ["ppermute", "permute"],
  ["all-to-all", "allToAll"],
];

/** An engine of worker threads, in one process or several. */
interface LoopEngine
  extends Pick<Engine, "numDevices" | "isAddressable" | "upload" | "download" | "release"> {
  load(program: CompiledProgram, options: CompileOptions): Executable;
}

/** A loop of one collective inside one run. */
interface CollectiveLoop {
  /** How many collectives a run has. */
  readonly rounds: number;
  readonly run: () => Promise<void>;
  readonly release: () => void;
}

/** Prepares a loop of a collective over all devices of an engine. @param longer factor of its usual length */
export function collectiveLoop(
  engine: LoopEngine,
  kind: CollectiveSpec["kind"],
  bytes: number,
  longer = 1,
): CollectiveLoop {
  const { numDevices } = engine;
  const mesh = { axes: [{ name: "x", size: numDevices }] };
  // Runs of a few milliseconds.
  const rounds = longer * Math.max(2, Math.min(1000, Math.ceil(4e7 / (bytes + 40_000))));
  const { load, steps } = loopSteps(mesh, numDevices, kind, bytes, rounds);
  const type = tensorType("float32", [1]);
  const run = engine.load(handProgram("loop", [type], [type], { ...load, steps }), {
    mesh,
    devices: range(numDevices),
  });
  const own = range(numDevices).filter((device) => engine.isAddressable(device));
  const input = own.map((device) => engine.upload(type, new Float32Array(1), device));
  return {
    rounds,
    run: async () => {
      const [outputs = []] = run.execute([input]);
      await Promise.all(outputs.map((buffer) => engine.download(buffer)));
      for (const buffer of outputs) engine.release(buffer);
    },
    release: () => {
      run.release();
      for (const buffer of input) engine.release(buffer);
    },
  };
}

function loopSteps(
  mesh: MeshShape,
  numDevices: number,
  kind: CollectiveSpec["kind"],
  bytes: number,
  rounds: number,
) {
  const isPart = kind === "allGather" || kind === "reduceScatter" || kind === "allToAll";
  // The size is that of the whole: what an all-gather produces and a reduce-scatter takes.
  const inner = isPart ? bytes / 4 / numDevices : bytes / 4;
  const permutation = range(numDevices).map((i) => [i, (i + 1) % numDevices] as const);
  const shape = { kind, dtype: "float32", axes: ["x"], outer: 1, inner, permutation } as const;
  const use = { collective: 0, info: 0 } as const;
  const body: readonly Step[] = [
    { op: "start", ...use },
    { op: "done", ...use },
  ];
  return {
    load: {
      arenaBytes: 2 * bytes,
      slots: [
        { kind: "arena", offset: 0 },
        { kind: "arena", offset: bytes },
      ] as const,
      collectives: [collectiveSpec(mesh, shape, 2, 3)],
    },
    steps: [{ op: "loop", count: rounds, sets: [], body, advances: [], swaps: [], info: 0 }] as const,
  };
}

async function timeCollective(
  engine: ThreadsEngine,
  kind: CollectiveSpec["kind"],
  bytes: number,
): Promise<number> {
  const { run, rounds, release } = collectiveLoop(engine, kind, bytes);
  let best = Number.POSITIVE_INFINITY;
  const end = performance.now() + SECONDS * 1000;
  // The best of many, since other processes may be busy.
  while (performance.now() < end) {
    const begin = performance.now();
    await run();
    best = Math.min(best, performance.now() - begin);
  }
  release();
  return (best * 1000) / rounds;
}

/** The main thread's time to start a run of a program with many arguments, and a whole round trip. */
async function timeDispatch(engine: ThreadsEngine, numArguments: number): Promise<readonly [number, number]> {
  const { numDevices } = engine;
  const mesh = { axes: [{ name: "x", size: numDevices }] };
  const type = tensorType("float32", [16]);
  const types = range(numArguments / 2).map(() => type);
  const program = handProgram("many", types, types, { steps: [] });
  const run = engine.load(program, { mesh, devices: range(numDevices) });
  const inputs = types.map(() =>
    range(numDevices).map((device) => engine.upload(type, new Float32Array(16), device)),
  );
  const starts: number[] = [];
  const trips: number[] = [];
  for (let i = 0; i < 300; i++) {
    const begin = performance.now();
    const outputs = run.execute(inputs);
    starts.push(performance.now() - begin);
    await engine.download(at(at(outputs, 0), 0));
    trips.push(performance.now() - begin);
    for (const buffer of outputs.flat()) engine.release(buffer);
  }
  return [1000 * median(starts), 1000 * median(trips)];
}

/** Runs the benchmark; with `--engine mpi` in several processes. */
export async function collectives(): Promise<Report> {
  if (option("engine") === "mpi") {
    const { collectivesOverMpi } = await import("./mpi/report.js");
    return collectivesOverMpi();
  }
  let report: Report = {};
  for (const numDevices of countsOption("devices", [2])) {
    report = { ...report, ...(await onThreads(numDevices)) };
  }
  return report;
}

async function onThreads(numDevices: number): Promise<Report> {
  const engine = createThreadsEngine({ numDevices });
  const rows: Row[] = [];
  // Warm-up: the workers' code is still being optimised in its first runs.
  for (const [, kind] of collectiveKinds) await timeCollective(engine, kind, at(collectiveSizes, 0));
  for (const [name, kind] of collectiveKinds) {
    const row: Record<string, string | number> = { collective: name };
    for (const bytes of collectiveSizes) row[sizeName(bytes)] = await timeCollective(engine, kind, bytes);
    rows.push(row);
  }
  const [start, trip] = await timeDispatch(engine, 200);
  await engine.close();
  return {
    [`collectives, ${numDevices} devices, µs`]: rows,
    [`a run with 200 arguments, ${numDevices} devices, µs`]: [{ dispatch: start, "until its result": trip }],
  };
}

function sizeName(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  return bytes >= 2 ** 20 ? `${bytes / 2 ** 20} MiB` : `${bytes / 1024} KiB`;
}
