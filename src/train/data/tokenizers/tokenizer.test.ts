import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { FileError } from "../../files/disk/fileError.js";
import { trainBpe } from "./bpeTrainer.js";
import { translatePattern } from "./byteLevel.js";
import { byteTokenizer } from "./tokenizer.js";
import { readTokenizer } from "./tokenizerFile.js";
import { formatTokenizer, parseTokenizer } from "./tokenizerJson.js";

const corpus =
  "the cat sat on the mat; the cats sat. aaaa aaaa aaab naïve naïve café\n\n  the end, don't they're 123 123 1234\n".repeat(
    2,
  );

/** What Hugging Face's tokenizers 0.23.2 learn from the corpus. */
const merges = [
  ..."a a|a t|h e|t he|Ġ the|1 2|Ġ c|Ġ aa|Ġ 12|Ġ12 3|a Ã|n aÃ|o n|s at|v e|¯ ve|Ġ naÃ|Ġ sat|Ġc at|Ġaa aa".split(
    "|",
  ),
  ..."ĠnaÃ ¯ve|' r|' t|a b|a f|d on|e n|m at|Ã ©|Ċ Ċ|Ġ on|Ġ don|Ġ en".split("|"),
];
const sample = "the cats aren't <|endoftext|>naïve 😀  \n 12345";
const sampleTokens = [
  260, 275, 83, 221, 65, 82, 283, 279, 221, 0, 268, 272, 221, 173, 254, 247, 223, 221, 221, 199, 266, 20, 21,
];

describe("byteTokenizer", () => {
  test("gives back any text", () => {
    const tokenizer = byteTokenizer();
    expect([...tokenizer.encode("aé")]).toEqual([97, 195, 169]);
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
      }),
    );
    expect(tokenizer.decode([104, 256, 105])).toBe("hi");
    expect(tokenizer.decode(tokenizer.encode("\ufeffhi"))).toBe("\ufeffhi");
    expect(() => tokenizer.decode([257])).toThrow(
      "257 is not a token: the vocabulary has the tokens 0 to 256",
    );
  });

  test("is formatted as a tokenizer.json with the same tokens", () => {
    const [own, read] = [byteTokenizer(), parseTokenizer(formatTokenizer(byteTokenizer()))];
    expect([read.vocabSize, read.endOfText]).toEqual([own.vocabSize, own.endOfText]);
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.uint8Array(), (text, bytes) => {
        expect(read.encode(text)).toEqual(own.encode(text));
        expect(read.decode(bytes)).toBe(own.decode(bytes));
      }),
    );
    expect(read.decode([0xf0, 0x9f, 0x98])).toBe("\ufffd");
    const mine = { ...own };
    expect(() => formatTokenizer(mine)).toThrow("only these have a tokenizer.json");
  });
});

describe("trainBpe", () => {
  const tokenizer = trainBpe(corpus, { vocabSize: 290 });

  test("learns the merges of the reference implementation, in its order", () => {
    const { vocab } = tokenizer.model;
    expect(tokenizer.model.merges.map(([a, b]) => `${vocab[a]} ${vocab[b]}`)).toEqual(merges);
    expect([...tokenizer.encode(sample)]).toEqual(sampleTokens);
    expect([tokenizer.vocabSize, tokenizer.endOfText]).toEqual([290, 0]);
  });

  test("stops when no pair is frequent enough", () => {
    expect(trainBpe("ab", { vocabSize: 1000 }).vocabSize).toBe(257);
    expect(() => trainBpe("", { vocabSize: 100 })).toThrow("vocabSize must be an integer from 257");
  });

  test("learns from parts as from the whole when words are not cut", () => {
    const lines = corpus.split(/(?<=\n)(?=\S)/);
    expect(trainBpe(lines, { vocabSize: 290 }).model.vocab).toEqual(tokenizer.model.vocab);
  });

  test("gives back any text", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 200 }), (text) => {
        expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
      }),
    );
  });

  test("joins long words as short ones", () => {
    const long = `${"thecatsatonthematnaïve".repeat(3)}aaaaaaa`;
    const ranks = new Map(
      tokenizer.model.merges.map(([a, b, joined], rank) => [`${a} ${b}`, [rank, joined]]),
    );
    const slow = [...trainBpe("", { vocabSize: 257 }).encode(long)];
    for (;;) {
      const pairs = slow
        .slice(1)
        .map((b, i) => ranks.get(`${slow[i]} ${b}`)?.[0] ?? Number.POSITIVE_INFINITY);
      const best = Math.min(...pairs);
      if (best === Number.POSITIVE_INFINITY) break;
      const [, joined = 0] = ranks.get(`${slow[pairs.indexOf(best)]} ${slow[pairs.indexOf(best) + 1]}`) ?? [];
      slow.splice(pairs.indexOf(best), 2, joined);
    }
    expect([...tokenizer.encode(long)]).toEqual(slow);
  });

  test("does not take quadratic time on text without spaces", () => {
    expect(tokenizer.encode("a".repeat(100_000)).length).toBeLessThan(100_000);
  });
});

describe("tokenizer.json", () => {
  const tokenizer = trainBpe(corpus, { vocabSize: 290 });
  const text = formatTokenizer(tokenizer);
  const value = JSON.parse(text);

  test("holds all there is to a tokeniser", () => {
    const again = parseTokenizer(text);
    expect(formatTokenizer(again)).toBe(text);
    expect(again.encode(sample)).toEqual(tokenizer.encode(sample));
  });

  test("may have merges as texts, sequences of steps, and merges that are ignored", () => {
    const split = {
      type: "Split",
      pattern: { Regex: "(?i:'s|'t)|\\p{N}{1,2}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\s+|[^\\s]" },
      behavior: "Isolated",
      invert: false,
    };
    const byteLevel = { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: false };
    const other = parseTokenizer(
      JSON.stringify({
        ...value,
        normalizer: { type: "NFC" },
        pre_tokenizer: { type: "Sequence", pretokenizers: [split, byteLevel] },
        model: { ...value.model, merges, ignore_merges: true },
      }),
    );
    const ids = other.encode("don'T 123");
    expect(other.decode(ids)).toBe(" don 'T  12 3");
    expect(formatTokenizer(parseTokenizer(formatTokenizer(other)))).toBe(formatTokenizer(other));
  });

  // As Hugging Face's tokenizers 0.23.2 cut all characters.
  test("has the punctuation of Unicode 8", () => {
    const vocab = { "?": 0, a: 1, b: 2, "\u166d": 3, "\u2e18": 4, "\u2e43": 5 };
    const read = parseTokenizer(
      JSON.stringify({
        pre_tokenizer: { type: "Punctuation", behavior: "Isolated" },
        model: { type: "WordLevel", vocab, unk_token: "?" },
      }),
    );
    const cuts = ["a\u166db", "a\u2e18b", "a\u2e43b"].map((word) => Array.from(read.encode(word)));
    expect(cuts).toEqual([[1, 3, 2], [1, 4, 2], [0]]);
  });

  const added = (id: number, content: string, normalized: boolean) => ({ id, content, normalized });
  const byteLevel = { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true };
  const [joinsA] = value.model.merges;

  // The tokens are those of Hugging Face's tokenizers 0.23.2.
  test.each([
    ["a space before other white space", { pre_tokenizer: byteLevel }, "\nthe", [221, 199, 260]],
    ["one space before a text", { pre_tokenizer: byteLevel }, " the", [261]],
    [
      "added tokens of the raw and of the normalised text",
      { normalizer: { type: "NFD" }, added_tokens: [added(290, "café", true), added(291, "né", false)] },
      "café cafe\u0301 né ne\u0301",
      [290, 221, 290, 221, 291, 221, 78, 69, 137, 224],
    ],
    [
      "added tokens of the raw text before longer ones of the normalised text",
      { added_tokens: [added(290, "the cat", true), added(291, "cat", false)] },
      "the cat",
      [260, 221, 291],
    ],
    [
      "an added token that is the sign of a byte",
      { added_tokens: [added(122, "½", false)] },
      "\ufffd½",
      [172, 124, 122, 122],
    ],
    ["merges in the order of the file", {}, "aat", [257, 84]],
    [
      "an unknown token that never occurs",
      { model: { ...value.model, unk_token: "<|endoftext|>" } },
      "½ca",
      [127, 122, 67, 65],
    ],
    [
      "the last of equal merges",
      { model: { ...value.model, merges: [...value.model.merges, joinsA] } },
      "aat",
      [65, 258],
    ],
  ])("gives the tokens of the reference for %s", (_name, change, input, expected) => {
    const changed = parseTokenizer(JSON.stringify({ ...value, ...change }));
    expect([...changed.encode(input)]).toEqual(expected);
    expect([...parseTokenizer(formatTokenizer(changed)).encode(input)]).toEqual(expected);
  });

  test("decodes an added token to its text, and one that is the sign of a byte to that byte", () => {
    const added_tokens = [added(122, "½", false), added(290, "né", false)];
    const changed = parseTokenizer(JSON.stringify({ ...value, added_tokens }));
    expect(changed.decode([290, 172, 124, 122])).toBe("né\ufffd");
  });

  test.each([
    ["another model", { model: { ...value.model, type: "Unigram" } }, "model.vocab must be an array"],
    ["dropout", { model: { ...value.model, dropout: 0.1 } }, "model.dropout must be null"],
    ["a merge of nothing", { model: { ...value.model, merges: ["x"] } }, "model.merges[0] must be a pair"],
    ["a merge of unknown tokens", { model: { ...value.model, merges: [["a", "zz"]] } }, 'joins ["a","zz"]'],
    [
      "a huge number",
      { model: { ...value.model, vocab: { a: 4e6 } } },
      "has the id 4000000 with only 1 tokens",
    ],
    ["no number", { model: { ...value.model, vocab: { a: "x" } } }, 'the id of token "a" must be an integer'],
    ["a number twice", { model: { ...value.model, vocab: { a: 0, b: 0 } } }, "has the id 0 twice"],
    ["another pre-tokeniser", { pre_tokenizer: { type: "Words" } }, 'pre_tokenizer.type is "Words"'],
    ["another decoder", { decoder: { type: "Words" } }, 'decoder.type is "Words"'],
    ["another normaliser", { normalizer: { type: "Upper" } }, 'normalizer.type is "Upper"'],
    [
      "a bad pattern",
      { pre_tokenizer: { type: "Split", pattern: { Regex: "(" }, behavior: "Isolated" } },
      "pattern is not understood",
    ],
  ])("with %s is refused", (_name, change, message) => {
    const read = () => parseTokenizer(JSON.stringify({ ...value, ...change }), "t.json");
    expect(read).toThrow(FileError);
    expect(read).toThrow(message);
  });

  const splitBy = (pattern: string, count = 1) =>
    JSON.stringify({
      ...value,
      pre_tokenizer: {
        type: "Sequence",
        pretokenizers: [
          ...Array.from({ length: count }, () => ({
            type: "Split",
            pattern: { Regex: pattern },
            behavior: "Isolated",
            invert: false,
          })),
          { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
        ],
      },
    });

  test("with a pattern that backtracks without end is stopped, and others go on", () => {
    const hostile = parseTokenizer(splitBy("(a+)+b"));
    expect(() => hostile.encode("a".repeat(64))).toThrow(
      /did not cut a text of 64 characters within 150\d ms/,
    );
    expect(hostile.decode(hostile.encode("aab the"))).toBe("aab the");
    expect(tokenizer.decode(tokenizer.encode(sample))).toBe(sample.normalize());
  });

  test("with thousands of splits or a pattern of a book's length is refused", () => {
    expect(() => parseTokenizer(splitBy("x", 5000))).toThrow("has 5001 steps, more than 64");
    expect(() => parseTokenizer(splitBy("x".repeat(20_000)))).toThrow(
      "has 20000 characters, more than 10000",
    );
  });

  test("that cannot be read is an error that names it", async () => {
    const folder = await mkdtemp(join(tmpdir(), "shardwise-tokenizer-"));
    const path = join(folder, "tokenizer.json");
    await expect(readTokenizer(path)).rejects.toThrow(`${path}, byte 0: the file cannot be read`);
    await writeFile(path, "{x");
    await expect(readTokenizer(path)).rejects.toThrow(`${path}, byte 1: not JSON`);
    await writeFile(path, text);
    expect((await readTokenizer(path)).vocabSize).toBe(290);
    await rm(folder, { recursive: true });
  });
});

describe("translatePattern", () => {
  test.each([
    ["(?i:'s|[a-c0-9])\\s\\-\\'", "(?:'[sSſ]|[aAbBcC0-9])\\p{White_Space}-'"],
    ["(?i:[^J-L])k", "(?:[^jJkK\u212alL])k"],
    ["\\d[\\w\\-].", "\\p{Nd}[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\-][^\\n]"],
  ])("writes %s so that JavaScript understands the same", (pattern, source) => {
    expect(translatePattern(pattern).source).toBe(source);
  });

  // As the reference cuts them, although JavaScript's own classes know ASCII only.
  test.each([
    ["\\w+", "½né x", ["½né", "x"]],
    ["[\\w]+", "½né x", ["né", "x"]],
    ["\\d+", "a٣4²", ["٣4"]],
    [".+", "a\u2028b\rc\nd", ["a\u2028b\rc", "d"]],
    ["(?i:'s)", "'S'ſ's", ["'S", "'ſ", "'s"]],
  ])("finds with %s what the reference finds", (pattern, text, found) => {
    expect(text.match(translatePattern(pattern))).toEqual(found);
  });

  test.each([
    ["^a", "^ is"],
    ["a$", "$ is"],
    ["\\bx", "\\b is"],
    ["(?m:a.b)", "(?m is"],
    ["(?<n>a)", "(?< is"],
    ["[a-z&&b]", "a class in a class is"],
    ["a{2}?", "{ is"],
    ["\\p{Punct}", "\\p{Punct} is"],
    ["(?i:é)", "é in (?i:…) is"],
    ["(?i:[A-z])", "A-z in (?i:…) is"],
    ["(?i:\\p{Lu})", "\\p{Lu} is"],
    ["[^\\W]", "\\W is"],
  ])("refuses %s, which would mean something else", (pattern, message) => {
    expect(() => translatePattern(pattern)).toThrow(`${message} not supported`);
  });
});
