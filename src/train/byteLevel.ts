/** How byte-level tokenisers write bytes as characters and cut text into words. */

/** The pattern by which GPT-2 cuts text: contractions, words, numbers, other signs, space. */
export const gpt2Pattern =
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

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

/** The bytes of a token as they are written in a vocabulary, or undefined if it is not written that way. */
export function bytesOfToken(token: string): number[] | undefined {
  const bytes: number[] = [];
  for (const character of token) {
    const byte = bytesByCharacter.get(character);
    if (byte === undefined) return undefined;
    bytes.push(byte);
  }
  return bytes;
}

/**
 * A pattern in the syntax of the reference implementation as a JavaScript one: `\s` means Unicode's white
 * space, and `(?i:…)` is written out, which older engines do not know.
 */
export function translatePattern(pattern: string): RegExp {
  let out = "";
  let inClass = false;
  const ignoring: boolean[] = [];
  for (let i = 0; i < pattern.length; i++) {
    const c = pattern[i] ?? "";
    const ignoresCase = ignoring.at(-1) ?? false;
    if (c === "\\") {
      const next = pattern[++i] ?? "";
      if (next === "s") out += "\\p{White_Space}";
      else if (next === "S") out += "\\P{White_Space}";
      else if ("pPu".includes(next) && pattern[i + 1] === "{") {
        const end = pattern.indexOf("}", i);
        out += `\\${pattern.slice(i, end + 1)}`;
        i = end < 0 ? pattern.length : end;
      } else if (next === "-") out += inClass ? "\\-" : "-";
      else out += /[\^$\\.*+?()[\]{}|/\w]/.test(next) ? `\\${next}` : next;
    } else if (inClass) {
      inClass = c !== "]";
      out += ignoresCase ? bothCases(c, "") : c;
    } else if (c === "[") {
      inClass = true;
      out += c;
    } else if (c === "(") {
      const ignore = pattern.startsWith("(?i:", i);
      ignoring.push(ignore || ignoresCase);
      out += ignore ? "(?:" : c;
      if (ignore) i += 3;
    } else {
      if (c === ")") ignoring.pop();
      out += ignoresCase ? bothCases(c, "[]") : c;
    }
  }
  return new RegExp(out, "gu");
}

function bothCases(c: string, brackets: "" | "[]"): string {
  if (!/[a-zA-Z]/.test(c)) return c;
  const both = c.toLowerCase() + c.toUpperCase();
  return brackets === "" ? both : `[${both}]`;
}
