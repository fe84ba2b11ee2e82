/** Functions of each element by itself. Integers and bool are computed in float32 unless it says otherwise. */
import { type DType, isFloat, limits } from "../ir/dtype.js";
import { DTypeError } from "../ir/errors.js";
import * as ops from "../trace/ops.js";
import type { TensorLike } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { asFloat, asNumber, asTensor, cast, like, requireBits, widened } from "./operands.js";

/** A function of one operand. */
export type UnaryFunction = (x: TensorLike) => Tensor;

function float(name: string, fn: (x: Tensor) => Tensor): UnaryFunction {
  return (x) => fn(asFloat(x, name));
}

/** For functions made of several ops, which lose precision in half-width floats. */
function composed(name: string, fn: (x: Tensor) => Tensor): UnaryFunction {
  return float(name, widened(fn));
}

/** For functions that leave integers and bool alone. */
function rounding(name: string, fn: (x: Tensor) => Tensor): UnaryFunction {
  return (value) => {
    const x = asTensor(value, name);
    return isFloat(x.dtype) ? fn(x) : x;
  };
}

/** e to the power of x. */
export const exp = float("exp", ops.exp);
/** 2 to the power of x. */
export const exp2 = float("exp2", (x) => ops.pow(like(x, 2), x));
/** exp(x) − 1, precise near 0. */
export const expm1 = float("expm1", ops.expm1);
/** The natural logarithm. */
export const log = float("log", ops.log);
/** The logarithm to base 2. */
export const log2 = composed("log2", (x) => ops.div(ops.log(x), Math.LN2));
/** The logarithm to base 10. */
export const log10 = composed("log10", (x) => ops.div(ops.log(x), Math.LN10));
/** log(1 + x), precise near 0. */
export const log1p = float("log1p", ops.log1p);
/** The square root. */
export const sqrt = float("sqrt", ops.sqrt);
/** The cube root. */
export const cbrt = float("cbrt", ops.cbrt);
/** The sine of an angle in radians. */
export const sin = float("sin", ops.sin);
/** The cosine of an angle in radians. */
export const cos = float("cos", ops.cos);
/** The tangent of an angle in radians. */
export const tan = composed("tan", (x) => ops.div(ops.sin(x), ops.cos(x)));
/** The angle in −π/2 … π/2 whose sine is x. */
export const asin = composed("asin", (x) => ops.mul(ops.atan2(x, ops.add(leg(x), 1)), 2));
/** The angle in 0 … π whose cosine is x. */
export const acos = composed("acos", (x) => ops.atan2(leg(x), x));
/** The angle in −π/2 … π/2 whose tangent is x. */
export const atan = float("atan", (x) => ops.atan2(x, like(x, 1)));
/** The hyperbolic tangent. */
export const tanh = float("tanh", ops.tanh);

/** √(1 − x²) without cancellation near ±1. */
function leg(x: Tensor): Tensor {
  return ops.sqrt(ops.mul(ops.sub(like(x, 1), x), ops.add(x, 1)));
}

/** The hyperbolic sine. */
export const sinh = composed("sinh", (x) => {
  const isSmall = ops.compare("lt", ops.abs(x), 1);
  // The formula for small x must not overflow where it is not used, or its gradient would be NaN.
  const e = ops.expm1(ops.select(isSmall, x, like(x, 0)));
  const small = ops.mul(ops.add(e, ops.div(e, ops.add(e, 1))), 0.5);
  // exp(x − log 2) instead of exp(x) / 2, which overflows earlier.
  const large = ops.sub(ops.exp(ops.sub(x, Math.LN2)), ops.exp(ops.sub(ops.neg(x), Math.LN2)));
  return ops.select(isSmall, small, large);
});
/** The hyperbolic cosine. */
export const cosh = composed("cosh", (x) =>
  ops.add(ops.exp(ops.sub(x, Math.LN2)), ops.exp(ops.sub(ops.neg(x), Math.LN2))),
);
/** The inverse of sinh. */
export const asinh = composed("asinh", (x) => {
  const size = ops.abs(x);
  const isSmall = ops.compare("lt", size, 1);
  const near = ops.select(isSmall, x, like(x, 0));
  const square = ops.mul(near, near);
  const small = ops.log1p(ops.add(near, ops.div(square, ops.add(ops.sqrt(ops.add(square, 1)), 1))));
  // For x ≥ 1: log(x + √(x² + 1)) with x taken out, so that x² cannot overflow.
  const inverse = ops.div(like(x, 1), ops.select(isSmall, like(x, 1), size));
  const root = ops.sqrt(ops.add(ops.mul(inverse, inverse), 1));
  const large = ops.add(ops.log(ops.div(like(x, 1), inverse)), ops.log(ops.add(root, 1)));
  return ops.select(isSmall, small, ops.mul(ops.sign(x), large));
});
/** The inverse of cosh; NaN below 1. */
export const acosh = composed("acosh", (x) => {
  // log(x + √(x² − 1)) with x taken out, so that x² cannot overflow.
  const inverse = ops.div(like(x, 1), x);
  const root = ops.sqrt(ops.mul(ops.sub(like(x, 1), inverse), ops.add(inverse, 1)));
  const value = ops.add(ops.log(x), ops.log1p(root));
  return ops.select(ops.compare("lt", x, 1), like(x, Number.NaN), value);
});
/** The inverse of tanh. */
export const atanh = composed("atanh", (x) => ops.mul(ops.sub(ops.log1p(x), ops.log1p(ops.neg(x))), 0.5));
/** sin(πx) / (πx), which is 1 at 0. */
export const sinc = composed("sinc", (x) => {
  const isZero = ops.compare("eq", x, 0);
  const angle = ops.mul(ops.select(isZero, like(x, 1), x), Math.PI);
  // Near 0 the parabola 1 − (πx)²/6 also gives the derivatives at 0.
  const parabola = ops.sub(like(x, 1), ops.mul(ops.mul(x, x), Math.PI ** 2 / 6));
  return ops.select(isZero, parabola, ops.div(ops.sin(angle), angle));
});
/** 1 / x. */
export const reciprocal = float("reciprocal", (x) => ops.div(like(x, 1), x));
/** Degrees as radians. */
export const deg2rad = float("deg2rad", (x) => ops.mul(x, Math.PI / 180));
/** Radians as degrees. */
export const rad2deg = float("rad2deg", (x) => ops.mul(x, 180 / Math.PI));

/** −x. */
export function negative(x: TensorLike): Tensor {
  return ops.neg(refuseBool(asTensor(x, "negative"), "negative"));
}

/** x itself. */
export function positive(x: TensorLike): Tensor {
  return asTensor(x, "positive");
}

/** The absolute value; integers stay integers. */
export function abs(x: TensorLike): Tensor {
  const tensor = asTensor(x, "abs");
  return tensor.dtype === "bool" || tensor.dtype === "uint32" ? tensor : ops.abs(tensor);
}

/** The absolute value as a float. */
export const fabs = float("fabs", ops.abs);

/** −1, 0 or 1; integers stay integers, −0 and NaN stay what they are. */
export function sign(x: TensorLike): Tensor {
  return ops.sign(refuseBool(asTensor(x, "sign"), "sign"));
}

/** x²; integers stay integers. */
export function square(x: TensorLike): Tensor {
  const tensor = asNumber(x, "square");
  return ops.mul(tensor, tensor);
}

/** The largest whole number that is not above x; integers are left alone. */
export const floor = rounding("floor", ops.floor);
/** The smallest whole number that is not below x; integers are left alone. */
export const ceil = rounding("ceil", ops.ceil);
/** The whole part of x, toward zero; integers are left alone. */
export const trunc = rounding("trunc", (x) => ops.select(ops.compare("lt", x, 0), ops.ceil(x), ops.floor(x)));
/** The nearest whole number, ties to even. */
export const rint = float("rint", ops.round);

/**
 * Rounds to so many digits after the point, ties to even; negative `decimals` round to tens, hundreds, …
 * Integers are left alone.
 */
export function round(value: TensorLike, decimals = 0): Tensor {
  const x = refuseBool(asTensor(value, "round"), "round");
  if (!Number.isInteger(decimals) || (!isFloat(x.dtype) && decimals < 0)) {
    throw new DTypeError(
      `[round] cannot round ${x.dtype} to ${decimals} decimals: use a whole number, and floats for negative ones`,
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

/** Flips every bit of integers; the opposite of bool. */
export function bitwiseNot(x: TensorLike): Tensor {
  const tensor = asTensor(x, "bitwiseNot");
  requireBits(tensor, "bitwiseNot");
  return ops.not(tensor);
}

/** Where x is NaN. */
export function isnan(x: TensorLike): Tensor {
  const tensor = asTensor(x, "isnan");
  return ops.compare("ne", tensor, tensor);
}

/** Where x is neither infinite nor NaN. */
export function isfinite(x: TensorLike): Tensor {
  const tensor = asTensor(x, "isfinite");
  return isFloat(tensor.dtype) ? ops.finite(tensor) : ops.compare("eq", tensor, tensor);
}

/** Where x is ∞ or −∞. */
export const isinf = infinity("isinf", (x) => ops.compare("eq", ops.abs(x), Number.POSITIVE_INFINITY));
/** Where x is ∞. */
export const isposinf = infinity("isposinf", (x) => ops.compare("eq", x, Number.POSITIVE_INFINITY));
/** Where x is −∞. */
export const isneginf = infinity("isneginf", (x) => ops.compare("eq", x, Number.NEGATIVE_INFINITY));

function infinity(name: string, test: (x: Tensor) => Tensor): UnaryFunction {
  return (value) => {
    const x = asTensor(value, name);
    return isFloat(x.dtype) ? test(x) : ops.compare("ne", x, x);
  };
}

/** Where the sign bit is set, also for −0. */
export function signbit(value: TensorLike): Tensor {
  const x = asTensor(value, "signbit");
  if (!isFloat(x.dtype)) return x.dtype === "int32" ? ops.compare("lt", x, 0) : ops.compare("ne", x, x);
  // 1 / −0 is −∞, so dividing tells the two zeros apart.
  const isZero = ops.compare("eq", x, 0);
  return ops.compare("lt", ops.select(isZero, ops.div(like(x, 1), x), x), 0);
}

/** What {@link nanToNum} puts in; `posinf` and `neginf` default to the largest and smallest finite number. */
export interface NanToNumOptions {
  readonly nan?: number | undefined;
  readonly posinf?: number | undefined;
  readonly neginf?: number | undefined;
}

/** Replaces NaN by 0 and infinities by the largest finite numbers. */
export function nanToNum(value: TensorLike, { nan = 0, posinf, neginf }: NanToNumOptions = {}): Tensor {
  const x = asTensor(value, "nanToNum");
  if (!isFloat(x.dtype)) return x;
  const { min, max } = limits(x.dtype);
  const replace = (where: Tensor, by: number, rest: Tensor) => ops.select(where, like(x, by), rest);
  const finite = replace(isposinf(x), posinf ?? max, replace(isneginf(x), neginf ?? min, x));
  return replace(isnan(x), nan, finite);
}

/** The same values in another data type: floats are truncated toward zero and saturate in integers. */
export function astype(x: TensorLike, dtype: DType): Tensor {
  return cast(asTensor(x, "astype"), dtype);
}

function refuseBool(x: Tensor, caller: string): Tensor {
  if (x.dtype === "bool") {
    throw new DTypeError(`[${caller}] works on numbers, not on bool: convert with astype("int32")`);
  }
  return x;
}
