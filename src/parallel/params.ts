import { ValueError } from "../ir/errors.js";
import { type DimNames, isBoxed, Partitioned } from "../nn/index.js";
import { axesOf } from "../spmd/mesh/partitionSpec.js";
import { Tensor } from "../trace/tensor.js";
import * as tree from "../trace/tree.js";

/** An unboxed parameter: the block of one device, and for each dim the axes that split it. */
export interface OpenParam {
  readonly value: Tensor;
  readonly names: DimNames;
  /** The leaf as it is in the tree. */
  readonly leaf: Tensor | Partitioned;
  readonly path: string;
}

/** Replaces the parameters of a tree; a {@link Partitioned} box counts as one parameter. */
export function mapParams<T>(params: T, caller: string, fn: (param: OpenParam) => unknown): T {
  const { structure } = tree.flatten(params, isBoxed);
  const opened = tree
    .flattenWithPath(params, isBoxed)
    .map(({ leaf, path }) => fn(openParam(leaf, path, caller)));
  return tree.unflatten<T>(structure, opened);
}

function openParam(leaf: unknown, path: string, caller: string): OpenParam {
  if (leaf instanceof Tensor) return { value: leaf, names: leaf.shape.map(() => null), leaf, path };
  if (leaf instanceof Partitioned && leaf.value instanceof Tensor) {
    const value: Tensor = leaf.value;
    return { value, names: value.shape.map((_, d) => leaf.names[d] ?? null), leaf, path };
  }
  throw new ValueError(
    `[${caller}] the leaf at "${path}" is not a parameter: expected a tensor or nn.Partitioned, found ${String(leaf)}`,
  );
}

/** The dim that an axis splits, or -1. */
export function dimSplitBy(names: DimNames, axisName: string): number {
  return names.findIndex((entry) => axesOf(entry).includes(axisName));
}

/** A value in a box with its names, or alone where no axis splits it. */
export function boxed(value: Tensor, names: DimNames): Tensor | Partitioned {
  return names.every((entry) => axesOf(entry).length === 0) ? value : new Partitioned(value, names);
}

/** Names as messages show them: `(null, "fsdp")`. */
export function formatNames(names: DimNames): string {
  return `(${names.map((entry) => JSON.stringify(typeof entry === "symbol" ? "UNCONSTRAINED" : entry)).join(", ")})`;
}
