/** Norms of vectors and matrices. */

import { need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { partType } from "../../ir/dtype.js";
import { DimError, ValueError } from "../../ir/errors.js";
import { at, normalizeDims, range, sizeOf } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { asInexact, cast, type Dims, requireRank, squaredSize, wideType } from "../operands.js";
import {
  type KeepdimsOptions,
  keepdimsOptions,
  max,
  min,
  restoreDims,
  sum,
} from "../reductions/reductions.js";
import { inv } from "./solving.js";

/**
 * Which norm: for vectors any number p, ±Infinity included; for matrices `"fro"`, `"nuc"` (the sum of the singular
 * values), 1, −1, 2, −2, Infinity, −Infinity.
 */
export type NormOrder = number | "fro" | "nuc";

/**
 * The norm over one dim (of vectors), over two dims (of matrices), or of all elements when no dim is given.
 * The default is the root of the sum of squares.
 *
 * @example
 * ```ts
 * np.linalg.norm(np.array([3, 4])); // 5
 * ```
 */
export function norm(
  value: TensorLike,
  order?: NormOrder | null,
  dim?: Dims,
  options?: KeepdimsOptions,
): Tensor {
  const { keepdims } = keepdimsOptions.read(options, "linalg.norm");
  const operand = asInexact(value, "linalg.norm");
  const dtype = partType(operand.dtype);
  const x = cast(operand, wideType(operand.dtype));
  const wantsAll = dim === undefined || dim === null;
  if (order === undefined || order === null) {
    const dims = normalizeDims(dim, x.ndim, "linalg.norm");
    return cast(ops.sqrt(sum(squaredSize(x), dims, { keepdims })), dtype);
  }
  const dims = wantsAll ? range(x.ndim) : normalizeDims(dim, x.ndim, "linalg.norm");
  const [first, second] = dims;
  if (first !== undefined && dims.length === 1) return cast(normAlong(x, order, first, keepdims), dtype);
  if (first !== undefined && second !== undefined && dims.length === 2) {
    return cast(normOfDims(x, order, [first, second], keepdims), dtype);
  }
  throw new DimError(
    `[linalg.norm] order ${describe(order)} is a norm of one dim or of two, not of ${dims.length}: name the dims`,
  );
}

function normAlong(x: Tensor, order: NormOrder, dim: number, keepdims: boolean | undefined): Tensor {
  const size = ops.abs(x);
  switch (order) {
    case Number.POSITIVE_INFINITY:
      return max(size, dim, { keepdims });
    case Number.NEGATIVE_INFINITY:
      return min(size, dim, { keepdims });
    case 0:
      return cast(sum(ops.compare("ne", x, 0), dim, { keepdims }), size.dtype);
    case 1:
      return sum(size, dim, { keepdims });
    case 2:
      return ops.sqrt(sum(squaredSize(x), dim, { keepdims }));
    case "fro":
    case "nuc":
      throw new ValueError(`[linalg.norm] "${order}" is a norm of matrices: name two dims`);
    default:
      need("number", order, "the order", "linalg.norm");
      return ops.pow(sum(ops.pow(size, order), dim, { keepdims }), 1 / order);
  }
}

function normOfDims(
  x: Tensor,
  order: NormOrder,
  [rows, columns]: readonly [number, number],
  keepdims: boolean | undefined,
): Tensor {
  const over = (inner: number, outer: number, reduce: typeof max) => {
    const sums = sum(ops.abs(x), inner, { keepdims: true });
    return restoreDims(
      ops.reshape(
        reduce(sums, outer, { keepdims: true }),
        x.shape.filter((_, d) => d !== rows && d !== columns),
      ),
      x,
      [rows, columns],
      keepdims,
    );
  };
  const ofSingularValues = (reduce: (values: Tensor) => Tensor) => {
    const others = range(x.ndim).filter((d) => d !== rows && d !== columns);
    const values = lax.linalg.singularValues(ops.transpose(x, [...others, rows, columns]));
    return restoreDims(reduce(values), x, [rows, columns], keepdims);
  };
  switch (order) {
    case "fro":
      return ops.sqrt(sum(squaredSize(x), [rows, columns], { keepdims }));
    case 1:
      return over(rows, columns, max);
    case -1:
      return over(rows, columns, min);
    case Number.POSITIVE_INFINITY:
      return over(columns, rows, max);
    case Number.NEGATIVE_INFINITY:
      return over(columns, rows, min);
    case 2:
      return ofSingularValues((values) => max(values, -1));
    case -2:
      return ofSingularValues((values) => min(values, -1));
    case "nuc":
      return ofSingularValues((values) => sum(values, -1));
    default:
      throw new ValueError(
        `[linalg.norm] there is no norm of matrices of order ${describe(order)}: use "fro", "nuc", 1, −1, 2, −2, Infinity or −Infinity`,
      );
  }
}

/**
 * The norm of the last two dims as matrices, by default the root of the sum of squares.
 *
 * @example
 * ```ts
 * np.linalg.matrixNorm(np.array([[3, 0], [0, 4]])); // 5
 * ```
 */
export function matrixNorm(x: TensorLike, order: NormOrder = "fro", options?: KeepdimsOptions): Tensor {
  const { keepdims } = keepdimsOptions.read(options, "linalg.matrixNorm");
  const matrices = asInexact(x, "linalg.matrixNorm");
  requireRank(matrices, 2, "linalg.matrixNorm");
  return norm(matrices, order, [-2, -1], { keepdims });
}

/**
 * The norm over some dims, or of all elements, as one vector.
 *
 * @example
 * ```ts
 * np.linalg.vectorNorm(np.array([[3, 4], [6, 8]]), 2, 1); // [5, 10]
 * ```
 */
export function vectorNorm(
  value: TensorLike,
  order: number = 2,
  dim?: Dims,
  options?: KeepdimsOptions,
): Tensor {
  const { keepdims } = keepdimsOptions.read(options, "linalg.vectorNorm");
  const x = asInexact(value, "linalg.vectorNorm");
  const dims = normalizeDims(dim, x.ndim, "linalg.vectorNorm");
  const kept = range(x.ndim).filter((d) => !dims.includes(d));
  const shape = kept.map((d) => at(x.shape, d));
  const size = sizeOf(dims.map((d) => at(x.shape, d)));
  const rows = ops.reshape(ops.transpose(x, [...kept, ...dims]), [...shape, size]);
  return restoreDims(norm(rows, order, -1), x, dims, keepdims);
}

/**
 * How much errors of a matrix grow when it is inverted: the norm of the matrix times that of its inverse.
 *
 * @example
 * ```ts
 * np.linalg.cond(np.array([[2, 0], [0, 8]])); // 4
 * ```
 */
export function cond(value: TensorLike, order: NormOrder = 2): Tensor {
  const x = asInexact(value, "linalg.cond");
  requireRank(x, 2, "linalg.cond");
  if (order === 2 || order === -2) {
    const values = lax.linalg.singularValues(x);
    const last = values.ndim - 1;
    const n = at(values.shape, last);
    const pick = (i: number) => ops.reshape(ops.sliceDim(values, last, i, i + 1), values.shape.slice(0, -1));
    return order === 2 ? ops.div(pick(0), pick(n - 1)) : ops.div(pick(n - 1), pick(0));
  }
  const product = ops.mul(matrixNorm(x, order), matrixNorm(inv(x), order));
  const isBad = (t: Tensor) => ops.compare("ne", t, t);
  const singular = ops.and(isBad(product), ops.not(ops.reduceMax(isBad(x), [x.ndim - 2, x.ndim - 1])));
  return ops.select(singular, ops.full(product.shape, Number.POSITIVE_INFINITY, product.dtype), product);
}
