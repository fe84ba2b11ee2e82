/** Slices, with bounds known when tracing or only at run time. */
import { need, needIfGiven } from "../ir/arguments.js";
import { ShapeError } from "../ir/errors.js";
import { at, formatType, normalizeDim, type Shape } from "../ir/shape.js";
import { tracedAsOneCall } from "../trace/builder.js";
import * as ops from "../trace/ops.js";
import { needTensor, type TensorLike } from "../trace/promote.js";
import { Tensor } from "../trace/tensor.js";
import { toStart } from "./operands.js";

/**
 * The elements from `start` up to `limit` along a dim, every `stride`-th; negative bounds count from the end.
 *
 * @example
 * ```ts
 * lax.sliceInDim(np.arange(5), 1, 4); // [1, 2, 3]
 * ```
 */
export function sliceInDim(
  x: Tensor,
  start: number | null,
  limit: number | null,
  stride = 1,
  dim = 0,
): Tensor {
  needTensor(x, "x", "lax.sliceInDim");
  needIfGiven("number", start ?? undefined, "start", "lax.sliceInDim");
  needIfGiven("number", limit ?? undefined, "limit", "lax.sliceInDim");
  needIfGiven("number", stride, "stride", "lax.sliceInDim");
  needIfGiven("number", dim, "dim", "lax.sliceInDim");
  const d = normalizeDim(dim, x.ndim, "lax.sliceInDim");
  const n = at(x.shape, d);
  const place = (bound: number) => (bound < 0 ? bound + n : bound);
  return ops.sliceDim(x, d, place(start ?? 0), place(limit ?? n), stride);
}

/**
 * One position along a dim, which is kept with size 1 by default.
 *
 * @example
 * ```ts
 * lax.indexInDim(np.arange(5), 2); // [2]
 * ```
 */
export function indexInDim(x: Tensor, index: number, dim = 0, keepdims = true): Tensor {
  needTensor(x, "x", "lax.indexInDim");
  need("number", index, "index", "lax.indexInDim");
  needIfGiven("number", dim, "dim", "lax.indexInDim");
  const d = normalizeDim(dim, x.ndim, "lax.indexInDim");
  const n = at(x.shape, d);
  const position = index < 0 ? index + n : index;
  if (!(position >= 0 && position < n)) {
    throw new ShapeError(
      `[lax.indexInDim] index ${index} is out of range for dim ${d} of ${formatType(x.type)}: use ${-n} to ${n - 1}`,
    );
  }
  return drop(ops.sliceDim(x, d, position, position + 1), d, keepdims);
}

function drop(x: Tensor, dim: number, keepdims: boolean): Tensor {
  if (keepdims) return x;
  return ops.reshape(
    x,
    x.shape.filter((_, d) => d !== dim),
  );
}

function starts(x: Tensor, indices: readonly TensorLike[], caller: string): Tensor[] {
  if (indices.length !== x.ndim) {
    throw new ShapeError(
      `[lax.${caller}] got ${indices.length} starts for the ${x.ndim} dims of ${formatType(x.type)}: pass one for each`,
    );
  }
  return indices.map((index, d) => toStart(index, at(x.shape, d), caller));
}

/** Starts at one position along a dim and at 0 along the others. */
function startsInDim(x: Tensor, index: TensorLike, dim: number, caller: string): Tensor[] {
  const zero = Tensor.scalar(0, "int32");
  return x.shape.map((n, d) => (d === dim ? toStart(index, n, caller) : zero));
}

/**
 * A slice of the given sizes whose starts may be tensors; they are clamped so that the slice fits.
 *
 * @example
 * ```ts
 * lax.dynamicSlice(np.arange(5), [1], [3]); // [1, 2, 3]
 * ```
 */
export function dynamicSlice(x: Tensor, startIndices: readonly TensorLike[], sizes: Shape): Tensor {
  needTensor(x, "x", "lax.dynamicSlice");
  need("list", startIndices, "startIndices", "lax.dynamicSlice");
  need("integers", sizes, "sizes", "lax.dynamicSlice");
  return tracedAsOneCall(() => ops.dynamicSlice(x, starts(x, startIndices, "dynamicSlice"), sizes));
}

/**
 * {@link dynamicSlice} along one dim.
 *
 * @example
 * ```ts
 * lax.dynamicSliceInDim(np.arange(5), 1, 3); // [1, 2, 3]
 * ```
 */
export function dynamicSliceInDim(x: Tensor, start: TensorLike, size: number, dim = 0): Tensor {
  needTensor(x, "x", "lax.dynamicSliceInDim");
  need("number", size, "size", "lax.dynamicSliceInDim");
  needIfGiven("number", dim, "dim", "lax.dynamicSliceInDim");
  const d = normalizeDim(dim, x.ndim, "lax.dynamicSliceInDim");
  const sizes = x.shape.map((n, i) => (i === d ? size : n));
  return tracedAsOneCall(() => ops.dynamicSlice(x, startsInDim(x, start, d, "dynamicSliceInDim"), sizes));
}

/**
 * One position along a dim, known only at run time.
 *
 * @example
 * ```ts
 * lax.dynamicIndexInDim(np.arange(5), 2); // [2]
 * ```
 */
export function dynamicIndexInDim(x: Tensor, index: TensorLike, dim = 0, keepdims = true): Tensor {
  needTensor(x, "x", "lax.dynamicIndexInDim");
  needIfGiven("number", dim, "dim", "lax.dynamicIndexInDim");
  const d = normalizeDim(dim, x.ndim, "lax.dynamicIndexInDim");
  return tracedAsOneCall(() => drop(dynamicSliceInDim(x, index, 1, d), d, keepdims));
}

/**
 * Writes `update` over x; the starts may be tensors and are clamped so that the update fits.
 *
 * @example
 * ```ts
 * lax.dynamicUpdateSlice(np.zeros([4]), np.array([1, 2]), [1]); // [0, 1, 2, 0]
 * ```
 */
export function dynamicUpdateSlice(x: Tensor, update: Tensor, startIndices: readonly TensorLike[]): Tensor {
  needTensor(x, "x", "lax.dynamicUpdateSlice");
  needTensor(update, "update", "lax.dynamicUpdateSlice");
  need("list", startIndices, "startIndices", "lax.dynamicUpdateSlice");
  return tracedAsOneCall(() =>
    ops.dynamicUpdateSlice(x, update, starts(x, startIndices, "dynamicUpdateSlice")),
  );
}

/**
 * {@link dynamicUpdateSlice} along one dim; the update has all other dims whole.
 *
 * @example
 * ```ts
 * lax.dynamicUpdateSliceInDim(np.zeros([4]), np.array([1, 2]), 1, 0); // [0, 1, 2, 0]
 * ```
 */
export function dynamicUpdateSliceInDim(x: Tensor, update: Tensor, start: TensorLike, dim = 0): Tensor {
  needTensor(x, "x", "lax.dynamicUpdateSliceInDim");
  needTensor(update, "update", "lax.dynamicUpdateSliceInDim");
  needIfGiven("number", dim, "dim", "lax.dynamicUpdateSliceInDim");
  const d = normalizeDim(dim, x.ndim, "lax.dynamicUpdateSliceInDim");
  return tracedAsOneCall(() =>
    ops.dynamicUpdateSlice(x, update, startsInDim(x, start, d, "dynamicUpdateSliceInDim")),
  );
}

/**
 * Replaces one position along a dim; the update may lack that dim.
 *
 * @example
 * ```ts
 * lax.dynamicUpdateIndexInDim(np.array([1, 2, 3]), np.array(9), 1); // [1, 9, 3]
 * ```
 */
export function dynamicUpdateIndexInDim(x: Tensor, update: Tensor, index: TensorLike, dim = 0): Tensor {
  needTensor(x, "x", "lax.dynamicUpdateIndexInDim");
  needTensor(update, "update", "lax.dynamicUpdateIndexInDim");
  needIfGiven("number", dim, "dim", "lax.dynamicUpdateIndexInDim");
  const d = normalizeDim(dim, x.ndim, "lax.dynamicUpdateIndexInDim");
  return tracedAsOneCall(() => {
    const whole =
      update.ndim === x.ndim
        ? update
        : ops.reshape(update, [...update.shape.slice(0, d), 1, ...update.shape.slice(d)]);
    return dynamicUpdateSliceInDim(x, whole, index, d);
  });
}
