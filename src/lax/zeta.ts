/** The zeta function of Hurwitz, and the derivatives of the digamma function, which it gives. */

import { range } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import type { TensorLike } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { libraryVjp } from "../transforms/derivatives/customVjp.js";
import { jvp } from "../transforms/derivatives/jvp.js";
import { withDerivative } from "./composed.js";
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

/** Where the function is finite, where it is not defined, and operands that are harmless everywhere else. */
function domainOf(s: Tensor, q: Tensor) {
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
  const isOrdinary = ops.not(ops.or(isUndefined, ops.or(isFirst, isPole)));
  const safe = [ops.select(isOrdinary, s, like(s, 2)), ops.select(isOrdinary, q, like(q, 1))] as const;
  return { isOrdinary, isUndefined, safe };
}

function zetaOf(s: Tensor, q: Tensor): Tensor {
  const { isOrdinary, isUndefined, safe } = domainOf(s, q);
  const ends = ops.select(isUndefined, like(s, Number.NaN), like(s, Number.POSITIVE_INFINITY));
  return ops.select(isOrdinary, hurwitz(...safe), ends);
}

/** The derivative by s: that of the sum, term by term. */
function zetaSlope(s: Tensor, q: Tensor): Tensor {
  const { isOrdinary, safe } = domainOf(s, q);
  const [order, start] = safe;
  const [, slope] = jvp((u: Tensor) => hurwitz(u, start), [order], [like(s, 1)]);
  return ops.select(isOrdinary, slope, like(s, Number.NaN));
}

/**
 * Σ (q + k)⁻ˢ from k = 0, the zeta function of Hurwitz; Riemann's where q is 1.
 *
 * @example
 * ```ts
 * lax.zeta(2, 1); // 1.645
 * ```
 */
export function zeta(s: TensorLike, q: TensorLike): Tensor {
  return withFloats([s, q] as const, "zeta", ([u, v]) => zetaRule(u, v));
}

const zetaRule: (s: Tensor, q: Tensor) => Tensor = libraryVjp(zetaOf, {
  forward: (s, q) => [zetaOf(s, q), [s, q] as const],
  backward: ([s, q], ct) => [
    ops.mul(ct, zetaSlope(s, q)),
    ops.neg(ops.mul(ct, ops.mul(s, zetaRule(ops.add(s, 1), q)))),
  ],
});

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
