/** Reductions that ignore NaN. */

import { isComplex, isFloat } from "../ir/dtype.js";
import * as ops from "../trace/ops.js";
import type { TensorLike } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { sqrt } from "./elementwise.js";
import { logicalAnd, where } from "./logic.js";
import { asInexact, asTensor, type Dims } from "./operands.js";
import {
  all,
  argmax,
  argmin,
  type ExtremeOptions,
  extremeOptions,
  type KeepdimsOptions,
  type MeanOptions,
  max,
  mean,
  meanOptions,
  min,
  prod,
  type SumOptions,
  sum,
  type VarianceOptions,
  variance,
  varianceOptions,
} from "./reductions.js";
import { isnan } from "./specialValues.js";
import { cumprod, cumsum, type RunningOptions } from "./statistics.js";

/** Where elements take part: those that are not NaN, and that a mask of the caller's chooses. */
function present(x: Tensor, mask: TensorLike | undefined): Tensor {
  const isNumber = ops.not(isnan(x));
  return mask === undefined ? isNumber : logicalAnd(isNumber, mask);
}

/**
 * The sum of the elements that are not NaN.
 *
 * @example
 * ```ts
 * np.nansum(np.array([1, NaN, 3])); // 4
 * ```
 */
export function nansum(x: TensorLike, dim?: Dims, options: SumOptions = {}): Tensor {
  return sum(where(isnan(x), 0, x), dim, options);
}

/**
 * The mean of the elements that are not NaN; NaN where there is none.
 *
 * @example
 * ```ts
 * np.nanmean(np.array([1, NaN, 3])); // 2
 * ```
 */
export function nanmean(value: TensorLike, dim?: Dims, options?: MeanOptions): Tensor {
  const given = meanOptions.read(options, "nanmean");
  const x = asTensor(value, "nanmean");
  return mean(x, dim, { ...given, where: present(x, given.where) });
}

/**
 * The largest element that is not NaN; NaN where there is none.
 *
 * @example
 * ```ts
 * np.nanmax(np.array([1, NaN, 3])); // 3
 * ```
 */
export function nanmax(x: TensorLike, dim?: Dims, options: ExtremeOptions = {}): Tensor {
  return withoutNan(x, dim, options, Number.NEGATIVE_INFINITY, max, "nanmax");
}

/**
 * The smallest element that is not NaN; NaN where there is none.
 *
 * @example
 * ```ts
 * np.nanmin(np.array([1, NaN, 3])); // 1
 * ```
 */
export function nanmin(x: TensorLike, dim?: Dims, options: ExtremeOptions = {}): Tensor {
  return withoutNan(x, dim, options, Number.POSITIVE_INFINITY, min, "nanmin");
}

function withoutNan(
  value: TensorLike,
  dim: Dims | undefined,
  options: ExtremeOptions,
  filler: number,
  reduce: typeof max,
  caller: string,
): Tensor {
  const given = extremeOptions.read(options, caller);
  const x = asTensor(value, caller);
  if (!isFloat(x.dtype) && !isComplex(x.dtype)) return reduce(x, dim, given);
  const nan = isnan(x);
  const result = reduce(where(nan, filler, x), dim, given);
  if (given.initial !== undefined) return result;
  return where(all(nan, dim, { keepdims: given.keepdims }), Number.NaN, result);
}

/**
 * The product of the elements that are not NaN.
 *
 * @example
 * ```ts
 * np.nanprod(np.array([2, NaN, 3])); // 6
 * ```
 */
export function nanprod(x: TensorLike, dim?: Dims, options: SumOptions = {}): Tensor {
  return prod(where(isnan(x), 1, x), dim, options);
}

/** Options of {@link nanvar} and {@link nanstd}. */
export type NanVarianceOptions = VarianceOptions;

/**
 * The variance of the elements that are not NaN.
 *
 * @example
 * ```ts
 * np.nanvar(np.array([1, NaN, 3])); // 1
 * ```
 */
export function nanvar(value: TensorLike, dim?: Dims, options?: NanVarianceOptions): Tensor {
  const given = varianceOptions.read(options, "nanvar");
  const x = asInexact(value, "nanvar");
  return variance(x, dim, { ...given, where: present(x, given.where) });
}

/**
 * The standard deviation of the elements that are not NaN.
 *
 * @example
 * ```ts
 * np.nanstd(np.array([1, NaN, 3])); // 1
 * ```
 */
export function nanstd(x: TensorLike, dim?: Dims, options?: NanVarianceOptions): Tensor {
  return sqrt(nanvar(x, dim, varianceOptions.read(options, "nanstd")));
}

/**
 * The index of the largest element that is not NaN; −1 where there is none.
 *
 * @example
 * ```ts
 * np.nanargmax(np.array([1, NaN, 3])); // 2
 * ```
 */
export function nanargmax(x: TensorLike, dim?: number | null, options: KeepdimsOptions = {}): Tensor {
  return positionWithoutNan(x, dim, options, Number.NEGATIVE_INFINITY, argmax, "nanargmax");
}

/**
 * The index of the smallest element that is not NaN; −1 where there is none.
 *
 * @example
 * ```ts
 * np.nanargmin(np.array([NaN, 2, 1])); // 2
 * ```
 */
export function nanargmin(x: TensorLike, dim?: number | null, options: KeepdimsOptions = {}): Tensor {
  return positionWithoutNan(x, dim, options, Number.POSITIVE_INFINITY, argmin, "nanargmin");
}

function positionWithoutNan(
  value: TensorLike,
  dim: number | null | undefined,
  options: KeepdimsOptions,
  filler: number,
  find: typeof argmax,
  caller: string,
): Tensor {
  const x = asTensor(value, caller);
  if (!isFloat(x.dtype)) return find(x, dim, options);
  const isMissing = isnan(x);
  return where(all(isMissing, dim, options), -1, find(where(isMissing, filler, x), dim, options));
}

/**
 * Running sums in which NaN counts as 0.
 *
 * @example
 * ```ts
 * np.nancumsum(np.array([1, NaN, 3])); // [1, 1, 4]
 * ```
 */
export function nancumsum(x: TensorLike, dim?: number | null, options: RunningOptions = {}): Tensor {
  return cumsum(where(isnan(x), 0, x), dim, options);
}

/**
 * Running products in which NaN counts as 1.
 *
 * @example
 * ```ts
 * np.nancumprod(np.array([2, NaN, 3])); // [2, 2, 6]
 * ```
 */
export function nancumprod(x: TensorLike, dim?: number | null, options: RunningOptions = {}): Tensor {
  return cumprod(where(isnan(x), 1, x), dim, options);
}
