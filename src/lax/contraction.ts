/** Reductions and sums of products. */
import { need } from "../ir/arguments.js";
import { type DType, isUnsigned, limits } from "../ir/dtype.js";
import { ShapeError } from "../ir/errors.js";
import type { Precision } from "../ir/ops.js";
import { optional, required, schema } from "../ir/schema.js";
import { at, formatType, normalizeDim, normalizeDims, range, sizeOf } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import { needTensor } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";

const reduction =
  (name: string, op: (x: Tensor, dims: readonly number[]) => Tensor) =>
  (x: Tensor, dims: readonly number[]) => {
    needTensor(x, "x", `lax.${name}`);
    need("integers", dims, "dims", `lax.${name}`);
    return op(x, normalizeDims(dims, x.ndim, `lax.${name}`));
  };

/**
 * The sum over dims.
 *
 * @example
 * ```ts
 * lax.reduceSum(np.array([[1, 2], [3, 4]]), [0]); // [4, 6]
 * ```
 */
export const reduceSum = reduction("reduceSum", ops.reduceSum);
/**
 * The largest element over dims.
 *
 * @example
 * ```ts
 * lax.reduceMax(np.array([[1, 2], [3, 4]]), [0]); // [3, 4]
 * ```
 */
export const reduceMax = reduction("reduceMax", ops.reduceMax);
/**
 * The smallest element over dims.
 *
 * @example
 * ```ts
 * lax.reduceMin(np.array([[1, 2], [3, 4]]), [0]); // [1, 2]
 * ```
 */
export const reduceMin = reduction("reduceMin", ops.reduceMin);
/**
 * Whether all elements of a bool tensor are true; the bits that all integers have.
 *
 * @example
 * ```ts
 * lax.reduceAnd(np.array([6, 3], "int32"), [0]); // 2
 * ```
 */
export const reduceAnd = reduction("reduceAnd", (x, dims) =>
  x.dtype === "bool"
    ? ops.reduceMin(x, dims)
    : byHalves(x, dims, ops.and, isUnsigned(x.dtype) ? limits(x.dtype).max : -1),
);
/**
 * Whether one element of a bool tensor is true; the bits that one of the integers has.
 *
 * @example
 * ```ts
 * lax.reduceOr(np.array([6, 3], "int32"), [0]); // 7
 * ```
 */
export const reduceOr = reduction("reduceOr", (x, dims) =>
  x.dtype === "bool" ? ops.reduceMax(x, dims) : byHalves(x, dims, ops.or, 0),
);
/**
 * The exclusive or of all elements over dims, bit by bit.
 *
 * @example
 * ```ts
 * lax.reduceXor(np.array([6, 3], "int32"), [0]); // 5
 * ```
 */
export const reduceXor = reduction("reduceXor", (x, dims) => byHalves(x, dims, ops.xor, 0));
/**
 * The product over dims.
 *
 * @example
 * ```ts
 * lax.reduceProd(np.array([[1, 2], [3, 4]]), [0]); // [3, 8]
 * ```
 */
export const reduceProd = reduction("reduceProd", (x, dims) => byHalves(x, dims, ops.mul, 1));

/** A reduction that has no op: the two halves are combined until one element is left. */
function byHalves(
  x: Tensor,
  reduced: readonly number[],
  combine: (x: Tensor, y: Tensor) => Tensor,
  ofNone: number,
): Tensor {
  const kept = range(x.ndim).filter((d) => !reduced.includes(d));
  const shape = kept.map((d) => at(x.shape, d));
  const count = sizeOf(reduced.map((d) => at(x.shape, d)));
  if (count === 0) return ops.full(shape, ofNone, x.dtype);
  let rest = ops.reshape(ops.transpose(x, [...kept, ...reduced]), [...shape, count]);
  for (let n = count; n > 1; n = Math.ceil(n / 2)) {
    const half = Math.floor(n / 2);
    const take = (from: number, to: number) => ops.sliceDim(rest, shape.length, from, to);
    const halves = combine(take(0, half), take(half, 2 * half));
    rest = n % 2 === 0 ? halves : ops.concatenate([halves, take(n - 1, n)], shape.length);
  }
  return ops.reshape(rest, shape);
}

/**
 * The int32 index of the first largest element along a dim.
 *
 * @example
 * ```ts
 * lax.argmax(np.array([1, 5, 2]), 0); // 1
 * ```
 */
export function argmax(x: Tensor, dim: number): Tensor {
  needTensor(x, "x", "lax.argmax");
  need("number", dim, "dim", "lax.argmax");
  return ops.argmax(x, normalizeDim(dim, x.ndim, "lax.argmax"));
}

/**
 * The int32 index of the first smallest element along a dim.
 *
 * @example
 * ```ts
 * lax.argmin(np.array([3, 1, 2]), 0); // 1
 * ```
 */
export function argmin(x: Tensor, dim: number): Tensor {
  needTensor(x, "x", "lax.argmin");
  need("number", dim, "dim", "lax.argmin");
  return ops.argmin(x, normalizeDim(dim, x.ndim, "lax.argmin"));
}

const dotDims = schema({
  lhsContract: required("integers"),
  rhsContract: required("integers"),
  lhsBatch: optional("integers"),
  rhsBatch: optional("integers"),
  precision: optional<Precision>("string"),
});

/**
 * Sums of products over paired dims; of bools, whether there is a pair of trues.
 *
 * @param dtype the type of the result, by default that of the operands
 *
 * @example
 * ```ts
 * const dims = { lhsContract: [1], rhsContract: [0] };
 * lax.dotGeneral(np.array([[1, 2], [3, 4]]), np.array([[1], [1]]), dims); // [[3], [7]]
 * ```
 */
export function dotGeneral(x: Tensor, y: Tensor, dims: ops.DotDims, dtype?: DType): Tensor {
  dotDims.read(dims, "lax.dotGeneral");
  return ops.dotGeneral(x, y, dims, dtype);
}

/**
 * Products of vectors and matrices: vector · vector, matrix · vector, vector · matrix, matrix · matrix.
 *
 * @example
 * ```ts
 * lax.dot(np.array([1, 2]), np.array([3, 4])); // 11
 * ```
 */
export function dot(x: Tensor, y: Tensor): Tensor {
  needTensor(x, "x", "lax.dot");
  needTensor(y, "y", "lax.dot");
  if (![1, 2].includes(x.ndim) || ![1, 2].includes(y.ndim)) {
    throw new ShapeError(
      `[lax.dot] takes vectors and matrices, got ${formatType(x.type)} and ${formatType(y.type)}: use dotGeneral`,
    );
  }
  return ops.dotGeneral(x, y, { lhsContract: [x.ndim - 1], rhsContract: [0] });
}

/**
 * The matrix products of two batches: all dims but the last two are paired.
 *
 * @example
 * ```ts
 * lax.batchMatmul(np.ones([2, 1, 3]), np.ones([2, 3, 1])); // [[[3]], [[3]]]
 * ```
 */
export function batchMatmul(x: Tensor, y: Tensor): Tensor {
  needTensor(x, "x", "lax.batchMatmul");
  needTensor(y, "y", "lax.batchMatmul");
  const batch = range(Math.max(0, x.ndim - 2));
  if (x.ndim !== y.ndim || x.ndim < 2) {
    throw new ShapeError(
      `[lax.batchMatmul] ${formatType(x.type)} and ${formatType(y.type)} must have the same number of dims, at least 2`,
    );
  }
  const dims = { lhsBatch: batch, rhsBatch: batch, lhsContract: [x.ndim - 1], rhsContract: [y.ndim - 2] };
  return ops.dotGeneral(x, y, dims);
}
