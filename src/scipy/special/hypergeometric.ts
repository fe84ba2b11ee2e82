/** Hypergeometric functions of real numbers. */

import { limits } from "../../ir/dtype.js";
import { at, range } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import { counts, repeat } from "../../lax/series.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { libraryVjp } from "../../transforms/derivatives/customVjp.js";
import { is, like, pick, withFloats } from "../operands.js";
import { signOfGamma } from "./gamma.js";

const infinity = Number.POSITIVE_INFINITY;

const isWhole = (x: Tensor) => ops.compare("eq", x, ops.floor(x));
/** Whether a parameter is 0, −1, −2 …. */
const endsSeries = (x: Tensor) => ops.and(is(x, "le", 0), isWhole(x));
const product = (xs: readonly Tensor[], x: Tensor) => xs.reduce(ops.mul, like(x, 1));

/** A sum, and its derivatives by the parameters above and below. */
interface Sum {
  readonly value: Tensor;
  readonly slopes: readonly Tensor[];
}

/** The parameters of a series, and where it is summed. */
interface Series {
  readonly tops: readonly Tensor[];
  readonly bottom: Tensor;
  readonly x: Tensor;
  readonly active: Tensor;
}

/** Σ xᵏ/k! · Π (top)ₖ / (bottom)ₖ, where (a)ₖ = a (a + 1) … (a + k − 1). */
function sumOf({ tops, bottom, x, active }: Series, isSloped: boolean): Sum {
  const [zero, one] = [like(x, 0), like(x, 1)];
  const parameters = isSloped ? [...tops, bottom] : [];
  const start = [one, one, ...parameters.flatMap(() => [zero, zero])];
  // The first terms may be small though later ones are not.
  const early = ops.abs(x);
  const values = repeat(active, start, (n, old) => {
    const k = ops.sub(n, 1);
    const raised = tops.map((top) => ops.add(top, k));
    const raisedBottom = ops.add(bottom, k);
    // Only series that have ended reach a pole.
    const below = pick(is(raisedBottom, "eq", 0), 1, raisedBottom);
    const share = ops.div(ops.div(x, below), n);
    const ratio = ops.mul(product(raised, x), share);
    const before = at(old, 1);
    const term = ops.mul(before, ratio);
    const sum = ops.add(at(old, 0), term);
    const slopes = parameters.flatMap((_, i) => {
      const rest = raised.filter((__, j) => j !== i);
      const own =
        i < tops.length ? ops.mul(ops.mul(before, product(rest, x)), share) : ops.neg(ops.div(term, below));
      const change = ops.add(ops.mul(at(old, 3 + 2 * i), ratio), own);
      return [ops.add(at(old, 2 + 2 * i), change), change];
    });
    const goesOn = parameters.map((_, i) => counts(at(slopes, 2 * i + 1), at(slopes, 2 * i)));
    const isEarly = ops.compare("lt", n, early);
    return [[sum, term, ...slopes], [counts(term, sum), isEarly, ...goesOn].reduce(ops.or)];
  });
  return { value: at(values, 0), slopes: parameters.map((_, i) => at(values, 2 + 2 * i)) };
}

/** Π Γ(top) / Π Γ(bottom), 0 where one below has a pole. */
function gammaQuotient(tops: readonly Tensor[], bottoms: readonly Tensor[]): Tensor {
  const all = [...tops, ...bottoms];
  const log = all.map((x, i) => (i < tops.length ? lax.lgamma(x) : ops.neg(lax.lgamma(x)))).reduce(ops.add);
  const sign = all
    .map((x) => {
      const one = signOfGamma(x);
      return pick(ops.compare("ne", one, one), 1, one);
    })
    .reduce(ops.mul);
  return ops.mul(sign, ops.exp(log));
}

/** Where the series of 1F1 gives way to that in 1/x: before its terms overflow. */
const farFrom = (x: Tensor) => (x.dtype === "float64" ? 200 : 80);

/** Γ(b)/Γ(a) eᵖ xᵃ⁻ᵇ Σ (b − a)ₖ (1 − a)ₖ / (k! xᵏ) for large x, until its terms grow. */
function farConfluent(a: Tensor, b: Tensor, x: Tensor, power: Tensor): Tensor {
  const one = like(x, 1);
  const [p, q, inverse] = [ops.sub(b, a), ops.sub(one, a), ops.div(one, x)];
  let [sum, term, goesOn] = [one, one, ops.compare("eq", x, x)];
  for (const k of range(24)) {
    const ratio = ops.mul(ops.mul(ops.add(p, k), ops.add(q, k)), ops.mul(inverse, 1 / (k + 1)));
    goesOn = ops.and(goesOn, is(ops.abs(ratio), "lt", 1));
    term = pick(goesOn, ops.mul(term, ratio), like(x, 0));
    sum = ops.add(sum, term);
  }
  const log = ops.add(power, ops.mul(ops.sub(a, b), ops.log(x)));
  const gammas = ops.sub(lax.lgamma(b), lax.lgamma(a));
  const sign = ops.mul(signOfGamma(a), signOfGamma(b));
  return ops.mul(ops.mul(sign, sum), ops.exp(ops.add(log, gammas)));
}

/** 1F1 of x ≥ 0 is a sum of its series; that of −x is exp(−x) times one with b − a in place of a. */
function confluent(a: Tensor, b: Tensor, x: Tensor, isSloped: boolean): Sum {
  const isBelow = is(x, "lt", 0);
  const [top, size] = [pick(isBelow, ops.sub(b, a), a), ops.abs(x)];
  const isFar = ops.and(is(size, "gt", farFrom(x)), ops.not(endsSeries(top)));
  const isSummed = isSloped ? ops.compare("eq", x, x) : ops.not(isFar);
  const near = pick(isSummed, size, like(x, 1));
  const { value, slopes } = sumOf({ tops: [top], bottom: b, x: near, active: isSummed }, isSloped);
  const scale = pick(isBelow, ops.exp(x), like(x, 1));
  const plain = ops.mul(value, scale);
  if (isSloped) {
    const [byTop, byBottom] = slopes.map((slope) => ops.mul(slope, scale));
    if (!byTop || !byBottom) return { value: plain, slopes: [] };
    return {
      value: plain,
      slopes: [pick(isBelow, ops.neg(byTop), byTop), pick(isBelow, ops.add(byTop, byBottom), byBottom)],
    };
  }
  const far = pick(isFar, size, like(x, farFrom(x)));
  // The exponentials of −x and of the series cancel.
  const shifted = farConfluent(top, b, far, pick(isBelow, 0, far));
  return { value: ops.select(isFar, shifted, plain), slopes: [] };
}

function confluentValue(a: Tensor, b: Tensor, x: Tensor): Tensor {
  const endsBefore = ops.and(endsSeries(a), ops.compare("gt", a, b));
  const isPole = ops.and(endsSeries(b), ops.not(endsBefore));
  const isPlain = ops.or(is(a, "eq", 0), ops.compare("eq", a, b));
  const safe = ops.and(ops.not(isPole), ops.not(isPlain));
  const value = confluent(a, pick(safe, b, like(b, 2)), x, false).value;
  const ends = pick(isPole, infinity, value);
  return pick(is(a, "eq", 0), 1, pick(ops.compare("eq", a, b), ops.exp(x), ends));
}

const hyp1f1Rule = /* @__PURE__ */ libraryVjp(confluentValue, {
  forward: (a, b, x) => [confluentValue(a, b, x), [a, b, x] as const],
  backward: ([a, b, x], ct) => {
    const { slopes } = confluent(a, b, x, true);
    const byX = ops.mul(ops.div(a, b), confluentValue(ops.add(a, 1), ops.add(b, 1), x));
    return [ops.mul(ct, at(slopes, 0)), ops.mul(ct, at(slopes, 1)), ops.mul(ct, byX)];
  },
});

/**
 * The confluent hypergeometric function ₁F₁(a; b; x), Σ (a)ₖ xᵏ / ((b)ₖ k!).
 *
 * @example
 * ```ts
 * scipy.special.hyp1f1(1, 2, np.array([-1, 0, 1])); // [0.6321, 1, 1.718]
 * ```
 */
export function hyp1f1(a: TensorLike, b: TensorLike, x: TensorLike): Tensor {
  return withFloats([a, b, x] as const, "scipy.special.hyp1f1", hyp1f1Rule);
}

/** The parameters and the argument of ₂F₁. */
type Gauss = readonly [a: Tensor, b: Tensor, c: Tensor, x: Tensor];

/** Where the series in 1 − x converges more quickly than that in x. */
const nearOne = 0.9;

/** ₂F₁ near 1 for c − a − b that is not an integer: two series in 1 − x. */
function aroundOne([a, b, c, x]: Gauss, active: Tensor): Tensor {
  const d = ops.sub(ops.sub(c, a), b);
  const [s, ca, cb] = [ops.sub(like(x, 1), x), ops.sub(c, a), ops.sub(c, b)];
  const part = (p: Tensor, q: Tensor, r: Tensor) =>
    sumOf({ tops: [p, q], bottom: r, x: s, active }, false).value;
  const first = ops.mul(gammaQuotient([c, d], [ca, cb]), part(a, b, ops.sub(like(d, 1), d)));
  const scale = ops.mul(gammaQuotient([c, ops.neg(d)], [a, b]), ops.pow(s, d));
  return ops.add(first, ops.mul(scale, part(ca, cb, ops.add(d, 1))));
}

/** Σ of the terms before the logarithm: (a)ₖ (b)ₖ (−s)ᵏ (m − k − 1)! / (k! (m − 1)!) for k < m. */
function finitePart(a: Tensor, b: Tensor, m: Tensor, s: Tensor, active: Tensor): Tensor {
  const one = like(s, 1);
  const [sum] = repeat(ops.and(active, is(m, "gt", 1)), [one, one], (n, old) => {
    const k = ops.sub(n, 1);
    const top = ops.mul(ops.mul(ops.add(a, k), ops.add(b, k)), ops.neg(s));
    const isInside = ops.compare("lt", n, m);
    const below = pick(isInside, ops.mul(ops.sub(m, n), n), one);
    const term = pick(isInside, ops.div(ops.mul(at(old, 1), top), below), like(s, 0));
    return [[ops.add(at(old, 0), term), term], ops.compare("lt", ops.add(n, 1), m)];
  });
  return sum ?? one;
}

/** ₂F₁ near 1 for the integer m = c − a − b ≥ 0: m powers of 1 − x, then a series with a logarithm (DLMF 15.8.10). */
function withLogarithm([a, b, c, x]: Gauss, active: Tensor): Tensor {
  const m = ops.round(ops.sub(ops.sub(c, a), b));
  const [s, one] = [ops.sub(like(x, 1), x), like(x, 1)];
  const [am, bm, m1] = [ops.add(a, m), ops.add(b, m), ops.add(m, 1)];
  const log = ops.sub(
    ops.add(ops.log(s), ops.add(lax.digamma(am), lax.digamma(bm))),
    ops.add(lax.digamma(one), lax.digamma(m1)),
  );
  const [sum] = repeat(active, [log, one, log], (n, old) => {
    const k = ops.sub(n, 1);
    const [top, bottom] = [
      [ops.add(am, k), ops.add(bm, k)],
      [n, ops.add(m1, k)],
    ] as const;
    const term = ops.div(ops.mul(at(old, 1), ops.mul(s, product(top, x))), product(bottom, x));
    const inverse = (y: Tensor) => ops.div(one, y);
    const change = ops.sub(top.map(inverse).reduce(ops.add), bottom.map(inverse).reduce(ops.add));
    const logs = ops.add(at(old, 2), change);
    const next = ops.mul(term, logs);
    const total = ops.add(at(old, 0), next);
    return [[total, term, logs], counts(next, total)];
  });
  const isOdd = ops.compare("ne", ops.mul(ops.floor(ops.mul(m, 0.5)), 2), m);
  const power = ops.pow(s, m);
  const scale = ops.mul(gammaQuotient([c], [a, b, m1]), pick(isOdd, ops.neg(power), power));
  const start = pick(is(m, "gt", 0), m, one);
  const first = ops.mul(gammaQuotient([c, start], [am, bm]), finitePart(a, b, m, s, active));
  return ops.sub(pick(is(m, "gt", 0), first, like(x, 0)), ops.mul(scale, sum ?? log));
}

/** ₂F₁ for x from −½ to 1. */
function inside([a, b, c, x]: Gauss, active: Tensor): Tensor {
  const d = ops.sub(ops.sub(c, a), b);
  const ends = ops.or(endsSeries(a), endsSeries(b));
  const isNear = ops.and(active, ops.and(is(x, "gt", nearOne), ops.not(ends)));
  const away = ops.abs(ops.sub(d, ops.round(d)));
  const isLogarithmic = ops.and(isNear, is(away, "le", 50 * limits(x.dtype).epsilon));
  // Close to integers the two series would cancel; the plain one takes long near 1.
  const isSlow = ops.or(is(away, "gt", 0.05), is(x, "gt", 0.98));
  const isApart = ops.and(isNear, ops.and(isSlow, ops.not(isLogarithmic)));
  const isPlain = ops.and(active, ops.not(ops.or(isApart, isLogarithmic)));
  const given = (chosen: Tensor, fallback: number): Gauss => {
    const or = (value: Tensor, other: number) => pick(chosen, value, like(value, other));
    return [or(a, 0.5), or(b, 0.25), or(c, fallback), or(x, 0.5)];
  };
  const [p, q, r, y] = given(isPlain, 1.5);
  const plain = sumOf({ tops: [p, q], bottom: r, x: y, active: isPlain }, false).value;
  const apart = aroundOne(given(isApart, 1.5), isApart);
  // For negative c − a − b, Euler's transformation changes its sign.
  const isNegative = ops.and(isLogarithmic, is(d, "lt", 0));
  const [u, v, w, z] = given(isLogarithmic, 0.75);
  const [e, f] = [pick(isNegative, ops.sub(w, u), u), pick(isNegative, ops.sub(w, v), v)];
  const scale = pick(isNegative, ops.pow(ops.sub(like(z, 1), z), d), like(z, 1));
  const logarithmic = ops.mul(scale, withLogarithm([e, f, w, z], isLogarithmic));
  return ops.select(isApart, apart, ops.select(isLogarithmic, logarithmic, plain));
}

function gaussValue(a: Tensor, b: Tensor, c: Tensor, x: Tensor): Tensor {
  const one = like(x, 1);
  const ends = ops.or(endsSeries(a), endsSeries(b));
  const endsBefore = (p: Tensor) => ops.and(endsSeries(p), ops.compare("gt", p, c));
  const isPole = ops.and(endsSeries(c), ops.not(ops.or(endsBefore(a), endsBefore(b))));
  const isOne = ops.or(is(x, "eq", 0), ops.and(ops.or(is(a, "eq", 0), is(b, "eq", 0)), ops.not(isPole)));
  const isOutside = ops.and(is(x, "gt", 1), ops.not(ends));
  const isEnd = ops.and(is(x, "eq", 1), ops.not(ends));
  const d = ops.sub(ops.sub(c, a), b);
  const active = ops.not([isPole, isOne, isOutside, isEnd].reduce(ops.or));
  // Pfaff's transformation brings −∞ … −½ to ⅓ … 1.
  const isBelow = ops.and(active, ops.and(is(x, "lt", -0.5), ops.not(ends)));
  const s = ops.sub(one, pick(isBelow, x, like(x, 0)));
  const moved = pick(isBelow, ops.div(x, ops.sub(pick(isBelow, x, like(x, 0)), one)), x);
  const scale = pick(isBelow, ops.pow(s, ops.neg(a)), one);
  const value = ops.mul(scale, inside([a, pick(isBelow, ops.sub(c, b), b), c, moved], active));
  const atOne = pick(
    is(d, "gt", 0),
    gammaQuotient([c, pick(is(d, "gt", 0), d, one)], [ops.sub(c, a), ops.sub(c, b)]),
    like(x, infinity),
  );
  const ordinary = pick(isEnd, atOne, value);
  return pick(isOne, 1, pick(ops.or(isPole, isOutside), infinity, ordinary));
}

/** The derivatives by a, b and c: those of the terms of the series, after Pfaff's transformation of negative x. */
function gaussSlopes(a: Tensor, b: Tensor, c: Tensor, x: Tensor): Tensor[] {
  const isBelow = is(x, "lt", -0.5);
  const s = ops.sub(like(x, 1), pick(isBelow, x, like(x, 0)));
  const moved = pick(isBelow, ops.neg(ops.div(x, s)), x);
  const active = is(ops.abs(moved), "lt", 1);
  const y = pick(active, moved, like(x, 0));
  const tops = [a, pick(isBelow, ops.sub(c, b), b)];
  const { value, slopes } = sumOf({ tops, bottom: c, x: y, active }, true);
  const scale = ops.pow(s, ops.neg(a));
  const [byA, byB, byC] = [at(slopes, 0), at(slopes, 1), at(slopes, 2)];
  const below = [ops.sub(byA, ops.mul(ops.log(s), value)), ops.neg(byB), ops.add(byB, byC)];
  return [byA, byB, byC].map((slope, i) => {
    const chosen = pick(isBelow, ops.mul(scale, at(below, i)), slope);
    return pick(active, chosen, like(x, Number.NaN));
  });
}

const hyp2f1Rule = /* @__PURE__ */ libraryVjp(gaussValue, {
  forward: (a, b, c, x) => [gaussValue(a, b, c, x), [a, b, c, x] as const],
  backward: ([a, b, c, x], ct) => {
    const slopes = gaussSlopes(a, b, c, x).map((slope) => ops.mul(ct, slope));
    const next = gaussValue(ops.add(a, 1), ops.add(b, 1), ops.add(c, 1), x);
    const byX = ops.mul(ops.div(ops.mul(a, b), c), next);
    return [at(slopes, 0), at(slopes, 1), at(slopes, 2), ops.mul(ct, byX)];
  },
});

/**
 * The hypergeometric function ₂F₁(a, b; c; x), Σ (a)ₖ (b)ₖ xᵏ / ((c)ₖ k!), for x up to 1. It loses digits where
 * c − a − b is nearly an integer and x above 0.98 or below −50.
 *
 * @example
 * ```ts
 * scipy.special.hyp2f1(1, 1, 2, np.array([-1, 0, 0.5])); // [0.6931, 1, 1.386]
 * ```
 */
export function hyp2f1(a: TensorLike, b: TensorLike, c: TensorLike, x: TensorLike): Tensor {
  return withFloats([a, b, c, x] as const, "scipy.special.hyp2f1", hyp2f1Rule);
}
