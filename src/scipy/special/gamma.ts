/** The gamma function and its relatives. */

import { integerFrom, need } from "../../ir/arguments.js";
import { type OptionsOf, schema } from "../../ir/schema.js";
import { range } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { is, like, pick, withFloats } from "../operands.js";
import { type Binary, binary, type Unary, unary, withSlopes } from "../rules.js";

const nan = Number.NaN;

/**
 * The logarithm of the size of the gamma function.
 *
 * @example
 * ```ts
 * scipy.special.gammaln(np.array([2.5, 4.5])); // [0.2847, 2.454]
 * ```
 */
export const gammaln: Unary = /* @__PURE__ */ unary("gammaln", lax.lgamma);

/** The sign of the gamma function; NaN at its poles. */
export function signOfGamma(x: Tensor): Tensor {
  const floor = ops.floor(x);
  const isBelow = is(x, "lt", 0);
  const isPole = ops.and(isBelow, ops.compare("eq", x, floor));
  const isOdd = ops.compare("ne", ops.mul(ops.floor(ops.mul(floor, 0.5)), 2), floor);
  const isNegativeZero = ops.and(is(x, "eq", 0), is(ops.div(like(x, 1), x), "lt", 0));
  const sign = pick(ops.or(ops.and(isBelow, isOdd), isNegativeZero), -1, like(x, 1));
  return pick(ops.or(isPole, ops.compare("ne", x, x)), nan, ops.stopGradient(sign));
}

/**
 * The sign of the gamma function; NaN at −1, −2 ….
 *
 * @example
 * ```ts
 * scipy.special.gammasgn(np.array([2.5, -0.5])); // [1, -1]
 * ```
 */
export const gammasgn: Unary = /* @__PURE__ */ unary("gammasgn", signOfGamma);

/** The gamma function of floats. */
export const gammaOf = (x: Tensor) => ops.mul(signOfGamma(x), ops.exp(lax.lgamma(x)));

/**
 * The gamma function.
 *
 * @example
 * ```ts
 * scipy.special.gamma(np.array([1, 4.5])); // [1, 11.63]
 * ```
 */
export const gamma: Unary = /* @__PURE__ */ unary("gamma", gammaOf, (z) => ops.exp(logGammaOf(z)));

/**
 * The logarithm of the gamma function: NaN of floats up to 0, where the function is negative or has a pole; of complex
 * numbers the branch that is real on the positive axis, cut along the negative one.
 *
 * @example
 * ```ts
 * scipy.special.loggamma(np.array([2.5, 4.5])); // [0.2847, 2.454]
 * ```
 */
export const loggamma: Unary = /* @__PURE__ */ unary(
  "loggamma",
  (x) => ops.select(is(x, "gt", 0), lax.lgamma(x), like(x, nan)),
  logGammaOf,
);

/**
 * n!, by the gamma function; 0 for negative n.
 *
 * @example
 * ```ts
 * scipy.special.factorial(np.array([1, 4.5])); // [1, 52.34]
 * ```
 */
export const factorial: Unary = /* @__PURE__ */ unary("factorial", (n) =>
  pick(is(n, "lt", 0), 0, ops.exp(lax.lgamma(ops.add(n, 1)))),
);

/** From where on logarithms of the gamma function are taken by Stirling's series. */
const stirlingFrom = 8;

/** log Γ(x) − ((x − ½) log x − x + ½ log 2π) for x from 8. */
function stirlingRest(x: Tensor): Tensor {
  const inverse = ops.div(like(x, 1), x);
  const square = ops.mul(inverse, inverse);
  const series = [-1 / 1680, 1 / 1260, -1 / 360, 1 / 12].reduce<Tensor>(
    (total, c) => ops.add(ops.mul(total, square), c),
    like(x, 1 / 1188),
  );
  return ops.mul(series, inverse);
}

/** How far numbers are moved to the right, to where Stirling's series is precise. */
const moved = 7;

/** log Γ(z) of complex numbers, in 64 bits. */
function logGammaOf(z: Tensor): Tensor {
  const wide = ops.convert(z, "complex128");
  const [real, imag] = [lax.real(wide), lax.imag(wide)];
  const isLow = is(imag, "lt", 0);
  // Mirrored at the axis, so that all numbers lie above, and there at ½ to the right.
  const above = lax.complex(real, ops.select(isLow, ops.neg(imag), imag));
  const isLeft = is(real, "lt", 0.5);
  const right = ops.select(isLeft, ops.sub(like(above, 1), above), above);
  const far = ops.add(right, moved);
  const stirling = ops.add(ops.sub(ops.mul(ops.sub(far, 0.5), ops.log(far)), far), Math.log(2 * Math.PI) / 2);
  const logs = range(moved).map((k) => ops.log(ops.add(right, k)));
  const own = ops.sub(ops.add(stirling, stirlingRest(far)), logs.reduce(ops.add));
  const turned = ops.mul(above, lax.complex(like(real, 0), like(real, Math.PI)));
  const around = lax.complex(like(real, -Math.LN2), like(real, Math.PI / 2));
  const power = ops.exp(ops.mul(ops.select(isLeft, turned, like(turned, -1)), 2));
  const logSine = ops.add(ops.sub(ops.log(ops.sub(like(power, 1), power)), turned), around);
  const reflected = ops.sub(ops.sub(like(own, Math.log(Math.PI)), logSine), own);
  const value = ops.select(isLeft, reflected, own);
  const flipped = lax.complex(lax.real(value), ops.neg(lax.imag(value)));
  return ops.convert(ops.select(isLow, flipped, value), z.dtype);
}

/** log |Γ(a) Γ(b) / Γ(a + b)|, without the cancellation that large arguments would bring. */
function logBeta(a: Tensor, b: Tensor): Tensor {
  const [small, large] = [ops.min(a, b), ops.max(a, b)];
  const plain = ops.sub(ops.add(lax.lgamma(a), lax.lgamma(b)), lax.lgamma(ops.add(a, b)));
  const isLarge = ops.and(is(large, "ge", stirlingFrom), is(small, "gt", 0));
  const q = ops.select(isLarge, large, like(large, stirlingFrom));
  const p = ops.select(isLarge, small, like(small, 1));
  const sum = ops.add(p, q);
  const log = ops.log1p(ops.div(p, q));
  const rest = ops.sub(stirlingRest(q), stirlingRest(sum));
  // log Γ(q) − log Γ(p + q)
  const ratio = ops.add(ops.sub(ops.sub(p, ops.mul(p, ops.log(q))), ops.mul(ops.sub(sum, 0.5), log)), rest);
  const isBoth = ops.and(isLarge, is(p, "ge", stirlingFrom));
  const far = ops.select(isBoth, p, like(p, stirlingFrom));
  const both = ops.sub(
    ops.add(
      ops.add(ops.mul(ops.log(q), -0.5), Math.log(2 * Math.PI) / 2),
      ops.mul(ops.sub(far, 0.5), ops.log(ops.div(far, ops.add(far, q)))),
    ),
    ops.mul(q, ops.log1p(ops.div(far, q))),
  );
  const corrected = ops.add(
    both,
    ops.add(stirlingRest(far), ops.sub(stirlingRest(q), stirlingRest(ops.add(far, q)))),
  );
  const one = ops.select(isBoth, corrected, ops.add(lax.lgamma(p), ratio));
  return ops.select(isLarge, one, plain);
}

/**
 * The logarithm of the size of the beta function.
 *
 * @example
 * ```ts
 * scipy.special.betaln(2, np.array([1, 3])); // [-0.6931, -2.485]
 * ```
 */
export const betaln: Binary = /* @__PURE__ */ binary("betaln", logBeta);

/**
 * The beta function, Γ(a) Γ(b) / Γ(a + b).
 *
 * @example
 * ```ts
 * scipy.special.beta(2, np.array([1, 3])); // [0.5, 0.08333]
 * ```
 */
export const beta: Binary = /* @__PURE__ */ binary("beta", (a, b) => {
  const sign = ops.mul(ops.mul(signOfGamma(a), signOfGamma(b)), signOfGamma(ops.add(a, b)));
  return ops.mul(sign, ops.exp(logBeta(a, b)));
});

/**
 * The regularised incomplete beta function. It has a derivative by x alone.
 *
 * @example
 * ```ts
 * scipy.special.betainc(2, 3, np.array([0.2, 0.5])); // [0.1808, 0.6875]
 * ```
 */
export function betainc(a: TensorLike, b: TensorLike, x: TensorLike): Tensor {
  return withFloats([a, b, x] as const, "scipy.special.betainc", lax.betainc);
}

/**
 * The regularised lower incomplete gamma function.
 *
 * @example
 * ```ts
 * scipy.special.gammainc(2, np.array([1, 3])); // [0.2642, 0.8009]
 * ```
 */
export const gammainc: Binary = /* @__PURE__ */ binary("gammainc", lax.igamma);
/**
 * The regularised upper incomplete gamma function.
 *
 * @example
 * ```ts
 * scipy.special.gammaincc(2, np.array([1, 3])); // [0.7358, 0.1991]
 * ```
 */
export const gammaincc: Binary = /* @__PURE__ */ binary("gammaincc", lax.igammac);
/**
 * The derivative of {@link gammaln}.
 *
 * @example
 * ```ts
 * scipy.special.digamma(np.array([1, 4.5])); // [-0.5772, 1.389]
 * ```
 */
export const digamma: Unary = /* @__PURE__ */ unary("digamma", lax.digamma);
/**
 * The n-th derivative of {@link digamma}.
 *
 * @example
 * ```ts
 * scipy.special.polygamma(2, np.array([1, 3])); // [-2.404, -0.1541]
 * ```
 */
export const polygamma: Binary = /* @__PURE__ */ binary("polygamma", lax.polygamma);
/**
 * The zeta function of Hurwitz. It has a derivative by its second argument alone.
 *
 * @example
 * ```ts
 * scipy.special.zeta(2, np.array([1, 3])); // [1.645, 0.3949]
 * ```
 */
export const zeta: Binary = /* @__PURE__ */ binary("zeta", lax.zeta);
const combOptions = schema({
  /** Whether an element may be chosen several times. */
  repetition: false,
});

/** Options of {@link comb}. */
export interface CombOptions extends OptionsOf<typeof combOptions> {}

/**
 * In how many ways k of n elements can be chosen.
 *
 * @example
 * ```ts
 * scipy.special.comb(5, np.array([2, 3])); // [10, 10]
 * ```
 */
export function comb(n: TensorLike, k: TensorLike, options?: CombOptions): Tensor {
  const { repetition } = combOptions.read(options, "scipy.special.comb");
  const choose = (total: Tensor, part: Tensor) => {
    const isPossible = ops.and(
      ops.compare("le", part, total),
      ops.and(is(total, "ge", 0), is(part, "ge", 0)),
    );
    const [m, j] = [
      ops.select(isPossible, total, like(total, 0)),
      ops.select(isPossible, part, like(part, 0)),
    ];
    const log = (x: Tensor) => lax.lgamma(ops.add(x, 1));
    const value = ops.exp(ops.sub(ops.sub(log(m), log(j)), log(ops.sub(m, j))));
    return ops.select(isPossible, value, like(value, 0));
  };
  return withFloats([n, k] as const, "scipy.special.comb", (total, part) => {
    if (!repetition) return choose(total, part);
    const isNone = ops.and(is(part, "eq", 0), is(total, "ge", 0));
    return pick(isNone, 1, choose(ops.sub(ops.add(total, part), 1), part));
  });
}

const pochRule = /* @__PURE__ */ withSlopes(
  (z: Tensor, m: Tensor) => pick(is(m, "eq", 0), 1, ops.div(gammaOf(ops.add(z, m)), gammaOf(z))),
  (value, z, m) => ops.mul(ops.sub(lax.digamma(ops.add(z, m)), lax.digamma(z)), value),
  (value, z, m) => ops.mul(lax.digamma(ops.add(z, m)), value),
);
/**
 * Γ(z + m) / Γ(z): z (z + 1) … (z + m − 1) for integers m.
 *
 * @example
 * ```ts
 * scipy.special.poch(2, np.array([1, 3])); // [2, 24]
 * ```
 */
export const poch: Binary = /* @__PURE__ */ binary("poch", pochRule);

/**
 * The logarithm of the multivariate gamma function of dimension d.
 *
 * @example
 * ```ts
 * scipy.special.multigammaln(np.array([2, 3]), 2); // [0.4516, 1.55]
 * ```
 */
export function multigammaln(a: TensorLike, d: number): Tensor {
  need(integerFrom(1), d, "d", "scipy.special.multigammaln");
  return withFloats([a] as const, "scipy.special.multigammaln", (x) =>
    range(d)
      .map((i) => lax.lgamma(ops.sub(x, i / 2)))
      .reduce((total, one) => ops.add(total, one), like(x, ((d * (d - 1)) / 4) * Math.log(Math.PI))),
  );
}
