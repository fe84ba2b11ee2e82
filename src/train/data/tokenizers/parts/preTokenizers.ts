/** The pre-tokenizers of a `tokenizer.json`: they cut a text into the pieces that a model sees. */
import { escapePattern } from "../addedTokens.js";
import { byteCharacters, gpt2Pattern, translatePattern } from "../byteLevel.js";
import { punctuation } from "../unicode.js";
import type { Makers, TokenizerFields } from "./fields.js";

/** A piece of the text; `isFirst` where it begins with the text's first character. */
export interface Piece {
  readonly text: string;
  readonly isFirst: boolean;
}

/** Cuts a piece into several, or changes it. */
export type PreTokenizer = (piece: Piece) => readonly Piece[];

type Behavior = "Isolated" | "Removed" | "MergedWithPrevious" | "MergedWithNext" | "Contiguous";

const behaviors: readonly string[] = [
  "Isolated",
  "Removed",
  "MergedWithPrevious",
  "MergedWithNext",
  "Contiguous",
];

/** Text between matches, and the matches. */
function* partsOf(text: string, pattern: RegExp): Generator<{ part: string; isMatch: boolean }> {
  let start = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > start) yield { part: text.slice(start, match.index), isMatch: false };
    if (match[0] !== "") yield { part: match[0], isMatch: true };
    start = match.index + match[0].length;
  }
  if (start < text.length) yield { part: text.slice(start), isMatch: false };
}

/** Cuts at the matches of a pattern, which are pieces, are dropped, or join a neighbour. */
function splitBy(pattern: RegExp, behavior: Behavior, invert = false): PreTokenizer {
  return ({ text, isFirst }) => {
    const parts = [...partsOf(text, pattern)].map(({ part, isMatch }) => ({
      part,
      isMatch: isMatch !== invert,
    }));
    const joined: { part: string; isMatch: boolean }[] = [];
    for (const one of parts) {
      const last = joined.at(-1);
      if (behavior === "Removed" && one.isMatch) continue;
      const joins =
        last !== undefined &&
        ((behavior === "Contiguous" && last.isMatch === one.isMatch) ||
          (behavior === "MergedWithPrevious" && one.isMatch && !last.isMatch) ||
          (behavior === "MergedWithNext" && last.isMatch && !one.isMatch));
      if (joins) last.part += one.part;
      else joined.push({ ...one });
      // A match that joined a neighbour takes no further one.
      const now = joined.at(-1);
      if (joins && now && behavior === "MergedWithPrevious") now.isMatch = true;
      if (joins && now && behavior === "MergedWithNext") now.isMatch = false;
    }
    let seen = 0;
    return joined.map(({ part }) => {
      const begins = isFirst && seen === 0 && text.startsWith(part);
      seen++;
      return { text: part, isFirst: begins };
    });
  };
}

// Rust's `\w`, which has the joiners that the other patterns' does not.
const words =
  /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}\p{White_Space}]+/gu;
const spaces = /\p{White_Space}+/gu;
const space = /\p{White_Space}/gu;

const inTurn =
  (steps: readonly PreTokenizer[]): PreTokenizer =>
  (piece) =>
    steps.reduce<readonly Piece[]>((pieces, step) => pieces.flatMap((one) => [...step(one)]), [piece]);

function byteLevel(fields: TokenizerFields): PreTokenizer {
  const prefix = fields.flag("add_prefix_space", true);
  const words = fields.flag("use_regex", true) ? translatePattern(gpt2Pattern) : undefined;
  const cut = words ? splitBy(words, "Isolated") : (piece: Piece) => [piece];
  return ({ text, isFirst }) => {
    const start = prefix && !text.startsWith(" ") ? ` ${text}` : text;
    return cut({ text: start, isFirst }).map((piece) => ({
      ...piece,
      text: Array.from(new TextEncoder().encode(piece.text), (byte) => byteCharacters[byte]).join(""),
    }));
  };
}

/** SentencePiece's way: a visible sign for spaces, with pieces that begin with it. */
function metaspace(fields: TokenizerFields): PreTokenizer {
  const sign = fields.text("replacement", "▁");
  const scheme =
    fields.json.prepend_scheme === undefined
      ? fields.flag("add_prefix_space", true)
        ? "always"
        : "never"
      : fields.text("prepend_scheme");
  const splits = fields.flag("split", true);
  const before = splitBy(new RegExp(sign.replace(/[\^$\\.*+?()[\]{}|/]/g, "\\$&"), "gu"), "MergedWithNext");
  return ({ text, isFirst }) => {
    const marked = text.replaceAll(" ", sign);
    const isPrefixed = scheme === "always" || (scheme === "first" && isFirst);
    const start = isPrefixed && !marked.startsWith(sign) ? sign + marked : marked;
    return splits ? before({ text: start, isFirst }) : [{ text: start, isFirst }];
  };
}

const makers: Makers<PreTokenizer> = {
  ByteLevel: byteLevel,
  Metaspace: metaspace,
  Split: (fields) => {
    const behavior = fields.text("behavior");
    if (!behaviors.includes(behavior))
      throw fields.wrong("behavior", `must be one of ${behaviors.join(", ")}`);
    return splitBy(fields.pattern("pattern"), behavior as Behavior, fields.flag("invert", false));
  },
  Digits: (fields) => splitBy(fields.flag("individual_digits", false) ? /\p{N}/gu : /\p{N}+/gu, "Isolated"),
  Whitespace: () => splitBy(words, "Removed", true),
  WhitespaceSplit: () => splitBy(spaces, "Removed"),
  BertPreTokenizer: () => inTurn([splitBy(space, "Removed"), splitBy(punctuation, "Isolated")]),
  Punctuation: (fields) => splitBy(punctuation, fields.text("behavior", "Isolated") as Behavior),
  CharDelimiterSplit: (fields) => {
    const sign = escapePattern(fields.text("delimiter"));
    return splitBy(new RegExp(sign, "gu"), "Removed");
  },
  Sequence: (fields) => inTurn(fields.parts("pretokenizers").map(readPreTokenizer)),
};

/** The function of a pre-tokenizer. */
export function readPreTokenizer(fields: TokenizerFields): PreTokenizer {
  return fields.make(makers);
}
