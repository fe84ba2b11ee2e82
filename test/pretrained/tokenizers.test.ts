import { readdirSync, readFileSync } from "node:fs";
import { JsonTokenizer, parseTokenizer } from "shardwise/train";
import { describe, expect, test } from "vitest";

const folder = process.env.TOKENIZERS ?? new URL("./fixtures/tokenizers", import.meta.url).pathname;
const kinds = readdirSync(folder).flatMap((file) => file.match(/^(.*)\.tokenizer\.json$/)?.[1] ?? []);
const read = (kind: string) => readFileSync(`${folder}/${kind}.tokenizer.json`, "utf8");

/** What Hugging Face's tokenizers made of a text; `tokenizer_samples.py` writes these files. */
interface Sample {
  readonly text: string;
  readonly ids: readonly number[];
  readonly special: readonly number[];
  readonly decoded: string;
  readonly noise: readonly number[];
  readonly noiseDecoded: string;
}

describe.each(kinds)("a tokenizer.json of the kind %s", (kind) => {
  const tokenizer = parseTokenizer(read(kind), kind);
  const samples: readonly Sample[] = JSON.parse(readFileSync(`${folder}/${kind}.samples.json`, "utf8"));

  test("gives the tokens and texts of the reference", () => {
    expect(samples.length).toBeGreaterThan(10);
    for (const sample of samples) {
      expect([...tokenizer.encode(sample.text)], JSON.stringify(sample.text)).toEqual(sample.ids);
      expect(tokenizer.decode(sample.noise)).toBe(sample.noiseDecoded);
      if (!(tokenizer instanceof JsonTokenizer)) continue;
      expect([...tokenizer.encode(sample.text, { addSpecialTokens: true })]).toEqual(sample.special);
      expect(tokenizer.decode(sample.ids, { skipSpecialTokens: true })).toBe(sample.decoded);
    }
  });

  test("takes any string, also one that is not valid Unicode", () => {
    expect([...tokenizer.encode("a\ud800b")]).toEqual([...tokenizer.encode("a\ufffdb")]);
    expect(tokenizer.encode("").length).toBe(0);
  });
});

describe("a tokenizer.json", () => {
  const base = JSON.parse(read("bert"));
  const parse = (change: object) => () => parseTokenizer(JSON.stringify({ ...base, ...change }), "t.json");

  test.each([
    ["a model", { model: { type: "Dreams" } }, 'model.type is "Dreams", which is not supported'],
    ["a normalizer", { normalizer: { type: "Shout" } }, 'normalizer.type is "Shout", which is not supported'],
    ["a pre-tokenizer", { pre_tokenizer: { type: "X" } }, 'pre_tokenizer.type is "X"'],
    ["a decoder", { decoder: { type: "X" } }, 'decoder.type is "X"'],
    ["a post-processor", { post_processor: { type: "X" } }, 'post_processor.type is "X"'],
    [
      "an id twice",
      { model: { ...base.model, vocab: { "[UNK]": 0, b: 0 } } },
      "model.vocab has the id 0 twice",
    ],
    [
      "an unknown token outside of the vocabulary",
      { model: { ...base.model, unk_token: "[none]" } },
      "model.unk_token is not in the vocabulary",
    ],
    ["a far added token", { added_tokens: [{ id: 10_000, content: "x" }] }, "far outside of the vocabulary"],
    [
      "a table that is cut off",
      { normalizer: { type: "Precompiled", precompiled_charsmap: btoa("\xff\xff\x00\x00abcd") } },
      "says that its table has 65535 bytes",
    ],
  ])("with %s that it cannot have is refused", (_what, change, message) => {
    expect(parse(change)).toThrow(message);
  });

  test("with a pattern that backtracks without end is stopped", () => {
    const split = { type: "Split", pattern: { Regex: "(a+)+b" }, behavior: "Isolated", invert: false };
    const hostile = parse({ normalizer: null, pre_tokenizer: split })();
    expect(() => hostile.encode("a".repeat(64))).toThrow("was not cut within");
  });
});
