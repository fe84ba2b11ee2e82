/** Files in the safetensors format; `safetensorsBytes.ts` has the format itself. */

import { type FileHandle, open } from "#platform/fs";
import { need } from "../../../ir/arguments.js";
import { ValueError } from "../../../ir/errors.js";
import { reasonOf, systemCode } from "../disk/fileError.js";
import { replaceFile } from "../disk/files.js";
import {
  arrayOf,
  bytesOf,
  layOutSafetensors,
  type SafetensorsContents,
  type StoredArray,
} from "./safetensorsBytes.js";
import {
  lengthBytes,
  parseHeader,
  parseHeaderLength,
  SafetensorsError,
  type SafetensorsHeader,
} from "./safetensorsHeader.js";

/**
 * Reads and checks the header of a file, without the elements.
 *
 * @example
 * ```ts
 * const array = { dtype: "float32", shape: [2], data: Float32Array.of(1, 2) };
 * await train.writeSafetensors("header.safetensors", [["w", array]]);
 * (await train.readSafetensorsHeader("header.safetensors")).tensors.get("w").shape; // [2]
 * ```
 */
export async function readSafetensorsHeader(path: string): Promise<SafetensorsHeader> {
  need("path", path, "path", "readSafetensorsHeader");
  const handle = await openFile(path);
  try {
    return await readHeader(handle, path);
  } finally {
    await handle.close();
  }
}

/**
 * Reads a file.
 *
 * @param names the tensors to read; all by default; others may have types such as I64, which tensors do not support
 *
 * @example
 * ```ts
 * const array = { dtype: "float32", shape: [2], data: Float32Array.of(1, 2) };
 * await train.writeSafetensors("read.safetensors", [["w", array]]);
 * Array.from((await train.readSafetensors("read.safetensors")).tensors.get("w").data); // [1, 2]
 * ```
 */
export async function readSafetensors(path: string, names?: Iterable<string>): Promise<SafetensorsContents> {
  need("path", path, "path", "readSafetensors");
  const chosen = names === undefined ? undefined : namesOf(names);
  const handle = await openFile(path);
  try {
    const header = await readHeader(handle, path);
    const tensors = new Map<string, StoredArray>();
    for (const name of chosen ?? header.tensors.keys()) {
      const tensor = header.tensors.get(name);
      if (!tensor) throw new ValueError(`[readSafetensors] ${path} holds no tensor ${JSON.stringify(name)}`);
      tensors.set(name, arrayOf(tensor, await readBytes(handle, tensor.start, tensor.end, path), path));
    }
    return { tensors, metadata: header.metadata };
  } finally {
    await handle.close();
  }
}

function namesOf(names: Iterable<string>): readonly string[] {
  const isIterable = typeof names === "object" && names !== null && Symbol.iterator in names;
  const list: unknown = isIterable ? [...names] : names;
  need("strings", list, "names", "readSafetensors");
  return list;
}

/**
 * Writes a file. It appears under its name only when it is complete, so a reader never sees a part of it.
 *
 * @example
 * ```ts
 * const array = { dtype: "float32", shape: [2], data: Float32Array.of(1, 2) };
 * await train.writeSafetensors("model.safetensors", [["w", array]], [["format", "pt"]]);
 * (await train.readSafetensors("model.safetensors")).metadata.get("format"); // pt
 * ```
 */
export async function writeSafetensors(
  path: string,
  tensors: Iterable<readonly [name: string, array: StoredArray]>,
  metadata: Iterable<readonly [string, string]> = [],
): Promise<void> {
  need("path", path, "path", "writeSafetensors");
  const { header, arrays } = layOutSafetensors(tensors, metadata);
  try {
    await replaceFile(path, [header, ...arrays.map(({ data }) => bytesOf(data))]);
  } catch (error) {
    if (systemCode(error) === undefined) throw error;
    throw new SafetensorsError(path, 0, reasonOf(error), { cause: error });
  }
}

/** Reads the bytes of an open file from `start` to `end`, into new memory by default. */
export type ReadRange = (start: number, end: number, target?: Uint8Array) => Promise<Uint8Array>;

/** Runs `use` with a file that stays open meanwhile. */
export async function withTensorFile<T>(path: string, use: (read: ReadRange) => Promise<T>): Promise<T> {
  const handle = await openFile(path);
  try {
    return await use((start, end, target) => readBytes(handle, start, end, path, target));
  } finally {
    await handle.close();
  }
}

async function openFile(path: string): Promise<FileHandle> {
  try {
    return await open(path, "r");
  } catch (cause) {
    throw new SafetensorsError(path, 0, `the file cannot be opened (${reasonOf(cause)})`, { cause });
  }
}

async function statOf(handle: FileHandle): Promise<{ size: number; isFile: boolean }> {
  const found = await handle.stat();
  return { size: found.size, isFile: found.isFile() };
}

async function readHeader(handle: FileHandle, path: string): Promise<SafetensorsHeader> {
  const { size, isFile } = await statOf(handle);
  if (!isFile) throw new SafetensorsError(path, 0, "it is not a file");
  const start = await readBytes(handle, 0, Math.min(size, lengthBytes), path);
  const length = parseHeaderLength(start, size, path);
  return parseHeader(await readBytes(handle, lengthBytes, lengthBytes + length, path), size, path);
}

/** Maximum number of bytes per read; some systems truncate longer ones. */
const chunkBytes = 2 ** 30;

async function readBytes(
  handle: FileHandle,
  start: number,
  end: number,
  path: string,
  bytes: Uint8Array = new Uint8Array(end - start),
): Promise<Uint8Array> {
  let filled = 0;
  while (filled < bytes.length) {
    const wanted = Math.min(bytes.length - filled, chunkBytes);
    const { bytesRead } = await handle.read(bytes, filled, wanted, start + filled);
    if (bytesRead === 0) throw new SafetensorsError(path, start + filled, "the file ended while it was read");
    filled += bytesRead;
  }
  return bytes;
}
