/** What samples tell: modes, ranks, standard errors, and densities estimated from them. */

import { type Kind, oneOf } from "../../ir/arguments.js";
import { ShapeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema, type Values } from "../../ir/schema.js";
import { at, formatType, normalizeDim, range, type Shape } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import { logsumexp } from "../../nn/functions/functions.js";
import { full } from "../../numpy/arrays/creation.js";
import { concatenate } from "../../numpy/arrays/joining.js";
import {
  atleast1d,
  atleast2d,
  matrixTranspose,
  moveaxis,
  ravel,
  reshape,
  squeeze,
} from "../../numpy/arrays/shaping.js";
import { applyAlongAxis } from "../../numpy/composed/mapping.js";
import { divide, multiply, power, subtract } from "../../numpy/elementwise/arithmetic.js";
import { sqrt } from "../../numpy/elementwise/elementwise.js";
import { logicalNot, notEqual, where } from "../../numpy/elementwise/logic.js";
import { isnan } from "../../numpy/elementwise/specialValues.js";
import { s } from "../../numpy/indexing/indexing.js";
import { take } from "../../numpy/indexing/take.js";
import { matmul } from "../../numpy/linalg/contraction.js";
import { diagonal } from "../../numpy/linalg/diagonals.js";
import { inv } from "../../numpy/linalg/solving.js";
import { asFloat, asTensor } from "../../numpy/operands.js";
import { nanstd } from "../../numpy/reductions/nanReductions.js";
import { any, argmax, max, std, sum } from "../../numpy/reductions/reductions.js";
import { argsort, searchsorted, sort } from "../../numpy/reductions/sorting.js";
import { cumsum } from "../../numpy/statistics/statistics.js";
import * as random from "../../random/index.js";
import * as ops from "../../trace/ops.js";
import { type TensorLike, tensorLikeKind } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { vmap } from "../../transforms/batching/vmap.js";
import * as special from "../special/special.js";

/** The most frequent element, and how often it occurs. */
export interface ModeResult {
  readonly mode: Tensor;
  readonly count: Tensor;
}

const sampleOptions = schema({
  /** Whether the dims that are taken together stay with size 1. */
  keepdims: false,
});

/** Options of {@link mode}. */
export interface ModeOptions extends OptionsOf<typeof sampleOptions> {}

/**
 * The most frequent elements along a dim (`null` for all); of several the smallest.
 *
 * @example
 * ```ts
 * scipy.stats.mode(np.array([1, 2, 2, 3])).mode; // 2
 * ```
 */
export function mode(value: TensorLike, dim: number | null = 0, options?: ModeOptions): ModeResult {
  const caller = "scipy.stats.mode";
  const { keepdims } = sampleOptions.read(options, caller);
  const x = atleast1d(asTensor(value, caller));
  const own = dim === null ? 0 : normalizeDim(dim, x.ndim, caller);
  const rows = dim === null ? reshape(x, [1, -1]) : toRows(x, own);
  const best = vmap((row: Tensor): [Tensor, Tensor] => {
    const sorted = sort(row);
    const counts = subtract(searchsorted(sorted, sorted, { side: "right" }), searchsorted(sorted, sorted));
    return [take(sorted, argmax(counts)), max(counts)];
  });
  const kept = x.shape.map((n, d) => (dim === null || d === own ? 1 : n));
  const shape = keepdims ? kept : dim === null ? [] : x.shape.toSpliced(own, 1);
  const [found, count] = best(rows);
  return { mode: reshape(found, shape), count: reshape(count, shape) };
}

/** The vectors along a dim as rows. */
function toRows(x: Tensor, dim: number): Tensor {
  const last = moveaxis(x, dim, -1);
  return reshape(last, [-1, at(last.shape, last.ndim - 1)]);
}

const rankOptions = schema({
  /**
   * What equal elements get: the mean of their ranks (`average`, the default), the smallest (`min`) or the largest
   * (`max`); `dense` counts equal elements once, `ordinal` tells them apart by their order.
   */
  method: optional(oneOf("average", "min", "max", "dense", "ordinal"), "average"),
  /** The dim along which elements are ranked; all together by default. */
  dim: optional("integer"),
});

/** Options of {@link rankdata}. */
export interface RankOptions extends OptionsOf<typeof rankOptions> {}

/**
 * The ranks of elements from 1, as float32; NaN where there is a NaN.
 *
 * @example
 * ```ts
 * scipy.stats.rankdata(np.array([10, 30, 10])); // [1.5, 3, 1.5]
 * ```
 */
export function rankdata(value: TensorLike, options?: RankOptions): Tensor {
  const caller = "scipy.stats.rankdata";
  const { method, dim } = rankOptions.read(options, caller);
  const x = asTensor(value, caller);
  const rank = (row: Tensor) =>
    where(any(isnan(row)), Number.NaN, ops.convert(ranksOf(row, method), "float32"));
  return dim === undefined ? rank(ravel(x)) : applyAlongAxis(rank, dim, x);
}

function ranksOf(row: Tensor, method: Values<typeof rankOptions.fields>["method"]): Tensor {
  if (method === "ordinal") return argsort(argsort(row)).add(1);
  const sorted = sort(row);
  const first = searchsorted(sorted, row);
  if (method === "min") return first.add(1);
  if (method === "dense") {
    const isNew = notEqual(sorted.get(s(1)), sorted.get(s(0, -1)));
    return take(concatenate([ops.full([1], 1, "int32"), cumsum(isNew).add(1)]), first);
  }
  const end = searchsorted(sorted, row, { side: "right" });
  if (method === "max") return end;
  return multiply(ops.convert(first.add(end).add(1), "float32"), 0.5);
}

const semOptions = schema({
  /** What is taken from the number of elements in the divisor of the variance; 1 by default. */
  ddof: 1,
  /** Whether a NaN makes the result NaN (`propagate`, the default) or is left out (`omit`). */
  nanPolicy: optional(oneOf("propagate", "omit"), "propagate"),
  ...sampleOptions.fields,
});

/** Options of {@link sem}. */
export interface SemOptions extends OptionsOf<typeof semOptions> {}

/**
 * The standard error of the mean along a dim; `null` for all elements.
 *
 * @example
 * ```ts
 * scipy.stats.sem(np.array([1, 2, 3, 4])); // 0.6455
 * ```
 */
export function sem(value: TensorLike, dim: number | null = 0, options?: SemOptions): Tensor {
  const caller = "scipy.stats.sem";
  const { ddof, nanPolicy, keepdims } = semOptions.read(options, caller);
  const x = asFloat(value, caller);
  if (nanPolicy === "omit") {
    const count = sum(logicalNot(isnan(x)), dim, { keepdims });
    return divide(nanstd(x, dim, { ddof, keepdims }), sqrt(ops.convert(count, x.dtype)));
  }
  const n = dim === null ? x.size : at(x.shape, normalizeDim(dim, x.ndim, caller));
  return divide(std(x, dim, { ddof, keepdims }), Math.sqrt(n));
}

/** How wide the normalDensities of {@link gaussianKde} are: by a rule, or a factor of the deviation of the samples. */
export type Bandwidth = "scott" | "silverman" | number | Tensor;

const bandwidth: Kind<Bandwidth> = {
  says: '"scott", "silverman", a number or a scalar',
  is: (value) =>
    value === "scott" || value === "silverman" || typeof value === "number" || value instanceof Tensor,
};

const kdeOptions = schema({
  /** How wide the normalDensities are; by Scott's rule by default. */
  bwMethod: optional(bandwidth, "scott"),
  /** How much each sample counts; all the same by default. */
  weights: optional(tensorLikeKind),
});

/** Options of {@link gaussianKde}. */
export interface GaussianKdeOptions extends OptionsOf<typeof kdeOptions> {}

/** A density that is a sum of normal densities around samples. */
export interface GaussianKde {
  /** The samples, one in each column. */
  readonly dataset: Tensor;
  /** How much each sample counts; 1 in all. */
  readonly weights: Tensor;
  /** How many samples of the same weight would tell as much. */
  readonly neff: Tensor;
  /** The covariance of each bell. */
  readonly covariance: Tensor;
  /** Its inverse. */
  readonly invCov: Tensor;
  /** The density at points, one in each column. */
  readonly evaluate: (points: TensorLike) => Tensor;
  /** The same as `evaluate`. */
  readonly pdf: (points: TensorLike) => Tensor;
  /** The logarithm of the density. */
  readonly logpdf: (points: TensorLike) => Tensor;
  /** The integral of the density times a normal one. */
  readonly integrateGaussian: (mean: TensorLike, cov: TensorLike) => Tensor;
  /** The share between two numbers, for samples of one dimension. */
  readonly integrateBox1d: (low: TensorLike, high: TensorLike) => Tensor;
  /** The integral of the product of two densities. */
  readonly integrateKde: (other: GaussianKde) => Tensor;
  /** New samples, one in each column. */
  readonly resample: (key: Tensor, shape?: Shape) => Tensor;
}

/**
 * Estimates a density from samples, one in each column; a vector holds samples of one dimension.
 *
 * @example
 * ```ts
 * scipy.stats.gaussianKde(np.array([0, 1, 2])).evaluate(np.array([1])); // [0.3182]
 * ```
 */
export function gaussianKde(samples: TensorLike, options?: GaussianKdeOptions): GaussianKde {
  const caller = "scipy.stats.gaussianKde";
  const { bwMethod, weights: given } = kdeOptions.read(options, caller);
  const dataset = atleast2d(asFloat(samples, caller));
  const [d, n] = [at(dataset.shape, 0), at(dataset.shape, 1)];
  if (dataset.ndim !== 2 || dataset.size < 2) {
    throw new ShapeError(
      `[${caller}] needs several samples in the columns of a matrix, got ${formatType(dataset.type)}`,
    );
  }
  const raw = given === undefined ? full([n], 1, dataset.dtype) : asFloat(given, caller);
  if (raw.ndim !== 1 || raw.size !== n) {
    throw new ShapeError(`[${caller}] ${n} samples need as many weights, got ${formatType(raw.type)}`);
  }
  const weights = divide(raw, sum(raw));
  const squares = sum(multiply(weights, weights));
  const neff = divide(1, squares);
  const factor = widthOf(bwMethod, neff, d);
  const away = subtract(dataset, sum(multiply(dataset, weights), 1, { keepdims: true }));
  const spread = divide(matmul(multiply(away, weights), matrixTranspose(away)), subtract(1, squares));
  const area = multiply(factor, factor);
  const covariance = multiply(spread, area);
  const invCov = divide(inv(spread), area);
  return methodsOf({ dataset, weights, neff, covariance, invCov }, d, n);
}

function widthOf(method: Bandwidth, neff: Tensor, d: number): TensorLike {
  if (method === "scott") return power(neff, -1 / (d + 4));
  if (method === "silverman") return power(multiply(neff, (d + 2) / 4), -1 / (d + 4));
  return method;
}

type KdeData = Pick<GaussianKde, "dataset" | "weights" | "neff" | "covariance" | "invCov">;

function methodsOf(data: KdeData, d: number, n: number): GaussianKde {
  const { dataset, weights, covariance, invCov } = data;
  /** The logarithm of what each sample adds at each point. */
  const logTerms = (given: TensorLike, caller: string): Tensor => {
    const points = pointsOf(given, d, caller);
    const root = lax.linalg.cholesky(invCov);
    const [own, other] = [dataset, points].map((x) => matmul(matrixTranspose(x), root)) as [Tensor, Tensor];
    const away = subtract(other.expandDims(1), own.expandDims(0));
    const constant = subtract(sum(ops.log(diagonal(root))), (d / 2) * Math.log(2 * Math.PI));
    return subtract(constant, multiply(sum(multiply(away, away), -1), 0.5));
  };
  const evaluate = (points: TensorLike) =>
    sum(multiply(ops.exp(logTerms(points, "scipy.stats.gaussianKde.evaluate")), weights), 1);
  return {
    ...data,
    evaluate,
    pdf: evaluate,
    logpdf: (points) =>
      logsumexp(logTerms(points, "scipy.stats.gaussianKde.logpdf").add(ops.log(weights)), 1),
    integrateGaussian: (mean, cov) => {
      const wide = covariance.add(atleast2d(cov));
      return sum(
        multiply(
          normalDensities(dataset, reshape(asTensor(mean, "scipy.stats.gaussianKde"), [d, 1]), wide),
          weights,
        ),
      );
    },
    integrateBox1d: (low, high) => {
      if (d !== 1)
        throw new ShapeError(`[scipy.stats.gaussianKde.integrateBox1d] samples have ${d} dimensions, not 1`);
      const width = sqrt(squeeze(covariance));
      const below = (end: TensorLike) => special.ndtr(divide(subtract(end, ravel(dataset)), width));
      return sum(multiply(weights, subtract(below(high), below(low))));
    },
    integrateKde: (other) => {
      const wide = covariance.add(other.covariance);
      const pairs = vmap((column: Tensor) => normalDensities(dataset, column.expandDims(1), wide))(
        matrixTranspose(other.dataset),
      );
      return sum(multiply(multiply(pairs, weights), other.weights.expandDims(1)));
    },
    resample: (key, shape = []) => {
      const keys = random.split(key);
      const chosen = random.choice(keys.get(0), n, shape, { p: weights });
      const zero = full([d], 0, dataset.dtype);
      const noise = random.multivariateNormal(keys.get(1), zero, covariance, { shape });
      return take(dataset, chosen, 1).add(ops.transpose(noise, range(noise.ndim).reverse()));
    },
  };
}

/** Normal densities with one covariance around points in columns, at another point. */
function normalDensities(points: Tensor, center: Tensor, covariance: Tensor): Tensor {
  const root = lax.linalg.cholesky(covariance);
  const away = lax.linalg.triangularSolve(root, subtract(points, center), { leftSide: true, lower: true });
  const constant = sum(ops.log(diagonal(root))).add((at(points.shape, 0) / 2) * Math.log(2 * Math.PI));
  return ops.exp(subtract(multiply(sum(multiply(away, away), 0), -0.5), constant));
}

/** Points in columns; a vector is one point, or numbers where samples have one dimension. */
function pointsOf(given: TensorLike, d: number, caller: string): Tensor {
  const points = atleast2d(asFloat(given, caller));
  if (points.ndim === 2 && points.shape[0] === d) return points;
  if (points.ndim === 2 && points.shape[0] === 1 && points.shape[1] === d) return reshape(points, [d, 1]);
  throw new ShapeError(`[${caller}] points ${formatType(points.type)} need ${d} rows, as the samples have`);
}
