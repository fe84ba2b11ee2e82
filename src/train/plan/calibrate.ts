/** Measures this machine: products by size, kernels, copies and collectives, and what starting them takes. */
import { availableParallelism, cpus } from "node:os";
import { compileProgram } from "../../compiler/compile.js";
import type { CompiledProgram } from "../../compiler/steps.js";
import { createThreadsEngine } from "../../engines/threads/engine.js";
import { byteSize } from "../../ir/dtype.js";
import type { Engine } from "../../ir/engine.js";
import { at } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import * as np from "../../numpy/index.js";
import type { PipelineSchedule } from "../../parallel/schedule/schedule.js";
import { Mesh } from "../../spmd/mesh/mesh.js";
import { P } from "../../spmd/mesh/partitionSpec.js";
import { devicePut, NamedSharding } from "../../spmd/mesh/sharding.js";
import { partitionCall } from "../../spmd/run/call.js";
import { jit } from "../../spmd/run/jit.js";
import { shardMap } from "../../spmd/run/shardMap.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { scheduleOfRun } from "../models/scheduled.js";
import { type RunConfig, readRunConfig } from "../run/config.js";
import { expectedVocabulary, runMesh, runTrainingFunctions } from "../run/setup.js";
import {
  type Calibration,
  type CollectiveSample,
  type CopySample,
  type DeviceCalibration,
  type KernelSample,
  measuredPrices,
  type ProbeSample,
  type ProductSample,
} from "./calibration.js";
import { type Profile, profileProgram } from "./profile.js";
import { stepTime } from "./stepCost.js";

/** Options of {@link calibrate}. */
export interface CalibrateOptions {
  /** The numbers of devices to measure with; by default 1, 2, 4 and 8, and as many as there are cores. */
  readonly devices?: readonly number[];
  /** How often every program runs; 6 by default. */
  readonly numRuns?: number;
  /** Is told what is being measured. */
  readonly onProgress?: (what: string) => void;
}

/**
 * Measures what this machine's devices, threads of the default engine, take for products by size, for the kernels of
 * language models, for copies, for collectives by kind, bytes and number of devices, and for starting them. Takes a
 * minute or two, in which nothing else should run.
 */
export async function calibrate(options: CalibrateOptions = {}): Promise<Calibration> {
  const numCores = availableParallelism();
  const { devices = [...new Set([1, 2, 4, 8, numCores])], numRuns = 6, onProgress = () => {} } = options;
  const measured: DeviceCalibration[] = [];
  let gemm = "";
  for (const numDevices of [...devices].sort((a, b) => a - b)) {
    const engine = createThreadsEngine({ numDevices });
    try {
      gemm = engine.info().gemm ?? gemm;
      measured.push(await measureDevices(engine, numDevices, numRuns, numDevices <= numCores, onProgress));
    } finally {
      await engine.close();
    }
  }
  return {
    version: 2,
    processor: cpus()[0]?.model.trim() ?? "unknown",
    numCores,
    gemm,
    day: new Date().toISOString().slice(0, 10),
    measured,
  };
}

async function measureDevices(
  engine: Engine,
  numDevices: number,
  numRuns: number,
  computes: boolean,
  onProgress: (what: string) => void,
): Promise<DeviceCalibration> {
  const say = (what: string) => onProgress(`${numDevices} device${numDevices > 1 ? "s" : ""}: ${what}`);
  const all = new Samples();
  say("calls and collectives");
  const call = await measureCall(engine, numDevices, numRuns);
  if (numDevices > 1) await measureCollectives(engine, numDevices, numRuns, all);
  if (!computes) return { ...all.calibration(numDevices), call };
  say("products");
  await measureProducts(engine, numDevices, numRuns, all);
  const steps: TrainingProbe[] = [];
  for (const [what, config] of probeConfigs(numDevices)) {
    say(what);
    steps.push(await measureTraining(engine, config, numRuns, all));
  }
  const parts = { ...all.calibration(numDevices), call };
  const prices = measuredPrices(parts, parts, call, numDevices);
  const probes = steps.map(({ compiled, schedule, seconds }): ProbeSample => {
    const priced = stepTime(compiled, prices, { numDevices, schedule });
    return { priced: priced.seconds - call, seconds: Math.max(0, seconds - call) };
  });
  return { ...parts, probes };
}

/** What was measured so far. */
class Samples {
  readonly products: ProductSample[] = [];
  readonly kernels: KernelSample[] = [];
  readonly copies: CopySample[] = [];
  readonly collectives: CollectiveSample[] = [];

  /** Sorts the steps of a profile by what they are. */
  add(
    steps: Profile["steps"],
    infos: readonly { ops: readonly string[]; flops: number; bytes: number }[],
  ): void {
    for (const { step, seconds } of steps) {
      if (step.op === "gemm") {
        const { m, n, k, transposeA, transposeB } = step;
        const batch = step.batch.reduce((product, { count }) => product * count, 1);
        this.products.push({ m, n, k, transposeA, transposeB, batch, seconds });
      } else if (step.op === "kernel" || step.op === "host") {
        const { ops, flops, bytes } = at(infos, step.info);
        this.kernels.push({ ops: ops.join(" "), flops, bytes, seconds });
      } else if (step.op === "copy") this.copies.push({ bytes: step.bytes, seconds });
    }
  }

  calibration(numDevices: number): Omit<DeviceCalibration, "call"> {
    const { products, kernels, copies, collectives } = this;
    return {
      numDevices,
      products: typical(products, ({ m, n, k, batch, transposeA, transposeB }) =>
        [m, n, k, batch, transposeA, transposeB].join(" "),
      ),
      kernels: typical(kernels, ({ ops, bytes, flops }) => `${ops} ${bytes} ${flops}`),
      copies: typical(copies, ({ bytes }) => `${bytes}`),
      collectives: typical(collectives, ({ kind, size, bytes }) => `${kind} ${size} ${bytes}`),
      probes: [],
    };
  }
}

/** One of all samples of the same thing, the one with the median time. */
function typical<T extends { readonly seconds: number }>(
  samples: readonly T[],
  key: (sample: T) => string,
): T[] {
  const groups = new Map<string, T[]>();
  for (const sample of samples) groups.set(key(sample), [...(groups.get(key(sample)) ?? []), sample]);
  return [...groups.values()].flatMap((group) => {
    const sorted = [...group].sort((a, b) => a.seconds - b.seconds);
    return sorted.slice(Math.floor((sorted.length - 1) / 2)).slice(0, 1);
  });
}

const finish = async (values: unknown) => {
  const tensors = tree.leaves(values).filter((leaf): leaf is Tensor => leaf instanceof Tensor);
  await Promise.all(tensors.map((tensor) => tensor.ready()));
  for (const tensor of tensors) tensor.dispose();
};

/** Compiles and profiles a function of tensors that lie on the mesh. */
async function profileFunction<A extends readonly unknown[]>(
  mesh: Mesh,
  fn: (...args: A) => unknown,
  args: A,
  name: string,
  numRuns: number,
): Promise<{ profile: Profile; compiled: ReturnType<typeof compileProgram> }> {
  const options = { mesh, name };
  const { program, donated } = partitionCall(fn, args, options);
  const compiled = compileProgram(program, { mesh, donated, name });
  const run = jit(fn, options);
  const profile = await profileProgram(mesh.engine, compiled, () => finish(run(...args)), numRuns);
  return { profile, compiled };
}

/** The seconds of a call of a program that does next to nothing. */
async function measureCall(engine: Engine, numDevices: number, numRuns: number): Promise<number> {
  const mesh = Mesh.create({ device: numDevices }, { engine });
  const x = await devicePut(np.ones([numDevices, 16]), new NamedSharding(mesh, P("device")));
  const { profile } = await profileFunction(mesh, (a: Tensor) => a.add(1), [x], "call", 10 * numRuns);
  x.dispose();
  return Math.max(0, profile.seconds - profile.stepSeconds);
}

/** The sizes of products: every combination, as models have them, and batches of small ones, as attention has. */
const sides = [64, 256, 1024] as const;
const batched = [
  [16, 64, 64, 32],
  [16, 128, 128, 32],
  [16, 128, 32, 128],
  [32, 128, 64, 128],
  [64, 32, 32, 16],
] as const;

async function measureProducts(
  engine: Engine,
  numDevices: number,
  numRuns: number,
  all: Samples,
): Promise<void> {
  const mesh = Mesh.create({ device: numDevices }, { engine });
  const shapes: (readonly [number, number, number, number])[] = [
    ...sides.flatMap((m) => sides.flatMap((n) => sides.map((k) => [1, m, n, k] as const))),
    ...[16, 32, 128, 512].map((side) => [1, side, side, side] as const),
    ...batched,
  ];
  for (const [batch, m, n, k] of shapes) {
    const forms =
      batch === 1
        ? ["mk,kn->mn", "km,kn->mn", "mk,nk->mn"]
        : ["bmk,bkn->bmn", "bkm,bkn->bmn", "bmk,bnk->bmn"];
    const local = (a: Tensor, b: Tensor, aT: Tensor, bT: Tensor) => [
      np.einsum(at(forms, 0), a, b),
      np.einsum(at(forms, 1), aT, b),
      np.einsum(at(forms, 2), a, bT),
    ];
    const mapped = shardMap(local, {
      mesh,
      inSpecs: [P(), P(), P(), P()],
      outSpecs: P("device"),
      checkReplication: false,
    });
    const front = batch === 1 ? [] : [batch];
    const args = await Promise.all(
      [
        [m, k],
        [k, n],
        [k, m],
        [n, k],
      ].map((shape) => devicePut(np.ones([...front, ...shape]).mul(0.01), new NamedSharding(mesh, P()))),
    );
    const [a, b, aT, bT] = [at(args, 0), at(args, 1), at(args, 2), at(args, 3)];
    const { profile, compiled } = await profileFunction(mesh, mapped, [a, b, aT, bT], "products", numRuns);
    all.add(profile.steps, compiled.infos);
    for (const one of args) one.dispose();
  }
}

/** The elements of what a device gives to a collective. */
const elements = [2 ** 8, 2 ** 12, 2 ** 16, 2 ** 19] as const;

async function measureCollectives(
  engine: Engine,
  numDevices: number,
  numRuns: number,
  all: Samples,
): Promise<void> {
  const sizes = [2, 4, 8, numDevices].filter((size, i, list) => {
    return size <= numDevices && numDevices % size === 0 && list.indexOf(size) === i;
  });
  for (const size of sizes) {
    const mesh = Mesh.create({ outer: numDevices / size, inner: size }, { engine });
    for (const count of elements) {
      const local = (x: Tensor) => {
        // One after the other: each takes what the one before gave.
        const summed = lax.psum(x, "inner");
        const scattered = lax.psumScatter(summed, "inner", { tiled: true });
        const gathered = lax.allGather(scattered, "inner", { tiled: true });
        return lax.pshift(gathered, "inner", 1);
      };
      const mapped = shardMap(local, { mesh, inSpecs: [P()], outSpecs: P("inner"), checkReplication: false });
      const x = await devicePut(np.ones([Math.max(count, size)]), new NamedSharding(mesh, P()));
      const { profile, compiled } = await profileFunction(mesh, mapped, [x], "collectives", 2 * numRuns);
      for (const { step, seconds } of profile.steps) {
        if (step.op !== "done") continue;
        const spec = at(compiled.collectives, step.collective);
        const bytes = spec.elements * byteSize(spec.dtype);
        all.collectives.push({ kind: spec.kind, size: spec.size, bytes, seconds });
      }
      x.dispose();
    }
  }
}

/** Small language models whose steps hold the kernels that larger ones have too. */
function probeConfigs(numDevices: number): [string, RunConfig][] {
  const base = { "model.numLayers": 2 * numDevices, "mesh.data": 1 };
  const small = {
    ...base,
    "model.width": 64,
    "model.mlpWidth": 192,
    "model.numHeads": 2,
    "model.numKvHeads": 2,
  };
  const medium = { ...base, "model.width": 128, "model.mlpWidth": 384 };
  const data = { "mesh.data": numDevices, "model.numLayers": 2 };
  const probes: [string, Readonly<Record<string, unknown>>][] = [
    ["a small model", { ...small, ...data, "data.sequence": 64, "data.batch": 4 * numDevices }],
    ["a larger model", { ...medium, ...data, "data.sequence": 128, "data.batch": 8 * numDevices }],
    ["recomputing all", { ...medium, ...data, "data.batch": 4 * numDevices, "model.remat": "full" }],
    ["recomputing some", { ...small, ...data, "data.batch": 8 * numDevices, "model.remat": "dots" }],
    ...(numDevices > 1 ? severalDevices(medium, numDevices) : []),
  ];
  return probes.map(([what, settings]) => {
    const list = Object.entries(settings).map(([path, value]) => ({ path, value }));
    return [what, readRunConfig({}, list).config];
  });
}

function severalDevices(
  medium: Readonly<Record<string, unknown>>,
  numDevices: number,
): [string, Readonly<Record<string, unknown>>][] {
  const batch = { "data.batch": 8 * numDevices, "data.sequence": 64 };
  const pipe = { ...medium, ...batch, "mesh.pipe": numDevices, "pipeline.microbatches": 2 * numDevices };
  const wide =
    numDevices <= 4 ? { "mesh.model": numDevices } : { "mesh.model": 4, "mesh.data": numDevices / 4 };
  return [
    ["tensor parallelism", { ...medium, ...batch, "model.numLayers": 2, ...wide }],
    ["fully sharded", { ...medium, ...batch, "model.numLayers": 2, "mesh.fsdp": numDevices }],
    ["a pipeline", { ...pipe, "pipeline.schedule": "circular" }],
    ["1F1B", { ...pipe, "pipeline.schedule": "1f1b" }],
    ["ZB-V", { ...pipe, "pipeline.schedule": "zb-v" }],
  ];
}

/** A training step that was measured. */
interface TrainingProbe {
  readonly compiled: CompiledProgram;
  readonly schedule: PipelineSchedule | undefined;
  readonly seconds: number;
}

/** Profiles the training step of a configuration. */
async function measureTraining(
  engine: Engine,
  config: RunConfig,
  numRuns: number,
  all: Samples,
): Promise<TrainingProbe> {
  const mesh = runMesh(config, engine);
  const training = runTrainingFunctions(config, expectedVocabulary(config), mesh);
  const { batch, sequence } = config.data;
  const tokens = await devicePut(np.zeros([batch, sequence + 1], { dtype: "int32" }), training.batchSharding);
  let state = training.init(0);
  const { program: compiled } = training.compile(state, tokens);
  const { steps, seconds } = await profileProgram(
    engine,
    compiled,
    async () => {
      const [next, metrics] = training.step(state, tokens);
      state = next;
      await finish(metrics);
    },
    numRuns,
  );
  all.add(steps, compiled.infos);
  await finish(state);
  tokens.dispose();
  return { compiled, schedule: scheduleOfRun(config.pipeline, training.layout), seconds };
}
