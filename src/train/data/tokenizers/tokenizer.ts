import { need } from "../../../ir/arguments.js";
import { describe } from "../../../ir/describe.js";
import { ValueError } from "../../../ir/errors.js";

/** Converts text to tokens and back. */
export interface Tokenizer {
  /** One more than the largest token. */
  readonly vocabSize: number;
  /** The token that separates documents, if there is one. */
  readonly endOfText: number | undefined;
  /** The tokens of a text. */
  encode(text: string): Int32Array;
  /** The text of tokens; invalid UTF-8 becomes U+FFFD. */
  decode(tokens: ArrayLike<number>): string;
}

const bytes: Tokenizer = {
  vocabSize: 257,
  endOfText: 256,
  encode: (text) => {
    need("string", text, "the text", "encode");
    return Int32Array.from(new TextEncoder().encode(text));
  },
  decode: (tokens) => {
    need("numbers", tokens, "the tokens", "decode");
    const own = Array.from(tokens, (token) => checkToken(token, 257)).filter((token) => token < 256);
    // A byte order mark is kept: it was encoded, too.
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(own));
  },
};

/**
 * A tokeniser with one token for each of the 256 byte values, and token 256 between documents.
 *
 * @example
 * ```ts
 * Array.from(train.byteTokenizer().encode("Hi")); // [72, 105]
 * ```
 */
export function byteTokenizer(): Tokenizer {
  return bytes;
}

/** Returns a token of the vocabulary; throws for any other number. */
export function checkToken(token: number, vocabSize: number): number {
  if (Number.isInteger(token) && token >= 0 && token < vocabSize) return token;
  throw new ValueError(
    `[decode] ${describe(token)} is not a token: the vocabulary has the tokens 0 to ${vocabSize - 1}`,
  );
}
