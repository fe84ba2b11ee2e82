/** Measures the devices of an engine whose compiler fuses, such as GPUs through XLA: the figures of a data sheet, as programs reach them. */
import { basename, dirname, join } from "node:path";
import type { DType } from "../../ir/dtype.js";
import type { Engine } from "../../ir/engine.js";
import { range } from "../../ir/shape.js";
import { attention } from "../../nn/functions/attention.js";
import * as np from "../../numpy/index.js";
import { psum } from "../../spmd/mesh/collectives.js";
import { Mesh } from "../../spmd/mesh/mesh.js";
import { P } from "../../spmd/mesh/partitionSpec.js";
import { devicePut, NamedSharding } from "../../spmd/mesh/sharding.js";
import { jit } from "../../spmd/run/jit.js";
import { shardMap } from "../../spmd/run/shardMap.js";
import type { Tensor } from "../../trace/tensor.js";
import { grad } from "../../transforms/derivatives/grad.js";
import { isObject } from "../files/disk/json.js";
import { calibrationFile, readFigures } from "./calibration.js";
import type { DeviceSpeed } from "./deviceSpeed.js";
import type { LinkSpeed } from "./machine.js";

/** What `shardwise plan --calibrate --engine xla` measures. */
export interface MeasuredDevices {
  readonly version: 1;
  readonly engine: string;
  /** What the devices are, such as `NVIDIA H200`. */
  readonly deviceKind: string;
  readonly numDevices: number;
  /** The memory of each, where the engine knows it. */
  readonly memoryBytes?: number;
  readonly day: string;
  readonly device: DeviceSpeed;
  /** What each device sends to the others; absent if there is one. */
  readonly link?: LinkSpeed;
}

/** Options of {@link measureDevices}. */
export interface MeasureOptions {
  /** Sizes are doubled until a program takes this many seconds, so that starting it does not count; 0.02 by default. */
  readonly leastSeconds?: number;
  /** Called with what is being measured. */
  readonly onProgress?: (what: string) => void;
}

/** The number of runs of which the fastest counts, after one that compiles. */
const numRuns = 5;

/** A program and how much work it is. */
interface Probe {
  readonly work: number;
  readonly run: () => Tensor;
}

/** Measures products, attention, memory, the start of a kernel, and the exchange between devices. Takes some seconds. */
export async function measureDevices(engine: Engine, options: MeasureOptions = {}): Promise<MeasuredDevices> {
  const { leastSeconds = 0.02, onProgress = () => {} } = options;
  const own = range(Math.min(engine.numDevices, 64)).filter((device) => engine.isAddressable(device));
  const alone = Mesh.create({ device: 1 }, { engine, devices: own.slice(0, 1) });
  const rate = async (what: string, sizes: readonly number[], probe: (size: number) => Promise<Probe>) => {
    onProgress(what);
    return (await fastest(sizes, probe, leastSeconds)).rate;
  };
  const flops = await rate("products", powers(8, 13), (n) => products(alone, n, 8, "bfloat16"));
  const float32 = await rate("float32 products", powers(8, 13), (n) => products(alone, n, 8, "float32"));
  const attended = await rate("attention", powers(8, 13), (length) => attentionProbe(alone, length));
  const memoryBandwidth = await rate("memory", powers(20, 28), (size) => copyProbe(alone, size));
  onProgress("starts");
  const chain = async (count: number) => secondsOf((await products(alone, 128, count, "bfloat16")).run);
  const launch = Math.max(1e-7, ((await chain(65)) - (await chain(1))) / 64);
  if (own.length > 1) onProgress(`exchange of ${own.length} devices`);
  const { deviceKind = engine.name, memoryBytes } = engine.info?.() ?? {};
  return {
    version: 1,
    engine: engine.name,
    deviceKind,
    numDevices: own.length,
    ...(memoryBytes !== undefined && { memoryBytes }),
    day: new Date().toISOString().slice(0, 10),
    device: { flops, float32, efficiency: 1, attention: attended / flops, memoryBandwidth, launch },
    ...(own.length > 1 && { link: await measureLink(engine, own, leastSeconds) }),
  };
}

const powers = (from: number, to: number): number[] => range(to - from + 1).map((i) => 2 ** (from + i));

/** The shortest seconds of a call. */
async function secondsOf(run: () => Tensor): Promise<number> {
  const once = async () => {
    const begin = performance.now();
    (await run().ready()).dispose();
    return (performance.now() - begin) / 1000;
  };
  await once();
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i < numRuns; i++) least = Math.min(least, await once());
  return least;
}

/** The work a second of the first size that takes long enough, or of the largest. */
async function fastest(
  sizes: readonly number[],
  probe: (size: number) => Promise<Probe>,
  leastSeconds: number,
): Promise<{ readonly rate: number; readonly seconds: number; readonly work: number }> {
  let found = { rate: 0, seconds: 0, work: 0 };
  for (const size of sizes) {
    const { work, run } = await probe(size);
    const seconds = await secondsOf(run);
    found = { rate: work / seconds, seconds, work };
    if (seconds >= leastSeconds) break;
  }
  return found;
}

/** Products of matrices, one after the other; the elements stay the same. */
async function products(mesh: Mesh, n: number, count: number, dtype: DType): Promise<Probe> {
  const x = await devicePut(np.full([n, n], 1 / n, dtype), new NamedSharding(mesh, P()));
  const multiply = jit((a: Tensor) => range(count).reduce((b) => np.matmul(b, a), a), { mesh });
  return { work: 2 * n ** 3 * count, run: () => multiply(x) };
}

/** Causal attention and its gradients: two products forward and five backward, of which half is seen. */
async function attentionProbe(mesh: Mesh, length: number): Promise<Probe> {
  const [heads, headDim] = [16, 128];
  const x = await devicePut(
    np.full([1, length, heads, headDim], 0.1, "bfloat16"),
    new NamedSharding(mesh, P()),
  );
  const loss = (q: Tensor, k: Tensor, v: Tensor) =>
    np.sum(attention(q, k, v, { causal: true }).output.astype("float32"));
  const gradients = grad(loss, { argnums: [0, 1, 2] });
  const step = jit(
    (a: Tensor) => {
      const [q, k, v] = gradients(a, a, a);
      return q.add(k).add(v);
    },
    { mesh },
  );
  return { work: 7 * length ** 2 * heads * headDim, run: () => step(x) };
}

/** A kernel that reads and writes float32 elements once. */
async function copyProbe(mesh: Mesh, size: number): Promise<Probe> {
  const x = await devicePut(np.zeros([size]), new NamedSharding(mesh, P()));
  const increment = jit((a: Tensor) => a.add(1), { mesh });
  return { work: 8 * size, run: () => increment(x) };
}

/** The link between devices, from sums of short and of long vectors in a ring. */
async function measureLink(
  engine: Engine,
  devices: readonly number[],
  leastSeconds: number,
): Promise<LinkSpeed> {
  const count = devices.length;
  const mesh = Mesh.create({ device: count }, { engine, devices });
  const split = new NamedSharding(mesh, P("device"));
  const probe = async (size: number): Promise<Probe> => {
    const x = await devicePut(np.zeros([count * size]), split);
    const sum = shardMap((part: Tensor) => psum(part, "device"), {
      mesh,
      inSpecs: P("device"),
      outSpecs: P(),
    });
    const run = jit(sum, { mesh });
    return { work: (2 * 4 * size * (count - 1)) / count, run: () => run(x) };
  };
  const short = await secondsOf((await probe(64)).run);
  const long = await fastest(powers(16, 26), probe, short + leastSeconds);
  return {
    bandwidth: long.work / Math.max(long.seconds - short, long.seconds / 100),
    latency: short / (2 * Math.ceil(Math.log2(count))),
  };
}

/** The default file for the measurements of an engine's devices. */
export function measuredDevicesFile(engine: string): string {
  return join(dirname(calibrationFile()), `calibration-${basename(engine).replace(/\W+/g, "-")}.json`);
}

/** Reads measurements; undefined if the file does not exist. */
export function readMeasuredDevices(file: string): MeasuredDevices | undefined {
  return readFigures(file, "--calibrate --engine", problemOf) as MeasuredDevices | undefined;
}

function problemOf(json: unknown): string | undefined {
  if (!isObject(json) || json.version !== 1 || !isObject(json.device))
    return "holds no measurements of devices";
  const { device, link } = json;
  const isRate = (value: unknown) => typeof value === "number" && value > 0 && Number.isFinite(value);
  const figures = ["flops", "float32", "efficiency", "attention", "memoryBandwidth", "launch"] as const;
  const wrong = figures.find((name) => !isRate(device[name]));
  if (wrong !== undefined) return `has no ${wrong}`;
  if (!isRate(json.numDevices)) return "has no numDevices";
  if (link !== undefined && !(isObject(link) && isRate(link.bandwidth) && isRate(link.latency)))
    return "has a link without bandwidth and latency";
  return undefined;
}
