/**
 * Files of tokens. All numbers are little-endian:
 *
 * | bytes | content |
 * | --- | --- |
 * | 0 – 7 | the letters `SWTOKENS` |
 * | 8 – 11 | the version: 1, or 2 with marks |
 * | 12 – 15 | the bytes a token takes, 2 or 4 |
 * | 16 – 23 | the number of tokens |
 * | 24 – 27 | the size of the vocabulary; every token is below it |
 * | 28 – 59 | the SHA-256 of all bytes from 64 on |
 * | 60 – 63 | the CRC-32C of bytes 0 – 59 |
 * | 64 – | the tokens; in version 2 then the marks of every token, one byte each |
 */

import { type FileHandle, open } from "#platform/fs";
import { createHash } from "#platform/hashing";
import { need, needIfGiven } from "../../../ir/arguments.js";
import { describe } from "../../../ir/describe.js";
import { ValueError } from "../../../ir/errors.js";
import { toHex, toLatin1 } from "../../files/disk/bytes.js";
import { crc32c } from "../../files/disk/crc32c.js";
import { FileError, reasonOf } from "../../files/disk/fileError.js";
import { replaceFile } from "../../files/disk/files.js";
import { checkRange, type TokenSource, tokenMarks } from "./tokens.js";

const magic = "SWTOKENS";
const headerBytes = 64;

/**
 * Writes tokens to a file, which appears under its name only when it is complete.
 *
 * @param marks the {@link tokenMarks} of every token
 *
 * @example
 * ```ts
 * await train.writeTokenShard("tokens.bin", [1, 2, 3], 10);
 * const shards = await train.openTokenShards(["tokens.bin"]);
 * shards.numTokens; // 3
 * await shards.close();
 * ```
 */
export async function writeTokenShard(
  path: string,
  tokens: ArrayLike<number>,
  vocabSize: number,
  marks?: Uint8Array,
): Promise<void> {
  need("path", path, "path", "writeTokenShard");
  need("numbers", tokens, "tokens", "writeTokenShard");
  needIfGiven("bytes", marks, "marks", "writeTokenShard");
  if (marks && marks.length !== tokens.length) {
    throw new ValueError(`[writeTokenShard] there are ${tokens.length} tokens and ${marks.length} marks`);
  }
  if (!(Number.isInteger(vocabSize) && vocabSize >= 0 && vocabSize < 2 ** 32)) {
    throw new ValueError(
      `[writeTokenShard] vocabSize must be an integer from 0 to ${2 ** 32 - 1}, got ${describe(vocabSize)}`,
    );
  }
  const wide = vocabSize > 2 ** 16;
  const data = wide ? new Uint32Array(tokens.length) : new Uint16Array(tokens.length);
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i] ?? -1;
    if (!(Number.isInteger(token) && token >= 0 && token < vocabSize)) {
      throw new ValueError(
        `[writeTokenShard] token ${i} is ${token}, not one of the ${vocabSize} of the vocabulary`,
      );
    }
    data[i] = token;
  }
  const body = [new Uint8Array(data.buffer), ...(marks ? [marks] : [])];
  const hash = createHash("sha256");
  for (const part of body) hash.update(part);
  const header = new Uint8Array(headerBytes);
  const fields = new DataView(header.buffer);
  header.set(new TextEncoder().encode(magic));
  fields.setUint32(8, marks ? 2 : 1, true);
  fields.setUint32(12, data.BYTES_PER_ELEMENT, true);
  fields.setBigUint64(16, BigInt(tokens.length), true);
  fields.setUint32(24, vocabSize, true);
  header.set(hash.digest(), 28);
  fields.setUint32(60, crc32c(header.subarray(0, 60)), true);
  try {
    await replaceFile(path, [header, ...body]);
  } catch (cause) {
    throw new FileError("tokens", path, 0, `the file could not be written (${reasonOf(cause)})`, { cause });
  }
}

interface Shard {
  readonly path: string;
  readonly handle: FileHandle;
  readonly width: number;
  readonly numTokens: number;
  readonly vocabSize: number;
  readonly sha256: string;
  readonly hasMarks: boolean;
  /** The number of tokens in the preceding files. */
  readonly start: number;
}

/** The concatenated tokens of files, read on demand. */
export class TokenShards implements TokenSource {
  readonly numTokens: number;
  readonly vocabSize: number;
  readonly fingerprint: string;
  private readonly shards: readonly Shard[];

  /** @internal */
  constructor(shards: readonly Shard[]) {
    this.shards = shards;
    this.numTokens = shards.reduce((n, shard) => n + shard.numTokens, 0);
    this.vocabSize = shards.reduce((n, shard) => Math.max(n, shard.vocabSize), 0);
    const hash = createHash("sha256");
    for (const { sha256, numTokens } of shards) hash.update(`${sha256} ${numTokens}\n`);
    this.fingerprint = hash.digest("hex");
  }

  async read(start: number, length: number): Promise<Int32Array> {
    checkRange(start, length, this.numTokens);
    const tokens = new Int32Array(length);
    for (const { shard, from, count, done } of this.parts(start, length)) {
      const { width, path, handle, vocabSize } = shard;
      const bytes = await readBytes(handle, headerBytes + from * width, count * width, path);
      const values = width === 2 ? new Uint16Array(bytes.buffer) : new Uint32Array(bytes.buffer);
      const wrong = values.findIndex((token) => token >= vocabSize);
      if (wrong >= 0) {
        const offset = headerBytes + (from + wrong) * width;
        const rule = `token ${values[wrong]} is outside of the vocabulary of ${vocabSize}: the file is damaged`;
        throw new FileError("tokens", path, offset, rule);
      }
      tokens.set(values, done);
    }
    return tokens;
  }

  /** The marks of tokens; in a file without any, its first token begins a document. */
  async readMarks(start: number, length: number): Promise<Uint8Array> {
    checkRange(start, length, this.numTokens);
    const marks = new Uint8Array(length);
    for (const { shard, from, count, done } of this.parts(start, length)) {
      const { path, handle, hasMarks, numTokens, width } = shard;
      if (hasMarks)
        marks.set(await readBytes(handle, headerBytes + numTokens * width + from, count, path), done);
      else if (from === 0) marks[done] = tokenMarks.start;
    }
    return marks;
  }

  /** Whether any of the files has marks. */
  get hasMarks(): boolean {
    return this.shards.some(({ hasMarks }) => hasMarks);
  }

  /** The parts of files that hold a range: `count` tokens `from` one on, after `done` of the range. */
  private parts(start: number, length: number) {
    const parts: { shard: Shard; from: number; count: number; done: number }[] = [];
    let done = 0;
    for (const shard of this.shards) {
      const from = start + done - shard.start;
      const count = Math.min(length - done, shard.numTokens - from);
      if (from < 0 || count <= 0) continue;
      parts.push({ shard, from, count, done });
      done += count;
    }
    return parts;
  }

  /** Compares every file with its checksum. */
  async verify(): Promise<void> {
    for (const { path, handle, numTokens, width, hasMarks, sha256 } of this.shards) {
      const hash = createHash("sha256");
      const total = numTokens * (width + (hasMarks ? 1 : 0));
      for (let done = 0; done < total; ) {
        const bytes = await readBytes(handle, headerBytes + done, Math.min(total - done, 2 ** 22), path);
        hash.update(bytes);
        done += bytes.length;
      }
      const got = hash.digest("hex");
      if (got !== sha256) {
        throw new FileError(
          "tokens",
          path,
          headerBytes,
          `the tokens are damaged: their SHA-256 is ${got}, not ${sha256}`,
        );
      }
    }
  }

  /** Closes the files. */
  async close(): Promise<void> {
    await Promise.all(this.shards.map(({ handle }) => handle.close()));
  }
}

/**
 * Opens files written by {@link writeTokenShard}.
 *
 * @example
 * ```ts
 * await train.writeTokenShard("shard-1.tokens", [4, 5], 10);
 * await train.writeTokenShard("shard-2.tokens", [6], 10);
 * const shards = await train.openTokenShards(["shard-1.tokens", "shard-2.tokens"]);
 * Array.from(await shards.read(1, 2)); // [5, 6]
 * await shards.close();
 * ```
 */
export async function openTokenShards(paths: readonly string[]): Promise<TokenShards> {
  need("list", paths, "paths", "openTokenShards");
  for (const path of paths) need("path", path, "each of paths", "openTokenShards");
  const shards: Shard[] = [];
  try {
    let start = 0;
    for (const path of paths) {
      const handle = await open(path, "r").catch((cause: unknown) => {
        throw new FileError("tokens", path, 0, `the file cannot be opened (${reasonOf(cause)})`, { cause });
      });
      const shard = await readHeader(handle, path, start).catch(async (error: unknown) => {
        await handle.close();
        throw error;
      });
      shards.push(shard);
      start += shard.numTokens;
    }
    return new TokenShards(shards);
  } catch (error) {
    await Promise.all(shards.map(({ handle }) => handle.close()));
    throw error;
  }
}

async function readHeader(handle: FileHandle, path: string, start: number): Promise<Shard> {
  const fail = (offset: number, rule: string) => new FileError("tokens", path, offset, rule);
  const { size } = await handle.stat();
  if (size < headerBytes)
    throw fail(0, `the file has ${size} bytes, too few for its header (${headerBytes})`);
  const header = await readBytes(handle, 0, headerBytes, path);
  const fields = new DataView(header.buffer, header.byteOffset);
  if (toLatin1(header.subarray(0, 8)) !== magic) throw fail(0, `the file does not start with ${magic}`);
  const crc = crc32c(header.subarray(0, 60));
  if (fields.getUint32(60, true) !== crc) throw fail(60, "the header is damaged: its checksum is wrong");
  const version = fields.getUint32(8, true);
  if (version !== 1 && version !== 2)
    throw fail(8, `unknown version ${version}: another release wrote this file`);
  const width = fields.getUint32(12, true);
  if (width !== 2 && width !== 4) throw fail(12, `tokens of ${width} bytes are not supported`);
  const count = fields.getBigUint64(16, true);
  const hasMarks = version === 2;
  const each = width + (hasMarks ? 1 : 0);
  if (count * BigInt(each) !== BigInt(size - headerBytes)) {
    throw fail(
      16,
      `${count} tokens of ${each} bytes do not fill the ${size - headerBytes} bytes after the header`,
    );
  }
  const vocabSize = fields.getUint32(24, true);
  if (vocabSize > 2 ** 31) throw fail(24, `a vocabulary of ${vocabSize} is too large`);
  const sha256 = toHex(header.subarray(28, 60));
  return { path, handle, width, numTokens: Number(count), vocabSize, sha256, hasMarks, start };
}

async function readBytes(
  handle: FileHandle,
  start: number,
  length: number,
  path: string,
): Promise<Uint8Array> {
  const bytes = new Uint8Array(length);
  for (let done = 0; done < length; ) {
    const { bytesRead } = await handle.read(bytes, done, length - done, start + done);
    if (bytesRead === 0)
      throw new FileError("tokens", path, start + done, "the file ended while it was read");
    done += bytesRead;
  }
  return bytes;
}
