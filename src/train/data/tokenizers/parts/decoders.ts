/** The decoders of a `tokenizer.json`: from tokens to a text. */

import { bytesOfToken } from "../byteLevel.js";
import type { Makers, TokenizerFields } from "./fields.js";

/** Changes the texts of tokens, which are joined in the end. */
export type Decoder = (tokens: readonly string[]) => readonly string[];

const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** Joins the bytes that the characters of tokens stand for; a token with other characters is its own UTF-8. */
const byteLevel: Decoder = (tokens) => [
  utf8.decode(
    Uint8Array.from(tokens.flatMap((token) => bytesOfToken(token) ?? [...new TextEncoder().encode(token)])),
  ),
];

/** Joins tokens such as `<0xE2>` to characters; bytes that are no valid UTF-8 become U+FFFD, each one. */
const byteFallback: Decoder = (tokens) => {
  const out: string[] = [];
  let bytes: number[] = [];
  const flush = () => {
    if (bytes.length === 0) return;
    try {
      out.push(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes)));
    } catch {
      out.push(...bytes.map(() => "\ufffd"));
    }
    bytes = [];
  };
  for (const token of tokens) {
    const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(token)?.[1];
    if (byte !== undefined) bytes.push(Number.parseInt(byte, 16));
    else {
      flush();
      out.push(token);
    }
  }
  flush();
  return out;
};

function strip(fields: TokenizerFields): Decoder {
  const content = fields.text("content");
  const [start, stop] = [fields.number("start", 0), fields.number("stop", 0)];
  return (tokens) =>
    tokens.map((token) => {
      let [first, last] = [0, token.length];
      for (let i = 0; i < start && token.startsWith(content, first); i++) first += content.length;
      for (let i = 0; i < stop && token.endsWith(content) && last - content.length >= first; i++)
        last -= content.length;
      return token.slice(first, last);
    });
}

function metaspace(fields: TokenizerFields): Decoder {
  const sign = fields.text("replacement", "▁");
  const isPrefixed =
    fields.json.prepend_scheme === undefined
      ? fields.flag("add_prefix_space", true)
      : fields.json.prepend_scheme !== "never";
  return (tokens) =>
    tokens.map((token, i) => {
      const own = i === 0 && isPrefixed && token.startsWith(sign) ? token.slice(sign.length) : token;
      return own.replaceAll(sign, " ");
    });
}

/** Removes the spaces that pieces of words leave before punctuation. */
const cleanUp = (text: string) =>
  [" .", " ?", " !", " ,"]
    .reduce((now, mark) => now.replaceAll(mark, mark.slice(1)), text)
    .replaceAll(" ' ", "'")
    .replaceAll(" n't", "n't")
    .replaceAll(" 'm", "'m")
    .replaceAll(" do not", " don't")
    .replaceAll(" 's", "'s")
    .replaceAll(" 've", "'ve")
    .replaceAll(" 're", "'re");

function wordPiece(fields: TokenizerFields): Decoder {
  const prefix = fields.text("prefix", "##");
  const cleans = fields.flag("cleanup", true);
  return (tokens) =>
    tokens.map((token, i) => {
      const spaced = i === 0 ? token : token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`;
      return cleans ? cleanUp(spaced) : spaced;
    });
}

const makers: Makers<Decoder> = {
  ByteLevel: () => byteLevel,
  ByteFallback: () => byteFallback,
  Fuse: () => (tokens) => [tokens.join("")],
  Strip: strip,
  Metaspace: metaspace,
  WordPiece: wordPiece,
  BPEDecoder: (fields) => {
    const suffix = fields.text("suffix", "</w>");
    return (tokens) => tokens.map((token, i) => token.replaceAll(suffix, i === tokens.length - 1 ? "" : " "));
  },
  Replace: (fields) => {
    const [pattern, content] = [fields.pattern("pattern"), fields.text("content")];
    return (tokens) => tokens.map((token) => token.replace(pattern, () => content));
  },
  Sequence: (fields) => {
    const steps = fields.parts("decoders").map(readDecoder);
    return (tokens) => steps.reduce((now, step) => step(now), tokens);
  },
};

/** The function of a decoder. */
export function readDecoder(fields: TokenizerFields): Decoder {
  return fields.make(makers);
}
