/**
 * JAX's `scipy.special`: functions of floats, which are promoted and broadcast. Complex numbers are taken by
 * `boxcox`, `boxcox1p`, `erfcx`, `expit`, `gamma`, `loggamma`, `logit`, `logSoftmax`, `logsumexp`, `softmax`, `wofz`, `xlog1py`
 * and `xlogy`.
 */

import { range } from "../../ir/shape.js";
import { erfcTail } from "../../lax/composed.js";
import * as lax from "../../lax/index.js";
import * as nn from "../../nn/functions/functions.js";
import { expm1, log1p } from "../../numpy/elementwise/elementwise.js";
import type { Dims } from "../../numpy/operands.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { is, like, pick } from "../operands.js";
import { type Binary, binary, type Unary, unary, withSlopes } from "../rules.js";
import { faddeeva } from "./faddeeva.js";

export { logsumexp } from "../../nn/functions/functions.js";
export type { Binary, Unary } from "../rules.js";
export { type BesselJnOptions, besselJn } from "./besselJn.js";
export { wofz } from "./faddeeva.js";
export {
  beta,
  betainc,
  betaln,
  type CombOptions,
  comb,
  digamma,
  factorial,
  gamma,
  gammainc,
  gammaincc,
  gammaln,
  gammasgn,
  loggamma,
  multigammaln,
  poch,
  polygamma,
  zeta,
} from "./gamma.js";
export { type Integers, type SphHarmOptions, sphHarmY } from "./harmonics.js";
export { hyp1f1, hyp2f1 } from "./hypergeometric.js";
export { bernoulli, exp1, expi, expn, fresnel, owensT, sici, spence } from "./integrals.js";

const infinity = Number.POSITIVE_INFINITY;

/**
 * exp(x) / Σ exp(x) over a dim, several, or by default all of them: `nn.softmax` takes the last one.
 *
 * @example
 * ```ts
 * scipy.special.softmax(np.array([[1, 1], [1, 1]])); // [[0.25, 0.25], [0.25, 0.25]]
 * ```
 */
export function softmax(x: TensorLike, dim: Dims = null): Tensor {
  return nn.softmax(x, dim);
}

/**
 * The logarithm of {@link softmax}, precise for small shares.
 *
 * @example
 * ```ts
 * scipy.special.logSoftmax(np.array([[1, 1], [1, 1]])); // [[-1.386, -1.386], [-1.386, -1.386]]
 * ```
 */
export function logSoftmax(x: TensorLike, dim: Dims = null): Tensor {
  return nn.logSoftmax(x, dim);
}

/**
 * The error function.
 *
 * @example
 * ```ts
 * scipy.special.erf(np.array([0, 1])); // [0, 0.8427]
 * ```
 */
export const erf: Unary = /* @__PURE__ */ unary("erf", ops.erf);
/**
 * 1 − {@link erf}.
 *
 * @example
 * ```ts
 * scipy.special.erfc(np.array([0, 1])); // [1, 0.1573]
 * ```
 */
export const erfc: Unary = /* @__PURE__ */ unary("erfc", lax.erfc);
/**
 * The inverse of {@link erf}.
 *
 * @example
 * ```ts
 * scipy.special.erfinv(np.array([0.25, 0.5])); // [0.2253, 0.4769]
 * ```
 */
export const erfinv: Unary = /* @__PURE__ */ unary("erfinv", ops.erfInv);
/**
 * exp(−|x|) · I₀(x), a modified Bessel function.
 *
 * @example
 * ```ts
 * scipy.special.i0e(np.array([0, 1])); // [1, 0.4658]
 * ```
 */
export const i0e: Unary = /* @__PURE__ */ unary("i0e", lax.besselI0e);
/**
 * exp(−|x|) · I₁(x).
 *
 * @example
 * ```ts
 * scipy.special.i1e(np.array([0, 1])); // [0, 0.2079]
 * ```
 */
export const i1e: Unary = /* @__PURE__ */ unary("i1e", lax.besselI1e);
/**
 * The modified Bessel function I₀.
 *
 * @example
 * ```ts
 * scipy.special.i0(np.array([0, 1])); // [1, 1.266]
 * ```
 */
export const i0: Unary = /* @__PURE__ */ unary("i0", (x) => ops.mul(ops.exp(ops.abs(x)), lax.besselI0e(x)));
/**
 * The modified Bessel function I₁.
 *
 * @example
 * ```ts
 * scipy.special.i1(np.array([0, 1])); // [0, 0.5652]
 * ```
 */
export const i1: Unary = /* @__PURE__ */ unary("i1", (x) => ops.mul(ops.exp(ops.abs(x)), lax.besselI1e(x)));
/**
 * 1 / (1 + exp(−x)).
 *
 * @example
 * ```ts
 * scipy.special.expit(np.array([0, 1])); // [0.5, 0.7311]
 * ```
 */
export const expit: Unary = /* @__PURE__ */ unary("expit", ops.logistic, ops.logistic);

const logOdds = (x: Tensor) => ops.log(ops.div(x, ops.sub(like(x, 1), x)));
const logitRule = /* @__PURE__ */ withSlopes(logOdds, (_, x) =>
  ops.div(like(x, 1), ops.mul(x, ops.sub(like(x, 1), x))),
);
/**
 * log(x / (1 − x)), the inverse of {@link expit}.
 *
 * @example
 * ```ts
 * scipy.special.logit(np.array([0.25, 0.5])); // [-1.099, 0]
 * ```
 */
export const logit: Unary = /* @__PURE__ */ unary("logit", logitRule, logOdds);

/** x · log(y), 0 where x is 0 and y is a number. */
const product = (log: (y: Tensor) => Tensor) => (x: Tensor, y: Tensor) =>
  ops.select(ops.or(ops.compare("ne", x, 0), ops.compare("ne", y, y)), ops.mul(x, log(y)), like(x, 0));
const productWith = (log: (y: Tensor) => Tensor, shift: number) =>
  withSlopes(
    product(log),
    (_, __, y) => log(y),
    (_, x, y) => ops.div(x, shift === 0 ? y : ops.add(y, shift)),
  );
const xlogyRule = /* @__PURE__ */ productWith(ops.log, 0);
const xlog1pyRule = /* @__PURE__ */ productWith(ops.log1p, 1);
/**
 * x · log(y), 0 where x is 0.
 *
 * @example
 * ```ts
 * scipy.special.xlogy(np.array([1, 2]), 3); // [1.099, 2.197]
 * ```
 */
export const xlogy: Binary = /* @__PURE__ */ binary("xlogy", xlogyRule, product(ops.log));
/**
 * x · log(1 + y), 0 where x is 0.
 *
 * @example
 * ```ts
 * scipy.special.xlog1py(np.array([1, 2]), 3); // [1.386, 2.773]
 * ```
 */
export const xlog1py: Binary = /* @__PURE__ */ binary("xlog1py", xlog1pyRule, product(log1p));

const xlogxRule = /* @__PURE__ */ withSlopes(
  (x: Tensor) => xlogyRule(x, x),
  (_, x) => ops.add(ops.log(x), 1),
);
/**
 * −x · log(x), 0 at 0 and −∞ below.
 *
 * @example
 * ```ts
 * scipy.special.entr(np.array([0.25, 0.5])); // [0.3466, 0.3466]
 * ```
 */
export const entr: Unary = /* @__PURE__ */ unary("entr", (x) =>
  pick(is(x, "lt", 0), -infinity, ops.neg(xlogxRule(x))),
);

function relativeEntropy(p: Tensor, q: Tensor): Tensor {
  const areBoth = ops.and(is(p, "gt", 0), is(q, "gt", 0));
  const isZero = ops.and(is(p, "eq", 0), is(q, "ge", 0));
  const [safeP, safeQ] = [ops.select(areBoth, p, like(p, 1)), ops.select(areBoth, q, like(q, 1))];
  const value = ops.sub(xlogxRule(safeP), xlogyRule(safeP, safeQ));
  return ops.select(areBoth, value, pick(isZero, 0, like(p, infinity)));
}
/**
 * p · log(p / q), 0 where p is 0, ∞ where q alone is.
 *
 * @example
 * ```ts
 * scipy.special.relEntr(np.array([1, 2]), 3); // [-1.099, -0.8109]
 * ```
 */
export const relEntr: Binary = /* @__PURE__ */ binary("relEntr", relativeEntropy);
/**
 * {@link relEntr} − p + q.
 *
 * @example
 * ```ts
 * scipy.special.klDiv(np.array([1, 2]), 3); // [0.9014, 0.1891]
 * ```
 */
export const klDiv: Binary = /* @__PURE__ */ binary("klDiv", (p, q) =>
  ops.add(ops.sub(relativeEntropy(p, q), p), q),
);

const powered = (log: (x: Tensor) => Tensor) => (x: Tensor, power: Tensor) => {
  const isZero = ops.compare("eq", power, 0);
  const safe = pick(isZero, 1, power);
  const value = log(x);
  return ops.select(isZero, value, ops.div(expm1(ops.mul(safe, value)), safe));
};
/**
 * (xᵖ − 1) / p, and log(x) for p = 0.
 *
 * @example
 * ```ts
 * scipy.special.boxcox(np.array([1, 2]), 3); // [0, 2.333]
 * ```
 */
export const boxcox: Binary = /* @__PURE__ */ binary("boxcox", powered(ops.log), powered(ops.log));
/**
 * ((1 + x)ᵖ − 1) / p, and log(1 + x) for p = 0.
 *
 * @example
 * ```ts
 * scipy.special.boxcox1p(np.array([1, 2]), 3); // [2.333, 8.667]
 * ```
 */
export const boxcox1p: Binary = /* @__PURE__ */ binary("boxcox1p", powered(ops.log1p), powered(log1p));

const erfcxRule = /* @__PURE__ */ withSlopes(
  (x: Tensor) => {
    const isLarge = is(x, "ge", 1);
    const near = ops.select(isLarge, like(x, 0), x);
    const small = ops.mul(ops.exp(ops.mul(near, near)), lax.erfc(near));
    return ops.select(isLarge, erfcTail(ops.select(isLarge, x, like(x, 1))), small);
  },
  (value, x) => ops.sub(ops.mul(ops.mul(x, 2), value), 2 / Math.sqrt(Math.PI)),
);
/**
 * exp(x²) · {@link erfc}.
 *
 * @example
 * ```ts
 * scipy.special.erfcx(np.array([0, 1])); // [1, 0.4276]
 * ```
 */
export const erfcx: Unary = /* @__PURE__ */ unary("erfcx", erfcxRule, (z) =>
  faddeeva(lax.complex(ops.neg(lax.imag(z)), lax.real(z))),
);

const normal = (x: Tensor) => ops.mul(lax.erfc(ops.mul(x, -Math.SQRT1_2)), 0.5);
/**
 * The share of the normal distribution below x.
 *
 * @example
 * ```ts
 * scipy.special.ndtr(np.array([0, 1])); // [0.5, 0.8413]
 * ```
 */
export const ndtr: Unary = /* @__PURE__ */ unary("ndtr", normal);

const logDensity = (x: Tensor) => ops.sub(ops.mul(ops.mul(x, x), -0.5), Math.log(2 * Math.PI) / 2);

const logNdtrRule: (x: Tensor) => Tensor = /* @__PURE__ */ withSlopes(
  (x: Tensor) => {
    const isLow = is(x, "lt", -1);
    const low = ops.select(isLow, x, like(x, -1));
    const scaled = erfcxRule(ops.mul(low, -Math.SQRT1_2));
    const below = ops.sub(ops.log(ops.mul(scaled, 0.5)), ops.mul(ops.mul(low, low), 0.5));
    // Near 1 the logarithm of the share follows from that above x.
    const high = ops.select(isLow, like(x, 0), x);
    return ops.select(isLow, below, ops.log1p(ops.neg(normal(ops.neg(high)))));
  },
  (value, x) => ops.exp(ops.sub(logDensity(x), value)),
);
/**
 * The logarithm of {@link ndtr}, precise in both tails.
 *
 * @example
 * ```ts
 * scipy.special.logNdtr(np.array([0, 1])); // [-0.6931, -0.1728]
 * ```
 */
export const logNdtr: Unary = /* @__PURE__ */ unary("logNdtr", logNdtrRule);

/** The x < 0 below which a small share of the normal distribution lies, by Newton's method on logarithms. */
function lowQuantile(p: Tensor): Tensor {
  const target = ops.log(p);
  const twice = ops.mul(target, -2);
  // The tail behaves like exp(−x²/2) / (|x| √2π).
  const start = ops.neg(ops.sqrt(ops.sub(twice, ops.log(ops.mul(twice, 2 * Math.PI)))));
  return range(4).reduce((x) => {
    const value = logNdtrRule(x);
    const slope = ops.exp(ops.sub(logDensity(x), value));
    return ops.sub(x, ops.div(ops.sub(value, target), slope));
  }, start);
}

const ndtriRule: (p: Tensor) => Tensor = /* @__PURE__ */ withSlopes(
  (p: Tensor) => {
    const isHigh = is(p, "gt", 0.5);
    const tail = ops.select(isHigh, ops.sub(like(p, 1), p), p);
    const isTail = ops.and(is(tail, "lt", 0.02), is(tail, "gt", 0));
    const low = lowQuantile(ops.select(isTail, tail, like(p, 0.01)));
    const middle = ops.mul(ops.erfInv(ops.sub(ops.mul(p, 2), 1)), Math.SQRT2);
    return ops.select(isTail, ops.select(isHigh, ops.neg(low), low), middle);
  },
  (value) => ops.exp(ops.neg(logDensity(value))),
);
/**
 * The inverse of {@link ndtr}: ∓∞ at 0 and 1, NaN outside.
 *
 * @example
 * ```ts
 * scipy.special.ndtri(np.array([0.25, 0.5])); // [-0.6745, 0]
 * ```
 */
export const ndtri: Unary = /* @__PURE__ */ unary("ndtri", ndtriRule);

/** The distance of the points of Rybicki's sum, and how many there are; float64 needs more digits. */
const rybicki = (x: Tensor) => (x.dtype === "float64" ? { step: 0.2, terms: 32 } : { step: 0.4, terms: 14 });

const dawsnRule = /* @__PURE__ */ withSlopes(
  (x: Tensor) => {
    const isSmall = is(ops.abs(x), "lt", 0.2);
    const near = ops.select(isSmall, x, like(x, 0));
    const square = ops.mul(near, near);
    const series = [2 / 9, 2 / 7, 2 / 5, 2 / 3].reduce<Tensor>(
      (inner, c) => ops.sub(like(x, 1), ops.mul(ops.mul(square, c), inner)),
      like(x, 1),
    );
    // Σ exp(−(x − n h)²) / n over odd n, around the even n nearest to x / h.
    const { step, terms } = rybicki(x);
    const center = ops.mul(ops.round(ops.div(x, 2 * step)), 2);
    const rest = ops.sub(x, ops.mul(center, step));
    const parts = range(terms).map((k) => {
      const n = 2 * k - terms + 1;
      const away = ops.sub(rest, n * step);
      return ops.div(ops.exp(ops.neg(ops.mul(away, away))), ops.add(center, n));
    });
    const total = ops.div(parts.reduce(ops.add), Math.sqrt(Math.PI));
    return ops.select(isSmall, ops.mul(near, series), total);
  },
  (value, x) => ops.sub(like(x, 1), ops.mul(ops.mul(x, 2), value)),
);
/**
 * Dawson's integral, exp(−x²) · ∫ exp(t²) from 0 to x.
 *
 * @example
 * ```ts
 * scipy.special.dawsn(np.array([0, 1])); // [0, 0.5381]
 * ```
 */
export const dawsn: Unary = /* @__PURE__ */ unary("dawsn", dawsnRule);
