import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Mesh, np, type Tensor, tree } from "shardwise";
import { adamw } from "shardwise/optim";
import { createTraining, loadAdapters, loadPretrained, readSafetensors } from "shardwise/train";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { main } from "../../src/cli/runCommand.js";

const fixtures = new URL("./fixtures/", import.meta.url).pathname;
const letters = "abcdefghij\n";
const tokenizer = {
  version: "1.0",
  added_tokens: [],
  normalizer: null,
  pre_tokenizer: { type: "Split", pattern: { Regex: "(?:.|\\n)" }, behavior: "Isolated", invert: false },
  post_processor: null,
  decoder: { type: "Fuse" },
  model: {
    type: "WordLevel",
    vocab: Object.fromEntries([...letters].map((letter, i) => [letter, i])),
    unk_token: "a",
  },
};
let root: string;
let written: string[] = [];
const start = () => join(root, "start");
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "shardwise-tune-"));
  await cp(join(fixtures, "llama2"), start(), { recursive: true });
  await writeFile(join(start(), "tokenizer.json"), JSON.stringify(tokenizer));
  await writeFile(join(root, "text.txt"), "abcabcdefghij\n".repeat(60));
});
beforeEach(() => {
  written = [];
  for (const stream of [process.stdout, process.stderr]) {
    vi.spyOn(stream, "write").mockImplementation((text) => {
      written.push(String(text));
      return true;
    });
  }
  return () => vi.restoreAllMocks();
});
afterAll(() => rm(root, { recursive: true, force: true }));

async function run(...args: string[]): Promise<void> {
  expect(await main(args), written.join("")).toBe(0);
}

const train = (out: string, ...more: string[]) =>
  run(
    ...["train", "--init", start(), "--data.source", join(root, "text.txt"), "--out", out],
    ..."--data.sequence 8 --data.batch 4 --sample 4 --optimizer.warmup 0 --optimizer.learningRate 0.01".split(
      " ",
    ),
    ...more,
  );

const tensorsOf = async (folder: string) => {
  const [file = ""] = (await readdir(folder)).filter((name) => name.endsWith(".safetensors"));
  return (await readSafetensors(join(folder, file))).tensors;
};

const alone = ["--mesh", "data=1"];

test("train --tune lora trains adapters, which export writes for PEFT and merged for transformers", async () => {
  const out = join(root, "lora");
  await train(
    out,
    "--tune",
    "lora",
    "--tune.rank",
    "2",
    "--tune.targets",
    "query,value",
    "--steps",
    "2",
    ...alone,
  );
  expect(written.join("")).toContain("M parameters in lora adapters of a float32 base");
  await run("train", "--resume", "--out", out, "--steps", "3", ...alone);
  await run("export", out, "--to", "peft");
  await run("export", out);
  const names = [...(await tensorsOf(join(out, "peft"))).keys()];
  expect(names).toHaveLength(8);
  expect(names[0]).toMatch(/^base_model\.model\.model\.layers\.0\.self_attn\.(q|v)_proj\.lora_[AB]\.weight$/);
  const [before, after] = [await tensorsOf(start()), await tensorsOf(join(out, "hf"))];
  for (const [name, tensor] of before) {
    const isTrained = /self_attn\.(q|v)_proj/.test(name);
    if (isTrained) expect(after.get(name), name).not.toEqual(tensor);
    else expect(after.get(name), name).toEqual(tensor);
  }
  // The adapters beside the base compute what the merged model does.
  const pretrained = await loadPretrained(start(), { dtype: "float32" });
  const { model, adapters, options } = await loadAdapters(join(out, "peft"), pretrained);
  expect(options).toMatchObject({ rank: 2, alpha: 2, dora: false });
  const tokens = np.array([[1, 5, 9, 3]], "int32");
  const merged = await loadPretrained(join(out, "hf"), { dtype: "float32" });
  const [own, other] = [
    await model.apply(pretrained.params, adapters, tokens).data(),
    await merged.model.apply(merged.params, tokens).data(),
  ];
  // The files are bfloat16.
  for (const [i, value] of own.entries()) expect(Number(value)).toBeCloseTo(Number(other[i]), 1);
}, 120_000);

test.each([
  ["dora", "int8", { fsdp: 1 }],
  ["lora", "nf4", { fsdp: 2, model: 2 }],
] as const)(
  "train --tune %s trains beside a base of %s",
  async (kind, base, mesh) => {
    const out = join(root, `${kind}-${base}`);
    const axes = Object.entries(mesh).map(([axis, size]) => `${axis}=${size}`);
    await train(out, "--tune", kind, "--tune.base", base, "--mesh", axes.join(","), "--steps", "8");
    const lines = (await readFile(join(out, "metrics.jsonl"), "utf8")).trim().split("\n");
    const losses = lines
      .map((line) => JSON.parse(line))
      .flatMap(({ loss }) => (loss === undefined ? [] : [loss]));
    expect(Math.min(...losses.slice(-3))).toBeLessThan(losses[0]);
    await run("generate", out, "--length", "4", "--mesh", "model=2", "--dtype", "bfloat16");
    await run("export", out);
    await run("generate", join(out, "hf"), "--length", "2", "--prompt", "abc", "--top-p", "0.9");
  },
  120_000,
);

test("frozen experts are quantised, on any mesh", async () => {
  const { config, params } = await loadPretrained(join(fixtures, "mixtral"), { dtype: "float32" });
  const tune = { kind: "lora", rank: 2, alpha: 4, targets: ["query"], base: "int8" } as const;
  const tokens = np.array(
    [
      [1, 5, 9, 3],
      [3, 7, 2, 1],
    ],
    "int32",
  );
  const losses: number[] = [];
  for (const axes of [{ data: 1 }, { expert: 2 }]) {
    const optimizer = adamw({ learningRate: 1e-3 });
    const training = createTraining({ model: config, mesh: Mesh.create(axes), optimizer, tune });
    const state = training.initFrom(params);
    const types = tree
      .flattenWithPath(state.base)
      .map(({ path, leaf }) => [path, (leaf as Tensor).dtype] as const);
    const codes = types.filter(([path]) => /\/mlp\/(gate|up|down)\/codes/.test(path));
    expect(codes.map(([, dtype]) => dtype)).toEqual(["int8", "int8", "int8"]);
    const [next, { loss }] = training.step(state, tokens);
    losses.push(Number(await loss.item()));
    const [, second] = training.step(next, tokens);
    expect(Number(await second.loss.item())).toBeLessThan(losses.at(-1) ?? 0);
  }
  expect(losses[1]).toBeCloseTo(losses[0] ?? 0, 5);
}, 60_000);

test("settings of adapters that do not fit are refused together", async () => {
  const code = await main(
    [
      "train",
      "--init",
      start(),
      "--tune",
      "lora",
      "--tune.targets",
      "query,quary",
      "--mesh",
      "pipe=2",
    ].concat("--tune.base nf3 --data.batch 8".split(" ")),
  );
  expect(code).toBe(2);
  expect(written.join("")).toContain(
    'tune.targets has "quary": the linear layers of llama are query, key, value',
  );
  expect(written.join("")).toContain(
    "tune.kind lora does not train in stages of a pipeline (mesh.pipe is 2)",
  );
  expect(written.join("")).toContain("tune.base");
  expect(await main(["export", join(root, "none"), "--to", "peft"])).toBe(2);
});

test("train --ignoreFields starts from a model with fields that are unknown here", async () => {
  const folder = join(root, "newer");
  await cp(start(), folder, { recursive: true });
  const json = JSON.parse(await readFile(join(folder, "config.json"), "utf8"));
  await writeFile(join(folder, "config.json"), JSON.stringify({ ...json, new_trick: 1, other_trick: 2 }));
  const out = join(root, "ignored");
  const args = ["train", "--init", folder, "--data.source", join(root, "text.txt"), "--out", out, ...alone];
  const small = "--data.sequence 8 --data.batch 4 --sample 0 --steps 1".split(" ");
  expect(await main([...args, ...small])).not.toBe(0);
  expect(written.join("")).toContain("--ignoreFields new_trick,other_trick");
  await run(...args, ...small, "--ignoreFields", "new_trick,other_trick");
  await run("train", "--resume", "--out", out, "--steps", "2", ...alone);
  expect(await main(["generate", folder, "--length", "1"])).not.toBe(0);
  await run("generate", folder, "--length", "1", "--prompt", "a", "--ignoreFields", "new_trick,other_trick");
});
