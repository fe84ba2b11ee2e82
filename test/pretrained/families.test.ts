import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jit, Mesh, np, type Tensor, tree, valueAndGrad } from "shardwise";
import { loadPretrained, readSafetensors, writeSafetensors } from "shardwise/train";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { crossEntropy } from "../../src/train/models/loss.js";
import { isNear } from "../support/near.js";

const fixtures = new URL("./fixtures/", import.meta.url).pathname;
const families = [
  ..."llama2 llama3 mistral mixtral qwen2 qwen3 gemma2 gemma3 phi phi3 gpt2 xlstm".split(" "),
] as const;

/** What transformers computed; `models.py` makes these files. */
interface Expected {
  readonly tokens: readonly (readonly number[])[];
  readonly logits: readonly number[];
  readonly loss: number;
  readonly gradientNorm: number;
  readonly gradientDotParams: number;
}

async function expected(family: string): Promise<Expected> {
  return JSON.parse(await readFile(join(fixtures, family, "expected.json"), "utf8"));
}

const sums = async (a: unknown, b: unknown) => {
  const [left, right] = [tree.leaves(a) as Tensor[], tree.leaves(b) as Tensor[]];
  let sum = 0;
  for (const [i, x] of left.entries()) {
    const [p, q] = [await x.data(), (await right[i]?.data()) ?? []];
    for (let j = 0; j < p.length; j++) sum += Number(p[j]) * Number(q[j]);
  }
  return sum;
};

describe.each(families)("a pretrained model of the family %s", (family) => {
  test.each([
    ["one device", undefined],
    ["a mesh", { fsdp: 2, model: 2 }],
  ])("gives the logits, loss and gradients of transformers on %s", async (_where, axes) => {
    const mesh = axes && Mesh.create(axes);
    const onMesh = mesh ? { mesh } : {};
    const want = await expected(family);
    const { model, params } = await loadPretrained(join(fixtures, family), { ...onMesh, dtype: "float32" });
    const tokens = np.array(
      want.tokens.map((row) => [...row]),
      "int32",
    );
    const length = tokens.shape[1] ?? 0;
    const logits = await jit((p: typeof params, t: Tensor) => model.apply(p, t), onMesh)(
      params,
      tokens,
    ).data();
    const isSame = (value: number, i: number) => isNear(Number(logits[i]), value, 5e-6);
    expect(want.logits.findIndex((value, i) => !isSame(value, i))).toBe(-1);
    const loss = (p: typeof params, t: Tensor) =>
      crossEntropy(model.apply(p, t.get("...", np.s(0, length - 1))), t.get("...", np.s(1, length))).loss;
    const [value, gradients] = jit(valueAndGrad(loss), onMesh)(params, tokens);
    expect(await value.item()).toBeCloseTo(want.loss, 5);
    expect(Math.sqrt(await sums(gradients, gradients))).toBeCloseTo(want.gradientNorm, 4);
    expect(await sums(gradients, params)).toBeCloseTo(want.gradientDotParams, 4);
  });
});

describe("a folder that is not as it should be", () => {
  let root: string;
  const folder = () => join(root, "model");
  beforeAll(async () => {
    root = await mkdtemp(join(tmpdir(), "shardwise-pretrained-"));
    await cp(join(fixtures, "llama2"), folder(), { recursive: true });
  });
  afterAll(() => rm(root, { recursive: true, force: true }));
  const withConfig = async (change: Record<string, unknown>, message: string) => {
    const file = join(folder(), "config.json");
    const before = await readFile(file, "utf8");
    await writeFile(file, JSON.stringify({ ...JSON.parse(before), ...change }));
    await expect(loadPretrained(folder())).rejects.toThrow(message);
    await writeFile(file, before);
  };

  test("is refused with what is wrong about its configuration", async () => {
    await expect(loadPretrained(join(root, "none"))).rejects.toThrow("none is not a folder");
    await expect(loadPretrained(root)).rejects.toThrow("has no config.json: name the folder of a model");
    await withConfig({ model_type: "lama" }, 'model_type is "lama": llama, mistral');
    await withConfig({ hidden_size: "16" }, "config.json: hidden_size must be a number");
    await withConfig({ num_hidden_layers: 0 }, "num_hidden_layers must be a positive integer, got 0");
    await withConfig({ num_hidden_layers: 2e9 }, "num_hidden_layers must be at most 65536, got 2000000000");
    await withConfig(
      { num_hidden_layers: 65_535 },
      'the configuration needs 65535 tensors "model.layers.*.self_attn.k_proj.weight", but the files have only',
    );
    await withConfig({ head_dim: 4_000_002 }, "heads of 4000002 numbers are over the limit 65536");
    await withConfig({ hidden_act: "snake" }, 'hidden_act is "snake"');
    await withConfig({ rope_parameters: { rope_type: "longrope", factor: 2 } }, 'rope_type is "longrope"');
    await withConfig({ quantization_config: {} }, "quantization_config is {}");
    await withConfig(
      { residual_multiplier: 0.2, new_trick: true },
      "unknown fields, which may change what the model computes: residual_multiplier, new_trick; if they do not, list them",
    );
    const ignoreFields = ["new_trick"];
    const file = join(folder(), "config.json");
    const before = await readFile(file, "utf8");
    await writeFile(file, JSON.stringify({ ...JSON.parse(before), new_trick: true }));
    expect((await loadPretrained(folder(), { ignoreFields })).config.width).toBe(16);
    await writeFile(file, before);
  });

  test("is refused if its tokeniser has more tokens than the model", async () => {
    const file = join(folder(), "tokenizer.json");
    await cp(join(fixtures, "tokenizers/bert.tokenizer.json"), file);
    await expect(loadPretrained(folder())).rejects.toThrow(
      /tokenizer\.json has \d+ tokens, but the model has only 16: it belongs to another model/,
    );
    await rm(file);
  });

  test("is refused if its index names files or tensors that it has not", async () => {
    const index = join(folder(), "model.safetensors.index.json");
    const { tensors } = await readSafetensors(join(folder(), "model.safetensors"));
    const names = [...tensors.keys()];
    const named = (file: string, ...more: string[]) =>
      writeFile(
        index,
        JSON.stringify({ weight_map: Object.fromEntries([...names, ...more].map((name) => [name, file])) }),
      );
    await named("model-00001-of-00002.safetensors");
    await expect(loadPretrained(folder())).rejects.toThrow("model-00001-of-00002.safetensors");
    await named("model.safetensors", "lm_hat.weight");
    await expect(loadPretrained(folder())).rejects.toThrow(
      'it has no tensor "lm_hat.weight", which model.safetensors.index.json lists for it',
    );
    await named("../elsewhere.safetensors");
    await expect(loadPretrained(folder())).rejects.toThrow("elsewhere");
    await rm(index);
  });

  test("is refused with every tensor that is missing, unexpected or of another shape", async () => {
    const file = join(folder(), "model.safetensors");
    const { tensors } = await readSafetensors(file);
    const scale = { dtype: "float32", shape: [3], data: new Float32Array(3) } as const;
    const changed = new Map(tensors);
    changed.delete("model.layers.1.mlp.up_proj.weight");
    changed.set("model.layers.1.mlp.upp_proj.weight", scale);
    changed.set("model.norm.weight", scale);
    await writeSafetensors(file, changed);
    const error = await loadPretrained(folder()).catch((e) => e);
    expect(error.message).toContain(
      '"params/layers/block/mlp/up/kernel[1]" (bf16[16,16]) is not in the file as "model.layers.1.mlp.up_proj.weight"; the nearest names there are "model.layers.1.mlp.upp_proj.weight"',
    );
    expect(error.message).toContain(
      '"model.layers.1.mlp.upp_proj.weight" of the file has no place in the tree',
    );
    expect(error.message).toContain(
      '"params/norm/scale" is bfloat16[3] in the file but must be bfloat16[16]',
    );
    await rm(file);
    await expect(loadPretrained(folder())).rejects.toThrow(
      "the folder has no file that ends with .safetensors",
    );
  });
});
