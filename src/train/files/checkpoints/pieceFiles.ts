/**
 * Writes and checks files piece by piece. Two halves of a memory take turns: while one is on its way to or from the disk,
 * the checksums of the other are computed.
 */
import { open } from "#platform/fs";
import { createHash } from "#platform/hashing";
import { range } from "../../../ir/shape.js";
import { toHex } from "../disk/bytes.js";
import { FileError, reasonOf } from "../disk/fileError.js";
import type { WritableFile } from "../disk/files.js";
import { ChecksumMemory } from "../disk/xxh64.js";

/** The size of the pieces of tensor files. */
export const pieceBytes = 2 ** 20;

/** The size of what is written or read at once. */
const batchBytes = 4 * pieceBytes;

/** The number of digits of a piece's checksum. */
const digits = 16;

/** The parts of a file, one after the other. */
export type FileParts = Iterable<Uint8Array> | AsyncIterable<Uint8Array>;

/** The checksums of a file. */
export interface FileChecksums {
  /** The SHA-256 of the checksums of all pieces. */
  readonly sha256: string;
  /** The checksum of every piece, 16 hexadecimal digits each. */
  readonly pieces: string;
}

/** Memories that nobody uses: each reserves much address space, so that they are used again. */
const idle: ChecksumMemory[] = [];

/** Runs `use` with a memory for two batches. */
async function withMemory<T>(use: (memory: ChecksumMemory) => Promise<T>): Promise<T> {
  const memory = idle.pop() ?? new ChecksumMemory(2 * batchBytes);
  try {
    return await use(memory);
  } finally {
    idle.push(memory);
  }
}

/** The checksums of a file whose pieces are added in order. */
interface Checksums {
  addPiece(start: number, end: number): void;
  finish(): FileChecksums;
}

/** The checksums that are written: XXH64 of each piece, and the SHA-256 of these. */
function newChecksums(memory: ChecksumMemory): Checksums {
  const pieces: string[] = [];
  return {
    addPiece: (start, end) => void pieces.push(memory.checksum(start, end)),
    finish: () => {
      const all = pieces.join("");
      return { sha256: createHash("sha256").update(all).digest("hex"), pieces: all };
    },
  };
}

/** The checksums of manifests up to version 3: digits of the SHA-256 of each piece, and that of these or of all bytes. */
function earlierChecksums({ bytes }: ChecksumMemory, version: number): Checksums {
  const pieces: string[] = [];
  const total = createHash("sha256");
  return {
    addPiece: (start, end) => {
      const piece = bytes.subarray(start, end);
      const digest = createHash("sha256").update(piece).digest();
      pieces.push(toHex(digest).slice(0, digits));
      total.update(version < 3 ? piece : digest);
    },
    finish: () => ({ sha256: total.digest("hex"), pieces: pieces.join("") }),
  };
}

/** Adds the pieces of a batch. */
function addBatch(checksums: Checksums, start: number, length: number): void {
  for (let done = 0; done < length; done += pieceBytes) {
    checksums.addPiece(start + done, start + Math.min(length, done + pieceBytes));
  }
}

/** Writes the parts of a file, each of which may be overwritten when the next is asked for. */
export function writePieces(
  file: WritableFile,
  parts: FileParts,
): Promise<FileChecksums & { readonly bytes: number }> {
  return withMemory(async (memory) => {
    const checksums = newChecksums(memory);
    let [start, filled, bytes] = [0, 0, 0];
    let writing: Promise<void> = Promise.resolve();
    const flush = async () => {
      addBatch(checksums, start, filled);
      await writing;
      writing = file.write(memory.bytes.subarray(start, start + filled));
      // It is awaited later, where a failure is thrown.
      writing.catch(() => {});
      bytes += filled;
      [start, filled] = [batchBytes - start, 0];
    };
    try {
      for await (const part of parts) {
        for (let done = 0; done < part.length; ) {
          const portion = part.subarray(done, done + batchBytes - filled);
          memory.bytes.set(portion, start + filled);
          done += portion.length;
          filled += portion.length;
          if (filled === batchBytes) await flush();
        }
      }
      if (filled > 0) await flush();
    } finally {
      // The memory may be used again only when nothing is written from it.
      await writing;
    }
    return { bytes, ...checksums.finish() };
  });
}

/** The checksums of a file of this many bytes, as manifests of some version have them. */
export async function checksumsOf(path: string, bytes: number, version: number): Promise<FileChecksums> {
  const handle = await open(path, "r").catch((cause: unknown) => {
    throw new FileError("checkpoint", path, 0, `the file cannot be opened (${reasonOf(cause)})`, { cause });
  });
  const lengthAt = (batch: number) => Math.max(0, Math.min(batchBytes, bytes - batch * batchBytes));
  const startOf = (batch: number) => (batch % 2) * batchBytes;
  const read = async ({ bytes: target }: ChecksumMemory, batch: number) => {
    for (let filled = 0; filled < lengthAt(batch); ) {
      const position = batch * batchBytes + filled;
      const { bytesRead } = await handle.read(
        target,
        startOf(batch) + filled,
        lengthAt(batch) - filled,
        position,
      );
      if (bytesRead === 0)
        throw new FileError("checkpoint", path, position, "the file ended while it was read");
      filled += bytesRead;
    }
  };
  try {
    return await withMemory(async (memory) => {
      const checksums = version < 4 ? earlierChecksums(memory, version) : newChecksums(memory);
      await read(memory, 0);
      for (const batch of range(Math.ceil(bytes / batchBytes))) {
        const next = read(memory, batch + 1);
        // It is awaited below, where a failure is thrown.
        next.catch(() => {});
        addBatch(checksums, startOf(batch), lengthAt(batch));
        await next;
      }
      return checksums.finish();
    });
  } finally {
    await handle.close();
  }
}

/** The byte range of the first piece that differs; undefined if none does or if there are no checksums. */
export function firstDifference(expected: string, got: string): { start: number; end: number } | undefined {
  const count = Math.ceil(expected.length / digits);
  const found = range(count).find(
    (i) => expected.slice(i * digits, (i + 1) * digits) !== got.slice(i * digits, (i + 1) * digits),
  );
  return found === undefined ? undefined : { start: found * pieceBytes, end: (found + 1) * pieceBytes };
}
