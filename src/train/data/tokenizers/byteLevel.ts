/** How byte-level tokenisers write bytes as characters and split text into words. */
import { ValueError } from "../../../ir/errors.js";

/** The pattern by which GPT-2 splits text: contractions, words, numbers, punctuation, whitespace. */
export const gpt2Pattern =
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/** How Llama 3 and Qwen 2 split text. */
const wordsAndNumbers = (numbers: string) =>
  `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${numbers}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;

/** Patterns of widespread tokenisers that run in linear time, so that they need no time limit. */
export const linearPatterns: ReadonlySet<string> = new Set([
  gpt2Pattern,
  wordsAndNumbers("\\p{N}{1,3}"),
  wordsAndNumbers("\\p{N}"),
  "\\p{N}",
  "\\p{N}+",
  " {2,}",
]);

/** For every byte the character that stands for it: printable ones for themselves, others from U+0100 on. */
export const byteCharacters: readonly string[] = (() => {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    return String.fromCharCode(printable ? byte : next++);
  });
})();

/** The byte that a character stands for. */
export const bytesByCharacter: ReadonlyMap<string, number> = new Map(
  byteCharacters.map((character, byte) => [character, byte]),
);

/** The bytes of a token of a vocabulary, or undefined if one of its characters stands for no byte. */
export function bytesOfToken(token: string): number[] | undefined {
  const bytes: number[] = [];
  for (const character of token) {
    const byte = bytesByCharacter.get(character);
    if (byte === undefined) return undefined;
    bytes.push(byte);
  }
  return bytes;
}

/** Character classes in JavaScript's syntax, where `\d` and `\w` match only ASCII. */
const unicodeClasses: ReadonlyMap<string, string> = new Map([
  ["s", "\\p{White_Space}"],
  ["S", "\\P{White_Space}"],
  ["d", "\\p{Nd}"],
  ["D", "\\P{Nd}"],
  ["w", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"],
]);

/** The reference counts these as word characters as well, but only outside of brackets. */
const latinFractions = "\\xb2\\xb3\\xb9\\xbc-\\xbe";

/** The kinds of groups that mean the same in both syntaxes; `(?i:` is written out. */
const groups = ["(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i:"];

/**
 * A pattern in the syntax of the reference implementation (that of Ruby) as a JavaScript one: classes mean Unicode's,
 * and `(?i:…)` is written out, which older engines do not know. Syntax that has another meaning in JavaScript, or none,
 * is an error.
 */
export function translatePattern(pattern: string): RegExp {
  let out = "";
  let inClass = false;
  const ignoring: boolean[] = [];
  const refuse = (what: string) => new ValueError(`${what} is not supported`);
  for (let i = 0; i < pattern.length; i++) {
    const c = pattern[i] ?? "";
    const ignoresCase = ignoring.at(-1) ?? false;
    if (c === "\\") {
      const next = pattern[++i] ?? "";
      const known = unicodeClasses.get(next);
      if (known !== undefined) out += next === "w" && !inClass ? `[${known}${latinFractions}]` : known;
      else if ("pPu".includes(next) && pattern[i + 1] === "{") {
        const end = pattern.indexOf("}", i);
        const name = pattern.slice(i, end + 1);
        if (ignoresCase || /^.\{punct\}$/i.test(name)) throw refuse(`\\${name}`);
        out += `\\${name}`;
        i = end < 0 ? pattern.length : end;
      } else if (/[bB0-9]/.test(next) || (next === "W" && inClass)) throw refuse(`\\${next}`);
      else if (next === "W") out += `[^${unicodeClasses.get("w")}${latinFractions}]`;
      else if (ignoresCase && /[xu]/.test(next)) throw refuse(`\\${next} in (?i:…)`);
      else if (next === "-") out += inClass ? "\\-" : "-";
      else out += /[\^$\\.*+?()[\]{}|/\w]/.test(next) ? `\\${next}` : next;
    } else if (inClass) {
      if (c === "[" || pattern.startsWith("&&", i)) throw refuse("a class in a class");
      inClass = c !== "]";
      const range = ignoresCase ? /^[^\]\\]-[^\]\\]/.exec(pattern.slice(i))?.[0] : undefined;
      out += range === undefined ? (ignoresCase ? bothCases(c) : c) : bothCasesOfRange(range);
      i += (range ?? c).length - 1;
    } else if (c === "[") {
      inClass = true;
      out += c;
    } else if (c === "(") {
      const group = pattern[i + 1] === "?" ? groups.find((one) => pattern.startsWith(one, i)) : "(";
      if (group === undefined) throw refuse(pattern.slice(i, i + 3));
      ignoring.push(group === "(?i:" || ignoresCase);
      out += group === "(?i:" ? "(?:" : group;
      i += group.length - 1;
    } else if (c === "^" || c === "$" || /^\{\d+\}\?/.test(pattern.slice(i))) throw refuse(c);
    else {
      if (c === ")") ignoring.pop();
      if (c === ".") out += "[^\\n]";
      else out += ignoresCase && bothCases(c) !== c ? `[${bothCases(c)}]` : c;
    }
  }
  return new RegExp(out, "gu");
}

/** The other forms of a letter, as Unicode folds them. */
function bothCases(c: string): string {
  if (c > "\x7f") throw new ValueError(`${c} in (?i:…) is not supported`);
  if (!/[a-zA-Z]/.test(c)) return c;
  const more = { s: "ſ", k: "\u212a" }[c.toLowerCase()] ?? "";
  return c.toLowerCase() + c.toUpperCase() + more;
}

function bothCasesOfRange(range: string): string {
  const [first = "", , last = ""] = range;
  if (/^[^a-zA-Z]-[^a-zA-Z]$/.test(range) && last < "A") return range;
  if (!/^([a-z]-[a-z]|[A-Z]-[A-Z])$/.test(range)) throw new ValueError(`${range} in (?i:…) is not supported`);
  let letters = "";
  for (let code = first.charCodeAt(0); code <= last.charCodeAt(0); code++) {
    letters += bothCases(String.fromCharCode(code));
  }
  return letters;
}
