/** Elements that a mask or indices choose, of the flattened tensor or along a dim. */

import { oneOf } from "../../ir/arguments.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, normalizeDim } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { resize } from "../arrays/shaping.js";
import { clip, mod } from "../elementwise/arithmetic.js";
import { where } from "../elementwise/logic.js";
import { take } from "../indexing/take.js";
import { asTensor, cast, type SizedOptions, sizedOptions, toBool, toType } from "../operands.js";
import { flatnonzero } from "../statistics/sets.js";
import { cumsum } from "../statistics/statistics.js";

/**
 * The slices along a dim for which a vector of conditions holds, filled up with `fillValue`, 0 by default.
 *
 * @param dim the dim of the conditions; `null` for the flattened tensor
 *
 * @example
 * ```ts
 * np.compress(np.array([true, false, true]), np.array([1, 2, 3]), 0, { size: 3 }); // [1, 3, 0]
 * ```
 */
export function compress(
  condition: TensorLike,
  value: TensorLike,
  dim: number | null,
  options: SizedOptions,
): Tensor {
  sizedOptions.read(options, "compress");
  const conditions = toBool(condition, "compress");
  if (conditions.ndim !== 1) {
    throw new ShapeError(`[compress] takes a vector of conditions, got ${formatType(conditions.type)}`);
  }
  const given = asTensor(value, "compress");
  const x = dim === null ? ops.reshape(given, [given.size]) : given;
  const d = normalizeDim(dim ?? 0, x.ndim, "compress");
  const n = Math.min(at(x.shape, d), conditions.size);
  // A shorter list chooses among the first slices only; what a longer one says beyond the end chooses nothing.
  const places = flatnonzero(ops.sliceDim(conditions, 0, 0, n), { size: options.size, fillValue: n });
  const chosen = take(x, places, d, { mode: "clip" });
  const isFound = ops.broadcastInDim(ops.compare("lt", places, n), chosen.shape, [d]);
  return where(isFound, chosen, toType(options.fillValue ?? 0, x.dtype, "compress"));
}

/**
 * The elements of the flattened tensor for which conditions hold, filled up with `fillValue`, 0 by default.
 *
 * @example
 * ```ts
 * np.extract(np.array([true, false, true]), np.array([1, 2, 3]), { size: 2 }); // [1, 3]
 * ```
 */
export function extract(condition: TensorLike, value: TensorLike, options: SizedOptions): Tensor {
  const conditions = toBool(condition, "extract");
  return compress(
    ops.reshape(conditions, [conditions.size]),
    value,
    null,
    sizedOptions.read(options, "extract"),
  );
}

/**
 * The tensor with values, one after the other and again from the first, where a mask holds.
 *
 * @example
 * ```ts
 * np.place(np.zeros([4]), np.array([true, false, true, true]), np.array([1, 2])); // [1, 0, 2, 1]
 * ```
 */
export function place(value: TensorLike, mask: TensorLike, values: TensorLike): Tensor {
  const x = asTensor(value, "place");
  const chosen = toBool(mask, "place");
  const given = cast(asTensor(values, "place"), x.dtype);
  if (chosen.size !== x.size) {
    throw new ShapeError(`[place] mask ${formatType(chosen.type)} and ${formatType(x.type)} differ in size`);
  }
  if (given.size === 0) throw new ValueError("[place] needs at least one value");
  const order = cumsum(cast(ops.reshape(chosen, [x.size]), "int32")).sub(1);
  const cycled = take(ops.reshape(given, [given.size]), mod(order, given.size), 0, { mode: "clip" });
  return where(ops.reshape(chosen, x.shape), ops.reshape(cycled, x.shape), x);
}

const putOptions = schema({
  /** What becomes of indices outside: they are dropped by default, go to the nearest end, or round. */
  mode: optional(oneOf("clip", "wrap")),
});

/** Options of {@link put}. */
export interface PutOptions extends OptionsOf<typeof putOptions> {}

/**
 * The tensor with values at indices of the flattened tensor; few values are used again from the first.
 *
 * @example
 * ```ts
 * np.put(np.zeros([4]), np.array([0, 3], "int32"), np.array([5, 6])); // [5, 0, 0, 6]
 * ```
 */
export function put(
  value: TensorLike,
  indices: TensorLike,
  values: TensorLike,
  options?: PutOptions,
): Tensor {
  const { mode } = putOptions.read(options, "put");
  const x = asTensor(value, "put");
  const places = asTensor(indices, "put");
  const given = asTensor(values, "put");
  if (x.size === 0 || places.size === 0 || given.size === 0) return x;
  const inside = { clip: () => clip(places, 0, x.size - 1), wrap: () => mod(places, x.size) };
  const flat = ops.reshape(mode ? inside[mode]() : places, [places.size]);
  const written = ops
    .reshape(x, [x.size])
    .at(flat)
    .set(resize(given, [places.size]));
  return ops.reshape(written, x.shape);
}
