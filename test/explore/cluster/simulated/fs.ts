/** Stands in for the files of the system: those of the cluster's disk. Every operation is a turn of others, too. */
import type { FileHandle, FileStatus } from "../../../../src/platform/fs.js";
import { systemError } from "../../disk.js";
import { giveTurn } from "../../runtime.js";
import { cluster } from "../host.js";

function missing(path: string): Error {
  return systemError("ENOENT", `ENOENT: no such file or directory, '${path}'`);
}

function statusOf(path: string): FileStatus {
  const { disk } = cluster();
  const bytes = disk.read(path);
  const isFolder = disk.list(path) !== undefined;
  if (bytes === undefined && !isFolder) throw missing(path);
  return { size: bytes?.length ?? 0, isFile: () => bytes !== undefined, isDirectory: () => isFolder };
}

export async function mkdir(path: string): Promise<void> {
  giveTurn();
  cluster().disk.makeFolder(path);
}

export async function open(path: string, flag: "r" | "wx"): Promise<FileHandle> {
  giveTurn();
  const { disk } = cluster();
  if (flag === "r" && disk.read(path) === undefined) throw missing(path);
  const file = flag === "wx" ? disk.create(path) : undefined;
  return {
    async read(target: Uint8Array, offset: number, length: number, position: number) {
      const bytes = (cluster().disk.read(path) ?? new Uint8Array()).subarray(position, position + length);
      target.set(bytes, offset);
      return { bytesRead: bytes.length };
    },
    async write(source: Uint8Array, offset: number, length: number, _position: number) {
      giveTurn();
      file?.write(source.subarray(offset, offset + length));
      return { bytesWritten: length };
    },
    async writeFile(source: Uint8Array) {
      giveTurn();
      file?.write(source);
    },
    async sync() {
      giveTurn();
      file?.sync();
    },
    async stat() {
      return statusOf(path);
    },
    async close() {},
  };
}

export async function openDirect(): Promise<undefined> {}

export async function readFile(path: string): Promise<Uint8Array> {
  const bytes = cluster().disk.read(path);
  if (bytes === undefined) throw missing(path);
  return bytes;
}

export async function readdir(path: string): Promise<string[]> {
  const names = cluster().disk.list(path);
  if (names === undefined) throw missing(path);
  return names;
}

export async function rename(from: string, to: string): Promise<void> {
  giveTurn();
  cluster().disk.rename(from, to);
}

export async function rm(path: string): Promise<void> {
  giveTurn();
  cluster().disk.remove(path);
}

export async function stat(path: string): Promise<FileStatus> {
  return statusOf(path);
}

export async function freeBytes(): Promise<number> {
  return 0;
}

export async function syncFolder(path: string): Promise<void> {
  giveTurn();
  cluster().disk.syncFolder(path);
}

// Files of records and locks are not part of the simulated jobs.
const unused = (): never => {
  throw new Error("this is not simulated");
};
export const [closeSync, fstatSync, ftruncateSync, openToAppend, writeSync] = [
  unused,
  unused,
  unused,
  unused,
  unused,
];
