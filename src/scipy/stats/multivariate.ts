/** Distributions of vectors. */

import { isFloat } from "../../ir/dtype.js";
import { DTypeError, ShapeError } from "../../ir/errors.js";
import { at, formatType, type Shape } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import { concatenate } from "../../numpy/arrays/joining.js";
import { diagonal } from "../../numpy/linalg/diagonals.js";
import {
  asFloat,
  asNumber,
  broadcastShape,
  cast,
  expandTo,
  floatType,
  refuseComplex,
  toType,
} from "../../numpy/operands.js";
import { all, sum } from "../../numpy/reductions/reductions.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { like } from "../operands.js";
import * as special from "../special/special.js";

/** Floats of one type, each of its own shape. */
function floatsOf<V extends readonly TensorLike[]>(values: V, caller: string): { [K in keyof V]: Tensor } {
  for (const value of values) refuseComplex(value, caller);
  const dtype = floatType(operandType(...values));
  return values.map((value) => toType(value, dtype, caller)) as readonly Tensor[] as {
    [K in keyof V]: Tensor;
  };
}

function dirichletLogpdf(x: TensorLike, alpha: TensorLike): Tensor {
  const caller = "scipy.stats.dirichlet.logpdf";
  const [given, a] = floatsOf([x, alpha] as const, caller);
  const n = a.shape[0];
  if (a.ndim !== 1 || n === undefined) {
    throw new ShapeError(`[${caller}] alpha must be a vector, got ${formatType(a.type)}`);
  }
  const rows = given.shape[0];
  if (rows !== n && rows !== n - 1) {
    throw new ShapeError(
      `[${caller}] x ${formatType(given.type)} must have the ${n} entries of alpha along its first dim, or one fewer`,
    );
  }
  const last = ops.sub(like(sum(given, 0, { keepdims: true }), 1), sum(given, 0, { keepdims: true }));
  const shares = rows === n ? given : concatenate([given, last], 0);
  const powers = ops.broadcastInDim(ops.sub(a, 1), shares.shape, [0]);
  const constant = ops.sub(sum(lax.lgamma(a)), lax.lgamma(sum(a)));
  const value = sum(special.xlogy(powers, shares), 0);
  const isSimplex = ops.and(
    all(ops.compare("gt", shares, 0), 0),
    ops.compare("lt", ops.abs(ops.sub(sum(shares, 0), 1)), 1e-6),
  );
  const shifted = ops.sub(value, expandTo(constant, value.shape));
  return ops.select(isSimplex, shifted, like(shifted, Number.NEGATIVE_INFINITY));
}

/**
 * Shares along the first dim that add up to 1, with concentrations `alpha`; the last share may be left out.
 *
 * @example
 * ```ts
 * scipy.stats.dirichlet.pdf(np.array([0.2, 0.8]), np.array([2, 3])); // 1.536
 * ```
 */
export const dirichlet = {
  /** The logarithm of the density. */
  logpdf: dirichletLogpdf,
  /** The density. */
  pdf: (x: TensorLike, alpha: TensorLike): Tensor => ops.exp(dirichletLogpdf(x, alpha)),
} as const;

function multinomialLogpmf(x: TensorLike, n: TensorLike, p: TensorLike): Tensor {
  const caller = "scipy.stats.multinomial.logpmf";
  const chances = asFloat(p, caller);
  const [counts, total] = [asNumber(x, caller), asNumber(n, caller)];
  if (isFloat(counts.dtype) || (typeof n !== "number" && isFloat(total.dtype))) {
    throw new DTypeError(
      `[${caller}] x and n must be integers, got ${formatType(counts.type)} and ${formatType(total.type)}`,
    );
  }
  const k = cast(counts, chances.dtype);
  const shape = broadcastShape([k.shape, chances.shape], caller);
  const terms = ops.sub(special.xlogy(k, chances), expandTo(lax.lgamma(ops.add(k, 1)), shape));
  const parts = sum(terms, -1);
  const tries = expandTo(cast(total, chances.dtype), parts.shape);
  const value = ops.add(lax.lgamma(ops.add(tries, 1)), parts);
  const isAll = ops.compare("eq", expandTo(sum(k), parts.shape), tries);
  return ops.select(isAll, value, like(value, Number.NEGATIVE_INFINITY));
}

/**
 * How often each of several outcomes happens in n tries; probabilities `p` along the last dim.
 *
 * @example
 * ```ts
 * scipy.stats.multinomial.pmf(np.array([1, 2], "int32"), np.array(3, "int32"), np.array([0.5, 0.5])); // 0.375
 * ```
 */
export const multinomial = {
  /** The logarithm of the probability. @param x the counts, integers along the last dim */
  logpmf: multinomialLogpmf,
  /** The probability. @param x the counts, integers along the last dim */
  pmf: (x: TensorLike, n: TensorLike, p: TensorLike): Tensor => ops.exp(multinomialLogpmf(x, n, p)),
} as const;

const logTwoPi = Math.log(2 * Math.PI);

function normalLogpdf(x: TensorLike, mean: TensorLike, cov: TensorLike): Tensor {
  const caller = "scipy.stats.multivariateNormal.logpdf";
  const [point, center, matrix] = floatsOf([x, mean, cov] as const, caller);
  const shape = broadcastShape([point.shape, center.shape], caller);
  const away = ops.sub(expandTo(point, shape), expandTo(center, shape));
  if (matrix.ndim === 0) return isotropic(away, matrix, center.ndim > 0);
  const n = center.shape.at(-1);
  if (n === undefined || matrix.ndim < 2 || matrix.shape.slice(-2).some((size) => size !== n)) {
    throw new ShapeError(
      `[${caller}] a mean ${formatType(center.type)} does not fit a covariance ${formatType(matrix.type)}: it needs [..., n] and [..., n, n]`,
    );
  }
  const root = lax.linalg.cholesky(matrix);
  const whitened = whiten(root, away, n, caller);
  const squares = sum(ops.mul(whitened, whitened), -1);
  const logRoot = sum(ops.log(diagonal(root, { dim1: -2, dim2: -1 })), -1);
  const value = ops.sub(ops.mul(squares, -0.5), expandTo(logRoot, squares.shape));
  return ops.sub(value, (n / 2) * logTwoPi);
}

/** Vectors along the last dim, or numbers, with the same variance in each direction. */
function isotropic(away: Tensor, variance: Tensor, areVectors: boolean): Tensor {
  const squares = ops.mul(away, away);
  const distance = areVectors ? sum(squares, -1) : squares;
  const n = areVectors ? at(away.shape, away.ndim - 1) : 1;
  const width = expandTo(variance, distance.shape);
  const constant = ops.mul(ops.add(ops.log(width), logTwoPi), n / 2);
  return ops.sub(ops.mul(ops.div(distance, width), -0.5), constant);
}

/** The solutions of `root y = away` for vectors along the last dim. */
function whiten(root: Tensor, away: Tensor, n: number, caller: string): Tensor {
  const options = { leftSide: true, lower: true } as const;
  if (root.ndim === 2) {
    const columns = ops.transpose(ops.reshape(away, [away.size / n, n]), [1, 0]);
    return ops.reshape(ops.transpose(lax.linalg.triangularSolve(root, columns, options), [1, 0]), away.shape);
  }
  const batch: Shape = broadcastShape([away.shape.slice(0, -1), root.shape.slice(0, -2)], caller);
  const column = ops.reshape(expandTo(away, [...batch, n]), [...batch, n, 1]);
  return ops.reshape(lax.linalg.triangularSolve(expandTo(root, [...batch, n, n]), column, options), [
    ...batch,
    n,
  ]);
}

/**
 * Normally distributed vectors along the last dim; the covariance is a matrix, or one variance for all.
 *
 * @example
 * ```ts
 * scipy.stats.multivariateNormal.pdf(np.zeros([2]), np.zeros([2]), np.eye(2)); // 0.1592
 * ```
 */
export const multivariateNormal = {
  /** The logarithm of the density. */
  logpdf: normalLogpdf,
  /** The density. */
  pdf: (x: TensorLike, mean: TensorLike, cov: TensorLike): Tensor => ops.exp(normalLogpdf(x, mean, cov)),
} as const;
