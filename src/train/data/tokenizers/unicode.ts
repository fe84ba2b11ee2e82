/**
 * Characters as Hugging Face's library knows them. Its tables of Unicode are older than those of JavaScript engines: the
 * classes below leave out what was assigned since, and have the few signs whose category has changed.
 */

const laterPunctuation = String.raw`\u061d\u09fd\u0a76\u0c77\u0c84\u1b4e-\u1b4f\u1b7d-\u1b7f\u2e43-\u2e4f\u2e52-\u2e5d\u{10d6e}\u{10ead}\u{10ed0}\u{10f55}-\u{10f59}\u{10f86}-\u{10f89}\u{113d4}-\u{113d5}\u{113d7}-\u{113d8}\u{1144b}-\u{1144f}\u{1145a}-\u{1145b}\u{1145d}\u{11660}-\u{1166c}\u{116b9}\u{1183b}\u{11944}-\u{11946}\u{119e2}\u{11a3f}-\u{11a46}\u{11a9a}-\u{11a9c}\u{11a9e}-\u{11aa2}\u{11b00}-\u{11b09}\u{11be1}\u{11c41}-\u{11c45}\u{11c70}-\u{11c71}\u{11ef7}-\u{11ef8}\u{11f43}-\u{11f4f}\u{11fff}\u{12ff1}-\u{12ff2}\u{16d6d}-\u{16d6f}\u{16e97}-\u{16e9a}\u{16fe2}\u{1e5ff}\u{1e95e}-\u{1e95f}`;

const laterNonspacing = String.raw`\u07fd\u0897-\u08e1\u09fe\u0afa-\u0aff\u0b55\u0c04-\u0c3c\u0d00\u0d3b\u0d3c\u0d81\u0eba\u0ece\u180f-\u1886\u1abf-\u1aeb\u1df6-\u1dfb\ua82c\ua8c5\ua8ff\ua9bd\u{10d24}-\u{10f85}\u{11070}-\u{11074}\u{110c2}\u{111c9}\u{111cf}\u{1123e}-\u{11241}\u{1133b}\u{113bb}-\u{1145e}\u{1182f}-\u{1612f}\u{16f4f}\u{16fe4}\u{1cf00}-\u{1cf46}\u{1e000}-\u{1e6f5}\u{1e944}-\u{1e94a}`;

const laterMarks = String.raw`\u07fd\u0897-\u08d3\u09fe\u0afa-\u0aff\u0b55\u0c04-\u0c3c\u0cf3-\u0d00\u0d3b\u0d3c\u0d81\u0eba\u0ece\u1715\u180f\u1abf-\u1aeb\u1cf7\u1df6-\u1dfa\ua82c\ua8ff\u{10d24}-\u{10f85}\u{11070}-\u{11074}\u{110c2}\u{11145}\u{11146}\u{111c9}\u{111ce}\u{111cf}\u{11241}\u{1133b}\u{113b8}-\u{113e2}\u{1145e}\u{1182c}-\u{11b67}\u{11d31}-\u{1612f}\u{16f4f}\u{16f7f}-\u{16f87}\u{16fe4}-\u{16ff1}\u{1cf00}-\u{1cf46}\u{1e08f}-\u{1e6f5}`;

/** What has got a decomposition, a composition or a combining class. */
const laterNormalized = String.raw`\u07fd\u0897-\u08d3\u09fe\u0c3c\u0d3b\u0d3c\u0eba\u1715\u1abf-\u1aeb\u1df6-\u1dfa\u32ff\ua7f1-\ua7f4\ua82c\uab69\u{105c9}-\u{107ba}\u{10d24}-\u{10efb}\u{10efd}-\u{10f85}\u{11070}\u{1133b}\u{11380}-\u{11391}\u{113b8}-\u{113d0}\u{1145e}\u{11839}\u{1183a}\u{11930}-\u{11943}\u{119e0}\u{11a34}\u{11a47}\u{11a99}\u{11d42}\u{11d44}\u{11d45}\u{11d97}\u{11f41}\u{11f42}\u{1611e}-\u{1612f}\u{16d63}-\u{16d6a}\u{16ff0}\u{16ff1}\u{1ccd6}-\u{1ccf9}\u{1e030}-\u{1e6f5}\u{1f16c}\u{1fbf0}-\u{1fbf9}`;

/** A punctuation sign of ASCII or of Unicode 8. */
export const punctuation = new RegExp(
  String.raw`[!-/:-@[-\x60{-~\u166d\u{111c9}]|(?![${laterPunctuation}])\p{P}`,
  "gu",
);

/** A nonspacing mark of Unicode 8. */
export const nonspacingMark = new RegExp(String.raw`[\u1734\u{1171e}]|(?![${laterNonspacing}])\p{Mn}`, "gu");

/** A combining mark of the tables for normalisation, which are newer. */
export const combiningMark = new RegExp(String.raw`[\u1cf2\u1cf3]|(?![${laterMarks}])\p{M}`, "gu");

/** What BERT removes: U+FFFD, and control, format and private characters of Unicode 8. */
export const invisible = /\ufffd|(?![\t\n\r\u0890-\u08e2\u{110cd}-\u{1343f}])[\p{Cc}\p{Cf}\p{Co}]/gu;

const knownRuns = new RegExp(`[^${laterNormalized}]+`, "gu");

/** Normalises a text; a character that the library does not know stays and separates its neighbours. */
export const normalizeText = (text: string, form: "NFC" | "NFD" | "NFKC" | "NFKD"): string =>
  text.replace(knownRuns, (run) => run.normalize(form));
