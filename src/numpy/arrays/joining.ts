/** Joining tensors and taking them apart. */
import { need, needIfGiven } from "../../ir/arguments.js";
import { DimError, ShapeError, ValueError } from "../../ir/errors.js";
import { at, formatType, normalizeDim, range } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { asTensor, atLeastRank, checkLevels, toType } from "../operands.js";
import { atleast3d, expandDims, ravel, squeeze } from "./shaping.js";

/** Tensors brought to one data type. */
function promoted(xs: readonly TensorLike[], caller: string): Tensor[] {
  need("list", xs, "the tensors", caller);
  if (xs.length === 0) throw new ValueError(`[${caller}] needs at least one tensor`);
  const dtype = operandType(...xs);
  // Holes of a sparse array become undefined, which throws.
  return [...xs].map((x) => toType(x, dtype, caller));
}

/**
 * Joins tensors along a dim they have; `null` joins the flattened tensors.
 *
 * @example
 * ```ts
 * np.concatenate([np.array([1, 2]), np.array([3])]); // [1, 2, 3]
 * ```
 */
export function concatenate(xs: readonly TensorLike[], dim: number | null = 0): Tensor {
  need("list", xs, "xs", "concatenate");
  needIfGiven("number", dim ?? undefined, "dim", "concatenate");
  const tensors = promoted(xs, "concatenate");
  return dim === null ? join(tensors.map(ravel), 0, "concatenate") : join(tensors, dim, "concatenate");
}

function join(tensors: readonly Tensor[], dim: number, caller: string): Tensor {
  const first = at(tensors, 0);
  if (first.ndim === 0) {
    throw new DimError(`[${caller}] scalars have no dim to be joined along: use stack`);
  }
  const d = normalizeDim(dim, first.ndim, caller);
  const odd = tensors.find(
    (x) => x.ndim !== first.ndim || x.shape.some((n, i) => i !== d && n !== first.shape[i]),
  );
  if (odd) {
    throw new ShapeError(
      `[${caller}] ${formatType(first.type)} and ${formatType(odd.type)} cannot be joined along dim ${d}: all other sizes must agree`,
    );
  }
  return ops.concatenate(tensors, d);
}

/**
 * Joins tensors of one shape along a new dim.
 *
 * @example
 * ```ts
 * np.stack([np.array([1, 2]), np.array([3, 4])]); // [[1, 2], [3, 4]]
 * ```
 */
export function stack(xs: readonly TensorLike[], dim = 0): Tensor {
  need("list", xs, "xs", "stack");
  needIfGiven("number", dim ?? undefined, "dim", "stack");
  const tensors = promoted(xs, "stack");
  const first = at(tensors, 0);
  const odd = tensors.find((x) => x.shape.join() !== first.shape.join());
  if (odd) {
    throw new ShapeError(
      `[stack] ${formatType(first.type)} and ${formatType(odd.type)} cannot be stacked: all shapes must be equal`,
    );
  }
  const d = normalizeDim(dim, first.ndim + 1, "stack");
  return ops.concatenate(
    tensors.map((x) => expandDims(x, d)),
    d,
  );
}

/**
 * Joins along the rows: scalars and vectors become rows.
 *
 * @example
 * ```ts
 * np.vstack([np.array([1, 2]), np.array([3, 4])]); // [[1, 2], [3, 4]]
 * ```
 */
export function vstack(xs: readonly TensorLike[]): Tensor {
  need("list", xs, "xs", "vstack");
  return join(
    promoted(xs, "vstack").map((x) => atLeastRank(x, 2)),
    0,
    "vstack",
  );
}

/**
 * Joins along the columns: vectors are joined end to end.
 *
 * @example
 * ```ts
 * np.hstack([np.array([1, 2]), np.array([3])]); // [1, 2, 3]
 * ```
 */
export function hstack(xs: readonly TensorLike[]): Tensor {
  need("list", xs, "xs", "hstack");
  const tensors = promoted(xs, "hstack").map((x) => atLeastRank(x, 1));
  return join(tensors, at(tensors, 0).ndim === 1 ? 0 : 1, "hstack");
}

/**
 * Joins along the third dim.
 *
 * @example
 * ```ts
 * np.dstack([np.array([1, 2]), np.array([3, 4])]); // [[[1, 3], [2, 4]]]
 * ```
 */
export function dstack(xs: readonly TensorLike[]): Tensor {
  need("list", xs, "xs", "dstack");
  return join(promoted(xs, "dstack").map(atleast3d), 2, "dstack");
}

/**
 * Joins vectors as the columns of a matrix, and matrices along their columns.
 *
 * @example
 * ```ts
 * np.columnStack([np.array([1, 2]), np.array([3, 4])]); // [[1, 3], [2, 4]]
 * ```
 */
export function columnStack(xs: readonly TensorLike[]): Tensor {
  need("list", xs, "xs", "columnStack");
  const columns = promoted(xs, "columnStack").map((x) => (x.ndim < 2 ? ops.reshape(x, [x.size, 1]) : x));
  return join(columns, 1, "columnStack");
}

/**
 * Joins two tensors along a dim, or flattened when none is given.
 *
 * @example
 * ```ts
 * np.append(np.array([1, 2]), np.array([3])); // [1, 2, 3]
 * ```
 */
export function append(x: TensorLike, values: TensorLike, dim: number | null = null): Tensor {
  return concatenate([x, values], dim);
}

/**
 * Splits a dim into equal parts, or before the given indices.
 *
 * @example
 * ```ts
 * np.split(np.arange(4), 2); // [[0, 1], [2, 3]]
 * ```
 */
export function split(x: TensorLike, parts: number | readonly number[], dim = 0): Tensor[] {
  needIfGiven("number", dim ?? undefined, "dim", "split");
  return splitDim(x, parts, dim, "split", true);
}

/**
 * {@link split} into parts that may differ by one element, the larger ones first.
 *
 * @example
 * ```ts
 * np.arraySplit(np.arange(5), 2); // [[0, 1, 2], [3, 4]]
 * ```
 */
export function arraySplit(x: TensorLike, parts: number | readonly number[], dim = 0): Tensor[] {
  return splitDim(x, parts, dim, "arraySplit", false);
}

/**
 * {@link split} along the rows.
 *
 * @example
 * ```ts
 * np.vsplit(np.array([[1, 2], [3, 4]]), 2); // [[[1, 2]], [[3, 4]]]
 * ```
 */
export function vsplit(x: TensorLike, parts: number | readonly number[]): Tensor[] {
  return splitDim(x, parts, 0, "vsplit", true);
}

/**
 * {@link split} along the columns; a vector is split along its only dim.
 *
 * @example
 * ```ts
 * np.hsplit(np.array([[1, 2], [3, 4]]), 2); // [[[1], [3]], [[2], [4]]]
 * ```
 */
export function hsplit(x: TensorLike, parts: number | readonly number[]): Tensor[] {
  const [tensor] = promoted([x], "hsplit");
  return splitDim(x, parts, tensor?.ndim === 1 ? 0 : 1, "hsplit", true);
}

/**
 * {@link split} along the third dim.
 *
 * @example
 * ```ts
 * np.dsplit(np.array([[[1, 2, 3, 4]]]), 2); // [[[[1, 2]]], [[[3, 4]]]]
 * ```
 */
export function dsplit(x: TensorLike, parts: number | readonly number[]): Tensor[] {
  return splitDim(x, parts, 2, "dsplit", true);
}

function splitDim(
  value: TensorLike,
  parts: number | readonly number[],
  dim: number,
  caller: string,
  equalParts: boolean,
): Tensor[] {
  const x = at(promoted([value], caller), 0);
  const d = normalizeDim(dim, x.ndim, caller);
  const n = at(x.shape, d);
  const bounds = typeof parts === "number" ? evenBounds(n, parts, d, caller, equalParts) : cuts(n, parts);
  return range(bounds.length - 1).map((i) => {
    const start = at(bounds, i);
    return ops.sliceDim(x, d, start, Math.max(start, at(bounds, i + 1)));
  });
}

function evenBounds(n: number, parts: number, dim: number, caller: string, equalParts: boolean): number[] {
  if (!Number.isInteger(parts) || parts < 1) {
    throw new ValueError(`[${caller}] cannot split into ${parts} parts: use an integer of at least 1`);
  }
  if (equalParts && n % parts !== 0) {
    throw new ShapeError(
      `[${caller}] dim ${dim} of size ${n} does not split into ${parts} equal parts (${n} / ${parts} = ${n / parts}): use arraySplit, or pass the indices to split at`,
    );
  }
  const [small, larger] = [Math.floor(n / parts), n % parts];
  return range(parts + 1).map((i) => i * small + Math.min(i, larger));
}

/** Cuts are positions in the dim; as in slices, negative ones count from the end and all are clamped. */
function cuts(n: number, positions: readonly number[]): number[] {
  need("integers", positions, "the indices to split at", "split");
  const inside = positions.map((p) => Math.min(Math.max(p < 0 ? p + n : p, 0), n));
  return [0, ...inside, n];
}

/**
 * The parts of a tensor along a dim, without that dim.
 *
 * @example
 * ```ts
 * np.unstack(np.array([[1, 2], [3, 4]])); // [[1, 2], [3, 4]]
 * ```
 */
export function unstack(x: TensorLike, dim = 0): Tensor[] {
  needIfGiven("number", dim, "dim", "unstack");
  const tensor = asTensor(x, "unstack");
  const d = normalizeDim(dim, tensor.ndim, "unstack");
  return range(at(tensor.shape, d)).map((i) => squeeze(ops.sliceDim(tensor, d, i, i + 1), d));
}

/** Blocks of a tensor as nested lists: those of the innermost lists are joined along the last dim. */
export type Blocks = TensorLike | readonly Blocks[];

/**
 * Joins nested lists of blocks, innermost lists along the last dim, lists around them along the dim before.
 *
 * @example
 * ```ts
 * np.block([[np.ones([1, 1]), np.zeros([1, 1])]]); // [[1, 0]]
 * ```
 */
export function block(blocks: Blocks): Tensor {
  const depth = depthOf(blocks);
  return joinBlocks(blocks, depth, depth);
}

function isList(blocks: Blocks): blocks is readonly Blocks[] {
  return Array.isArray(blocks);
}

function depthOf(blocks: Blocks, level = 0): number {
  checkLevels(level, "block");
  // Holes of a sparse array become undefined, which throws when they are joined.
  return isList(blocks) ? 1 + Math.max(0, ...[...blocks].map((inner) => depthOf(inner, level + 1))) : 0;
}

function joinBlocks(blocks: Blocks, depth: number, rank: number): Tensor {
  if (!isList(blocks)) return atLeastRank(asTensor(blocks, "block"), rank);
  const parts = [...blocks].map((part) => joinBlocks(part, depth - 1, rank));
  const dims = Math.max(0, ...parts.map((part) => part.ndim));
  return concatenate(
    parts.map((part) => atLeastRank(part, dims)),
    dims - depth,
  );
}
