/** Models stored in several safetensors files, with or without an index that maps tensors to files. */

import { readdir, readFile, stat } from "#platform/fs";
import { basename, dirname, join } from "#platform/path";
import { need } from "../../../ir/arguments.js";
import { TreeError, ValueError } from "../../../ir/errors.js";
import { parseJson } from "../../../ir/jsonReaders.js";
import { reasonOf } from "../disk/fileError.js";
import { isObject } from "../disk/json.js";
import { readSafetensorsHeader } from "./safetensors.js";
import { maxHeaderBytes, SafetensorsError, type StoredTensor } from "./safetensorsHeader.js";

/** The tensors of some files by name, each with the file that holds it. */
export interface FoundTensors {
  readonly tensors: ReadonlyMap<string, { readonly file: string; readonly tensor: StoredTensor }>;
  readonly files: readonly string[];
}

/** The file name suffix of an index. */
const indexEnding = ".safetensors.index.json";

/**
 * Reads the headers of all files of a model.
 *
 * @param path a file, a folder with the files of a model, their index, or several files
 */
export async function findTensors(path: string | readonly string[], caller: string): Promise<FoundTensors> {
  if (typeof path !== "string") {
    need("strings", path, "path", caller);
    if (path.length === 0) throw new ValueError(`[${caller}] path is an empty array: name at least one file`);
    return readHeaders(path, caller);
  }
  need("path", path, "path", caller);
  if (path.endsWith(indexEnding)) return readIndexed(path, caller);
  const isFolder = await stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
  if (!isFolder) return readHeaders([path], caller);
  const names = (await readdir(path)).sort();
  const indices = names.filter((name) => name.endsWith(indexEnding));
  if (indices.length > 1) {
    throw new ValueError(`[${caller}] ${path} has several models: name one of ${indices.join(", ")}`);
  }
  const [index] = indices;
  if (index !== undefined) return readIndexed(join(path, index), caller);
  const files = names.filter((name) => name.endsWith(".safetensors")).map((name) => join(path, name));
  if (files.length > 0) return readHeaders(files, caller);
  throw new SafetensorsError(path, 0, "the folder has no file that ends with .safetensors");
}

async function readHeaders(files: readonly string[], caller: string): Promise<FoundTensors> {
  const tensors = new Map<string, { readonly file: string; readonly tensor: StoredTensor }>();
  for (const file of files) {
    for (const [name, tensor] of (await readSafetensorsHeader(file)).tensors) {
      const other = tensors.get(name);
      if (other) {
        throw new TreeError(
          `[${caller}] ${other.file} and ${file} both hold "${name}": name the files of one model, each once`,
        );
      }
      tensors.set(name, { file, tensor });
    }
  }
  return { tensors, files };
}

/** The tensors of the files that an index names; each must be in the file that the index names. */
async function readIndexed(index: string, caller: string): Promise<FoundTensors> {
  const map = await readWeightMap(index);
  const fileOf = new Map([...map].map(([name, file]) => [name, join(dirname(index), file)]));
  const found = await readHeaders([...new Set(fileOf.values())].sort(), caller);
  for (const [name, file] of fileOf) {
    if (found.tensors.get(name)?.file === file) continue;
    throw new SafetensorsError(
      file,
      0,
      `it has no tensor ${JSON.stringify(name)}, which ${basename(index)} lists for it: download both again`,
    );
  }
  return found;
}

async function readWeightMap(index: string): Promise<Map<string, string>> {
  const fail = (rule: string, cause?: unknown) => new SafetensorsError(index, 0, rule, { cause });
  const bytes = await stat(index)
    .then(({ size }) => {
      if (size > maxHeaderBytes) throw fail(`${size} bytes are over the limit ${maxHeaderBytes}`);
      return readFile(index, "utf8");
    })
    .catch((error: unknown) => {
      throw error instanceof SafetensorsError ? error : fail(reasonOf(error), error);
    });
  const json = parseJson(bytes, (reason, cause) => fail(`the index is not JSON (${reason})`, cause));
  const map = isObject(json) ? json.weight_map : undefined;
  if (!isObject(map)) throw fail("the index has no weight_map, an object from names of tensors to files");
  return new Map(
    Object.entries(map).map(([name, file]) => {
      if (typeof file !== "string" || basename(file) !== file || !file.endsWith(".safetensors")) {
        const given = JSON.stringify(file);
        throw fail(
          `the file of ${JSON.stringify(name)} must be a file name in the folder of the index, got ${given}`,
        );
      }
      return [name, file];
    }),
  );
}
