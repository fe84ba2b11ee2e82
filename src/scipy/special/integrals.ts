/** Integrals without a closed form, by series where they converge quickly and continued fractions elsewhere. */

import { integerFrom, need } from "../../ir/arguments.js";
import { range } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import { nested } from "../../lax/series.js";
import { eulerGamma } from "../../numpy/arrays/constants.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { libraryVjp } from "../../transforms/derivatives/customVjp.js";
import { is, like, pick, resultsOfFloats, withFloats } from "../operands.js";
import { type Binary, binary, type Unary, unary, withSlopes } from "../rules.js";
import { faddeeva } from "./faddeeva.js";
import { gammaOf } from "./gamma.js";

const nan = Number.NaN;
const infinity = Number.POSITIVE_INFINITY;

/** One of two numbers, the second for 64-bit floats, which need more terms. */
const byWidth = <T>({ dtype }: Tensor, narrow: T, wide: T): T =>
  dtype === "float64" || dtype === "complex128" ? wide : narrow;

const factorial = (n: number): number => range(n).reduce((product, k) => product * (k + 1), 1);

/** Σ k⁻ᵐ: the first terms, and the integral of the others. */
function zetaOf(m: number): number {
  const numTerms = 400;
  return range(numTerms).reduce((sum, k) => sum + (k + 1) ** -m, (numTerms + 0.5) ** (1 - m) / (m - 1));
}

/** Numbers of Bernoulli B₀ … Bₙ, by the zeta function of even numbers; B₁ is −½. */
function bernoulliNumbers(n: number): number[] {
  let even = 2;
  return range(n + 1).map((m) => {
    if (m === 0) return 1;
    if (m % 2 === 1) return m === 1 ? -0.5 : 0;
    // −2 (−1)ᵐᐟ² m! / (2π)ᵐ, factor by factor, so that neither part overflows.
    even *= (-m * (m - 1)) / (4 * Math.PI * Math.PI);
    return -even * zetaOf(m);
  });
}

/**
 * The numbers of Bernoulli B₀ … Bₙ, of which B₁ is −½.
 *
 * @example
 * ```ts
 * scipy.special.bernoulli(4); // [1, -0.5, 0.1667, 0, -0.03333]
 * ```
 */
export function bernoulli(n: number): Tensor {
  need(integerFrom(0), n, "n", "scipy.special.bernoulli");
  return Tensor.fromHost({ dtype: "float32", shape: [n + 1] }, Float32Array.from(bernoulliNumbers(n)));
}

/** exp(x) · Eₙ(x) = 1 / (x + n − 1·n / (x + n + 2 − 2·(n + 1) / (x + n + 4 − …))), for x from 1, also complex. */
function scaledFraction(n: Tensor, x: Tensor): Tensor {
  const first = ops.add(x, n);
  const rest = range(byWidth(x, 28, 96)).reduceRight(
    (inner, k) =>
      ops.div(
        ops.mul(ops.add(n, like(n, k)), like(n, k + 1)),
        ops.sub(ops.add(first, like(x, 2 * k + 2)), inner),
      ),
    like(x, 0),
  );
  return ops.div(like(x, 1), ops.sub(first, rest));
}

/** Eₙ(x) for x from 0 to 1 and n from 1: the powers of −x, of which whole n lead to a logarithm. */
function seriesOfExpn(n: Tensor, x: Tensor): Tensor {
  const down = ops.neg(x);
  const powers = range(byWidth(x, 12, 20)).reduceRight(
    (sum, m) => {
      const isOwn = is(n, "eq", m + 1);
      const divisor = pick(isOwn, 1, ops.sub(like(n, m + 1), n));
      const term = pick(isOwn, 0, ops.div(like(x, 1 / factorial(m)), divisor));
      return ops.add(ops.mul(sum, down), term);
    },
    like(x, 0),
  );
  const isWhole = ops.compare("eq", n, ops.floor(n));
  const whole = pick(isWhole, n, like(n, 1));
  const [log, less] = [ops.log(x), ops.sub(whole, 1)];
  const size = ops.exp(ops.sub(pick(is(less, "eq", 0), 0, ops.mul(less, log)), lax.lgamma(whole)));
  const isOdd = ops.compare("ne", ops.mul(ops.floor(ops.mul(less, 0.5)), 2), less);
  const withLog = ops.mul(pick(isOdd, ops.neg(size), size), ops.sub(lax.digamma(whole), log));
  const fraction = pick(isWhole, 0.5, n);
  const power = ops.mul(gammaOf(ops.sub(like(n, 1), fraction)), ops.pow(x, ops.sub(fraction, 1)));
  return ops.sub(ops.select(isWhole, withLog, power), powers);
}

function expnOf(n: Tensor, x: Tensor): Tensor {
  const isLow = is(x, "le", 1);
  const isInside = ops.and(is(n, "gt", 0), is(x, "gt", 0));
  const safe = pick(isInside, n, like(n, 1));
  const low = seriesOfExpn(safe, pick(ops.and(isInside, isLow), x, like(x, 1)));
  const far = pick(isLow, 1, x);
  const high = ops.mul(ops.exp(ops.neg(far)), scaledFraction(safe, far));
  const atZero = pick(
    is(n, "gt", 1),
    ops.div(like(n, 1), ops.sub(pick(is(n, "gt", 1), n, like(n, 2)), 1)),
    like(n, infinity),
  );
  const ordinary = ops.select(isLow, low, high);
  const withFirst = pick(is(n, "eq", 0), ops.div(ops.exp(ops.neg(x)), x), ordinary);
  const isDefined = ops.and(is(n, "ge", 0), is(x, "ge", 0));
  return ops.select(isDefined, pick(is(x, "eq", 0), atZero, withFirst), like(x, nan));
}

/** The derivative of Eₙ by x is −Eₙ₋₁; E₋₁ is elementary. */
function slopeOfExpn(n: Tensor, x: Tensor): Tensor {
  const isFirst = is(n, "eq", 0);
  const before = ops.div(ops.mul(ops.exp(ops.neg(x)), ops.add(x, 1)), ops.mul(x, x));
  return ops.neg(ops.select(isFirst, before, expnOf(pick(isFirst, 1, ops.sub(n, 1)), x)));
}

/**
 * The exponential integral Eₙ(x) = ∫ exp(−x t) / tⁿ from 1 to ∞. It has a derivative by x alone.
 *
 * @example
 * ```ts
 * scipy.special.expn(2, np.array([0, 1])); // [1, 0.1485]
 * ```
 */
export const expn: Binary = (n, x) => {
  return withFloats([n, x] as const, "scipy.special.expn", (order, y) =>
    // Values that a rule closes over have no derivative; differentiating them throws.
    withSlopes(
      (z: Tensor) => expnOf(order, z),
      (_, z) => slopeOfExpn(order, z),
    )(y),
  );
};

/**
 * The exponential integral E₁(x) = ∫ exp(−t) / t from x to ∞.
 *
 * @example
 * ```ts
 * scipy.special.exp1(np.array([1, 2])); // [0.2194, 0.0489]
 * ```
 */
export const exp1: Unary = (x) => expn(1, x);

const expiRule = /* @__PURE__ */ withSlopes(
  (x: Tensor) => {
    const { from, terms, tail } = byWidth(
      x,
      { from: 20, terms: 64, tail: 18 },
      { from: 40, terms: 150, tail: 38 },
    );
    const isBelow = is(x, "lt", 0);
    const below = ops.neg(expnOf(like(x, 1), pick(isBelow, ops.neg(x), like(x, 1))));
    const isFar = is(x, "gt", from);
    const near = pick(ops.or(isBelow, isFar), 1, x);
    // γ + log x + Σ xᵏ / (k k!)
    const factors = range(terms).map((k) => (k + 1) / (k + 2) ** 2);
    const low = ops.add(ops.add(ops.log(near), eulerGamma), ops.mul(near, nested(near, factors)));
    const far = pick(isFar, x, like(x, from));
    const factorials = range(tail).map((k) => k + 1);
    const series = ops.div(nested(ops.div(like(x, 1), far), factorials), far);
    // Half of the exponential at a time: Ei(x) is finite where exp(x) overflows.
    const half = ops.exp(ops.mul(far, 0.5));
    const high = pick(is(far, "eq", infinity), infinity, ops.mul(ops.mul(half, series), half));
    return pick(isBelow, below, ops.select(isFar, high, low));
  },
  (_, x) => ops.div(ops.exp(x), x),
);

/**
 * The exponential integral Ei(x) = ∫ exp(t) / t from −∞ to x.
 *
 * @example
 * ```ts
 * scipy.special.expi(np.array([-1, 1])); // [-0.2194, 1.895]
 * ```
 */
export const expi: Unary = /* @__PURE__ */ unary("expi", expiRule);

/** Two integrals of one variable, with the functions that are integrated. */
function pairOfIntegrals(
  compute: (x: Tensor) => readonly [Tensor, Tensor],
  slopes: (x: Tensor) => readonly [Tensor, Tensor],
): (x: Tensor) => readonly [Tensor, Tensor] {
  return libraryVjp(compute, {
    forward: (x: Tensor) => [compute(x), x],
    backward: (x, [first, second]) => {
      const [one, other] = slopes(x);
      return [ops.add(ops.mul(first, one), ops.mul(second, other))];
    },
  });
}

/** sin(x) / x. */
function sinc(x: Tensor): Tensor {
  const isZero = is(x, "eq", 0);
  return pick(isZero, 1, ops.div(ops.sin(x), pick(isZero, 1, x)));
}

/** Σ of a series in −x² whose k-th term is over (2k + first)! (2k + first). */
function alternating(x: Tensor, first: 1 | 2): Tensor {
  const factors = range(byWidth(x, 8, 14)).map((k) => {
    const m = 2 * k + first;
    return -m / ((m + 1) * (m + 2) * (m + 2));
  });
  return nested(ops.mul(x, x), factors);
}

const siciRule = /* @__PURE__ */ pairOfIntegrals(
  (x) => {
    const size = ops.abs(x);
    const isNear = is(size, "le", 2);
    const near = pick(isNear, size, like(x, 1));
    const square = ops.mul(near, near);
    const lowSine = ops.mul(near, alternating(near, 1));
    const lowCosine = ops.sub(
      ops.add(ops.log(near), eulerGamma),
      ops.mul(ops.mul(square, 0.25), alternating(near, 2)),
    );
    // E₁(i x) = −Ci(x) + i (Si(x) − π/2)
    const isEnd = is(size, "eq", infinity);
    const far = pick(ops.or(isNear, isEnd), 2, size);
    const z = lax.complex(like(far, 0), far);
    const fraction = scaledFraction(like(z, 1), z);
    const [a, b] = [lax.real(fraction), lax.imag(fraction)];
    const [cos, sin] = [ops.cos(far), ops.sin(far)];
    const highSine = ops.add(ops.sub(ops.mul(b, cos), ops.mul(a, sin)), Math.PI / 2);
    const highCosine = ops.neg(ops.add(ops.mul(a, cos), ops.mul(b, sin)));
    const sine = ops.select(isNear, lowSine, pick(isEnd, Math.PI / 2, highSine));
    const cosine = ops.select(isNear, lowCosine, pick(isEnd, 0, highCosine));
    return [
      ops.mul(ops.sign(x), sine),
      pick(ops.or(is(x, "eq", -infinity), ops.compare("ne", x, x)), nan, cosine),
    ];
  },
  (x) => [sinc(x), ops.div(ops.cos(x), x)],
);

/**
 * The sine integral Si(x) = ∫ sin(t) / t from 0 to x, and the cosine integral Ci(x) = γ + log |x| + ∫ (cos(t) − 1) / t.
 *
 * @example
 * ```ts
 * const [si, ci] = scipy.special.sici(np.array([1])); // [0.9461], [0.3374]
 * ```
 */
export function sici(x: TensorLike): [si: Tensor, ci: Tensor] {
  return resultsOfFloats([x] as const, "scipy.special.sici", siciRule) as [Tensor, Tensor];
}

/** π x² / 2 less whole turns: with an even number n near x, the remainder of x² by 4 is that of 2 n r + r². */
function quarterTurns(x: Tensor): Tensor {
  const even = ops.mul(ops.round(ops.mul(x, 0.5)), 2);
  const rest = ops.sub(x, even);
  const product = ops.mul(ops.mul(even, rest), 0.5);
  const turns = ops.add(ops.sub(product, ops.round(product)), ops.mul(ops.mul(rest, rest), 0.25));
  return ops.mul(turns, 2 * Math.PI);
}

const fresnelRule = /* @__PURE__ */ pairOfIntegrals(
  (x) => {
    const size = ops.abs(x);
    const isNear = is(size, "le", 1.5);
    const near = pick(isNear, size, like(x, 1));
    const square = ops.mul(ops.mul(near, near), Math.PI / 2);
    const terms = byWidth(x, 9, 16);
    // Σ (−1)ᵏ (π x² / 2)²ᵏ⁺ᵖ / ((2k + p)! (4k + 2p + 1)), p = 1 for the sine
    const series = (p: 0 | 1) =>
      range(terms).reduceRight(
        (sum, k) =>
          ops.add(
            ops.mul(sum, ops.mul(square, square)),
            (k % 2 === 0 ? 1 : -1) / (factorial(2 * k + p) * (4 * k + 2 * p + 1)),
          ),
        like(x, 0),
      );
    const lowSine = ops.mul(ops.mul(near, square), series(1));
    const lowCosine = ops.mul(near, series(0));
    // C + i S = (1 + i) / 2 · (1 − exp(i π x² / 2) w(√π / 2 · (1 + i) x))
    const isEnd = is(size, "eq", infinity);
    const far = pick(ops.or(isNear, isEnd), 2, size);
    const side = ops.mul(far, Math.sqrt(Math.PI) / 2);
    const w = faddeeva(lax.complex(side, side));
    const [a, b] = [lax.real(w), lax.imag(w)];
    const angle = quarterTurns(far);
    const [cos, sin] = [ops.cos(angle), ops.sin(angle)];
    const real = ops.sub(like(x, 1), ops.sub(ops.mul(a, cos), ops.mul(b, sin)));
    const imag = ops.neg(ops.add(ops.mul(a, sin), ops.mul(b, cos)));
    const highSine = pick(isEnd, 0.5, ops.mul(ops.add(real, imag), 0.5));
    const highCosine = pick(isEnd, 0.5, ops.mul(ops.sub(real, imag), 0.5));
    const sign = ops.sign(x);
    return [
      ops.mul(sign, ops.select(isNear, lowSine, highSine)),
      ops.mul(sign, ops.select(isNear, lowCosine, highCosine)),
    ];
  },
  (x) => {
    const angle = quarterTurns(x);
    return [ops.sin(angle), ops.cos(angle)];
  },
);

/**
 * The integrals of Fresnel, S(x) = ∫ sin(π t² / 2) and C(x) = ∫ cos(π t² / 2) from 0 to x.
 *
 * @example
 * ```ts
 * const [s, c] = scipy.special.fresnel(np.array([1])); // [0.4383], [0.7799]
 * ```
 */
export function fresnel(x: TensorLike): [s: Tensor, c: Tensor] {
  return resultsOfFloats([x] as const, "scipy.special.fresnel", fresnelRule) as [Tensor, Tensor];
}

/** Li₂(1 − exp(−u)) = Σ Bₖ uᵏ⁺¹ / (k + 1)!, for u near 0. */
function dilogarithm(u: Tensor): Tensor {
  const numbers = bernoulliNumbers(byWidth(u, 10, 20));
  return range(numbers.length).reduceRight(
    (sum, k) => ops.mul(ops.add(sum, (numbers[k] ?? 0) / factorial(k + 1)), u),
    like(u, 0),
  );
}

const spenceRule = /* @__PURE__ */ withSlopes(
  (x: Tensor) => {
    const isLarge = is(x, "gt", 2);
    // spence(x) = −½ log² x − spence(1 / x), and spence(y) = π²/6 − log(y) log(1 − y) − Li₂(y)
    const y = pick(isLarge, ops.div(like(x, 1), pick(isLarge, x, like(x, 1))), x);
    const isSmall = ops.and(is(y, "lt", 0.5), is(y, "gt", 0));
    const log = ops.log(pick(is(y, "gt", 0), y, like(y, 1)));
    const rest = ops.log1p(ops.neg(pick(isSmall, y, like(y, 0.5))));
    const small = ops.sub(ops.sub(like(x, Math.PI ** 2 / 6), ops.mul(log, rest)), dilogarithm(ops.neg(rest)));
    const value = ops.select(isSmall, small, dilogarithm(ops.neg(log)));
    const turned = ops.sub(ops.mul(ops.mul(log, log), -0.5), value);
    const ends = pick(is(x, "eq", infinity), -infinity, ops.select(isLarge, turned, value));
    return pick(ops.not(is(x, "ge", 0)), nan, pick(is(x, "eq", 0), Math.PI ** 2 / 6, ends));
  },
  (_, x) => {
    const isOne = is(x, "eq", 1);
    return pick(isOne, -1, ops.div(ops.log(x), ops.sub(like(x, 1), pick(isOne, 0, x))));
  },
);

/**
 * The function of Spence, ∫ log(t) / (1 − t) from 1 to x: the dilogarithm of 1 − x. NaN for negative x.
 *
 * @example
 * ```ts
 * scipy.special.spence(np.array([0, 1, 2])); // [1.645, 0, -0.8225]
 * ```
 */
export const spence: Unary = /* @__PURE__ */ unary("spence", spenceRule);

/** The positive points and their weights of the quadrature by Gauss and Legendre on −1 … 1, an even number of points. */
function gaussLegendre(numPoints: number): { readonly point: number; readonly weight: number }[] {
  return range(numPoints / 2).map((i) => {
    let point = Math.cos((Math.PI * (i + 0.75)) / (numPoints + 0.5));
    let slope = 1;
    for (let round = 0; round < 8; round++) {
      let [before, value] = [1, point];
      for (let k = 2; k <= numPoints; k++) {
        [before, value] = [value, ((2 * k - 1) * point * value - (k - 1) * before) / k];
      }
      slope = (numPoints * (point * value - before)) / (point * point - 1);
      point -= value / slope;
    }
    return { point, weight: 2 / ((1 - point * point) * slope * slope) };
  });
}

/** T(h, a) for a from 0 to 1, by quadrature of its integral. */
function nearOwen(h: Tensor, a: Tensor): Tensor {
  const half = ops.mul(ops.mul(h, h), -0.5);
  const square = ops.mul(a, a);
  // The integrand is even, so that half of the points are enough.
  const total = gaussLegendre(byWidth(h, 32, 64))
    .map(({ point, weight }) => {
      const below = ops.add(ops.mul(square, point * point), 1);
      return ops.mul(ops.div(ops.exp(ops.mul(half, below)), below), weight / (2 * Math.PI));
    })
    .reduce(ops.add);
  return ops.mul(a, total);
}

const owensRule = /* @__PURE__ */ withSlopes(
  (given: Tensor, a: Tensor) => {
    const [h, size] = [ops.abs(given), ops.abs(a)];
    const isLarge = is(size, "gt", 1);
    const scaled = ops.mul(h, size);
    const inner = nearOwen(
      pick(isLarge, scaled, h),
      pick(isLarge, ops.div(like(a, 1), pick(isLarge, size, like(a, 1))), size),
    );
    const [x, y] = [ops.mul(h, Math.SQRT1_2), ops.mul(scaled, Math.SQRT1_2)];
    const [p, q] = [lax.erfc(x), lax.erfc(y)];
    // Near 0 the complements are near 1, and their products lose what is left of them.
    const low = ops.sub(like(a, 1), ops.mul(ops.erf(x), ops.erf(y)));
    const high = ops.sub(ops.add(p, q), ops.mul(p, q));
    const outer = ops.mul(pick(is(scaled, "le", 0.67), low, high), 0.25);
    const value = ops.select(isLarge, ops.sub(outer, inner), inner);
    const atZero = ops.mul(lax.atan(size), 1 / (2 * Math.PI));
    return ops.mul(ops.sign(a), pick(is(h, "eq", 0), atZero, value));
  },
  (_, h, a) => {
    const density = ops.exp(ops.mul(ops.mul(h, h), -0.5));
    return ops.mul(
      ops.mul(density, ops.erf(ops.mul(ops.mul(a, h), Math.SQRT1_2))),
      -0.5 / Math.sqrt(2 * Math.PI),
    );
  },
  (_, h, a) => {
    const below = ops.add(ops.mul(a, a), 1);
    const top = ops.exp(ops.mul(ops.mul(ops.mul(h, h), below), -0.5));
    return ops.div(ops.mul(top, 1 / (2 * Math.PI)), below);
  },
);

/**
 * Owen's T function, ∫ exp(−h² (1 + t²) / 2) / (2π (1 + t²)) from 0 to a.
 *
 * @example
 * ```ts
 * scipy.special.owensT(1, np.array([0.5, 2])); // [0.04306, 0.07847]
 * ```
 */
export const owensT: Binary = /* @__PURE__ */ binary("owensT", owensRule);
