/** The normalizers of a `tokenizer.json`: functions of a text. */

import { byteCharacters } from "../byteLevel.js";
import { combiningMark, invisible, nonspacingMark, normalizeText } from "../unicode.js";
import type { Makers, TokenizerFields } from "./fields.js";
import { precompiled } from "./precompiled.js";

/** Changes a text before it is cut into pieces. */
export type Normalizer = (text: string) => string;

/** Lower case by character: the reference ignores the final sigma. */
const lowercase: Normalizer = (text) => Array.from(text, (c) => c.toLowerCase()).join("");

const isChinese =
  /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/gu;

function bert(fields: TokenizerFields): Normalizer {
  const lower = fields.flag("lowercase", true);
  const accents = fields.json.strip_accents === null ? lower : fields.flag("strip_accents", lower);
  const steps: Normalizer[] = [
    ...(fields.flag("clean_text", true)
      ? [(text: string) => text.replace(invisible, "").replace(/\p{White_Space}/gu, " ")]
      : []),
    ...(fields.flag("handle_chinese_chars", true)
      ? [(text: string) => text.replace(isChinese, (c) => ` ${c} `)]
      : []),
    ...(accents ? [(text: string) => normalizeText(text, "NFD").replace(nonspacingMark, "")] : []),
    ...(lower ? [lowercase] : []),
  ];
  return inTurn(steps);
}

const inTurn =
  (steps: readonly Normalizer[]): Normalizer =>
  (text) =>
    steps.reduce((now, step) => step(now), text);

function strip(fields: TokenizerFields): Normalizer {
  const [left, right] = [fields.flag("strip_left", true), fields.flag("strip_right", true)];
  return (text) => {
    const start = left ? text.replace(/^\p{White_Space}+/u, "") : text;
    return right ? start.replace(/\p{White_Space}+$/u, "") : start;
  };
}

const makers: Makers<Normalizer> = {
  NFC: () => (text) => normalizeText(text, "NFC"),
  NFD: () => (text) => normalizeText(text, "NFD"),
  NFKC: () => (text) => normalizeText(text, "NFKC"),
  NFKD: () => (text) => normalizeText(text, "NFKD"),
  Lowercase: () => lowercase,
  StripAccents: () => (text) => text.replace(combiningMark, ""),
  Strip: strip,
  BertNormalizer: bert,
  Precompiled: precompiled,
  Prepend: (fields) => {
    const start = fields.text("prepend");
    return (text) => (text === "" ? text : start + text);
  },
  Replace: (fields) => {
    const [pattern, content] = [fields.pattern("pattern"), fields.text("content")];
    return (text) => text.replace(pattern, () => content);
  },
  ByteLevel: () => (text) =>
    Array.from(new TextEncoder().encode(text), (byte) => byteCharacters[byte]).join(""),
  Sequence: (fields) => inTurn(fields.parts("normalizers").map(readNormalizer)),
};

/** The function of a normalizer. */
export function readNormalizer(fields: TokenizerFields): Normalizer {
  return fields.make(makers);
}
