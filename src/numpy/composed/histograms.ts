/** Counts of elements in bins. */

import { arrayOf, either, integerFrom } from "../../ir/arguments.js";
import type { DType } from "../../ir/dtype.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, pick, schema } from "../../ir/schema.js";
import { at, formatType, sizeOf, range as upTo } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { type TensorLike, tensorKind, tensorLikeKind } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { linspace } from "../arrays/creation.js";
import { stack } from "../arrays/joining.js";
import { add, divide, multiply, subtract } from "../elementwise/arithmetic.js";
import { equal, where } from "../elementwise/logic.js";
import { take } from "../indexing/take.js";
import { asFloat, pair } from "../operands.js";
import { sum } from "../reductions/reductions.js";
import { searchsorted } from "../reductions/sorting.js";
import { diff } from "../statistics/statistics.js";
import { ix } from "./grids.js";

/** The number of bins, or their bounds. */
export type Bins = number | Tensor;

const binsKind = either(integerFrom(1), tensorKind);
const binsOfDims = arrayOf(binsKind, "numbers of bins or tensors of their bounds");

/** The lower bound of the first bin and the upper one of the last. */
export type BinRange = readonly [low: number, high: number];

const countOptions = schema({
  /** What each element counts; 1 by default. */
  weights: optional(tensorLikeKind),
  /** Whether to divide by the total and by the sizes of the bins, so that the integral is 1. */
  density: optional("flag"),
});

/** How elements are counted. */
export interface CountOptions extends OptionsOf<typeof countOptions> {}

const histogramOptions = schema({
  ...countOptions.fields,
  /** The number of bins, or their bounds; 10 by default. */
  bins: optional(binsKind, 10),
  /** The lower bound of the first bin and the upper one of the last; those of the data by default. */
  range: optional<BinRange>("numbers"),
});

/** Options of {@link histogram}. */
export interface HistogramOptions extends OptionsOf<typeof histogramOptions> {}

const histogramGridOptions = schema({
  ...countOptions.fields,
  /** The number of bins along every dim, or bins for each dim; 10 by default. */
  bins: optional(either(integerFrom(1), binsOfDims), 10),
  /** The bounds of the bins for each dim; those of the data where there is `null`. */
  range: optional<readonly (BinRange | null)[]>("list"),
});

/** Options of {@link histogram2d} and {@link histogramdd}. */
export interface HistogramGridOptions extends OptionsOf<typeof histogramGridOptions> {}

/**
 * How many elements fall into each bin, and the bounds of the bins.
 *
 * ```ts
 * const [counts, edges] = np.histogram(x, { bins: 20, density: true });
 * ```
 *
 * @example
 * ```ts
 * np.histogram(np.array([1, 2, 2, 3]), { bins: 2 }); // [[1, 3], [1, 2, 3]]
 * ```
 */
export function histogram(
  value: TensorLike,
  options: HistogramOptions = {},
): [counts: Tensor, edges: Tensor] {
  const { bins, range, weights } = histogramOptions.read(options, "histogram");
  const x = asFloat(value, "histogram");
  const flat = ops.reshape(x, [x.size]);
  const edges = histogramBinEdges(flat, { bins, range });
  const counts = countIn(
    [binOf(flat, edges)],
    [edges.size - 1],
    amountsOf(weights, x.size, x.dtype, "histogram"),
  );
  return [options.density ? densityOf(counts, [edges]) : counts, edges];
}

const histogramBinEdgesSchema = schema(pick(histogramOptions.fields, "bins", "range"));

/**
 * The bounds of the bins of {@link histogram}.
 *
 * @example
 * ```ts
 * np.histogramBinEdges(np.array([0, 1, 4]), { bins: 2 }); // [0, 2, 4]
 * ```
 */
export function histogramBinEdges(
  value: TensorLike,
  options?: Pick<HistogramOptions, "bins" | "range">,
): Tensor {
  const { bins, range: bounds } = histogramBinEdgesSchema.read(options, "histogramBinEdges");
  if (typeof bins !== "number") return asFloat(bins, "histogramBinEdges");
  const x = asFloat(value, "histogramBinEdges");
  const flat = ops.reshape(x, [x.size]);
  const [low, high] = bounds ?? [ops.reduceMin(flat, [0]), ops.reduceMax(flat, [0])];
  const [from, to] = pair(low, high, "histogram");
  // Bins of no width would hold nothing.
  const narrow = equal(from, to);
  const start = where(narrow, subtract(from, 0.5), from);
  const end = where(narrow, add(to, 0.5), to);
  return linspace(start, end, bins + 1);
}

/** The bin of each element of a vector; the number of bins, or −1, for those in none. */
function binOf(x: Tensor, edges: Tensor): Tensor {
  const count = edges.size - 1;
  const place = searchsorted(edges, x, { side: "right" }).sub(1);
  const last = take(edges, ops.full([], count, "int32"), 0);
  // The last bin includes its upper bound.
  return where(equal(x, last), count - 1, place);
}

/** What each of n elements counts: 1 of a data type unless there are weights. */
function amountsOf(weights: TensorLike | undefined, n: number, dtype: DType, caller: string): Tensor {
  if (weights === undefined) return ops.full([n], 1, dtype);
  const amounts = asFloat(weights, caller);
  if (amounts.size === n) return ops.reshape(amounts, [n]);
  throw new ShapeError(
    `[${caller}] ${formatType(amounts.type)} gives ${amounts.size} weights for ${n} elements`,
  );
}

/** The amounts in each place of a grid of bins, given an index for each dim; what lies outside counts nowhere. */
function countIn(places: readonly Tensor[], sizes: readonly number[], amounts: Tensor): Tensor {
  const isInside = places
    .map((place, d) => ops.and(ops.compare("ge", place, 0), ops.compare("lt", place, at(sizes, d))))
    .reduce((all, one) => ops.and(all, one));
  const flat = places.reduce((before, place, d) => add(multiply(before, at(sizes, d)), place));
  const total = sizeOf(sizes);
  const counts = ops.scatter(ops.full([total], 0, amounts.dtype), where(isInside, flat, total), amounts, {
    dim: 0,
    batchDims: 0,
    combine: "add",
  });
  return ops.reshape(counts, sizes);
}

/** Counts divided by their total and by the sizes of the bins. */
function densityOf(counts: Tensor, edges: readonly Tensor[]): Tensor {
  const widths = ix(...edges.map((bounds) => diff(bounds)));
  return widths.reduce((shares, width) => divide(shares, width), divide(counts, sum(counts)));
}

const histogram2dOptions = schema({
  ...histogramGridOptions.fields,
  bins: optional(either(binsKind, binsOfDims), 10),
});

/**
 * How many points (x, y) fall into each bin of a grid, and the bounds of the bins of x and of y.
 *
 * @example
 * ```ts
 * const [counts, xEdges] = np.histogram2d(np.array([0, 1, 2]), np.array([0, 1, 1]), { bins: 2 });
 * [counts, xEdges]; // [[[1, 0], [0, 2]], [0, 1, 2]]
 * ```
 */
export function histogram2d(
  x: TensorLike,
  y: TensorLike,
  options?: OptionsOf<typeof histogram2dOptions>,
): [counts: Tensor, xEdges: Tensor, yEdges: Tensor] {
  const [a, b] = [asFloat(x, "histogram2d"), asFloat(y, "histogram2d")];
  if (a.ndim !== 1 || b.ndim !== 1 || a.size !== b.size) {
    throw new ShapeError(
      `[histogram2d] takes two vectors of the same length, got ${formatType(a.type)} and ${formatType(b.type)}`,
    );
  }
  const { bins, ...rest } = histogram2dOptions.read(options, "histogram2d");
  const [counts, edges] = histogramdd(stack(pair(a, b, "histogram2d"), 1), {
    ...rest,
    bins: bins instanceof Tensor ? [bins, bins] : bins,
  });
  return [counts, at(edges, 0), at(edges, 1)];
}

/**
 * How many points fall into each bin of a grid, and the bounds of the bins along each dim.
 *
 * @param sample [points, dims]
 *
 * @example
 * ```ts
 * const [counts, edges] = np.histogramdd(np.array([[0, 0], [1, 1], [2, 1]]), { bins: [2, 2] });
 * [counts, edges]; // [[[1, 0], [0, 2]], [[0, 1, 2], [0, 0.5, 1]]]
 * ```
 */
export function histogramdd(
  sample: TensorLike,
  options: HistogramGridOptions = {},
): [counts: Tensor, edges: Tensor[]] {
  const { bins, range, weights } = histogramGridOptions.read(options, "histogramdd");
  const points = asFloat(sample, "histogramdd");
  const [n, numDims] = points.shape;
  if (n === undefined || numDims === undefined || points.ndim !== 2) {
    throw new ShapeError(`[histogramdd] takes [points, dims], got ${formatType(points.type)}`);
  }
  for (const [name, list] of [
    ["bins", bins],
    ["range", range],
  ] as const) {
    if (typeof list === "number" || list === undefined || list.length === numDims) continue;
    throw new ValueError(
      `[histogramdd] ${name} has ${list.length} entries for ${numDims} dims: give one for each`,
    );
  }
  const columns = upTo(numDims).map((d) => ops.reshape(ops.sliceDim(points, 1, d, d + 1), [n]));
  const edges = columns.map((column, d) =>
    histogramBinEdges(column, {
      bins: typeof bins === "number" ? bins : at(bins, d),
      range: range?.[d] ?? undefined,
    }),
  );
  const counts = countIn(
    columns.map((column, d) => binOf(column, at(edges, d))),
    edges.map((bounds) => bounds.size - 1),
    amountsOf(weights, n, "int32", "histogramdd"),
  );
  return [options.density ? densityOf(counts, edges) : counts, edges];
}
