/**
 * A step on every mesh of eight devices that the six axes can make is that of one device: loss, router statistics and
 * all gradients, for models, schedules and exchanges that are drawn for each mesh. `npm test` takes a few meshes;
 * `npm run test:meshes` takes all of them, and those of two and four devices, on the interpreter or the engine that
 * `SHARDWISE_ENGINE` names; `npm run test:everyMesh` runs them on every engine, processes of MPI and simulated devices of
 * XLA among them. `MESH="data=2 expert=4"` takes one mesh, and `SEED=7` draws other cases.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { expectClose, expectTreeClose } from "../../../test/support/goldens.js";
import { axes, meshesOf, meshName, type Sizes } from "../../../test/support/meshes.js";
import { lax, Mesh, np, random, type Tensor } from "../../index.js";
import type { ContextParallelism } from "../../nn/index.js";
import { sgd } from "../../optim/index.js";
import { type ScheduleName, scheduleNames } from "../../parallel/schedule/makers.js";
import type { ModelConfig } from "../models/config.js";
import { toCanonical } from "../models/layerOrder.js";
import type { TensorParallelism } from "../models/names.js";
import { chunksOf, isInterleaved } from "../models/scheduled.js";
import { placementFor } from "../models/sequence.js";
import type { TokenBatch } from "./tokenBatch.js";
import { createTraining } from "./training.js";

const all = process.env.SHARDWISE_ALL_MESHES === "1";
const seed = Number(process.env.SEED ?? 1);

const kinds = ["llama", "moe", "mlstm", "xlstm"] as const;
const decoders = [{}, { window: 3, layers: "L" }, { window: 3, layers: "LG" }, { attentionCap: 3 }] as const;

/** What is drawn for a mesh, as far as the mesh leaves a choice. */
const choices = fc.record({
  kind: fc.constantFrom(...kinds),
  exchange: fc.constantFrom<ContextParallelism>("ring", "allToAll", "gather"),
  schedule: fc.constantFrom(...scheduleNames),
  repeats: fc.constantFrom(1, 2),
  tensor: fc.constantFrom<TensorParallelism>("sync", "async", "sequence"),
  remat: fc.constantFrom("none", "dots", "selective", "full"),
  decoder: fc.constantFrom(...decoders),
  documentEnd: fc.constantFrom(-1, 0),
  sharesHeads: fc.boolean(),
  /** How many tokens a device has, or pairs of tokens if they are placed by zigzag. */
  parts: fc.constantFrom(1, 3),
  // A capacity of nothing drops all tokens.
  capacityFactor: fc.constantFrom(0, 0, 0.5, 1e-6),
  gate: fc.constantFrom("softmax", "sigmoid"),
  numSharedExperts: fc.constantFrom(0, 1),
  biasRate: fc.constantFrom(0, 0.01),
});

interface Case {
  readonly sizes: Sizes;
  readonly model: ModelConfig;
  readonly exchange: ContextParallelism;
  readonly tensor: TensorParallelism;
  readonly pipeline: {
    readonly microbatches: number;
    readonly repeats: number;
    readonly schedule: ScheduleName;
  };
  readonly length: number;
  /** Whether rows hold several documents. */
  readonly hasDocuments: boolean;
}

const canRepeat: readonly ScheduleName[] = ["circular", "interleaved", "breadth-first"];

function caseOf(sizes: Sizes, index: number): Case {
  const [drawn] = fc.sample(choices, { seed: 1000 * seed + index, numRuns: 1 });
  if (!drawn) throw new Error("nothing was drawn");
  const kind = sizes.expert > 1 ? "moe" : drawn.kind;
  const { schedule, exchange, tensor, capacityFactor, gate, numSharedExperts, biasRate } = drawn;
  const repeats = canRepeat.includes(schedule) ? drawn.repeats : 1;
  const isPiped = sizes.pipe > 1;
  const numLayers = isPiped ? sizes.pipe * chunksOf(schedule, repeats) : 2;
  const model: ModelConfig = {
    kind,
    vocabSize: 16,
    width: 16,
    numLayers,
    numHeads: 8,
    numKvHeads: drawn.sharesHeads ? Math.max(2, sizes.model) : 8,
    mlpWidth: 16,
    tieEmbeddings: false,
    ropeBase: 10_000,
    normEpsilon: 1e-6,
    dtype: "float32",
    remat: drawn.remat as ModelConfig["remat"],
    ...(kind === "llama" && !isPiped && { decoder: drawn.decoder }),
    ...(kind === "xlstm" && { decoder: { keySize: 2 } }),
    experts: {
      ...{ numExperts: 8, balanceLoss: 0.1, zLoss: 0.01, capacityFactor, numSharedExperts, biasRate },
      gate: gate as "softmax" | "sigmoid",
    },
  };
  const isZigzag = sizes.context > 1 && placementFor(model, exchange) === "zigzag";
  // Statistics of routers are a part of the stream that does not split.
  const splitsStream = tensor === "sequence" && sizes.model > 1 && kind !== "moe";
  const streams = splitsStream ? sizes.context * sizes.model : sizes.context > 1 ? sizes.context : 5;
  return {
    sizes,
    model,
    exchange,
    tensor: sizes.model > 1 && (splitsStream || tensor !== "sequence") ? tensor : "sync",
    pipeline: { microbatches: 2 * sizes.pipe, repeats, schedule },
    hasDocuments:
      drawn.documentEnd >= 0 &&
      !(isPiped && isInterleaved(schedule)) &&
      !(kind === "moe" && capacityFactor > 0),
    length: streams * drawn.parts * (isZigzag ? 2 : 1),
  };
}

/** Tokens whose documents end with token 0. */
function withDocuments(tokens: Tensor): TokenBatch {
  const inputs = tokens.get(":", np.s(0, -1));
  const isEnd = np.equal(inputs, 0);
  const first = np.zerosLike(isEnd.get(":", np.s(0, 1)));
  const isStart = np.concatenate([first, isEnd.get(":", np.s(0, -1))], 1);
  const indices = np.broadcastTo(np.arange(inputs.shape[1] ?? 0), inputs.shape);
  return {
    tokens,
    segmentIds: np.cumsum(isStart.astype("int32"), 1).add(1),
    positions: indices.sub(lax.cummax(np.where(isStart, indices, 0), 1)),
    lossMask: np.logicalNot(isEnd),
  };
}

/** A step whose update is the gradient. */
async function stepOf(
  { model, exchange, tensor, pipeline, length, hasDocuments }: Case,
  sizes: Partial<Sizes>,
) {
  const mesh = Mesh.create({ data: 1, fsdp: 1, pipe: 1, model: 1, ...sizes });
  const training = createTraining({
    model,
    mesh,
    tensor,
    pipeline,
    context: exchange,
    optimizer: sgd({ learningRate: 1 }),
    zLoss: 1e-3,
  });
  const tokens = random.randint(random.key(length), [16, length + 1], 0, 16);
  const [after, metrics] = training.step(training.init(seed), hasDocuments ? withDocuments(tokens) : tokens);
  return {
    loss: metrics.loss,
    router: metrics.router ?? np.zeros([]),
    params: toCanonical(after.params, training.layout),
  };
}

const eight = meshesOf(8);
const every = [8, 4, 2].flatMap(meshesOf);
const { MESH: only } = process.env;
const tried =
  only !== undefined
    ? every.filter((sizes) => meshName(sizes) === only)
    : all
      ? every
      : eight.filter((_, i) => i % 14 === 6);
const cases = tried.map((sizes) => {
  const one = caseOf(sizes, every.indexOf(sizes));
  const { kind, decoder, remat } = one.model;
  const by = [
    kind,
    ...(sizes.context > 1 ? [one.exchange] : []),
    ...(sizes.pipe > 1 ? [`${one.pipeline.schedule} x ${one.pipeline.repeats}`] : []),
    ...(sizes.model > 1 ? [one.tensor] : []),
    ...(decoder ? [JSON.stringify(decoder)] : []),
    ...(one.hasDocuments ? ["documents"] : []),
    `${one.length} tokens`,
    `remat ${remat}`,
  ];
  return [meshName(sizes), by.join(", "), one] as const;
});

describe("a step is that of one device", () => {
  test.for(cases)("on %s: %s", { timeout: 300_000 }, async ([, , one]) => {
    const { expert, context, ...rest } = one.sizes;
    const sizes = { ...rest, ...(expert > 1 && { expert }), ...(context > 1 && { context }) };
    const [split, alone] = [await stepOf(one, sizes), await stepOf(one, {})];
    await expectClose(split.loss, alone.loss, { rtol: 1e-5, atol: 1e-5 });
    await expectClose(split.router, alone.router, { rtol: 1e-5, atol: 1e-5 });
    await expectTreeClose(split.params, alone.params, { rtol: 1e-5, atol: 1e-5 });
  });
});

test("there are 56 meshes of eight devices, and every axis splits in some", () => {
  expect(eight).toHaveLength(56);
  for (const name of axes) expect(new Set(eight.map((sizes) => sizes[name]))).toEqual(new Set([1, 2, 4, 8]));
});
