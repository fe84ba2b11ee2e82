/** The programs that a machine is calibrated with: products, collectives, and the training steps of small models. */
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
import { type RunConfig, readRunConfig } from "../config/runConfig.js";
import { expectedVocabulary, runMesh, runTrainingFunctions } from "../config/setup.js";
import { scheduleOfRun } from "../models/scheduled.js";
import { compileAs } from "../step/compileAs.js";
import type { MachineLoad } from "./machineLoad.js";
import { Profiler, type RunCounts } from "./profile.js";

const finish = async (values: unknown) => {
  const tensors = tree.leaves(values).filter((leaf): leaf is Tensor => leaf instanceof Tensor);
  await Promise.all(tensors.map((tensor) => tensor.ready()));
  for (const tensor of tensors) tensor.dispose();
};

/** Compiles a function of tensors on the mesh. */
async function openFunction<A extends readonly unknown[]>(
  mesh: Mesh,
  load: MachineLoad,
  fn: (...args: A) => unknown,
  args: A,
  options: RunCounts & { readonly name: string },
): Promise<Profiler> {
  const { name } = options;
  const { program, donated } = partitionCall(fn, args, { mesh, name });
  const compiled = compileAs(mesh, program, { donated, name });
  const run = jit(fn, { mesh, name });
  const profiler = new Profiler(mesh.engine, load, compiled, () => finish(run(...args)), options);
  await profiler.warmUp();
  return profiler;
}

/** A program that does almost nothing. */
export async function openCall(engine: Engine, load: MachineLoad): Promise<Profiler> {
  const mesh = Mesh.create({ device: engine.numDevices }, { engine });
  const x = await devicePut(np.ones([engine.numDevices, 16]), new NamedSharding(mesh, P("device")));
  const counts = { plain: 10, recorded: 10 };
  return openFunction(mesh, load, (a: Tensor) => a.add(1), [x], { name: "call", ...counts });
}

/** Numbers of rows, and the widths of layers whose products are measured for that many rows. */
const layers: readonly (readonly [rows: number, widths: readonly number[]])[] = [
  [16, [16, 64]],
  [64, [32, 64, 256, 1024]],
  // Rows of some of them have strides of multiples of 1 KiB, which is slower when columns are read.
  [320, [64, 96, 160, 256, 384, 640, 1024]],
  [2560, [64, 96, 160, 256, 384, 640, 1024]],
];

const quickLayers: typeof layers = [
  [64, [64, 256]],
  [512, [96, 384]],
];

/** Tensors on all devices, one for each name. */
class Shared {
  private readonly known = new Map<string, Promise<Tensor>>();

  constructor(private readonly mesh: Mesh) {}

  get(name: string, shape: readonly number[]): Promise<Tensor> {
    const key = `${name} ${shape.join("x")}`;
    const found =
      this.known.get(key) ?? devicePut(np.ones(shape).mul(0.01), new NamedSharding(this.mesh, P()));
    this.known.set(key, found);
    return found;
  }
}

/** Compiles a function that every device runs without communication. */
function openLocal(
  mesh: Mesh,
  load: MachineLoad,
  local: (...args: Tensor[]) => Tensor[],
  args: readonly Tensor[],
  name: string,
): Promise<Profiler> {
  // Returns a row of each result, because all of them at once would take more memory than their factors.
  const firsts = (...all: Tensor[]) => local(...all).map((result) => result.get(np.s(0, 1)));
  const mapped = shardMap(firsts, {
    mesh,
    inSpecs: args.map(() => P()),
    outSpecs: P("device"),
    checkReplication: false,
  });
  return openFunction(mesh, load, mapped, [...args], { name, plain: 0, recorded: 2 });
}

/** The products of layers: forward, the gradient of the input, and that of the weights; few of them if `isQuick`. */
export async function openLayers(engine: Engine, load: MachineLoad, isQuick: boolean): Promise<Profiler[]> {
  const mesh = Mesh.create({ device: engine.numDevices }, { engine });
  const shared = new Shared(mesh);
  const profilers: Profiler[] = [];
  for (const [rows, widths] of isQuick ? quickLayers : layers) {
    for (const width of widths) {
      const x = await shared.get("in", [rows, width]);
      const weights = await Promise.all(widths.map((n) => shared.get("weights", [width, n])));
      const gradients = await Promise.all(widths.map((n) => shared.get("out", [rows, n])));
      const local = (input: Tensor, ...rest: Tensor[]) =>
        widths.flatMap((_, i) => {
          const [w, g] = [at(rest, i), at(rest, widths.length + i)];
          return [
            np.einsum("tk,kn->tn", input, w),
            np.einsum("tn,kn->tk", g, w),
            np.einsum("tk,tn->kn", input, g),
          ];
        });
      const name = `layers ${rows} ${width}`;
      profilers.push(await openLocal(mesh, load, local, [x, ...weights, ...gradients], name));
    }
  }
  return profilers;
}

/** Sequences, positions, heads and the width of a head. */
const attentions: readonly (readonly [batch: number, length: number, heads: number, width: number])[] = [
  [4, 32, 2, 16],
  [8, 64, 2, 32],
  [16, 80, 4, 32],
  [4, 128, 4, 32],
  [16, 128, 4, 32],
  [8, 128, 8, 64],
  [4, 256, 4, 64],
];

/** The products of attention, with the layouts that tensors have in models. */
export async function openAttention(engine: Engine, load: MachineLoad): Promise<Profiler[]> {
  const mesh = Mesh.create({ device: engine.numDevices }, { engine });
  const shared = new Shared(mesh);
  const local = (q: Tensor, k: Tensor, p: Tensor) => [
    np.einsum("bqhd,bkhd->bhqk", q, k),
    np.einsum("bhqk,bkhd->bqhd", p, k),
    np.einsum("bhqk,bqhd->bkhd", p, q),
  ];
  const profilers: Profiler[] = [];
  for (const [batch, length, heads, width] of attentions) {
    const args = await Promise.all([
      shared.get("queries", [batch, length, heads, width]),
      shared.get("keys", [batch, length, heads, width]),
      shared.get("shares", [batch, heads, length, length]),
    ]);
    const mapped = (...all: Tensor[]) => local(at(all, 0), at(all, 1), at(all, 2));
    profilers.push(await openLocal(mesh, load, mapped, args, `attention ${batch} ${length}`));
  }
  return profilers;
}

/** Numbers of elements of a device's operand of a collective. */
const elements = [2 ** 8, 2 ** 12, 2 ** 16, 2 ** 19, 2 ** 21] as const;

/** Collectives of all kinds, one after the other; of all devices, small and large, if `isQuick`. */
export async function openCollectives(
  engine: Engine,
  load: MachineLoad,
  isQuick: boolean,
): Promise<Profiler[]> {
  const { numDevices } = engine;
  const counts = isQuick ? [numDevices] : [...new Set([2, 4, 8, numDevices])];
  const sizes = counts.filter((n) => n > 1 && numDevices % n === 0);
  const profilers: Profiler[] = [];
  for (const size of sizes) {
    const mesh = Mesh.create({ outer: numDevices / size, inner: size }, { engine });
    for (const count of isQuick ? ([2 ** 10, 2 ** 18] as const) : elements) {
      const local = (x: Tensor) => {
        // One after the other: each takes the result of the one before.
        const summed = lax.psum(x, "inner");
        const scattered = lax.psumScatter(summed, "inner", { tiled: true });
        const gathered = lax.allGather(scattered, "inner", { tiled: true });
        return lax.pshift(gathered, "inner", 1);
      };
      const mapped = shardMap(local, { mesh, inSpecs: [P()], outSpecs: P("inner"), checkReplication: false });
      const x = await devicePut(np.ones([Math.max(count, size)]), new NamedSharding(mesh, P()));
      const options = { name: `collectives ${size} ${count}`, plain: 0, recorded: 3 };
      profilers.push(await openFunction(mesh, load, mapped, [x], options));
    }
  }
  return profilers;
}

type Settings = Readonly<Record<string, unknown>>;

/** Small language models whose steps have the same kernels as larger ones. */
export function trainingProbes(numDevices: number): RunConfig[] {
  const base = { "model.numLayers": 2 * numDevices, "mesh.data": 1 };
  const heads = { "model.numHeads": 2, "model.numKvHeads": 2 };
  const small = { ...base, ...heads, "model.width": 64, "model.mlpWidth": 192 };
  const medium = { ...base, "model.width": 128, "model.mlpWidth": 384 };
  const large = { ...base, "model.width": 256, "model.mlpWidth": 768, "data.sequence": 128 };
  const data = { "mesh.data": numDevices, "model.numLayers": 2 };
  const probes: Settings[] = [
    { ...small, ...data, "data.sequence": 64, "data.batch": 4 * numDevices },
    { ...medium, ...data, "data.sequence": 128, "data.batch": 8 * numDevices },
    { ...large, ...data, "data.batch": 16 * numDevices },
    { ...medium, ...data, "data.batch": 4 * numDevices, "model.remat": "full" },
    { ...small, ...data, "data.batch": 8 * numDevices, "model.remat": "dots" },
    ...(numDevices > 1 ? onSeveralDevices(medium, large, numDevices) : []),
  ];
  return probes.map((settings) => {
    const list = Object.entries(settings).map(([path, value]) => ({ path, value }));
    return readRunConfig({}, list).config;
  });
}

function onSeveralDevices(medium: Settings, large: Settings, numDevices: number): Settings[] {
  const batch = { "data.batch": 8 * numDevices, "data.sequence": 64 };
  const pipe = { ...medium, ...batch, "mesh.pipe": numDevices, "pipeline.microbatches": 2 * numDevices };
  const wide =
    numDevices <= 4 ? { "mesh.model": numDevices } : { "mesh.model": 4, "mesh.data": numDevices / 4 };
  return [
    { ...medium, ...batch, "model.numLayers": 2, ...wide },
    { ...large, "data.batch": 8 * numDevices, "model.numLayers": 2, ...wide },
    { ...medium, ...batch, "model.numLayers": 2, "mesh.fsdp": numDevices },
    { ...pipe, "pipeline.schedule": "circular" },
    { ...pipe, "pipeline.schedule": "1f1b" },
    { ...pipe, "pipeline.schedule": "zb-v" },
  ];
}

/** The training step of a configuration. */
export async function openTraining(
  engine: Engine,
  load: MachineLoad,
  config: RunConfig,
): Promise<{ readonly profiler: Profiler; readonly schedule: PipelineSchedule | undefined }> {
  const mesh = runMesh(config, engine);
  const training = runTrainingFunctions(config, expectedVocabulary(config), mesh);
  const { batch, sequence } = config.data;
  const tokens = await devicePut(np.zeros([batch, sequence + 1], { dtype: "int32" }), training.batchSharding);
  let state = training.init(0);
  const { program: compiled } = training.compile(state, tokens);
  const run = async () => {
    const [next, metrics] = training.step(state, tokens);
    state = next;
    await finish(metrics);
  };
  const profiler = new Profiler(engine, load, compiled, run, { plain: 2, recorded: 2 });
  await profiler.warmUp();
  return { profiler, schedule: scheduleOfRun(config.pipeline, training.layout) };
}
