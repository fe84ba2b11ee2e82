/**
 * Positions and values whose number depends on the data. A traced program has fixed shapes, so these take the
 * `size` of their results; missing results are padded, surplus ones are cut off.
 */

import { need } from "../../ir/arguments.js";
import { ValueError } from "../../ir/errors.js";
import { type OptionsOf, schema } from "../../ir/schema.js";
import { at, range } from "../../ir/shape.js";
import { sortWithIndices } from "../../lax/sorting.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { concatenate, stack } from "../arrays/joining.js";
import { add, multiply } from "../elementwise/arithmetic.js";
import { where } from "../elementwise/logic.js";
import { clampIndex, fromEnd } from "../indexing/indexing.js";
import { take } from "../indexing/take.js";
import { asTensor, cast, pair, type SizedOptions, sizedOptions, toBool, toType } from "../operands.js";
import { searchsorted, sort } from "../reductions/sorting.js";
import { cumsum } from "./statistics.js";

/**
 * The positions of the elements that are not zero in the flattened tensor, as int32; filled up with 0.
 *
 * @example
 * ```ts
 * np.flatnonzero(np.array([0, 3, 5]), { size: 2 }); // [1, 2]
 * ```
 */
export function flatnonzero(value: TensorLike, options: SizedOptions): Tensor {
  const given = sizedOptions.read(options, "flatnonzero");
  const { size } = given;
  const x = toBool(value, "flatnonzero");
  const flat = ops.reshape(x, [x.size]);
  if (x.size === 0) return toFill(given, size);
  const counts = cumsum(cast(flat, "int32"));
  // The i-th result is the first place at which i + 1 elements have been counted.
  const places = searchsorted(counts, ops.iota("int32", [size], 0).add(1));
  const found = ops.compare("lt", places, x.size);
  return where(found, places, toFill(given, size));
}

function toFill({ fillValue = 0 }: SizedOptions, size: number): Tensor {
  const fill = toType(fillValue, "int32", "fillValue");
  return fill.ndim === 0 ? ops.broadcastInDim(fill, [size], []) : fill;
}

/**
 * The positions of the elements that are not zero, a tensor of indices for each dim.
 *
 * @example
 * ```ts
 * np.nonzero(np.array([0, 3, 5]), { size: 2 }); // [[1, 2]]
 * ```
 */
export function nonzero(value: TensorLike, options: SizedOptions): Tensor[] {
  const given = sizedOptions.read(options, "nonzero");
  const x = asTensor(value, "nonzero");
  const { size } = given;
  const flat = flatnonzero(x, { size, fillValue: x.size });
  const found = ops.compare("lt", flat, x.size);
  return unravelIndex(flat, x.shape).map((index) => where(found, index, toFill(given, size)));
}

/**
 * The positions of the elements that are not zero, one row each.
 *
 * @example
 * ```ts
 * np.argwhere(np.array([0, 3, 5]), { size: 2 }); // [[1], [2]]
 * ```
 */
export function argwhere(value: TensorLike, options: SizedOptions): Tensor {
  const given = sizedOptions.read(options, "argwhere");
  const x = asTensor(value, "argwhere");
  if (x.ndim === 0) return ops.full([given.size, 0], 0, "int32");
  return stack(nonzero(x, given), -1);
}

/**
 * Positions in a flattened tensor as an index for each dim of its shape, in their type; negative ones count from the
 * end, what is outside is clamped.
 *
 * @example
 * ```ts
 * np.unravelIndex(5, [2, 3]); // [1, 2]
 * ```
 */
export function unravelIndex(indices: TensorLike, shape: readonly number[]): Tensor[] {
  need("integers", shape, "shape", "unravelIndex");
  const total = shape.reduce((a, b) => a * b, 1);
  const given =
    typeof indices === "number"
      ? toType(indices, "int32", "unravelIndex")
      : asTensor(indices, "unravelIndex");
  let rest = clampIndex(fromEnd(given, total), total);
  const result: Tensor[] = [];
  for (const d of range(shape.length).reverse()) {
    const n = Math.max(at(shape, d), 1);
    result.unshift(cast(ops.rem(rest, n), given.dtype));
    rest = ops.div(rest, n);
  }
  return result;
}

/**
 * Positions in a flattened tensor, given an index for each dim of its shape; what is outside is clamped.
 *
 * @example
 * ```ts
 * np.ravelMultiIndex([np.array([1], "int32"), np.array([2], "int32")], [2, 3]); // [5]
 * ```
 */
export function ravelMultiIndex(indices: readonly TensorLike[], shape: readonly number[]): Tensor {
  need("list", indices, "indices", "ravelMultiIndex");
  need("integers", shape, "shape", "ravelMultiIndex");
  if (indices.length !== shape.length) {
    throw new ValueError(
      `[ravelMultiIndex] ${indices.length} indices for a shape of ${shape.length} dims [${shape.join(", ")}]`,
    );
  }
  if (shape.length === 0) throw new ValueError("[ravelMultiIndex] needs at least one dim");
  const inside = indices.map((index, d) =>
    ops.max(ops.min(toType(index, "int32", "ravelMultiIndex"), at(shape, d) - 1), 0),
  );
  const flat = inside.reduce((before, index, d) => add(multiply(before, at(shape, d)), index));
  return flat;
}

/** What {@link unique} finds. */
export interface UniqueResult {
  /** The different elements, sorted. */
  readonly values: Tensor;
  /** Where each first occurs in the flattened tensor. */
  readonly indices: Tensor;
  /** Which of the values each element is, in the shape of the tensor. */
  readonly inverse: Tensor;
  /** How often each occurs; 0 for what is filled up. */
  readonly counts: Tensor;
}

/**
 * The different elements of a tensor with their places and numbers; filled up with the smallest element. A NaN differs
 * from every other one, as in the array API; in {@link unique} and in sets they are equal.
 *
 * @example
 * ```ts
 * const { values, inverse, counts } = np.uniqueAll(np.array([3, 1, 3]), { size: 2 });
 * [values, inverse, counts]; // [[1, 3], [1, 0, 1], [1, 2]]
 * ```
 */
export function uniqueAll(value: TensorLike, options: SizedOptions): UniqueResult {
  return findUnique(value, sizedOptions.read(options, "uniqueAll"), false);
}

function findUnique(value: TensorLike, given: SizedOptions, isNanEqual: boolean): UniqueResult {
  const { size } = given;
  const x = asTensor(value, "unique");
  const n = x.size;
  if (n === 0) throw new ValueError("[unique] the tensor has no elements to choose from");
  const [sorted, order] = sortWithIndices(ops.reshape(x, [n]), 0, false);
  const later = ops.sliceDim(sorted, 0, 1, n);
  const earlier = ops.sliceDim(sorted, 0, 0, n - 1);
  const isOther = ops.compare("ne", later, earlier);
  const areNan = ops.and(ops.compare("ne", later, later), ops.compare("ne", earlier, earlier));
  const differs = isNanEqual ? ops.and(isOther, ops.not(areNan)) : isOther;
  const isFirst = concatenate([ops.full([1], 1, "bool"), differs]);
  const rank = cumsum(cast(isFirst, "int32")).sub(1);
  // One more than is wanted, where the last run ends.
  const bounds = flatnonzero(isFirst, { size: size + 1, fillValue: n });
  const [starts, ends] = [ops.sliceDim(bounds, 0, 0, size), ops.sliceDim(bounds, 0, 1, size + 1)];
  const found = ops.compare("lt", starts, n);
  const fill = given.fillValue === undefined ? ops.sliceDim(sorted, 0, 0, 1) : given.fillValue;
  const counts = ops.sub(ends, starts);
  const inverse = ops.scatter(ops.full([n], 0, "int32"), order, rank, {
    dim: 0,
    batchDims: 0,
    combine: "set",
  });
  return {
    values: where(found, take(sorted, starts, 0, { mode: "clip" }), toType(fill, x.dtype, "unique")),
    indices: where(found, take(order, starts, 0, { mode: "clip" }), ops.sliceDim(order, 0, 0, 1)),
    inverse: ops.reshape(inverse, x.shape),
    counts,
  };
}

/**
 * The different elements of a tensor, sorted; filled up with the smallest.
 *
 * @example
 * ```ts
 * np.unique(np.array([3, 1, 3]), { size: 2 }); // [1, 3]
 * ```
 */
export function unique(value: TensorLike, options: SizedOptions): Tensor {
  return findUnique(value, sizedOptions.read(options, "unique"), true).values;
}

/**
 * The values of {@link uniqueAll}: the different elements of a tensor, sorted, in which every NaN differs.
 *
 * @example
 * ```ts
 * np.uniqueValues(np.array([3, NaN, 3, NaN]), { size: 3 }); // [3, NaN, NaN]
 * ```
 */
export function uniqueValues(value: TensorLike, options: SizedOptions): Tensor {
  return uniqueAll(value, sizedOptions.read(options, "uniqueValues")).values;
}

const isinOptions = schema({
  /** Inverts the result: which elements are not among the others. */
  invert: false,
});

/** Options of {@link isin}. */
export interface IsinOptions extends OptionsOf<typeof isinOptions> {}

/**
 * Which elements of a tensor are among those of another.
 *
 * @example
 * ```ts
 * np.isin(np.array([1, 2, 3]), np.array([2, 4])); // [false, true, false]
 * ```
 */
export function isin(value: TensorLike, others: TensorLike, options?: IsinOptions): Tensor {
  const { invert } = isinOptions.read(options, "isin");
  const [x, y] = [asTensor(value, "isin"), asTensor(others, "isin")];
  const sorted = sort(ops.reshape(y, [y.size]));
  if (y.size === 0) return ops.full(x.shape, invert ? 1 : 0, "bool");
  const place = searchsorted(sorted, x);
  const [found, wanted] = pair(take(sorted, place, 0, { mode: "clip" }), x, "isin");
  const among = ops.compare("eq", found, wanted);
  return invert ? ops.not(among) : among;
}

/**
 * The elements that are in one tensor or the other, each once, sorted.
 *
 * @example
 * ```ts
 * np.union1d(np.array([1, 2]), np.array([2, 3]), { size: 3 }); // [1, 2, 3]
 * ```
 */
export function union1d(x: TensorLike, y: TensorLike, options: SizedOptions): Tensor {
  return unique(concatenate([x, y], null), sizedOptions.read(options, "union1d"));
}

/**
 * The elements of the first tensor that are in the second, each once, sorted; filled up with the smallest of them, or
 * with 0 if there is none.
 *
 * @example
 * ```ts
 * np.intersect1d(np.array([1, 2, 3]), np.array([2, 3, 4]), { size: 2 }); // [2, 3]
 * ```
 */
export function intersect1d(x: TensorLike, y: TensorLike, options: SizedOptions): Tensor {
  return uniqueWhere(
    x,
    (values) => isin(values, y),
    sizedOptions.read(options, "intersect1d"),
    (first, isFound) => where(isFound, first, 0),
  );
}

/**
 * The elements of the first tensor that are not in the second, each once, sorted; filled up with 0.
 *
 * @example
 * ```ts
 * np.setdiff1d(np.array([1, 2, 3]), np.array([2]), { size: 2 }); // [1, 3]
 * ```
 */
export function setdiff1d(x: TensorLike, y: TensorLike, options: SizedOptions): Tensor {
  return uniqueWhere(
    x,
    (values) => isin(values, y, { invert: true }),
    sizedOptions.read(options, "setdiff1d"),
    () => 0,
  );
}

/**
 * The elements that are in one tensor but not in the other, each once, sorted; filled up as in {@link intersect1d}.
 *
 * @example
 * ```ts
 * np.setxor1d(np.array([1, 2]), np.array([2, 3]), { size: 2 }); // [1, 3]
 * ```
 */
export function setxor1d(x: TensorLike, y: TensorLike, options: SizedOptions): Tensor {
  const isInBoth = (values: Tensor) => ops.and(isin(values, x), isin(values, y));
  return uniqueWhere(
    concatenate([x, y], null),
    (values) => ops.not(isInBoth(values)),
    sizedOptions.read(options, "setxor1d"),
    (first, isFound) => where(isFound, first, 0),
  );
}

/**
 * The different elements of a tensor, sorted, and how often each occurs.
 *
 * @example
 * ```ts
 * np.uniqueCounts(np.array([3, 1, 3]), { size: 2 }); // { "values": [1, 3], "counts": [1, 2] }
 * ```
 */
export function uniqueCounts(
  value: TensorLike,
  options: SizedOptions,
): Pick<UniqueResult, "values" | "counts"> {
  const { values, counts } = uniqueAll(value, sizedOptions.read(options, "uniqueCounts"));
  return { values, counts };
}

/**
 * The different elements of a tensor, sorted, and which of them each element is.
 *
 * @example
 * ```ts
 * np.uniqueInverse(np.array([3, 1, 3]), { size: 2 }); // { "values": [1, 3], "inverse": [1, 0, 1] }
 * ```
 */
export function uniqueInverse(
  value: TensorLike,
  options: SizedOptions,
): Pick<UniqueResult, "values" | "inverse"> {
  const { values, inverse } = uniqueAll(value, sizedOptions.read(options, "uniqueInverse"));
  return { values, inverse };
}

/** @param fillFor what to fill up with, by the first result and whether there is one */
function uniqueWhere(
  value: TensorLike,
  chosen: (values: Tensor) => Tensor,
  options: SizedOptions,
  fillFor: (first: Tensor, isFound: Tensor) => TensorLike,
): Tensor {
  const x = asTensor(value, "sets");
  const { size } = options;
  const { values, counts } = findUnique(x, { size: x.size }, true);
  const keep = ops.and(chosen(values), ops.compare("gt", counts, 0));
  const places = flatnonzero(keep, { size, fillValue: x.size });
  const found = ops.compare("lt", places, x.size);
  const kept = take(values, places, 0, { mode: "clip" });
  const first = (y: Tensor) => ops.sliceDim(y, 0, 0, Math.min(1, size));
  const fill = options.fillValue ?? fillFor(first(kept), first(found));
  return where(found, kept, toType(fill, x.dtype, "sets"));
}
