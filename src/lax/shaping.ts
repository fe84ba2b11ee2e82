/** Making tensors and moving their elements. */

import { integerFrom, need, needIfGiven } from "../ir/arguments.js";
import type { DType } from "../ir/dtype.js";
import { DimError, ShapeError } from "../ir/errors.js";
import { at, formatType, normalizeDim, normalizeDims, range, type Shape, sameNumbers } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import { needTensor, needTensors, operandType, type TensorLike } from "../trace/promote.js";
import { Tensor } from "../trace/tensor.js";
import { flatten, unflatten } from "../trace/tree.js";
import { insertDims, operandsOf } from "./operands.js";

/**
 * 0, 1, 2 … in one dim.
 *
 * @example
 * ```ts
 * lax.iota("int32", 4); // [0, 1, 2, 3]
 * ```
 */
export function iota(dtype: DType, size: number): Tensor {
  need("number", size, "size", "lax.iota");
  return ops.iota(dtype, [size], 0);
}

/**
 * 0, 1, 2 … along a dim of a tensor of the given shape.
 *
 * @example
 * ```ts
 * lax.broadcastedIota("int32", [2, 2], 1); // [[0, 1], [0, 1]]
 * ```
 */
export function broadcastedIota(dtype: DType, shape: Shape, dim: number): Tensor {
  need("integers", shape, "shape", "lax.broadcastedIota");
  need("number", dim, "dim", "lax.broadcastedIota");
  return ops.iota(dtype, shape, dim);
}

/**
 * A tensor filled with one value.
 *
 * @example
 * ```ts
 * lax.full([2], 7); // [7, 7]
 * ```
 */
export function full(shape: Shape, value: TensorLike, dtype?: DType): Tensor {
  need("integers", shape, "shape", "lax.full");
  if (!(value instanceof Tensor)) {
    return ops.broadcastInDim(Tensor.scalar(value, dtype ?? operandType(value)), shape, []);
  }
  return ops.broadcastInDim(ops.convert(value, dtype ?? value.dtype), shape, []);
}

/**
 * A tensor of the shape and type of another, filled with one value.
 *
 * @example
 * ```ts
 * lax.fullLike(np.array([1, 2]), 7); // [7, 7]
 * ```
 */
export function fullLike(x: Tensor, value: TensorLike, dtype?: DType): Tensor {
  needTensor(x, "x", "lax.fullLike");
  return full(x.shape, value, dtype ?? x.dtype);
}

/**
 * A tensor whose elements are still to be written; they are 0 here.
 *
 * @example
 * ```ts
 * lax.empty([2], "int32"); // [0, 0]
 * ```
 */
export function empty(shape: Shape, dtype: DType): Tensor {
  return full(shape, 0, dtype);
}

/**
 * Repeats a tensor until it has the shape of another, as operands of `np` are: dims are aligned from the last one.
 *
 * @example
 * ```ts
 * lax.broadcastLike(np.array([1, 2]), np.zeros([2, 2])); // [[1, 2], [1, 2]]
 * ```
 */
export function broadcastLike(x: Tensor, like: Tensor): Tensor {
  needTensor(x, "x", "lax.broadcastLike");
  needTensor(like, "like", "lax.broadcastLike");
  const offset = like.ndim - x.ndim;
  if (offset < 0 || x.shape.some((n, d) => n !== 1 && n !== like.shape[d + offset])) {
    throw new ShapeError(
      `[lax.broadcastLike] ${formatType(x.type)} cannot be repeated to ${formatType(like.type)}: dims must be equal or 1`,
    );
  }
  const kept = range(x.ndim).filter((d) => at(x.shape, d) === like.shape[d + offset]);
  const bare = ops.reshape(
    x,
    kept.map((d) => at(x.shape, d)),
  );
  return ops.broadcastInDim(
    bare,
    like.shape,
    kept.map((d) => d + offset),
  );
}

/**
 * Puts dims of size 1 in front until there are `rank`.
 *
 * @example
 * ```ts
 * lax.broadcastToRank(np.array([1, 2]), 2); // [[1, 2]]
 * ```
 */
export function broadcastToRank(x: Tensor, rank: number): Tensor {
  needTensor(x, "x", "lax.broadcastToRank");
  need(integerFrom(0), rank, "rank", "lax.broadcastToRank");
  if (rank < x.ndim) {
    throw new ShapeError(
      `[lax.broadcastToRank] ${formatType(x.type)} has ${x.ndim} dims already, not ${rank}`,
    );
  }
  return ops.reshape(x, [...range(rank - x.ndim).map(() => 1), ...x.shape]);
}

/**
 * Puts new dims of the given sizes in front.
 *
 * @example
 * ```ts
 * lax.broadcast(np.array([1, 2]), [2]); // [[1, 2], [1, 2]]
 * ```
 */
export function broadcast(x: Tensor, sizes: Shape): Tensor {
  needTensor(x, "x", "lax.broadcast");
  need("integers", sizes, "sizes", "lax.broadcast");
  return ops.broadcastInDim(
    x,
    [...sizes, ...x.shape],
    range(x.ndim).map((d) => d + sizes.length),
  );
}

/**
 * Repeats along new dims and dims of size 1; operand dim `i` becomes dim `dims[i]`.
 *
 * @example
 * ```ts
 * lax.broadcastInDim(np.array([1, 2]), [2, 2], [0]); // [[1, 1], [2, 2]]
 * ```
 */
export function broadcastInDim(x: Tensor, shape: Shape, dims: readonly number[]): Tensor {
  needTensor(x, "x", "lax.broadcastInDim");
  need("integers", shape, "the shape", "lax.broadcastInDim");
  need("integers", dims, "dims", "lax.broadcastInDim");
  const order = range(dims.length).sort((i, j) => at(dims, i) - at(dims, j));
  if (dims.length === x.ndim && !sameNumbers(order, range(x.ndim))) {
    const sorted = order.map((i) => at(dims, i));
    return broadcastInDim(ops.transpose(x, order), shape, sorted);
  }
  if (sameNumbers(x.shape, shape) && !sameNumbers(dims, range(x.ndim))) {
    throw new DimError(
      `[lax.broadcastInDim] dims [${dims}] must name each of the ${x.ndim} dims of [${shape}]`,
    );
  }
  return ops.broadcastInDim(x, shape, dims);
}

/**
 * Inserts dims of size 1 at the given places of the result.
 *
 * @example
 * ```ts
 * lax.expandDims(np.array([1, 2]), [0]).shape; // [1, 2]
 * ```
 */
export function expandDims(x: Tensor, dims: readonly number[]): Tensor {
  needTensor(x, "x", "lax.expandDims");
  need("integers", dims, "dims", "lax.expandDims");
  return insertDims(x, dims, "lax.expandDims");
}

/**
 * Drops dims of size 1.
 *
 * @example
 * ```ts
 * lax.squeeze(np.zeros([1, 3]), [0]).shape; // [3]
 * ```
 */
export function squeeze(x: Tensor, dims: readonly number[]): Tensor {
  needTensor(x, "x", "lax.squeeze");
  need("integers", dims, "dims", "lax.squeeze");
  const places = normalizeDims(dims, x.ndim, "lax.squeeze");
  if (places.some((d) => x.shape[d] !== 1)) {
    throw new ShapeError(`[lax.squeeze] dims [${dims}] of ${formatType(x.type)} must have size 1`);
  }
  return ops.reshape(
    x,
    x.shape.filter((_, d) => !places.includes(d)),
  );
}

/**
 * Merges neighbouring dims `start` … `stop` − 1 into one.
 *
 * @example
 * ```ts
 * lax.collapse(np.zeros([2, 3, 4]), 0, 2).shape; // [6, 4]
 * ```
 */
export function collapse(x: Tensor, start: number, stop?: number): Tensor {
  needTensor(x, "x", "lax.collapse");
  need("number", start, "start", "lax.collapse");
  needIfGiven("number", stop, "stop", "lax.collapse");
  const end = stop ?? x.ndim;
  const size = x.shape.slice(start, end).reduce((n, m) => n * m, 1);
  return ops.reshape(x, [...x.shape.slice(0, start), size, ...x.shape.slice(end)]);
}

/** What goes before, after and between the elements of a dim; negative amounts crop. */
export type PadConfig = readonly [low: number, high: number, interior: number];

/**
 * Puts a value around and between the elements, one {@link PadConfig} per dim.
 *
 * @example
 * ```ts
 * lax.pad(np.array([1, 2]), 0, [[1, 2, 0]]); // [0, 1, 2, 0, 0]
 * ```
 */
export function pad(x: Tensor, value: TensorLike, config: readonly PadConfig[]): Tensor {
  needTensor(x, "x", "lax.pad");
  need("list", config, "config", "lax.pad");
  for (const entry of config) need("integers", entry, "each entry of config", "lax.pad");
  const [tensor, filler] = operandsOf([x, value] as const, "pad");
  return ops.pad(tensor, filler, {
    low: config.map(([low]) => low),
    high: config.map(([, high]) => high),
    interior: config.map(([, , interior]) => interior),
  });
}

/**
 * The same values, treated as constants by differentiation; works on trees.
 *
 * @example
 * ```ts
 * grad((x: Tensor) => x.mul(lax.stopGradient(x)))(np.array(3)); // 3
 * ```
 */
export function stopGradient<T>(values: T): T {
  const { leaves, structure } = flatten(values);
  return unflatten<T>(
    structure,
    leaves.map((leaf) => (leaf instanceof Tensor ? ops.stopGradient(leaf) : leaf)),
  );
}

/**
 * Splits along a dim into pieces of the given sizes, which add up to that of the dim.
 *
 * @example
 * ```ts
 * lax.split(np.array([1, 2, 3]), [1, 2]); // [[1], [2, 3]]
 * ```
 */
export function split(x: Tensor, sizes: readonly number[], dim = 0): Tensor[] {
  needTensor(x, "x", "lax.split");
  need("integers", sizes, "sizes", "lax.split");
  needIfGiven("number", dim, "dim", "lax.split");
  const d = normalizeDim(dim, x.ndim, "lax.split");
  const total = sizes.reduce((n, m) => n + m, 0);
  if (total !== x.shape[d] || sizes.some((n) => !Number.isInteger(n) || n < 0)) {
    throw new ShapeError(
      `[lax.split] sizes [${sizes}] add up to ${total}, but dim ${d} of ${formatType(x.type)} has ${x.shape[d]}: give whole sizes that add up to it`,
    );
  }
  let start = 0;
  return sizes.map((size) => {
    const from = start;
    start += size;
    return ops.sliceDim(x, d, from, start);
  });
}

/**
 * Tensors of one shape and type along a new dim.
 *
 * @example
 * ```ts
 * lax.stack([np.array([1, 2]), np.array([3, 4])]); // [[1, 2], [3, 4]]
 * ```
 */
export function stack(xs: readonly Tensor[], dim = 0): Tensor {
  needTensors(xs, "xs", "lax.stack");
  needIfGiven("number", dim, "dim", "lax.stack");
  return ops.concatenate(
    xs.map((x) => expandDims(x, [dim])),
    normalizeDim(dim, (xs[0]?.ndim ?? 0) + 1, "lax.stack"),
  );
}

/**
 * The slices along a dim, without it.
 *
 * @example
 * ```ts
 * lax.unstack(np.array([[1, 2], [3, 4]])); // [[1, 2], [3, 4]]
 * ```
 */
export function unstack(x: Tensor, dim = 0): Tensor[] {
  needTensor(x, "x", "lax.unstack");
  needIfGiven("number", dim, "dim", "lax.unstack");
  const d = normalizeDim(dim, x.ndim, "lax.unstack");
  return range(x.shape[d] ?? 0).map((i) => squeeze(ops.sliceDim(x, d, i, i + 1), [d]));
}

/**
 * Repeats a tensor along its dims, a number for each.
 *
 * @example
 * ```ts
 * lax.tile(np.array([1, 2]), [2]); // [1, 2, 1, 2]
 * ```
 */
export function tile(x: Tensor, repeats: readonly number[]): Tensor {
  needTensor(x, "x", "lax.tile");
  need("integers", repeats, "repeats", "lax.tile");
  if (repeats.length !== x.ndim) {
    throw new ShapeError(
      `[lax.tile] repeats [${repeats}] need an entry for each of the ${x.ndim} dims of ${formatType(x.type)}`,
    );
  }
  const spread = ops.broadcastInDim(
    x,
    x.shape.flatMap((n, d) => [repeats[d] ?? 1, n]),
    range(x.ndim).map((d) => 2 * d + 1),
  );
  return ops.reshape(
    spread,
    x.shape.map((n, d) => n * (repeats[d] ?? 1)),
  );
}
