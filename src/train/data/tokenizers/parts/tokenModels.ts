/** The models of a `tokenizer.json`: from a piece of text to tokens. */

import { isObject } from "../../../files/disk/json.js";
import { type Merge, mergePairs } from "../merges.js";
import type { Makers, TokenizerFields } from "./fields.js";

/** A vocabulary with a rule that finds its tokens in pieces of text. */
export interface TokenModel {
  readonly vocab: ReadonlyMap<string, number>;
  /** The tokens of a piece that is not empty. */
  encode(piece: string): readonly number[];
}

const maxVocabSize = 2 ** 22;

/** A vocabulary from tokens to ids. */
function readVocab(fields: TokenizerFields): Map<string, number> {
  const entries = Object.entries(fields.object("vocab").json);
  if (entries.length > maxVocabSize) throw fields.wrong("vocab", `has more than ${maxVocabSize} tokens`);
  const vocab = new Map<string, number>();
  const ids = new Set<number>();
  for (const [token, id] of entries) {
    if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id >= maxVocabSize) {
      throw fields.wrong(
        "vocab",
        `gives ${JSON.stringify(token.slice(0, 40))} no integer from 0 to ${maxVocabSize - 1}`,
      );
    }
    if (ids.has(id)) throw fields.wrong("vocab", `has the id ${id} twice`);
    ids.add(id);
    vocab.set(token, id);
  }
  return vocab;
}

/** The tokens of a character's bytes (`<0xE2>`), if the vocabulary has all of them. */
function byteTokens(vocab: ReadonlyMap<string, number>, text: string): number[] | undefined {
  const names = Array.from(
    new TextEncoder().encode(text),
    (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`,
  );
  const ids = names.flatMap((name) => vocab.get(name) ?? []);
  return ids.length === names.length ? ids : undefined;
}

/** Reads an optional string that may be null. */
function optionalText(fields: TokenizerFields, name: string): string | undefined {
  return (fields.json[name] ?? null) === null ? undefined : fields.text(name);
}

function readMerges(
  fields: TokenizerFields,
  vocab: ReadonlyMap<string, number>,
  prefix: string,
): Map<number, Map<number, Merge>> {
  const merges = new Map<number, Map<number, Merge>>();
  fields.list("merges").forEach((merge, rank) => {
    const parts: readonly unknown[] =
      typeof merge === "string" ? merge.split(" ") : Array.isArray(merge) ? merge : [];
    const [left, right] = parts;
    if (parts.length !== 2 || typeof left !== "string" || typeof right !== "string") {
      throw fields.wrong(`merges[${rank}]`, "must be a pair of tokens");
    }
    const tail = prefix !== "" && right.startsWith(prefix) ? right.slice(prefix.length) : right;
    const [a, b, joined] = [vocab.get(left), vocab.get(right), vocab.get(left + tail)];
    if (a === undefined || b === undefined || joined === undefined) {
      throw fields.wrong(
        `merges[${rank}]`,
        `joins ${JSON.stringify([left, right])}, of which the vocabulary lacks a part`,
      );
    }
    const after = merges.get(a) ?? new Map<number, Merge>();
    merges.set(a, after.set(b, { rank, joined }));
  });
  return merges;
}

function bpe(fields: TokenizerFields): TokenModel {
  if ((fields.json.dropout ?? 0) !== 0) throw fields.wrong("dropout", "must be null: tokens would be random");
  const vocab = readVocab(fields);
  const prefix = optionalText(fields, "continuing_subword_prefix") ?? "";
  const suffix = optionalText(fields, "end_of_word_suffix") ?? "";
  const merges = readMerges(fields, vocab, prefix);
  const unknown = vocab.get(optionalText(fields, "unk_token") ?? "");
  const [fuses, falls] = [fields.flag("fuse_unk", false), fields.flag("byte_fallback", false)];
  const ignoresMerges = fields.flag("ignore_merges", false);
  const pairOf = (left: number, right: number) => merges.get(left)?.get(right);
  return {
    vocab,
    encode: (piece) => {
      const whole = ignoresMerges ? vocab.get(piece) : undefined;
      if (whole !== undefined) return [whole];
      const characters = Array.from(piece);
      const symbols: number[] = [];
      let wasUnknown = false;
      characters.forEach((character, i) => {
        const before = i > 0 ? prefix : "";
        const known = vocab.get(before + character + (i === characters.length - 1 ? suffix : ""));
        const bytes = known === undefined && falls ? byteTokens(vocab, character) : undefined;
        if (known !== undefined) symbols.push(known);
        else if (bytes) symbols.push(...bytes);
        else if (unknown !== undefined && !(fuses && wasUnknown)) symbols.push(unknown);
        wasUnknown = known === undefined && !bytes;
      });
      return mergePairs(symbols, pairOf);
    },
  };
}

/** Finds the likeliest sequence of tokens, as SentencePiece's Unigram models do. */
function unigram(fields: TokenizerFields): TokenModel {
  const entries = fields.list("vocab");
  if (entries.length > maxVocabSize) throw fields.wrong("vocab", `has more than ${maxVocabSize} tokens`);
  const vocab = new Map<string, number>();
  const scores: number[] = [];
  // The longest token that starts with a character bounds the search.
  const longest = new Map<string, number>();
  entries.forEach((entry, id) => {
    const [token, score]: readonly unknown[] = Array.isArray(entry) ? entry : [];
    if (typeof token !== "string" || typeof score !== "number") {
      throw fields.wrong(`vocab[${id}]`, "must be a token and its score");
    }
    vocab.set(token, id);
    scores.push(score);
    const first = String.fromCodePoint(token.codePointAt(0) ?? 0);
    longest.set(first, Math.max(longest.get(first) ?? 0, token.length));
  });
  const falls = fields.flag("byte_fallback", false);
  const unknown = (fields.json.unk_id ?? null) === null ? undefined : fields.number("unk_id");
  const unknownScore = scores.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY) - 10;
  const search = (piece: string) => bestPath(piece, vocab, scores, longest, unknownScore);
  return {
    vocab,
    encode: (piece) =>
      search(piece).flatMap((text) => {
        const id = vocab.get(text);
        if (id !== undefined) return [id];
        const bytes = falls ? byteTokens(vocab, text) : undefined;
        if (bytes) return bytes;
        if (unknown === undefined)
          throw fields.wrong("unk_id", `is null, but ${JSON.stringify(text)} is unknown`);
        return [unknown];
      }),
  };
}

/** The parts of a piece with the highest sum of scores; unknown neighbours are one part. */
function bestPath(
  piece: string,
  vocab: ReadonlyMap<string, number>,
  scores: readonly number[],
  longest: ReadonlyMap<string, number>,
  unknownScore: number,
): string[] {
  const best = new Float64Array(piece.length + 1);
  const from = new Int32Array(piece.length + 1).fill(-1);
  const isUnknown = new Uint8Array(piece.length + 1);
  const reach = (start: number, end: number, score: number, unknown: 0 | 1) => {
    const total = (best[start] ?? 0) + score;
    if (from[end] !== -1 && total <= (best[end] ?? 0)) return;
    best[end] = total;
    from[end] = start;
    isUnknown[end] = unknown;
  };
  for (let start = 0; start < piece.length; ) {
    const character = String.fromCodePoint(piece.codePointAt(start) ?? 0);
    const limit = Math.min(longest.get(character) ?? 0, piece.length - start);
    let hasOwn = false;
    for (let length = character.length; length <= limit; length++) {
      const id = vocab.get(piece.slice(start, start + length));
      if (id === undefined) continue;
      reach(start, start + length, scores[id] ?? 0, 0);
      hasOwn ||= length === character.length;
    }
    if (!hasOwn) reach(start, start + character.length, unknownScore, 1);
    start += character.length;
  }
  const parts: string[] = [];
  let wasUnknown = false;
  for (let end = piece.length; end > 0; ) {
    const start = from[end] ?? 0;
    const text = piece.slice(start, end);
    const unknown = isUnknown[end] === 1;
    if (unknown && wasUnknown) parts[parts.length - 1] = text + (parts.at(-1) ?? "");
    else parts.push(text);
    wasUnknown = unknown;
    end = start;
  }
  return parts.reverse();
}

function wordPiece(fields: TokenizerFields): TokenModel {
  const vocab = readVocab(fields);
  const prefix = fields.text("continuing_subword_prefix", "##");
  const limit = fields.number("max_input_chars_per_word", 100);
  const unknown = vocab.get(fields.text("unk_token", "[UNK]"));
  if (unknown === undefined) throw fields.wrong("unk_token", "is not in the vocabulary");
  return {
    vocab,
    encode: (piece) => {
      const characters = Array.from(piece);
      if (characters.length > limit) return [unknown];
      const tokens: number[] = [];
      for (let start = 0; start < characters.length; ) {
        let end = characters.length;
        let found: number | undefined;
        for (; end > start && found === undefined; end--) {
          found = vocab.get((start > 0 ? prefix : "") + characters.slice(start, end).join(""));
        }
        if (found === undefined) return [unknown];
        tokens.push(found);
        start = end + 1;
      }
      return tokens;
    },
  };
}

function wordLevel(fields: TokenizerFields): TokenModel {
  const vocab = readVocab(fields);
  const unknown = vocab.get(fields.text("unk_token", ""));
  return {
    vocab,
    encode: (piece) => {
      const id = vocab.get(piece) ?? unknown;
      return id === undefined ? [] : [id];
    },
  };
}

const makers: Makers<TokenModel> = {
  BPE: bpe,
  Unigram: unigram,
  WordPiece: wordPiece,
  WordLevel: wordLevel,
};

/** The model of a tokeniser; old files do not name its type. */
export function readModel(fields: TokenizerFields): TokenModel {
  const { json } = fields;
  const guess = Array.isArray(json.merges) ? "BPE" : Array.isArray(json.vocab) ? "Unigram" : "WordPiece";
  const type = json.type === undefined && isObject(json) ? guess : fields.type;
  return fields.make(makers, type);
}
