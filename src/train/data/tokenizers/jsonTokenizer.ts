/** Tokenisers with any of the parts of a `tokenizer.json`; byte-level BPE has a faster class of its own. */

import { within } from "#train/data/tokenizers/stoppable";
import { need } from "../../../ir/arguments.js";
import { ValueError } from "../../../ir/errors.js";
import { type OptionsOf, schema } from "../../../ir/schema.js";
import { isObject } from "../../files/disk/json.js";
import { findMarks, type Marks, marksOf } from "./addedTokens.js";
import { linearPatterns } from "./byteLevel.js";
import { type Decoder, readDecoder } from "./parts/decoders.js";
import { TokenizerFields } from "./parts/fields.js";
import { type Normalizer, readNormalizer } from "./parts/normalizers.js";
import { type PostProcessor, readPostProcessor } from "./parts/postProcessors.js";
import { type Piece, type PreTokenizer, readPreTokenizer } from "./parts/preTokenizers.js";
import { readModel, type TokenModel } from "./parts/tokenModels.js";
import { checkToken, type Tokenizer } from "./tokenizer.js";

/** A token that is found in the text before the model sees it. */
interface MarkedToken {
  readonly id: number;
  readonly content: string;
  readonly special: boolean;
  readonly normalized: boolean;
  /** Whether it takes the spaces before and after it. */
  readonly lstrip: boolean;
  readonly rstrip: boolean;
  /** Whether it is found only as a whole word. */
  readonly singleWord: boolean;
}

const encodeOptions = schema({
  /** Whether the special tokens of the file's template are added, such as one at the start; false by default. */
  addSpecialTokens: false,
});

const decodeOptions = schema({
  /** Whether special tokens are left out of the text; false by default. */
  skipSpecialTokens: false,
});

/** Maximum number of pieces whose tokens are cached, and the longest of them. */
const maxCached = 100_000;
const longestCached = 64;

/** Time limit of patterns of a file in milliseconds: a base, and an allowance per character. */
const timeLimit = { base: 2000, perCharacter: 0.05 };

/** A tokeniser that is made of the parts of a `tokenizer.json`. */
export class JsonTokenizer implements Tokenizer {
  readonly vocabSize: number;
  readonly endOfText: number | undefined;
  /** The file that the tokeniser was read from. */
  readonly source: string;
  private readonly model: TokenModel;
  private readonly tokens: readonly (string | undefined)[];
  private readonly special: ReadonlySet<number>;
  private readonly normalizer: Normalizer | undefined;
  private readonly preTokenizer: PreTokenizer | undefined;
  private readonly postProcessor: PostProcessor | undefined;
  private readonly decoder: Decoder | undefined;
  private readonly raw: Marks | undefined;
  private readonly normalized: Marks | undefined;
  /** Whether no pattern of the file may backtrack without end. */
  private readonly isLinear: boolean;
  private readonly cache = new Map<string, readonly number[]>();

  /** @param source the text of the file, which was parsed to `json` */
  constructor(json: Readonly<Record<string, unknown>>, source: string, file: string) {
    need("object", json, "the JSON", "JsonTokenizer");
    const root = new TokenizerFields(json, "", file);
    const part = <T>(name: string, read: (fields: TokenizerFields) => T): T | undefined =>
      (json[name] ?? null) === null ? undefined : read(root.object(name));
    this.source = source;
    this.model = readModel(root.object("model"));
    this.normalizer = part("normalizer", readNormalizer);
    this.preTokenizer = part("pre_tokenizer", readPreTokenizer);
    this.postProcessor = part("post_processor", readPostProcessor);
    this.decoder = part("decoder", readDecoder);
    const normal = this.normalizer ?? ((text: string) => text);
    const added = readAdded(root).map((token) =>
      token.normalized ? { ...token, content: normal(token.content) } : token,
    );
    const tokens: (string | undefined)[] = [];
    for (const [token, id] of this.model.vocab) tokens[id] = token;
    for (const { content, id } of added) {
      if (id > tokens.length + added.length + 1000) {
        throw root.wrong("added_tokens", `has the id ${id}, far outside of the vocabulary`);
      }
      tokens[id] = content;
    }
    this.tokens = tokens;
    this.vocabSize = tokens.length;
    this.special = new Set(added.filter(({ special }) => special).map(({ id }) => id));
    this.raw = marksOf(added.filter(({ normalized }) => !normalized));
    this.normalized = marksOf(added.filter(({ normalized }) => normalized));
    this.isLinear = !hasSlowPattern([json.normalizer, json.pre_tokenizer]);
    const ends = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>"];
    this.endOfText = ends.map((name) => this.tokenOf(name)).find((id) => id !== undefined);
  }

  /** The id of a token by its text, such as `</s>`. */
  tokenOf(text: string): number | undefined {
    const id = this.raw?.tokens.get(text)?.id ?? this.normalized?.tokens.get(text)?.id;
    return id ?? this.model.vocab.get(text);
  }

  encode(text: string, options?: OptionsOf<typeof encodeOptions>): Int32Array {
    need("string", text, "the text", "encode");
    const { addSpecialTokens } = encodeOptions.read(options, "encode");
    const valid = text.replace(/\p{Surrogate}/gu, "\ufffd");
    const tokens = this.isLinear ? this.encodeText(valid) : this.encodeInTime(valid);
    return Int32Array.from(addSpecialTokens && this.postProcessor ? this.postProcessor(tokens) : tokens);
  }

  decode(tokens: ArrayLike<number>, options?: OptionsOf<typeof decodeOptions>): string {
    need("numbers", tokens, "the tokens", "decode");
    const { skipSpecialTokens } = decodeOptions.read(options, "decode");
    const texts = Array.from(tokens, (token) => checkToken(token, this.vocabSize))
      .filter((token) => !(skipSpecialTokens && this.special.has(token)))
      .flatMap((token) => this.tokens[token] ?? []);
    return this.decoder ? this.decoder(texts).join("") : texts.join(" ");
  }

  private encodeInTime(text: string): number[] {
    const limit = Math.ceil(timeLimit.base + timeLimit.perCharacter * text.length);
    const done = within(limit, () => this.encodeText(text));
    if (done) return done.result;
    throw new ValueError(
      `[tokenizer] a text of ${text.length} characters was not cut within ${limit} ms: the patterns of the file backtrack excessively, use another tokenizer`,
    );
  }

  private encodeText(text: string): number[] {
    const out: number[] = [];
    let isFirst = true;
    for (const part of findMarks(text, this.raw)) {
      if (typeof part === "number") out.push(part);
      else this.encodeNormalized(this.normalizer ? this.normalizer(part) : part, isFirst, out);
      isFirst = false;
    }
    return out;
  }

  private encodeNormalized(text: string, isFirst: boolean, out: number[]): void {
    let begins = isFirst;
    for (const part of findMarks(text, this.normalized)) {
      if (typeof part === "number") out.push(part);
      else {
        const whole: Piece = { text: part, isFirst: begins };
        for (const piece of this.preTokenizer ? this.preTokenizer(whole) : [whole])
          this.encodePiece(piece.text, out);
      }
      begins = false;
    }
  }

  private encodePiece(piece: string, out: number[]): void {
    if (piece === "") return;
    let known = this.cache.get(piece);
    if (!known) {
      known = this.model.encode(piece);
      if (piece.length <= longestCached) {
        if (this.cache.size >= maxCached) this.cache.clear();
        this.cache.set(piece, known);
      }
    }
    for (const token of known) out.push(token);
  }
}

/** Whether parts of a file have patterns that are not known to run in linear time. */
function hasSlowPattern(parts: unknown): boolean {
  if (Array.isArray(parts)) return parts.some(hasSlowPattern);
  if (!isObject(parts)) return false;
  const { Regex: regex } = parts;
  return (
    (typeof regex === "string" && !linearPatterns.has(regex)) || Object.values(parts).some(hasSlowPattern)
  );
}

function readAdded(root: TokenizerFields): MarkedToken[] {
  const list = root.json.added_tokens === undefined ? [] : root.list("added_tokens");
  return list.map((value, i) => {
    const where = `added_tokens[${i}]`;
    if (!isObject(value)) throw root.wrong(where, "must be an object");
    const fields = new TokenizerFields(value, where, root.file);
    const id = fields.number("id");
    if (!Number.isInteger(id) || id < 0 || id >= 2 ** 22)
      throw fields.wrong("id", "must be an integer from 0");
    return {
      id,
      content: fields.text("content"),
      special: fields.flag("special", false),
      normalized: fields.flag("normalized", false),
      lstrip: fields.flag("lstrip", false),
      rstrip: fields.flag("rstrip", false),
      singleWord: fields.flag("single_word", false),
    };
  });
}
