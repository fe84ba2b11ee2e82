/** Functions of each element that are made of several ops. They take floats and compute in their type. */
import { ValueError } from "../ir/errors.js";
import * as ops from "../trace/ops.js";
import { Tensor } from "../trace/tensor.js";

const constant = (x: Tensor, value: number) => Tensor.scalar(value, x.dtype);

/** 2 to the power of x. */
export function exp2(x: Tensor): Tensor {
  return ops.pow(constant(x, 2), x);
}

/** The tangent of an angle in radians. */
export function tan(x: Tensor): Tensor {
  return ops.div(ops.sin(x), ops.cos(x));
}

/** The angle in −π/2 … π/2 whose sine is x. */
export function asin(x: Tensor): Tensor {
  return ops.mul(ops.atan2(x, ops.add(leg(x), 1)), 2);
}

/** The angle in 0 … π whose cosine is x. */
export function acos(x: Tensor): Tensor {
  return ops.atan2(leg(x), x);
}

/** The angle in −π/2 … π/2 whose tangent is x. */
export function atan(x: Tensor): Tensor {
  return ops.atan2(x, constant(x, 1));
}

/** √(1 − x²) without cancellation near ±1. */
function leg(x: Tensor): Tensor {
  return ops.sqrt(ops.mul(ops.sub(constant(x, 1), x), ops.add(x, 1)));
}

/** The hyperbolic sine. */
export function sinh(x: Tensor): Tensor {
  const isSmall = ops.compare("lt", ops.abs(x), 1);
  // The formula for small x must not overflow where it is not used, or its gradient would be NaN.
  const e = ops.expm1(ops.select(isSmall, x, constant(x, 0)));
  const small = ops.mul(ops.add(e, ops.div(e, ops.add(e, 1))), 0.5);
  // exp(x − log 2) instead of exp(x) / 2, which overflows earlier.
  const large = ops.sub(ops.exp(ops.sub(x, Math.LN2)), ops.exp(ops.sub(ops.neg(x), Math.LN2)));
  return ops.select(isSmall, small, large);
}

/** The hyperbolic cosine. */
export function cosh(x: Tensor): Tensor {
  return ops.add(ops.exp(ops.sub(x, Math.LN2)), ops.exp(ops.sub(ops.neg(x), Math.LN2)));
}

/** The inverse of sinh. */
export function asinh(x: Tensor): Tensor {
  const size = ops.abs(x);
  const isSmall = ops.compare("lt", size, 1);
  const near = ops.select(isSmall, x, constant(x, 0));
  const squared = ops.mul(near, near);
  const small = ops.log1p(ops.add(near, ops.div(squared, ops.add(ops.sqrt(ops.add(squared, 1)), 1))));
  // For x ≥ 1: log(x + √(x² + 1)) with x taken out, so that x² cannot overflow.
  const far = ops.select(isSmall, constant(x, 1), size);
  const inverse = ops.div(constant(x, 1), far);
  const root = ops.sqrt(ops.add(ops.mul(inverse, inverse), 1));
  const large = ops.add(ops.log(far), ops.log1p(root));
  return ops.select(isSmall, small, ops.mul(ops.sign(x), large));
}

/** The inverse of cosh; NaN below 1. */
export function acosh(x: Tensor): Tensor {
  // log(x + √(x² − 1)) with x taken out, so that x² cannot overflow.
  const inverse = ops.div(constant(x, 1), x);
  const root = ops.sqrt(ops.mul(ops.sub(constant(x, 1), inverse), ops.add(inverse, 1)));
  const value = ops.add(ops.log(x), ops.log1p(root));
  return ops.select(ops.compare("lt", x, 1), constant(x, Number.NaN), value);
}

/** The inverse of tanh. */
export function atanh(x: Tensor): Tensor {
  return ops.mul(ops.sub(ops.log1p(x), ops.log1p(ops.neg(x))), 0.5);
}

/** 1 − erf(x). */
export function erfc(x: Tensor): Tensor {
  return ops.sub(constant(x, 1), ops.erf(x));
}

/** x². */
export function square(x: Tensor): Tensor {
  return ops.mul(x, x);
}

/** 1 / x. */
export function reciprocal(x: Tensor): Tensor {
  return ops.div(constant(x, 1), x);
}

/** A power with a whole exponent, by multiplication. */
export function integerPow(x: Tensor, exponent: number): Tensor {
  if (!Number.isInteger(exponent)) {
    throw new ValueError(`[integerPow] exponent ${exponent} is not a whole number: use pow`);
  }
  if (exponent < 0) return ops.div(constant(x, 1), integerPow(x, -exponent));
  let result: Tensor | undefined;
  let squared = x;
  for (let n = exponent; n > 0; n = Math.floor(n / 2)) {
    if (n % 2 === 1) result = result ? ops.mul(result, squared) : squared;
    if (n > 1) squared = ops.mul(squared, squared);
  }
  return result ?? ops.full(x.shape, 1, x.dtype);
}
