/** Running reductions, sorting and choosing the largest. */

import { need, needIfGiven } from "../ir/arguments.js";
import { isFloat, limits } from "../ir/dtype.js";
import { DTypeError, ShapeError } from "../ir/errors.js";
import { at, formatType, normalizeDim } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import { needTensor, needTensors } from "../trace/promote.js";
import { Tensor } from "../trace/tensor.js";

/** Running results along a dim by doubling: after step k each element covers 2ᵏ neighbours. */
export function runningReduce(
  x: Tensor,
  dim: number,
  combine: (x: Tensor, y: Tensor) => Tensor,
  start: number,
  reverse = false,
): Tensor {
  const n = at(x.shape, dim);
  const pad = (amount: number) => x.shape.map((_, d) => (d === dim ? amount : 0));
  let result = x;
  for (let step = 1; step < n; step *= 2) {
    const [from, to] = reverse ? [step, n] : [0, n - step];
    const shifted = ops.pad(ops.sliceDim(result, dim, from, to), Tensor.scalar(start, x.dtype), {
      low: pad(reverse ? 0 : step),
      high: pad(reverse ? step : 0),
      interior: pad(0),
    });
    result = combine(result, shifted);
  }
  return result;
}

/**
 * Running sums along a dim, from the end when reversed.
 *
 * @example
 * ```ts
 * lax.cumsum(np.array([1, 2, 3])); // [1, 3, 6]
 * ```
 */
export function cumsum(x: Tensor, dim = 0, reverse = false): Tensor {
  needTensor(x, "x", "lax.cumsum");
  needIfGiven("number", dim, "dim", "lax.cumsum");
  return ops.cumsum(x, normalizeDim(dim, x.ndim, "lax.cumsum"), reverse);
}

/**
 * Running products along a dim, from the end when reversed.
 *
 * @example
 * ```ts
 * lax.cumprod(np.array([1, 2, 3])); // [1, 2, 6]
 * ```
 */
export function cumprod(x: Tensor, dim = 0, reverse = false): Tensor {
  needTensor(x, "x", "lax.cumprod");
  needIfGiven("number", dim, "dim", "lax.cumprod");
  return runningReduce(x, normalizeDim(dim, x.ndim, "lax.cumprod"), ops.mul, 1, reverse);
}

/**
 * The largest element so far along a dim, from the end when reversed.
 *
 * @example
 * ```ts
 * lax.cummax(np.array([1, 3, 2])); // [1, 3, 3]
 * ```
 */
export function cummax(x: Tensor, dim = 0, reverse = false): Tensor {
  needTensor(x, "x", "lax.cummax");
  needIfGiven("number", dim, "dim", "lax.cummax");
  const lowest = isFloat(x.dtype) ? Number.NEGATIVE_INFINITY : limits(x.dtype).min;
  return runningReduce(x, normalizeDim(dim, x.ndim, "lax.cummax"), ops.max, lowest, reverse);
}

/**
 * The smallest element so far along a dim, from the end when reversed.
 *
 * @example
 * ```ts
 * lax.cummin(np.array([3, 1, 2])); // [3, 1, 1]
 * ```
 */
export function cummin(x: Tensor, dim = 0, reverse = false): Tensor {
  needTensor(x, "x", "lax.cummin");
  needIfGiven("number", dim, "dim", "lax.cummin");
  const highest = isFloat(x.dtype) ? Number.POSITIVE_INFINITY : limits(x.dtype).max;
  return runningReduce(x, normalizeDim(dim, x.ndim, "lax.cummin"), ops.min, highest, reverse);
}

/**
 * The logarithm of the sum of exponentials so far along a dim, from the end when reversed; without overflow.
 *
 * @example
 * ```ts
 * lax.cumlogsumexp(np.array([0, 0])); // [0, 0.6931]
 * ```
 */
export function cumlogsumexp(x: Tensor, dim = 0, reverse = false): Tensor {
  needTensor(x, "x", "lax.cumlogsumexp");
  needIfGiven("number", dim, "dim", "lax.cumlogsumexp");
  if (!isFloat(x.dtype))
    throw new DTypeError(`[lax.cumlogsumexp] takes floats, got ${formatType(x.type)}: convert them`);
  const along = normalizeDim(dim, x.ndim, "lax.cumlogsumexp");
  return runningReduce(x, along, logAddExp, Number.NEGATIVE_INFINITY, reverse);
}

/** log(exp(x) + exp(y)) without overflow. */
function logAddExp(x: Tensor, y: Tensor): Tensor {
  const isFirst = ops.compare("ge", x, y);
  const [large, small] = [ops.select(isFirst, x, y), ops.select(isFirst, y, x)];
  const difference = ops.sub(small, large);
  // The difference of equal infinities is NaN: they are the result themselves, and the NaN must not reach gradients.
  const isInfinite = ops.and(
    ops.compare("eq", x, y),
    ops.compare("eq", ops.abs(x), Number.POSITIVE_INFINITY),
  );
  const safe = ops.select(isInfinite, Tensor.scalar(0, x.dtype), difference);
  return ops.select(isInfinite, ops.stopGradient(x), ops.add(large, ops.log1p(ops.exp(safe))));
}

/**
 * Sorts along a dim, from the smallest to the largest; equal elements keep their order, NaN comes last. Several
 * tensors of one shape are sorted together by the first `numKeys` of them.
 *
 * @example
 * ```ts
 * lax.sort(np.array([3, 1, 2])); // [1, 2, 3]
 * ```
 */
export function sort(x: Tensor, dim?: number): Tensor;
export function sort(xs: readonly Tensor[], dim?: number, numKeys?: number): Tensor[];
export function sort(operands: Tensor | readonly Tensor[], dim = -1, numKeys = 1): Tensor | Tensor[] {
  needIfGiven("number", dim, "dim", "lax.sort");
  needIfGiven("number", numKeys, "numKeys", "lax.sort");
  const xs = operands instanceof Tensor ? [operands] : operands;
  needTensors(xs, "the operands", "lax.sort");
  const sorted = ops.sort(xs, normalizeDim(dim, at(xs, 0).ndim, "lax.sort"), numKeys);
  return operands instanceof Tensor ? at(sorted, 0) : sorted;
}

/**
 * Sorts keys along a dim and carries values along.
 *
 * @example
 * ```ts
 * lax.sortKeyVal(np.array([3, 1, 2]), np.array([10, 20, 30])); // [[1, 2, 3], [20, 30, 10]]
 * ```
 */
export function sortKeyVal(keys: Tensor, values: Tensor, dim = -1): [Tensor, Tensor] {
  needTensor(keys, "keys", "lax.sortKeyVal");
  needTensor(values, "values", "lax.sortKeyVal");
  needIfGiven("number", dim, "dim", "lax.sortKeyVal");
  const sorted = ops.sort([keys, values], normalizeDim(dim, keys.ndim, "lax.sortKeyVal"));
  return [at(sorted, 0), at(sorted, 1)];
}

/** The sorted elements and their int32 indices; equal elements keep their order either way. */
export function sortWithIndices(x: Tensor, dim: number, descending: boolean): [Tensor, Tensor] {
  const indices = ops.iota("int32", x.shape, dim);
  if (!descending) {
    const sorted = ops.sort([x, indices], dim);
    return [at(sorted, 0), at(sorted, 1)];
  }
  // Sorting the reversed tensor and reversing again keeps equal elements in their order.
  const sorted = ops.sort([ops.reverse(x, [dim]), ops.reverse(indices, [dim])], dim);
  return [ops.reverse(at(sorted, 0), [dim]), ops.reverse(at(sorted, 1), [dim])];
}

/**
 * The k largest elements along the last dim, largest first, and their int32 indices; of equal elements the
 * first comes first.
 *
 * @example
 * ```ts
 * lax.topK(np.array([3, 1, 2]), 2); // [[3, 2], [0, 2]]
 * ```
 */
export function topK(x: Tensor, k: number): [values: Tensor, indices: Tensor] {
  needTensor(x, "x", "lax.topK");
  need("number", k, "k", "lax.topK");
  const dim = x.ndim - 1;
  const n = x.shape[dim];
  if (n === undefined || !Number.isInteger(k) || k < 0 || k > n) {
    throw new ShapeError(
      `[lax.topK] k = ${k} does not fit the last dim of ${formatType(x.type)}: use 0 to ${n ?? 0}`,
    );
  }
  const [values, indices] = sortWithIndices(x, dim, true);
  return [ops.sliceDim(values, dim, 0, k), ops.sliceDim(indices, dim, 0, k)];
}
