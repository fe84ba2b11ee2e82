import type { FileStore } from "./memoryFiles.js";
import { namesOf } from "./path.browser.js";

const isMissing = (error: unknown) =>
  error instanceof DOMException && (error.name === "NotFoundError" || error.name === "TypeMismatchError");

/** The folder that some names lead to, each inside of the one before. */
export async function folderAt(
  names: readonly string[],
  create: boolean,
): Promise<FileSystemDirectoryHandle> {
  if (globalThis.navigator.storage?.getDirectory === undefined)
    throw new Error(
      "this page has no private file system: serve it by https: or from this machine, to a browser that has one",
    );
  let folder = await navigator.storage.getDirectory();
  for (const name of names) folder = await folder.getDirectoryHandle(name, { create });
  return folder;
}

/** The folder of a path, and the last name in it. */
async function placeOf(path: string, create: boolean): Promise<[FileSystemDirectoryHandle, string]> {
  const names = namesOf(path);
  return [await folderAt(names.slice(0, -1), create), names.at(-1) ?? ""];
}

/** What an action finds; undefined where there is no such file or folder. */
async function ifThere<T>(action: () => Promise<T>): Promise<T | undefined> {
  try {
    return await action();
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/** A file of a folder; undefined without one. */
export const fileIn = (folder: FileSystemDirectoryHandle, name: string): Promise<File | undefined> =>
  ifThere(async () => (await folder.getFileHandle(name)).getFile());

const fileAt = (path: string) => ifThere(async () => fileIn(...(await placeOf(path, false))));

/** Writes a file of a folder as a whole or not at all. */
export async function writeIn(
  folder: FileSystemDirectoryHandle,
  name: string,
  bytes: Uint8Array,
): Promise<void> {
  const writable = await (await folder.getFileHandle(name, { create: true })).createWritable();
  try {
    await writable.write(bytes.slice());
  } catch (error) {
    await writable.abort();
    throw error;
  }
  await writable.close();
}

/** Removes a file of a folder, or a folder with everything in it where that is wanted, if it exists. */
export const removeIn = (
  folder: FileSystemDirectoryHandle,
  name: string,
  options?: FileSystemRemoveOptions,
): Promise<void> => ifThere(() => folder.removeEntry(name, options));

/** The files and folders in a folder; TypeScript's library does not declare how to list them. */
export const entriesOf = (folder: FileSystemDirectoryHandle): AsyncIterable<FileSystemHandle> =>
  (folder as unknown as { values(): AsyncIterable<FileSystemHandle> }).values();

/** The origin's private file system: written as a whole or not at all, file by file. */
export const originStore: FileStore = {
  async *list(path) {
    const found = await ifThere(() => folderAt(namesOf(path), false));
    if (found) yield* filesIn(found, namesOf(path).join("/"));
  },
  size: async (path) => (await fileAt(path))?.size,
  async read(path, start, end) {
    const file = await fileAt(path);
    if (file === undefined) throw new Error(`${path} is no longer there`);
    return new Uint8Array(await file.slice(start, end).arrayBuffer());
  },
  async write(path, bytes) {
    await writeIn(...(await placeOf(path, true)), bytes);
  },
  async remove(path) {
    await ifThere(async () => removeIn(...(await placeOf(path, false)), { recursive: true }));
  },
};

async function* filesIn(
  folder: FileSystemDirectoryHandle,
  path: string,
): AsyncGenerator<readonly [path: string, size: number]> {
  for await (const entry of entriesOf(folder)) {
    const inside = path === "" ? entry.name : `${path}/${entry.name}`;
    if (entry.kind === "directory") yield* filesIn(entry as FileSystemDirectoryHandle, inside);
    else yield [inside, (await (entry as FileSystemFileHandle).getFile()).size];
  }
}
