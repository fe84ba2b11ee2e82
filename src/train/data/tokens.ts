import { sha256 } from "#platform/hashing";
import { need } from "../../ir/arguments.js";
import { ValueError } from "../../ir/errors.js";

/** A sequence of tokens with random access. */
export interface TokenSource {
  readonly numTokens: number;
  readonly vocabSize: number;
  /** Identifies the data, so that a position is not used with other data. */
  readonly fingerprint: string;
  /** `length` tokens from `start` on. */
  read(start: number, length: number): Promise<Int32Array>;
}

/** @internal Throws for a range that a source of so many tokens does not have. */
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
 * @example
 * ```ts
 * train.tokensInMemory(Int32Array.of(1, 2, 3), 10).numTokens; // 3
 * ```
 */
export function tokensInMemory(tokens: Int32Array, vocabSize: number): TokenSource {
  need("numbers", tokens, "tokens", "tokensInMemory");
  need("number", vocabSize, "vocabSize", "tokensInMemory");
  const bytes = new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength);
  return {
    numTokens: tokens.length,
    vocabSize,
    fingerprint: sha256(bytes),
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
  return {
    numTokens: end - start,
    vocabSize: source.vocabSize,
    fingerprint: `${source.fingerprint}[${start},${end}]`,
    read: async (from, length) => {
      checkRange(from, length, end - start);
      return source.read(start + from, length);
    },
  };
}
