/**
 * Pipelines on two devices: how much of the time is bubble, measured and by the formula, GPipe beside circular, what
 * recomputing iterations saves in memory, and the schedules that interleave forward and backward beside GPipe, and
 * beside JAX's where a Python with JAX is found.
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
  Tensor,
  tree,
} from "shardwise";
import { createThreadsEngine, type ThreadsEngine, type TraceEvent } from "shardwise/engines";
import * as nn from "shardwise/nn";
import {
  CircularPipeline,
  checkSchedule,
  makeSchedule,
  pipelineTrainStep,
  placeParts,
  type ScheduleName,
} from "shardwise/parallel";
import { runJax } from "./jax.js";
import { best, bestInTurns, type Report, type Row } from "./measure.js";

const [stages, width, length, microbatchSize, numLayers] = [2, 256, 64, 4, 4];

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
  return async () => {
    const grads = compiled(variables, placed);
    await Promise.all(leaves(grads).map((leaf) => leaf.ready()));
    for (const leaf of leaves(grads)) leaf.dispose();
  };
}

function leaves(values: unknown): Tensor[] {
  return tree.leaves(values).filter((leaf): leaf is Tensor => leaf instanceof Tensor);
}

interface LayerWeights {
  readonly up: Tensor;
  readonly down: Tensor;
}

/** The same layers as above, as a step by a schedule. */
function buildStep(mesh: Mesh, name: ScheduleName, microbatches: number) {
  const chunks = name === "interleaved" || name === "circular" ? { numChunks: 2 } : {};
  const schedule = makeSchedule(name, { numStages: stages, numMicrobatches: microbatches, ...chunks });
  const numParts = stages * schedule.numChunks;
  const layers = numLayers / numParts;
  const stage = ({ up, down }: LayerWeights, x: Tensor) => {
    let y = x;
    for (let i = 0; i < layers; i++) y = y.add(np.matmul(nn.gelu(np.matmul(y, up.get(i))), down.get(i)));
    return y;
  };
  const step = pipelineTrainStep(
    schedule,
    {
      first: (_: object, x: Tensor) => x,
      stage,
      last: (_: object, y: Tensor, zero: Tensor) => np.mean(np.square(y.sub(zero))),
    },
    { mesh },
  );
  const normal = (i: number, shape: number[]) => random.normal(random.key(i), shape).mul(0.02);
  const x = random.normal(random.key(1), [microbatches * microbatchSize, length, width]);
  const weights = {
    first: {},
    stages: placeParts(schedule, {
      up: normal(2, [numParts, layers, width, 4 * width]),
      down: normal(3, [numParts, layers, 4 * width, width]),
    }),
    last: {},
  };
  return { step, schedule, weights, x };
}

/** The milliseconds of a step by a schedule, and the share of them in which devices wait for each other. */
async function timeStep(
  engine: ThreadsEngine,
  mesh: Mesh,
  name: ScheduleName,
  microbatches: number,
): Promise<{ ms: number; bubble: number }> {
  const { step, weights, x } = buildStep(mesh, name, microbatches);
  const everywhere = new NamedSharding(mesh, P());
  const [placed, zero] = await Promise.all([
    devicePut(x, everywhere),
    devicePut(np.zerosLike(x), everywhere),
  ]);
  const kernels = await devicePut(weights.stages, new NamedSharding(mesh, P(null, "pipe")));
  const compiled = jit(step, { mesh });
  const run = async () => {
    const results = compiled({ ...weights, stages: kernels }, placed, zero);
    await Promise.all(leaves(results).map((leaf) => leaf.ready()));
    for (const leaf of leaves(results)) leaf.dispose();
  };
  const ms = await best(run, { seconds: 1 });
  const shares: number[] = [];
  for (let i = 0; i < 9; i++) {
    engine.tracer.start();
    await run();
    shares.push(waitingShare(await engine.tracer.stop()));
  }
  return { ms, bubble: shares.sort((a, b) => a - b)[4] ?? 0 };
}

/** Of the time that devices spend in the loop over slots, the share in which they wait for others. */
function waitingShare(events: readonly TraceEvent[]): number {
  const whole = events.filter(({ iteration }) => iteration === undefined);
  const spent = whole.reduce((sum, { kind, begin, end }) => sum + (kind === "loop" ? end - begin : 0), 0);
  const waited = whole.flatMap(({ waits }) => waits).reduce((sum, { begin, end }) => sum + end - begin, 0);
  return waited / spent;
}

const schedulesCompared: readonly ScheduleName[] = [
  "gpipe",
  "1f1b",
  "zb-h1",
  "zb-h2",
  "circular",
  "interleaved",
  "zb-v",
  "dualpipev",
];

/** The milliseconds of GPipe on the same layers in JAX, where it is installed. */
function jaxGPipe(microbatches: number): number | null {
  const sizes = { stages, microbatches, rows: microbatchSize, length, width, layers: numLayers };
  return runJax("pipeline.py", sizes, { devices: stages, cores: stages })?.step_ms ?? null;
}

/** Every schedule on the same mathematics: its bubble, measured and counted, its memory, and its time beside GPipe. */
async function compareSchedules(engine: ThreadsEngine): Promise<Row[]> {
  const mesh = Mesh.create({ pipe: stages }, { engine });
  const rows: Row[] = [];
  const gpipe = new Map<number, number>();
  for (const name of schedulesCompared) {
    for (const microbatches of [2, 4, 8]) {
      const { ms, bubble } = await timeStep(engine, mesh, name, microbatches);
      const { step, schedule, weights, x } = buildStep(mesh, name, microbatches);
      if (name === "gpipe") gpipe.set(microbatches, ms);
      const cost = costAnalysis(step, { mesh })(weights, x, np.zerosLike(x));
      rows.push({
        schedule: name,
        microbatches,
        ms,
        "x GPipe": ms / (gpipe.get(microbatches) ?? ms),
        "bubble measured %": 100 * bubble,
        "bubble formula %": 100 * checkSchedule(schedule).bubble,
        "peak MiB a device": cost.peakBytes / 2 ** 20,
        "JAX GPipe ms": name === "gpipe" ? jaxGPipe(microbatches) : null,
      });
    }
  }
  return rows;
}

/** Runs the benchmark. */
export async function pipeline(): Promise<Report> {
  const engine = createThreadsEngine({ numDevices: stages });
  const mesh = Mesh.create({ stage: stages }, { engine });
  const rows: Row[] = [];
  const counts = [2, 4, 8, 16];
  for (const repeats of [1, 2]) {
    const runs: (() => Promise<void>)[] = [];
    for (const microbatches of counts)
      runs.push(await prepare(mesh, { microbatches, repeats, remat: false }));
    // Without bubble, twice the micro-batches take twice the time: the difference is what a micro-batch costs.
    const times = await bestInTurns(runs);
    const [, , ofEight = 0, ofSixteen = 0] = times;
    const perMicrobatch = (ofSixteen - ofEight) / 8;
    for (const [i, microbatches] of counts.slice(0, 3).entries()) {
      const total = times[i] ?? 0;
      rows.push({
        schedule: repeats === 1 ? "GPipe" : `circular x${repeats}`,
        microbatches,
        ms: total,
        "bubble measured %": 100 * (1 - (perMicrobatch * microbatches) / total),
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
    "schedules, 2 stages, forward and backward": schedules,
  };
}
