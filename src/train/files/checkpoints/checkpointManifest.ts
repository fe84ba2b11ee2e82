/** The manifest of a checkpoint. It is untrusted input: every field is checked before it is used. */

import * as json from "../../../ir/jsonReaders.js";
import type { MeshAxis, Spec } from "../../../ir/mesh.js";
import { isTyped, type Shape } from "../../../ir/shape.js";
import { type DimNames, Partitioned } from "../../../nn/modules/partitioned.js";
import * as tree from "../../../trace/tree.js";
import { FileError } from "../disk/fileError.js";
import { parseJsonFile } from "../disk/json.js";
import { isStoredDType, type StoredDType } from "../safetensors/safetensorsBytes.js";
import { checkSeal, seal } from "./seal.js";

const { arrayOf, count, fields, ifGiven, list, matching, object, ofKind, orNull, string } = json;

/** A JSON value. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** A file of tensors. */
export interface ManifestFile {
  readonly name: string;
  readonly bytes: number;
  /** The SHA-256 over the checksums of its pieces; up to version 2 over all its bytes. */
  readonly sha256: string;
  /** The checksums of its pieces, which locate damage; empty in files of version 1. */
  readonly pieces: string;
}

/** A tensor: whole, whatever mesh it was saved from. */
export interface ManifestLeaf {
  readonly path: string;
  readonly dtype: StoredDType;
  readonly shape: Shape;
  /** How it was split when it was saved; for information. */
  readonly spec: Spec;
  /** The index of the file that holds it. */
  readonly file: number;
}

/** A tree whose leaves are indices of {@link ManifestLeaf}. */
export type StoredTree =
  | null
  | number
  | { readonly list: readonly StoredTree[] }
  | { readonly object: readonly (readonly [key: string, value: StoredTree])[] }
  | { readonly partitioned: DimNames; readonly value: StoredTree };

/** The content of `manifest.json`. */
export interface Manifest {
  readonly format: typeof manifestFormat;
  readonly version: number;
  readonly step: number;
  readonly mesh: readonly MeshAxis[] | null;
  readonly rng: Json;
  readonly data: Json;
  readonly config: Json;
  readonly tree: StoredTree;
  readonly leaves: readonly ManifestLeaf[];
  readonly files: readonly ManifestFile[];
}

/** The format name in every manifest. */
export const manifestFormat = "shardwise-checkpoint";
/**
 * The version that is written. Also readable: version 1, which has no checksum of the manifest; version 2, in which the
 * checksum of a file is over its bytes and not over the checksums of its pieces; and version 3, in which pieces are hashed
 * with SHA-256.
 */
export const manifestVersion = 4;
/** The file name of the manifest. */
export const manifestName = "manifest.json";

/** Larger manifests are not read. */
export const maxManifestBytes = 2 ** 28;
const maxDepth = 200;
const maxDims = 64;

/** The tree of a value, with numbered leaves. Boxes other than `nn.Partitioned` are dropped. */
export function storeTree(values: unknown): StoredTree {
  let next = 0;
  const store = (node: unknown): StoredTree => {
    if (isTyped(node)) return next++;
    const { leaves, structure } = tree.flatten(node, (child) => child !== node);
    const children = leaves.map(store);
    if (node instanceof Partitioned) return { partitioned: node.names, value: children[0] ?? null };
    switch (structure.kind) {
      case "object":
        return { object: structure.keys.map((key, i) => [key, children[i] ?? null] as const) };
      case "array":
        return { list: children };
      case "class":
        return children.length === 1 ? (children[0] ?? null) : { list: children };
      default:
        return null;
    }
  };
  return store(values);
}

/** The value of a stored tree: plain lists and objects, and `nn.Partitioned` boxes. */
export function loadTree(stored: StoredTree, leaves: readonly unknown[]): unknown {
  if (stored === null) return null;
  if (typeof stored === "number") return leaves[stored];
  if ("list" in stored) return stored.list.map((child) => loadTree(child, leaves));
  if ("object" in stored) {
    return Object.fromEntries(stored.object.map(([key, child]) => [key, loadTree(child, leaves)]));
  }
  return new Partitioned(loadTree(stored.value, leaves), stored.partitioned);
}

/** The bytes of a manifest; its last field is a seal over all others. */
export function formatManifest(manifest: Manifest): Uint8Array {
  return seal(`${JSON.stringify(manifest, null, 1)}\n`);
}

/** Reads a manifest. @param file the name used in error messages */
export function parseManifest(bytes: Uint8Array, file: string): Manifest {
  const isSealed = checkSeal(bytes, file);
  const value = parseJsonFile(new TextDecoder().decode(bytes), "checkpoint", file);
  return readManifest(value, isSealed, (where, rule, got) => {
    const found = JSON.stringify(got) ?? "nothing";
    const short = found.length > 60 ? `${found.slice(0, 60)}…` : found;
    return new FileError("checkpoint", file, 0, `${where} ${rule}, got ${short}`);
  });
}

/** Turns parsed JSON into a manifest, or names the field that is wrong. */
function readManifest(value: unknown, isSealed: boolean, wrong: json.MakeJsonError): Manifest {
  const given = fields(value, "the manifest", wrong);
  if (given.format !== manifestFormat) throw wrong("format", `must be "${manifestFormat}"`, given.format);
  const version = count(given.version, "version", wrong);
  if (version < 1 || version > manifestVersion) {
    throw wrong("version", `must be from 1 to ${manifestVersion}; another release wrote this file`, version);
  }
  if (version > 1 && !isSealed)
    throw wrong("seal", "must be the last field, with the checksum of all others", given.seal);
  const files = arrayOf(readFile)(given.files, "files", wrong);
  const leaves = arrayOf(readLeaf(files.length))(given.leaves, "leaves", wrong);
  checkUnique(
    files.map(({ name }) => name),
    "files",
    wrong,
  );
  checkUnique(
    leaves.map(({ path }) => path),
    "leaves",
    wrong,
  );
  const seen = new Set<number>();
  const stored = readTree(leaves.length, seen)(given.tree, "tree", wrong);
  if (seen.size !== leaves.length) throw wrong("tree", `must name all ${leaves.length} leaves`, seen.size);
  return {
    format: manifestFormat,
    version,
    step: count(given.step, "step", wrong),
    mesh: orNull(arrayOf(object({ name: string, size: count })))(given.mesh, "mesh", wrong),
    rng: (given.rng ?? null) as Json,
    data: (given.data ?? null) as Json,
    config: (given.config ?? null) as Json,
    tree: stored,
    leaves,
    files,
  };
}

const readFile: json.JsonReader<ManifestFile> = (value, where, wrong) => ({
  pieces: "",
  ...fileFields(value, where, wrong),
});

const fileFields = object({
  // The name goes into a path, so nothing but the names that are written is accepted.
  name: matching(
    /^tensors-\d{5,9}-of-\d{5,9}\.safetensors$/,
    "must be like tensors-00001-of-00002.safetensors",
  ),
  bytes: count,
  sha256: matching(/^[0-9a-f]{64}$/, "must be 64 hexadecimal digits"),
  pieces: ifGiven(matching(/^(?:[0-9a-f]{16})*$/, "must be 16 hexadecimal digits for each piece")),
});

const axisNames = arrayOf<string>((value, where, wrong) => {
  if (typeof value === "string") return value;
  throw wrong(where.replace(/\[\d+\]$/, ""), "must be an array of axis names", value);
});

const leafFields = object({
  path: string,
  dtype: ofKind(
    (value): value is StoredDType => typeof value === "string" && isStoredDType(value),
    "must be a data type",
  ),
  shape: arrayOf(count),
  spec: arrayOf(axisNames),
  file: count,
});

const readLeaf =
  (numFiles: number): json.JsonReader<ManifestLeaf> =>
  (value, where, wrong) => {
    const leaf = leafFields(value, where, wrong);
    const { shape, file } = leaf;
    if (shape.length > maxDims)
      throw wrong(`${where}.shape`, `must have at most ${maxDims} dims`, shape.length);
    if (file >= numFiles) throw wrong(`${where}.file`, `must be below ${numFiles}`, file);
    return leaf;
  };

const readTree =
  (numLeaves: number, seen: Set<number>, depth = 0): json.JsonReader<StoredTree> =>
  (value, where, wrong) => {
    if (depth > maxDepth) throw wrong("tree", `must be at most ${maxDepth} levels deep`, depth);
    if (value === null) return null;
    if (typeof value === "number") {
      const index = count(value, where, wrong);
      if (index >= numLeaves || seen.has(index)) {
        throw wrong(where, `must be the index of a leaf (below ${numLeaves}) that is used once`, index);
      }
      seen.add(index);
      return index;
    }
    const inner = readTree(numLeaves, seen, depth + 1);
    const read = (child: unknown, at: string) => inner(child ?? null, at, wrong);
    const given = fields(value, where, wrong);
    if ("list" in given) {
      return {
        list: list(given.list, `${where}.list`, wrong).map((child, i) => read(child, `${where}[${i}]`)),
      };
    }
    if ("object" in given) {
      const entries = list(given.object, `${where}.object`, wrong).map((entry, i) => {
        const [key, child] = list(entry, `${where}.object[${i}]`, wrong);
        if (typeof key !== "string") throw wrong(`${where}.object[${i}]`, "must start with a key", key);
        return [key, read(child, `${where}.${key}`)] as const;
      });
      checkUnique(
        entries.map(([key]) => key),
        where,
        wrong,
      );
      return { object: entries };
    }
    const readNames: json.JsonReader<string | null | readonly string[]> = (name, ...at) =>
      name === null || typeof name === "string" ? name : axisNames(name, ...at);
    const partitioned = arrayOf(readNames)(given.partitioned, `${where}.partitioned`, wrong);
    return { partitioned, value: read(given.value, where) };
  };

function checkUnique(names: readonly string[], where: string, wrong: json.MakeJsonError): void {
  const seen = new Set<string>();
  for (const name of names) {
    if (seen.has(name)) throw wrong(where, "must not name anything twice", name);
    seen.add(name);
  }
}
