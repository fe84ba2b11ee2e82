/** The normalizer of SentencePiece: a table of replacements, stored as a double-array trie over UTF-8. */
import type { TokenizerFields } from "./fields.js";

/** Reads the table `precompiled_charsmap`, which is base64. */
export function precompiled(fields: TokenizerFields): (text: string) => string {
  const encoded = fields.json.precompiled_charsmap;
  if (encoded === null || encoded === undefined || encoded === "") return (text) => text;
  const bytes = Uint8Array.from(atob(fields.text("precompiled_charsmap")), (c) => c.charCodeAt(0));
  if (bytes.length < 4) throw fields.wrong("precompiled_charsmap", "is too short");
  const size = new DataView(bytes.buffer).getUint32(0, true);
  if (size % 4 !== 0 || 4 + size > bytes.length) {
    throw fields.wrong(
      "precompiled_charsmap",
      `says that its table has ${size} bytes, which it does not hold`,
    );
  }
  const units = new Uint32Array(bytes.slice(4, 4 + size).buffer);
  const texts = bytes.subarray(4 + size);
  const replacement = (text: string) => lookUp(units, texts, new TextEncoder().encode(text));
  const segmenter = new Intl.Segmenter(undefined, { granularity: "grapheme" });
  return (text) => {
    let out = "";
    for (const { segment } of segmenter.segment(text)) {
      // Short clusters may have a replacement as a whole, longer ones only by character.
      const whole = new TextEncoder().encode(segment).length < 6 ? replacement(segment) : undefined;
      if (whole !== undefined) out += whole;
      else for (const character of segment) out += replacement(character) ?? character;
    }
    return out;
  };
}

/** The replacement of the shortest prefix that has one. */
function lookUp(units: Uint32Array, texts: Uint8Array, key: Uint8Array): string | undefined {
  const offsetOf = (unit: number) => (unit >>> 10) << ((unit & 0x200) >>> 6);
  let position = offsetOf(units[0] ?? 0);
  for (const byte of key) {
    if (byte === 0) return undefined;
    position ^= byte;
    const unit = units[position];
    if (unit === undefined || (unit & 0x800000ff) >>> 0 !== byte) return undefined;
    position ^= offsetOf(unit);
    if (((unit >>> 8) & 1) === 1) {
      const start = (units[position] ?? 0) & 0x7fffffff;
      let end = start;
      while (end < texts.length && texts[end] !== 0) end++;
      return new TextDecoder().decode(texts.subarray(start, end));
    }
  }
  return undefined;
}
