/** Compressed files, which are known by the bytes that they begin with. */

import { attempt } from "../../../ir/errors.js";
import { reasonOf } from "../../files/disk/fileError.js";
import { chunksOf, dataError } from "./sourceFile.js";
import { ZstdDecoder } from "./zstd.js";

/** The first bytes of a stream, and the whole stream. */
export async function peek(
  chunks: AsyncIterable<Uint8Array>,
  length: number,
): Promise<{ readonly head: Uint8Array; readonly all: AsyncGenerator<Uint8Array, void> }> {
  const rest = chunks[Symbol.asyncIterator]();
  let head: Uint8Array = new Uint8Array();
  while (head.length < length) {
    const { done, value } = await rest.next();
    if (done) break;
    const joined = new Uint8Array(head.length + value.length);
    joined.set(head);
    joined.set(value, head.length);
    head = joined;
  }
  async function* all(): AsyncGenerator<Uint8Array, void> {
    try {
      yield head;
      for (let { done, value } = await rest.next(); !done; { done, value } = await rest.next()) yield value;
    } finally {
      await rest.return?.();
    }
  }
  return { head, all: all() };
}

const startsWith = (bytes: Uint8Array, ...magic: readonly number[]) =>
  magic.every((byte, i) => bytes[i] === byte);

/** Whether a file begins with a frame of zstd, or with what is passed over before one, as those of `pzstd` do. */
const isZstd = (head: Uint8Array): boolean =>
  startsWith(head, 0x28, 0xb5, 0x2f, 0xfd) ||
  ((head[0] ?? 0) >> 4 === 5 && startsWith(head.subarray(1), 0x2a, 0x4d, 0x18));

/** The content of a file that may be compressed by gzip or zstd. @param head its first four bytes */
export function decompressed(
  head: Uint8Array,
  chunks: AsyncIterable<Uint8Array>,
  file: string,
): AsyncIterable<Uint8Array> {
  if (startsWith(head, 0x1f, 0x8b)) return gunzipped(chunks, file);
  if (isZstd(head)) return unzstd(chunks, file);
  return chunks;
}

async function* gunzipped(chunks: AsyncIterable<Uint8Array>, file: string): AsyncGenerator<Uint8Array, void> {
  const { readable, writable } = new DecompressionStream("gzip");
  const writer = writable.getWriter();
  let readFailure: { readonly cause: unknown } | undefined;
  const feed = async () => {
    try {
      for await (const chunk of chunks) await writer.write(chunk as BufferSource);
    } catch (cause) {
      readFailure ??= { cause };
      await writer.abort(cause);
      return;
    }
    await writer.close();
  };
  const fed = feed();
  fed.catch(() => {});
  try {
    yield* chunksOf(readable as ReadableStream<Uint8Array>);
    await fed;
  } catch (cause) {
    // An error of the source itself is not one of its content.
    if (readFailure && readFailure.cause === cause) throw cause;
    throw dataError(file, `it is compressed by gzip and damaged or cut off (${reasonOf(cause)})`, { cause });
  } finally {
    await writer.abort().catch(() => {});
  }
}

async function* unzstd(chunks: AsyncIterable<Uint8Array>, file: string): AsyncGenerator<Uint8Array, void> {
  const decoder = new ZstdDecoder();
  const damaged = (_: string, cause: unknown) =>
    dataError(file, `it is compressed by zstd and damaged or cut off (${reasonOf(cause)})`, { cause });
  for await (const chunk of chunks) {
    const parts = decoder.push(chunk);
    // A part at a time: together they may be far larger than the chunk.
    for (;;) {
      const { done, value } = attempt(() => parts.next(), damaged);
      if (done) break;
      yield value;
    }
  }
  attempt(() => decoder.end(), damaged);
}
