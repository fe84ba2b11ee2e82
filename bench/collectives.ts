import type { CollectiveSpec } from "../src/compiler/steps.js";
import { createThreadsEngine, type ThreadsEngine } from "../src/engines/threads/engine.js";
import { at, range, tensorType } from "../src/ir/shape.js";
import { collectiveSpec, handProgram } from "../test/support/threadsPrograms.js";
import type { Report, Row } from "./measure.js";

/**
 * Collectives at several sizes, in µs each, on `DEVICES` devices (2): the time of a loop of them inside one run,
 * divided by their number, and what it costs to start a run from the main thread.
 */
const numDevices = Number(process.env.DEVICES ?? 2);
const SECONDS = Number(process.env.SECONDS ?? 1);
const mesh = { axes: [{ name: "x", size: numDevices }] };
const sizes = [4 * 1024, 64 * 1024, 1024 * 1024, 16 * 1024 * 1024];

const kinds: readonly (readonly [name: string, kind: CollectiveSpec["kind"]])[] = [
  ["all-reduce", "allReduce"],
  ["all-gather", "allGather"],
  ["reduce-scatter", "reduceScatter"],
  ["ppermute", "permute"],
  ["all-to-all", "allToAll"],
];

async function timeCollective(
  engine: ThreadsEngine,
  kind: CollectiveSpec["kind"],
  bytes: number,
): Promise<number> {
  const elements = bytes / 4;
  // Runs of a few milliseconds, and the best of many: other processes may be busy.
  const rounds = Math.max(2, Math.min(1000, Math.ceil(4e7 / (bytes + 40_000))));
  const gathered = kind === "allGather";
  const split = kind === "reduceScatter" || kind === "allToAll";
  // The size is that of the whole: what an all-gather produces and a reduce-scatter takes.
  const inner = gathered || split ? elements / numDevices : elements;
  const spec = collectiveSpec(
    mesh,
    {
      kind,
      dtype: "float32",
      axes: ["x"],
      outer: 1,
      inner,
      permutation: range(numDevices).map((i) => [i, (i + 1) % numDevices] as const),
    },
    2,
    3,
  );
  const type = tensorType("float32", [1]);
  const program = handProgram("loop", [type], [type], {
    arenaBytes: 2 * bytes,
    slots: [
      { kind: "arena", offset: 0 },
      { kind: "arena", offset: bytes },
    ],
    collectives: [spec],
    steps: [
      {
        op: "loop",
        count: rounds,
        sets: [],
        body: [
          { op: "start", collective: 0, info: 0 },
          { op: "done", collective: 0, info: 0 },
        ],
        advances: [],
        swaps: [],
        info: 0,
      },
    ],
  });
  const run = engine.load(program, { mesh, devices: range(numDevices) });
  const input = range(numDevices).map((device) => engine.upload(type, new Float32Array(1), device));
  let best = Number.POSITIVE_INFINITY;
  const end = performance.now() + SECONDS * 1000;
  while (performance.now() < end) {
    const begin = performance.now();
    const [outputs = []] = run.execute([input]);
    await Promise.all(outputs.map((buffer) => engine.download(buffer)));
    best = Math.min(best, performance.now() - begin);
    for (const buffer of outputs) engine.release(buffer);
  }
  return (best * 1000) / rounds;
}

/** The main thread's time to start a run of a program with many arguments, and a whole round trip. */
async function timeDispatch(engine: ThreadsEngine, numArguments: number): Promise<readonly [number, number]> {
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
  const median = (values: number[]) =>
    at(
      values.sort((a, b) => a - b),
      Math.floor(values.length / 2),
    ) * 1000;
  return [median(starts), median(trips)];
}

/** Runs the benchmark. */
export async function collectives(): Promise<Report> {
  const engine = createThreadsEngine({ numDevices });
  const rows: Row[] = [];
  // The workers' code is still being optimised while it first runs.
  for (const [, kind] of kinds) await timeCollective(engine, kind, at(sizes, 0));
  for (const [name, kind] of kinds) {
    const row: Record<string, string | number> = { collective: name };
    for (const bytes of sizes) row[sizeName(bytes)] = await timeCollective(engine, kind, bytes);
    rows.push(row);
  }
  const [start, trip] = await timeDispatch(engine, 200);
  await engine.close();
  return {
    [`collectives, ${numDevices} devices, µs`]: rows,
    "a run with 200 arguments, µs": [{ dispatch: start, "until its result": trip }],
  };
}

function sizeName(bytes: number): string {
  return bytes >= 2 ** 20 ? `${bytes / 2 ** 20} MiB` : `${bytes / 1024} KiB`;
}
