/**
 * Pipelines on two devices: the share of the bubble, measured and by the formula, GPipe compared with circular, the
 * memory saved by recomputing iterations, and schedules that interleave forward and backward compared with GPipe.
 */
import {
  costAnalysis,
  devicePut,
  grad,
  jit,
  Mesh,
  NamedSharding,
  np,
  P,
  random,
  type Tensor,
} from "shardwise";
import { createThreadsEngine, type ThreadsEngine, type TraceEvent } from "shardwise/engines";
import * as nn from "shardwise/nn";
import { CircularPipeline } from "shardwise/parallel";
import { at } from "../src/ir/shape.js";
import { bestInTurns, type Report, type Row, settle, sum, traced } from "./measure.js";
import { compareSchedules } from "./schedules.js";

const [stages, width, length, microbatchSize, numLayers] = [2, 256, 64, 4, 4];

/** Number of recorded runs, of which the fastest counts. */
const RECORDED = 10;

const Layer = nn.module("Layer", ({ layers }: { layers: number }) => (x: Tensor): Tensor => {
  let y = x;
  for (let i = 0; i < layers; i++) {
    const hidden = nn.gelu(nn.Dense({ features: 4 * width, useBias: false, name: `up${i}` })(y));
    y = y.add(nn.Dense({ features: width, useBias: false, name: `down${i}` })(hidden));
  }
  return y;
});

interface Shape {
  readonly microbatches: number;
  readonly repeats: number;
  readonly remat: boolean;
}

function build(mesh: Mesh, { microbatches, repeats, remat }: Shape) {
  const pipeline = CircularPipeline({
    layers: Layer({ layers: numLayers / (stages * repeats), parent: null }),
    mesh,
    numPipelineMicrobatches: microbatches,
    numPipelineRepeats: repeats,
    setRematPolicyOnPipelineIterations: remat,
    logicalAxisRules: [
      ["activation_stage", "stage"],
      ["layers", "stage"],
    ],
  });
  const x = random.normal(random.key(1), [microbatches * microbatchSize, length, width]);
  const variables = jit((key: Tensor) => pipeline.init(key, x), { mesh })(random.key(0));
  const step = (v: typeof variables, inputs: Tensor) =>
    grad((w: typeof v) => np.mean(np.square(pipeline.apply(w, inputs))))(v);
  return { step, variables, x };
}

/** A training step of a shape, ready to run. */
async function prepare(mesh: Mesh, shape: Shape): Promise<() => Promise<void>> {
  const { step, variables, x } = build(mesh, shape);
  const placed = await devicePut(x, new NamedSharding(mesh, P()));
  const compiled = jit(step, { mesh });
  return () => settle(compiled(variables, placed));
}

const millisecondsOf = (events: readonly TraceEvent[]) => sum(events.map(({ begin, end }) => end - begin));

/**
 * The share of the time in which stages compute unused values: all of them take part in every iteration of the forward
 * and backward loops, although microbatches reach some stages later than others and leave them earlier.
 */
function idleShare(iterations: readonly TraceEvent[], numPasses: number): number {
  const forward = Math.min(...iterations.map(({ step }) => step));
  const isIdle = ({ device, step, iteration = 0 }: TraceEvent) => {
    // The backward pass begins at the last stage.
    const stage = step === forward ? device : stages - 1 - device;
    return iteration < stage || iteration >= stage + numPasses;
  };
  return millisecondsOf(iterations.filter(isIdle)) / millisecondsOf(iterations);
}

/** The iterations of the fastest of several runs of a step. */
async function record(engine: ThreadsEngine, run: () => Promise<void>): Promise<readonly TraceEvent[]> {
  const recorded: TraceEvent[][] = [];
  for (let i = 0; i < RECORDED; i++) {
    const events = await traced(engine, run);
    recorded.push(events.filter(({ kind }) => kind === "iteration"));
  }
  return recorded.reduce((a, b) => (millisecondsOf(b) < millisecondsOf(a) ? b : a));
}

/** Runs the benchmark. */
export async function pipeline(): Promise<Report> {
  const engine = createThreadsEngine({ numDevices: stages });
  const mesh = Mesh.create({ stage: stages }, { engine });
  const rows: Row[] = [];
  const counts = [2, 4, 8];
  for (const repeats of [1, 2]) {
    const runs: (() => Promise<void>)[] = [];
    for (const microbatches of counts)
      runs.push(await prepare(mesh, { microbatches, repeats, remat: false }));
    const times = await bestInTurns(runs);
    for (const [i, microbatches] of counts.entries()) {
      const iterations = await record(engine, at(runs, i));
      rows.push({
        schedule: repeats === 1 ? "GPipe" : `circular x${repeats}`,
        microbatches,
        ms: at(times, i),
        "bubble measured %": 100 * idleShare(iterations, repeats * microbatches),
        "bubble formula %": (100 * (stages - 1)) / (repeats * microbatches + stages - 1),
      });
    }
  }
  const memory: Row[] = [false, true].map((remat) => {
    const { step, variables, x } = build(mesh, { microbatches: 8, repeats: 1, remat });
    const cost = costAnalysis(step, { mesh })(variables, x);
    return {
      remat: remat ? "iterations" : "none",
      "peak MiB a device": cost.peakBytes / 2 ** 20,
      GFLOP: cost.flops / 1e9,
    };
  });
  const schedules = await compareSchedules(engine);
  await engine.close();
  return {
    "pipelines, 2 stages, forward and backward": rows,
    "memory of 8 micro-batches": memory,
    ...schedules,
  };
}
