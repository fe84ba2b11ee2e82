import type * as node from "./fs.js";
import { MemoryFiles } from "./memoryFiles.js";
import { originStore } from "./originStore.js";

/** The files of this page; those of other pages of the origin are seen when a folder is opened. */
const files = new MemoryFiles(originStore);
const encoder = new TextEncoder();
const decoder = new TextDecoder();
const bytesOf = (content: Uint8Array | string) =>
  typeof content === "string" ? encoder.encode(content) : content;

export const existsSync: typeof node.existsSync = (path) => files.status(path) !== undefined;
export const mkdirSync: typeof node.mkdirSync = (path) => files.makeFolder(path);
export const readdirSync: typeof node.readdirSync = (path) => files.list(path);
export const readFileSync: typeof node.readFileSync = (path) => decoder.decode(files.read(path));
export const renameSync: typeof node.renameSync = (from, to) => files.rename(from, to);
export const rmSync: typeof node.rmSync = (path, options) => files.remove(path, options?.force);
export const writeFileSync: typeof node.writeFileSync = (path, content, options) =>
  files.write(path, encoder.encode(content), options?.flag === "wx");

/** The paths of all files that were opened; the number of a file is its index. */
const opened: string[] = [];

function numbered(path: string): number {
  files.pin(path, 1);
  return opened.push(path) - 1;
}

const pathOf = (file: number) => opened[file] ?? "";

export const openSync: typeof node.openSync = (path) => {
  files.write(path, new Uint8Array(), true);
  return numbered(path);
};
export const openToAppend: typeof node.openToAppend = (path) => {
  if (files.status(path) === undefined) files.write(path, new Uint8Array(), true);
  return numbered(path);
};
export const writeSync: typeof node.writeSync = (file, content, offset = 0) =>
  files.append(pathOf(file), bytesOf(content).subarray(offset));
export const fstatSync: typeof node.fstatSync = (file) => files.needStatus(pathOf(file));
export const ftruncateSync: typeof node.ftruncateSync = (file, size) => files.truncate(pathOf(file), size);
export const closeSync: typeof node.closeSync = (file) => files.pin(pathOf(file), -1);

const isAddress = (path: string) => /^(?:https?|blob|data):/.test(path);

/** The whole of a file, or of what an address leads to. */
async function wholeOf(path: string): Promise<Uint8Array> {
  if (!isAddress(path)) return files.readLater(path);
  const response = await fetch(path);
  if (!response.ok) throw new Error(`the server answers ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

export const readFile = (async (path: string, encoding?: "utf8") => {
  const bytes = await wholeOf(path);
  return encoding === undefined ? bytes : decoder.decode(bytes);
}) as typeof node.readFile;
export const stat: typeof node.stat = async (path) => {
  if (!isAddress(path)) return files.statusLater(path);
  const { length: size } = await wholeOf(path);
  return { size, isFile: () => true, isDirectory: () => false };
};
export const writeFile: typeof node.writeFile = async (path, content) =>
  files.write(path, encoder.encode(content));
export const copyFile: typeof node.copyFile = async (from, to) => files.write(to, await wholeOf(from));
export const mkdir: typeof node.mkdir = async (path) => void files.makeFolder(path);
export const readdir: typeof node.readdir = async (path) => files.list(path);
export const rename: typeof node.rename = async (from, to) => {
  await files.load(from);
  files.rename(from, to);
};
export const rm: typeof node.rm = async (path, { force }) => files.remove(path, force);

export const open: typeof node.open = async (path, flag) => {
  if (flag === "wx") files.write(path, new Uint8Array(), true);
  else await files.statusLater(path);
  files.pin(path, 1);
  return {
    read: (target, offset, length, position) => files.readInto(path, target, offset, length, position),
    write: async (source, offset, length) => ({
      bytesWritten: files.append(path, source.subarray(offset, offset + length)),
    }),
    writeFile: async (source) => void files.append(path, source),
    // A folder that is synchronised writes its files, once they have their final names.
    sync: async () => {},
    stat: () => files.statusLater(path),
    close: async () => files.pin(path, -1),
  };
};

export const openDirect: typeof node.openDirect = async () => undefined;

export const freeBytes: typeof node.freeBytes = async () => {
  const { quota = 0, usage = 0 } = await navigator.storage.estimate();
  return quota - usage;
};
export const syncFolder: typeof node.syncFolder = () => files.flush();

export const withFolders: typeof node.withFolders = async (folders, action) => {
  await Promise.all(folders.map((folder) => files.open(folder)));
  try {
    return await action();
  } finally {
    await files.flush();
  }
};
