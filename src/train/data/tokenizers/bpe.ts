import { canRunAway, within } from "#train/data/tokenizers/stoppable";
import { need } from "../../../ir/arguments.js";
import { describe } from "../../../ir/describe.js";
import { ValueError } from "../../../ir/errors.js";
import { at } from "../../../ir/shape.js";
import { findMarks, type Marks, marksOf } from "./addedTokens.js";
import {
  byteCharacters,
  bytesByCharacter,
  bytesOfToken,
  linearPatterns,
  translatePattern,
} from "./byteLevel.js";
import { type Merge, mergePairs } from "./merges.js";
import { checkToken, type Tokenizer } from "./tokenizer.js";
import { normalizeText } from "./unicode.js";

/** A token that is matched in the text before any other. */
export interface AddedToken {
  readonly id: number;
  readonly content: string;
  /** Whether it is a marker, such as the end of a document, and not part of the text. */
  readonly special: boolean;
  /** Whether it is matched, normalised, in the normalised text; false by default. */
  readonly normalized?: boolean;
}

/** A pre-tokenisation step: a pattern splits pieces of text, `prefixSpace` puts a space before those without one. */
export type Cut = RegExp | "prefixSpace";

/** The parts of a byte-level BPE tokeniser. */
export interface BpeModel {
  /** Tokens by id; each character stands for a byte. */
  readonly vocab: readonly string[];
  /** Pairs of tokens to merge, highest priority first. */
  readonly merges: readonly (readonly [left: number, right: number, joined: number])[];
  readonly addedTokens: readonly AddedToken[];
  /** The steps that split text into pieces, in order; no merge crosses pieces. */
  readonly cuts: readonly Cut[];
  /** The Unicode normalisation form applied first. */
  readonly normalize?: "NFC" | "NFD" | "NFKC" | "NFKD";
  /** Whether a piece that is itself a token is not merged from its bytes. */
  readonly ignoreMerges?: boolean;
}

/** Maximum number of pieces whose tokens are cached. */
const maxCached = 100_000;
const longestRemembered = 64;

const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** Throws unless the parts of a model have the right types; models read from files are checked in full. */
export function checkModel(model: BpeModel, caller = "BpeTokenizer"): void {
  need("object", model, "the model", caller);
  need("strings", model.vocab, "the vocabulary", caller);
  need("list", model.merges, "the merges", caller);
  need("list", model.cuts, "the cuts", caller);
  need("list", model.addedTokens, "the added tokens", caller);
  for (const token of model.addedTokens) {
    need("object", token, "an added token", caller);
    need("string", token.content, "the text of an added token", caller);
    if (!(Number.isInteger(token.id) && token.id >= 0 && token.id < maxTokens)) {
      throw new ValueError(`[${caller}] the added token ${token.content} has the id ${describe(token.id)}`);
    }
  }
  for (const merge of model.merges) need("integers", merge, "a merge", caller);
}

/** Larger vocabularies would not fit in memory. */
const maxTokens = 2 ** 24;

/** A byte-level BPE tokeniser: merges bytes to the words and subwords of its vocabulary. */
export class BpeTokenizer implements Tokenizer {
  readonly model: BpeModel;
  readonly vocabSize: number;
  readonly endOfText: number | undefined;
  private readonly bytes: readonly (Uint8Array | undefined)[];
  private readonly byteTokens: readonly number[];
  private readonly ranks = new Map<number, Merge>();
  private readonly wholeTokens: ReadonlyMap<string, number>;
  /** Added tokens in the order in which they are matched: those of the raw text come first. */
  private readonly rawMarks: Marks | undefined;
  private readonly normalizedMarks: Marks | undefined;
  private readonly remembered = new Map<string, readonly number[]>();

  constructor(model: BpeModel) {
    checkModel(model);
    this.model = model;
    this.vocabSize = model.addedTokens.reduce((n, { id }) => Math.max(n, id + 1), model.vocab.length);
    const byteTokens = Array.from({ length: 256 }, () => -1);
    model.vocab.forEach((token, id) => {
      const byte = bytesByCharacter.get(token);
      if (byte !== undefined) byteTokens[byte] = id;
    });
    this.byteTokens = byteTokens;
    const isNormalized = ({ normalized }: AddedToken) => normalized === true;
    const addedTokens = model.addedTokens.map((token) =>
      isNormalized(token) ? { ...token, content: this.normalize(token.content) } : token,
    );
    const added = new Map(addedTokens.map(({ id, content }) => [id, content]));
    // An added token that is also the character of a byte stays that byte: other characters need it.
    for (const id of byteTokens) added.delete(id);
    this.bytes = Array.from({ length: this.vocabSize }, (_, id) => {
      const text = added.get(id);
      if (text !== undefined) return new TextEncoder().encode(text);
      const bytes = bytesOfToken(model.vocab[id] ?? "");
      return bytes && Uint8Array.from(bytes);
    });
    model.merges.forEach(([left, right, joined], rank) => {
      this.ranks.set(left * this.vocabSize + right, { rank, joined });
    });
    this.wholeTokens = new Map(model.ignoreMerges ? model.vocab.map((token, id) => [token, id]) : []);
    this.rawMarks = marksOf(addedTokens.filter((token) => !isNormalized(token)));
    this.normalizedMarks = marksOf(addedTokens.filter(isNormalized));
    this.endOfText = ["<|endoftext|>", "<|end_of_text|>", "</s>"]
      .map((name) => model.addedTokens.find(({ content }) => content === name)?.id)
      .find((id) => id !== undefined);
  }

  encode(text: string): Int32Array {
    const tokens: number[] = [];
    for (const part of findMarks(text, this.rawMarks)) {
      if (typeof part === "number") tokens.push(part);
      else this.encodeNormalized(this.normalize(part), tokens);
    }
    return Int32Array.from(tokens);
  }

  decode(tokens: ArrayLike<number>): string {
    const parts = Array.from(
      tokens,
      (token) => this.bytes[checkToken(token, this.vocabSize)] ?? new Uint8Array(),
    );
    const bytes = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
    parts.reduce((at, part) => {
      bytes.set(part, at);
      return at + part.length;
    }, 0);
    return decoder.decode(bytes);
  }

  private normalize(text: string): string {
    return this.model.normalize ? normalizeText(text, this.model.normalize) : text;
  }

  private encodeNormalized(text: string, tokens: number[]): void {
    for (const part of findMarks(text, this.normalizedMarks)) {
      if (typeof part === "number") tokens.push(part);
      else this.encodePlain(part, tokens);
    }
  }

  private encodePlain(text: string, tokens: number[]): void {
    for (const piece of cut(text, this.model.cuts)) {
      let known = this.remembered.get(piece);
      if (!known) {
        known = this.encodePiece(piece);
        if (piece.length <= longestRemembered) {
          if (this.remembered.size >= maxCached) this.remembered.clear();
          this.remembered.set(piece, known);
        }
      }
      for (const token of known) tokens.push(token);
    }
  }

  private encodePiece(piece: string): readonly number[] {
    const bytes = new TextEncoder().encode(piece);
    if (this.wholeTokens.size > 0) {
      const whole = this.wholeTokens.get(characters(bytes));
      if (whole !== undefined) return [whole];
    }
    // Bytes that the vocabulary does not have are dropped, as the reference does without an unknown token.
    const symbols = Array.from(bytes, (byte) => at(this.byteTokens, byte)).filter((token) => token >= 0);
    return mergePairs(symbols, (left, right) => this.ranks.get(left * this.vocabSize + right));
  }
}

function characters(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += at(byteCharacters, byte);
  return text;
}

/** Patterns known to run in linear time. */
const trusted = new Set([...linearPatterns].map((pattern) => translatePattern(pattern).source));

/** Time limit of other patterns in milliseconds: a base, and an allowance per character. */
const timeLimit = { base: 1500, perCharacter: 0.02 };

/** Splits text by patterns, each within the pieces of the one before; the text between matches is a piece, too. */
export function cut(text: string, cuts: readonly Cut[]): string[] {
  const isTrusted = cuts.every((step) => step === "prefixSpace" || trusted.has(step.source));
  if (isTrusted) return cutPieces(text, cuts);
  const runaway = cuts.find((step) => step !== "prefixSpace" && canRunAway(step));
  if (runaway !== undefined) {
    throw new ValueError(
      `[tokenizer] the pattern ${String(runaway).slice(0, 80)} repeats a choice, which can backtrack without end, and a page cannot stop it: use another tokenizer, or Node`,
    );
  }
  const limit = Math.ceil(timeLimit.base + timeLimit.perCharacter * text.length);
  const done = within(limit, () => cutPieces(text, cuts));
  if (done) return done.result;
  const patterns = cuts.filter((step) => step !== "prefixSpace").map((step) => String(step).slice(0, 80));
  throw new ValueError(
    `[tokenizer] the patterns ${patterns.slice(0, 3).join(", ")}${patterns.length > 3 ? ", …" : ""} did not cut a text of ${text.length} characters within ${limit} ms: they backtrack excessively, use another tokenizer`,
  );
}

function cutPieces(text: string, cuts: readonly Cut[]): string[] {
  return cuts.reduce<string[]>(
    (pieces, step) => {
      if (step !== "prefixSpace") return pieces.flatMap((piece) => split(piece, step));
      return pieces.map((piece) => (piece.startsWith(" ") ? piece : ` ${piece}`));
    },
    [text],
  );
}

function split(piece: string, pattern: RegExp): string[] {
  const parts: string[] = [];
  let start = 0;
  for (const match of piece.matchAll(pattern)) {
    if (match.index > start) parts.push(piece.slice(start, match.index));
    if (match[0] !== "") parts.push(match[0]);
    start = match.index + match[0].length;
  }
  if (start < piece.length) parts.push(piece.slice(start));
  return parts;
}
