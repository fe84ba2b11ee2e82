/** Distributions of real numbers. */

import * as lax from "../../lax/index.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { is, like, pick } from "../operands.js";
import * as special from "../special/special.js";
import { type Continuous, continuous, type Fixed, fixed } from "./families.js";

const { NaN: nan, NEGATIVE_INFINITY: minusInfinity } = Number;
const logTwoPi = Math.log(2 * Math.PI);

/** A function of shares, NaN outside of 0 … 1. */
const ofShare = (q: Tensor, value: Tensor) =>
  ops.select(ops.and(is(q, "ge", 0), is(q, "le", 1)), value, like(q, nan));

/** The names of functions that many distributions have. */
type Tails = "logpdf" | "cdf" | "logcdf" | "sf" | "logsf";

const normLogpdf = (z: Tensor) => ops.mul(ops.add(ops.mul(z, z), logTwoPi), -0.5);

/**
 * The normal distribution.
 *
 * @example
 * ```ts
 * scipy.stats.norm.pdf(np.array([0, 1])); // [0.3989, 0.242]
 * ```
 */
export const norm: Continuous<[], Tails | "ppf" | "isf"> = /* @__PURE__ */ continuous("norm", 0, {
  logpdf: normLogpdf,
  cdf: special.ndtr,
  logcdf: special.logNdtr,
  sf: (z) => special.ndtr(ops.neg(z)),
  logsf: (z) => special.logNdtr(ops.neg(z)),
  ppf: special.ndtri,
  isf: (q) => ops.neg(special.ndtri(q)),
});

const cauchyCdf = (z: Tensor) => ops.add(ops.div(lax.atan(z), Math.PI), 0.5);

/**
 * The Cauchy distribution.
 *
 * @example
 * ```ts
 * scipy.stats.cauchy.pdf(np.array([0, 1])); // [0.3183, 0.1592]
 * ```
 */
export const cauchy: Continuous<[], Tails | "ppf" | "isf"> = /* @__PURE__ */ continuous("cauchy", 0, {
  logpdf: (z) => ops.neg(ops.add(ops.log1p(ops.mul(z, z)), Math.log(Math.PI))),
  cdf: cauchyCdf,
  logcdf: (z) => ops.log(cauchyCdf(z)),
  sf: (z) => cauchyCdf(ops.neg(z)),
  logsf: (z) => ops.log(cauchyCdf(ops.neg(z))),
  ppf: (q) => lax.tan(ops.sub(ops.mul(q, Math.PI), Math.PI / 2)),
  isf: (q) => lax.tan(ops.neg(ops.sub(ops.mul(q, Math.PI), Math.PI / 2))),
});

const exponLogsf = (z: Tensor) => pick(is(z, "lt", 0), 0, ops.neg(z));

/**
 * The exponential distribution, from the location on.
 *
 * @example
 * ```ts
 * scipy.stats.expon.pdf(np.array([0, 1])); // [1, 0.3679]
 * ```
 */
export const expon: Continuous<[], Tails | "ppf"> = /* @__PURE__ */ continuous("expon", 0, {
  logpdf: (z) => pick(is(z, "lt", 0), minusInfinity, ops.neg(z)),
  cdf: (z) => pick(is(z, "lt", 0), 0, ops.neg(ops.expm1(ops.neg(z)))),
  logcdf: (z) => ops.log1p(ops.neg(ops.exp(exponLogsf(z)))),
  sf: (z) => ops.exp(exponLogsf(z)),
  logsf: exponLogsf,
  ppf: (q) => ofShare(q, ops.neg(ops.log1p(ops.neg(q)))),
});

/**
 * The Laplace distribution.
 *
 * @example
 * ```ts
 * scipy.stats.laplace.pdf(np.array([0, 1])); // [0.5, 0.1839]
 * ```
 */
export const laplace: Continuous<[], "logpdf" | "cdf"> = /* @__PURE__ */ continuous("laplace", 0, {
  logpdf: (z) => ops.neg(ops.add(ops.abs(z), Math.LN2)),
  cdf: (z) => {
    const tail = ops.mul(ops.exp(ops.neg(ops.abs(z))), 0.5);
    return ops.select(is(z, "le", 0), tail, ops.sub(like(z, 1), tail));
  },
});

/**
 * The logistic distribution.
 *
 * @example
 * ```ts
 * scipy.stats.logistic.pdf(np.array([0, 1])); // [0.25, 0.1966]
 * ```
 */
export const logistic: Continuous<[], "logpdf" | "cdf" | "sf" | "ppf" | "isf"> = /* @__PURE__ */ continuous(
  "logistic",
  0,
  {
    logpdf: (z) => {
      const size = ops.abs(z);
      return ops.neg(ops.add(size, ops.mul(ops.log1p(ops.exp(ops.neg(size))), 2)));
    },
    cdf: ops.logistic,
    sf: (z) => ops.logistic(ops.neg(z)),
    ppf: special.logit,
    isf: (q) => ops.neg(special.logit(q)),
  },
);

const isOutside = (z: Tensor) => ops.or(is(z, "lt", 0), is(z, "gt", 1));

/**
 * The uniform distribution from the location to the location plus the scale.
 *
 * @example
 * ```ts
 * scipy.stats.uniform.pdf(np.array([0, 1])); // [1, 1]
 * ```
 */
export const uniform: Continuous<[], "logpdf" | "cdf" | "ppf"> = /* @__PURE__ */ continuous("uniform", 0, {
  logpdf: (z) => pick(isOutside(z), minusInfinity, like(z, 0)),
  cdf: (z) => pick(is(z, "lt", 0), 0, pick(is(z, "gt", 1), 1, z)),
  ppf: (q) => ofShare(q, q),
});

const inside = (p: Tensor, value: Tensor) =>
  ops.select(ops.and(is(p, "gt", 0), is(p, "lt", 1)), value, like(p, nan));
/** 1 − exp(−exp(t)). */
const aboveExp = (t: Tensor) => ops.neg(ops.expm1(ops.neg(ops.exp(t))));
/** −exp(t). */
const minusExp = (t: Tensor) => ops.neg(ops.exp(t));

/**
 * The Gumbel distribution of smallest values.
 *
 * @example
 * ```ts
 * scipy.stats.gumbelL.pdf(np.array([0, 1])); // [0.3679, 0.1794]
 * ```
 */
export const gumbelL: Continuous<[], Tails | "ppf"> = /* @__PURE__ */ continuous("gumbelL", 0, {
  logpdf: (z) => ops.sub(z, ops.exp(z)),
  cdf: aboveExp,
  logcdf: (z) => ops.log(aboveExp(z)),
  sf: (z) => ops.exp(minusExp(z)),
  logsf: minusExp,
  ppf: (p) => inside(p, ops.log(ops.neg(ops.log1p(ops.neg(p))))),
});

/**
 * The Gumbel distribution of largest values.
 *
 * @example
 * ```ts
 * scipy.stats.gumbelR.pdf(np.array([0, 1])); // [0.3679, 0.2546]
 * ```
 */
export const gumbelR: Continuous<[], Tails | "ppf"> = /* @__PURE__ */ continuous("gumbelR", 0, {
  logpdf: (z) => ops.neg(ops.add(z, ops.exp(ops.neg(z)))),
  cdf: (z) => ops.exp(minusExp(ops.neg(z))),
  logcdf: (z) => minusExp(ops.neg(z)),
  sf: (z) => aboveExp(ops.neg(z)),
  logsf: (z) => ops.log(aboveExp(ops.neg(z))),
  ppf: (p) => inside(p, ops.neg(ops.log(ops.neg(ops.log(p))))),
});

/**
 * Student's t distribution with `df` degrees of freedom.
 *
 * @example
 * ```ts
 * scipy.stats.t.pdf(np.array([0.5, 1]), 2); // [0.2963, 0.1925]
 * ```
 */
export const t: Continuous<[df: TensorLike], "logpdf"> = /* @__PURE__ */ continuous("t", 1, {
  logpdf: (z, df) => {
    const half = ops.mul(df, 0.5);
    const more = ops.add(half, 0.5);
    const constant = ops.add(lax.lgamma(half), ops.mul(ops.log(ops.mul(df, Math.PI)), 0.5));
    const tail = ops.mul(more, ops.log1p(ops.div(ops.mul(z, z), df)));
    return ops.neg(ops.add(ops.sub(constant, lax.lgamma(more)), tail));
  },
});

/** The gamma distribution's functions for z and its parameter a. */
const gammaTable: Readonly<Record<Tails, (z: Tensor, a: Tensor) => Tensor>> = {
  logpdf: (z, a) => {
    const isPositive = is(z, "ge", 0);
    const y = ops.select(isPositive, z, like(z, 1));
    const value = ops.sub(ops.sub(special.xlogy(ops.sub(a, 1), y), y), lax.lgamma(a));
    return ops.select(isPositive, value, like(z, minusInfinity));
  },
  cdf: (z, a) => lax.igamma(a, ops.max(z, like(z, 0))),
  logcdf: (z, a) => ops.log(gammaTable.cdf(z, a)),
  sf: (z, a) => lax.igammac(a, ops.max(z, like(z, 0))),
  logsf: (z, a) => ops.log(gammaTable.sf(z, a)),
};

/**
 * The gamma distribution with shape parameter a.
 *
 * @example
 * ```ts
 * scipy.stats.gamma.pdf(np.array([0.5, 1]), 2); // [0.3033, 0.3679]
 * ```
 */
export const gamma: Continuous<[a: TensorLike], Tails> = /* @__PURE__ */ continuous<[a: TensorLike], Tails>(
  "gamma",
  1,
  gammaTable,
);

const halved =
  (compute: (z: Tensor, a: Tensor) => Tensor) =>
  (z: Tensor, df: Tensor): Tensor =>
    compute(ops.mul(z, 0.5), ops.mul(df, 0.5));

/**
 * The chi-square distribution with `df` degrees of freedom.
 *
 * @example
 * ```ts
 * scipy.stats.chi2.pdf(np.array([0.5, 1]), 2); // [0.3894, 0.3033]
 * ```
 */
export const chi2: Continuous<[df: TensorLike], Tails> = /* @__PURE__ */ continuous<[df: TensorLike], Tails>(
  "chi2",
  1,
  {
    logpdf: (z, df) => ops.sub(halved(gammaTable.logpdf)(z, df), Math.LN2),
    cdf: /* @__PURE__ */ halved(gammaTable.cdf),
    logcdf: /* @__PURE__ */ halved(gammaTable.logcdf),
    sf: /* @__PURE__ */ halved(gammaTable.sf),
    logsf: /* @__PURE__ */ halved(gammaTable.logsf),
  },
);

const betaCdf = (z: Tensor, a: Tensor, b: Tensor) => lax.betainc(a, b, ops.clamp(like(z, 0), z, like(z, 1)));
const betaSf = (z: Tensor, a: Tensor, b: Tensor) =>
  lax.betainc(b, a, ops.sub(like(z, 1), ops.clamp(like(z, 0), z, like(z, 1))));

/**
 * The beta distribution with shape parameters a and b.
 *
 * @example
 * ```ts
 * scipy.stats.beta.pdf(np.array([0.2, 0.5]), 2, 3); // [1.536, 1.5]
 * ```
 */
export const beta: Continuous<[a: TensorLike, b: TensorLike], Tails> = /* @__PURE__ */ continuous<
  [a: TensorLike, b: TensorLike],
  Tails
>("beta", 2, {
  logpdf: (z, a, b) => {
    const powers = ops.add(special.xlogy(ops.sub(a, 1), z), special.xlog1py(ops.sub(b, 1), ops.neg(z)));
    const value = pick(isOutside(z), minusInfinity, ops.sub(powers, special.betaln(a, b)));
    return pick(ops.or(is(a, "le", 0), is(b, "le", 0)), nan, value);
  },
  cdf: betaCdf,
  logcdf: (z, a, b) => ops.log(betaCdf(z, a, b)),
  sf: betaSf,
  logsf: (z, a, b) => ops.log(betaSf(z, a, b)),
});

const paretoLogsf = (z: Tensor, b: Tensor) => pick(is(z, "lt", 1), 0, ops.neg(ops.mul(b, ops.log(z))));

/**
 * The Pareto distribution with shape parameter b, from the location plus the scale on.
 *
 * @example
 * ```ts
 * scipy.stats.pareto.pdf(np.array([1, 2]), 2); // [2, 0.25]
 * ```
 */
export const pareto: Continuous<[b: TensorLike], Tails | "ppf"> = /* @__PURE__ */ continuous<
  [b: TensorLike],
  Tails | "ppf"
>("pareto", 1, {
  logpdf: (z, b) =>
    pick(is(z, "lt", 1), minusInfinity, ops.sub(ops.log(b), ops.mul(ops.add(b, 1), ops.log(z)))),
  cdf: (z, b) => pick(is(z, "lt", 1), 0, ops.sub(like(z, 1), ops.pow(z, ops.neg(b)))),
  logcdf: (z, b) => pick(is(z, "lt", 1), minusInfinity, ops.log1p(ops.neg(ops.pow(z, ops.neg(b))))),
  sf: (z, b) => ops.exp(paretoLogsf(z, b)),
  logsf: paretoLogsf,
  ppf: (q, b) => ofShare(q, ops.pow(ops.sub(like(q, 1), q), ops.div(like(b, -1), b))),
});

/** log(exp(x) − exp(y)) for x > y. */
const logDifference = (x: Tensor, y: Tensor) => ops.add(x, ops.log1p(ops.neg(ops.exp(ops.sub(y, x)))));

/** The logarithm of the share of the normal distribution between a and b, both of which are moved to the lower tail. */
function logMass(a: Tensor, b: Tensor): Tensor {
  const isRight = is(a, "gt", 0);
  const isTail = ops.or(is(b, "le", 0), isRight);
  const [low, high] = [ops.select(isRight, ops.neg(b), a), ops.select(isRight, ops.neg(a), b)];
  const tail = logDifference(
    special.logNdtr(ops.select(isTail, high, like(b, -1))),
    special.logNdtr(ops.select(isTail, low, like(a, -2))),
  );
  const center = ops.log1p(ops.neg(ops.add(special.ndtr(a), special.ndtr(ops.neg(b)))));
  return ops.select(isTail, tail, center);
}

function truncnormLogcdf(z: Tensor, a: Tensor, b: Tensor): Tensor {
  const isBetween = ops.and(ops.compare("gt", z, a), ops.compare("lt", z, b));
  const y = ops.select(isBetween, z, ops.mul(ops.add(a, b), 0.5));
  const all = logMass(a, b);
  const below = ops.sub(logMass(a, y), all);
  const above = ops.sub(logMass(y, b), all);
  // Near 1 the share above is the smaller one, and known with more digits.
  const value = ops.select(is(below, "gt", -0.1), ops.log1p(ops.neg(ops.exp(above))), below);
  const ends = pick(ops.compare("ge", z, b), 0, like(z, minusInfinity));
  return withBounds(a, b, ops.select(isBetween, value, ends));
}

/** NaN where bounds are in the wrong order. */
const withBounds = (a: Tensor, b: Tensor, value: Tensor) => pick(ops.compare("ge", a, b), nan, value);

const truncnormLogsf = (z: Tensor, a: Tensor, b: Tensor) =>
  truncnormLogcdf(ops.neg(z), ops.neg(b), ops.neg(a));

/**
 * The normal distribution between a and b, both in units of the scale from the location.
 *
 * @example
 * ```ts
 * scipy.stats.truncnorm.pdf(np.array([0, 1]), -1, 2); // [0.4874, 0.2956]
 * ```
 */
export const truncnorm: Continuous<[a: TensorLike, b: TensorLike], Tails> = /* @__PURE__ */ continuous<
  [a: TensorLike, b: TensorLike],
  Tails
>("truncnorm", 2, {
  logpdf: (z, a, b) => {
    const isBeyond = ops.or(ops.compare("lt", z, a), ops.compare("gt", z, b));
    return withBounds(a, b, pick(isBeyond, minusInfinity, ops.sub(normLogpdf(z), logMass(a, b))));
  },
  cdf: (z, a, b) => ops.exp(truncnormLogcdf(z, a, b)),
  logcdf: truncnormLogcdf,
  sf: (z, a, b) => ops.exp(truncnormLogsf(z, a, b)),
  logsf: truncnormLogsf,
});

/**
 * The distribution whose density falls like exp(−|x|ᵝ).
 *
 * @example
 * ```ts
 * scipy.stats.gennorm.pdf(np.array([0.5, 1]), 2); // [0.4394, 0.2076]
 * ```
 */
export const gennorm: Fixed<[beta: TensorLike], "logpdf" | "pdf" | "cdf"> = /* @__PURE__ */ fixed<
  [beta: TensorLike],
  "cdf"
>("gennorm", {
  logpdf: (x, power) => {
    const constant = ops.sub(ops.log(ops.mul(power, 0.5)), lax.lgamma(ops.div(like(power, 1), power)));
    return ops.sub(constant, ops.pow(ops.abs(x), power));
  },
  cdf: (x, power) => {
    const share = lax.igamma(ops.div(like(power, 1), power), ops.pow(ops.abs(x), power));
    return ops.mul(ops.add(ops.mul(ops.sign(x), share), 1), 0.5);
  },
});

/**
 * The von Mises distribution of angles with concentration kappa.
 *
 * @example
 * ```ts
 * scipy.stats.vonmises.pdf(np.array([0.5, 1]), 2); // [0.4039, 0.2057]
 * ```
 */
export const vonmises: Fixed<[kappa: TensorLike], "logpdf" | "pdf"> = /* @__PURE__ */ fixed<
  [kappa: TensorLike],
  never
>("vonmises", {
  logpdf: (x, kappa) => {
    const constant = ops.log(ops.mul(lax.besselI0e(kappa), 2 * Math.PI));
    const value = ops.sub(ops.mul(kappa, ops.sub(ops.cos(x), 1)), constant);
    return ops.select(is(kappa, "gt", 0), value, like(x, nan));
  },
});

/**
 * The wrapped Cauchy distribution of angles from 0 to 2π.
 *
 * @example
 * ```ts
 * scipy.stats.wrapcauchy.pdf(np.array([0.5, 1]), 0.5); // [0.3205, 0.1682]
 * ```
 */
export const wrapcauchy: Fixed<[c: TensorLike], "logpdf" | "pdf"> = /* @__PURE__ */ fixed<
  [c: TensorLike],
  never
>("wrapcauchy", {
  logpdf: (x, c) => {
    const square = ops.mul(c, c);
    const distance = ops.sub(ops.add(square, 1), ops.mul(ops.mul(c, 2), ops.cos(x)));
    const value = ops.sub(ops.sub(ops.log(ops.sub(like(c, 1), square)), logTwoPi), ops.log(distance));
    const isAngle = ops.and(is(x, "ge", 0), is(x, "le", 2 * Math.PI));
    const isDefined = ops.and(is(c, "gt", 0), is(c, "lt", 1));
    return ops.select(isDefined, ops.select(isAngle, value, like(x, minusInfinity)), like(x, nan));
  },
});
