/** Between trees of tensors and the named arrays of files. */
import type { DType, HostData } from "../../ir/dtype.js";
import { TreeError } from "../../ir/errors.js";
import { formatType, isTyped, type Shape, sameType, type TensorType } from "../../ir/shape.js";
import { getSharding } from "../../nn/partitioned.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import { resolveSpec } from "../../spmd/mesh/partitionSpec.js";
import { NamedSharding, placementOn } from "../../spmd/mesh/sharding.js";
import type { Prefix } from "../../trace/prefix.js";
import { place } from "../../trace/storage.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";

/** A leaf with its place in the tree. */
export interface NamedLeaf {
  readonly path: string;
  readonly type: TensorType;
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
    return { path, type: { dtype: leaf.dtype, shape: leaf.shape }, leaf };
  });
}

/** A copy of a tensor's elements in the form in which they are stored. */
export function download(leaf: NamedLeaf, caller: string): Promise<HostData> {
  if (!(leaf.leaf instanceof Tensor)) {
    throw new TreeError(`[${caller}] the leaf at "${leaf.path}" is only a type and has no elements to save`);
  }
  return leaf.leaf.storage(caller).download(caller);
}

/** Where restored tensors go, for a target of type `T`. */
export interface RestoreOptions<T = unknown> {
  /** A prefix tree of shardings; leaves that it leaves out go where `mesh` or the target says. */
  readonly shardings?: Prefix<T, NamedSharding | null | undefined>;
  /** Puts every leaf on this mesh: as its box (`nn.Partitioned`) says, and whole without one. */
  readonly mesh?: Mesh;
}

/** Reports every difference between what a target wants and what a file holds at once. */
export function checkAgainst(
  wanted: readonly NamedLeaf[],
  stored: ReadonlyMap<string, { readonly dtype: string; readonly shape: Shape }>,
  file: string,
  { allowExtra }: { readonly allowExtra: boolean },
): void {
  const problems: string[] = [];
  for (const { path, type } of wanted) {
    const found = stored.get(path);
    if (!found) problems.push(`"${path}" (${formatType(type)}) is not in the file`);
    else if (!sameType(type, { dtype: found.dtype as DType, shape: found.shape })) {
      problems.push(
        `"${path}" is ${found.dtype}[${found.shape}] in the file but must be ${type.dtype}[${type.shape}]`,
      );
    }
  }
  const paths = new Set(wanted.map(({ path }) => path));
  const extra = [...stored.keys()].filter((path) => !paths.has(path));
  if (!allowExtra) for (const path of extra) problems.push(`"${path}" of the file has no place in the tree`);
  if (problems.length === 0) return;
  const shown = problems.slice(0, 20).map((problem) => `\n  ${problem}`);
  const more = problems.length > 20 ? `\n  … and ${problems.length - 20} more` : "";
  throw new TreeError(
    `[restore] ${file} does not fit the tree it is loaded into:${shown.join("")}${more}\nuse the configuration with which it was saved`,
  );
}

/** Builds a tree like the target from the elements of its leaves, each in its place. */
export async function rebuild<T>(
  target: T,
  wanted: readonly NamedLeaf[],
  read: (leaf: NamedLeaf) => Promise<HostData>,
  { shardings, mesh }: RestoreOptions<T>,
): Promise<tree.MapTree<T, TensorType, Tensor>> {
  const structure = tree.structure(target, isTyped);
  const isSharding = (node: unknown) => node instanceof NamedSharding;
  const given = tree.broadcastPrefix(shardings ?? null, structure, "restore", isSharding);
  const meshed = mesh ? tree.leaves(getSharding(target, mesh), isSharding) : [];
  const tensors: Tensor[] = [];
  for (const [i, leaf] of wanted.entries()) {
    const sharding = given[i] ?? meshed[i];
    const data = await read(leaf);
    if (sharding instanceof NamedSharding) {
      const spec = resolveSpec(sharding.spec, sharding.mesh, leaf.type.shape, "restore", leaf.path);
      tensors.push(Tensor.stored(place(placementOn(sharding.mesh, spec), leaf.type, data)));
    } else if (leaf.leaf instanceof Tensor && leaf.leaf.node.kind === "array") {
      tensors.push(Tensor.stored(place(leaf.leaf.node.storage.placement, leaf.type, data)));
    } else {
      tensors.push(Tensor.fromHost(leaf.type, data));
    }
  }
  return tree.unflatten(structure, tensors);
}
