/** Functions of each element that are made of several ops. They take floats and compute in their type. */
import { need } from "../ir/arguments.js";
import { isComplex, isFloat } from "../ir/dtype.js";
import { DTypeError, ValueError } from "../ir/errors.js";
import { formatType } from "../ir/shape.js";
import { Complex } from "../trace/complexNumber.js";
import * as ops from "../trace/ops.js";
import { needTensor } from "../trace/promote.js";
import { Tensor } from "../trace/tensor.js";
import { libraryVjp } from "../transforms/derivatives/customVjp.js";

/** Throws unless x is a tensor of floats or complex numbers. */
function needInexact(x: Tensor, caller: string): void {
  needTensor(x, "x", caller);
  if (isFloat(x.dtype) || isComplex(x.dtype)) return;
  throw new DTypeError(`[${caller}] takes floats or complex numbers, got ${formatType(x.type)}: use astype`);
}

const constant = (x: Tensor, value: number) => Tensor.scalar(value, x.dtype);

/**
 * A function of each element whose derivative is given, and is not that of the ops it is made of.
 *
 * @__NO_SIDE_EFFECTS__
 */
export function withDerivative(fn: (x: Tensor) => Tensor, derivative: (x: Tensor) => Tensor) {
  return libraryVjp(fn, {
    forward: (x) => [fn(x), x],
    backward: (x, ct) => [ops.mul(ct, derivative(x))],
  });
}

/**
 * 2 to the power of x.
 *
 * @example
 * ```ts
 * lax.exp2(np.array([0, 3])); // [1, 8]
 * ```
 */
export function exp2(x: Tensor): Tensor {
  needInexact(x, "lax.exp2");
  return ops.pow(constant(x, 2), x);
}

/** i · z, or −i · z. */
function turned(z: Tensor, sign: 1 | -1): Tensor {
  return ops.mul(z, Tensor.scalar(new Complex(0, sign), z.dtype));
}

/**
 * The tangent of an angle in radians. Half-width floats are computed in float32.
 *
 * @example
 * ```ts
 * lax.tan(np.array([0, 1])); // [0, 1.557]
 * ```
 */
export function tan(x: Tensor): Tensor {
  needInexact(x, "lax.tan");
  if (x.parts) return turned(ops.tanh(turned(x, 1)), -1);
  const wide = x.dtype === "float64" ? x : ops.convert(x, "float32");
  return ops.convert(ops.div(ops.sin(wide), ops.cos(wide)), x.dtype);
}

/**
 * The angle in −π/2 … π/2 whose sine is x.
 *
 * @example
 * ```ts
 * lax.asin(np.array([0, 1])); // [0, 1.571]
 * ```
 */
export function asin(x: Tensor): Tensor {
  needInexact(x, "lax.asin");
  if (x.parts) return turned(asinh(turned(x, 1)), -1);
  return realAsin(x);
}

const realAsin = withDerivative((x) => ops.mul(ops.atan2(x, ops.add(leg(x), 1)), 2), inverseLeg);

/**
 * The angle in 0 … π whose cosine is x.
 *
 * @example
 * ```ts
 * lax.acos(np.array([1, 0])); // [0, 1.571]
 * ```
 */
export function acos(x: Tensor): Tensor {
  needInexact(x, "lax.acos");
  if (x.parts) return ops.sub(constant(x, Math.PI / 2), asin(x));
  return realAcos(x);
}

const realAcos = withDerivative(
  (x) => ops.atan2(leg(x), x),
  (x) => ops.neg(inverseLeg(x)),
);

/**
 * The angle in −π/2 … π/2 whose tangent is x.
 *
 * @example
 * ```ts
 * lax.atan(np.array([0, 1])); // [0, 0.7854]
 * ```
 */
export function atan(x: Tensor): Tensor {
  needInexact(x, "lax.atan");
  if (x.parts) return turned(atanh(turned(x, 1)), -1);
  return ops.atan2(x, constant(x, 1));
}

/** √(1 − x²). */
function leg(x: Tensor): Tensor {
  return ops.sqrt(squaredLeg(x));
}

/** 1 / √(1 − x²), infinite at ±1. */
function inverseLeg(x: Tensor): Tensor {
  return ops.rsqrt(squaredLeg(x));
}

/** 1 − x² without cancellation near ±1. */
function squaredLeg(x: Tensor): Tensor {
  return ops.mul(ops.sub(constant(x, 1), x), ops.add(x, 1));
}

/**
 * The hyperbolic sine.
 *
 * @example
 * ```ts
 * lax.sinh(np.array([0, 1])); // [0, 1.175]
 * ```
 */
export function sinh(x: Tensor): Tensor {
  const isSmall = ops.compare("lt", ops.abs(x), 1);
  // The formula for small x must not overflow where it is not used, or its gradient would be NaN.
  const e = ops.expm1(ops.select(isSmall, x, constant(x, 0)));
  const small = ops.mul(ops.add(e, ops.div(e, ops.add(e, 1))), 0.5);
  // exp(x − log 2) instead of exp(x) / 2, which overflows earlier.
  const large = ops.sub(ops.exp(ops.sub(x, Math.LN2)), ops.exp(ops.sub(ops.neg(x), Math.LN2)));
  return ops.select(isSmall, small, large);
}

/**
 * The hyperbolic cosine.
 *
 * @example
 * ```ts
 * lax.cosh(np.array([0, 1])); // [1, 1.543]
 * ```
 */
export function cosh(x: Tensor): Tensor {
  needInexact(x, "lax.cosh");
  return x.parts ? coshOf(x) : realCosh(x);
}

const coshOf = (x: Tensor) => ops.add(ops.exp(ops.sub(x, Math.LN2)), ops.exp(ops.sub(ops.neg(x), Math.LN2)));

// The slopes of both exponentials cancel near 0.
const realCosh = withDerivative(coshOf, sinh);

/**
 * The inverse of sinh.
 *
 * @example
 * ```ts
 * lax.asinh(np.array([0, 1])); // [0, 0.8814]
 * ```
 */
export function asinh(x: Tensor): Tensor {
  needInexact(x, "lax.asinh");
  if (x.parts) return complexAsinh(x);
  const size = ops.abs(x);
  const isSmall = ops.compare("lt", size, 1);
  const near = ops.select(isSmall, x, constant(x, 0));
  const root1 = ops.sqrt(ops.add(ops.mul(near, near), 1));
  // x + x² / (√(x² + 1) + 1) with x taken out, which keeps the sign of 0.
  const small = ops.log1p(ops.mul(near, ops.add(ops.div(near, ops.add(root1, 1)), 1)));
  // For x ≥ 1: log(x + √(x² + 1)) with x taken out, so that x² cannot overflow.
  const far = ops.select(isSmall, constant(x, 1), size);
  const inverse = ops.div(constant(x, 1), far);
  const root = ops.sqrt(ops.add(ops.mul(inverse, inverse), 1));
  const large = ops.add(ops.log(far), ops.log1p(root));
  return ops.select(isSmall, small, ops.mul(ops.sign(x), large));
}

/** log(z + √(z² + 1)), of −z where that would cancel. */
function complexAsinh(z: Tensor): Tensor {
  const isLeft = ops.compare("lt", z, 0);
  const right = ops.select(isLeft, ops.neg(z), z);
  // √(z² + 1) as the product of two roots, whose cuts are those of asinh.
  const up = turned(right, 1);
  const root = ops.mul(ops.sqrt(ops.sub(constant(z, 1), up)), ops.sqrt(ops.add(up, 1)));
  const isSmall = ops.compare("lt", ops.abs(right), 1);
  const near = ops.select(isSmall, right, constant(z, 0));
  const small = ops.log1p(ops.add(near, ops.div(ops.mul(near, near), ops.add(root, 1))));
  const value = ops.select(isSmall, small, ops.log(ops.add(right, root)));
  return ops.select(isLeft, ops.neg(value), value);
}

/**
 * The inverse of cosh; NaN below 1.
 *
 * @example
 * ```ts
 * lax.acosh(np.array([1, 2])); // [0, 1.317]
 * ```
 */
export function acosh(x: Tensor): Tensor {
  needInexact(x, "lax.acosh");
  if (x.parts) {
    const roots = ops.mul(ops.sqrt(ops.add(x, 1)), ops.sqrt(ops.sub(x, 1)));
    return ops.log(ops.add(x, roots));
  }
  return realAcosh(x);
}

const realAcosh = withDerivative(
  (x) => {
    // log(x + √(x² − 1)) with x taken out, so that x² cannot overflow.
    const inverse = ops.div(constant(x, 1), x);
    // 1 − 1/x, which cancels near 1 unless x is taken out of it, too.
    const isNear = ops.compare("lt", x, 2);
    const beyond = ops.select(isNear, ops.mul(ops.sub(x, 1), inverse), ops.sub(constant(x, 1), inverse));
    const root = ops.sqrt(ops.mul(beyond, ops.add(inverse, 1)));
    const value = ops.add(ops.log(x), ops.log1p(root));
    return ops.select(ops.compare("lt", x, 1), constant(x, Number.NaN), value);
  },
  (x) => ops.mul(ops.rsqrt(ops.sub(x, 1)), ops.rsqrt(ops.add(x, 1))),
);

/**
 * The inverse of tanh.
 *
 * @example
 * ```ts
 * lax.atanh(np.array([0, 0.5])); // [0, 0.5493]
 * ```
 */
export function atanh(x: Tensor): Tensor {
  return ops.mul(ops.sub(ops.log1p(x), ops.log1p(ops.neg(x))), 0.5);
}

/** Coefficients of erfc(x) · x · exp(x²) in 1/x², for 1 ≤ |x| < 2 and for larger ones; from Cephes. */
const erfcNear = [
  2.326819970068386e-2, -1.387039388740657e-1, 3.687424674597105e-1, -5.824733027278666e-1,
  6.210004621745983e-1, -4.944515323274145e-1, 3.404879937665872e-1, -2.741127028184656e-1,
  5.638259427386472e-1,
];
const erfcFar = [
  -1.047766399936249e1, 1.297719955372516e1, -7.495518717768503, 2.921019019210786, -1.0152652792027,
  4.218463358204948e-1, -2.820767439740514e-1, 5.641895067754075e-1,
];

function polynomial(x: Tensor, [first = 0, ...coefficients]: readonly number[]): Tensor {
  return coefficients.reduce((sum, c) => ops.add(ops.mul(sum, x), c), ops.full(x.shape, first, x.dtype));
}

const erfcRule = withDerivative(erfcOf, (x) =>
  ops.mul(ops.exp(ops.neg(ops.mul(x, x))), -2 / Math.sqrt(Math.PI)),
);

/**
 * 1 − erf(x), precise also where that is tiny. Half-width floats are computed in float32.
 *
 * @example
 * ```ts
 * lax.erfc(np.array([0, 1])); // [1, 0.1573]
 * ```
 */
export function erfc(x: Tensor): Tensor {
  needInexact(x, "lax.erfc");
  return ops.convert(erfcRule(x.dtype === "float64" ? x : ops.convert(x, "float32")), x.dtype);
}

/** exp(x²) · erfc(x) for x from 1. */
export function erfcTail(x: Tensor): Tensor {
  const inverse = ops.div(constant(x, 1), x);
  const squared = ops.mul(inverse, inverse);
  const isNear = ops.compare("lt", x, 2);
  const factor = ops.select(isNear, polynomial(squared, erfcNear), polynomial(squared, erfcFar));
  return ops.mul(inverse, factor);
}

function erfcOf(x: Tensor): Tensor {
  const size = ops.abs(x);
  const isSmall = ops.compare("lt", size, 1);
  const large = ops.select(isSmall, constant(x, 1), size);
  const tail = ops.mul(ops.exp(ops.neg(ops.mul(large, large))), erfcTail(large));
  const signed = ops.select(ops.compare("lt", x, 0), ops.sub(constant(x, 2), tail), tail);
  return ops.select(isSmall, ops.sub(constant(x, 1), ops.erf(x)), signed);
}

/**
 * x².
 *
 * @example
 * ```ts
 * lax.square(np.array([2, 3])); // [4, 9]
 * ```
 */
export function square(x: Tensor): Tensor {
  return ops.mul(x, x);
}

/**
 * 1 / x.
 *
 * @example
 * ```ts
 * lax.reciprocal(np.array([2, 4])); // [0.5, 0.25]
 * ```
 */
export function reciprocal(x: Tensor): Tensor {
  needTensor(x, "x", "lax.reciprocal");
  return ops.div(constant(x, 1), x);
}

/**
 * A power with an integer exponent, by multiplication.
 *
 * @example
 * ```ts
 * lax.integerPow(np.array([2, 3]), 3); // [8, 27]
 * ```
 */
export function integerPow(x: Tensor, exponent: number): Tensor {
  needTensor(x, "x", "lax.integerPow");
  need("number", exponent, "exponent", "lax.integerPow");
  if (!Number.isInteger(exponent)) {
    throw new ValueError(`[integerPow] exponent ${exponent} is not an integer: use pow`);
  }
  if (exponent < 0) return inversePower(x, -exponent);
  let result: Tensor | undefined;
  let squared = x;
  for (let n = exponent; n > 0; n = Math.floor(n / 2)) {
    if (n % 2 === 1) result = result ? ops.mul(result, squared) : squared;
    if (n > 1) squared = ops.mul(squared, squared);
  }
  return result ?? ops.full(x.shape, 1, x.dtype);
}

/** 1 / xⁿ. The square of xⁿ, by which its ops would divide the slope, overflows where the slope does not. */
function inversePower(x: Tensor, n: number): Tensor {
  const value = (y: Tensor) => ops.div(constant(y, 1), integerPow(y, n));
  if (x.parts || n === 1) return value(x);
  return withDerivative(value, (y) => ops.mul(inversePower(y, n + 1), -n))(x);
}
