/** Values below which a part of the elements lies. */

import { keyOf, need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, normalizeDims, range, sameNumbers, sizeOf } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike, tensorLikeKind } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { stack } from "../arrays/joining.js";
import { add, maximum, minimum, multiply, subtract } from "../elementwise/arithmetic.js";
import { ceil, floor } from "../elementwise/elementwise.js";
import { greaterEqual, less, lessEqual, logicalAnd, where } from "../elementwise/logic.js";
import { isnan } from "../elementwise/specialValues.js";
import { takeAlongAxis } from "../indexing/take.js";
import { asFloat, cast, type Dims } from "../operands.js";
import { any, type KeepdimsOptions, keepdimsOptions, restoreDims, sum } from "../reductions/reductions.js";
import { cumsum } from "./statistics.js";

/** The elements along some dims as one sorted dim at the end, and the shape of the other dims. */
function sortedAlong(
  value: TensorLike,
  dim: Dims | undefined,
  caller: string,
  weights: TensorLike | undefined,
) {
  const given = asFloat(value, caller);
  const heavy = weights === undefined ? undefined : asFloat(weights, caller);
  const x = heavy ? cast(given, operandType(given, heavy)) : given;
  const dims = normalizeDims(dim, x.ndim, caller);
  const kept = range(x.ndim).filter((d) => !dims.includes(d));
  const shape = kept.map((d) => at(x.shape, d));
  const n = sizeOf(dims.map((d) => at(x.shape, d)));
  if (n === 0) throw new ShapeError(`[${caller}] ${formatType(x.type)} has no elements along dims [${dims}]`);
  const toEnd = (y: Tensor) => ops.reshape(ops.transpose(y, [...kept, ...dims]), [...shape, n]);
  const flat = heavy ? [x, alike(cast(heavy, x.dtype), x, dims, caller)].map(toEnd) : [toEnd(x)];
  const [sorted, sortedWeights] = ops.sort(flat, shape.length);
  return { x, dims, shape, n, sorted: sorted ?? x, weights: sortedWeights };
}

/** Weights for each element along some dims, or for each element of a tensor, repeated to its shape. */
function alike(weights: Tensor, x: Tensor, dims: readonly number[], caller: string): Tensor {
  if (sameNumbers(weights.shape, x.shape)) return weights;
  const along = dims.map((d) => at(x.shape, d));
  if (sameNumbers(weights.shape, along)) return ops.broadcastInDim(weights, x.shape, dims);
  throw new ShapeError(
    `[${caller}] weights ${formatType(weights.type)} must have the shape [${x.shape}] of the elements or [${along}] of the dims [${dims}]`,
  );
}

type Sorted = ReturnType<typeof sortedAlong>;

/** One part of the elements, from 0 to 1 or in percent, or several: then results are stacked along a first dim. */
export type Quantiles = number | readonly number[];

/** What stands for a part that lies between two elements, by its share of the way from the lower to the upper one. */
const methods = {
  /** Both, each by its share. */
  linear: (below: Tensor, above: Tensor, share: TensorLike) =>
    add(multiply(below, subtract(1, share)), multiply(above, share)),
  lower: (below: Tensor) => below,
  higher: (_: Tensor, above: Tensor) => above,
  midpoint: (below: Tensor, above: Tensor) => ops.mul(ops.add(below, above), 0.5),
  nearest: (below: Tensor, above: Tensor, share: TensorLike) => where(lessEqual(share, 0.5), below, above),
  /** The first element up to which at least the part lies, which is never between two. */
  inverted_cdf: (below: Tensor) => below,
} as const satisfies Record<string, (below: Tensor, above: Tensor, share: TensorLike) => Tensor>;

/** How {@link quantile} chooses between two elements. */
export type QuantileMethod = keyof typeof methods;

const quantileOptions = schema({
  ...keepdimsOptions.fields,
  /** What stands for a part that lies between two elements; `linear` by default. */
  method: optional(keyOf(methods), "linear"),
  /**
   * How much each element counts, from 0: of the shape of the elements, or of the dims that they are taken along. It
   * needs the method `inverted_cdf`.
   */
  weights: optional(tensorLikeKind),
});

/** Options of {@link quantile} and its relatives. */
export interface QuantileOptions extends OptionsOf<typeof quantileOptions> {}

/** A function of quantiles. */
interface QuantileKind {
  readonly caller: string;
  /** The value of q for all elements: 1, or 100 in percent. */
  readonly whole: number;
  /** Makes a function that finds the value below which a part of sorted elements lies. */
  readonly finder: (along: Sorted, method: QuantileMethod) => (part: number) => Tensor;
}

/** The quantiles of elements along some dims, which are sorted once. */
function quantilesOf(
  { caller, whole, finder }: QuantileKind,
  value: TensorLike,
  q: Quantiles,
  dim: Dims | undefined,
  options: QuantileOptions,
): Tensor {
  const { method, weights } = quantileOptions.read(options, caller);
  if (weights !== undefined && method !== "inverted_cdf") {
    throw new ValueError(`[${caller}] weights need method "inverted_cdf", not ${describe(method)}`);
  }
  const parts = checkQuantiles(q, whole, caller).map((one) => one / whole);
  const along = sortedAlong(value, dim, caller, weights);
  const find = finder(along, method);
  const results = parts.map((part) => restoreDims(find(part), along.x, along.dims, options.keepdims));
  return typeof q === "number" ? at(results, 0) : stack(results);
}

/** All q of an argument, each of which lies between 0 and `whole`. */
function checkQuantiles(q: Quantiles, whole: number, caller: string): readonly number[] {
  if (typeof q === "number") need("number", q, "q", caller);
  else need("numbers", q, "q", caller);
  const list = typeof q === "number" ? [q] : [...q];
  if (list.length === 0) throw new ValueError(`[${caller}] q is an empty list: pass at least one number`);
  const outside = list.find((one) => !(one >= 0 && one <= whole));
  if (outside !== undefined)
    throw new ValueError(`[${caller}] q = ${outside} must lie between 0 and ${whole}`);
  return list;
}

/**
 * The value below which the part `q` (0 … 1) of the elements lies, interpolated; NaN if there is a NaN. Several `q` give
 * as many values along a first dim.
 *
 * @example
 * ```ts
 * np.quantile(np.arange(11), 0.9); // 9
 * ```
 */
export function quantile(value: TensorLike, q: Quantiles, dim?: Dims, options: QuantileOptions = {}): Tensor {
  return quantilesOf({ caller: "quantile", whole: 1, finder: inAll }, value, q, dim, options);
}

/**
 * {@link quantile} with q in percent.
 *
 * @example
 * ```ts
 * np.percentile(np.arange(11), 90); // 9
 * ```
 */
export function percentile(x: TensorLike, q: Quantiles, dim?: Dims, options: QuantileOptions = {}): Tensor {
  return quantilesOf({ caller: "percentile", whole: 100, finder: inAll }, x, q, dim, options);
}

function inAll(along: Sorted, method: QuantileMethod): (part: number) => Tensor {
  const { shape, n, sorted, weights } = along;
  const element = (i: number) => ops.reshape(ops.sliceDim(sorted, shape.length, i, i + 1), shape);
  const hasNan = isnan(element(n - 1));
  if (weights) {
    const find = byWeight(along, weights);
    return (part) => where(hasNan, Number.NaN, find(part));
  }
  return (part) => {
    const isCounted = method === "inverted_cdf";
    const position = isCounted ? Math.max(Math.ceil(part * n) - 1, 0) : part * (n - 1);
    const [low, high] = [Math.floor(position), Math.ceil(position)];
    return where(hasNan, Number.NaN, methods[method](element(low), element(high), position - low));
  };
}

/** The first element up to which the part of all weights lies; NaN where a weight is negative or NaN. */
function byWeight({ shape, n, sorted }: Sorted, weights: Tensor): (part: number) => Tensor {
  const isNumber = ops.not(isnan(sorted));
  const isWrong = ops.not(greaterEqual(weights, 0));
  const sums = cumsum(where(logicalAnd(isNumber, ops.not(isWrong)), weights, 0), -1);
  const total = ops.sliceDim(sums, shape.length, n - 1, n);
  const last = maximum(subtract(sum(cast(isNumber, "int32"), -1, { keepdims: true }), 1), 0);
  return (part) => {
    const index = sum(cast(less(sums, multiply(total, part)), "int32"), -1, { keepdims: true });
    const found = takeAlongAxis(sorted, minimum(index, last), -1, { mode: "clip" });
    return where(any(isWrong, -1), Number.NaN, ops.reshape(found, shape));
  };
}

/**
 * The middle of the sorted elements, or the mean of the middle two.
 *
 * @example
 * ```ts
 * np.median(np.array([3, 1, 2])); // 2
 * ```
 */
export function median(x: TensorLike, dim?: Dims, options?: KeepdimsOptions): Tensor {
  const given = { ...keepdimsOptions.read(options, "median"), method: "midpoint" } as const;
  return quantilesOf({ caller: "median", whole: 1, finder: inAll }, x, 0.5, dim, given);
}

/**
 * {@link quantile} of the elements that are not NaN.
 *
 * @example
 * ```ts
 * np.nanquantile(np.array([1, NaN, 3]), 0.5); // 2
 * ```
 */
export function nanquantile(
  value: TensorLike,
  q: Quantiles,
  dim?: Dims,
  options: QuantileOptions = {},
): Tensor {
  return quantilesOf({ caller: "nanquantile", whole: 1, finder: inNumbers }, value, q, dim, options);
}

/**
 * {@link nanquantile} with q in percent.
 *
 * @example
 * ```ts
 * np.nanpercentile(np.array([1, NaN, 3]), 50); // 2
 * ```
 */
export function nanpercentile(
  x: TensorLike,
  q: Quantiles,
  dim?: Dims,
  options: QuantileOptions = {},
): Tensor {
  return quantilesOf({ caller: "nanpercentile", whole: 100, finder: inNumbers }, x, q, dim, options);
}

/** NaN is sorted to the end, so that the first elements are those that count. */
function inNumbers(along: Sorted, method: QuantileMethod): (part: number) => Tensor {
  const { x, shape, sorted, weights } = along;
  if (weights) return byWeight(along, weights);
  const count = sum(cast(ops.not(isnan(sorted)), x.dtype), -1, { keepdims: true });
  const last = maximum(subtract(count, 1), 0);
  const element = (place: Tensor) => takeAlongAxis(sorted, cast(place, "int32"), -1, { mode: "clip" });
  return (part) => {
    const isCounted = method === "inverted_cdf";
    const position = isCounted ? maximum(subtract(ceil(multiply(count, part)), 1), 0) : multiply(last, part);
    const low = floor(position);
    const [below, above] = [element(low), element(minimum(ceil(position), last))];
    return ops.reshape(methods[method](below, above, subtract(position, low)), shape);
  };
}

/**
 * The middle of the sorted elements that are not NaN.
 *
 * @example
 * ```ts
 * np.nanmedian(np.array([3, NaN, 1])); // 2
 * ```
 */
export function nanmedian(x: TensorLike, dim?: Dims, options?: KeepdimsOptions): Tensor {
  const given = { ...keepdimsOptions.read(options, "nanmedian"), method: "midpoint" } as const;
  return quantilesOf({ caller: "nanmedian", whole: 1, finder: inNumbers }, x, 0.5, dim, given);
}
