/** Sorting and searching. */

import { needIfGiven, oneOf } from "../../ir/arguments.js";
import { complexType, isComplex, isFloat } from "../../ir/dtype.js";
import { ShapeError } from "../../ir/errors.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import { at, formatType, normalizeDim } from "../../ir/shape.js";
import { toInt32 } from "../../lax/operands.js";
import { sortWithIndices } from "../../lax/sorting.js";
import * as ops from "../../trace/ops.js";
import { type TensorLike, tensorLikeKind } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { isnan } from "../elementwise/specialValues.js";
import { asTensor, cast, pair } from "../operands.js";

const sortOptions = schema({
  /** Sorts from the largest to the smallest; NaN comes first then. */
  descending: false,
});

/** Options of {@link sort} and {@link argsort}. */
export interface SortOptions extends OptionsOf<typeof sortOptions> {}

/** The dim to sort along; `null` flattens. */
function sortable(value: TensorLike, dim: number | null, caller: string): [Tensor, number] {
  const x = asTensor(value, caller);
  if (dim === null) return [ops.reshape(x, [x.size]), 0];
  return [x, normalizeDim(dim, x.ndim, caller)];
}

/**
 * Sorts along a dim, from the smallest to the largest; NaN comes last. `null` sorts the flattened tensor.
 *
 * @example
 * ```ts
 * np.sort(np.array([3, 1, 2])); // [1, 2, 3]
 * ```
 */
export function sort(value: TensorLike, dim: number | null = -1, options?: SortOptions): Tensor {
  needIfGiven("number", dim ?? undefined, "dim", "sort");
  const { descending } = sortOptions.read(options, "sort");
  const [x, d] = sortable(value, dim, "sort");
  const sorted = at(ops.sort([x], d), 0);
  return descending ? ops.reverse(sorted, [d]) : sorted;
}

/**
 * Sorts along the last dim as complex numbers: by their real parts, and by the imaginary ones where those are equal.
 *
 * @example
 * ```ts
 * np.imag(np.sortComplex(lax.complex(np.array([2, 1, 1]), np.array([0, 5, 4])))); // [4, 5, 0]
 * ```
 */
export function sortComplex(value: TensorLike): Tensor {
  const x = asTensor(value, "sortComplex");
  return sort(cast(x, complexType(x.dtype)));
}

/**
 * The int32 indices that sort along a dim; equal elements keep their order.
 *
 * @example
 * ```ts
 * np.argsort(np.array([3, 1, 2])); // [1, 2, 0]
 * ```
 */
export function argsort(value: TensorLike, dim: number | null = -1, options?: SortOptions): Tensor {
  needIfGiven("number", dim ?? undefined, "dim", "argsort");
  const { descending } = sortOptions.read(options, "argsort");
  const [x, d] = sortable(value, dim, "argsort");
  return sortWithIndices(x, d, descending)[1];
}

const searchOptions = schema({
  /** Whether the place before (`left`) or after (`right`) equal elements is wanted. */
  side: optional(oneOf("left", "right"), "left"),
});

/** Options of {@link searchsorted}. */
export interface SearchOptions extends OptionsOf<typeof searchOptions> {}

/**
 * Where values must be inserted into a sorted vector to keep it sorted, as int32. NaN counts as largest.
 *
 * @example
 * ```ts
 * np.searchsorted(np.array([1, 3, 5]), np.array([4])); // [2]
 * ```
 */
export function searchsorted(sorted: TensorLike, values: TensorLike, options?: SearchOptions): Tensor {
  const { side } = searchOptions.read(options, "searchsorted");
  const vector = asTensor(sorted, "searchsorted");
  if (vector.ndim !== 1) {
    throw new ShapeError(
      `[searchsorted] searches a vector, got ${formatType(vector.type)}: use vmap for more`,
    );
  }
  const query = asTensor(values, "searchsorted");
  const n = vector.size;
  let low = ops.full(query.shape, 0, "int32");
  if (n === 0) return low;
  let high = ops.full(query.shape, n, "int32");
  for (let span = n; span > 0; span = Math.floor(span / 2)) {
    const middle = ops.shrArithmetic(ops.add(low, high), 1);
    const [element, wanted] = pair(
      ops.gather(vector, middle, { dim: 0, batchDims: 0 }),
      query,
      "searchsorted",
    );
    const isBelow = side === "left" ? isLess(element, wanted) : ops.not(isLess(wanted, element));
    // Once both bounds have met, the middle is the bound itself and must not move.
    const goRight = ops.and(isBelow, ops.compare("lt", low, high));
    const next = ops.add(middle, 1);
    [low, high] = [ops.select(goRight, next, low), ops.select(goRight, high, middle)];
  }
  return low;
}

/** x < y with NaN as the largest. */
function isLess(x: Tensor, y: Tensor): Tensor {
  const less = ops.compare("lt", x, y);
  return isFloat(x.dtype) || isComplex(x.dtype) ? ops.or(less, ops.and(isnan(y), ops.not(isnan(x)))) : less;
}

const digitizeOptions = schema({ right: false });

/**
 * The indices of the bins that values fall into, between rising or falling bounds; as NumPy's `digitize`.
 *
 * @example
 * ```ts
 * np.digitize(np.array([0.5, 2.5]), np.array([0, 1, 2])); // [1, 3]
 * ```
 */
export function digitize(
  x: TensorLike,
  bins: TensorLike,
  options?: OptionsOf<typeof digitizeOptions>,
): Tensor {
  const { right } = digitizeOptions.read(options, "digitize");
  const side = right ? "left" : "right";
  const bounds = asTensor(bins, "digitize");
  const n = bounds.size;
  if (bounds.ndim !== 1 || n < 2) return searchsorted(bounds, x, { side });
  const end = (i: number) => ops.reshape(ops.sliceDim(bounds, 0, i, i + 1), []);
  const isRising = ops.compare("ge", end(n - 1), end(0));
  const choose = (a: Tensor, b: Tensor) => ops.select(ops.broadcastInDim(isRising, a.shape, []), a, b);
  const place = searchsorted(choose(bounds, ops.reverse(bounds, [0])), x, { side });
  return choose(place, ops.sub(ops.full(place.shape, n, "int32"), place));
}

const bincountOptions = schema({
  length: required("integer"),
  weights: optional(tensorLikeKind),
});

/**
 * How often each of the numbers 0 … length − 1 occurs in a tensor of integers, or the sum of its weights. As in JAX
 * negative numbers count as 0, and larger ones not at all.
 *
 * @example
 * ```ts
 * np.bincount(np.array([0, 1, 1], "int32"), { length: 2 }); // [1, 2]
 * ```
 */
export function bincount(x: TensorLike, options: OptionsOf<typeof bincountOptions>): Tensor {
  const { length, weights } = bincountOptions.read(options, "bincount");
  const values = asTensor(x, "bincount");
  const flat = ops.reshape(values, [values.size]);
  const ones = weights === undefined ? ops.full([values.size], 1, "int32") : asTensor(weights, "bincount");
  return ops.scatter(
    ops.full([length], 0, ones.dtype),
    ops.max(toInt32(flat), 0),
    ops.reshape(ones, [values.size]),
    { dim: 0, batchDims: 0, combine: "add" },
  );
}
