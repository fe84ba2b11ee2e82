/** Modified Bessel functions of the first kind, times exp(−|x|). */

import { range } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import type { TensorLike } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { withDerivative } from "./composed.js";
import { withFloats } from "./operands.js";
import { nested } from "./series.js";

const like = (x: Tensor, value: number) => ops.full(x.shape, value, x.dtype);

/** From where on the series in 1/x is used, and how many terms both have; float64 needs more digits. */
const plan = (x: Tensor) =>
  x.dtype === "float64" ? { from: 20, terms: 64, tail: 36 } : { from: 10, terms: 36, tail: 16 };

/** exp(−|x|) · I(x) of the order 0 or 1. */
function scaledBessel(x: Tensor, order: 0 | 1): Tensor {
  const { from, terms, tail } = plan(x);
  const size = ops.abs(x);
  const isFar = ops.compare("gt", size, from);
  const near = ops.select(isFar, like(x, 1), size);
  const quarter = ops.mul(ops.mul(near, near), 0.25);
  const sum = nested(
    quarter,
    range(terms).map((k) => 1 / ((k + 1) * (k + 1 + order))),
  );
  const start = order === 0 ? ops.exp(ops.neg(near)) : ops.mul(ops.mul(near, 0.5), ops.exp(ops.neg(near)));
  const far = ops.select(isFar, size, like(x, from));
  // (4n² − 1²)(4n² − 3²) … / (k! (−8x)ᵏ)
  const asymptotic = nested(
    ops.div(like(x, 1), far),
    range(tail).map((k) => -(4 * order - (2 * k + 1) ** 2) / (8 * (k + 1))),
  );
  const value = ops.select(
    isFar,
    // The product 2πx would overflow before its root does.
    ops.mul(ops.mul(asymptotic, 1 / Math.sqrt(2 * Math.PI)), ops.rsqrt(far)),
    ops.mul(start, sum),
  );
  return order === 0 ? value : ops.mul(value, ops.sign(x));
}

/** The slope of the scaled I₁ at 0 is ½, where the formula divides by 0. */
function slopeOfFirst(x: Tensor): Tensor {
  const isZero = ops.compare("eq", x, 0);
  const safe = ops.select(isZero, like(x, 1), x);
  const factor = ops.add(ops.sign(safe), ops.div(like(x, 1), safe));
  const slope = ops.sub(scaledBessel(safe, 0), ops.mul(scaledBessel(safe, 1), factor));
  return ops.select(isZero, like(x, 0.5), slope);
}

const zerothRule = withDerivative(
  (x) => scaledBessel(x, 0),
  (x) => ops.sub(scaledBessel(x, 1), ops.mul(ops.sign(x), scaledBessel(x, 0))),
);

const firstRule = withDerivative((x) => scaledBessel(x, 1), slopeOfFirst);

/**
 * exp(−|x|) · I₀(x).
 *
 * @example
 * ```ts
 * lax.besselI0e(np.array([0, 1])); // [1, 0.4658]
 * ```
 */
export function besselI0e(x: TensorLike): Tensor {
  return withFloats([x] as const, "besselI0e", ([y]) => zerothRule(y));
}

/**
 * exp(−|x|) · I₁(x).
 *
 * @example
 * ```ts
 * lax.besselI1e(np.array([0, 1])); // [0, 0.2079]
 * ```
 */
export function besselI1e(x: TensorLike): Tensor {
  return withFloats([x] as const, "besselI1e", ([y]) => firstRule(y));
}
