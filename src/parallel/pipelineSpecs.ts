import { isBoxed, Partitioned, type Variables } from "../nn/index.js";
import { PartitionSpec, type SpecEntry } from "../spmd/mesh/partitionSpec.js";
import { Tensor } from "../trace/tensor.js";
import * as tree from "../trace/tree.js";

/** A tree with a spec for every weight. */
export type SpecTree = unknown;

/** Whether a node of a tree is a spec, which is a leaf there. */
export const isSpec = (node: unknown): boolean => node instanceof PartitionSpec;

/** Unboxes values without the sharding constraint that `unbox` adds. */
export function weightsWithoutBoxes<T>(weights: T): T {
  const { leaves, structure } = tree.flatten(weights, isBoxed);
  return tree.unflatten<T>(
    structure,
    leaves.map((leaf) => (leaf instanceof Partitioned ? leaf.value : isBoxed(leaf) ? leaf.unbox() : leaf)),
  );
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

/** Applies a function to every spec of a tree. */
export function mapSpecs<T>(specs: T, fn: (spec: PartitionSpec) => PartitionSpec): T {
  const { leaves, structure } = tree.flatten(specs, isSpec);
  return tree.unflatten<T>(
    structure,
    leaves.map((leaf) => (leaf instanceof PartitionSpec ? fn(leaf) : leaf)),
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
