/** The state that a checkpoint is made of, and how its elements are copied from the devices. */
import { byteSize, type HostData } from "../../../ir/dtype.js";
import type { MeshAxis } from "../../../ir/mesh.js";
import { at, range, rowMajorStrides, sizeOf, type TensorType } from "../../../ir/shape.js";
import * as ops from "../../../trace/ops.js";
import type { HostPart, PartMemory } from "../../../trace/storage.js";
import { Tensor } from "../../../trace/tensor.js";
import { bytesOf } from "../safetensors/safetensorsBytes.js";
import {
  download,
  type NamedLeaf,
  namedLeaves,
  ownPlacement,
  requireTensor,
  wholeOf,
} from "../safetensors/treeFiles.js";
import {
  type Json,
  type Manifest,
  manifestFormat,
  manifestVersion,
  storeTree,
} from "./checkpointManifest.js";

/** What is saved besides the tensors; all of it must be JSON. */
export interface CheckpointExtras {
  /** The state of random numbers outside of the tree. */
  readonly rng?: Json;
  /** The position in the training data. */
  readonly data?: Json;
  /** The configuration of the run. */
  readonly config?: Json;
}

/** A state to be saved. */
export interface Snapshot {
  readonly manifest: Omit<Manifest, "files" | "leaves">;
  readonly leaves: readonly SnapshotLeaf[];
}

/** A tensor to be saved. */
export interface SnapshotLeaf extends Omit<Manifest["leaves"][number], "file"> {
  /** Its elements, in order. */
  readonly chunks: readonly SnapshotChunk[];
}

/** Some of the elements of a tensor. */
export interface SnapshotChunk {
  readonly bytes: number;
  /** Copies the elements to the host, perhaps into a memory that is used again; called once. */
  readonly read: (memory: PartMemory) => Promise<Uint8Array>;
}

/** The size of a leaf. */
export const leafBytes = ({ dtype, shape }: Pick<SnapshotLeaf, "dtype" | "shape">): number =>
  sizeOf(shape) * byteSize(dtype);

/** A state and its size. */
interface TakenSnapshot {
  readonly snapshot: Snapshot;
  readonly bytes: number;
  /** Settles once all elements are copied. */
  isCopied(): Promise<unknown>;
}

/** Takes a state to be saved. @param maxAtOnce the size up to which a state is copied at once */
export async function takeSnapshot(
  step: number,
  state: unknown,
  extras: CheckpointExtras,
  maxAtOnce: number,
): Promise<TakenSnapshot> {
  const named = namedLeaves(state, "save");
  const bytes = named.reduce((sum, { type }) => sum + leafBytes(type), 0);
  let mesh: readonly MeshAxis[] | null = null;
  const specs = named.map((leaf) => {
    const placement = ownPlacement(leaf);
    if (!placement) return [];
    if (placement.mesh.axes.length > 0)
      mesh ??= placement.mesh.axes.map(({ name, size }) => ({ name, size }));
    return placement.spec;
  });
  const { chunks, isCopied } = bytes <= maxAtOnce ? await copiesOf(named) : laterCopiesOf(named, maxAtOnce);
  const leaves = named.map(({ path, type }, i) => ({
    path,
    ...type,
    spec: specs[i] ?? [],
    chunks: at(chunks, i),
  }));
  const { rng = null, data: position = null, config = null } = extras;
  return {
    snapshot: {
      manifest: {
        format: manifestFormat,
        version: manifestVersion,
        step,
        mesh,
        rng,
        data: position,
        config,
        tree: storeTree(state),
      },
      leaves,
    },
    bytes,
    isCopied,
  };
}

/** How the elements of every tensor are read. */
interface Copies extends Pick<TakenSnapshot, "isCopied"> {
  readonly chunks: readonly (readonly SnapshotChunk[])[];
}

/** Copies all tensors; the copies are asked for at once, so that what the caller does next cannot change them. */
async function copiesOf(named: readonly NamedLeaf[]): Promise<Copies> {
  const copies: (HostData | undefined)[] = await Promise.all(named.map((leaf) => download(leaf, "save")));
  const chunks = named.map(({ type }, i) => {
    const read = async () => {
      const copy = copies[i];
      // It can be collected as soon as it has been written.
      copies[i] = undefined;
      return copy ? bytesOf(copy) : new Uint8Array();
    };
    return [{ bytes: leafBytes(type), read }];
  });
  return { chunks, isCopied: async () => {} };
}

/** Tensors that are copied in chunks when they are read. */
function laterCopiesOf(named: readonly NamedLeaf[], maxBytes: number): Copies {
  let finish = () => {};
  const copied = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const chunks = named.map((leaf) => chunksOf(leaf, Math.min(maxChunkBytes, maxBytes)));
  let left = chunks.flat().length;
  const counted = ({ bytes, read }: SnapshotChunk) => ({
    bytes,
    read: async (memory: PartMemory) => {
      const data = await read(memory);
      if (--left === 0) finish();
      return data;
    },
  });
  return { chunks: chunks.map((list) => list.map(counted)), isCopied: () => copied };
}

/** Size of the chunks in which large tensors are copied where engines can only copy tensors. */
const maxChunkBytes = 2 ** 26;

/** Size of the parts in which engines copy tensors that can copy parts. */
const maxPartBytes = 2 ** 23;

/** Memory for the parts of the tensors of a file. */
export function partMemory(chunks: readonly SnapshotChunk[]): PartMemory {
  const largest = chunks.reduce((most, { bytes }) => Math.max(most, bytes), 0);
  const size = Math.min(maxPartBytes, largest);
  return { target: new Uint8Array(size), block: new Uint8Array(size) };
}

/** The parts of a tensor, in order, none of which is larger than a number of bytes. */
function partsOf({ dtype, shape }: TensorType, maxBytes: number): HostPart[] {
  const rowBytes = (d: number) => sizeOf(shape.slice(d + 1)) * byteSize(dtype);
  const dim = shape.findIndex((_, d) => rowBytes(d) <= maxBytes || d === shape.length - 1);
  const [length, outer, inner] = [shape[dim], shape.slice(0, dim), shape.slice(dim + 1)];
  if (length === undefined) return [{ shape, offsets: [] }];
  const count = Math.max(1, Math.floor(maxBytes / rowBytes(dim)));
  return range(sizeOf(outer)).flatMap((n) => {
    const indices = rowMajorStrides(outer).map((stride, d) => Math.floor(n / stride) % at(outer, d));
    return range(Math.ceil(length / count)).map((i) => ({
      shape: [...outer.map(() => 1), Math.min(count, length - i * count), ...inner],
      offsets: [...indices, i * count, ...inner.map(() => 0)],
    }));
  });
}

/** A tensor in blocks of rows of at most some bytes; a larger row is a block. */
function chunksOf(leaf: NamedLeaf, maxBytes: number): SnapshotChunk[] {
  const { type } = leaf;
  const storage =
    type.dtype === "complex64" ? undefined : requireTensor(leaf, "save", "save").storage("save");
  if (storage?.hasParts) {
    return partsOf(type, Math.min(maxBytes, maxPartBytes)).map((part) => ({
      bytes: leafBytes({ dtype: type.dtype, shape: part.shape }),
      read: (memory) => storage.downloadPart(part, memory, "save"),
    }));
  }
  const [numRows = 0, ...row] = type.shape;
  const rowBytes = leafBytes({ dtype: type.dtype, shape: row });
  const count = Math.max(1, Math.floor(maxBytes / rowBytes));
  if (numRows <= count || type.dtype === "complex64") {
    return [{ bytes: leafBytes(type), read: async () => bytesOf(await download(leaf, "save")) }];
  }
  const tensor = requireTensor(leaf, "save", "save");
  return range(Math.ceil(numRows / count)).map((i) => {
    const size = Math.min(count, numRows - i * count);
    const read = async () => {
      const starts = [i * count, ...row.map(() => 0)].map((start) => Tensor.scalar(start, "int32"));
      const rows = ops.dynamicSlice(tensor, starts, [size, ...row]);
      try {
        return bytesOf(await wholeOf(rows, "save"));
      } finally {
        rows.dispose();
      }
    };
    return { bytes: size * rowBytes, read };
  });
}
