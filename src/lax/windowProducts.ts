/** Sums over windows of elements times a kernel. */
import { type DType, isFloat } from "../ir/dtype.js";
import { at, range, type Shape, sameNumbers, sizeOf } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import { Tensor } from "../trace/tensor.js";
import { layOut, metBy, positions, type WindowShape, windowCounts } from "./windows.js";

/**
 * Fewer features than this are gathered from all elements of a window into one product: one product for every
 * element would be mostly overhead, and the copies are small.
 */
const fewFeatures = 32;

/**
 * A convolution of x [batch, space…, groups · inputs] with a kernel [space…, inputs, groups · outputs].
 *
 * @returns [batch, space…, groups · outputs]
 */
export function convolve(
  x: Tensor,
  kernel: Tensor,
  window: WindowShape,
  groups: number,
  dtype: DType,
  caller: string,
): Tensor {
  const padded = layOut(x, Tensor.scalar(0, x.dtype), 1, window, caller);
  const rank = window.size.length;
  const counts = windowCounts(padded.shape.slice(1, 1 + rank), window);
  const [inputs = 0, outputs = 0] = kernel.shape.slice(-2);
  const result = [at(x.shape, 0), ...counts, outputs];
  if (sizeOf(result) === 0 || kernel.size === 0) return ops.full(result, 0, dtype);
  const weights = ops.reshape(kernel, [...window.size, inputs, groups, outputs / groups]);
  const wide = sumType(dtype);
  const y = product(padded, weights, counts, window, groups, wide);
  return ops.convert(ops.reshape(y, result), dtype);
}

/** Sums of half-width floats are kept in float32 until they are complete. */
function sumType(dtype: DType): DType {
  return isFloat(dtype) && dtype !== "float64" ? "float32" : dtype;
}

function product(
  x: Tensor,
  weights: Tensor,
  counts: Shape,
  window: WindowShape,
  groups: number,
  dtype: DType,
): Tensor {
  const rank = counts.length;
  const inputs = at(weights.shape, rank);
  if (tiles(window)) return tiled(x, weights, counts, window, dtype);
  if (groups > 1 && inputs === 1) return scaled(x, weights, counts, window, dtype);
  // Windows follow the padding directly, so that a split dim exchanges only the rows at its borders.
  const met = positions(window.size).map((position) =>
    inGroups(metBy(x, position, 1, counts, window), groups),
  );
  if (inputs < fewFeatures) {
    const seen = stack(met, rank + 1);
    const flat = ops.reshape(weights, [met.length, ...weights.shape.slice(rank)]);
    return grouped(seen, flat, [rank + 1], rank + 2, dtype);
  }
  const matrices = positions(window.size).map((position) => pick(weights, position));
  return met
    .map((part, i) => grouped(part, at(matrices, i), [], rank + 1, dtype))
    .reduce((sum, part) => ops.add(sum, part));
}

/** Whether the windows lie side by side without gaps. */
function tiles({ size, strides, dilation }: WindowShape): boolean {
  return sameNumbers(size, strides) && dilation.every((n) => n === 1);
}

/** Windows side by side are the operand itself in another shape. */
function tiled(x: Tensor, weights: Tensor, counts: Shape, { size }: WindowShape, dtype: DType): Tensor {
  const rank = size.length;
  const limits = x.shape.map((n, d) => (d >= 1 && d <= rank ? at(counts, d - 1) * at(size, d - 1) : n));
  const cropped = ops.slice(
    x,
    limits.map(() => 0),
    limits,
  );
  const [inputs = 0, groups = 0] = weights.shape.slice(rank);
  const split = [at(x.shape, 0), ...counts.flatMap((n, d) => [n, at(size, d)]), groups, inputs];
  const space = range(rank).map((d) => 2 * d + 2);
  return grouped(ops.reshape(cropped, split), weights, space, 2 * rank + 1, dtype);
}

/**
 * x [batch, …, groups, inputs] times weights [window…, inputs, groups, outputs].
 *
 * @param seen the dims of x that are the window's
 * @param groupDim the dim of x that is the groups'
 * @returns [batch, …, groups, outputs]
 */
function grouped(
  x: Tensor,
  weights: Tensor,
  seen: readonly number[],
  groupDim: number,
  dtype: DType,
): Tensor {
  const numSeen = seen.length;
  const contract = [...range(numSeen), numSeen];
  if (at(x.shape, groupDim) === 1) {
    const [flat, matrix] = [dropDim(x, groupDim), dropDim(weights, numSeen + 1)];
    const y = ops.dotGeneral(
      flat,
      matrix,
      { lhsContract: [...seen, groupDim], rhsContract: contract },
      dtype,
    );
    return ops.reshape(y, [...y.shape.slice(0, -1), 1, at(y.shape, y.ndim - 1)]);
  }
  const y = ops.dotGeneral(
    x,
    weights,
    {
      lhsBatch: [groupDim],
      rhsBatch: [numSeen + 1],
      lhsContract: [...seen, groupDim + 1],
      rhsContract: contract,
    },
    dtype,
  );
  return ops.moveDim(y, 0, y.ndim - 2);
}

/** Where every feature is a group of its own, its windows are scaled instead of multiplied as matrices. */
function scaled(x: Tensor, weights: Tensor, counts: Shape, window: WindowShape, dtype: DType): Tensor {
  const rank = counts.length;
  const [groups = 0, outputs = 0] = weights.shape.slice(-2);
  const shape = [at(x.shape, 0), ...counts, groups, outputs];
  const wide = ops.convert(x, dtype);
  const parts = positions(window.size).map((position) => {
    const own = inGroups(metBy(wide, position, 1, counts, window), groups);
    const met = ops.broadcastInDim(own, shape, range(shape.length));
    const factors = dropDim(pick(ops.convert(weights, dtype), position), 0);
    return ops.mul(met, ops.broadcastInDim(factors, shape, [rank + 1, rank + 2]));
  });
  return parts.reduce((sum, part) => ops.add(sum, part));
}

/** [batch, …, groups, inputs] of [batch, …, groups · inputs]. */
function inGroups(x: Tensor, groups: number): Tensor {
  return ops.reshape(x, [...x.shape.slice(0, -1), groups, (x.shape.at(-1) ?? 0) / groups]);
}

/** The matrix of one element of the window. */
function pick(weights: Tensor, position: Shape): Tensor {
  return position.reduce((w, p) => dropDim(ops.sliceDim(w, 0, p, p + 1), 0), weights);
}

function dropDim(x: Tensor, dim: number): Tensor {
  return ops.reshape(
    x,
    x.shape.filter((_, d) => d !== dim),
  );
}

/** Tensors along a new dim. */
function stack(parts: readonly Tensor[], dim: number): Tensor {
  const raised = parts.map((x) => ops.reshape(x, [...x.shape.slice(0, dim), 1, ...x.shape.slice(dim)]));
  return ops.concatenate(raised, dim);
}

/** What each window over x [batch, space…, features] sees. @returns [batch, space…, window, features] */
export function patches(x: Tensor, window: WindowShape, caller: string): Tensor {
  const padded = layOut(x, Tensor.scalar(0, x.dtype), 1, window, caller);
  const rank = window.size.length;
  const counts = windowCounts(padded.shape.slice(1, 1 + rank), window);
  const fits = counts.every((n) => n > 0);
  const met = positions(window.size).map((position) =>
    metBy(padded, fits ? position : position.map(() => 0), 1, counts, window),
  );
  return stack(met, rank + 1);
}
