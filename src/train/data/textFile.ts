/**
 * Files of text to train on. Anything else is rejected, because a model would train on the bytes of any file without an
 * error.
 */
import { readFile } from "#platform/fs";
import { extname } from "#platform/path";
import { toLatin1 } from "../files/bytes.js";
import { FileError, reasonOf } from "../files/fileError.js";
import { isObject } from "../files/json.js";

/** Kinds of files by the bytes that they begin with, as latin1, and what to do with them. */
const kinds: readonly (readonly [start: string, kind: string, advice: string])[] = [
  ["\x1f\x8b", "compressed by gzip", "unpack it with gunzip"],
  ["\x28\xb5\x2f\xfd", "compressed by zstd", "unpack it with zstd -d"],
  ["BZh", "compressed by bzip2", "unpack it with bunzip2"],
  ["\xfd7zXZ\0", "compressed by xz", "unpack it with unxz"],
  ["PK\x03\x04", "a ZIP archive or an office document", "take the text out of it"],
  ["PAR1", "a Parquet file", "write its column of text to a text file"],
  ["ARROW1\0\0", "an Arrow file", "write its column of text to a text file"],
  ["SQLite format 3\0", "an SQLite database", "write its column of text to a text file"],
  ["%PDF-", "a PDF document", "take the text out of it, as pdftotext does"],
  ["SWTOKENS", "a file of tokens", "give it a name that ends with .tokens"],
  ["\xff\xfe", "text in UTF-16", "convert it with iconv -f UTF-16 -t UTF-8"],
  ["\xfe\xff", "text in UTF-16", "convert it with iconv -f UTF-16 -t UTF-8"],
];

/** Advice for training on the bytes of a file on purpose. */
const asTokens = "write its bytes as tokens with writeTokenShard";

/** Reads a file of text in UTF-8. @returns its bytes */
export async function readTextFile(path: string): Promise<Uint8Array> {
  const bytes = await readFile(path).catch((cause: unknown) => {
    throw new FileError("text", path, 0, `the text cannot be read (${reasonOf(cause)})`, { cause });
  });
  checkText(bytes, path);
  return bytes;
}

/** Throws unless bytes are plain text in UTF-8. */
export function checkText(bytes: Uint8Array, path: string): void {
  const start = toLatin1(bytes.subarray(0, 16));
  const known = kinds.find(([magic]) => start.startsWith(magic));
  if (known) throw new FileError("text", path, 0, `this is ${known[1]}, not text: ${known[2]}`);
  const nul = bytes.indexOf(0);
  if (nul >= 0) {
    const rule = `this is a binary file, not text: take the text out of it, or ${asTokens}`;
    throw new FileError("text", path, nul, rule);
  }
  const wrong = firstNotUtf8(bytes);
  if (wrong !== undefined) {
    const rule = `the text is not UTF-8 here: convert it (of Latin-1 with iconv -f LATIN1 -t UTF-8), or ${asTokens}`;
    throw new FileError("text", path, wrong, rule);
  }
  if (extname(path) !== ".txt" && isJsonLines(bytes)) {
    const rule =
      "every line is a JSON object: write the field that holds the text to a text file, or give the file a name that ends with .txt to train on the JSON itself";
    throw new FileError("text", path, 0, rule);
  }
}

/** Number of bytes to check at once, which take little memory as a string. */
const chunkBytes = 2 ** 20;

/** Whether bytes are valid UTF-8. */
function isUtf8(bytes: Uint8Array): boolean {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes);
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

/** Number of bytes checked to see whether the lines of a file are JSON. */
const lookBytes = 2 ** 22;

/** Whether the first lines of a file, three of them or all if it has fewer, are JSON objects. */
function isJsonLines(bytes: Uint8Array): boolean {
  if (bytes.find((byte) => byte > 0x20) !== 0x7b) return false;
  const text = new TextDecoder().decode(bytes.subarray(0, lookBytes));
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  // The last line may be cut off.
  const whole = bytes.length > lookBytes ? lines.slice(0, -1) : lines;
  return whole.length > 0 && whole.slice(0, 3).every(isJsonObject);
}

function isJsonObject(line: string): boolean {
  try {
    return isObject(JSON.parse(line));
  } catch {
    return false;
  }
}
