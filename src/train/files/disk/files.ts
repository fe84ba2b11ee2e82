import {
  closeSync,
  type FileHandle,
  fstatSync,
  ftruncateSync,
  mkdir,
  open,
  openDirect,
  openToAppend,
  readdir,
  rename,
  rm,
  stat,
  syncFolder,
  writeSync,
} from "#platform/fs";
import { dirname } from "#platform/path";
import { concatBytes } from "./bytes.js";
import { FileError, systemCode } from "./fileError.js";

/** A file that is being written. */
export interface WritableFile {
  /** Appends bytes. */
  write(bytes: Uint8Array): Promise<void>;
  /** Returns when all written bytes are on the disk. */
  sync(): Promise<void>;
  close(): Promise<void>;
}

/**
 * The file system operations that checkpoints need to be written safely. Tests inject failures at every operation
 * through another implementation.
 */
export interface FileSystem {
  /** Makes a folder and its parents. */
  makeFolder(path: string): Promise<void>;
  /** Creates a file, which must not exist. */
  create(path: string): Promise<WritableFile>;
  /** Returns when the entries of a folder are on the disk. */
  syncFolder(path: string): Promise<void>;
  /** Renames a file or folder atomically. */
  rename(from: string, to: string): Promise<void>;
  /** Removes a file, or a folder with everything in it; does nothing if it does not exist. */
  remove(path: string): Promise<void>;
  /** The names in a folder; empty if it does not exist. */
  list(path: string): Promise<readonly string[]>;
  /** The size of a file, or undefined if there is no such file. */
  size(path: string): Promise<number | undefined>;
}

/** Maximum number of bytes per write; some systems truncate longer ones. */
const chunkBytes = 2 ** 24;

/** Writes past the system's cache are of whole blocks, whose size is a divisor of this on common disks. */
const blockBytes = 4096;

/** Smaller writes are faster through the cache. */
const minDirectBytes = 2 ** 20;

/** An empty file that is written past the system's cache where it is given large parts of whole blocks. */
function nodeFile(path: string, handle: FileHandle): WritableFile {
  let position = 0;
  /** Undefined until it is needed, null where the system or the memory does not allow it. */
  let direct: FileHandle | undefined | null;
  const isWhole = (bytes: number) => bytes % blockBytes === 0;
  /** The number of bytes that were written past the cache; 0 if these cannot be. */
  const writeDirect = async (bytes: Uint8Array, start: number, length: number): Promise<number> => {
    if (length < minDirectBytes || !isWhole(length) || !isWhole(position)) return 0;
    if (direct === undefined) direct = (await openDirect(path)) ?? null;
    if (direct === null) return 0;
    try {
      return (await direct.write(bytes, start, length, position)).bytesWritten;
    } catch (error) {
      // The memory does not begin at a block, or the disk has larger blocks.
      if (systemCode(error) !== "EINVAL") throw error;
      await direct.close();
      direct = null;
      return 0;
    }
  };
  return {
    write: async (bytes) => {
      for (let done = 0; done < bytes.length; ) {
        const length = Math.min(chunkBytes, bytes.length - done);
        const written =
          (await writeDirect(bytes, done, length)) ||
          (await handle.write(bytes, done, length, position)).bytesWritten;
        done += written;
        position += written;
      }
    },
    sync: () => handle.sync(),
    close: async () => {
      await direct?.close();
      await handle.close();
    },
  };
}

/** The file system of the machine. */
export const nodeFileSystem: FileSystem = {
  makeFolder: async (path) => {
    await mkdir(path, { recursive: true });
  },
  create: async (path) => nodeFile(path, await open(path, "wx")),
  syncFolder,
  rename: (from, to) => rename(from, to),
  remove: (path) => rm(path, { recursive: true, force: true }),
  list: async (path) => {
    try {
      return await readdir(path);
    } catch (error) {
      const code = systemCode(error);
      if (code === "ENOENT") return [];
      if (code === "ENOTDIR")
        throw new FileError("files", path, 0, "a folder is needed here, but this or a parent is a file");
      throw error;
    }
  },
  size: async (path) => {
    try {
      const found = await stat(path);
      return found.isFile() ? found.size : undefined;
    } catch (error) {
      const code = systemCode(error);
      if (code === "ENOENT" || code === "ENOTDIR") return undefined;
      throw error;
    }
  },
};

/**
 * Works on items, at most some of them at once. After a failure no further item is begun; when those that were begun
 * have ended, the failure of the first item that failed is thrown.
 */
export async function inParallel<T>(
  items: readonly T[],
  most: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const queue = items.entries();
  const failures: { readonly index: number; readonly error: unknown }[] = [];
  const worker = async () => {
    for (const [index, item] of queue) {
      await work(item).catch((error: unknown) => failures.push({ index, error }));
      if (failures.length > 0) return;
    }
  };
  await Promise.all(Array.from({ length: Math.min(most, items.length) }, worker));
  const [first] = failures.sort((a, b) => a.index - b.index);
  if (first) throw first.error;
}

/** Writes a file atomically: at any time, even after a power cut, there is the old one, if any, or the new one. */
export async function replaceFile(path: string, content: string | Iterable<Uint8Array>): Promise<void> {
  const draft = `${path}.${crypto.randomUUID()}.tmp`;
  const parts = typeof content === "string" ? [new TextEncoder().encode(content)] : content;
  try {
    const file = await nodeFileSystem.create(draft);
    try {
      for (const part of parts) await file.write(part);
      await file.sync();
    } finally {
      await file.close();
    }
    await nodeFileSystem.rename(draft, path);
    await nodeFileSystem.syncFolder(dirname(path));
  } catch (error) {
    await nodeFileSystem.remove(draft).catch(() => {});
    throw error;
  }
}

/** A file to which records are appended. */
export interface RecordFile {
  /** Appends a record; if that fails, it is kept in memory and written before the next one. */
  append(record: Uint8Array): void;
  close(): void;
}

/** Opens a file for records, each of which is written whole or not at all, unless the process is killed. */
export function openRecordFile(path: string): RecordFile {
  const file = openToAppend(path);
  let waiting: readonly Uint8Array[] = [];
  const flush = () => {
    const start = fstatSync(file).size;
    const bytes = concatBytes(waiting);
    try {
      for (let done = 0; done < bytes.length; ) done += writeSync(file, bytes, done);
    } catch (error) {
      // A full disk may accept a part of the record, which would corrupt those after it.
      if (fstatSync(file).isFile()) ftruncateSync(file, start);
      throw error;
    }
    waiting = [];
  };
  return {
    append: (record) => {
      waiting = [...waiting, record];
      flush();
    },
    close: () => {
      try {
        if (waiting.length > 0) flush();
      } finally {
        closeSync(file);
      }
    },
  };
}
