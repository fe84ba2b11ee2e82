import { describe, expect, test } from "vitest";
import { readNext, readText } from "../../../test/support/logits.js";
import { expectNear } from "../../../test/support/near.js";
import { tinyModel } from "../../../test/support/runs.js";
import { devicePut, Mesh, NamedSharding, np, P, random, type Tensor } from "../../index.js";
import { byteTokenizer } from "../data/tokenizers/tokenizer.js";
import type { ModelConfig } from "../models/config.js";
import { LanguageModel } from "../models/languageModel.js";
import { CachedModel } from "./cachedModel.js";
import { continueText } from "./continueText.js";
import { sampleText } from "./sampleText.js";

const base: ModelConfig = {
  ...tinyModel,
  vocabSize: 288,
  width: 16,
  numLayers: 3,
  numHeads: 4,
  mlpWidth: 32,
};
const window = 12;
const tokenizer = byteTokenizer();

describe.each(["llama", "moe", "mlstm"] as const)("the %s model", (kind) => {
  const model: ModelConfig = { ...base, kind };
  const whole = LanguageModel(model);
  const params = whole.init(random.key(3), np.zeros([1, 2], "int32"));
  const rowOf = (tokens: readonly number[]): Tensor => np.array(Int32Array.from(tokens)).reshape(1, -1);

  test("says token by token what it says of the whole text", async () => {
    const text = tokenizer.encode("Call me Ishm");
    const expected = await whole.apply(params, rowOf([...text])).data();
    const cached = new CachedModel(model, params, { slots: 3, maxLength: 24 });
    const close = (values: ArrayLike<number>, i: number) => {
      const want = expected.slice(i * model.vocabSize, (i + 1) * model.vocabSize);
      expectNear(values, Array.from(want, Number), 1e-5, `position ${i}`);
    };
    // The text in one slot at once, in another token by token, both beside a third text.
    close(await readText(cached, 0, [...text.slice(0, 5)]), 4);
    await cached.read(2, [1, 2, 3]);
    for (const [i, token] of [...text].entries()) {
      const others = i < 7 ? ([[0, text[i + 5] ?? 0]] as const) : [];
      const logits = await readNext(cached, new Map([[1, token], [2, 7], ...others]));
      close(logits[1] ?? [], i);
      if (i < 7) close(logits[0] ?? [], i + 5);
    }
    // A slot that is emptied begins anew.
    cached.forget(1);
    close(await readText(cached, 1, [...text]), text.length - 1);
    await cached.close();
  });

  test("writes the text that recomputing everything would, beyond its window too", async () => {
    const length = 20;
    const options = { prompt: "whale", length, temperature: 0 };
    const sampled = await sampleText({ model, params, tokenizer, window }, options);
    const recomputed = await continueText(
      async (tokens) => {
        const logits = await whole.apply(params, rowOf(tokens)).data();
        return Array.from(logits.slice(-model.vocabSize), Number);
      },
      tokenizer,
      window,
      options,
    );
    expect(sampled).toBe(recomputed);
    expect(tokenizer.encode(sampled).length).toBeGreaterThan(window);
  });
});

test("parameters that lie where they are sampled from are kept", async () => {
  const whole = new NamedSharding(Mesh.create({ data: 1 }), P());
  const made = LanguageModel(base).init(random.key(3), np.zeros([1, 2], "int32"));
  const params = await devicePut(made, whole);
  const sample = () => sampleText({ model: base, params, tokenizer, window }, { prompt: "sea", length: 3 });
  expect(await sample()).toBe(await sample());
});

describe("generating", () => {
  const letters = "abcdefgh";
  /** Says that the letter after the last one comes next. */
  const alphabet = async (tokens: readonly number[]) => {
    const last = tokenizer.decode([tokens.at(-1) ?? 0]);
    const next = letters[(letters.indexOf(last) + 1) % letters.length] ?? "a";
    return Array.from({ length: 300 }, (_, token) => (token === tokenizer.encode(next)[0] ? 9 : 0));
  };

  test("goes on from the last half when the window is full", async () => {
    const asked: number[] = [];
    const text = await continueText(
      (tokens) => {
        asked.push(tokens.length);
        return alphabet(tokens);
      },
      tokenizer,
      4,
      { prompt: "abcdef", length: 6, temperature: 0 },
    );
    expect(text).toBe("abcdefghabcd");
    expect(asked).toEqual([4, 2, 3, 4, 2, 3]);
  });

  test("tells every piece of text once", async () => {
    const pieces: string[] = [];
    const onText = (piece: string) => pieces.push(piece);
    await continueText(alphabet, tokenizer, 8, { prompt: "a", length: 4, temperature: 0, onText });
    expect(pieces.join("")).toBe("bcde");
  });

  test("wants a temperature and a topK that make sense", async () => {
    const options = { prompt: "", length: 1 };
    await expect(continueText(alphabet, tokenizer, 4, { ...options, temperature: -1 })).rejects.toThrow(
      /temperature is -1/,
    );
    await expect(continueText(alphabet, tokenizer, 4, { ...options, seed: 1.5 })).rejects.toThrow(
      "[continueText] seed must be an integer, got 1.5",
    );
    await expect(continueText(alphabet, tokenizer, 4, { ...options, topK: 1.5 })).rejects.toThrow(
      /topK is 1.5/,
    );
  });
});
