/**
 * Products, kernels and a decoder's step on the GPU that WebGPU offers. Times end when the GPU says that it is done;
 * every product is checked against sums of its own operands.
 */
import { devicePut, jit, lax, Mesh, NamedSharding, np, P, random, Tensor, tree } from "shardwise";
import { type Engine, importEngine, openEngine } from "shardwise/engines";
import { decodersBesideOthers, openOthers, worksBesideOthers } from "./besideOthers.js";
import { type DecoderSize, sizes, stepFlops } from "./decoder.js";
import { prepareData } from "./lm.js";
import { announce, best, type GpuReport, type Report, type Row, settle } from "./measure.js";
import { listOption, option } from "./options.js";

async function open(): Promise<Engine> {
  await importEngine("webgpu");
  const engine = openEngine("webgpu", { numDevices: 1 });
  console.error(JSON.stringify(engine.info?.()));
  return engine;
}

/** Milliseconds of one of many runs that follow each other without waiting. */
async function pipelined(run: () => unknown, count: number): Promise<number> {
  const ms = await best(async () => {
    for (let i = 1; i < count; i++) {
      // The memory of a result serves the next one.
      for (const leaf of tree.leaves(run())) if (leaf instanceof Tensor) leaf.dispose();
    }
    await settle(run());
  });
  return ms / count;
}

/** The largest difference of some elements of a product from their sums, relative to those of absolute values. */
async function productError(a: Tensor, b: Tensor, c: Tensor, n: number): Promise<number> {
  const [x, y, z] = await Promise.all([a.data(), b.data(), c.data()]);
  let worst = 0;
  for (const i of [0, 1, n - 1, n >> 1]) {
    for (const j of [0, 3, n - 1, n >> 1]) {
      let [sum, size] = [0, 0];
      for (let k = 0; k < n; k++) {
        const term = Number(x[i * n + k]) * Number(y[k * n + j]);
        sum += term;
        size += Math.abs(term);
      }
      worst = Math.max(worst, Math.abs(sum - Number(z[i * n + j])) / size);
    }
  }
  return worst;
}

async function products(mesh: Mesh): Promise<Row[]> {
  const rows: Row[] = [];
  const there = new NamedSharding(mesh, P());
  for (const n of [512, 1024, 2048, 4096, 8192]) {
    const [a, b] = await Promise.all(
      [0, 1].map((seed) => devicePut(random.uniform(random.key(seed), [n, n]).sub(0.5), there)),
    );
    if (!a || !b) continue;
    const multiply = jit((x: Tensor, y: Tensor) => np.matmul(x, y), { mesh, name: `matmul ${n}` });
    const error = await productError(a, b, multiply(a, b), n);
    const ms = await pipelined(() => multiply(a, b), n < 4096 ? 20 : 5);
    rows.push(announce({ n, ms, "TFLOP/s": (2 * n ** 3) / ms / 1e9, "relative error": error }));
  }
  return rows;
}

const [numRows, numColumns] = [16_384, 4096];

interface Work {
  readonly name: string;
  readonly inputs: number;
  readonly floats: number;
  readonly run: (...inputs: Tensor[]) => Tensor | readonly Tensor[];
}

const works: readonly Work[] = [
  { name: "copy", inputs: 1, floats: 2, run: (x) => x.add(1) },
  {
    name: "tanh-gelu",
    inputs: 1,
    floats: 2,
    run: (x) =>
      x.mul(np.tanh(x.add(x.mul(x).mul(x).mul(0.044715)).mul(Math.sqrt(2 / Math.PI))).add(1)).mul(0.5),
  },
  {
    name: "softmax",
    inputs: 1,
    floats: 2,
    run: (x) => {
      const weights = np.exp(x.sub(np.max(x, -1, { keepdims: true })));
      return weights.div(np.sum(weights, -1, { keepdims: true }));
    },
  },
  {
    name: "layer norm",
    inputs: 1,
    floats: 2,
    run: (x) => {
      const centred = x.sub(np.mean(x, -1, { keepdims: true }));
      return centred.mul(lax.rsqrt(np.mean(centred.mul(centred), -1, { keepdims: true }).add(1e-6)));
    },
  },
  {
    name: "AdamW update",
    inputs: 4,
    floats: 7,
    run: (p = np.zeros([]), m = p, v = p, g = p) => {
      const mean = m.mul(0.9).add(g.mul(0.1));
      const square = v.mul(0.95).add(g.mul(g).mul(0.05));
      const update = mean.mul(1.1).div(np.sqrt(square.mul(1.2)).add(1e-8));
      return [p.sub(update.add(p.mul(0.1)).mul(3e-4)), mean, square];
    },
  },
  { name: "sum of columns", inputs: 1, floats: 1, run: (x) => np.sum(x, 0) },
  { name: "sum of all", inputs: 1, floats: 1, run: (x) => np.sum(x) },
];

async function kernels(mesh: Mesh): Promise<Row[]> {
  const rows: Row[] = [];
  const there = new NamedSharding(mesh, P());
  const inputs: Tensor[] = [];
  for (let i = 0; i < 4; i++)
    inputs.push(await devicePut(random.uniform(random.key(i), [numRows, numColumns]), there));
  for (const { name, inputs: count, floats, run } of works) {
    const kernel = jit((...xs: Tensor[]) => run(...xs), { mesh, name });
    const ms = await pipelined(() => kernel(...inputs.slice(0, count)), 50);
    rows.push(announce({ kernel: name, ms, "GB/s": (4 * floats * numRows * numColumns) / ms / 1e6 }));
  }
  return rows;
}

const parts = ["products", "kernels", "decoder", "others", "otherDecoders"] as const;

/** Runs the benchmark, or some parts of it; the last two compare with other libraries where they are installed. */
export async function webgpu(): Promise<Report> {
  const chosen = listOption("parts", parts, parts);
  const engine = await open();
  const mesh = Mesh.create({ x: 1 }, { engine });
  let report: Report = {};
  if (chosen.includes("products"))
    report = { ...report, "Products through WebGPU (float32)": await products(mesh) };
  if (chosen.includes("kernels")) {
    const title = `Kernels through WebGPU (${numRows} x ${numColumns} float32)`;
    report = { ...report, [title]: await kernels(mesh) };
  }
  if (chosen.includes("decoder")) report = { ...report, ...(await steps(engine)) };
  if (chosen.includes("others") || chosen.includes("otherDecoders")) {
    const others = await openOthers(numRows, numColumns);
    if (chosen.includes("others")) report = { ...report, ...(await worksBesideOthers(mesh, works, others)) };
    if (chosen.includes("otherDecoders"))
      report = { ...report, ...(await decodersBesideOthers(mesh, chosenSizes(), others)) };
  }
  await engine.close();
  return report;
}

function chosenSizes(): DecoderSize[] {
  const names = sizes.map(({ name }) => name);
  const chosen = listOption("sizes", ["d32", "d256", "d512"], names);
  return sizes.filter(({ name }) => chosen.includes(name));
}

/** A step of so many milliseconds is that of an adapter in software, which takes minutes for a larger model. */
const SLOW_STEP = 50;

async function steps(engine: Engine): Promise<Report> {
  const rows: Row[] = [];
  for (const size of chosenSizes()) {
    const row = announce(await step(size, engine));
    rows.push(row);
    if (option("sizes") === undefined && Number(row["step ms"]) > SLOW_STEP) break;
  }
  return { "One AdamW step of a decoder through WebGPU (float32)": rows };
}

async function step(size: DecoderSize, engine: Engine): Promise<Row> {
  const begin = performance.now();
  const { step: run } = await prepareData(size, engine);
  await run();
  const first = performance.now() - begin;
  const ms = await best(run, { seconds: 5 });
  return { model: size.name, "step ms": ms, "GFLOP/s": stepFlops(size) / ms / 1e6, "first ms": first };
}

/** Runs the benchmark of a decoder's step. */
export async function lmOnWebGpu(): Promise<GpuReport> {
  const engine = await open();
  const gpu = engine.info?.().deviceKind ?? "unknown adapter";
  const report = await steps(engine);
  await engine.close();
  return { gpu, report };
}
