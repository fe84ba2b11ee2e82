/** Checkpoints where there are no folders: in the files that a browser keeps for a page's origin. */

import type { OriginFiles } from "#platform/pageStorage";
import { integerFrom, need } from "../../../ir/arguments.js";
import type { TensorType } from "../../../ir/shape.js";
import type { Tensor } from "../../../trace/tensor.js";
import type * as tree from "../../../trace/tree.js";
import { FileError } from "../disk/fileError.js";
import { parseJsonFile } from "../disk/json.js";
import { downloadBytes } from "../disk/pageFiles.js";
import { checkMatch } from "../safetensors/restoreMatch.js";
import { encodeSafetensors, parseSafetensors } from "../safetensors/safetensorsBytes.js";
import {
  download,
  type NamedLeaf,
  namedLeaves,
  type RestoreOptions,
  rebuild,
} from "../safetensors/treeFiles.js";

/** What a restore gives. */
export interface PageCheckpoint<T> {
  readonly step: number;
  /** The tree of the target with the tensors of the checkpoint. */
  readonly values: tree.MapTree<T, TensorType, Tensor>;
  /** What was saved with it. */
  readonly metadata: unknown;
}

/** Options of {@link PageCheckpoints.restore}. */
export interface PageRestoreOptions<T> extends RestoreOptions<T> {
  /** Which checkpoint; the last one by default. */
  readonly step?: number;
}

/** Checkpoints in a page's files, by step. */
export interface PageCheckpoints {
  /** Saves a tree of tensors. @param metadata anything that JSON can hold, such as the position in the data */
  save(step: number, values: unknown, metadata?: unknown): Promise<void>;
  /** The steps of all complete checkpoints, in order. */
  steps(): Promise<number[]>;
  /** Restores a tree like `target`, of which only types and shardings matter; undefined without a checkpoint. */
  restore<T>(target: T, options?: PageRestoreOptions<T>): Promise<PageCheckpoint<T> | undefined>;
  /** Removes a checkpoint if there is one. */
  remove(step: number): Promise<void>;
  /** Lets the user of the page save a checkpoint as a safetensors file. */
  download(step: number, name?: string): Promise<void>;
}

/** What is written after the tensors: a checkpoint without it is incomplete. */
interface Manifest {
  readonly bytes: number;
  readonly sha256: string;
  readonly metadata: unknown;
}

const caller = "checkpointsIn";
const stepNumber = integerFrom(0);
const tensorsOf = (step: number) => `step-${step}.safetensors`;
const manifestOf = (step: number) => `step-${step}.json`;

async function sha256(bytes: Uint8Array): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes.slice()));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function parseManifest(bytes: Uint8Array, file: string): Manifest {
  const found = parseJsonFile(new TextDecoder().decode(bytes), caller, file);
  const { bytes: length, sha256, metadata } = (found ?? {}) as Partial<Manifest>;
  if (typeof length !== "number" || typeof sha256 !== "string")
    throw new FileError(caller, file, 0, 'it lacks "bytes" or "sha256"');
  return { bytes: length, sha256, metadata };
}

/**
 * Checkpoints in files that a browser keeps, or in any others with these four functions. A checkpoint is complete when
 * all of it is written, and its checksum is compared when it is read.
 *
 * ```ts
 * const checkpoints = checkpointsIn(await openOriginFiles("runs/first"));
 * await checkpoints.save(100, state);
 * const last = await checkpoints.restore(state);
 * ```
 *
 * @example
 * ```ts
 * const kept = new Map<string, Uint8Array>();
 * const checkpoints = train.checkpointsIn({
 *   names: async () => [...kept.keys()],
 *   read: async (name) => kept.get(name),
 *   write: async (name, bytes) => void kept.set(name, bytes),
 *   remove: async (name) => void kept.delete(name),
 * });
 * await checkpoints.save(100, { w: np.ones([2]) });
 * await checkpoints.steps(); // [100]
 * ```
 */
export function checkpointsIn(files: OriginFiles): PageCheckpoints {
  need("object", files, "files", caller);
  return new StoredCheckpoints(files);
}

class StoredCheckpoints implements PageCheckpoints {
  constructor(private readonly files: OriginFiles) {}

  async save(step: number, values: unknown, metadata: unknown = null): Promise<void> {
    need(stepNumber, step, "step", "save");
    const leaves = namedLeaves(values, "save");
    const arrays = leaves.map(async (leaf) => {
      const { dtype, shape } = leaf.type;
      return [leaf.path, { dtype, shape, data: await download(leaf, "save") }] as const;
    });
    const bytes = encodeSafetensors(await Promise.all(arrays), [["step", String(step)]]);
    const manifest: Manifest = { bytes: bytes.length, sha256: await sha256(bytes), metadata };
    // An older checkpoint of this step is incomplete from here on.
    await this.files.remove(manifestOf(step));
    await this.files.write(tensorsOf(step), bytes);
    await this.files.write(manifestOf(step), new TextEncoder().encode(JSON.stringify(manifest)));
  }

  async steps(): Promise<number[]> {
    const names = new Set(await this.files.names());
    const steps = [...names].flatMap((name) => Number(/^step-(\d+)\.json$/.exec(name)?.[1] ?? []));
    return steps.filter((step) => names.has(tensorsOf(step))).sort((a, b) => a - b);
  }

  async restore<T>(target: T, options: PageRestoreOptions<T> = {}): Promise<PageCheckpoint<T> | undefined> {
    const { step = (await this.steps()).at(-1), ...placing } = options;
    if (step === undefined) return undefined;
    const { bytes, metadata } = await this.read(step);
    const { tensors } = parseSafetensors(bytes, tensorsOf(step));
    const wanted = namedLeaves(target, "restore");
    checkMatch(
      {
        caller: "restore",
        file: tensorsOf(step),
        wanted,
        held: tensors,
        unplaced: [...tensors.keys()].filter((name) => !wanted.some(({ path }) => path === name)),
        extraAdvice: "",
        nameOf: ({ path }) => path,
      },
      placing.missing,
    );
    const dataOf = ({ path }: NamedLeaf) => {
      const found = tensors.get(path);
      return found && Promise.resolve(found.data);
    };
    return { step, values: await rebuild(target, wanted, dataOf, placing, "restore"), metadata };
  }

  async remove(step: number): Promise<void> {
    need(stepNumber, step, "step", "remove");
    await this.files.remove(manifestOf(step));
    await this.files.remove(tensorsOf(step));
  }

  async download(step: number, name: string = tensorsOf(step)): Promise<void> {
    downloadBytes((await this.read(step)).bytes, name);
  }

  /** The bytes of a complete checkpoint, compared with its checksum. */
  private async read(step: number): Promise<{ readonly bytes: Uint8Array; readonly metadata: unknown }> {
    need(stepNumber, step, "step", "restore");
    const file = tensorsOf(step);
    const [sealed, bytes] = [await this.files.read(manifestOf(step)), await this.files.read(file)];
    if (sealed === undefined || bytes === undefined) {
      const there = (await this.steps()).join(", ") || "none";
      throw new FileError(
        caller,
        file,
        0,
        `there is no complete checkpoint of step ${step}: there are ${there}`,
      );
    }
    const manifest = parseManifest(sealed, manifestOf(step));
    if (bytes.length !== manifest.bytes)
      throw new FileError(
        caller,
        file,
        bytes.length,
        `it has ${bytes.length} bytes, and ${manifest.bytes} were written`,
      );
    if ((await sha256(bytes)) !== manifest.sha256)
      throw new FileError(
        caller,
        file,
        0,
        "its checksum differs: it is damaged; remove it and restore an older one",
      );
    return { bytes, metadata: manifest.metadata };
  }
}
