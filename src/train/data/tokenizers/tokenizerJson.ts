/** The `tokenizer.json` format of Hugging Face's tokenizers. */

import { need, needIfGiven } from "../../../ir/arguments.js";
import { ValueError } from "../../../ir/errors.js";
import { FileError } from "../../files/disk/fileError.js";
import { isObject, type JsonObject, parseJsonFile } from "../../files/disk/json.js";
import { type AddedToken, type BpeModel, BpeTokenizer, type Cut, checkModel } from "./bpe.js";
import { byteCharacters, gpt2Pattern, translatePattern } from "./byteLevel.js";
import { JsonTokenizer } from "./jsonTokenizer.js";
import { TokenizerFields } from "./parts/fields.js";
import { byteTokenizer, type Tokenizer } from "./tokenizer.js";

const maxVocabSize = 2 ** 22;

/** Real tokenizers split in a few steps by short patterns; these limits bound the time of hostile files. */
const maxSteps = 64;

/**
 * Reads a tokeniser from the text of a `tokenizer.json`. Settings under which tokens would differ from the reference's are errors.
 * Settings for whole examples are ignored: `encode` gives the tokens of the text alone, without `truncation` and
 * `padding`, and without the special tokens of `post_processor` unless `addSpecialTokens` is set.
 *
 * @param file the name used in error messages
 *
 * @example
 * ```ts
 * const tokenizer = train.trainBpe("low lower lowest", { vocabSize: 260 });
 * train.parseTokenizer(train.formatTokenizer(tokenizer)).vocabSize; // 260
 * ```
 */
export function parseTokenizer(text: string, file = "(memory)"): BpeTokenizer | JsonTokenizer {
  need("string", text, "text", "parseTokenizer");
  needIfGiven("string", file, "file", "parseTokenizer");
  const value = parseJsonFile(text, "tokenizer", file);
  try {
    return new BpeTokenizer(new Reader(file).read(value));
  } catch (error) {
    if (!(error instanceof UnsupportedSetting) || !isObject(value)) throw error;
    return new JsonTokenizer(value, text, file);
  }
}

/** A setting that is not that of plain byte-level BPE. */
class UnsupportedSetting extends FileError {}

class Reader {
  private readonly file: string;

  constructor(file: string) {
    this.file = file;
  }

  read(value: unknown): BpeModel {
    const root = this.fields(value, "the file");
    const model = this.fields(root.model, "model");
    if (model.type !== "BPE") throw this.unsupported("model.type", model.type, 'only "BPE" is read');
    for (const name of ["dropout", "continuing_subword_prefix", "end_of_word_suffix"]) {
      const setting = model[name] ?? null;
      if (setting !== null && setting !== "")
        throw this.unsupported(`model.${name}`, setting, "only null is read");
    }
    if (model.byte_fallback === true)
      throw this.unsupported("model.byte_fallback", true, "only false is read");
    this.readDecoder(root.decoder);
    this.readPostProcessor(root.post_processor);
    const addedTokens = this.list(root.added_tokens ?? [], "added_tokens").map((token, i) =>
      this.readAdded(token, `added_tokens[${i}]`),
    );
    const vocab = this.readVocab(model.vocab, addedTokens);
    const signs = new Set(vocab);
    // If every byte has a token, no text is unknown.
    if ((model.unk_token ?? null) !== null && !byteCharacters.every((sign) => signs.has(sign)))
      throw this.unsupported(
        "model.unk_token",
        model.unk_token,
        "it is read only with a token for every byte",
      );
    const merges = this.readMerges(model.merges, vocab);
    const cuts = this.readPreTokenizer(root.pre_tokenizer);
    const normalize = this.readNormalizer(root.normalizer);
    return {
      vocab,
      merges,
      addedTokens,
      cuts,
      ignoreMerges: model.ignore_merges === true,
      ...(normalize === undefined ? {} : { normalize }),
    };
  }

  private readVocab(value: unknown, added: readonly AddedToken[]): string[] {
    const entries = Object.entries(this.fields(value, "model.vocab"));
    if (entries.length > maxVocabSize)
      throw this.wrong("model.vocab", `must have at most ${maxVocabSize} tokens`);
    const vocab: (string | undefined)[] = Array.from({ length: entries.length });
    for (const [token, id] of entries) {
      const index = this.count(id, `the id of token ${JSON.stringify(token.slice(0, 40))}`);
      // A vocabulary may have holes, but not so many that they cost more than the tokens.
      if (index >= 2 * entries.length + added.length + 1000) {
        throw this.wrong("model.vocab", `has the id ${index} with only ${entries.length} tokens`);
      }
      if (vocab[index] !== undefined) throw this.wrong("model.vocab", `has the id ${index} twice`);
      vocab[index] = token;
    }
    const limit = vocab.length;
    for (const { id } of added) {
      if (id >= limit + added.length + 1000)
        throw this.wrong("added_tokens", `has the id ${id}, far outside of the vocabulary`);
    }
    return Array.from(vocab, (token) => token ?? "");
  }

  private readMerges(value: unknown, vocab: readonly string[]): [number, number, number][] {
    const ids = new Map(vocab.map((token, id) => [token, id]));
    return this.list(value, "model.merges").map((merge, i) => {
      const parts: readonly unknown[] =
        typeof merge === "string" ? merge.split(" ") : this.list(merge, `model.merges[${i}]`);
      const [left, right] = parts;
      if (parts.length !== 2 || typeof left !== "string" || typeof right !== "string") {
        throw this.wrong(`model.merges[${i}]`, "must be a pair of tokens");
      }
      const [a, b, joined] = [ids.get(left), ids.get(right), ids.get(left + right)];
      if (a === undefined || b === undefined || joined === undefined || left === "" || right === "") {
        throw this.wrong(
          `model.merges[${i}]`,
          `joins ${JSON.stringify([left, right])}, of which the vocabulary lacks a part`,
        );
      }
      return [a, b, joined];
    });
  }

  private readAdded(value: unknown, where: string): AddedToken {
    const fields = this.fields(value, where);
    const { content } = fields;
    if (typeof content !== "string") throw this.wrong(`${where}.content`, "must be a string");
    for (const name of ["lstrip", "rstrip", "single_word"]) {
      if (fields[name] === true) throw this.unsupported(`${where}.${name}`, true, "only false is read");
    }
    const id = this.count(fields.id, `${where}.id`);
    return { id, content, special: fields.special === true, normalized: fields.normalized === true };
  }

  private readNormalizer(value: unknown): BpeModel["normalize"] {
    if (value === null || value === undefined) return undefined;
    const { type } = this.fields(value, "normalizer");
    if (type === "NFC" || type === "NFD" || type === "NFKC" || type === "NFKD") return type;
    throw this.unsupported("normalizer.type", type, "only NFC, NFD, NFKC and NFKD are read");
  }

  private readPreTokenizer(value: unknown): Cut[] {
    const fields = this.fields(value, "pre_tokenizer");
    const steps =
      fields.type === "Sequence" ? this.list(fields.pretokenizers, "pre_tokenizer.pretokenizers") : [value];
    if (steps.length > maxSteps) {
      throw this.wrong("pre_tokenizer.pretokenizers", `has ${steps.length} steps, more than ${maxSteps}`);
    }
    const cuts: Cut[] = [];
    let last: unknown;
    steps.forEach((step, i) => {
      const where = `pre_tokenizer step ${i}`;
      const one = this.fields(step, where);
      // It writes text as bytes, which later steps would split.
      if (last === "ByteLevel")
        throw this.unsupported(`${where}.type`, one.type, "ByteLevel must be the last");
      last = one.type;
      if (one.type === "ByteLevel") {
        if (one.add_prefix_space === true) cuts.push("prefixSpace");
        if (one.use_regex !== false) cuts.push(translatePattern(gpt2Pattern));
      } else if (one.type === "Split") cuts.push(this.readSplit(one, where));
      else if (one.type === "Digits") cuts.push(one.individual_digits === true ? /\p{N}/gu : /\p{N}+/gu);
      else throw this.unsupported(`${where}.type`, one.type, "only ByteLevel, Split and Digits are read");
    });
    if (last !== "ByteLevel") throw this.unsupported("pre_tokenizer", last, "it must end with ByteLevel");
    return cuts;
  }

  private readSplit(fields: JsonObject, where: string): RegExp {
    if (fields.behavior !== "Isolated" || fields.invert === true) {
      throw this.unsupported(`${where}.behavior`, fields.behavior, 'only "Isolated", not inverted, is read');
    }
    return new TokenizerFields(fields, where, this.file).pattern("pattern");
  }

  private readDecoder(value: unknown): void {
    const fields = this.fields(value, "decoder");
    const steps = fields.type === "Sequence" ? this.list(fields.decoders, "decoder.decoders") : [value];
    for (const step of steps) {
      const { type } = this.fields(step, "decoder");
      if (type !== "ByteLevel") throw this.unsupported("decoder.type", type, 'only "ByteLevel" is read');
    }
  }

  /** One that adds no tokens. */
  private readPostProcessor(value: unknown): void {
    const type = isObject(value) ? value.type : undefined;
    if (isObject(value) && type !== "ByteLevel")
      throw this.unsupported("post_processor.type", type, "only ByteLevel is read");
  }

  private fields(value: unknown, where: string): JsonObject {
    if (isObject(value)) return value;
    if (value === null || value === undefined) throw this.unsupported(where, value, "it must be an object");
    throw this.wrong(where, "must be an object");
  }

  private list(value: unknown, where: string): readonly unknown[] {
    if (Array.isArray(value)) return value;
    throw this.wrong(where, "must be an array");
  }

  private count(value: unknown, where: string): number {
    if (typeof value === "number" && Number.isInteger(value) && value >= 0 && value < maxVocabSize)
      return value;
    throw this.wrong(where, `must be an integer from 0 to ${maxVocabSize - 1}`);
  }

  private wrong(where: string, rule: string): FileError {
    return new FileError("tokenizer", this.file, 0, `${where} ${rule}`);
  }

  private unsupported(where: string, got: unknown, rule: string): FileError {
    const what = `${where} is ${JSON.stringify(got)?.slice(0, 60)}: ${rule}`;
    return new UnsupportedSetting("tokenizer", this.file, 0, what);
  }
}

/** The byte tokeniser as a BPE without merges. */
const byteModel: BpeModel = {
  vocab: byteCharacters,
  merges: [],
  addedTokens: [{ id: 256, content: "<|endoftext|>", special: true }],
  cuts: [],
};

function modelOf(tokenizer: Tokenizer): BpeModel {
  if (tokenizer instanceof BpeTokenizer) return tokenizer.model;
  if (tokenizer === byteTokenizer()) return byteModel;
  throw new ValueError(
    "[formatTokenizer] the tokenizer is not one of byteTokenizer, trainBpe or readTokenizer: only these have a tokenizer.json",
  );
}

/**
 * Formats a tokeniser as a `tokenizer.json` that Hugging Face's tokenizers can read. That of {@link byteTokenizer} has
 * the same tokens, but there the text `<|endoftext|>` is the token 256.
 *
 * @example
 * ```ts
 * const tokenizer = train.trainBpe("low lower lowest", { vocabSize: 260 });
 * JSON.parse(train.formatTokenizer(tokenizer)).model.type; // "BPE"
 * ```
 */
export function formatTokenizer(tokenizer: Tokenizer): string {
  need("object", tokenizer, "the tokenizer", "formatTokenizer");
  if (tokenizer instanceof JsonTokenizer) return tokenizer.source;
  const model = modelOf(tokenizer);
  checkModel(model, "formatTokenizer");
  const cuts = [...model.cuts];
  const takeLast = (isWanted: (step: Cut | undefined) => boolean) =>
    isWanted(cuts.at(-1)) && cuts.pop() !== undefined;
  const usual = translatePattern(gpt2Pattern).source;
  const useRegex = takeLast((step) => step instanceof RegExp && step.source === usual);
  const addPrefixSpace = takeLast((step) => step === "prefixSpace");
  const byteLevel = (add_prefix_space: boolean, use_regex: boolean) => ({
    type: "ByteLevel",
    add_prefix_space,
    trim_offsets: true,
    use_regex,
  });
  const steps = cuts.map((step) =>
    step === "prefixSpace"
      ? byteLevel(true, false)
      : { type: "Split", pattern: { Regex: step.source }, behavior: "Isolated", invert: false },
  );
  const last = byteLevel(addPrefixSpace, useRegex);
  const token = (id: number) => model.vocab[id] ?? "";
  const value = {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: model.addedTokens.map(({ id, content, special, normalized = false }) => ({
      id,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized,
      special,
    })),
    normalizer: model.normalize === undefined ? null : { type: model.normalize },
    pre_tokenizer: steps.length === 0 ? last : { type: "Sequence", pretokenizers: [...steps, last] },
    post_processor: null,
    decoder: byteLevel(true, true),
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: model.ignoreMerges ?? false,
      vocab: Object.fromEntries(model.vocab.flatMap((text, id) => (text === "" ? [] : [[text, id]]))),
      merges: model.merges.map(([left, right]) => [token(left), token(right)]),
    },
  };
  return `${JSON.stringify(value, null, 2)}\n`;
}
