/** Converts between trees of tensors and the named arrays of files. */
import { type HostData, viewHost } from "../../../ir/dtype.js";
import { DTypeError, TreeError } from "../../../ir/errors.js";
import { formatType, isTyped, type TensorType } from "../../../ir/shape.js";
import { getSharding } from "../../../nn/modules/partitioned.js";
import type { Mesh } from "../../../spmd/mesh/mesh.js";
import { resolveSpec } from "../../../spmd/mesh/partitionSpec.js";
import { NamedSharding, placementOn, shardingOf } from "../../../spmd/mesh/sharding.js";
import { processAllGather } from "../../../spmd/run/processInfo.js";
import type { Prefix } from "../../../trace/prefix.js";
import { bytesPerDevice, type HostPart, type Placement, place, placeParts } from "../../../trace/storage.js";
import { Tensor } from "../../../trace/tensor.js";
import * as tree from "../../../trace/tree.js";
import { inParallel } from "../disk/files.js";
import { HeldBytes } from "../disk/heldBytes.js";
import { isStoredDType, type StoredDType } from "./safetensorsBytes.js";

/** The type of a tensor that files can hold. */
export interface StoredLeafType extends TensorType {
  readonly dtype: StoredDType;
}

/** A leaf with its path in the tree. */
export interface NamedLeaf {
  readonly path: string;
  readonly type: StoredLeafType;
  readonly leaf: unknown;
}

/** The typed leaves of a tree by path; two leaves may not have the same. */
export function namedLeaves(values: unknown, caller: string): NamedLeaf[] {
  const seen = new Set<string>();
  return tree.flattenWithPath(values, isTyped).map(({ path, leaf }) => {
    if (seen.has(path)) {
      throw new TreeError(`[${caller}] two leaves have the path "${path}": rename a key that contains "/"`);
    }
    seen.add(path);
    if (typeof leaf === "number" || typeof leaf === "boolean" || !isTyped(leaf)) {
      throw new TreeError(
        `[${caller}] the leaf at "${path}" is a ${typeof leaf}, not a tensor: make it one with np.array(…), or keep it in the configuration`,
      );
    }
    const { dtype, shape } = leaf;
    if (!isStoredDType(dtype)) {
      throw new DTypeError(
        `[${caller}] the leaf at "${path}" is ${formatType(leaf)}, and files hold complex64 alone: convert it with astype("complex64"), or keep x.real and x.imag`,
      );
    }
    return { path, type: { dtype, shape }, leaf };
  });
}

/** The tensor of a leaf; throws if it is only a type. @param what what its elements are needed for */
export function requireTensor({ leaf, path }: NamedLeaf, caller: string, what: "save" | "keep"): Tensor {
  if (leaf instanceof Tensor) return leaf;
  throw new TreeError(`[${caller}] the leaf at "${path}" is only a type and has no elements to ${what}`);
}

/** A copy of a tensor's elements as files store them. */
export async function download(leaf: NamedLeaf, caller: string): Promise<HostData> {
  return wholeOf(requireTensor(leaf, caller, "save"), caller);
}

/**
 * The elements of a whole tensor; if it is spread over processes, all of them must call this for the same tensors in
 * the same order.
 */
export async function wholeOf(tensor: Tensor, caller: string): Promise<HostData> {
  if (tensor.parts) {
    const [real, imag] = tensor.parts.map((part) => wholeOf(part, caller));
    return interleave(await real, await imag);
  }
  const isHere = shardingOf(tensor)?.isFullyAddressable ?? true;
  if (isHere) return tensor.storage(caller).download(caller);
  const whole = await processAllGather(tensor);
  const data = await whole.storage(caller).download(caller);
  whole.dispose();
  return data;
}

/** Placement of restored tensors and what to do about missing ones, for a target of type `T`. */
export interface RestoreOptions<T = unknown> {
  /** A prefix tree of shardings; leaves without one are placed by `mesh` or like the target. */
  readonly shardings?: Prefix<T, NamedSharding | null | undefined>;
  /** Places every leaf on this mesh: split by its box (`nn.Partitioned`), replicated without one. */
  readonly mesh?: Mesh;
  /** How to treat leaves that the file lacks: an error (the default), or keep the values of the target. */
  readonly missing?: "error" | "keep";
}

/** A function that reads parts of a leaf, or all of it, also into given memory; undefined if no file holds the leaf. */
export type PartReader<L> = (
  leaf: L,
) => ((part?: HostPart, memory?: Uint8Array) => Promise<HostData>) | undefined;

/** Maximum number of leaves that are read at once, and of bytes in host memory of which devices make copies. */
const [maxLeaves, maxHeldBytes] = [4, 2 ** 30];

/**
 * Builds a tree with the structure of the target from the elements of its leaves, each with its placement.
 *
 * @param read returns the elements of a leaf, or of a part of it if it can read parts; undefined to keep those of the
 * target
 */
export async function rebuild<T, L extends NamedLeaf>(
  target: T,
  wanted: readonly L[],
  read: ((leaf: L) => Promise<HostData> | undefined) | { parts: PartReader<L> },
  { shardings, mesh }: RestoreOptions<T>,
  caller: string,
): Promise<tree.MapTree<T, TensorType, Tensor>> {
  const structure = tree.structure(target, isTyped);
  const isSharding = (node: unknown) => node instanceof NamedSharding;
  const given = tree.broadcastPrefix(shardings ?? null, structure, caller, isSharding);
  const meshed = mesh ? tree.leaves(getSharding(target, mesh), isSharding) : [];
  const held = new HeldBytes(maxHeldBytes);
  const tensors: Tensor[] = [];
  const others: (() => Promise<void>)[] = [];
  await inParallel([...wanted.entries()], maxLeaves, async ([i, leaf]) => {
    const sharding = given[i] ?? meshed[i];
    const asked = sharding instanceof NamedSharding ? placed(sharding, leaf, caller) : undefined;
    const placement = asked ?? ownPlacement(leaf);
    const part = typeof read === "function" ? undefined : read.parts(leaf);
    if (part && placement && leaf.type.dtype !== "complex64") {
      const bytes = placement.engine.uploadBy ? 0 : bytesPerDevice(leaf.type, placement);
      await held.take(bytes);
      try {
        tensors[i] = Tensor.stored(await placeParts(placement, leaf.type, part));
      } finally {
        held.giveBack(bytes);
      }
      return;
    }
    others.push(async () => {
      const stored = typeof read === "function" ? read(leaf) : part?.();
      const isKept = !stored && !asked;
      tensors[i] = isKept
        ? requireTensor(leaf, caller, "keep")
        : tensorOf(leaf.type, await (stored ?? download(leaf, caller)), placement);
    });
  });
  // Processes copy what is spread over them in the same order.
  for (const other of others) await other();
  return tree.unflatten(structure, tensors);
}

function placed({ spec, mesh }: NamedSharding, { path, type }: NamedLeaf, caller: string): Placement {
  return placementOn(mesh, resolveSpec(spec, mesh, type.shape, caller, path));
}

/** The placement of a leaf's tensor, which both parts of complex numbers share. */
export function ownPlacement({ leaf }: NamedLeaf): Placement | undefined {
  if (!(leaf instanceof Tensor)) return undefined;
  const { node } = leaf.parts?.[0] ?? leaf;
  return node.kind === "array" ? node.storage.placement : undefined;
}

function tensorOf(type: StoredLeafType, data: HostData, placement: Placement | undefined): Tensor {
  if (!placement) return Tensor.fromHost(type, data);
  if (type.dtype !== "complex64") return Tensor.stored(place(placement, type, data));
  const part = (k: 0 | 1) => tensorOf({ ...type, dtype: "float32" }, partOf(data, k), placement);
  return Tensor.complex(part(0), part(1));
}

// Copies bits, because copying floats may change those of a NaN.
const wordsOf = ({ buffer, byteOffset, byteLength }: HostData) =>
  new Uint32Array(buffer, byteOffset, byteLength / 4);

/** Interleaves real and imaginary parts, as files store complex64. */
function interleave(real: HostData = new Float32Array(), imag: HostData = new Float32Array()): HostData {
  const parts = [wordsOf(real), wordsOf(imag)] as const;
  const both = new Uint32Array(2 * real.length);
  for (let i = 0; i < both.length; i++) both[i] = parts[i % 2 === 0 ? 0 : 1][i >> 1] ?? 0;
  return viewHost("float32", both.buffer);
}

function partOf(data: HostData, first: 0 | 1): HostData {
  const words = wordsOf(data).filter((_, i) => i % 2 === first);
  return viewHost("float32", words.buffer);
}
