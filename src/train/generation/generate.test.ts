import { describe, expect, test, vi } from "vitest";
import { tinyModel } from "../../../test/support/runs.js";
import { createReferenceEngine } from "../../engines/reference/engine.js";
import { Mesh, np, random } from "../../index.js";
import { getOrInsert } from "../../ir/collections.js";
import { byteTokenizer } from "../data/tokenizers/tokenizer.js";
import type { ModelConfig } from "../models/config.js";
import { LanguageModel } from "../models/languageModel.js";
import { type GenerateOptions, generate } from "./generate.js";
import { TextGenerator } from "./generator.js";
import type { Sampling } from "./sampling.js";
import { TextStream } from "./textStream.js";

const base: ModelConfig = { ...tinyModel, vocabSize: 288, width: 16, numHeads: 4, mlpWidth: 32 };
const tokenizer = byteTokenizer();
const made = new Map<string, ReturnType<ReturnType<typeof LanguageModel>["init"]>>();
const paramsOf = (model: ModelConfig) =>
  getOrInsert(made, JSON.stringify(model), () =>
    LanguageModel(model).init(random.key(3), np.zeros([1, 2], "int32")),
  );

/** The tokens of every prompt. */
async function tokensOf(
  model: ModelConfig,
  prompts: readonly (string | readonly number[])[],
  options: GenerateOptions,
): Promise<number[][]> {
  const texts: number[][] = prompts.map(() => []);
  const params = paramsOf(model);
  for await (const { prompt, token } of generate(model, params, prompts, { tokenizer, ...options })) {
    texts[prompt]?.push(token);
  }
  return texts;
}

describe.each(["llama", "mlstm"] as const)("texts of the %s model", (kind) => {
  const model: ModelConfig = { ...base, kind };
  const prompts = ["Call me", "whale", "The sea was", "a", "Ishmael went to sea"];
  const options = { maxTokens: 6, maxLength: 32, slots: 2, seed: 5, topP: 0.95, stopTokens: [] };

  test("are the same alone and beside others, also if there are more of them than slots", async () => {
    const all = await tokensOf(model, prompts, options);
    expect(all.map(({ length }) => length)).toEqual(prompts.map(() => 6));
    for (const [i, prompt] of prompts.slice(0, 2).entries()) {
      expect(await tokensOf(model, [prompt], options)).toEqual([all[i]]);
    }
    const [other] = await tokensOf(model, [prompts[0] ?? ""], { ...options, seed: 6 });
    expect(other).not.toEqual(all[0]);
  });

  test("take the likeliest token of the whole text with temperature 0", async () => {
    const [drawn = []] = await tokensOf(model, [[5, 6, 7]], { ...options, temperature: 0 });
    const tokens = [5, 6, 7];
    for (const token of drawn) {
      const logits = LanguageModel(model).apply(paramsOf(model), np.array([tokens], "int32"));
      const data = Array.from(await logits.data(), Number)
        .slice(-model.vocabSize)
        .slice(0, 257);
      expect(token).toBe(data.indexOf(Math.max(...data)));
      tokens.push(token);
    }
  });
});

test("texts of a model that has written others are written without compiling it again", async () => {
  const engine = createReferenceEngine({ numDevices: 1 });
  const compile = vi.spyOn(engine, "compile");
  const numCompiled = async (changes: Partial<ModelConfig>, slots: number) => {
    compile.mockClear();
    const mesh = Mesh.create({ data: 1 }, { engine });
    await tokensOf({ ...base, ...changes }, ["whale"], { maxTokens: 2, maxLength: 16, slots, mesh });
    return compile.mock.calls.filter(([, { name }]) => name === "readTokens").length;
  };
  expect(await numCompiled({}, 1)).toBeGreaterThan(0);
  expect(await numCompiled({}, 1)).toBe(0);
  expect(await numCompiled({}, 2)).toBeGreaterThan(0);
  expect(await numCompiled({ ropeBase: 5000 }, 1)).toBeGreaterThan(0);
});

describe("a draft", () => {
  const small: ModelConfig = { ...base, numLayers: 1, mlpWidth: 16 };
  const prompts = ["Call me", "whale", "The sea was", "a"];
  const options = { maxTokens: 11, maxLength: 24, slots: 2, seed: 5, stopTokens: [] };
  const drafts = { "another model": small, "the model itself": base };

  test.each(["another model", "the model itself"] as const)(
    "that is %s changes no text, so that the distribution is the model's, and no text depends on others",
    async (name) => {
      const draft = { model: drafts[name], params: paramsOf(drafts[name]) };
      const drawn = { temperature: 1.3, topP: 0.95, repetitionPenalty: 1.2 };
      for (const sampling of name === "another model" ? [drawn, { temperature: 0 }] : [drawn]) {
        const own = { ...options, ...sampling };
        const alone = await tokensOf(base, prompts, own);
        expect(await tokensOf(base, prompts, { ...own, draft, draftTokens: 3 })).toEqual(alone);
        expect(await tokensOf(base, prompts.slice(1, 2), { ...own, draft })).toEqual([alone[1]]);
      }
    },
  );

  test("that agrees saves readings of the model", async () => {
    const { CachedModel } = await import("./cachedModel.js");
    const read = vi.spyOn(CachedModel.prototype, "readTogether");
    const draft = { model: base, params: paramsOf(base) };
    await tokensOf(base, ["Call me"], { ...options, slots: 1, draft, draftTokens: 3 });
    const sizes = read.mock.calls.map(([, size, which]) => [which, size]);
    read.mockRestore();
    // The first token follows the prompt, then every reading of the model gives four.
    expect(sizes.filter(([which]) => which === "all")).toEqual([4, 4, 4].map((size) => ["all", size]));
  });

  test("of another vocabulary or of a kind that cannot forget is refused", async () => {
    const refused = async (model: ModelConfig, own: ModelConfig) =>
      tokensOf(own, ["a"], { ...options, draft: { model, params: {} } }).catch((e) => e.message);
    expect(await refused({ ...small, vocabSize: 100 }, base)).toContain(
      "the draft has 100 tokens, the model 257",
    );
    expect(await refused({ ...small, kind: "mlstm" }, base)).toContain("mlstm cannot forget the tokens");
  });
});

test.each([
  ["llama", { data: 2, model: 2 }],
  ["moe", { data: 2, expert: 2 }],
  ["mlstm", { data: 2, model: 2 }],
] as const)("a mesh gives the texts of one device (%s)", async (kind, axes) => {
  const prompts = ["Call me", "whale"];
  const options = { maxTokens: 5, slots: 4, temperature: 0.8, topP: 0.9, seed: 3 };
  const model = { ...base, kind };
  const mesh = Mesh.create(axes);
  expect(await tokensOf(model, prompts, { ...options, mesh })).toEqual(
    await tokensOf(model, prompts, options),
  );
});

test.each(["llama", "mlstm"] as const)(
  "texts of the likeliest tokens end at stop tokens and join and leave others (%s)",
  async (kind) => {
    const model: ModelConfig = { ...base, kind };
    const prompts = ["Call me", "whale", "The sea was", "a"];
    const options = { temperature: 0, maxTokens: 9, maxLength: 40, stopTokens: [] };
    const alone: number[][] = [];
    for (const prompt of prompts) alone.push(...(await tokensOf(model, [prompt], { ...options, slots: 1 })));
    // The step that was started ahead has read one more of a text that ends.
    const stopTokens = [alone[0]?.[4] ?? 0, alone[2]?.[2] ?? 0];
    const ended = alone.map((tokens) => {
      const stop = tokens.findIndex((token) => stopTokens.includes(token));
      return stop < 0 ? tokens : tokens.slice(0, stop + 1);
    });
    expect(await tokensOf(model, prompts, { ...options, slots: 2, stopTokens })).toEqual(ended);
    // A text that is drawn by chance takes turns with those that are not.
    const generator = new TextGenerator(model, paramsOf(model), { slots: 2, maxLength: 40, vocabSize: 257 });
    const greedy = { temperature: 0, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1 };
    const request = (i: number, sampling: Sampling) => ({
      ...{ tokens: Array.from(tokenizer.encode(prompts[i] ?? "")), maxTokens: 9, seed: 5 },
      ...{ stopTokens: new Set<number>(), sampling },
    });
    const read = async (i: number, sampling: Sampling) => {
      const tokens: number[] = [];
      for await (const { token } of generator.submit(request(i, sampling))) tokens.push(token);
      return tokens;
    };
    const texts = await Promise.all([
      read(0, greedy),
      read(1, { ...greedy, temperature: 1 }),
      read(2, greedy),
    ]);
    expect([texts[0], texts[2]]).toEqual([alone[0], alone[2]]);
    await generator.close();
  },
);

test("texts end at stop tokens and strings, when they are long enough, and when they are aborted", async () => {
  const params = paramsOf(base);
  const ends = async (options: GenerateOptions) => {
    const pieces: string[] = [];
    let last: string | undefined;
    for await (const { text, finish } of generate(base, params, ["sea"], {
      tokenizer,
      seed: 1,
      ...options,
    })) {
      pieces.push(text);
      last = finish;
    }
    return { text: pieces.join(""), last };
  };
  const long = await ends({ maxTokens: 24, stopTokens: [] });
  expect(long.last).toBe("length");
  const stop = long.text.slice(8, 10);
  expect(await ends({ maxTokens: 24, stopTokens: [], stop: ["never", stop] })).toEqual({
    text: long.text.slice(0, long.text.indexOf(stop)),
    last: "stop",
  });
  const abort = new AbortController();
  const aborted = generate(base, params, ["sea"], { tokenizer, maxTokens: 1000, signal: abort.signal });
  await aborted.next();
  abort.abort();
  const rest: unknown[] = [];
  for await (const piece of aborted) rest.push(piece);
  expect(rest.length).toBeLessThan(10);
  // A reader that leaves ends the generation, too.
  for await (const _ of generate(base, params, ["sea", "ship"], { tokenizer, maxTokens: 1000 })) break;
});

test("a text that cannot be sampled does not end the others", async () => {
  const generator = new TextGenerator(base, paramsOf(base), { slots: 2, maxLength: 32, vocabSize: 257 });
  const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1 };
  const request = { tokens: [97, 98], maxTokens: 8, seed: 1, stopTokens: new Set<number>(), sampling };
  const count = async (drawn: AsyncGenerator<unknown>) => {
    let tokens = 0;
    for await (const _ of drawn) tokens++;
    return tokens;
  };
  const good = count(generator.submit(request));
  // Logits divided by this are not finite.
  const broken = generator.submit({ ...request, sampling: { ...sampling, repetitionPenalty: 1e-320 } });
  await expect(count(broken)).rejects.toThrow("not finite");
  expect(await good).toBe(8);
  expect(generator.load).toEqual({ active: 0, waiting: 0 });
  await generator.close();
});

test("what makes no sense is refused before anything runs", async () => {
  const params = paramsOf(base);
  const refused = (prompts: readonly (string | readonly number[])[], options: GenerateOptions) =>
    expect(generate(base, params, prompts, options).next()).rejects;
  await refused(["a"], {}).toThrow("prompts that are strings need a tokenizer");
  await refused([[1]], { stop: ["x"] }).toThrow("stop strings need a tokenizer");
  await refused([[300]], {}).toThrow("the vocabulary has the tokens 0 to 287");
  await refused([[]], {}).toThrow("a prompt has no tokens");
  await refused([[1, 2, 3]], { maxLength: 3 }).toThrow("a prompt has 3 tokens, and maxLength is 3");
  await refused([[1]], { topP: 0 }).toThrow("topP is 0: use a number above 0 and up to 1");
  await refused([[1]], { temperature: -1 }).toThrow("temperature is -1");
  await refused([[1]], { repetitionPenalty: 0 }).toThrow("repetitionPenalty is 0");
  await refused([[1]], { repetitionPenalty: 101 }).toThrow("repetitionPenalty is 101");
});

test("text is shown when its characters are complete and it cannot be the beginning of a stop string", () => {
  const show = (text: string, stop: readonly string[]) => {
    const stream = new TextStream(tokenizer, stop);
    const pieces: string[] = [];
    for (const token of tokenizer.encode(text)) {
      if (!stream.isStopped) pieces.push(stream.add(token));
    }
    if (!stream.isStopped) pieces.push(stream.end());
    return pieces;
  };
  expect(show("aé", [])).toEqual(["a", "", "é", ""]);
  expect(show("ab", ["bc"])).toEqual(["a", "", "b"]);
  expect(show("abcd", ["bc"])).toEqual(["a", "", ""]);
  expect(show("abab!", ["abac"])).toEqual(["", "", "", "ab", "ab!", ""]);
});
