/** The incomplete gamma and beta functions: series and continued fractions, each until it changes no digit. */

import { at } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import type { TensorLike } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { libraryVjp } from "../transforms/derivatives/customVjp.js";
import { withDerivative } from "./composed.js";
import { withFloats } from "./operands.js";
import { counts, repeat } from "./series.js";
import { digamma, lgamma } from "./special.js";

const like = (x: Tensor, value: number) => ops.full(x.shape, value, x.dtype);

/** A value, and its derivative with respect to the first parameter if requested. */
type Pair = readonly [value: Tensor, slope: Tensor];

/** Σ xⁿ / ((a + 1) … (a + n)) from n = 0. */
function gammaSeries(a: Tensor, x: Tensor, active: Tensor, sloped: boolean): Pair {
  const [zero, one] = [like(a, 0), like(a, 1)];
  const values = repeat(active, sloped ? [one, one, zero, zero] : [one, one], (n, old) => {
    const divisor = ops.add(a, n);
    const term = ops.div(ops.mul(at(old, 1), x), divisor);
    const sum = ops.add(at(old, 0), term);
    if (!sloped) return [[sum, term], counts(term, sum)];
    const change = ops.div(ops.sub(ops.mul(at(old, 3), x), term), divisor);
    const slope = ops.add(at(old, 2), change);
    return [[sum, term, slope, change], ops.or(counts(term, sum), counts(change, slope))];
  });
  return [at(values, 0), values[2] ?? zero];
}

/**
 * The continued fraction 1 / (b₀ + c₁ / (b₁ + c₂ / …)) with bₙ = x + 2n + 1 − a and cₙ = n (a − n), as the sum of what each
 * convergent adds to the one before (Steed's method), so that neither value nor slope is a difference of large numbers.
 */
function gammaFraction(a: Tensor, x: Tensor, active: Tensor, sloped: boolean): Pair {
  const first = ops.sub(ops.add(x, 1), a);
  const inverse = ops.div(like(a, 1), first);
  const square = ops.mul(inverse, inverse);
  // The sum, its last term, the last ratio of denominators, and then the derivatives of all these.
  const start = [inverse, inverse, inverse];
  const slopes = [square, square, square];
  const values = repeat(active, sloped ? [...start, ...slopes] : start, (n, old) => {
    const [last, lastTerm, before] = [at(old, 0), at(old, 1), at(old, 2)];
    const c = ops.mul(n, ops.sub(a, n));
    const part = ops.mul(c, before);
    const ratio = ops.div(like(a, 1), ops.add(ops.add(first, ops.mul(n, 2)), part));
    const factor = ops.neg(ops.mul(part, ratio));
    const term = ops.mul(lastTerm, factor);
    const sum = ops.add(last, term);
    if (!sloped) return [[sum, term, ratio], counts(term, sum)];
    const [lastSlope, lastChange, beforeSlope] = [at(old, 3), at(old, 4), at(old, 5)];
    // With a, b falls by 1 and c grows by n.
    const partSlope = ops.add(ops.mul(n, before), ops.mul(c, beforeSlope));
    const ratioSlope = ops.mul(ops.mul(ratio, ratio), ops.sub(like(a, 1), partSlope));
    const factorSlope = ops.neg(ops.add(ops.mul(partSlope, ratio), ops.mul(part, ratioSlope)));
    const change = ops.add(ops.mul(lastChange, factor), ops.mul(lastTerm, factorSlope));
    const slope = ops.add(lastSlope, change);
    const isGoing = ops.or(counts(term, sum), counts(change, slope));
    return [[sum, term, ratio, slope, change, ratioSlope], isGoing];
  });
  return [at(values, 0), values[3] ?? like(a, 0)];
}

/** The part of both incomplete gamma functions that is precise: the lower one up to a, the upper one beyond. */
interface Parts {
  readonly isInside: Tensor;
  readonly isLow: Tensor;
  readonly value: Tensor;
  /** The derivative of the lower function by a. */
  readonly slope: Tensor;
  /** How x changes with a where the lower function keeps its value: minus the slope by a over that by x. */
  readonly shift: Tensor;
}

function gammaParts(a: Tensor, x: Tensor, sloped: boolean): Parts {
  const one = like(a, 1);
  const isInside = ops.and(
    ops.and(ops.compare("gt", a, 0), ops.compare("gt", x, 0)),
    ops.and(ops.finite(a), ops.finite(x)),
  );
  const [safeA, safeX] = [ops.select(isInside, a, one), ops.select(isInside, x, one)];
  const isLow = ops.or(ops.compare("le", safeX, 1), ops.compare("le", safeX, safeA));
  const series = gammaSeries(safeA, safeX, ops.and(isInside, isLow), sloped);
  const fraction = gammaFraction(safeA, safeX, ops.and(isInside, ops.not(isLow)), sloped);
  // xᵃ e⁻ˣ over Γ(a + 1) before the series, over Γ(a) before the fraction.
  const order = ops.select(isLow, ops.add(safeA, 1), safeA);
  const log = ops.log(safeX);
  const factor = ops.exp(ops.sub(ops.sub(ops.mul(safeA, log), safeX), lgamma(order)));
  const pick = (i: 0 | 1) => ops.select(isLow, series[i], fraction[i]);
  const value = ops.mul(factor, pick(0));
  if (!sloped) return { isInside, isLow, value, slope: value, shift: value };
  const inner = ops.add(ops.mul(pick(0), ops.sub(log, digamma(order))), pick(1));
  const signed = ops.select(isLow, inner, ops.neg(inner));
  const divisor = ops.select(isLow, ops.neg(safeA), like(a, -1));
  // The factor, which vanishes far from a, is common to both slopes.
  const shift = ops.div(ops.mul(signed, safeX), divisor);
  return { isInside, isLow, value, slope: ops.mul(factor, signed), shift };
}

/**
 * The value inside of the range, what it is for x = 0 and for x = ∞, where a = 0 lies too, and NaN where it is not
 * defined.
 */
function withEnds(
  a: Tensor,
  x: Tensor,
  isInside: Tensor,
  value: Tensor,
  ends: readonly [number, number],
): Tensor {
  const isStart = ops.compare("eq", x, 0);
  const isPositive = ops.and(ops.compare("gt", a, 0), isStart);
  const isEnd = ops.or(
    ops.compare("eq", x, Number.POSITIVE_INFINITY),
    ops.and(ops.compare("eq", a, 0), ops.compare("gt", x, 0)),
  );
  const isDefined = ops.or(ops.and(isPositive, ops.finite(a)), ops.and(ops.compare("ge", a, 0), isEnd));
  const end = ops.select(isStart, like(a, ends[0]), like(a, ends[1]));
  return ops.select(isInside, value, ops.select(isDefined, end, like(a, Number.NaN)));
}

function lowerGamma(a: Tensor, x: Tensor): Tensor {
  const { isInside, isLow, value } = gammaParts(a, x, false);
  return withEnds(a, x, isInside, ops.select(isLow, value, ops.sub(like(a, 1), value)), [0, 1]);
}

function upperGamma(a: Tensor, x: Tensor): Tensor {
  const { isInside, isLow, value } = gammaParts(a, x, false);
  return withEnds(a, x, isInside, ops.select(isLow, ops.sub(like(a, 1), value), value), [1, 0]);
}

/** The derivative of the lower function by a. */
function gammaSlope(a: Tensor, x: Tensor): Tensor {
  const { isInside, slope } = gammaParts(a, x, true);
  const value = withEnds(a, x, isInside, slope, [0, 0]);
  return ops.select(ops.compare("eq", a, 0), like(a, Number.NaN), value);
}

/**
 * The derivative of {@link igamma} by its first argument.
 *
 * @example
 * ```ts
 * lax.igammaGradA(np.array([1]), np.array([2])); // [-0.2208]
 * ```
 */
export function igammaGradA(a: TensorLike, x: TensorLike): Tensor {
  return withFloats([a, x] as const, "igammaGradA", ([u, v]) => withoutDerivative(() => gammaSlope(u, v)));
}

/**
 * How a sample of the gamma distribution changes with its parameter a: the derivative that keeps the share of the
 * distribution below the sample.
 *
 * @example
 * ```ts
 * lax.randomGammaGrad(np.array([1]), np.array([2])); // [1.632]
 * ```
 */
export function randomGammaGrad(a: TensorLike, sample: TensorLike): Tensor {
  return withFloats([a, sample] as const, "randomGammaGrad", ([u, x]) => {
    const { isInside, shift } = gammaParts(u, x, true);
    const isStart = ops.and(ops.compare("gt", u, 0), ops.compare("eq", x, 0));
    return ops.select(isInside, shift, ops.select(isStart, like(u, 0), like(u, Number.NaN)));
  });
}

/** Values that a rule closes over have no derivative; differentiating them throws. */
function withoutDerivative(compute: () => Tensor): Tensor {
  return libraryVjp(compute, { forward: () => [compute(), null], backward: () => [] })();
}

/** xᵃ⁻¹ e⁻ˣ / Γ(a), the derivative of the lower incomplete gamma function. */
function gammaDensity(a: Tensor, x: Tensor): Tensor {
  return ops.exp(ops.sub(ops.sub(ops.mul(ops.sub(a, 1), ops.log(x)), x), lgamma(a)));
}

const lowerRule = libraryVjp(lowerGamma, {
  forward: (a, x) => [lowerGamma(a, x), [a, x] as const],
  backward: ([a, x], ct) => [ops.mul(ct, gammaSlope(a, x)), ops.mul(ct, gammaDensity(a, x))],
});

const upperRule = libraryVjp(upperGamma, {
  forward: (a, x) => [upperGamma(a, x), [a, x] as const],
  backward: ([a, x], ct) => [
    ops.neg(ops.mul(ct, gammaSlope(a, x))),
    ops.neg(ops.mul(ct, gammaDensity(a, x))),
  ],
});

/**
 * The regularised lower incomplete gamma function: the share of Γ(a) that the integral up to x has.
 *
 * @example
 * ```ts
 * lax.igamma(2, 1); // 0.2642
 * ```
 */
export function igamma(a: TensorLike, x: TensorLike): Tensor {
  return withFloats([a, x] as const, "igamma", ([u, v]) => lowerRule(u, v));
}

/**
 * 1 − {@link igamma}, precise also where that is tiny.
 *
 * @example
 * ```ts
 * lax.igammac(2, 1); // 0.7358
 * ```
 */
export function igammac(a: TensorLike, x: TensorLike): Tensor {
  return withFloats([a, x] as const, "igammac", ([u, v]) => upperRule(u, v));
}

/** The continued fraction of the incomplete beta function, by the method of Lentz. */
function betaFraction(a: Tensor, b: Tensor, x: Tensor, active: Tensor): Tensor {
  const [one, tiny] = [like(a, 1), like(a, 2 ** -90)];
  const sum = ops.add(a, b);
  const notZero = (y: Tensor) => ops.select(ops.compare("lt", ops.abs(y), tiny), tiny, y);
  const invert = (y: Tensor) => ops.div(one, notZero(y));
  const d = invert(ops.sub(one, ops.div(ops.mul(sum, x), ops.add(a, 1))));
  const values = repeat(active, [d, one, d], (n, old) => {
    const [value, c, d] = [at(old, 0), at(old, 1), at(old, 2)];
    const twice = ops.add(a, ops.mul(n, 2));
    const even = ops.div(ops.mul(ops.mul(n, ops.sub(b, n)), x), ops.mul(ops.sub(twice, 1), twice));
    const odd = ops.neg(
      ops.div(ops.mul(ops.mul(ops.add(a, n), ops.add(sum, n)), x), ops.mul(twice, ops.add(twice, 1))),
    );
    const [d1, c1] = [invert(ops.add(ops.mul(even, d), 1)), notZero(ops.add(ops.div(even, c), 1))];
    const [d2, c2] = [invert(ops.add(ops.mul(odd, d1), 1)), notZero(ops.add(ops.div(odd, c1), 1))];
    const change = ops.mul(d2, c2);
    const next = ops.mul(ops.mul(value, ops.mul(d1, c1)), change);
    return [[next, c2, d2], counts(ops.sub(change, 1), one)];
  });
  return at(values, 0);
}

/** xᵃ (1 − x)ᵇ / B(a, b). */
function betaPower(a: Tensor, b: Tensor, x: Tensor): Tensor {
  const logBeta = ops.sub(ops.add(lgamma(a), lgamma(b)), lgamma(ops.add(a, b)));
  const powers = ops.add(ops.mul(a, ops.log(x)), ops.mul(b, ops.log1p(ops.neg(x))));
  return ops.exp(ops.sub(powers, logBeta));
}

function incompleteBeta(a: Tensor, b: Tensor, x: Tensor): Tensor {
  const one = like(x, 1);
  const arePositive = ops.and(ops.compare("gt", a, 0), ops.compare("gt", b, 0));
  const isInside = ops.and(
    ops.and(arePositive, ops.and(ops.finite(a), ops.finite(b))),
    ops.and(ops.compare("gt", x, 0), ops.compare("lt", x, 1)),
  );
  const [u, v] = [ops.select(isInside, a, one), ops.select(isInside, b, one)];
  const y = ops.select(isInside, x, like(x, 0.5));
  // Beyond the middle the fraction of the other end converges faster.
  const isMirrored = ops.compare("gt", y, ops.div(ops.add(u, 1), ops.add(ops.add(u, v), 2)));
  const [p, q] = [ops.select(isMirrored, v, u), ops.select(isMirrored, u, v)];
  const z = ops.select(isMirrored, ops.sub(one, y), y);
  const part = ops.mul(ops.div(betaPower(p, q, z), p), betaFraction(p, q, z, isInside));
  const value = ops.select(isMirrored, ops.sub(one, part), part);
  return ops.select(isInside, value, betaEnds(a, b, x));
}

/** The incomplete beta function at the ends: a = 0 and b = ∞ have all of the share at 0, b = 0 and a = ∞ at 1. */
function betaEnds(a: Tensor, b: Tensor, x: Tensor): Tensor {
  const is = (y: Tensor, value: number) => ops.compare("eq", y, value);
  const isAtZero = ops.or(is(a, 0), is(b, Number.POSITIVE_INFINITY));
  const isAtOne = ops.or(is(b, 0), is(a, Number.POSITIVE_INFINITY));
  const isEnd = ops.or(is(x, 0), is(x, 1));
  const isDefined = ops.and(
    ops.and(ops.compare("ge", a, 0), ops.compare("ge", b, 0)),
    ops.and(
      ops.and(ops.compare("ge", x, 0), ops.compare("le", x, 1)),
      ops.and(ops.or(isEnd, ops.or(isAtZero, isAtOne)), ops.not(ops.and(isAtZero, isAtOne))),
    ),
  );
  const share = ops.select(isEnd, x, ops.select(isAtZero, like(x, 1), like(x, 0)));
  return ops.select(isDefined, share, like(x, Number.NaN));
}

/**
 * The regularised incomplete beta function: the share of B(a, b) that the integral up to x has. As in JAX it has a
 * derivative by x alone.
 *
 * @example
 * ```ts
 * lax.betainc(2, 3, 0.5); // 0.6875
 * ```
 */
export function betainc(a: TensorLike, b: TensorLike, x: TensorLike): Tensor {
  return withFloats([a, b, x] as const, "betainc", ([u, v, y]) => {
    // Values that a rule closes over have no derivative; differentiating them throws.
    const rule = withDerivative(
      (z) => incompleteBeta(u, v, z),
      (z) => ops.div(betaPower(u, v, z), ops.mul(z, ops.sub(like(z, 1), z))),
    );
    return rule(y);
  });
}
