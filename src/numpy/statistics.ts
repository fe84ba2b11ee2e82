/** Running reductions, weighted means, quantiles, and reductions that leave NaN out. */
import { need, needIfGiven } from "../ir/arguments.js";
import { type DType, isComplex, isFloat } from "../ir/dtype.js";
import { DimError, ShapeError, ValueError } from "../ir/errors.js";
import { checkOptions } from "../ir/options.js";
import { at, formatType, normalizeDim, normalizeDims, range, sizeOf } from "../ir/shape.js";
import { runningReduce } from "../lax/sorting.js";
import * as ops from "../trace/ops.js";
import type { TensorLike } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { add, divide, maximum, minimum, multiply, subtract } from "./arithmetic.js";
import { conj } from "./complex.js";
import { matmul } from "./contraction.js";
import { diagonal } from "./diagonals.js";
import { floor, isnan, sqrt } from "./elementwise.js";
import { stack } from "./joining.js";
import { equal, notEqual, where } from "./logic.js";
import {
  asFloat,
  asInexact,
  asTensor,
  cast,
  type Dims,
  dtypeOf,
  expandTo,
  numberType,
  refuseComplex,
  totalType,
} from "./operands.js";
import {
  all,
  argmax,
  argmin,
  type KeepdimsOptions,
  max,
  mean,
  min,
  prod,
  restoreDims,
  sum,
  variance,
} from "./reductions.js";
import { takeAlongAxis } from "./take.js";

/** Options of {@link cumsum} and {@link cumprod}. */
export interface RunningOptions {
  readonly dtype?: DType | undefined;
}

function running(
  name: string,
  compute: (x: Tensor, dim: number) => Tensor,
): (value: TensorLike, dim?: number | null, options?: RunningOptions) => Tensor {
  return (value, dim, options) => {
    const operand = asTensor(value, name);
    const x = cast(operand, dtypeOf(options, name) ?? numberType(operand.dtype));
    if (dim === undefined || dim === null) return compute(ops.reshape(x, [x.size]), 0);
    return compute(x, normalizeDim(dim, x.ndim, name));
  };
}

/** Running sums along a dim, of the flattened tensor when no dim is given. */
export const cumsum = running("cumsum", (x, dim) => ops.cumsum(x, dim));
/** Running products along a dim, of the flattened tensor when no dim is given. */
export const cumprod = running("cumprod", (x, dim) => runningReduce(x, dim, ops.mul, 1));

/** Options of {@link cumulativeSum} and {@link cumulativeProd}. */
export interface CumulativeOptions extends RunningOptions {
  /** Whether the sum or product of no element stands before the others; it does not by default. */
  readonly includeInitial?: boolean | undefined;
}

function cumulative(
  name: string,
  run: typeof cumsum,
  initial: number,
  typeOf: (dtype: DType) => DType,
): (value: TensorLike, dim?: number | null, options?: CumulativeOptions) => Tensor {
  return (value, dim, options = {}) => {
    checkOptions<CumulativeOptions>(options, { dtype: true, includeInitial: "flag" }, name);
    const x = asTensor(value, name);
    if (x.ndim !== 1 && (dim === undefined || dim === null)) {
      throw new DimError(`[${name}] a tensor of ${x.ndim} dims needs a dim to go along`);
    }
    const d = normalizeDim(dim ?? 0, x.ndim, name);
    const totals = run(x, d, { dtype: dtypeOf(options, name) ?? typeOf(x.dtype) });
    if (!options.includeInitial) return totals;
    const first = ops.full(
      x.shape.map((size, i) => (i === d ? 1 : size)),
      initial,
      totals.dtype,
    );
    return ops.concatenate([first, totals], d);
  };
}

/** Running sums along a dim, which a tensor of one dim need not name; narrow integers are counted in 32 bits. */
export const cumulativeSum = cumulative("cumulativeSum", cumsum, 0, totalType);
/** Running products along a dim, which a tensor of one dim need not name. */
export const cumulativeProd = cumulative("cumulativeProd", cumprod, 1, numberType);

/** The differences of neighbours along a dim, taken `n` times. */
export function diff(value: TensorLike, n = 1, dim = -1): Tensor {
  needIfGiven("number", n, "n", "diff");
  needIfGiven("number", dim, "dim", "diff");
  if (!Number.isInteger(n) || n < 0) throw new ValueError(`[diff] n = ${n} must be an integer from 0`);
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

/** The mean with weights: a tensor like x, or a vector along one dim. */
export function average(
  value: TensorLike,
  dim?: Dims,
  options: KeepdimsOptions & { readonly weights?: TensorLike | undefined } = {},
): Tensor {
  checkOptions<KeepdimsOptions & { readonly weights?: TensorLike | undefined }>(
    options,
    { weights: true, keepdims: true },
    "average",
  );
  const { weights, keepdims } = options;
  if (weights === undefined) return mean(value, dim, { keepdims });
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

/** The elements along some dims as one sorted dim at the end, and the shape of the other dims. */
function sortedAlong(value: TensorLike, dim: Dims | undefined, caller: string) {
  const x = asFloat(value, caller);
  const dims = normalizeDims(dim, x.ndim, caller);
  const kept = range(x.ndim).filter((d) => !dims.includes(d));
  const shape = kept.map((d) => at(x.shape, d));
  const n = sizeOf(dims.map((d) => at(x.shape, d)));
  if (n === 0) throw new ShapeError(`[${caller}] ${formatType(x.type)} has no elements along dims [${dims}]`);
  const flat = ops.reshape(ops.transpose(x, [...kept, ...dims]), [...shape, n]);
  return { x, dims, shape, n, sorted: at(ops.sort([flat], shape.length), 0) };
}

type Sorted = ReturnType<typeof sortedAlong>;

/** One part of the elements, from 0 to 1 or in percent, or several: then results are stacked along a first dim. */
export type Quantiles = number | readonly number[];

/** A function of quantiles. */
interface QuantileKind {
  readonly caller: string;
  /** What all elements are: 1, or 100 in percent. */
  readonly whole: number;
  /** Makes what finds the value below which a part of sorted elements lies. */
  readonly finder: (along: Sorted) => (part: number) => Tensor;
}

/** The quantiles of elements along some dims, which are sorted once. */
function quantilesOf(
  { caller, whole, finder }: QuantileKind,
  value: TensorLike,
  q: Quantiles,
  dim: Dims | undefined,
  options: KeepdimsOptions,
): Tensor {
  checkOptions<KeepdimsOptions>(options, { keepdims: true }, caller);
  const parts = checkQuantiles(q, whole, caller).map((one) => one / whole);
  const along = sortedAlong(value, dim, caller);
  const find = finder(along);
  const results = parts.map((part) => restoreDims(find(part), along.x, along.dims, options.keepdims));
  return typeof q === "number" ? at(results, 0) : stack(results);
}

/** All q of an argument, each of which lies between 0 and `whole`. */
function checkQuantiles(q: Quantiles, whole: number, caller: string): readonly number[] {
  if (typeof q === "number") need("number", q, "q", caller);
  else need("numbers", q, "q", caller);
  const list = typeof q === "number" ? [q] : [...q];
  if (list.length === 0) throw new ValueError(`[${caller}] q is an empty list: pass at least one number`);
  const outside = list.find((one) => !(one >= 0 && one <= whole));
  if (outside !== undefined)
    throw new ValueError(`[${caller}] q = ${outside} must lie between 0 and ${whole}`);
  return list;
}

/**
 * The value below which the part `q` (0 … 1) of the elements lies, interpolated; NaN if there is a NaN. Several `q` give
 * as many values along a first dim.
 */
export function quantile(value: TensorLike, q: Quantiles, dim?: Dims, options: KeepdimsOptions = {}): Tensor {
  return quantilesOf({ caller: "quantile", whole: 1, finder: inAll }, value, q, dim, options);
}

/** {@link quantile} with q in percent. */
export function percentile(x: TensorLike, q: Quantiles, dim?: Dims, options: KeepdimsOptions = {}): Tensor {
  return quantilesOf({ caller: "percentile", whole: 100, finder: inAll }, x, q, dim, options);
}

function inAll({ shape, n, sorted }: Sorted): (part: number) => Tensor {
  const element = (i: number) => ops.reshape(ops.sliceDim(sorted, shape.length, i, i + 1), shape);
  const hasNan = isnan(element(n - 1));
  return (part) => {
    const position = part * (n - 1);
    const low = Math.floor(position);
    const fraction = position - low;
    const below = element(low);
    const result =
      fraction === 0
        ? below
        : ops.add(ops.mul(below, 1 - fraction), ops.mul(element(Math.ceil(position)), fraction));
    return where(hasNan, Number.NaN, result);
  };
}

/** The middle of the sorted elements, or the mean of the middle two. */
export function median(x: TensorLike, dim?: Dims, options: KeepdimsOptions = {}): Tensor {
  return quantile(x, 0.5, dim, options);
}

/** The sum of the elements that are not NaN. */
export function nansum(x: TensorLike, dim?: Dims, options: KeepdimsOptions = {}): Tensor {
  return sum(where(isnan(x), 0, x), dim, options);
}

/** The mean of the elements that are not NaN. */
export function nanmean(x: TensorLike, dim?: Dims, options: KeepdimsOptions = {}): Tensor {
  const tensor = asTensor(x, "nanmean");
  return isFloat(tensor.dtype) || isComplex(tensor.dtype)
    ? divide(nansum(tensor, dim, options), sum(ops.not(isnan(tensor)), dim, options))
    : mean(tensor, dim, options);
}

/** The largest element that is not NaN; NaN where there is none. */
export function nanmax(x: TensorLike, dim?: Dims, options: KeepdimsOptions = {}): Tensor {
  checkOptions<KeepdimsOptions>(options, { keepdims: true }, "nanmax");
  return withoutNan(x, dim, options, Number.NEGATIVE_INFINITY, max, "nanmax");
}

/** The smallest element that is not NaN; NaN where there is none. */
export function nanmin(x: TensorLike, dim?: Dims, options: KeepdimsOptions = {}): Tensor {
  return withoutNan(x, dim, options, Number.POSITIVE_INFINITY, min, "nanmin");
}

function withoutNan(
  value: TensorLike,
  dim: Dims | undefined,
  options: KeepdimsOptions,
  filler: number,
  reduce: typeof max,
  caller: string,
): Tensor {
  const x = asTensor(value, caller);
  refuseComplex(x, caller);
  if (!isFloat(x.dtype)) return reduce(x, dim, options);
  const nan = isnan(x);
  return where(all(nan, dim, options), Number.NaN, reduce(where(nan, filler, x), dim, options));
}

/** The product of the elements that are not NaN. */
export function nanprod(x: TensorLike, dim?: Dims, options: KeepdimsOptions = {}): Tensor {
  return prod(where(isnan(x), 1, x), dim, options);
}

/** Options of {@link nanvar} and {@link nanstd}. */
export interface NanVarianceOptions extends KeepdimsOptions {
  /** What is taken from the number of elements in the divisor; 0 by default. */
  readonly ddof?: number | undefined;
}

/** The variance of the elements that are not NaN. */
export function nanvar(value: TensorLike, dim?: Dims, options: NanVarianceOptions = {}): Tensor {
  checkOptions<NanVarianceOptions>(options, { ddof: "number", keepdims: true }, "nanvar");
  const x = asFloat(value, "nanvar");
  return variance(x, dim, { ...options, where: ops.not(isnan(x)) });
}

/** The standard deviation of the elements that are not NaN. */
export function nanstd(x: TensorLike, dim?: Dims, options: NanVarianceOptions = {}): Tensor {
  checkOptions<NanVarianceOptions>(options, { ddof: true, keepdims: true }, "nanstd");
  return sqrt(nanvar(x, dim, options));
}

/** The index of the largest element that is not NaN; −1 where there is none. */
export function nanargmax(x: TensorLike, dim?: number | null, options: KeepdimsOptions = {}): Tensor {
  return positionWithoutNan(x, dim, options, Number.NEGATIVE_INFINITY, argmax, "nanargmax");
}

/** The index of the smallest element that is not NaN; −1 where there is none. */
export function nanargmin(x: TensorLike, dim?: number | null, options: KeepdimsOptions = {}): Tensor {
  return positionWithoutNan(x, dim, options, Number.POSITIVE_INFINITY, argmin, "nanargmin");
}

function positionWithoutNan(
  value: TensorLike,
  dim: number | null | undefined,
  options: KeepdimsOptions,
  filler: number,
  find: typeof argmax,
  caller: string,
): Tensor {
  const x = asTensor(value, caller);
  if (!isFloat(x.dtype)) return find(x, dim, options);
  const isMissing = isnan(x);
  return where(all(isMissing, dim, options), -1, find(where(isMissing, filler, x), dim, options));
}

/** {@link quantile} of the elements that are not NaN. */
export function nanquantile(
  value: TensorLike,
  q: Quantiles,
  dim?: Dims,
  options: KeepdimsOptions = {},
): Tensor {
  return quantilesOf({ caller: "nanquantile", whole: 1, finder: inNumbers }, value, q, dim, options);
}

/** {@link nanquantile} with q in percent. */
export function nanpercentile(
  x: TensorLike,
  q: Quantiles,
  dim?: Dims,
  options: KeepdimsOptions = {},
): Tensor {
  return quantilesOf({ caller: "nanpercentile", whole: 100, finder: inNumbers }, x, q, dim, options);
}

/** NaN is sorted to the end, so that the first elements are those that count. */
function inNumbers({ x, shape, sorted }: Sorted): (part: number) => Tensor {
  const count = sum(cast(ops.not(isnan(sorted)), x.dtype), -1, { keepdims: true });
  const last = maximum(subtract(count, 1), 0);
  const element = (place: Tensor) => takeAlongAxis(sorted, cast(place, "int32"), -1, { mode: "clip" });
  return (part) => {
    const position = multiply(last, part);
    const low = floor(position);
    const share = subtract(position, low);
    const [below, above] = [element(low), element(minimum(add(low, 1), last))];
    const between = add(multiply(below, subtract(1, share)), multiply(above, share));
    // An infinite neighbour that has no share would make NaN of the element itself.
    return ops.reshape(where(equal(share, 0), below, between), shape);
  };
}

/** The middle of the sorted elements that are not NaN. */
export function nanmedian(x: TensorLike, dim?: Dims, options: KeepdimsOptions = {}): Tensor {
  return nanquantile(x, 0.5, dim, options);
}

/** Running sums in which NaN counts as 0. */
export function nancumsum(x: TensorLike, dim?: number | null, options: RunningOptions = {}): Tensor {
  return cumsum(where(isnan(x), 0, x), dim, options);
}

/** Running products in which NaN counts as 1. */
export function nancumprod(x: TensorLike, dim?: number | null, options: RunningOptions = {}): Tensor {
  return cumprod(where(isnan(x), 1, x), dim, options);
}

/** Options of {@link cov}. */
export interface CovOptions {
  /** Whether variables are rows (true, by default) or columns. */
  readonly rowvar?: boolean;
  /** What is taken from the number of observations in the divisor; 1 by default. */
  readonly ddof?: number;
}

/** The covariances of variables, each with its observations along a row; a scalar of one variable. */
export function cov(value: TensorLike, options: CovOptions = {}): Tensor {
  checkOptions<CovOptions>(options, { rowvar: true, ddof: "number" }, "cov");
  const { rowvar = true, ddof = 1 } = options;
  const x = asInexact(value, "cov");
  if (x.ndim > 2) throw new ShapeError(`[cov] takes a vector or a matrix, got ${formatType(x.type)}`);
  const rows = x.ndim < 2 ? ops.reshape(x, [1, x.size]) : rowvar ? x : ops.transpose(x, [1, 0]);
  const centred = subtract(rows, mean(rows, 1, { keepdims: true }));
  const product = matmul(centred, conj(ops.transpose(centred, [1, 0])));
  const result = divide(product, at(rows.shape, 1) - ddof);
  return rows.shape[0] === 1 ? ops.reshape(result, []) : result;
}

/** The correlations of variables, each with its observations along a row; a scalar of one variable. */
export function corrcoef(value: TensorLike, options: Pick<CovOptions, "rowvar"> = {}): Tensor {
  checkOptions<Pick<CovOptions, "rowvar">>(options, { rowvar: true }, "corrcoef");
  const { rowvar = true } = options;
  refuseComplex(value, "corrcoef");
  const c = cov(value, { rowvar });
  if (c.ndim === 0) return divide(c, c);
  const deviations = sqrt(diagonal(c));
  const scaled = divide(divide(c, ops.reshape(deviations, [deviations.size, 1])), deviations);
  return minimum(maximum(scaled, -1), 1);
}
