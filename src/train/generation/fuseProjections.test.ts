import { expect, test } from "vitest";
import { tinyModel } from "../../../test/support/runs.js";
import { jit, Mesh, np, random, type Tensor, tree } from "../../index.js";
import { quantizeKernels } from "../../nn/modules/quantize.js";
import type { ModelConfig } from "../models/config.js";
import { LanguageModel } from "../models/languageModel.js";
import { loadPretrained } from "../pretrained/loadPretrained.js";
import { fuseProjections } from "./fuseProjections.js";
import { generate } from "./generate.js";

const grouped: ModelConfig = {
  ...{ ...tinyModel, vocabSize: 40, width: 16, numHeads: 4, numKvHeads: 2, mlpWidth: 32 },
  decoder: { attentionBias: "qkv", mlpBias: true },
};
const example = np.zeros([1, 2], "int32");

/** Parameters that are all random, also biases. */
const paramsOf = (model: ModelConfig) =>
  tree.map(
    (x: Tensor) => random.normal(random.key(x.size + x.ndim), x.shape).mul(0.3),
    LanguageModel(model).init(random.key(1), example),
  );

async function written(model: ModelConfig, params: ReturnType<typeof paramsOf>) {
  const tokens: number[] = [];
  for await (const { token } of generate(model, params, [[1, 2, 3]], { maxTokens: 5, slots: 1 }))
    tokens.push(token);
  return tokens;
}

test.each([
  ["grouped heads and biases", grouped],
  [
    "normalised queries and windows in some layers",
    { ...grouped, decoder: { qkNorm: true, window: 4, layers: "LG", ropeLocalBase: 100 } },
  ],
  [
    "a plain MLP beside attention",
    { ...grouped, decoder: { mlp: "plain", normPlacement: "parallel", rotaryShare: 0.5 } },
  ],
  ["experts", { ...grouped, kind: "moe", decoder: {} }],
  ["a matrix memory within its block", { ...grouped, kind: "mlstm", numKvHeads: 4, decoder: {} }],
  ["an MLP beside a matrix memory", { ...grouped, kind: "xlstm", decoder: { headSize: 8, keySize: 4 } }],
] as const)("a fused model with %s has the same logits", async (_, model) => {
  const params = paramsOf(model);
  const { config, params: fused } = fuseProjections(model, params);
  expect(tree.leaves(fused).length).toBeLessThan(tree.leaves(params).length);
  const tokens = np.array([[3, 1, 4, 1, 5, 9]], "int32");
  const logits = (own: ModelConfig, of: typeof params) =>
    jit(() => LanguageModel(own).apply(of, tokens))().data();
  const [a, b] = await Promise.all([logits(config, fused), logits(model, params)]);
  expect(Math.max(...Array.from(a, (x, i) => Math.abs(Number(x) - Number(b[i]))))).toBeLessThan(1e-5);
});

test("kernels that are split over devices are fused where they are", async () => {
  const folder = "test/pretrained/fixtures/llama3";
  const mesh = Mesh.create({ data: 1, model: 2 });
  const [alone, split] = [await loadPretrained(folder), await loadPretrained(folder, { mesh })];
  const fused = fuseProjections(split.config, split.params, { donate: true });
  expect(await written(fused.config, fused.params)).toEqual(await written(alone.config, alone.params));
});

test("kernels are freed on demand, and models that cannot be fused stay as they are", async () => {
  const params = paramsOf(grouped);
  const query = tree.leaves(params.params?.layers)[0] as Tensor;
  const fused = fuseProjections(grouped, params, { donate: true });
  expect(fuseProjections(fused.config, fused.params)).toEqual(fused);
  await expect(query.data()).rejects.toThrow("memory was released");
  const kept = paramsOf(grouped);
  const quantised = quantizeKernels(LanguageModel(grouped), kept, { type: "int8" }, example);
  expect(fuseProjections(grouped, quantised).params).toBe(quantised);
  expect(() => fuseProjections(grouped, { params: {} })).toThrow('the parameters have no "layers"');
  expect(() => fuseProjections({ ...grouped, kind: "gpt" as never }, params)).toThrow(
    "the configuration has kind gpt, which no model has: use llama, moe, xlstm, mlstm",
  );
});
