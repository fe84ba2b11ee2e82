/** Running reductions, weighted means, quantiles, and reductions that ignore NaN. */

import { needIfGiven } from "../../ir/arguments.js";
import { type DType, dtypeKind } from "../../ir/dtype.js";
import { DimError, ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, pick, schema } from "../../ir/schema.js";
import { at, formatType, normalizeDim } from "../../ir/shape.js";
import { runningReduce } from "../../lax/sorting.js";
import * as ops from "../../trace/ops.js";
import { type TensorLike, tensorLikeKind } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { divide, maximum, minimum, multiply, subtract } from "../elementwise/arithmetic.js";
import { conj, real } from "../elementwise/complex.js";
import { sqrt } from "../elementwise/elementwise.js";
import { notEqual, where } from "../elementwise/logic.js";
import { isnan } from "../elementwise/specialValues.js";
import { matmul } from "../linalg/contraction.js";
import { diagonal } from "../linalg/diagonals.js";
import {
  asFloat,
  asInexact,
  asTensor,
  cast,
  type Dims,
  dtypeOf,
  expandTo,
  numberType,
  totalType,
} from "../operands.js";
import { averaging, keepdimsOptions, mean, sum } from "../reductions/reductions.js";

const runningOptions = schema({
  /** The data type of the result; that of the tensor by default, int32 for bool. */
  dtype: optional(dtypeKind),
});

/** Options of {@link cumsum} and {@link cumprod}. */
export interface RunningOptions extends OptionsOf<typeof runningOptions> {}

function running(
  name: string,
  compute: (x: Tensor, dim: number) => Tensor,
  inPlaceOfNan?: number,
): (value: TensorLike, dim?: number | null, options?: RunningOptions) => Tensor {
  return (value, dim, options) => {
    const given = asTensor(value, name);
    const operand = inPlaceOfNan === undefined ? given : where(isnan(given), inPlaceOfNan, given);
    const x = cast(operand, dtypeOf(options, name) ?? numberType(operand.dtype));
    if (dim === undefined || dim === null) return compute(ops.reshape(x, [x.size]), 0);
    return compute(x, normalizeDim(dim, x.ndim, name));
  };
}

/**
 * Running sums along a dim, of the flattened tensor when no dim is given.
 *
 * @example
 * ```ts
 * np.cumsum(np.array([1, 2, 3])); // [1, 3, 6]
 * ```
 */
export const cumsum = running("cumsum", (x, dim) => ops.cumsum(x, dim));
/**
 * Running products along a dim, of the flattened tensor when no dim is given.
 *
 * @example
 * ```ts
 * np.cumprod(np.array([1, 2, 3])); // [1, 2, 6]
 * ```
 */
export const cumprod = running("cumprod", (x, dim) => runningReduce(x, dim, ops.mul, 1));

/**
 * Running sums in which NaN counts as 0.
 *
 * @example
 * ```ts
 * np.nancumsum(np.array([1, NaN, 3])); // [1, 1, 4]
 * ```
 */
export const nancumsum = running("nancumsum", (x, dim) => ops.cumsum(x, dim), 0);

/**
 * Running products in which NaN counts as 1.
 *
 * @example
 * ```ts
 * np.nancumprod(np.array([2, NaN, 3])); // [2, 2, 6]
 * ```
 */
export const nancumprod = running("nancumprod", (x, dim) => runningReduce(x, dim, ops.mul, 1), 1);

const cumulativeOptions = schema({
  ...runningOptions.fields,
  /** Whether the sum or product of no element stands before the others; it does not by default. */
  includeInitial: optional("flag"),
});

/** Options of {@link cumulativeSum} and {@link cumulativeProd}. */
export interface CumulativeOptions extends OptionsOf<typeof cumulativeOptions> {}

function cumulative(
  name: string,
  run: typeof cumsum,
  initial: number,
  typeOf: (dtype: DType) => DType,
): (value: TensorLike, dim?: number | null, options?: CumulativeOptions) => Tensor {
  return (value, dim, options = {}) => {
    const given = cumulativeOptions.read(options, name);
    const x = asTensor(value, name);
    if (x.ndim !== 1 && (dim === undefined || dim === null)) {
      throw new DimError(`[${name}] a tensor of ${x.ndim} dims needs the dim to compute along`);
    }
    const d = normalizeDim(dim ?? 0, x.ndim, name);
    const totals = run(x, d, { dtype: given.dtype ?? typeOf(x.dtype) });
    if (!given.includeInitial) return totals;
    const first = ops.full(
      x.shape.map((size, i) => (i === d ? 1 : size)),
      initial,
      totals.dtype,
    );
    return ops.concatenate([first, totals], d);
  };
}

/**
 * Running sums along a dim, which a tensor of one dim need not name; narrow integers are counted in 32 bits.
 *
 * @example
 * ```ts
 * np.cumulativeSum(np.array([1, 2, 3])); // [1, 3, 6]
 * ```
 */
export const cumulativeSum = cumulative("cumulativeSum", cumsum, 0, totalType);
/**
 * Running products along a dim, which a tensor of one dim need not name.
 *
 * @example
 * ```ts
 * np.cumulativeProd(np.array([1, 2, 3])); // [1, 2, 6]
 * ```
 */
export const cumulativeProd = cumulative("cumulativeProd", cumprod, 1, numberType);

/**
 * The differences of neighbours along a dim, taken `n` times.
 *
 * @example
 * ```ts
 * np.diff(np.array([1, 4, 9])); // [3, 5]
 * ```
 */
export function diff(value: TensorLike, n = 1, dim = -1): Tensor {
  needIfGiven("number", n, "n", "diff");
  needIfGiven("number", dim, "dim", "diff");
  if (!Number.isInteger(n) || n < 0) throw new ValueError(`[diff] n = ${n} must be an integer of at least 0`);
  let x = asTensor(value, "diff");
  const d = normalizeDim(dim, x.ndim, "diff");
  for (let i = 0; i < n && at(x.shape, d) > 0; i++) {
    const [later, earlier] = [
      ops.sliceDim(x, d, 1, at(x.shape, d)),
      ops.sliceDim(x, d, 0, at(x.shape, d) - 1),
    ];
    x = x.dtype === "bool" ? notEqual(later, earlier) : subtract(later, earlier);
  }
  return x;
}

const averageOptions = schema({ ...keepdimsOptions.fields, weights: optional(tensorLikeKind) });

/**
 * The mean with weights: a tensor like x, or a vector along one dim.
 *
 * @example
 * ```ts
 * np.average(np.array([1, 4]), 0, { weights: np.array([3, 1]) }); // 1.75
 * ```
 */
export function average(value: TensorLike, dim?: Dims, options?: OptionsOf<typeof averageOptions>): Tensor {
  const { weights, keepdims } = averageOptions.read(options, "average");
  if (weights === undefined) return averaging("average")(value, dim, { keepdims });
  const x = asFloat(value, "average");
  let w = asTensor(weights, "average");
  if (w.ndim === 1 && x.ndim > 1) {
    if (typeof dim !== "number" || at(x.shape, normalizeDim(dim, x.ndim, "average")) !== w.size) {
      throw new ShapeError(
        `[average] weights ${formatType(w.type)} need one dim of ${formatType(x.type)} with ${w.size} elements: pass that dim`,
      );
    }
    const d = normalizeDim(dim, x.ndim, "average");
    w = ops.reshape(
      w,
      x.shape.map((n, i) => (i === d ? n : 1)),
    );
  }
  const weighted = multiply(x, w);
  const total = sum(expandTo(w, weighted.shape), dim, { keepdims });
  return divide(sum(weighted, dim, { keepdims }), total);
}

const covOptions = schema({
  /** Whether variables are rows (true, by default) or columns. */
  rowvar: true,
  /** What is taken from the number of observations in the divisor; 1 by default. */
  ddof: 1,
});

/** Options of {@link cov}. */
export interface CovOptions extends OptionsOf<typeof covOptions> {}

/**
 * The covariances of variables, each with its observations along a row; a scalar of one variable.
 *
 * @example
 * ```ts
 * np.cov(np.array([[1, 2, 3], [2, 4, 6]])); // [[1, 2], [2, 4]]
 * ```
 */
export function cov(value: TensorLike, options?: CovOptions): Tensor {
  const { rowvar, ddof } = covOptions.read(options, "cov");
  const x = asInexact(value, "cov");
  if (x.ndim > 2) throw new ShapeError(`[cov] takes a vector or a matrix, got ${formatType(x.type)}`);
  const rows = x.ndim < 2 ? ops.reshape(x, [1, x.size]) : rowvar ? x : ops.transpose(x, [1, 0]);
  const centred = subtract(rows, mean(rows, 1, { keepdims: true }));
  const product = matmul(centred, conj(ops.transpose(centred, [1, 0])));
  const result = divide(product, at(rows.shape, 1) - ddof);
  return rows.shape[0] === 1 ? ops.reshape(result, []) : result;
}

const corrcoefSchema = schema(pick(covOptions.fields, "rowvar"));

/**
 * The correlations of variables, each with its observations along a row; a scalar of one variable.
 *
 * @example
 * ```ts
 * np.corrcoef(np.array([[1, 2, 3], [2, 4, 6]])); // [[1, 1], [1, 1]]
 * ```
 */
export function corrcoef(value: TensorLike, options?: Pick<CovOptions, "rowvar">): Tensor {
  const { rowvar } = corrcoefSchema.read(options, "corrcoef");
  const c = cov(value, { rowvar });
  if (c.ndim === 0) return divide(c, c);
  const deviations = sqrt(real(diagonal(c)));
  const scaled = divide(divide(c, ops.reshape(deviations, [deviations.size, 1])), deviations);
  const clipped = (part: Tensor) => minimum(maximum(part, -1), 1);
  if (!scaled.parts) return clipped(scaled);
  const [re, im] = scaled.parts;
  return Tensor.complex(clipped(re), clipped(im));
}
