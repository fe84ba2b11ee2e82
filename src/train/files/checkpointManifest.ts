/** The manifest of a checkpoint. It is untrusted input: every field is checked before it is used. */
import type { MeshAxis, Spec } from "../../ir/mesh.js";
import type { Shape } from "../../ir/shape.js";
import { isTyped } from "../../ir/shape.js";
import { type DimNames, Partitioned } from "../../nn/partitioned.js";
import * as tree from "../../trace/tree.js";
import { FileError, reasonOf } from "./fileError.js";
import { isObject, type JsonObject } from "./json.js";
import { isStoredDType, type StoredDType } from "./safetensorsBytes.js";
import { checkSeal, seal } from "./seal.js";

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
 * The version that is written. Also readable: version 1, which has no checksum of the manifest, and version 2, in which
 * the checksum of a file is over its bytes and not over the checksums of its pieces.
 */
export const manifestVersion = 3;
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
  const text = new TextDecoder().decode(bytes);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    const position = /position (\d+)/.exec(reasonOf(cause))?.[1];
    throw new FileError(
      "checkpoint",
      file,
      Number(position ?? text.length),
      `not JSON (${reasonOf(cause)})`,
      {
        cause,
      },
    );
  }
  return new ManifestReader(file, isSealed).read(value);
}

/** Turns parsed JSON into a manifest, or names the field that is wrong. */
class ManifestReader {
  constructor(
    private readonly file: string,
    private readonly isSealed: boolean,
  ) {}

  read(value: unknown): Manifest {
    const fields = this.fields(value, "the manifest");
    if (fields.format !== manifestFormat)
      throw this.wrong("format", `must be "${manifestFormat}"`, fields.format);
    const version = this.count(fields.version, "version");
    if (version < 1 || version > manifestVersion) {
      throw this.wrong(
        "version",
        `must be from 1 to ${manifestVersion}; another release wrote this file`,
        version,
      );
    }
    if (version > 1 && !this.isSealed)
      throw this.wrong("seal", "must be the last field, with the checksum of all others", fields.seal);
    const files = this.list(fields.files, "files").map((entry, i) => this.readFile(entry, `files[${i}]`));
    const leaves = this.list(fields.leaves, "leaves").map((entry, i) =>
      this.readLeaf(entry, `leaves[${i}]`, files.length),
    );
    this.unique(
      files.map(({ name }) => name),
      "files",
    );
    this.unique(
      leaves.map(({ path }) => path),
      "leaves",
    );
    const seen = new Set<number>();
    const stored = this.readTree(fields.tree, "tree", leaves.length, seen, 0);
    if (seen.size !== leaves.length)
      throw this.wrong("tree", `must name all ${leaves.length} leaves`, seen.size);
    return {
      format: manifestFormat,
      version,
      step: this.count(fields.step, "step"),
      mesh: this.readMesh(fields.mesh),
      rng: this.json(fields.rng),
      data: this.json(fields.data),
      config: this.json(fields.config),
      tree: stored,
      leaves,
      files,
    };
  }

  private readFile(value: unknown, where: string): ManifestFile {
    const { name, bytes, sha256, pieces = "" } = this.fields(value, where);
    // The name goes into a path, so nothing but the names that are written is accepted.
    if (typeof name !== "string" || !/^tensors-\d{5,9}-of-\d{5,9}\.safetensors$/.test(name)) {
      throw this.wrong(`${where}.name`, "must be like tensors-00001-of-00002.safetensors", name);
    }
    if (typeof sha256 !== "string" || !/^[0-9a-f]{64}$/.test(sha256)) {
      throw this.wrong(`${where}.sha256`, "must be 64 hexadecimal digits", sha256);
    }
    if (typeof pieces !== "string" || !/^(?:[0-9a-f]{16})*$/.test(pieces)) {
      throw this.wrong(`${where}.pieces`, "must be 16 hexadecimal digits for each piece", pieces);
    }
    return { name, bytes: this.count(bytes, `${where}.bytes`), sha256, pieces };
  }

  private readLeaf(value: unknown, where: string, numFiles: number): ManifestLeaf {
    const { path, dtype: name, shape, spec, file } = this.fields(value, where);
    if (typeof path !== "string") throw this.wrong(`${where}.path`, "must be a string", path);
    if (typeof name !== "string" || !isStoredDType(name)) {
      throw this.wrong(`${where}.dtype`, "must be a data type", name);
    }
    const sizes = this.list(shape, `${where}.shape`).map((n, d) => this.count(n, `${where}.shape[${d}]`));
    if (sizes.length > maxDims)
      throw this.wrong(`${where}.shape`, `must have at most ${maxDims} dims`, sizes.length);
    const axes = this.list(spec, `${where}.spec`).map((dim, d) => this.names(dim, `${where}.spec[${d}]`));
    const index = this.count(file, `${where}.file`);
    if (index >= numFiles) throw this.wrong(`${where}.file`, `must be below ${numFiles}`, index);
    return { path, dtype: name, shape: sizes, spec: axes, file: index };
  }

  private readMesh(value: unknown): MeshAxis[] | null {
    if (value === null) return null;
    return this.list(value, "mesh").map((axis, i) => {
      const { name, size } = this.fields(axis, `mesh[${i}]`);
      if (typeof name !== "string") throw this.wrong(`mesh[${i}].name`, "must be a string", name);
      return { name, size: this.count(size, `mesh[${i}].size`) };
    });
  }

  private readTree(
    value: unknown,
    where: string,
    numLeaves: number,
    seen: Set<number>,
    depth: number,
  ): StoredTree {
    if (depth > maxDepth) throw this.wrong("tree", `must be at most ${maxDepth} levels deep`, depth);
    if (value === null) return null;
    if (typeof value === "number") {
      const index = this.count(value, where);
      if (index >= numLeaves || seen.has(index)) {
        throw this.wrong(where, `must be the index of a leaf (below ${numLeaves}) that is used once`, index);
      }
      seen.add(index);
      return index;
    }
    const read = (child: unknown, at: string) => this.readTree(child, at, numLeaves, seen, depth + 1);
    const fields = this.fields(value, where);
    if ("list" in fields) {
      return {
        list: this.list(fields.list, `${where}.list`).map((child, i) => read(child, `${where}[${i}]`)),
      };
    }
    if ("object" in fields) {
      const entries = this.list(fields.object, `${where}.object`).map((entry, i) => {
        const [key, child] = this.list(entry, `${where}.object[${i}]`);
        if (typeof key !== "string") throw this.wrong(`${where}.object[${i}]`, "must start with a key", key);
        return [key, read(child ?? null, `${where}.${key}`)] as const;
      });
      this.unique(
        entries.map(([key]) => key),
        where,
      );
      return { object: entries };
    }
    const names = this.list(fields.partitioned, `${where}.partitioned`).map((name, d) => {
      if (name === null || typeof name === "string") return name;
      return this.names(name, `${where}.partitioned[${d}]`);
    });
    return { partitioned: names, value: read(fields.value ?? null, where) };
  }

  private names(value: unknown, where: string): string[] {
    return this.list(value, where).map((name) => {
      if (typeof name === "string") return name;
      throw this.wrong(where, "must be an array of axis names", name);
    });
  }

  private fields(value: unknown, where: string): JsonObject {
    if (isObject(value)) return value;
    throw this.wrong(where, "must be an object", value);
  }

  private list(value: unknown, where: string): readonly unknown[] {
    if (Array.isArray(value)) return value;
    throw this.wrong(where, "must be an array", value);
  }

  private count(value: unknown, where: string): number {
    if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) return value;
    throw this.wrong(where, "must be an integer of at least 0", value);
  }

  /** Everything that JSON.parse gives is JSON. */
  private json(value: unknown): Json {
    return (value ?? null) as Json;
  }

  private unique(names: readonly string[], where: string): void {
    const seen = new Set<string>();
    for (const name of names) {
      if (seen.has(name)) throw this.wrong(where, "must not name anything twice", name);
      seen.add(name);
    }
  }

  private wrong(where: string, rule: string, got: unknown): FileError {
    const text = JSON.stringify(got) ?? "nothing";
    const short = text.length > 60 ? `${text.slice(0, 60)}…` : text;
    return new FileError("checkpoint", this.file, 0, `${where} ${rule}, got ${short}`);
  }
}
