import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Mesh, np, random } from "shardwise";
import {
  loadPretrained,
  type ModelConfig,
  readSafetensors,
  saveAdapters,
  savePretrained,
} from "shardwise/train";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { main } from "../../src/cli/runCommand.js";
import { LanguageModel } from "../../src/train/models/languageModel.js";

const fixtures = new URL("./fixtures/", import.meta.url).pathname;
let root: string;
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "shardwise-export-"));
});
afterAll(() => rm(root, { recursive: true, force: true }));

async function tensorsOf(folder: string) {
  const files = (await readdir(folder)).filter((name) => name.endsWith(".safetensors"));
  const all = await Promise.all(files.map((name) => readSafetensors(join(folder, name))));
  return new Map(all.flatMap(({ tensors }) => [...tensors]));
}

/** Keeps what is written to the terminal. */
function captureOutput() {
  const written: string[] = [];
  const spies = [process.stdout, process.stderr].map((stream) =>
    vi.spyOn(stream, "write").mockImplementation((text) => {
      written.push(String(text));
      return true;
    }),
  );
  const restore = () => {
    for (const spy of spies) spy.mockRestore();
  };
  return { written, restore };
}

describe("savePretrained", () => {
  test.each(["llama3", "mixtral", "gemma3", "phi", "phi3", "gpt2", "xlstm"])(
    "writes the bits that were loaded, for %s",
    async (family) => {
      const folder = join(fixtures, family);
      const out = join(root, family);
      const mesh = Mesh.create({ fsdp: 2, model: 2 });
      const options = family === "phi" ? { mesh, dtype: "float32" as const } : {};
      await savePretrained(out, await loadPretrained(folder, options), { maxFileBytes: 4000 });
      const [before, after] = [await tensorsOf(folder), await tensorsOf(out)];
      expect([...after.keys()].sort()).toEqual([...before.keys()].sort());
      for (const [name, tensor] of before) expect(after.get(name), name).toEqual(tensor);
      // The text, because 0 in the place of 0.0 is an error for transformers.
      const configOf = (path: string) => readFile(join(path, "config.json"), "utf8");
      expect(await configOf(out)).toBe(await configOf(folder));
      expect((await readdir(out)).filter((name) => name.endsWith("index.json"))).toHaveLength(1);
      expect((await loadPretrained(out)).config).toEqual((await loadPretrained(folder)).config);
    },
  );

  test("writes one file with the header of the reference if all tensors fit", async () => {
    const out = join(root, "one");
    await savePretrained(out, await loadPretrained(join(fixtures, "llama2")));
    const file = "model.safetensors";
    const [before, after] = await Promise.all(
      [fixtures, root].map((path, i) => readFile(join(path, i === 0 ? "llama2" : "one", file))),
    );
    expect(after?.equals(before ?? new Uint8Array())).toBe(true);
    await expect(savePretrained(out, await loadPretrained(out))).rejects.toThrow("one is not empty");
    expect((await readdir(root)).filter((name) => name.startsWith(".saving"))).toEqual([]);
  });

  test("leaves nothing behind if it fails", async () => {
    const { params, ...model } = await loadPretrained(join(fixtures, "llama2"));
    const [out, own] = [join(root, "failed"), params.params as Readonly<Record<string, unknown>>];
    const broken = { params: { ...own, norm: { scale: np.zeros([3]) } } } as typeof params;
    await expect(savePretrained(out, { ...model, params: broken })).rejects.toThrow("norm/scale");
    const options = { rank: 2, targets: ["query"] };
    const adapters = { lora: { layers: { block: { nothing: { a: np.zeros([1]) } } } } };
    await expect(saveAdapters(out, { ...model, adapters, options })).rejects.toThrow("no linear layer");
    const left = (await readdir(root)).filter((name) => /saving|failed/.test(name));
    expect(left).toEqual([]);
  });

  test("writes a Llama of its own, and says which models no other library has", async () => {
    const config: ModelConfig = {
      kind: "llama",
      vocabSize: 32,
      width: 16,
      numLayers: 2,
      numHeads: 2,
      numKvHeads: 1,
      mlpWidth: 24,
      tieEmbeddings: true,
      ropeBase: 10_000,
      normEpsilon: 1e-6,
      dtype: "float32",
      remat: "none",
    };
    const params = LanguageModel(config).init(random.key(0), np.zeros([1, 2], "int32"));
    await savePretrained(join(root, "own"), { params, config });
    expect((await loadPretrained(join(root, "own"))).config).toMatchObject({
      width: 16,
      tieEmbeddings: true,
    });
    await expect(
      savePretrained(join(root, "x"), { params, config: { ...config, kind: "mlstm" } }),
    ).rejects.toThrow("no family of transformers is a model with the kind mlstm");
    const decoder = { qkNorm: true };
    await expect(savePretrained(join(root, "x"), { params, config: { ...config, decoder } })).rejects.toThrow(
      "a model with model.decoder.qkNorm",
    );
  });
});

describe("a run that starts from a pretrained model", () => {
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

  test("is exported bit for bit if nothing was trained, and differs if something was", async () => {
    const folder = join(root, "start");
    await cp(join(fixtures, "qwen3"), folder, { recursive: true });
    await writeFile(join(folder, "tokenizer.json"), JSON.stringify(tokenizer));
    const source = join(root, "text.txt");
    await writeFile(source, "abcabcdefghij\n".repeat(60));
    const { written, restore } = captureOutput();
    const run = async (out: string, ...more: string[]) => {
      const sizes =
        "--data.sequence 8 --data.batch 4 --sample 4 --mesh fsdp=2,model=2 --optimizer.warmup 0".split(" ");
      const args = ["train", "--init", folder, "--data.source", source, "--out", out, ...sizes, ...more];
      expect(await main(args), written.join("")).toBe(0);
      expect(await main(["export", out, "--to", "hf"]), written.join("")).toBe(0);
    };
    try {
      const still = join(root, "still");
      await run(still, "--steps", "1", "--optimizer.learningRate", "0");
      const [before, after] = [await tensorsOf(folder), await tensorsOf(join(still, "hf"))];
      for (const [name, tensor] of before) expect(after.get(name), name).toEqual(tensor);
      expect((await readdir(join(still, "hf"))).sort()).toEqual([
        "config.json",
        "model.safetensors",
        "tokenizer.json",
      ]);
      const trained = join(root, "trained");
      await run(trained, "--steps", "2", "--model.paramDtype", "bfloat16");
      const changed = await tensorsOf(join(trained, "hf"));
      const name = "model.layers.0.mlp.up_proj.weight";
      expect(changed.get(name)?.data).not.toEqual(before.get(name)?.data);
      const usage = await main(["train", "--init", join(root, "none")]);
      expect([usage, written.join("")]).toEqual([1, expect.stringContaining("none is not a folder")]);
    } finally {
      restore();
    }
  }, 120_000);
});

describe("a run of bytes", () => {
  test("is exported with its tokeniser, so that the folder continues texts", async () => {
    const [source, out] = [join(root, "bytes.txt"), join(root, "bytes")];
    await writeFile(source, "höhö 😀\n".repeat(40));
    const { written, restore } = captureOutput();
    const run = async (line: string) => {
      written.length = 0;
      expect(await main(line.split(" ")), written.join("")).toBe(0);
      return written.join("");
    };
    try {
      const sizes =
        "--model.width 16 --model.numLayers 1 --model.mlpWidth 16 --data.sequence 64 --data.batch 2";
      await run(`train --data.source ${source} --out ${out} --steps 1 --sample 0 ${sizes}`);
      await run(`export ${out} --to hf`);
      const { tokenizer } = await loadPretrained(join(out, "hf"));
      expect([...(tokenizer?.encode("hö") ?? []), tokenizer?.endOfText]).toEqual([104, 0xc3, 0xb6, 256]);
      const json = async (name: string) => JSON.parse(await readFile(join(out, "hf", name), "utf8"));
      expect(await json("config.json")).toMatchObject({ eos_token_id: 256 });
      expect(await json("tokenizer_config.json")).toMatchObject({ eos_token: "<|endoftext|>" });
      const text = await run(`generate ${join(out, "hf")} --prompt hö --length 2`);
      expect(text).toMatch(/^hö/);
    } finally {
      restore();
    }
  }, 60_000);
});
