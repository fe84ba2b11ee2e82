/** Elementwise functions. Integers and bool are computed in float32 unless stated otherwise. */

import { describe } from "../../ir/describe.js";
import { type DType, isFloat, isUnsigned } from "../../ir/dtype.js";
import { DTypeError } from "../../ir/errors.js";
import { besselI0e, besselI1e } from "../../lax/bessel.js";
import * as lax from "../../lax/composed.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import {
  asFloat,
  asInexact,
  asNumber,
  asTensor,
  cast,
  like,
  onParts,
  refuseComplex,
  requireBits,
  widened,
} from "../operands.js";

/** A function of one operand. */
export type UnaryFunction = (x: TensorLike) => Tensor;

function float(name: string, fn: (x: Tensor) => Tensor): UnaryFunction {
  return (x) => fn(asFloat(x, name));
}

/** For functions of complex numbers too. */
function inexact(name: string, fn: (x: Tensor) => Tensor): UnaryFunction {
  return (x) => fn(asInexact(x, name));
}

/** For functions made of several ops, which lose precision in half-width floats. */
function composed(name: string, fn: (x: Tensor) => Tensor): UnaryFunction {
  return inexact(name, widened(fn));
}

/** For functions that leave integers and bool alone. */
function rounding(name: string, fn: (x: Tensor) => Tensor): UnaryFunction {
  return (value) => {
    const x = asTensor(value, name);
    refuseComplex(x, name);
    return isFloat(x.dtype) ? fn(x) : x;
  };
}

/**
 * e to the power of x.
 *
 * @example
 * ```ts
 * np.exp(np.array([0, 1])); // [1, 2.718]
 * ```
 */
export const exp = inexact("exp", ops.exp);
/**
 * 2 to the power of x.
 *
 * @example
 * ```ts
 * np.exp2(np.array([0, 3])); // [1, 8]
 * ```
 */
export const exp2 = inexact("exp2", lax.exp2);
/**
 * exp(x) − 1, precise near 0.
 *
 * @example
 * ```ts
 * np.expm1(np.array([0, 1])); // [0, 1.718]
 * ```
 */
export const expm1 = inexact("expm1", ops.expm1);
/**
 * The natural logarithm.
 *
 * @example
 * ```ts
 * np.log(np.array([1, Math.E])); // [0, 1]
 * ```
 */
export const log = inexact("log", ops.log);
/**
 * The logarithm to base 2.
 *
 * @example
 * ```ts
 * np.log2(np.array([1, 8])); // [0, 3]
 * ```
 */
export const log2 = composed("log2", (x) => ops.div(ops.log(x), Math.LN2));
/**
 * The logarithm to base 10.
 *
 * @example
 * ```ts
 * np.log10(np.array([1, 1000])); // [0, 3]
 * ```
 */
export const log10 = composed("log10", (x) => ops.div(ops.log(x), Math.LN10));
/**
 * log(1 + x), precise near 0.
 *
 * @example
 * ```ts
 * np.log1p(np.array([0, 1])); // [0, 0.6931]
 * ```
 */
export const log1p = inexact("log1p", ops.log1p);
/**
 * The square root.
 *
 * @example
 * ```ts
 * np.sqrt(np.array([4, 9])); // [2, 3]
 * ```
 */
export const sqrt = inexact("sqrt", ops.sqrt);
/**
 * The cube root.
 *
 * @example
 * ```ts
 * np.cbrt(np.array([8, 27])); // [2, 3]
 * ```
 */
export const cbrt = float("cbrt", ops.cbrt);
/**
 * The sine of an angle in radians.
 *
 * @example
 * ```ts
 * np.sin(np.array([0, 1])); // [0, 0.8415]
 * ```
 */
export const sin = inexact("sin", ops.sin);
/**
 * The cosine of an angle in radians.
 *
 * @example
 * ```ts
 * np.cos(np.array([0, Math.PI])); // [1, -1]
 * ```
 */
export const cos = inexact("cos", ops.cos);
/**
 * The tangent of an angle in radians.
 *
 * @example
 * ```ts
 * np.tan(np.array([0, 1])); // [0, 1.557]
 * ```
 */
export const tan = composed("tan", lax.tan);
/**
 * The angle in −π/2 … π/2 whose sine is x.
 *
 * @example
 * ```ts
 * np.asin(np.array([0, 1])); // [0, 1.571]
 * ```
 */
export const asin = composed("asin", lax.asin);
/**
 * The angle in 0 … π whose cosine is x.
 *
 * @example
 * ```ts
 * np.acos(np.array([1, 0])); // [0, 1.571]
 * ```
 */
export const acos = composed("acos", lax.acos);
/**
 * The angle in −π/2 … π/2 whose tangent is x.
 *
 * @example
 * ```ts
 * np.atan(np.array([0, 1])); // [0, 0.7854]
 * ```
 */
export const atan = inexact("atan", lax.atan);
/**
 * The hyperbolic tangent.
 *
 * @example
 * ```ts
 * np.tanh(np.array([0, 1])); // [0, 0.7616]
 * ```
 */
export const tanh = inexact("tanh", ops.tanh);

/**
 * The hyperbolic sine.
 *
 * @example
 * ```ts
 * np.sinh(np.array([0, 1])); // [0, 1.175]
 * ```
 */
export const sinh = composed("sinh", lax.sinh);
/**
 * The hyperbolic cosine.
 *
 * @example
 * ```ts
 * np.cosh(np.array([0, 1])); // [1, 1.543]
 * ```
 */
export const cosh = composed("cosh", lax.cosh);
/**
 * The inverse of sinh.
 *
 * @example
 * ```ts
 * np.asinh(np.array([0, 1])); // [0, 0.8814]
 * ```
 */
export const asinh = composed("asinh", lax.asinh);
/**
 * The inverse of cosh; NaN below 1.
 *
 * @example
 * ```ts
 * np.acosh(np.array([1, 2])); // [0, 1.317]
 * ```
 */
export const acosh = composed("acosh", lax.acosh);
/**
 * The inverse of tanh.
 *
 * @example
 * ```ts
 * np.atanh(np.array([0, 0.5])); // [0, 0.5493]
 * ```
 */
export const atanh = composed("atanh", lax.atanh);
/**
 * sin(πx) / (πx), which is 1 at 0.
 *
 * @example
 * ```ts
 * np.sinc(np.array([0, 0.5])); // [1, 0.6366]
 * ```
 */
export const sinc = composed("sinc", (x) => {
  const isZero = ops.compare("eq", x, 0);
  const angle = ops.mul(ops.select(isZero, like(x, 1), x), Math.PI);
  // Near 0 the parabola 1 − (πx)²/6 also gives the derivatives at 0.
  const parabola = ops.sub(like(x, 1), ops.mul(ops.mul(x, x), Math.PI ** 2 / 6));
  return ops.select(isZero, parabola, ops.div(ops.sin(angle), angle));
});
/**
 * The modified Bessel function of the first kind of order 0.
 *
 * @example
 * ```ts
 * np.i0(np.array([0, 1])); // [1, 1.266]
 * ```
 */
export const i0 = composed(
  "i0",
  lax.withDerivative(
    (x) => ops.mul(ops.exp(ops.abs(x)), besselI0e(x)),
    (x) => ops.mul(ops.exp(ops.abs(x)), besselI1e(x)),
  ),
);
/**
 * 1 / x.
 *
 * @example
 * ```ts
 * np.reciprocal(np.array([2, 4])); // [0.5, 0.25]
 * ```
 */
export const reciprocal = inexact("reciprocal", lax.reciprocal);
/**
 * Degrees as radians.
 *
 * @example
 * ```ts
 * np.deg2rad(np.array([0, 180])); // [0, 3.142]
 * ```
 */
export const deg2rad = inexact("deg2rad", (x) => ops.mul(x, Math.PI / 180));
/**
 * Radians as degrees.
 *
 * @example
 * ```ts
 * np.rad2deg(np.array([0, Math.PI])); // [0, 180]
 * ```
 */
export const rad2deg = inexact("rad2deg", (x) => ops.mul(x, 180 / Math.PI));

/**
 * −x.
 *
 * @example
 * ```ts
 * np.negative(np.array([1, -2])); // [-1, 2]
 * ```
 */
export function negative(x: TensorLike): Tensor {
  return ops.neg(refuseBool(asTensor(x, "negative"), "negative"));
}

/**
 * x itself.
 *
 * @example
 * ```ts
 * np.positive(np.array([1, -2])); // [1, -2]
 * ```
 */
export function positive(x: TensorLike): Tensor {
  return asTensor(x, "positive");
}

/**
 * The absolute value; integers stay integers.
 *
 * @example
 * ```ts
 * np.abs(np.array([-1, 2])); // [1, 2]
 * ```
 */
export function abs(x: TensorLike): Tensor {
  const tensor = asTensor(x, "abs");
  return tensor.dtype === "bool" || isUnsigned(tensor.dtype) ? tensor : ops.abs(tensor);
}

/**
 * The absolute value as a float.
 *
 * @example
 * ```ts
 * np.fabs(np.array([-1, 2])); // [1, 2]
 * ```
 */
export const fabs = float("fabs", ops.abs);

/**
 * −1, 0 or 1; integers stay integers, −0 and NaN are unchanged. For complex numbers x / |x|.
 *
 * @example
 * ```ts
 * np.sign(np.array([-3, 0, 2])); // [-1, 0, 1]
 * ```
 */
export function sign(x: TensorLike): Tensor {
  return ops.sign(refuseBool(asTensor(x, "sign"), "sign"));
}

/**
 * x²; integers stay integers.
 *
 * @example
 * ```ts
 * np.square(np.array([2, 3])); // [4, 9]
 * ```
 */
export function square(x: TensorLike): Tensor {
  return lax.square(asNumber(x, "square"));
}

/**
 * The largest integer that is not above x; integers are left alone.
 *
 * @example
 * ```ts
 * np.floor(np.array([1.7, -1.2])); // [1, -2]
 * ```
 */
export const floor = rounding("floor", ops.floor);
/**
 * The smallest integer that is not below x; integers are left alone.
 *
 * @example
 * ```ts
 * np.ceil(np.array([1.2, -1.2])); // [2, -1]
 * ```
 */
export const ceil = rounding("ceil", ops.ceil);
/**
 * The whole part of x, toward zero; integers are left alone.
 *
 * @example
 * ```ts
 * np.trunc(np.array([1.7, -1.7])); // [1, -1]
 * ```
 */
export const trunc = rounding("trunc", (x) => ops.select(ops.compare("lt", x, 0), ops.ceil(x), ops.floor(x)));
/**
 * The nearest integer, ties to even.
 *
 * @example
 * ```ts
 * np.rint(np.array([0.5, 1.5, 1.7])); // [0, 2, 2]
 * ```
 */
export const rint = inexact("rint", (x) => onParts(x, ops.round));

/**
 * Rounds to `decimals` digits after the decimal point, ties to even; negative `decimals` round to tens, hundreds, …
 * Integers are left alone.
 *
 * @example
 * ```ts
 * np.round(np.array([1.234, 5.678]), 1); // [1.2, 5.7]
 * ```
 */
export function round(value: TensorLike, decimals = 0): Tensor {
  const x = refuseBool(asTensor(value, "round"), "round");
  if (x.parts) return onParts(x, (part) => round(part, decimals));
  if (!Number.isInteger(decimals) || (!isFloat(x.dtype) && decimals < 0)) {
    throw new DTypeError(
      `[round] cannot round ${x.dtype} to ${describe(decimals)} decimals: use an integer, and floats for negative ones`,
    );
  }
  if (!isFloat(x.dtype)) return x;
  if (decimals === 0) return ops.round(x);
  const factor = 10 ** Math.abs(decimals);
  return widened((w) =>
    decimals > 0
      ? ops.div(ops.round(ops.mul(w, factor)), factor)
      : ops.mul(ops.round(ops.div(w, factor)), factor),
  )(x);
}

/**
 * Flips every bit of integers; the opposite of bool.
 *
 * @example
 * ```ts
 * np.bitwiseNot(np.array([0, 5], "int32")); // [-1, -6]
 * ```
 */
export function bitwiseNot(x: TensorLike): Tensor {
  const tensor = asTensor(x, "bitwiseNot");
  requireBits(tensor, "bitwiseNot");
  return ops.not(tensor);
}

/**
 * The same values in another data type: floats are truncated toward zero and saturate in integers.
 *
 * @example
 * ```ts
 * np.astype(np.array([1.5, 2.5]), "int32"); // [1, 2]
 * ```
 */
export function astype(x: TensorLike, dtype: DType): Tensor {
  return ops.strong(cast(asTensor(x, "astype"), dtype));
}

function refuseBool(x: Tensor, caller: string): Tensor {
  if (x.dtype === "bool") {
    throw new DTypeError(`[${caller}] works on numbers, not on bool: convert with astype("int32")`);
  }
  return x;
}
