import { sha256 } from "#platform/hashing";
import { need, needIfGiven } from "../../../ir/arguments.js";
import { ValueError } from "../../../ir/errors.js";

/** A sequence of tokens with random access. */
export interface TokenSource {
  readonly numTokens: number;
  readonly vocabSize: number;
  /** Identifies the data, so that a position is not used with other data. */
  readonly fingerprint: string;
  /** `length` tokens from `start` on. */
  read(start: number, length: number): Promise<Int32Array>;
  /** The {@link tokenMarks} of the same tokens, added up; a source without it has one document that is all trained on. */
  readMarks?(start: number, length: number): Promise<Uint8Array>;
}

/** What is known about a token besides its number. */
export const tokenMarks = {
  /** It is the first of a document. */
  start: 1,
  /** It is read, but the loss does not count its prediction, such as what a user says in a chat. */
  unscored: 2,
} as const;

/** @internal Throws for a range that a source of `numTokens` tokens does not have. */
export function checkRange(start: number, length: number, numTokens: number): void {
  need("integer", start, "start", "read");
  need("integer", length, "length", "read");
  if (start >= 0 && length >= 0 && start + length <= numTokens) return;
  throw new ValueError(
    `[read] tokens ${start} to ${start + length} are out of range: there are ${numTokens}`,
  );
}

/**
 * Tokens in memory.
 *
 * @param marks the {@link tokenMarks} of every token
 *
 * @example
 * ```ts
 * train.tokensInMemory(Int32Array.of(1, 2, 3), 10).numTokens; // 3
 * ```
 */
export function tokensInMemory(tokens: Int32Array, vocabSize: number, marks?: Uint8Array): TokenSource {
  need("numbers", tokens, "tokens", "tokensInMemory");
  need("number", vocabSize, "vocabSize", "tokensInMemory");
  needIfGiven("bytes", marks, "marks", "tokensInMemory");
  if (marks && marks.length !== tokens.length) {
    throw new ValueError(`[tokensInMemory] there are ${tokens.length} tokens and ${marks.length} marks`);
  }
  const bytes = new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength);
  const hash = sha256(bytes);
  return {
    numTokens: tokens.length,
    vocabSize,
    fingerprint: marks ? `${hash} ${sha256(marks)}` : hash,
    ...(marks && {
      readMarks: async (start: number, length: number) => {
        checkRange(start, length, marks.length);
        return marks.slice(start, start + length);
      },
    }),
    read: async (start, length) => {
      checkRange(start, length, tokens.length);
      return tokens.slice(start, start + length);
    },
  };
}

/**
 * A range of a source, such as the first nine tenths to train on.
 *
 * @example
 * ```ts
 * train.tokenRange(train.tokensInMemory(Int32Array.of(1, 2, 3, 4), 10), 1, 3).numTokens; // 2
 * ```
 */
export function tokenRange(source: TokenSource, start: number, end: number): TokenSource {
  need("object", source, "source", "tokenRange");
  need("number", start, "start", "tokenRange");
  need("number", end, "end", "tokenRange");
  checkRange(start, end - start, source.numTokens);
  const { readMarks } = source;
  return {
    numTokens: end - start,
    vocabSize: source.vocabSize,
    fingerprint: `${source.fingerprint}[${start},${end}]`,
    read: async (from, length) => {
      checkRange(from, length, end - start);
      return source.read(start + from, length);
    },
    ...(readMarks && {
      readMarks: async (from: number, length: number) => {
        checkRange(from, length, end - start);
        return readMarks.call(source, start + from, length);
      },
    }),
  };
}

/** @internal A source whose documents end with a token, such as that between texts. */
export function endedBy(source: TokenSource, documentEnd: number): TokenSource {
  return {
    numTokens: source.numTokens,
    vocabSize: source.vocabSize,
    fingerprint: source.fingerprint,
    read: (start, length) => source.read(start, length),
    readMarks: async (start, length) => {
      const before = start === 0 ? 0 : 1;
      const tokens = await source.read(start - before, Math.max(0, length - 1 + before));
      const isAfterEnd = (i: number) => (i < 0 ? true : tokens[i] === documentEnd);
      return Uint8Array.from({ length }, (_, i) => (isAfterEnd(i - 1 + before) ? tokenMarks.start : 0));
    },
  };
}
