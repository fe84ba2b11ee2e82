/**
 * Training runs that others measured on hundreds of GPUs, and what the planner predicts for them.
 *
 * Facts about these runs that are not in the tables they come from: their allocator's peak is what was reserved; the
 * loss of 2024 was not compiled, and kept the logits in float32 three times; the embedding table and the output layer
 * stay gathered during a step; and selective recomputation keeps the result of a block's last product, which nobody
 * reads. Our program needs none of these, so they are added to its memory for the comparison. In pipelines, FSDP
 * gathers a stage's weights once in bfloat16, and sums their gradients over microbatches in float32, as we do.
 */
import type { RunConfig } from "../../src/train/config/runConfig.js";
import { readRunConfig } from "../../src/train/config/runConfig.js";
import type { DeviceSpeed } from "../../src/train/plan/deviceSpeed.js";
import { type Links, machinePrices } from "../../src/train/plan/machine.js";
import { type PlannedStep, priceConfig } from "../../src/train/plan/plan.js";
import type { Prices } from "../../src/train/plan/prices.js";

/** Hosts of eight GPUs, as all runs had. */
const links: Links = {
  // 450 GB/s in each direction on the data sheet of NVLink, and 400 Gbit/s; collectives reach about four fifths of both.
  // The latencies are those by which NCCL chooses its algorithms, for large messages in rings.
  intra: { bandwidth: 350e9, latency: 3.4e-6 },
  network: { bandwidth: 40e9, latency: 14e-6 },
  nodeSize: 8,
};

/** A machine: peaks and memory of its data sheet, with the shares of them that were fitted to all of its rows at once. */
interface Machine {
  readonly name: string;
  readonly device: DeviceSpeed;
  readonly float8: number;
  readonly memoryGiB: number;
}

const h100: Machine = {
  name: "H100, 96 GB of HBM2e at 2.4 TB/s, limited to 500 W",
  device: { flops: 989e12, efficiency: 0.485, attention: 0.213, memoryBandwidth: 2e12, launch: 4e-6 },
  float8: 1979e12,
  memoryGiB: 95,
};

const h200: Machine = {
  name: "H200, 141 GB at 4.8 TB/s, 700 W",
  device: { flops: 989e12, efficiency: 0.57, attention: 0.27, memoryBandwidth: 4e12, launch: 4e-6 },
  float8: 1979e12,
  memoryGiB: 139,
};

/** The chip of the H200 with less memory: its shares are those of the H200, so that nothing is fitted to these rows. */
const h100At700W: Machine = {
  name: "H100, 80 GB at 3.35 TB/s, 700 W",
  device: { ...h200.device, memoryBandwidth: (3.35e12 * 5) / 6 },
  float8: 1979e12,
  memoryGiB: 79,
};

/** Where rows come from. */
export const sources = {
  h100: {
    label: "H100",
    machine: h100,
    text: "torchtitan's `benchmarks/llama3_h100_202412_torchtitan.md`",
    url: "https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md",
    /** Copies of the logits in float32 that its loss keeps. */
    lossCopies: 3,
  },
  august: {
    label: "H100, 2024-08",
    machine: h100,
    text: "torchtitan's first figures of the 405 B model",
    url: "https://github.com/pytorch/torchtitan/pull/554",
    lossCopies: 3,
  },
  june: {
    label: "H100, 2025-06",
    machine: h100,
    text: "torchtitan's `benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md`, as text in the change that added it",
    url: "https://github.com/pytorch/torchtitan/pull/1299",
    lossCopies: 0,
  },
  h200: {
    label: "H200",
    machine: h200,
    text: "torchtitan's `benchmarks/llama3_8b_h200_2025-06_torchtitan.md`",
    url: "https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_8b_h200_2025-06_torchtitan.md",
    lossCopies: 0,
  },
  ibm: {
    label: "IBM",
    machine: h100At700W,
    text: "IBM and Meta, *Supercharging training using float8 and FSDP2*",
    url: "https://pytorch.org/blog/training-using-float8-fsdp2",
    lossCopies: 0,
  },
} as const;

/** Llama 3.1. */
const models = {
  "8 B": { width: 4096, numLayers: 32, numHeads: 32, mlpWidth: 14_336 },
  "70 B": { width: 8192, numLayers: 80, numHeads: 64, mlpWidth: 28_672 },
  "405 B": { width: 16_384, numLayers: 126, numHeads: 128, mlpWidth: 53_248 },
} as const;

/** A measured run. */
export interface PublishedRun {
  readonly source: keyof typeof sources;
  readonly model: keyof typeof models;
  readonly mesh: Partial<RunConfig["mesh"]>;
  readonly sequence: number;
  /** Sequences of a step over all GPUs. */
  readonly batch: number;
  readonly remat: "selective" | "full";
  readonly float8: boolean;
  readonly schedule?: "1f1b" | "interleaved";
  readonly note?: string;
  /** Tokens a second on each GPU, and the GiB it reserved at most, if that was published. */
  readonly tokens: number;
  readonly gib?: number;
}

const long = [32_768, 65_536, 131_072, 262_144] as const;
const longRuns8 = [
  [3890, 83.9],
  [2540, 84.2],
  [1071, 84.0],
  [548, 84.5],
] as const;
const longRuns405 = [
  [76, 75.3],
  [47, 75.9],
  [31, 77.1],
  [16, 84.9],
] as const;
const base = { source: "h100", sequence: 8192, float8: true } as const;
const small = { ...base, model: "8 B", remat: "selective" } as const;
const whole = { ...base, remat: "full" } as const;
const large = { ...whole, model: "405 B", note: "async TP" } as const;
const middle = { ...whole, model: "70 B", mesh: { fsdp: 32, model: 8 }, batch: 512 } as const;
const pipe = { fsdp: 8, model: 8, pipe: 8 } as const;
const first405 = {
  ...whole,
  source: "august",
  model: "405 B",
  mesh: { fsdp: 16, model: 8 },
  batch: 32,
} as const;
const tensor70 = { ...middle, source: "june" } as const;
const tensor8 = { ...small, source: "june", mesh: { fsdp: 8, model: 8 }, batch: 96 } as const;
// Neither batch nor recomputation was published: two sequences for each part of the batch, and full, as in the rows above.
const plain70 = { ...whole, source: "ibm", model: "70 B", mesh: { fsdp: 512 }, batch: 1024 } as const;
const plain405 = {
  ...whole,
  ...({ source: "ibm", model: "405 B", mesh: { fsdp: 128, model: 4 }, batch: 256 } as const),
};

/** The tables, without the runs of PyTorch's eager mode, which fuses nothing. */
export const publishedRuns: readonly PublishedRun[] = [
  { ...small, mesh: { fsdp: 8 }, batch: 16, float8: false, tokens: 6667, gib: 77.0 },
  { ...small, mesh: { fsdp: 8 }, batch: 16, tokens: 8532, gib: 76.8 },
  ...longRuns8.map(([tokens, gib], i): PublishedRun => {
    const context = 2 ** i;
    const run = { ...small, remat: "full", sequence: long[i] ?? 0, batch: 8 / context } as const;
    return { ...run, mesh: { fsdp: 8 / context, context }, tokens, gib };
  }),
  { ...small, mesh: { fsdp: 128 }, batch: 256, float8: false, tokens: 6514, gib: 62.0 },
  { ...small, mesh: { fsdp: 128 }, batch: 256, tokens: 8380, gib: 61.8 },
  { ...middle, tokens: 829, gib: 71.9 },
  { ...middle, note: "async TP", tokens: 876, gib: 67.6 },
  { ...large, mesh: pipe, batch: 256, schedule: "1f1b", tokens: 100, gib: 82.5 },
  { ...large, mesh: pipe, batch: 256, schedule: "interleaved", tokens: 128, gib: 72.7 },
  ...longRuns405.map(([tokens, gib], i): PublishedRun => {
    const context = 2 ** i;
    const run = { ...large, sequence: long[i] ?? 0, batch: 64 / context, schedule: "1f1b" } as const;
    return { ...run, mesh: { ...pipe, fsdp: 8 / context, context }, tokens, gib };
  }),
  { ...first405, float8: false, tokens: 109 },
  { ...first405, tokens: 177 },
  { ...first405, note: "async TP", tokens: 185 },
  { ...tensor70, float8: false, tokens: 597.3 },
  { ...tensor70, float8: false, note: "async TP", tokens: 652.4 },
  { ...tensor70, tokens: 809.8 },
  { ...tensor70, note: "async TP", tokens: 942.4 },
  { ...tensor8, float8: false, tokens: 4378 },
  { ...tensor8, float8: false, note: "async TP", tokens: 4809.4 },
  { ...tensor8, tokens: 5078.1 },
  { ...tensor8, note: "async TP", tokens: 5570.1 },
  { ...small, source: "h200", mesh: { fsdp: 32 }, batch: 64, tokens: 10_938, gib: 47.96 },
  { ...small, source: "h200", mesh: { fsdp: 64 }, batch: 128, tokens: 10_753, gib: 46.97 },
  { ...plain70, float8: false, tokens: 960 },
  { ...plain70, tokens: 1448 },
  { ...plain405, float8: false, tokens: 152 },
  { ...plain405, tokens: 217 },
];

/** FSDP alone on 128 GPUs, of which torchtitan says that it ran out of memory even with one sequence on each GPU. */
export const outOfMemory: PublishedRun = { ...first405, mesh: { fsdp: 128 }, batch: 128, tokens: 0 };

/** The number of GPUs of a run. */
export const numGpusOf = ({ mesh }: PublishedRun): number =>
  Object.values(mesh).reduce((product, size) => product * size, 1);

/** Whether two runs differ in how they are spread over GPUs, and in nothing else but the machine. */
export function areAlternatives(a: PublishedRun, b: PublishedRun): boolean {
  const shape = ({ mesh, schedule }: PublishedRun) => JSON.stringify([mesh, schedule]);
  const isSame = a.model === b.model && a.float8 === b.float8 && a.sequence === b.sequence;
  return isSame && shape(a) !== shape(b);
}

const vocabSize = 128_256;

/** The configuration of a run here. */
export function configOf({ model, mesh, sequence, batch, remat, schedule }: PublishedRun): RunConfig {
  const { numLayers } = models[model];
  const { config, violations } = readRunConfig({
    model: {
      ...{ kind: "llama", ...models[model], numKvHeads: 8, tieEmbeddings: false, vocabSize },
      ...{ dtype: "bfloat16", ropeBase: 500_000, remat },
      // Stages of our pipelines have equally many layers: those of the largest model are filled up to 128.
      numLayers: Math.ceil(numLayers / (mesh.pipe ?? 1)) * (mesh.pipe ?? 1),
    },
    mesh,
    // Sequences are split between the products of tensor parallel devices.
    tensor: mesh.model ? "sequence" : "sync",
    data: { sequence, batch },
    // As many microbatches as stages, which the published ratio of 1F1B and interleaved suggests, and two chunks for each.
    ...(schedule && {
      pipeline: { schedule, microbatches: mesh.pipe, repeats: schedule === "interleaved" ? 2 : 1 },
    }),
  });
  if (violations.length > 0) throw new Error(violations.join("\n"));
  return config;
}

/** The prices of the machine of a run. */
export function pricesOf({ source, float8 }: Pick<PublishedRun, "source" | "float8">): Prices {
  const { device, float8: flops } = sources[source].machine;
  return machinePrices({ ...device, ...(float8 && { float8: flops }) }, links);
}

/** What PyTorch stored besides what our program does, in bytes. */
function storedMore({ source, note }: PublishedRun, config: RunConfig): number {
  const { mesh, model, data } = config;
  if (mesh.pipe > 1) return storedMoreInPipelines(config);
  const tokens = (data.batch * data.sequence) / (mesh.data * mesh.fsdp * mesh.context);
  const ends = (2 * 2 * vocabSize * model.width) / mesh.model;
  const unread = model.remat === "selective" ? 2 * tokens * model.width * model.numLayers : 0;
  const logits = (tokens * vocabSize) / mesh.model;
  const loss = Math.max(0, 4 * sources[source].lossCopies - 2) * logits;
  // What is gathered along sequences arrives in the order of devices, and is copied into that of rows.
  const copied = mesh.model > 1 && !note ? 2 * tokens * model.width : 0;
  return loss + unread + ends + copied;
}

/**
 * What a GPU of the second stage stores besides what every device of our program does: stages of PyTorch have only their
 * own layers, and the middle ones most of them.
 */
function storedMoreInPipelines({ mesh, model, data, pipeline }: RunConfig): number {
  const { width, numHeads, numKvHeads, mlpWidth } = model;
  const { microbatches, repeats, schedule } = pipeline;
  const tokens = (data.batch * data.sequence) / (mesh.data * mesh.fsdp * mesh.context * microbatches);
  const message = (2 * tokens * width) / mesh.model;
  const numLayers = model.numLayers / mesh.pipe;
  const layer = 2 * width * width * (1 + numKvHeads / numHeads) + 3 * width * mlpWidth;
  const held = (numLayers * layer) / mesh.model;
  // Our devices have room for both ends of the model: weights, sums of gradients, and what the loss keeps.
  const ends = (2 * (2 + 4) * vocabSize * width + 2 * tokens * vocabSize) / mesh.model + 2 * tokens * width;
  // By 1F1B, it keeps one microbatch less than the first stage.
  const inFlight = schedule === "1f1b" ? numLayers * message : 0;
  // Results of stages stay until their backward pass, and gradients are received into memory of their own.
  const messages = 2 * microbatches * repeats * message;
  // With as many microbatches as stages, a chunk ends its backward pass, and its gradients are scattered and freed,
  // before the chunk in front of it begins.
  const freed = microbatches === mesh.pipe ? 4 * held * (1 - 1 / repeats) : 0;
  return messages - ends - inFlight - freed;
}

/** The share that allocators take besides, as in the planner. */
const overhead = 1.12;

/** A prediction for a run. */
export interface Prediction {
  readonly planned: PlannedStep;
  /** Tokens a second on each GPU. */
  readonly tokens: number;
  /** The GiB of our program on each GPU, and those with what PyTorch stores besides. */
  readonly ownGib: number;
  readonly gib: number;
}

/** What the planner predicts for a run. */
export function predict(run: PublishedRun): Prediction {
  const config = configOf(run);
  const planned = priceConfig(config, pricesOf(run));
  const numGpus = Object.values(config.mesh).reduce((product, size) => product * size, 1);
  const gib = (bytes: number) => bytes / 2 ** 30;
  return {
    planned,
    tokens: planned.tokensPerSecond / numGpus,
    ownGib: gib(planned.memoryBytes),
    gib: gib(planned.memoryBytes + overhead * storedMore(run, config)),
  };
}
