/**
 * How a training step grows with layers, width, sequence and devices: the time of a step where there are as many cores,
 * the processor's time to trace and compile it, the memory that a device needs and the bytes that it sends, each with the
 * exponent of the power that fits best. More devices than cores are simulated: their program is compiled and not run.
 *
 *     npm run bench -- growth --devices 1,2,4,8,16
 */
import { performance } from "node:perf_hooks";
import { Mesh, ShapeDtypeStruct } from "shardwise";
import { createReferenceEngine, createThreadsEngine, type Engine } from "shardwise/engines";
import { adamw } from "shardwise/optim";
import { createTraining } from "shardwise/train";
import { abstractTree } from "../src/train/step/abstractTensor.js";
import { announce, best, mean, type Report, type Row, sum } from "./measure.js";
import { countsOption } from "./options.js";
import { prepareStep } from "./parallelSteps.js";

/** What grows. */
interface Size {
  readonly layers: number;
  readonly width: number;
  readonly sequence: number;
  readonly devices: number;
}

const base: Size = { layers: 4, width: 128, sequence: 128, devices: 2 };
const vocabulary = 256;
const headSize = 32;

/** The columns that are fitted. */
const columns = ["step ms", "compile CPU ms", "memory MiB", "sent MiB"] as const;

/** Runs the benchmark. */
export async function growth(): Promise<Report> {
  const real = countsOption("devices", [1, 2]);
  const simulated = [16, 64, 256, 1024, 4096].filter((devices) => devices > Math.max(...real));
  const series: Readonly<Record<string, readonly Size[]>> = {
    layers: [4, 8, 16, 32, 64, 96].map((layers) => ({ ...base, layers })),
    width: [64, 128, 256, 512].map((width) => ({ ...base, width })),
    sequence: [512, 2048, 8192, 32_768].map((sequence) => ({ ...base, layers: 1, sequence })),
    devices: [...real, ...simulated].map((devices) => ({ ...base, layers: 1, devices })),
  };
  const rows: Row[] = [];
  const exponents: Row[] = [];
  // The first compilation of a process also compiles the compiler.
  compileStep({ ...base, layers: 1 });
  for (const [name, sizes] of Object.entries(series)) {
    const own: Row[] = [];
    for (const size of sizes) {
      const grown = size[name as keyof Size];
      const step = size.devices <= Math.max(...real) ? await stepMs(size) : null;
      own.push(announce({ "grows with": name, value: grown, "step ms": step, ...compileStep(size) }));
    }
    rows.push(...own);
    exponents.push({
      "grows with": name,
      ...Object.fromEntries(columns.map((column) => [column, exponent(own, column)])),
    });
  }
  return { "growth of a training step": rows, "exponents of growth": exponents };
}

/** Each device has at least one row. */
const batchOf = ({ devices }: Size) => Math.max(2, devices);

/** Parameters are split over at most 16 devices, as in a machine; the rest is data parallel. */
function meshOf({ devices }: Size, engine: Engine): Mesh {
  const fsdp = Math.min(16, devices);
  return Mesh.create({ data: devices / fsdp, fsdp, pipe: 1, model: 1 }, { engine });
}

/** What compiling a step takes, and what the compiled step needs. */
function compileStep(size: Size): Row {
  const mesh = meshOf(size, createReferenceEngine({ numDevices: size.devices }));
  const { width, layers, sequence } = size;
  const numHeads = width / headSize;
  const before = process.cpuUsage();
  const training = createTraining({
    mesh,
    model: {
      kind: "llama",
      vocabSize: vocabulary,
      width,
      numLayers: layers,
      numHeads,
      numKvHeads: numHeads,
      mlpWidth: 4 * width,
      tieEmbeddings: false,
      ropeBase: 10_000,
      normEpsilon: 1e-6,
      dtype: "float32",
      remat: "none",
    },
    optimizer: adamw({ learningRate: 3e-4 }),
  });
  const state = abstractTree(training.types) as Parameters<typeof training.cost>[0];
  const tokens = ShapeDtypeStruct([batchOf(size), sequence + 1], "int32");
  const { memory } = training.compile(state, tokens);
  const { user, system } = process.cpuUsage(before);
  const parts = Object.values(memory).filter((bytes) => typeof bytes === "number");
  return {
    "compile CPU ms": (user + system) / 1000,
    "memory MiB": sum(parts) / 2 ** 20,
    "sent MiB": training.cost(state, tokens).bytesMoved() / 2 ** 20,
  };
}

/** The time of a step on real devices. */
async function stepMs(size: Size): Promise<number> {
  const engine = createThreadsEngine({ numDevices: size.devices, threadsPerDevice: 1 });
  try {
    const decoder = { ...size, name: "growth", batch: batchOf(size), vocabulary, headSize };
    const step = await prepareStep("fsdp", decoder, engine);
    const start = performance.now();
    await step();
    return await best(step, { seconds: Math.min(1, (performance.now() - start) / 500), least: 2 });
  } finally {
    await engine.close();
  }
}

/** The slope of a column over what grows, both as logarithms, by least squares; null where the column has no growth. */
function exponent(rows: readonly Row[], column: string): number | null {
  const points = rows.flatMap((row) => {
    const [x, y] = [row.value, row[column]];
    return typeof x === "number" && typeof y === "number" && y > 0
      ? [[Math.log(x), Math.log(y)] as const]
      : [];
  });
  if (points.length < 2) return null;
  const [x, y] = [mean(points.map((p) => p[0])), mean(points.map((p) => p[1]))];
  return sum(points.map((p) => (p[0] - x) * (p[1] - y))) / sum(points.map((p) => (p[0] - x) ** 2));
}
