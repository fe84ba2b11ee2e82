/** Reductions that ignore NaN. */

import { isComplex, isFloat } from "../../ir/dtype.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { maximum, minimum } from "../elementwise/arithmetic.js";
import { sqrt } from "../elementwise/elementwise.js";
import { logicalAnd, where } from "../elementwise/logic.js";
import { isnan } from "../elementwise/specialValues.js";
import { asInexact, asTensor, type Dims, toBool } from "../operands.js";
import {
  all,
  averaging,
  type ExtremeOptions,
  extreme,
  extremeOptions,
  indexOf,
  type KeepdimsOptions,
  type MeanOptions,
  meanOptions,
  multiplying,
  type SumOptions,
  spreading,
  summing,
  type VarianceOptions,
  varianceOptions,
} from "./reductions.js";

/** Where elements take part: those that are not NaN, and that a mask of the caller's chooses. */
function present(x: Tensor, mask: TensorLike | undefined, caller: string): Tensor {
  const isNumber = ops.not(isnan(x));
  return mask === undefined ? isNumber : logicalAnd(isNumber, toBool(mask, caller));
}

/** The elements, with another value in place of NaN. */
function filled(value: TensorLike, filler: number, caller: string): Tensor {
  const x = asTensor(value, caller);
  return where(isnan(x), filler, x);
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
  return summing("nansum")(filled(x, 0, "nansum"), dim, options);
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
  return averaging("nanmean")(x, dim, { ...given, where: present(x, given.where, "nanmean") });
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
  return withoutNan(
    x,
    dim,
    options,
    Number.NEGATIVE_INFINITY,
    extreme("nanmax", ops.reduceMax, maximum),
    "nanmax",
  );
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
  return withoutNan(
    x,
    dim,
    options,
    Number.POSITIVE_INFINITY,
    extreme("nanmin", ops.reduceMin, minimum),
    "nanmin",
  );
}

function withoutNan(
  value: TensorLike,
  dim: Dims | undefined,
  options: ExtremeOptions,
  filler: number,
  reduce: ReturnType<typeof extreme>,
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
  return multiplying("nanprod")(filled(x, 1, "nanprod"), dim, options);
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
  return spreadingWithoutNan("nanvar", value, dim, options);
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
  return sqrt(spreadingWithoutNan("nanstd", x, dim, options));
}

function spreadingWithoutNan(
  caller: string,
  value: TensorLike,
  dim: Dims | undefined,
  options: NanVarianceOptions | undefined,
): Tensor {
  const given = varianceOptions.read(options, caller);
  const x = asInexact(value, caller);
  return spreading(caller)(x, dim, { ...given, where: present(x, given.where, caller) });
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
  return positionWithoutNan(
    x,
    dim,
    options,
    Number.NEGATIVE_INFINITY,
    indexOf("nanargmax", ops.argmax),
    "nanargmax",
  );
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
  return positionWithoutNan(
    x,
    dim,
    options,
    Number.POSITIVE_INFINITY,
    indexOf("nanargmin", ops.argmin),
    "nanargmin",
  );
}

function positionWithoutNan(
  value: TensorLike,
  dim: number | null | undefined,
  options: KeepdimsOptions,
  filler: number,
  find: ReturnType<typeof indexOf>,
  caller: string,
): Tensor {
  const x = asTensor(value, caller);
  if (!isFloat(x.dtype)) return find(x, dim, options);
  const isMissing = isnan(x);
  const found = find(where(isMissing, filler, x), dim, options);
  return where(all(isMissing, dim, options), -1, found);
}
