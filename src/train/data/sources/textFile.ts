/**
 * Files of text to train on. Anything else is rejected, because a model would train on the bytes of any file without an
 * error.
 */

/** Kinds of files by the bytes that they begin with, as latin1, and what to do with them. */
const kinds: readonly (readonly [start: string, kind: string, advice: string])[] = [
  ["BZh", "compressed by bzip2", "unpack it with bunzip2"],
  ["\xfd7zXZ\0", "compressed by xz", "unpack it with unxz"],
  ["PK\x03\x04", "a ZIP archive or an office document", "take the text out of it"],
  ["ARROW1\0\0", "an Arrow file", "write its column of text to a text file"],
  ["SQLite format 3\0", "an SQLite database", "write its column of text to a text file"],
  ["%PDF-", "a PDF document", "take the text out of it, as pdftotext does"],
  ["SWTOKENS", "a file of tokens", "give it a name that ends with .tokens"],
  ["\xff\xfe", "text in UTF-16", "convert it with iconv -f UTF-16 -t UTF-8"],
  ["\xfe\xff", "text in UTF-16", "convert it with iconv -f UTF-16 -t UTF-8"],
];

/** Advice for training on the bytes of a file on purpose. */
const asTokens = "write its bytes as tokens with writeTokenShard";

/** What bytes have that plain text in UTF-8 has not; undefined if they are text. */
export function textProblem(
  bytes: Uint8Array,
): { readonly offset: number; readonly rule: string } | undefined {
  const start = String.fromCharCode(...bytes.subarray(0, 16));
  const known = kinds.find(([magic]) => start.startsWith(magic));
  if (known) return { offset: 0, rule: `this is ${known[1]}, not text: ${known[2]}` };
  const nul = bytes.indexOf(0);
  if (nul >= 0) {
    return { offset: nul, rule: `this is a binary file, not text: take the text out of it, or ${asTokens}` };
  }
  const wrong = firstNotUtf8(bytes);
  if (wrong === undefined) return undefined;
  const rule = `the text is not UTF-8 here: convert it (of Latin-1 with iconv -f LATIN1 -t UTF-8), or ${asTokens}`;
  return { offset: wrong, rule };
}

/** Number of bytes to check at once, which take little memory as a string. */
const chunkBytes = 2 ** 20;

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function isUtf8(bytes: Uint8Array): boolean {
  try {
    strict.decode(bytes);
    return true;
  } catch {
    return false;
  }
}

/** The offset of the first byte that is not valid UTF-8. */
function firstNotUtf8(bytes: Uint8Array): number | undefined {
  for (let start = 0; start < bytes.length; ) {
    let end = Math.min(start + chunkBytes, bytes.length);
    // No character is longer than four bytes.
    for (let i = 0; i < 3 && ((bytes[end] ?? 0) & 0xc0) === 0x80; i++) end++;
    const chunk = bytes.subarray(start, end);
    if (!isUtf8(chunk)) return start + firstReplaced(chunk);
    start = end;
  }
  return undefined;
}

/** The offset of the first byte that a decoder replaces by U+FFFD. */
function firstReplaced(chunk: Uint8Array): number {
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(chunk);
  for (let at = text.indexOf("\uFFFD"); at >= 0; at = text.indexOf("\uFFFD", at + 1)) {
    const offset = new TextEncoder().encode(text.slice(0, at)).length;
    const isMark = chunk[offset] === 0xef && chunk[offset + 1] === 0xbf && chunk[offset + 2] === 0xbd;
    if (!isMark) return offset;
  }
  return 0;
}
