import { mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { systemCode } from "./fileError.js";

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
      if (systemCode(error) === "ENOENT") return [];
      throw error;
    }
  },
  size: async (path) => {
    try {
      const found = await stat(path);
      return found.isFile() ? found.size : undefined;
    } catch (error) {
      if (systemCode(error) === "ENOENT") return undefined;
      throw error;
    }
  },
};
