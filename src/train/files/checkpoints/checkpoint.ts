/**
 * Checkpoints: the state of a training as whole tensors in safetensors files, with a manifest that lists
 * their checksums, so that what was saved on one mesh loads on any other.
 *
 * ```
 * checkpoints/step-00000120/manifest.json
 * checkpoints/step-00000120/tensors-00001-of-00001.safetensors
 * ```
 */

import { readFile } from "#platform/fs";
import { join } from "#platform/path";
import { integerFrom, type Kind, need, needIfGiven, numberFrom } from "../../../ir/arguments.js";
import { type OptionsOf, optional, schema, type Values } from "../../../ir/schema.js";
import { range, type TensorType } from "../../../ir/shape.js";
import type { HostPart } from "../../../trace/storage.js";
import { Tensor } from "../../../trace/tensor.js";
import * as tree from "../../../trace/tree.js";
import { FileError, reasonOf } from "../disk/fileError.js";
import { type FileSystem, inParallel, nodeFileSystem } from "../disk/files.js";
import { permutedView, readView } from "../safetensors/fileViews.js";
import { checkMatch } from "../safetensors/restoreMatch.js";
import { readSafetensors, readSafetensorsHeader } from "../safetensors/safetensors.js";
import { type StoredArray, storedTypes } from "../safetensors/safetensorsBytes.js";
import type { StoredTensor } from "../safetensors/safetensorsHeader.js";
import { type NamedLeaf, namedLeaves, type RestoreOptions, rebuild } from "../safetensors/treeFiles.js";
import {
  loadTree,
  type Manifest,
  type ManifestFile,
  manifestName,
  maxManifestBytes,
  parseManifest,
} from "./checkpointManifest.js";
import { type CheckpointExtras, takeSnapshot } from "./checkpointSnapshot.js";
import { listSteps, MAX_FILES, removeOld, writeCheckpoint } from "./checkpointWrite.js";
import { checksumsOf, firstDifference } from "./pieceFiles.js";
import { alone, type ProcessGroup } from "./processGroup.js";

/** Options of {@link Checkpoint.restore} for a target of type `T`. */
export interface CheckpointRestoreOptions<T = unknown> extends RestoreOptions<T> {
  /** Loads only the leaves of the target, such as `params` of a state, and leaves out what else was saved. */
  readonly partial?: boolean;
}

/** A checkpoint that was found complete; its tensors are read when asked for. */
export class Checkpoint {
  readonly folder: string;
  readonly manifest: Manifest;
  /** The files that were compared with their checksums, or are; reading does not compare them again. */
  private readonly verified = new Map<number, Promise<void>>();

  /** @internal */
  constructor(folder: string, manifest: Manifest) {
    this.folder = folder;
    this.manifest = manifest;
  }

  /** The number of completed steps when it was saved. */
  get step(): number {
    return this.manifest.step;
  }

  /** Compares every file with its checksum; throws a {@link FileError} that names the first damaged one. */
  async verify(): Promise<void> {
    this.verified.clear();
    await this.verifyFiles(range(this.manifest.files.length));
  }

  /** All tensors as they are stored, by path. */
  async read(): Promise<Map<string, StoredArray>> {
    await this.verify();
    const arrays = new Map<string, StoredArray>();
    for (const file of range(this.manifest.files.length)) {
      await this.checkHeader(file);
      const { tensors } = await readSafetensors(this.fileName(file));
      for (const [path, array] of tensors) arrays.set(path, array);
    }
    return arrays;
  }

  /**
   * The saved state in the structure of `target`, whose leaves are tensors or the types that `evalShape` returns.
   * Tensors are placed as the options say, or else like those of the target.
   *
   * ```ts
   * const state = await checkpoint.restore(evalShape(initState)(key), { mesh });
   * const { params } = await checkpoint.restore({ params: target }, { partial: true });
   * ```
   */
  async restore<T>(
    target: T,
    options: CheckpointRestoreOptions<T> = {},
  ): Promise<tree.MapTree<T, TensorType, Tensor>> {
    const { partial = false, missing } = options;
    const wanted = namedLeaves(target, "restore");
    const paths = new Set(wanted.map(({ path }) => path));
    const held = new Map(
      this.manifest.leaves.filter(({ path }) => paths.has(path)).map((leaf) => [leaf.path, leaf]),
    );
    const unplaced = this.manifest.leaves.map(({ path }) => path).filter((path) => !paths.has(path));
    const sides = {
      wanted,
      held,
      unplaced,
      ...(partial ? {} : { extra: () => true }),
      extraAdvice: "{ partial: true } to load only the leaves of the target",
      nameOf: ({ path }: { path: string }) => path,
    };
    checkMatch({ caller: "restore", file: this.folder, ...sides }, missing);
    // Restoring a part of a checkpoint reads only the files that hold it.
    const files = partial
      ? new Set([...held.values()].map(({ file }) => file))
      : range(this.manifest.files.length);
    const read = async () => {
      const tensors = new Map<string, { readonly file: string; readonly tensor: StoredTensor }>();
      for (const file of files) {
        for (const [path, tensor] of await this.checkHeader(file))
          tensors.set(path, { file: this.fileName(file), tensor });
      }
      const parts = ({ path, type }: NamedLeaf) => {
        const leaf = held.get(path);
        if (!leaf) return undefined;
        const { names, ...rest } = permutedView([path], leaf.shape, range(leaf.shape.length));
        return (part?: HostPart, memory?: Uint8Array) =>
          readView({ names, numStacked: 0, ...rest }, { tensors }, type, part, memory);
      };
      return rebuild(target, wanted, { parts }, options, "restore");
    };
    // Both at once, so that bytes come from the disk once. What is wrong with a file explains any other failure.
    const [verified, restored] = await Promise.allSettled([this.verifyFiles([...files]), read()]);
    if (verified.status === "rejected") {
      if (restored.status === "fulfilled") tree.dispose(restored.value, target);
      throw verified.reason;
    }
    if (restored.status === "rejected") throw restored.reason;
    return restored.value;
  }

  /** The saved state in the structure in which it was saved, on the host. */
  async restoreTree<T = unknown>(): Promise<T> {
    const arrays = await this.read();
    const tensors = this.manifest.leaves.map(({ path, dtype, shape }) => {
      const found = arrays.get(path);
      if (!found) throw new FileError("checkpoint", this.folder, 0, `tensor "${path}" is missing`);
      return Tensor.fromHost({ dtype, shape }, found.data);
    });
    return loadTree(this.manifest.tree, tensors) as T;
  }

  /** Compares files with their checksums, several at once; the first damaged one in their order is reported. */
  private async verifyFiles(files: readonly number[]): Promise<void> {
    const { folder, manifest } = this;
    await inParallel(files, MAX_FILES, async (file) => {
      const listed = manifest.files[file];
      if (!listed) return;
      const known = this.verified.get(file) ?? checkHash(join(folder, listed.name), listed, manifest.version);
      this.verified.set(file, known);
      await known;
    });
  }

  private fileName(file: number): string {
    return join(this.folder, this.manifest.files[file]?.name ?? "");
  }

  /** Compares the header of a file with the manifest; returns its tensors by name. */
  private async checkHeader(file: number): Promise<ReadonlyMap<string, StoredTensor>> {
    const name = this.fileName(file);
    const { tensors } = await readSafetensorsHeader(name);
    const leaves = this.manifest.leaves.filter((leaf) => leaf.file === file);
    for (const { path, dtype, shape } of leaves) {
      const found = tensors.get(path);
      if (found && found.type === storedTypes[dtype] && found.shape.join() === shape.join()) continue;
      const got = found ? `is ${found.type}[${found.shape}]` : "is missing";
      const rule = `tensor "${path}" ${got}, but the manifest says ${dtype}[${shape}]`;
      throw new FileError("checkpoint", name, found?.start ?? 0, rule);
    }
    if (tensors.size !== leaves.length) {
      const rule = `it holds ${tensors.size} tensors, but the manifest says ${leaves.length}`;
      throw new FileError("checkpoint", name, 0, rule);
    }
    return tensors;
  }
}

/**
 * Opens the checkpoint in a folder; throws unless its manifest is valid and its files have the right sizes.
 *
 * @example
 * ```ts
 * const checkpoints = train.openCheckpoints("saved");
 * await (await checkpoints.save(1, { w: np.array([1, 2]) })).committed;
 * const { folder } = await checkpoints.load(1);
 * (await train.openCheckpoint(folder)).step; // 1
 * ```
 */
export async function openCheckpoint(
  folder: string,
  files: FileSystem = nodeFileSystem,
): Promise<Checkpoint> {
  need("path", folder, "folder", "openCheckpoint");
  needIfGiven("object", files, "files", "openCheckpoint");
  need("function", files.size, "size of the file system", "openCheckpoint");
  const path = join(folder, manifestName);
  const bytes = await files.size(path);
  if (bytes === undefined) throw new FileError("checkpoint", path, 0, "there is no such file");
  if (bytes > maxManifestBytes) {
    throw new FileError("checkpoint", path, 0, `the ${bytes} bytes are over the limit ${maxManifestBytes}`);
  }
  const text = await readFile(path).catch((cause: unknown) => {
    throw new FileError("checkpoint", path, 0, `it cannot be read (${reasonOf(cause)})`, { cause });
  });
  const manifest = parseManifest(text, path);
  for (const file of manifest.files) {
    const name = join(folder, file.name);
    const size = await files.size(name);
    if (size === undefined) throw new FileError("checkpoint", name, 0, "the file is missing");
    if (size !== file.bytes) {
      const rule = `the file has ${size} bytes, but the manifest says ${file.bytes}`;
      throw new FileError("checkpoint", name, Math.min(size, file.bytes), rule);
    }
  }
  return new Checkpoint(folder, manifest);
}

/** Numbers without an upper limit, not even a finite one. */
const orInfinity = ({ says, is }: Kind<number>): Kind<number> => ({
  says: `${says}, or Infinity`,
  is: (value) => value === Number.POSITIVE_INFINITY || is(value),
});

const checkpointsOptions = schema({
  /** How many checkpoints to keep; older ones are removed after a new one is complete. 3 by default. */
  keep: optional(orInfinity(integerFrom(1)), 3),
  /** Size above which another file is started; 1 GiB by default. */
  maxFileBytes: optional(orInfinity(numberFrom(1)), 2 ** 30),
  /** Maximum size of tensors in host memory while a state is saved; a larger tensor is held alone. 1 GiB by default. */
  maxHeldBytes: optional(orInfinity(numberFrom(1)), 2 ** 30),
  /** The file system to write through; that of the machine by default. */
  fileSystem: optional<FileSystem>("object", nodeFileSystem),
  /** The processes that save together, each writing some of the files; one by default. */
  processGroup: optional<ProcessGroup>("object", alone),
});

/** Options of {@link openCheckpoints}. */
export interface CheckpointsOptions extends OptionsOf<typeof checkpointsOptions> {}

/** A save in progress. */
export interface PendingSave {
  readonly step: number;
  /** Settles when the checkpoint is on the disk, with its folder and with what could not be removed after it. */
  readonly committed: Promise<{ readonly folder: string; readonly notRemoved: readonly string[] }>;
}

/** A folder that looks like a checkpoint. */
export interface CheckpointEntry {
  readonly step: number;
  readonly folder: string;
  /** Why it cannot be loaded; undefined for a complete one. */
  readonly problem: string | undefined;
}

/** The checkpoints of a run; one process at a time may save to a folder. */
export class Checkpoints {
  readonly root: string;
  private readonly options: Values<typeof checkpointsOptions.fields>;
  private writing: Promise<unknown> = Promise.resolve();
  private failure: { readonly error: unknown } | undefined;

  /** @internal */
  constructor(root: string, options: CheckpointsOptions) {
    need("path", root, "the folder", "openCheckpoints");
    this.options = checkpointsOptions.read(options, "openCheckpoints");
    this.root = root;
  }

  /**
   * Saves a tree of tensors. The call returns once the elements are copied, so that training can continue and donate
   * its tensors. Up to `maxHeldBytes` are copied at once and written in the background; a larger state is written while
   * it is copied, so that the host never holds more. Checkpoints are written one after the other.
   */
  async save(step: number, state: unknown, extras: CheckpointExtras = {}): Promise<PendingSave> {
    need(integerFrom(0), step, "the step", "save");
    const { root } = this;
    const { fileSystem: files, keep, processGroup: group, maxHeldBytes, maxFileBytes } = this.options;
    // Processes copy tensors that are spread over them together, in the same order.
    const maxAtOnce = group.count > 1 ? Number.POSITIVE_INFINITY : maxHeldBytes;
    const { snapshot, isCopied, bytes } = await takeSnapshot(step, state, extras, maxAtOnce);
    const committed = this.writing.then(async () => {
      // Divides the bytes about evenly among processes.
      const share = Math.ceil(bytes / group.count);
      const most = group.count === 1 ? maxFileBytes : Math.max(1, Math.min(maxFileBytes, share));
      const name = await writeCheckpoint(files, root, snapshot, most, group, maxHeldBytes);
      const notRemoved =
        group.index > 0 ? [] : await removeOld(files, root, keep, name).catch((error) => [reasonOf(error)]);
      return { folder: join(root, name), notRemoved };
    });
    this.writing = committed.catch((error: unknown) => {
      this.failure ??= { error };
    });
    // A write that fails copies no more.
    await Promise.race([isCopied(), this.writing]);
    return { step, committed };
  }

  /** Waits until all saves are on the disk; throws the first failure since the last call. */
  async finished(): Promise<void> {
    await this.writing;
    const { failure } = this;
    this.failure = undefined;
    if (failure) throw failure.error;
  }

  /** All checkpoints, newest first, with what is wrong with those that cannot be loaded. */
  async list(): Promise<CheckpointEntry[]> {
    const folders = await listSteps(this.options.fileSystem, this.root);
    return Promise.all(
      folders.map(async ({ name, step }) => {
        const folder = join(this.root, name);
        try {
          await openCheckpoint(folder, this.options.fileSystem);
          return { step, folder, problem: undefined };
        } catch (error) {
          return { step, folder, problem: reasonOf(error) };
        }
      }),
    );
  }

  /** The newest complete checkpoint, or undefined if there is none. */
  async latest(): Promise<Checkpoint | undefined> {
    const complete = (await this.list()).find(({ problem }) => problem === undefined);
    return complete && openCheckpoint(complete.folder, this.options.fileSystem);
  }

  /** The checkpoint of a step. */
  async load(step: number): Promise<Checkpoint> {
    const entries = await this.list();
    const found = entries.find((entry) => entry.step === step);
    if (found) return openCheckpoint(found.folder, this.options.fileSystem);
    const steps = entries.filter(({ problem }) => problem === undefined).map((entry) => entry.step);
    const there = steps.length > 0 ? `there are steps ${steps.join(", ")}` : "the folder has none";
    throw new FileError("checkpoint", this.root, 0, `there is no checkpoint of step ${step}; ${there}`);
  }
}

/**
 * Opens a folder for checkpoints; it need not exist yet.
 *
 * @example
 * ```ts
 * const checkpoints = train.openCheckpoints("checkpoints");
 * await (await checkpoints.save(100, { w: np.array([1, 2]) })).committed;
 * const checkpoint = await checkpoints.latest();
 * await checkpoint.restoreTree(); // { "w": [1, 2] }
 * ```
 */
export function openCheckpoints(root: string, options: CheckpointsOptions = {}): Checkpoints {
  return new Checkpoints(root, options);
}

/** Compares a file with its checksum in a manifest of some version, and reports where it is damaged. */
async function checkHash(
  path: string,
  { bytes, sha256, pieces }: ManifestFile,
  version: number,
): Promise<void> {
  const found = await checksumsOf(path, bytes, version);
  if (found.sha256 === sha256) return;
  const place = firstDifference(pieces, found.pieces);
  const where = place ? ` between here and byte ${Math.min(place.end, bytes)}` : "";
  const rule = `the file is damaged${where}: its checksum is ${found.sha256}, but the manifest says ${sha256}; load an older checkpoint`;
  throw new FileError("checkpoint", path, place?.start ?? 0, rule);
}
