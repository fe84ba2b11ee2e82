/** Distributions of counts. */

import * as lax from "../../lax/index.js";
import { arange } from "../../numpy/arrays/creation.js";
import { broadcastTo, expandDims } from "../../numpy/arrays/shaping.js";
import { broadcastShape } from "../../numpy/operands.js";
import { sum } from "../../numpy/reductions/reductions.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { is, like, pick, withFloats } from "../operands.js";
import * as special from "../special/special.js";
import { type Discrete, discrete, type Fixed } from "./families.js";

const { NaN: nan, NEGATIVE_INFINITY: minusInfinity } = Number;

const isProbability = (p: Tensor) => ops.and(is(p, "ge", 0), is(p, "le", 1));

const bernoulliLog: Discrete<[p: TensorLike], "logpmf"> = /* @__PURE__ */ discrete<[p: TensorLike], never>(
  "bernoulli",
  1,
  {
    logpmf: (k, p) => {
      const value = ops.add(special.xlogy(k, p), special.xlog1py(ops.sub(like(k, 1), k), ops.neg(p)));
      return pick(ops.or(is(k, "lt", 0), is(k, "gt", 1)), minusInfinity, value);
    },
  },
);

/**
 * 1 with probability p, else 0. `cdf` and `ppf` have no location.
 *
 * @example
 * ```ts
 * scipy.stats.bernoulli.pmf(np.array([0, 1]), 0.3); // [0.7, 0.3]
 * ```
 */
export const bernoulli: Discrete<[p: TensorLike], "logpmf"> & Fixed<[p: TensorLike], "cdf" | "ppf"> = {
  ...bernoulliLog,
  cdf: (k, p) =>
    withFloats([k, p] as const, "scipy.stats.bernoulli.cdf", (x, chance) => {
      const steps = pick(is(x, "lt", 0), 0, pick(is(x, "ge", 1), 1, ops.sub(like(x, 1), chance)));
      const isDefined = ops.and(isProbability(chance), ops.compare("eq", x, x));
      return ops.select(isDefined, steps, like(x, nan));
    }),
  ppf: (q, p) =>
    withFloats([q, p] as const, "scipy.stats.bernoulli.ppf", (part, chance) => {
      const isZero = ops.compare("le", part, ops.sub(like(part, 1), chance));
      const isDefined = ops.and(isProbability(chance), isProbability(part));
      return ops.select(isDefined, pick(isZero, 0, like(part, 1)), like(part, nan));
    }),
};

const logFactorial = (x: Tensor) => lax.lgamma(ops.add(x, 1));

/**
 * Successes in n tries of probability p.
 *
 * @example
 * ```ts
 * scipy.stats.binom.pmf(np.array([0, 1]), 2, 0.5); // [0.25, 0.5]
 * ```
 */
export const binom: Discrete<[n: TensorLike, p: TensorLike], "logpmf"> = /* @__PURE__ */ discrete<
  [n: TensorLike, p: TensorLike],
  never
>("binom", 2, {
  logpmf: (k, n, p) => {
    const ways = ops.sub(logFactorial(n), ops.add(logFactorial(k), logFactorial(ops.sub(n, k))));
    const powers = ops.add(special.xlogy(k, p), special.xlog1py(ops.sub(n, k), ops.neg(p)));
    const isSure = ops.or(ops.and(is(k, "eq", 0), is(n, "eq", 0)), is(powers, "eq", 0));
    const value = pick(isSure, 0, ops.add(ways, powers));
    const isPossible = ops.and(is(k, "ge", 0), ops.compare("lt", k, ops.add(n, 1)));
    return ops.select(isPossible, value, like(k, minusInfinity));
  },
});

/**
 * Failures before the n-th success of probability p.
 *
 * @example
 * ```ts
 * scipy.stats.nbinom.pmf(np.array([0, 1]), 2, 0.5); // [0.25, 0.25]
 * ```
 */
export const nbinom: Discrete<[n: TensorLike, p: TensorLike], "logpmf"> = /* @__PURE__ */ discrete<
  [n: TensorLike, p: TensorLike],
  never
>("nbinom", 2, {
  logpmf: (k, n, p) => {
    const ways = ops.sub(ops.sub(lax.lgamma(ops.add(k, n)), lax.lgamma(n)), logFactorial(k));
    const powers = ops.add(special.xlogy(n, p), special.xlogy(k, ops.sub(like(p, 1), p)));
    return pick(is(k, "lt", 0), minusInfinity, ops.add(ways, powers));
  },
});

/**
 * Tries until the first success of probability p.
 *
 * @example
 * ```ts
 * scipy.stats.geom.pmf(np.array([1, 2]), 0.5); // [0.5, 0.25]
 * ```
 */
export const geom: Discrete<[p: TensorLike], "logpmf"> = /* @__PURE__ */ discrete<[p: TensorLike], never>(
  "geom",
  1,
  {
    logpmf: (k, p) => {
      const value = ops.add(special.xlog1py(ops.sub(k, 1), ops.neg(p)), ops.log(p));
      return pick(is(k, "le", 0), minusInfinity, value);
    },
  },
);

const poissonTable: Discrete<[mu: TensorLike], "logpmf" | "cdf"> = /* @__PURE__ */ discrete<
  [mu: TensorLike],
  "cdf"
>("poisson", 1, {
  logpmf: (k, mu) => {
    const value = ops.sub(ops.sub(special.xlogy(k, mu), logFactorial(k)), mu);
    const isCount = ops.and(is(k, "ge", 0), ops.compare("eq", ops.round(k), k));
    return ops.select(isCount, value, like(k, minusInfinity));
  },
  cdf: (k, mu) => {
    const next = ops.max(ops.floor(ops.add(k, 1)), like(k, 1));
    return pick(is(k, "lt", 0), 0, lax.igammac(next, mu));
  },
});

/**
 * Events of a rate mu in a unit of time.
 *
 * @example
 * ```ts
 * scipy.stats.poisson.pmf(np.array([0, 1]), 2); // [0.1353, 0.2707]
 * ```
 */
export const poisson: Discrete<[mu: TensorLike], "logpmf" | "cdf"> & {
  /** −Σ p log p; for rates from 100 by its series. */
  readonly entropy: (mu: TensorLike, loc?: TensorLike) => Tensor;
} = {
  ...poissonTable,
  entropy: (mu, loc = 0) =>
    withFloats([mu] as const, "scipy.stats.poisson.entropy", (rate) => {
      const shape = broadcastShape(
        [rate.shape, loc instanceof Tensor ? loc.shape : []],
        "scipy.stats.poisson.entropy",
      );
      const isLarge = is(rate, "ge", 100);
      const small = pick(ops.or(isLarge, is(rate, "eq", 0)), 1, rate);
      // Rates below 100 have almost nothing beyond 250 events.
      const events = arange(250, rate.dtype).reshape([250, ...rate.shape.map(() => 1)]);
      // −p log p of the logarithms: its derivative is a number also where p is 0.
      const logs = poissonTable.logpmf(events, expandDims(small, 0));
      const terms = ops.neg(ops.mul(ops.exp(logs), logs));
      const large = ops.sub(
        ops.mul(ops.log(ops.mul(rate, 2 * Math.PI * Math.E)), 0.5),
        ops.div(like(rate, 1 / 12), rate),
      );
      return broadcastTo(ops.select(isLarge, large, pick(is(rate, "eq", 0), 0, sum(terms, 0))), shape);
    }),
};

/**
 * {@link binom} whose probability has a beta distribution with a and b.
 *
 * @example
 * ```ts
 * scipy.stats.betabinom.pmf(np.array([0, 1]), 2, 1, 1); // [0.3333, 0.3333]
 * ```
 */
export const betabinom: Discrete<[n: TensorLike, a: TensorLike, b: TensorLike], "logpmf"> =
  /* @__PURE__ */ discrete<[n: TensorLike, a: TensorLike, b: TensorLike], never>("betabinom", 3, {
    logpmf: (given, n, a, b) => {
      const k = ops.floor(given);
      const rest = ops.sub(n, k);
      const ways = ops.neg(ops.add(ops.log1p(n), special.betaln(ops.add(rest, 1), ops.add(k, 1))));
      const ratio = ops.sub(special.betaln(ops.add(k, a), ops.add(rest, b)), special.betaln(a, b));
      const isNone = ops.and(is(k, "eq", 0), is(n, "eq", 0));
      const value = pick(isNone, 0, ops.add(ways, ratio));
      const isImpossible = ops.or(is(k, "lt", 0), ops.compare("gt", k, n));
      const isWrong = ops.or(is(n, "lt", 0), ops.or(is(a, "le", 0), is(b, "le", 0)));
      return pick(isWrong, nan, pick(isImpossible, minusInfinity, value));
    },
  });
