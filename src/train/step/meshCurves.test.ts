/**
 * Fifty steps of both kinds of model on worker threads: however a mesh splits the work, the curve is the same. Meshes
 * of two axes take turns with the models; `npm run test:meshes` tries all, those of one axis too, with both.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { golden } from "../../../test/support/goldens.js";
import { createThreadsEngine, type ThreadsEngine } from "../../engines/index.js";
import { devicePut, Mesh, Tensor, tree } from "../../index.js";
import type { ContextParallelism } from "../../nn/index.js";
import type { ScheduleName } from "../../parallel/index.js";
import { runOptimizer } from "../config/optimizer.js";
import { readRunConfig } from "../config/runConfig.js";
import type { ModelConfig } from "../models/config.js";
import { createTraining } from "./training.js";

const all = process.env.SHARDWISE_ALL_MESHES === "1";

/** Relative to the loss on one device, at every step. */
const tolerance = 1e-4;

/** Grouped heads and a z-loss; one model has an output layer of its own, the other uses the embedding table. */
const base = {
  vocabSize: 16,
  width: 16,
  numLayers: 4,
  numHeads: 4,
  numKvHeads: 2,
  mlpWidth: 32,
  ropeBase: 10_000,
  normEpsilon: 1e-6,
  dtype: "float32",
  remat: "none",
} as const;
const models: readonly ModelConfig[] = [
  { ...base, kind: "llama", tieEmbeddings: true },
  { ...base, kind: "mlstm", tieEmbeddings: false },
];

interface Split extends Readonly<Partial<Record<"data" | "fsdp" | "pipe" | "context" | "model", number>>> {
  readonly repeats?: number;
  readonly tensor?: "sync" | "async" | "sequence";
  readonly exchange?: ContextParallelism;
  readonly schedule?: ScheduleName;
  /** The one kind of model that is tried; both by default. */
  readonly only?: ModelConfig["kind"];
  /** Whether others have its pairs of axes, or its schedule or exchange, between them. */
  readonly isContained?: boolean;
}

const meshes: readonly (readonly [name: string, split: Split])[] = [
  ["data=2", { data: 2 }],
  ["fsdp=2", { fsdp: 2 }],
  ["model=2", { model: 2 }],
  ["model=2, async", { model: 2, tensor: "async" }],
  ["pipe=2", { pipe: 2 }],
  ["pipe=2, circular", { pipe: 2, repeats: 2 }],
  ["data=2 x model=2", { data: 2, model: 2, isContained: true }],
  ["fsdp=2 x model=2, async", { fsdp: 2, model: 2, tensor: "async" }],
  ["fsdp=2 x model=2, sequence", { fsdp: 2, model: 2, tensor: "sequence" }],
  ["data=2 x pipe=2", { data: 2, pipe: 2 }],
  ["pipe=2 x model=2", { pipe: 2, model: 2, isContained: true }],
  ["pipe=2, circular x model=2, async", { pipe: 2, repeats: 2, model: 2, tensor: "async" }],
  ["fsdp=2 x pipe=2, zb-v", { fsdp: 2, pipe: 2, schedule: "zb-v", only: "mlstm" }],
  [
    "pipe=2, interleaved x model=2, async",
    {
      ...{ pipe: 2, repeats: 2, model: 2, schedule: "interleaved", tensor: "async", only: "llama" },
      isContained: true,
    },
  ],
  ["context=4, gather", { context: 4, exchange: "gather", only: "llama" }],
  ["context=2, ring", { context: 2, only: "llama" }],
  ["data=2 x context=2, allToAll", { data: 2, context: 2, exchange: "allToAll", only: "llama" }],
  ["context=2, ring x model=2", { context: 2, model: 2, only: "llama", isContained: true }],
  ["fsdp=2 x context=2, ring", { fsdp: 2, context: 2, only: "llama", isContained: true }],
  [
    "context=2, allToAll x model=2, async",
    { context: 2, exchange: "allToAll", model: 2, tensor: "async", only: "llama" },
  ],
  ["pipe=2 x context=2, ring", { pipe: 2, context: 2, only: "llama", isContained: true }],
  ["pipe=2, 1f1b x context=2, ring", { pipe: 2, schedule: "1f1b", context: 2, only: "llama" }],
];

const isPair = ([, { data, fsdp, pipe, context, model, isContained }]: (typeof meshes)[number]): boolean =>
  !isContained && [data, fsdp, pipe, context, model].filter((size) => size !== undefined).length === 2;

// Each token mostly tells the next one, so that there is something to learn.
const tokens = golden("language_model", "llama_tied_embeddings").host("tokens");
const { config } = readRunConfig({
  mesh: { data: 1 },
  optimizer: { learningRate: 5e-3, warmup: 5, zLoss: 1e-3 },
  steps: tokens.shape[0],
});

let engine: ThreadsEngine | undefined;
beforeAll(() => {
  engine = createThreadsEngine({ numDevices: 4 });
});
afterAll(() => engine?.close());

async function lossCurve(model: ModelConfig, split: Split): Promise<number[]> {
  if (!engine) throw new Error("the engine is not open");
  const { repeats = 1, tensor = "sync", schedule = "circular", exchange = "ring", ...rest } = split;
  const { only: _, isContained: __, ...axes } = rest;
  const training = createTraining({
    model,
    optimizer: runOptimizer(config),
    mesh: Mesh.create({ data: 1, fsdp: 1, pipe: 1, model: 1, ...axes }, { engine }),
    zLoss: config.optimizer.zLoss,
    pipeline: { microbatches: 2, repeats, schedule },
    tensor,
    context: exchange,
  });
  let state = training.init(config.seed);
  const losses: Tensor[] = [];
  for (let step = 0; step < config.steps; step++) {
    const batch = await devicePut(tokens.row(step).toTensor(), training.batchSharding);
    const [next, metrics] = training.step(state, batch);
    state = next;
    losses.push(metrics.loss);
  }
  const curve = await Promise.all(losses.map((loss) => loss.item()));
  for (const leaf of tree.leaves(state)) {
    if (leaf instanceof Tensor) leaf.dispose();
  }
  return curve;
}

describe.each(models)("the loss curve of $kind over 50 steps", (model) => {
  let alone: readonly number[] = [];
  beforeAll(async () => {
    alone = await lossCurve(model, {});
  }, 120_000);

  test("falls", () => {
    expect(alone).toHaveLength(50);
    expect(alone.at(-1)).toBeLessThan(0.5 * (alone[0] ?? 0));
  });

  const tried = (all ? meshes : meshes.filter(isPair)).filter(
    ([, { only }], i) =>
      (only ?? model.kind) === model.kind && (all || only || models.indexOf(model) === i % models.length),
  );
  test.for(tried)("is that of one device on %s", { timeout: 120_000 }, async ([, split]) => {
    const curve = await lossCurve(model, split);
    expect(curve).toHaveLength(alone.length);
    const off = curve.map((loss, step) => Math.abs(loss / (alone[step] ?? 0) - 1));
    const worst = Math.max(...off);
    expect(worst, `step ${off.indexOf(worst)}`).toBeLessThan(tolerance);
  });
});
