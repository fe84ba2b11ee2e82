/** Looking elements up by arrays of indices along one dim. */

import { anyNumber, needIfGiven, oneOf } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { type DType, isComplex, isFloat, limits } from "../../ir/dtype.js";
import { DTypeError, ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, normalizeDim, range } from "../../ir/shape.js";
import { toInt32 } from "../../lax/operands.js";
import { tracedAsOneCall } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { mod } from "../elementwise/arithmetic.js";
import { asTensor, broadcastShape, cast, expandTo, toType } from "../operands.js";
import { fromEnd, inRange } from "./indexing.js";

/**
 * What an index outside of the dim gives: `fill` a conspicuous value (NaN for floats, the smallest number
 * for signed integers, the largest for others, true for bool), `clip` the nearest element, `wrap` counts round.
 */
export type TakeMode = "fill" | "clip" | "wrap";

const takeOptions = schema({
  /** What an index outside of the dim gives; `fill` by default. */
  mode: optional(oneOf("fill", "clip", "wrap"), "fill"),
  /** The value of mode `fill`. */
  fillValue: optional(anyNumber),
});

/** Options of {@link take} and {@link takeAlongAxis}. */
export interface TakeOptions extends OptionsOf<typeof takeOptions> {}

/** Indices as a tensor; a JavaScript array of numbers becomes one. */
function toIndices(indices: TensorLike | readonly number[], caller: string): Tensor {
  if (Array.isArray(indices)) {
    const list: readonly number[] = indices;
    const { min, max } = limits("int32");
    const wrong = list.find((index) => !(Number.isInteger(index) && index >= min && index <= max));
    if (wrong !== undefined) {
      throw new ValueError(
        `[${caller}] the index ${describe(wrong)} must be an integer from ${min} to ${max}`,
      );
    }
    return Tensor.fromHost({ dtype: "int32", shape: [list.length] }, Int32Array.from(list));
  }
  const tensor =
    typeof indices === "number" ? Tensor.scalar(indices, "int32") : asTensor(indices as TensorLike, caller);
  if (isFloat(tensor.dtype) || isComplex(tensor.dtype) || tensor.dtype === "bool") {
    throw new DTypeError(
      `[${caller}] ${formatType(tensor.type)} cannot be indices: convert them with astype("int32")`,
    );
  }
  return tensor;
}

function missing(dtype: DType): number {
  if (isFloat(dtype) || isComplex(dtype)) return Number.NaN;
  const { min, max } = limits(dtype);
  return min < 0 ? min : max;
}

/** Brings indices into the dim as the mode says; `valid` tells which were inside for mode `fill`. */
function resolve(indices: Tensor, n: number, mode: TakeMode): { index: Tensor; valid?: Tensor } {
  switch (mode) {
    case "fill": {
      const index = fromEnd(indices, n);
      return { index, valid: inRange(index, n) };
    }
    case "clip":
      // A gather clamps its indices itself.
      return { index: toInt32(indices) };
    case "wrap":
      return { index: cast(mod(indices, n), "int32") };
  }
}

/**
 * The slices along a dim that the indices name; their dims take its place. Without a dim the flattened tensor
 * is used. Negative indices count from the end in mode `fill`; {@link takeAlongAxis} counts them so in mode `clip` too.
 *
 * ```ts
 * np.take(embeddings, tokens, 0)
 * ```
 *
 * @example
 * ```ts
 * np.take(np.array([10, 20, 30]), np.array([2, 0], "int32")); // [30, 10]
 * ```
 */
export function take(
  value: TensorLike,
  indices: TensorLike | readonly number[],
  dim?: number | null,
  options?: TakeOptions,
): Tensor {
  needIfGiven("number", dim ?? undefined, "dim", "take");
  const { mode, fillValue } = takeOptions.read(options, "take");
  const tensor = asTensor(value, "take");
  const x = dim === undefined || dim === null ? ops.reshape(tensor, [tensor.size]) : tensor;
  const d = normalizeDim(dim ?? 0, x.ndim, "take");
  const n = at(x.shape, d);
  const places = toIndices(indices, "take");
  if (n === 0 && places.size > 0) {
    throw new ShapeError(`[take] dim ${d} of ${formatType(x.type)} is empty and has nothing to take`);
  }
  return tracedAsOneCall(() => {
    const { index, valid } = resolve(places, n, mode);
    const found = ops.gather(x, index, { dim: d, batchDims: 0 });
    if (!valid) return found;
    const dims = range(places.ndim).map((i) => d + i);
    const mask = ops.broadcastInDim(valid, found.shape, dims);
    return ops.select(mask, found, toType(fillValue ?? missing(x.dtype), x.dtype, "take"));
  });
}

/**
 * Takes along a dim with indices of their own for every position of the other dims, which broadcast:
 * the result of `argsort` or `argmax` (with keepdims) can be used as indices.
 *
 * @example
 * ```ts
 * np.takeAlongAxis(np.array([[3, 1]]), np.array([[1, 0]], "int32"), 1); // [[1, 3]]
 * ```
 */
export function takeAlongAxis(
  value: TensorLike,
  indices: TensorLike,
  dim: number | null,
  options?: TakeOptions,
): Tensor {
  needIfGiven("number", dim ?? undefined, "dim", "takeAlongAxis");
  const { mode, fillValue } = takeOptions.read(options, "takeAlongAxis");
  const tensor = asTensor(value, "takeAlongAxis");
  const places = toIndices(indices, "takeAlongAxis");
  const x = dim === null ? ops.reshape(tensor, [tensor.size]) : tensor;
  const d = normalizeDim(dim ?? 0, x.ndim, "takeAlongAxis");
  if (places.ndim !== x.ndim) {
    throw new ShapeError(
      `[takeAlongAxis] indices ${formatType(places.type)} need as many dims as ${formatType(x.type)}`,
    );
  }
  const others = (shape: readonly number[]) => shape.filter((_, i) => i !== d);
  const batch = broadcastShape([others(x.shape), others(places.shape)], "takeAlongAxis");
  const rows = (y: Tensor) => expandTo(ops.moveDim(y, d, y.ndim - 1), [...batch, at(y.shape, d)]);
  const n = at(x.shape, d);
  // Unlike `take`, it counts negative indices from the end before it clips them, as JAX does.
  const counted = mode === "clip" ? fromEnd(places, n) : places;
  const { index, valid } = resolve(rows(counted), n, mode);
  const found = ops.gather(rows(x), index, { dim: batch.length, batchDims: batch.length });
  const filler = () => toType(fillValue ?? missing(x.dtype), x.dtype, "takeAlongAxis");
  const result = valid ? ops.select(valid, found, filler()) : found;
  return ops.moveDim(result, batch.length, d);
}
