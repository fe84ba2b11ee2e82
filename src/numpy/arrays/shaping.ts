/** Functions that only move elements: shapes, orders and repetitions. */

import { need, needIfGiven } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { DimError, ShapeError, ValueError } from "../../ir/errors.js";
import { at, formatType, normalizeDim, normalizeDims, range, type Shape, sizeOf } from "../../ir/shape.js";
import { insertDims } from "../../lax/operands.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import {
  asTensor,
  atLeastRank,
  broadcastShape,
  type Dims,
  expandTo,
  requireRank,
  type ShapeLike,
  toShape,
} from "../operands.js";

/**
 * The same elements in another shape; one size may be −1 and is worked out from the others.
 *
 * @example
 * ```ts
 * np.reshape(np.arange(4), [2, 2]); // [[0, 1], [2, 3]]
 * ```
 */
export function reshape(value: TensorLike, shape: ShapeLike): Tensor {
  const x = asTensor(value, "reshape");
  const list = typeof shape === "number" ? [shape] : shape;
  need("list", list, "the shape", "reshape");
  const open = list.indexOf(-1);
  const sizes = toShape(
    list.map((n, d) => (d === open ? 1 : n)),
    "reshape",
  );
  const known = sizeOf(sizes);
  if (open >= 0) sizes[open] = known === 0 ? 0 : x.size / known;
  if (sizeOf(sizes) !== x.size || sizes.some((n) => !Number.isInteger(n))) {
    const rule =
      open >= 0
        ? `${x.size} / ${known} = ${x.size / known} is not an integer`
        : `it has ${x.size} elements, the shape ${known}`;
    throw new ShapeError(
      `[reshape] ${formatType(x.type)} does not fill shape [${list.map(describe).join(",")}]: ${rule}`,
    );
  }
  return ops.reshape(x, sizes);
}

/**
 * The elements in one dim, row-major.
 *
 * @example
 * ```ts
 * np.ravel(np.array([[1, 2], [3, 4]])); // [1, 2, 3, 4]
 * ```
 */
export function ravel(x: TensorLike): Tensor {
  return reshape(x, [-1]);
}

/**
 * Reorders the dims; without an order it reverses them.
 *
 * @example
 * ```ts
 * np.transpose(np.array([[1, 2], [3, 4]])); // [[1, 3], [2, 4]]
 * ```
 */
export function transpose(value: TensorLike, dims?: readonly number[] | null): Tensor {
  needIfGiven("list", dims ?? undefined, "dims", "transpose");
  const x = asTensor(value, "transpose");
  if (dims === undefined || dims === null) return ops.transpose(x, range(x.ndim).reverse());
  if (dims.length !== x.ndim) {
    throw new DimError(
      `[transpose] the order [${dims.map(describe).join(",")}] names ${dims.length} dims, ${formatType(x.type)} has ${x.ndim}: name every dim once`,
    );
  }
  return ops.transpose(x, normalizeDims(dims, x.ndim, "transpose"));
}

/**
 * Swaps the last two dims.
 *
 * @example
 * ```ts
 * np.matrixTranspose(np.array([[1, 2], [3, 4]])); // [[1, 3], [2, 4]]
 * ```
 */
export function matrixTranspose(x: TensorLike): Tensor {
  const tensor = asTensor(x, "matrixTranspose");
  requireRank(tensor, 2, "matrixTranspose");
  return swapaxes(tensor, -2, -1);
}

/**
 * Swaps two dims.
 *
 * @example
 * ```ts
 * np.swapaxes(np.zeros([2, 3, 4]), 0, 2).shape; // [4, 3, 2]
 * ```
 */
export function swapaxes(value: TensorLike, dim1: number, dim2: number): Tensor {
  const x = asTensor(value, "swapaxes");
  const [a, b] = [normalizeDim(dim1, x.ndim, "swapaxes"), normalizeDim(dim2, x.ndim, "swapaxes")];
  return ops.transpose(
    x,
    range(x.ndim).map((d) => (d === a ? b : d === b ? a : d)),
  );
}

/**
 * Moves dims to other places; the others keep their order.
 *
 * @example
 * ```ts
 * np.moveaxis(np.zeros([2, 3, 4]), 0, -1).shape; // [3, 4, 2]
 * ```
 */
export function moveaxis(
  value: TensorLike,
  source: number | readonly number[],
  destination: number | readonly number[],
): Tensor {
  const x = asTensor(value, "moveaxis");
  const from = normalizeDims(source, x.ndim, "moveaxis");
  const to = normalizeDims(destination, x.ndim, "moveaxis");
  if (from.length !== to.length) {
    throw new DimError(`[moveaxis] moves ${from.length} dims to ${to.length} places: pass as many of both`);
  }
  const order = range(x.ndim).filter((d) => !from.includes(d));
  const moves = from.map((d, i) => [at(to, i), d] as const).sort((p, q) => p[0] - q[0]);
  for (const [place, d] of moves) order.splice(place, 0, d);
  return ops.transpose(x, order);
}

/**
 * Moves a dim before the one at `start`; `moveaxis` says more plainly where it goes.
 *
 * @example
 * ```ts
 * np.rollaxis(np.zeros([2, 3, 4]), 2).shape; // [4, 2, 3]
 * ```
 */
export function rollaxis(value: TensorLike, dim: number, start = 0): Tensor {
  const x = asTensor(value, "rollaxis");
  const d = normalizeDim(dim, x.ndim, "rollaxis");
  if (!Number.isInteger(start) || start < -x.ndim || start > x.ndim) {
    throw new DimError(`[rollaxis] start = ${start} must be an integer from ${-x.ndim} to ${x.ndim}`);
  }
  const before = start < 0 ? start + x.ndim : start;
  return ops.moveDim(x, d, before > d ? before - 1 : before);
}

/**
 * The flattened tensor cut to a new shape, or repeated as often as that needs; zeros where there is nothing.
 *
 * @example
 * ```ts
 * np.resize(np.array([1, 2]), [5]); // [1, 2, 1, 2, 1]
 * ```
 */
export function resize(value: TensorLike, shape: ShapeLike): Tensor {
  const x = asTensor(value, "resize");
  const sizes = toShape(shape, "resize");
  const [n, wanted] = [x.size, sizeOf(sizes)];
  if (n === 0 || wanted === 0) return ops.full(sizes, 0, x.dtype);
  const flat = ops.reshape(x, [n]);
  const copies = n >= wanted ? flat : tile(flat, Math.ceil(wanted / n));
  return ops.reshape(ops.sliceDim(copies, 0, 0, wanted), sizes);
}

/**
 * Drops dims of size 1: the given ones, or all.
 *
 * @example
 * ```ts
 * np.squeeze(np.zeros([1, 3, 1])).shape; // [3]
 * ```
 */
export function squeeze(value: TensorLike, dim?: Dims): Tensor {
  const x = asTensor(value, "squeeze");
  const dims =
    dim === undefined || dim === null
      ? range(x.ndim).filter((d) => x.shape[d] === 1)
      : normalizeDims(dim, x.ndim, "squeeze");
  const wrong = dims.find((d) => x.shape[d] !== 1);
  if (wrong !== undefined) {
    throw new ShapeError(
      `[squeeze] dim ${wrong} of ${formatType(x.type)} has size ${x.shape[wrong]}: only dims of size 1 can be dropped`,
    );
  }
  return ops.reshape(
    x,
    x.shape.filter((_, d) => !dims.includes(d)),
  );
}

/**
 * Inserts dims of size 1 at the given places of the result.
 *
 * @example
 * ```ts
 * np.expandDims(np.array([1, 2]), 0).shape; // [1, 2]
 * ```
 */
export function expandDims(value: TensorLike, dim: number | readonly number[]): Tensor {
  const x = asTensor(value, "expandDims");
  const dims = typeof dim === "number" ? [dim] : dim;
  need("list", dims, "the dims", "expandDims");
  return insertDims(x, dims, "expandDims");
}

/**
 * Repeats a tensor to a shape, aligned at the last dim.
 *
 * @example
 * ```ts
 * np.broadcastTo(np.array([1, 2]), [2, 2]); // [[1, 2], [1, 2]]
 * ```
 */
export function broadcastTo(value: TensorLike, shape: ShapeLike): Tensor {
  const x = asTensor(value, "broadcastTo");
  const sizes = toShape(shape, "broadcastTo");
  const result = broadcastShape([x.shape, sizes], "broadcastTo");
  if (result.length !== sizes.length || result.some((n, d) => n !== sizes[d])) {
    throw new ShapeError(
      `[broadcastTo] ${formatType(x.type)} does not become [${sizes}]: its sizes must be 1 or those of the shape`,
    );
  }
  return expandTo(x, sizes);
}

/**
 * The shape that tensors of the given shapes are broadcast to.
 *
 * @example
 * ```ts
 * np.broadcastShapes([2, 1], [3]); // [2, 3]
 * ```
 */
export function broadcastShapes(...shapes: readonly Shape[]): number[] {
  return [...broadcastShape(shapes, "broadcastShapes")];
}

/**
 * Tensors repeated to their common shape.
 *
 * @example
 * ```ts
 * np.broadcastArrays(np.array([1, 2]), np.array([[3]])); // [[[1, 2]], [[3, 3]]]
 * ```
 */
export function broadcastArrays(...xs: readonly TensorLike[]): Tensor[] {
  const tensors = xs.map((x) => asTensor(x, "broadcastArrays"));
  const shape = broadcastShape(
    tensors.map((x) => x.shape),
    "broadcastArrays",
  );
  return tensors.map((x) => expandTo(x, shape));
}

/**
 * At least one dim.
 *
 * @example
 * ```ts
 * np.atleast1d(np.array(3)); // [3]
 * ```
 */
export function atleast1d(x: TensorLike): Tensor {
  return atLeastRank(asTensor(x, "atleast1d"), 1);
}

/**
 * At least two dims; a vector becomes a row.
 *
 * @example
 * ```ts
 * np.atleast2d(np.array([1, 2])).shape; // [1, 2]
 * ```
 */
export function atleast2d(x: TensorLike): Tensor {
  return atLeastRank(asTensor(x, "atleast2d"), 2);
}

/**
 * At least three dims: a vector [n] becomes [1, n, 1], a matrix [m, n] becomes [m, n, 1].
 *
 * @example
 * ```ts
 * np.atleast3d(np.array([1, 2])).shape; // [1, 2, 1]
 * ```
 */
export function atleast3d(value: TensorLike): Tensor {
  const x = asTensor(value, "atleast3d");
  if (x.ndim >= 3) return x;
  return ops.reshape(x, x.ndim === 2 ? [...x.shape, 1] : [1, x.size, 1]);
}

/**
 * Reverses the order along dims, or along all.
 *
 * @example
 * ```ts
 * np.flip(np.array([1, 2, 3])); // [3, 2, 1]
 * ```
 */
export function flip(value: TensorLike, dim?: Dims): Tensor {
  const x = asTensor(value, "flip");
  return ops.reverse(x, normalizeDims(dim, x.ndim, "flip"));
}

/**
 * Reverses the rows.
 *
 * @example
 * ```ts
 * np.flipud(np.array([[1, 2], [3, 4]])); // [[3, 4], [1, 2]]
 * ```
 */
export function flipud(x: TensorLike): Tensor {
  return flip(x, 0);
}

/**
 * Reverses the columns.
 *
 * @example
 * ```ts
 * np.fliplr(np.array([[1, 2], [3, 4]])); // [[2, 1], [4, 3]]
 * ```
 */
export function fliplr(x: TensorLike): Tensor {
  return flip(x, 1);
}

/**
 * Turns a plane of the tensor by k quarter turns, from the first of the dims towards the second.
 *
 * @example
 * ```ts
 * np.rot90(np.array([[1, 2], [3, 4]])); // [[2, 4], [1, 3]]
 * ```
 */
export function rot90(value: TensorLike, k = 1, dims: readonly [number, number] = [0, 1]): Tensor {
  const x = asTensor(value, "rot90");
  const [a, b] = normalizeDims(dims, x.ndim, "rot90");
  if (a === undefined || b === undefined) throw new DimError("[rot90] needs two dims");
  needIfGiven("integer", k, "k", "rot90");
  switch (((k % 4) + 4) % 4) {
    case 1:
      return swapaxes(flip(x, b), a, b);
    case 2:
      return flip(x, [a, b]);
    case 3:
      return flip(swapaxes(x, a, b), b);
    default:
      return x;
  }
}

/**
 * Moves elements along dims; those that leave at the end come back at the start. Without a dim the flattened
 * tensor is rolled. A shift may be an int32 scalar tensor.
 *
 * @example
 * ```ts
 * np.roll(np.array([1, 2, 3]), 1); // [3, 1, 2]
 * ```
 */
export function roll(value: TensorLike, shift: TensorLike | readonly TensorLike[], dim?: Dims): Tensor {
  const x = asTensor(value, "roll");
  if (dim === undefined || dim === null) {
    return ops.reshape(roll(ops.reshape(x, [x.size]), shift, 0), x.shape);
  }
  const places = (Array.isArray(dim) ? dim : [dim]).map((d) => normalizeDim(d, x.ndim, "roll"));
  const shifts = isList(shift) ? shift : [shift];
  if (shifts.length !== places.length && shifts.length !== 1 && places.length !== 1) {
    throw new ValueError(`[roll] ${shifts.length} shifts for ${places.length} dims: pass one for each`);
  }
  return range(Math.max(shifts.length, places.length)).reduce((y, i) => {
    return rollDim(y, shifts[i] ?? at(shifts, 0), places[i] ?? at(places, 0));
  }, x);
}

function isList(shift: TensorLike | readonly TensorLike[]): shift is readonly TensorLike[] {
  return Array.isArray(shift);
}

function rollDim(x: Tensor, shift: TensorLike, dim: number): Tensor {
  const n = at(x.shape, dim);
  if (n === 0) return x;
  if (shift instanceof Tensor) {
    // The slice of the doubled tensor that starts n − (shift mod n) elements in.
    const rest = ops.rem(ops.convert(shift, "int32"), n);
    const start = ops.sub(
      Tensor.scalar(n, "int32"),
      ops.select(ops.compare("lt", rest, 0), ops.add(rest, n), rest),
    );
    const starts = x.shape.map((_, d) => (d === dim ? start : Tensor.scalar(0, "int32")));
    return ops.dynamicSlice(ops.concatenate([x, x], dim), starts, x.shape);
  }
  need("integer", shift, "a shift", "roll");
  const cut = ((-shift % n) + n) % n;
  if (cut === 0) return x;
  return ops.concatenate([ops.sliceDim(x, dim, cut, n), ops.sliceDim(x, dim, 0, cut)], dim);
}

/**
 * Puts copies of the whole tensor side by side, `repeats[d]` times along dim d.
 *
 * @example
 * ```ts
 * np.tile(np.array([1, 2]), 2); // [1, 2, 1, 2]
 * ```
 */
export function tile(value: TensorLike, repeats: number | readonly number[]): Tensor {
  const counts = toShape(repeats, "tile");
  const rank = Math.max(counts.length, asTensor(value, "tile").ndim);
  const x = atLeastRank(asTensor(value, "tile"), rank);
  const times = [...new Array<number>(rank - counts.length).fill(1), ...counts];
  const spread = x.shape.flatMap((n, d) => [at(times, d), n]);
  const repeated = ops.broadcastInDim(
    x,
    spread,
    range(rank).map((d) => 2 * d + 1),
  );
  return ops.reshape(
    repeated,
    x.shape.map((n, d) => n * at(times, d)),
  );
}

/**
 * Repeats each element along a dim, all as often or each as often as a list says. Without a dim the flattened
 * tensor is repeated.
 *
 * @example
 * ```ts
 * np.repeat(np.array([1, 2]), 2); // [1, 1, 2, 2]
 * ```
 */
export function repeat(value: TensorLike, repeats: number | readonly number[], dim?: number | null): Tensor {
  const tensor = asTensor(value, "repeat");
  const x = dim === undefined || dim === null ? ops.reshape(tensor, [tensor.size]) : tensor;
  const d = normalizeDim(dim ?? 0, x.ndim, "repeat");
  const counts = toShape(repeats, "repeat");
  const n = at(x.shape, d);
  const [first] = counts;
  if (typeof repeats === "number" || (counts.length === 1 && first !== undefined)) {
    const times = first ?? 0;
    const spread = [...x.shape.slice(0, d + 1), times, ...x.shape.slice(d + 1)];
    const dims = range(x.ndim).map((i) => (i > d ? i + 1 : i));
    return ops.reshape(
      ops.broadcastInDim(x, spread, dims),
      x.shape.map((size, i) => (i === d ? size * times : size)),
    );
  }
  if (counts.length !== n) {
    throw new ShapeError(
      `[repeat] ${counts.length} counts for the ${n} elements of dim ${d} of ${formatType(x.type)}: pass one for each`,
    );
  }
  const sources = counts.flatMap((count, i) => new Array<number>(count).fill(i));
  const indices = Tensor.fromHost({ dtype: "int32", shape: [sources.length] }, Int32Array.from(sources));
  return ops.gather(x, indices, { dim: d, batchDims: 0 });
}
