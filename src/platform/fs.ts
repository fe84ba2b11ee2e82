/** Files, as far as the library reads and writes any: the disk here, the origin's private file system in pages. */
import * as fs from "node:fs";
import * as promises from "node:fs/promises";

/** What is known about a file or folder. */
export interface FileStatus {
  readonly size: number;
  isFile(): boolean;
  isDirectory(): boolean;
}

/** An open file. */
export interface FileHandle {
  read(
    target: Uint8Array,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ readonly bytesRead: number }>;
  /** Writes bytes at a position, which is the end of the file. */
  write(
    source: Uint8Array,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ readonly bytesWritten: number }>;
  /** Appends the whole of some bytes. */
  writeFile(source: Uint8Array): Promise<void>;
  /** Returns when what was written is on the disk. */
  sync(): Promise<void>;
  stat(): Promise<FileStatus>;
  close(): Promise<void>;
}

/** How files are found, made and removed. */
interface Creation {
  readonly recursive?: boolean;
}
interface Removal {
  readonly recursive?: boolean;
  readonly force?: boolean;
}

/** `wx` refuses a file that exists. */
type WriteFlag = { readonly flag: "wx" };

export const existsSync: (path: string) => boolean = fs.existsSync;
/** Returns the first folder that it made. */
export const mkdirSync: (path: string, options: Creation) => string | undefined = (path, options) =>
  fs.mkdirSync(path, options) ?? undefined;
export const readdirSync: (path: string) => string[] = (path) => fs.readdirSync(path);
export const readFileSync: (path: string, encoding: "utf8") => string = fs.readFileSync;
export const renameSync: (from: string, to: string) => void = fs.renameSync;
export const rmSync: (path: string, options?: Removal) => void = fs.rmSync;
export const writeFileSync: (path: string, content: string, options?: WriteFlag) => void = fs.writeFileSync;

/** Opens a file for writing, `wx` one that must not exist, and returns its number. */
export const openSync: (path: string, flag: "wx") => number = (path, flag) => fs.openSync(path, flag);

/** Opens a file for appending. Symbolic links are not followed: their targets are not files of the run. */
export function openToAppend(path: string): number {
  const { O_APPEND, O_CREAT, O_WRONLY, O_NOFOLLOW = 0 } = fs.constants;
  return fs.openSync(path, O_APPEND | O_CREAT | O_WRONLY | O_NOFOLLOW, 0o666);
}

/** Writes at the end of a file; returns how many bytes were written. */
export const writeSync: (file: number, content: Uint8Array | string, offset?: number) => number = (
  file,
  content,
  offset,
) => (typeof content === "string" ? fs.writeSync(file, content) : fs.writeSync(file, content, offset));
export const fstatSync: (file: number) => FileStatus = (file) => fs.fstatSync(file);
export const ftruncateSync: (file: number, size: number) => void = fs.ftruncateSync;
export const closeSync: (file: number) => void = fs.closeSync;

export const copyFile: (from: string, to: string) => Promise<void> = promises.copyFile;
export const mkdir: (path: string, options: Creation) => Promise<void> = async (path, options) => {
  await promises.mkdir(path, options);
};
/** Opens a file: `r` for reading, `wx` for writing one that must not exist. */
export const open: (path: string, flag: "r" | "wx") => Promise<FileHandle> = promises.open;
/**
 * Opens a file for writing whole blocks past the system's cache, from memory that begins at a block; undefined where
 * that is not possible. Through the cache, files larger than it take several times as long.
 */
export async function openDirect(path: string): Promise<FileHandle | undefined> {
  const { O_WRONLY, O_DIRECT } = fs.constants;
  if (O_DIRECT === undefined) return undefined;
  return promises.open(path, O_WRONLY | O_DIRECT).catch(() => undefined);
}
export const readdir: (path: string) => Promise<string[]> = (path) => promises.readdir(path);
export function readFile(path: string): Promise<Uint8Array>;
export function readFile(path: string, encoding: "utf8"): Promise<string>;
export function readFile(path: string, encoding?: "utf8"): Promise<Uint8Array | string> {
  return promises.readFile(path, encoding);
}
export const rename: (from: string, to: string) => Promise<void> = promises.rename;
export const rm: (path: string, options: Removal) => Promise<void> = promises.rm;
export const stat: (path: string) => Promise<FileStatus> = (path) => promises.stat(path);
export const writeFile: (path: string, content: string) => Promise<void> = promises.writeFile;

/** How many bytes are free where a folder is. */
export async function freeBytes(folder: string): Promise<number> {
  const { bavail, bsize } = await promises.statfs(folder);
  return bavail * bsize;
}

/** Returns when the entries of a folder are on the disk. */
export async function syncFolder(path: string): Promise<void> {
  // Windows cannot open folders; renames are durable there without it.
  if (process.platform === "win32") return;
  const handle = await promises.open(path, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * Runs what works with files in folders. A page can look at its files only asynchronously: those in the folders are
 * listed before, and what was changed is written when this returns.
 */
export function withFolders<T>(_folders: readonly string[], action: () => Promise<T>): Promise<T> {
  return action();
}
