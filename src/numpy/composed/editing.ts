/** Copies of tensors with slices taken out or put in, at positions that are known while tracing. */
import { need } from "../../ir/arguments.js";
import { DimError, ShapeError } from "../../ir/errors.js";
import { at, formatType, normalizeDim, range } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { take } from "../indexing/take.js";
import { asTensor, broadcastShape, expandTo, toType } from "../operands.js";

/** The tensor and the dim; without one it is flattened. */
function along(value: TensorLike, dim: number | null, caller: string): { x: Tensor; d: number } {
  const x = asTensor(value, caller);
  if (dim === null) return { x: ops.reshape(x, [x.size]), d: 0 };
  return { x, d: normalizeDim(dim, x.ndim, caller) };
}

/** Positions from 0 to `end`; negative ones count from the size. */
function toPositions(given: number | readonly number[], n: number, end: number, caller: string): number[] {
  const list = typeof given === "number" ? [given] : given;
  need("integers", list, "positions", caller);
  return list.map((position) => {
    const place = position < 0 ? position + n : position;
    if (place >= 0 && place <= end) return place;
    throw new DimError(`[${caller}] position ${position} is out of range: use ${-n} to ${end}`);
  });
}

/**
 * A copy without the slices at some positions.
 *
 * ```ts
 * np.delete(x, [0, 2], 1); // without its columns 0 and 2
 * ```
 *
 * @param dim the dim of the positions; without it they are those of the flat tensor
 *
 * @example
 * ```ts
 * np.delete(np.array([1, 2, 3]), 1); // [1, 3]
 * ```
 */
export function deleteSlices(
  value: TensorLike,
  positions: number | readonly number[],
  dim: number | null = null,
): Tensor {
  const { x, d } = along(value, dim, "delete");
  const n = at(x.shape, d);
  const gone = new Set(toPositions(positions, n, n - 1, "delete"));
  return take(
    x,
    range(n).filter((position) => !gone.has(position)),
    d,
    { mode: "clip" },
  );
}

/**
 * A copy with values put in before some positions. One position takes as many slices as there are values; a list of
 * positions takes one each, in the order of the original.
 *
 * ```ts
 * np.insert(np.arange(5), [1, 3], np.array([7, 8])); // 0 7 1 2 8 3 4
 * ```
 *
 * @param dim the dim of the positions; without it they are those of the flat tensor
 *
 * @example
 * ```ts
 * np.insert(np.array([1, 3]), 1, 2); // [1, 2, 3]
 * ```
 */
export function insert(
  value: TensorLike,
  positions: number | readonly number[],
  values: TensorLike,
  dim: number | null = null,
): Tensor {
  const { x, d } = along(value, dim, "insert");
  const n = at(x.shape, d);
  const before = toPositions(positions, n, n, "insert");
  const given = toType(values, x.dtype, "insert");
  const grown = ops.reshape(given, [...range(Math.max(0, x.ndim - given.ndim)).map(() => 1), ...given.shape]);
  if (grown.ndim !== x.ndim) {
    throw new ShapeError(`[insert] ${formatType(given.type)} has more dims than ${formatType(x.type)}`);
  }
  // The values for one position lie along their first dim.
  const single = typeof positions === "number";
  const slices = single ? ops.moveDim(grown, 0, d) : grown;
  const count = single ? at(slices.shape, d) : before.length;
  const shape = x.shape.map((size, i) => (i === d ? count : size));
  if (broadcastShape([slices.shape, shape], "insert").some((size, i) => size !== shape[i])) {
    throw new ShapeError(`[insert] values of [${given.shape}] do not fit slices of [${shape}]`);
  }
  const places = single ? range(count).map(() => at(before, 0)) : before;
  const order = range(n).flatMap((i) => [...insertedAt(places, i, n), i]);
  return take(ops.concatenate([x, expandTo(slices, shape)], d), [...order, ...insertedAt(places, n, n)], d, {
    mode: "clip",
  });
}

/** Where the slices that go before a position lie behind the n of the original. */
function insertedAt(places: readonly number[], position: number, n: number): number[] {
  return places.flatMap((place, k) => (place === position ? [n + k] : []));
}
