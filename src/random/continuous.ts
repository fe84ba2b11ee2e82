/** Further distributions of floats that follow from uniform, normal or exponential values. */

import { oneOf } from "../ir/arguments.js";
import { limits } from "../ir/dtype.js";
import { ShapeError } from "../ir/errors.js";
import { type OptionsOf, optional, schema } from "../ir/schema.js";
import { at, formatType } from "../ir/shape.js";
import * as lax from "../lax/index.js";
import { matvec } from "../numpy/composed/mapping.js";
import { broadcastShape, type DTypeOption, expandTo, type ShapeLike } from "../numpy/operands.js";
import * as ops from "../trace/ops.js";
import { needTensor } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { rademacher } from "./counts.js";
import { exponential, normal, uniform } from "./floats.js";
import { atOnce, checkKey, drawnShape, split } from "./keys.js";
import { keyOf, type Parameter, parameters } from "./parameters.js";

/**
 * Values of the Cauchy distribution with median 0 and scale 1.
 *
 * @example
 * ```ts
 * random.cauchy(random.key(0), [2]); // [6.027, 14.84]
 * ```
 */
export function cauchy(key: Tensor, shape: ShapeLike = [], dtype?: DTypeOption): Tensor {
  const own = parameters(key, [0], shape, dtype, "random.cauchy", true);
  return atOnce([key], (words) => {
    const u = uniform(words, own.shape, { minval: limits(own.dtype).epsilon, dtype: own.dtype });
    return lax.tan(ops.mul(ops.sub(u, 0.5), Math.PI));
  });
}

/**
 * Values whose logarithms are normal. @param sigma the standard deviation of the logarithms
 *
 * @example
 * ```ts
 * random.lognormal(random.key(0), 1, [2]); // [5.066, 7.578]
 * ```
 */
export function lognormal(key: Tensor, sigma: Parameter = 1, shape?: ShapeLike, dtype?: DTypeOption): Tensor {
  const own = parameters(key, [sigma], shape, dtype, "random.lognormal", true);
  return atOnce([key, own.tensors[0]], (words, scale) =>
    ops.exp(ops.mul(normal(words, own.shape, own.dtype), scale)),
  );
}

/**
 * Values of the Pareto distribution from 1 on. @param b how fast they become rare
 *
 * @example
 * ```ts
 * random.pareto(random.key(0), 3, [2]); // [2.673, 3.601]
 * ```
 */
export function pareto(key: Tensor, b: Parameter, shape?: ShapeLike, dtype?: DTypeOption): Tensor {
  const own = parameters(key, [b], shape, dtype, "random.pareto", true);
  return atOnce([key, own.tensors[0]], (words, power) =>
    ops.exp(ops.div(exponential(words, own.shape, own.dtype), power)),
  );
}

/**
 * Values of the Rayleigh distribution: lengths of pairs of normal values.
 *
 * @example
 * ```ts
 * random.rayleigh(random.key(0), 1, [2]); // [0.3279, 0.2081]
 * ```
 */
export function rayleigh(key: Tensor, scale: Parameter, shape?: ShapeLike, dtype?: DTypeOption): Tensor {
  const own = parameters(key, [scale], shape, dtype, "random.rayleigh", true);
  return atOnce([key, own.tensors[0]], (words, size) => {
    const u = uniform(words, own.shape, { dtype: own.dtype });
    return ops.mul(size, ops.sqrt(ops.mul(ops.log(u), -2)));
  });
}

/**
 * Values of the Weibull distribution.
 *
 * @example
 * ```ts
 * random.weibullMin(random.key(0), 1, 2, [2]); // [1.718, 1.96]
 * ```
 */
export function weibullMin(
  key: Tensor,
  scale: Parameter,
  concentration: Parameter,
  shape?: ShapeLike,
  dtype?: DTypeOption,
): Tensor {
  const own = parameters(key, [scale, concentration], shape, dtype, "random.weibullMin", true);
  return atOnce([key, ...own.tensors], (words, size, power) => {
    const wait = ops.neg(ops.log1p(ops.neg(uniform(words, own.shape, { dtype: own.dtype }))));
    return ops.mul(ops.pow(wait, ops.div(ops.ones(power.type), power)), size);
  });
}

/**
 * Lengths of triples of normal values.
 *
 * @example
 * ```ts
 * random.maxwell(random.key(0), [2]); // [2.631, 0.991]
 * ```
 */
export function maxwell(key: Tensor, shape: ShapeLike = [], dtype?: DTypeOption): Tensor {
  const own = parameters(key, [0], shape, dtype, "random.maxwell", true);
  return atOnce([key], (words) => {
    const drawn = normal(words, [...own.shape, 3], own.dtype);
    return ops.sqrt(ops.reduceSum(ops.mul(drawn, drawn), [own.shape.length]));
  });
}

/**
 * Lengths of triples of normal values with random signs, times `scale`, around `loc`.
 *
 * @param shape prepended to the common shape of `loc` and `scale`; if empty, that shape is prepended, as in JAX
 *
 * @example
 * ```ts
 * random.doubleSidedMaxwell(random.key(0), 0, 1, [2]); // [1.546, 1.574]
 * ```
 */
export function doubleSidedMaxwell(
  key: Tensor,
  loc: Parameter,
  scale: Parameter,
  shape: ShapeLike = [],
  dtype?: DTypeOption,
): Tensor {
  const caller = "random.doubleSidedMaxwell";
  const own = parameters(key, [loc, scale], undefined, dtype, caller, true);
  const before = drawnShape(shape, caller);
  const full = [...(before.length === 0 ? own.shape : before), ...own.shape];
  return atOnce([key, ...own.tensors], (words, center, size) => {
    const keys = split(words);
    const length = maxwell(keyOf(keys, 0), full, own.dtype);
    const sign = rademacher(keyOf(keys, 1), full, own.dtype);
    return ops.add(ops.mul(ops.mul(sign, length), expandTo(size, full)), expandTo(center, full));
  });
}

/**
 * Values of the Wald (inverse Gaussian) distribution with the given mean and scale 1.
 *
 * @example
 * ```ts
 * random.wald(random.key(0), 1, [2]); // [0.3806, 0.4157]
 * ```
 */
export function wald(key: Tensor, mean: Parameter, shape?: ShapeLike, dtype?: DTypeOption): Tensor {
  const own = parameters(key, [mean], shape, dtype, "random.wald", true);
  return atOnce([key, own.tensors[0]], (words, mu) => {
    const keys = split(words);
    const drawn = normal(keyOf(keys, 0), own.shape, own.dtype);
    const u = uniform(keyOf(keys, 1), own.shape, { dtype: own.dtype });
    const y = ops.mul(drawn, drawn);
    const square = ops.mul(mu, mu);
    const root = ops.sqrt(ops.add(ops.mul(ops.mul(mu, 4), y), ops.mul(square, ops.mul(y, y))));
    const half = ops.div(ops.mul(square, y), 2);
    const x = ops.sub(ops.add(mu, half), ops.mul(ops.div(mu, 2), root));
    const isFirst = ops.compare("le", u, ops.div(mu, ops.add(mu, x)));
    return ops.select(isFirst, x, ops.div(square, x));
  });
}

/**
 * Values of the triangular distribution, whose density rises from `left` to `mode` and falls to `right`.
 *
 * @example
 * ```ts
 * random.triangular(random.key(0), 0, 1, 3, [2]); // [2.44, 2.642]
 * ```
 */
export function triangular(
  key: Tensor,
  left: Parameter,
  mode: Parameter,
  right: Parameter,
  shape?: ShapeLike,
  dtype?: DTypeOption,
): Tensor {
  const own = parameters(key, [left, mode, right], shape, dtype, "random.triangular", true);
  return atOnce([key, ...own.tensors], (words, low, top, high) => {
    const u = uniform(words, own.shape, { dtype: own.dtype });
    const [width, rise, fall] = [ops.sub(high, low), ops.sub(top, low), ops.sub(high, top)];
    const side = (share: Tensor, part: Tensor) => ops.sqrt(ops.mul(ops.mul(share, width), part));
    const isRising = ops.compare("lt", u, ops.div(rise, width));
    const rest = ops.sub(ops.ones(u.type), u);
    return ops.select(isRising, ops.add(low, side(u, rise)), ops.sub(high, side(rest, fall)));
  });
}

const multivariateNormalOptions = schema({
  /** The dims before the last; by default those that mean and covariance have together. */
  shape: optional<ShapeLike>("any"),
  /** The decomposition of the covariance; `"cholesky"` by default. */
  method: optional(oneOf("cholesky", "eigh", "svd"), "cholesky"),
});

/** Options of {@link multivariateNormal}. */
export interface MultivariateNormalOptions extends OptionsOf<typeof multivariateNormalOptions> {}

/**
 * Normally distributed vectors.
 *
 * @param mean along the last dim
 * @param covariance the covariance matrices in the last two dims
 *
 * @example
 * ```ts
 * random.multivariateNormal(random.key(0), np.zeros([2]), np.eye(2)); // [1.623, 2.025]
 * ```
 */
export function multivariateNormal(
  key: Tensor,
  mean: Tensor,
  covariance: Tensor,
  options?: MultivariateNormalOptions,
): Tensor {
  const { shape, method } = multivariateNormalOptions.read(options, "random.multivariateNormal");
  const caller = "random.multivariateNormal";
  checkKey(key, caller);
  needTensor(mean, "mean", caller);
  needTensor(covariance, "covariance", caller);
  const n = at(mean.shape, mean.ndim - 1);
  if (covariance.ndim < 2 || covariance.shape.slice(-2).some((size) => size !== n)) {
    throw new ShapeError(
      `[${caller}] a mean of ${n} numbers needs covariances [${n},${n}], got ${formatType(covariance.type)}`,
    );
  }
  const given = broadcastShape([mean.shape.slice(0, -1), covariance.shape.slice(0, -2)], caller);
  const batch = shape === undefined ? given : drawnShape(shape, caller);
  return atOnce([key, mean, covariance], (words, center, matrix) => {
    const drawn = normal(words, [...batch, n], center.dtype);
    const spread = expandTo(factorOf(matrix, method), [...batch, n, n]);
    return ops.add(expandTo(center, drawn.shape), matvec(spread, drawn));
  });
}

/** A matrix F with F Fᵀ = x. */
function factorOf(x: Tensor, method: "cholesky" | "eigh" | "svd"): Tensor {
  if (method === "cholesky") return lax.linalg.cholesky(x);
  const [vectors, sizes] = method === "eigh" ? lax.linalg.eigh(x) : lax.linalg.svd(x);
  const dims = sizes.shape.map((_, d) => d);
  return ops.mul(
    vectors,
    ops.broadcastInDim(ops.sqrt(sizes), vectors.shape, [...dims.slice(0, -1), x.ndim - 1]),
  );
}
