import { randomUUID } from "node:crypto";
import { closeSync, constants, fstatSync, ftruncateSync, openSync, writeSync } from "node:fs";
import { mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { FileError, systemCode } from "./fileError.js";

/** A file that is being written. */
export interface WritableFile {
  /** Appends bytes. */
  write(bytes: Uint8Array): Promise<void>;
  /** Returns when what was written is on the disk. */
  sync(): Promise<void>;
  close(): Promise<void>;
}

/**
 * What checkpoints need of a file system to be written safely. Another implementation can stand in for the
 * disk, which is how failures at every step are tested.
 */
export interface FileSystem {
  /** Makes a folder and those above it. */
  makeFolder(path: string): Promise<void>;
  /** Makes a new file; one of that name must not exist. */
  create(path: string): Promise<WritableFile>;
  /** Returns when the names in a folder are on the disk. */
  syncFolder(path: string): Promise<void>;
  /** Gives a file or folder another name, all at once. */
  rename(from: string, to: string): Promise<void>;
  /** Removes a file, or a folder with everything in it; nothing happens if it is not there. */
  remove(path: string): Promise<void>;
  /** The names in a folder; none if it is not there. */
  list(path: string): Promise<readonly string[]>;
  /** The size of a file, or undefined if there is no such file. */
  size(path: string): Promise<number | undefined>;
}

/** The most that one write is given; some systems cut off longer ones. */
const chunkBytes = 2 ** 24;

/** The file system of the machine. */
export const nodeFileSystem: FileSystem = {
  makeFolder: async (path) => {
    await mkdir(path, { recursive: true });
  },
  create: async (path) => {
    const handle = await open(path, "wx");
    return {
      write: async (bytes) => {
        for (let done = 0; done < bytes.length; ) {
          const { bytesWritten } = await handle.write(bytes, done, Math.min(chunkBytes, bytes.length - done));
          done += bytesWritten;
        }
      },
      sync: () => handle.sync(),
      close: () => handle.close(),
    };
  },
  syncFolder: async (path) => {
    // Windows cannot open folders; there renames are durable by themselves.
    if (process.platform === "win32") return;
    const handle = await open(path, "r");
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  },
  rename: (from, to) => rename(from, to),
  remove: (path) => rm(path, { recursive: true, force: true }),
  list: async (path) => {
    try {
      return await readdir(path);
    } catch (error) {
      const code = systemCode(error);
      if (code === "ENOENT") return [];
      if (code === "ENOTDIR")
        throw new FileError("files", path, 0, "a folder is needed here, but it is in or at a file");
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

/** Writes a small file so that at every moment there is the old one or the new one, also after a power cut. */
export async function replaceFile(path: string, content: string): Promise<void> {
  const draft = `${path}.${randomUUID()}`;
  try {
    const file = await nodeFileSystem.create(draft);
    try {
      await file.write(new TextEncoder().encode(content));
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

/** A file that records are added to. */
export interface RecordFile {
  /** Adds a record; when that fails, the record is kept in memory and written before the next one. */
  append(record: Uint8Array): void;
  close(): void;
}

/** Opens a file for records, each of which is written whole or not at all, unless the process is killed. */
export function openRecordFile(path: string): RecordFile {
  // Links are not followed: what they lead to is none of the run's files.
  const { O_APPEND, O_CREAT, O_WRONLY, O_NOFOLLOW = 0 } = constants;
  const file = openSync(path, O_APPEND | O_CREAT | O_WRONLY | O_NOFOLLOW, 0o666);
  let waiting: readonly Uint8Array[] = [];
  const flush = () => {
    const start = fstatSync(file).size;
    const bytes = Buffer.concat(waiting);
    try {
      for (let done = 0; done < bytes.length; ) done += writeSync(file, bytes, done);
    } catch (error) {
      // A full disk takes the first bytes; half a record would hide those after it.
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
