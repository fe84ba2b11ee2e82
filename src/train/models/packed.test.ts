/** Documents that share a row have the logits and gradients that each of them has alone. */
import { describe, expect, test } from "vitest";
import { expectTreeClose } from "../../../test/support/goldens.js";
import { tinyModel } from "../../../test/support/runs.js";
import { devicePut, jit, Mesh, np, random, type Tensor, valueAndGrad } from "../../index.js";
import { getOrInsert } from "../../ir/collections.js";
import { sgd } from "../../optim/index.js";
import { packDocuments } from "../data/batches/rows.js";
import { tokenMarks, tokensInMemory } from "../data/tokens/tokens.js";
import type { TokenBatch } from "../step/tokenBatch.js";
import { createTraining } from "../step/training.js";
import type { ModelConfig } from "./config.js";
import { LanguageModel } from "./languageModel.js";
import { crossEntropy } from "./loss.js";

type Variables = Parameters<ReturnType<typeof LanguageModel>["apply"]>[0];

const lengths = [5, 2, 9, 1, 6];
const total = lengths.reduce((sum, n) => sum + n, 0);
const documents = lengths.map((n, i) => random.randint(random.key(i), [1, n], 0, 16));
const numbers = (of: (position: number, document: number) => number) =>
  np.array([lengths.flatMap((n, i) => Array.from({ length: n }, (_, p) => of(p, i)))], "int32");
const reading = { positions: numbers((p) => p), segmentIds: numbers((_, i) => i + 1) };

const kinds: Readonly<Record<string, Partial<ModelConfig>>> = {
  llama: {},
  "llama with a window and learned positions": {
    decoder: { window: 3, layers: "L", positions: "learned", maxLength: 24 },
  },
  "llama with local and global layers": { decoder: { window: 3, layers: "LG", ropeLocalBase: 100 } },
  moe: { kind: "moe", width: 32 },
  mlstm: { kind: "mlstm" },
  xlstm: { kind: "xlstm", decoder: { headSize: 4, keySize: 2 } },
};

describe.each(Object.entries(kinds))("%s", (_, changes) => {
  const config = { ...tinyModel, ...changes };
  const model = LanguageModel(config);
  const packed = np.concatenate(documents, 1);
  const variables = model.init(random.key(9), packed);
  const weights = random.normal(random.key(7), [total, config.vocabSize]);

  test("logits, and gradients of all parameters", { timeout: 60_000 }, async () => {
    const together = (own: Variables) => {
      const logits = model.apply(own, packed, reading);
      return [np.sum(np.sin(logits).mul(weights)), logits] as const;
    };
    const alone = (own: Variables) => {
      const all = documents.map((tokens) => model.apply(own, tokens));
      const logits = np.concatenate(all, 1);
      return [np.sum(np.sin(logits).mul(weights)), logits] as const;
    };
    const of = (loss: typeof alone) =>
      jit((own: Variables) => valueAndGrad(loss, { hasAux: true })(own))(variables);
    const [[, logits], grads] = of(together);
    const [[, wanted], wantedGrads] = of(alone);
    await expectTreeClose(logits, wanted, { rtol: 1e-4, atol: 1e-5 });
    await expectTreeClose(grads, wantedGrads, { rtol: 1e-3, atol: 1e-5 });
    // The test would notice if documents saw each other.
    const mixed = await np.max(np.abs(model.apply(variables, packed).sub(wanted))).item();
    expect(mixed).toBeGreaterThan(1e-3);
  });
});

test("the loss counts what is scored, and weighs parts of a batch by it", async () => {
  const logits = random.normal(random.key(1), [2, 5, 11]);
  const targets = random.randint(random.key(2), [2, 5], 0, 11);
  const mask = np.array(
    [
      [1, 0, 1, 1, 0],
      [0, 0, 0, 0, 1],
    ],
    "float32",
  );
  const weights = mask.div(np.mean(mask));
  const each = Array.from({ length: 10 }, (_, i) => [Math.floor(i / 5), i % 5] as const);
  const values = await Promise.all(
    each.map(([row, i]) => crossEntropy(pick(logits, row, i), pick(targets, row, i), 0.1).loss.item()),
  );
  const counted = await mask.data();
  const wanted = values.reduce((sum, value, i) => sum + value * (counted[i] ?? 0), 0) / 4;
  expect(await crossEntropy(logits, targets, 0.1, weights).loss.item()).toBeCloseTo(wanted, 5);
  for (const dtype of ["bfloat16", "float16"] as const) {
    expect(await crossEntropy(logits.astype(dtype), targets, 0.1, weights).loss.item()).toBeCloseTo(
      wanted,
      1,
    );
  }
});

const pick = (x: Tensor, row: number, i: number) => x.get(np.s(row, row + 1), np.s(i, i + 1));

/** A batch of rows that are filled with documents, some tokens of which are not scored. */
async function packedBatch(numRows: number, length: number): Promise<TokenBatch> {
  const size = 400;
  const tokens = Int32Array.from({ length: size }, (_, i) => (i * 7 + (i >> 3)) % 16);
  const marks = Uint8Array.from(
    { length: size },
    (_, i) => (i % 7 === 0 || i % 11 === 0 ? tokenMarks.start : 0) | (i % 5 === 0 ? tokenMarks.unscored : 0),
  );
  const source = await packDocuments(tokensInMemory(tokens, 16, marks), length);
  const rows = await Promise.all(Array.from({ length: numRows }, (_, i) => source.read(i)));
  const stack = (of: (row: (typeof rows)[number]) => ArrayLike<number>) =>
    np.array(
      rows.map((row) => Array.from(of(row))),
      "int32",
    );
  const parts = rows.map(({ documents: own }) => own);
  const ofPart = (name: "segmentIds" | "positions" | "lossMask") =>
    np.array(
      parts.map((own) => Array.from(own?.[name] ?? [])),
      "int32",
    );
  return {
    tokens: stack((row) => row.tokens),
    segmentIds: ofPart("segmentIds"),
    positions: ofPart("positions"),
    lossMask: ofPart("lossMask").astype("bool"),
  };
}

/** Meshes, with the kinds of models that are tried there in every run of the tests, and with CASES=all. */
const meshes: readonly {
  readonly name: string;
  readonly axes: Readonly<Record<string, number>>;
  readonly options: object;
  readonly kinds: readonly ModelConfig["kind"][];
  readonly more?: readonly ModelConfig["kind"][];
}[] = [
  {
    name: "data=2, model=2",
    axes: { data: 2, model: 2 },
    options: {},
    kinds: ["llama"],
    more: ["mlstm", "xlstm", "moe"],
  },
  {
    name: "fsdp=2 in two parts",
    axes: { fsdp: 2 },
    options: { accumulate: 2 },
    kinds: ["llama"],
    more: ["mlstm"],
  },
  {
    name: "context=2 in a ring",
    axes: { context: 2 },
    options: {},
    kinds: ["llama"],
    more: ["mlstm", "xlstm", "moe"],
  },
  {
    name: "context=2 by all-to-all",
    axes: { context: 2 },
    options: { context: "allToAll" },
    kinds: [],
    more: ["llama"],
  },
  {
    name: "pipe=2",
    axes: { pipe: 2 },
    options: { pipeline: { microbatches: 2, repeats: 1 } },
    kinds: ["llama"],
    more: ["mlstm", "xlstm", "moe"],
  },
  {
    name: "pipe=2, circular",
    axes: { pipe: 2 },
    options: { pipeline: { microbatches: 2, repeats: 2 } },
    kinds: [],
    more: ["llama"],
  },
];
const isAll = process.env.CASES === "all";
const cases = meshes.flatMap(({ name, axes, options, kinds: some, more = [] }) =>
  [...some, ...(isAll ? more : [])].map((kind) => ({ name, axes, options, kind })),
);

async function stepOn(kind: ModelConfig["kind"], axes: Readonly<Record<string, number>>, options: object) {
  const model = { ...tinyModel, numLayers: isAll ? 4 : 2, ...kinds[kind] };
  const batch = await packedBatch(4, 16);
  const mesh = Mesh.create({ data: 1, fsdp: 1, pipe: 1, model: 1, ...axes });
  const training = createTraining({ model, mesh, optimizer: sgd({ learningRate: 0.1 }), ...options });
  const state = training.init(0);
  const rows = await devicePut(batch, training.batchSharding);
  const evaluated = await training.evaluate(state, rows).item();
  const [after, { crossEntropy: entropy }] = training.step(state, rows);
  return { logits: training.logits(after, batch.tokens), entropy: await entropy.item(), evaluated };
}

const onOneDevice = new Map<ModelConfig["kind"], ReturnType<typeof stepOn>>();

test.each(cases)("a step of $kind on $name is that of one device", { timeout: 60_000 }, async (one) => {
  const alone = await getOrInsert(onOneDevice, one.kind, () => stepOn(one.kind, {}, {}));
  const split = await stepOn(one.kind, one.axes, one.options);
  expect(split.entropy).toBeCloseTo(alone.entropy, 5);
  expect(split.evaluated).toBeCloseTo(alone.evaluated, 5);
  await expectTreeClose(split.logits, alone.logits, { rtol: 1e-3, atol: 1e-5 });
});

test("schedules that interleave forward and backward, and experts with a capacity, refuse documents", async () => {
  const batch = await packedBatch(8, 16);
  const refused = async (model: ModelConfig, axes: Readonly<Record<string, number>>, options: object) => {
    const mesh = Mesh.create({ data: 1, fsdp: 1, pipe: 1, model: 1, ...axes });
    const training = createTraining({ model, mesh, optimizer: sgd({ learningRate: 0.1 }), ...options });
    const rows = await devicePut(batch, training.batchSharding);
    return () => training.step(training.init(0), rows);
  };
  const model = { ...tinyModel, numLayers: 4 };
  const pipeline = { microbatches: 2, repeats: 1, schedule: "1f1b" };
  expect(await refused(model, { pipe: 2 }, { pipeline })).toThrow("use pipeline.schedule circular");
  const moe = { ...model, ...kinds.moe, experts: { capacityFactor: 1 } };
  expect(await refused(moe, {}, {})).toThrow("model.experts.capacityFactor");
});
