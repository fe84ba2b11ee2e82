/** The zeta function of Hurwitz, and the derivatives of the digamma function, which it gives. */

import { range } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import type { TensorLike } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { withDerivative } from "./functions.js";
import { withFloats } from "./operands.js";
import { digamma, lgamma } from "./special.js";

const like = (x: Tensor, value: number) => ops.full(x.shape, value, x.dtype);

/** Number of terms to add one by one; the rest is an integral and corrections. */
const numTerms = 10;

/** The corrections of Euler and Maclaurin: Bernoulli's numbers B₂, B₄ … over factorials of the same number. */
const corrections = [
  1 / 12,
  -1 / 720,
  1 / 30240,
  -1 / 1209600,
  1 / 47900160,
  -691 / 1307674368000,
  1 / 74724249600,
  -3617 / 10670622842880000,
];

/** Σ (q + k)⁻ˢ from k = 0, for s > 1. */
function hurwitz(s: Tensor, q: Tensor): Tensor {
  const power = (base: Tensor) => ops.pow(base, ops.neg(s));
  const head = range(numTerms)
    .map((k) => power(ops.add(q, k)))
    .reduce(ops.add);
  const end = ops.add(q, numTerms);
  const last = power(end);
  let total = ops.add(head, ops.add(ops.div(ops.mul(last, end), ops.sub(s, 1)), ops.mul(last, 0.5)));
  // s (s + 1) … (s + 2j) / endˢ⁺²ʲ⁺¹
  let factor = ops.div(ops.mul(last, s), end);
  corrections.forEach((correction, j) => {
    total = ops.add(total, ops.mul(factor, correction));
    const rising = ops.mul(ops.add(s, 2 * j + 1), ops.add(s, 2 * j + 2));
    factor = ops.div(ops.mul(factor, rising), ops.mul(end, end));
  });
  return total;
}

function zetaOf(s: Tensor, q: Tensor): Tensor {
  const isWhole = (x: Tensor) => ops.compare("eq", x, ops.floor(x));
  const isEven = isWhole(ops.mul(s, 0.5));
  const isBelow = ops.compare("le", q, 0);
  const isPole = ops.and(isBelow, isWhole(q));
  const isFirst = ops.compare("eq", s, 1);
  const isUndefined = ops.and(
    ops.not(isFirst),
    ops.or(
      ops.compare("lt", s, 1),
      ops.or(ops.and(isPole, ops.not(isEven)), ops.and(isBelow, ops.not(isWhole(s)))),
    ),
  );
  const isInfinite = ops.or(isFirst, isPole);
  const isOrdinary = ops.not(ops.or(isUndefined, isInfinite));
  const value = hurwitz(ops.select(isOrdinary, s, like(s, 2)), ops.select(isOrdinary, q, like(q, 1)));
  const ends = ops.select(isUndefined, like(s, Number.NaN), like(s, Number.POSITIVE_INFINITY));
  return ops.select(isOrdinary, value, ends);
}

/**
 * Σ (q + k)⁻ˢ from k = 0, the zeta function of Hurwitz; Riemann's where q is 1. It has a derivative by q alone.
 *
 * @example
 * ```ts
 * lax.zeta(2, 1); // 1.645
 * ```
 */
export function zeta(s: TensorLike, q: TensorLike): Tensor {
  return withFloats([s, q] as const, "zeta", ([u, v]) => {
    // Values that a rule closes over have no derivative; differentiating them throws.
    const rule = (order: Tensor): ((y: Tensor) => Tensor) =>
      withDerivative(
        (y) => zetaOf(order, y),
        (y) => ops.neg(ops.mul(order, rule(ops.add(order, 1))(y))),
      );
    return rule(u)(v);
  });
}

/** (−1)ᵐ⁺¹ m! ζ(m + 1, x), and the digamma function for m = 0. */
function polygammaOf(m: Tensor, x: Tensor): Tensor {
  const isZeroth = ops.compare("eq", m, 0);
  const order = ops.select(isZeroth, like(m, 1), m);
  const isOdd = ops.compare("ne", ops.mul(ops.floor(ops.mul(order, 0.5)), 2), order);
  const size = ops.mul(ops.exp(lgamma(ops.add(order, 1))), zetaOf(ops.add(order, 1), x));
  const value = ops.select(isOdd, size, ops.neg(size));
  const isDefined = ops.and(ops.compare("ge", m, 0), ops.compare("eq", m, ops.floor(m)));
  return ops.select(isDefined, ops.select(isZeroth, digamma(x), value), like(x, Number.NaN));
}

/**
 * The m-th derivative of the digamma function, for whole m. It has a derivative by x alone.
 *
 * @example
 * ```ts
 * lax.polygamma(1, 2); // 0.6449
 * ```
 */
export function polygamma(m: TensorLike, x: TensorLike): Tensor {
  return withFloats([m, x] as const, "polygamma", ([u, v]) => {
    const rule = withDerivative(
      (y) => polygammaOf(u, y),
      (y) => polygammaOf(ops.add(u, 1), y),
    );
    return rule(v);
  });
}
