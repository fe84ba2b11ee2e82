import { isBoxed, mapBoxes, Partitioned, type Variables } from "../nn/index.js";
import { isSpec, PartitionSpec, type SpecEntry } from "../spmd/mesh/partitionSpec.js";
import { Tensor } from "../trace/tensor.js";
import * as tree from "../trace/tree.js";

/** A tree with a spec for every weight. */
export type SpecTree = unknown;

/** Unboxes values without the sharding constraint that `unbox` adds. */
export function weightsWithoutBoxes<T>(weights: T): T {
  return mapBoxes((box) => (box instanceof Partitioned ? box.value : box.unbox()), weights);
}

/** The names that boxes give the dims of weights, or null when there are no boxes. */
export function specsOfBoxes(weights: Variables): SpecTree {
  const { leaves, structure } = tree.flatten(weights, isBoxed);
  if (!leaves.some((leaf) => leaf instanceof Partitioned)) return null;
  return tree.unflatten(
    structure,
    leaves.map((leaf) => (leaf instanceof Partitioned ? leaf.getPartitionSpec() : new PartitionSpec([]))),
  );
}

/** A spec without some mesh axes, along which values are then not split. */
export function withoutAxes({ entries }: PartitionSpec, axes: readonly string[]): PartitionSpec {
  return new PartitionSpec(
    entries.map((entry): SpecEntry => {
      if (typeof entry === "string") return axes.includes(entry) ? null : entry;
      return Array.isArray(entry) ? entry.filter((axis) => !axes.includes(axis)) : entry;
    }),
  );
}

/** Maps the unboxed weights of a tree, each with its spec. */
export function eachWeight<T>(
  weights: T,
  specs: SpecTree,
  fn: (weight: Tensor, spec: PartitionSpec | null) => Tensor,
): T {
  const { leaves, structure } = tree.flatten(weightsWithoutBoxes(weights));
  const list = specs === null || specs === undefined ? [] : tree.leaves(specs, isSpec);
  return tree.unflatten<T>(
    structure,
    leaves.map((leaf, i) => {
      const spec = list[i];
      if (!(leaf instanceof Tensor)) return leaf;
      return fn(leaf, spec instanceof PartitionSpec ? spec : null);
    }),
  );
}
