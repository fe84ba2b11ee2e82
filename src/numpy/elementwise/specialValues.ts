/** NaN, infinities and the signs of zeros. */

import { anyNumber } from "../../ir/arguments.js";
import { isComplex, isFloat, isInteger, isUnsigned, limits } from "../../ir/dtype.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { asTensor, like, onParts, refuseComplex } from "../operands.js";
import type { UnaryFunction } from "./elementwise.js";

/**
 * Where x is NaN.
 *
 * @example
 * ```ts
 * np.isnan(np.array([1, NaN])); // [false, true]
 * ```
 */
export function isnan(x: TensorLike): Tensor {
  const tensor = asTensor(x, "isnan");
  return ops.compare("ne", tensor, tensor);
}

/**
 * Where x is neither infinite nor NaN.
 *
 * @example
 * ```ts
 * np.isfinite(np.array([1, Infinity])); // [true, false]
 * ```
 */
export function isfinite(x: TensorLike): Tensor {
  const tensor = asTensor(x, "isfinite");
  return isFloat(tensor.dtype) || isComplex(tensor.dtype)
    ? ops.finite(tensor)
    : ops.compare("eq", tensor, tensor);
}

/**
 * Where x is ∞ or −∞.
 *
 * @example
 * ```ts
 * np.isinf(np.array([1, Infinity])); // [false, true]
 * ```
 */
export function isinf(value: TensorLike): Tensor {
  const x = asTensor(value, "isinf");
  return isComplex(x.dtype) ? isInfinite(ops.abs(x)) : isInfinite(x);
}

const isInfinite = infinity("isinf", (x) => ops.compare("eq", ops.abs(x), Number.POSITIVE_INFINITY));

/**
 * Where x is ∞.
 *
 * @example
 * ```ts
 * np.isposinf(np.array([Infinity, 1])); // [true, false]
 * ```
 */
export const isposinf = infinity("isposinf", (x) => ops.compare("eq", x, Number.POSITIVE_INFINITY));

/**
 * Where x is −∞.
 *
 * @example
 * ```ts
 * np.isneginf(np.array([-Infinity, 1])); // [true, false]
 * ```
 */
export const isneginf = infinity("isneginf", (x) => ops.compare("eq", x, Number.NEGATIVE_INFINITY));

function infinity(name: string, test: (x: Tensor) => Tensor): UnaryFunction {
  return (value) => {
    const x = asTensor(value, name);
    refuseComplex(x, name);
    return isFloat(x.dtype) ? test(x) : ops.compare("ne", x, x);
  };
}

/**
 * Where the sign bit is set, also for −0.
 *
 * @example
 * ```ts
 * np.signbit(np.array([-3, 2])); // [true, false]
 * ```
 */
export function signbit(value: TensorLike): Tensor {
  const x = asTensor(value, "signbit");
  refuseComplex(x, "signbit");
  if (!isFloat(x.dtype))
    return isInteger(x.dtype) && !isUnsigned(x.dtype) ? ops.compare("lt", x, 0) : ops.compare("ne", x, x);
  // 1 / −0 is −∞, so dividing tells the two zeros apart.
  const isZero = ops.compare("eq", x, 0);
  return ops.compare("lt", ops.select(isZero, ops.div(like(x, 1), x), x), 0);
}

const nanToNumOptions = schema({
  /** What replaces NaN; 0 by default. */
  nan: optional(anyNumber, 0),
  /** What replaces ∞; the largest finite number by default. */
  posinf: optional(anyNumber),
  /** What replaces −∞; the smallest finite number by default. */
  neginf: optional(anyNumber),
});

/** What {@link nanToNum} puts in; `posinf` and `neginf` default to the largest and smallest finite number. */
export interface NanToNumOptions extends OptionsOf<typeof nanToNumOptions> {}

/**
 * Replaces NaN by 0 and infinities by the largest finite numbers.
 *
 * @example
 * ```ts
 * np.nanToNum(np.array([1, NaN])); // [1, 0]
 * ```
 */
export function nanToNum(value: TensorLike, options: NanToNumOptions = {}): Tensor {
  const { nan, posinf, neginf } = nanToNumOptions.read(options, "nanToNum");
  const x = asTensor(value, "nanToNum");
  if (x.parts) return onParts(x, (part) => nanToNum(part, options));
  if (!isFloat(x.dtype)) return x;
  const { min, max } = limits(x.dtype);
  const replace = (where: Tensor, by: number, rest: Tensor) => ops.select(where, like(x, by), rest);
  const finite = replace(isposinf(x), posinf ?? max, replace(isneginf(x), neginf ?? min, x));
  return replace(isnan(x), nan, finite);
}
