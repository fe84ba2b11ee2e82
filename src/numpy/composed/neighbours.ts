/** Functions of neighbouring elements: filters, interpolation, slopes and areas. */

import { either, oneOf } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, normalizeDim } from "../../ir/shape.js";
import { sortWithIndices } from "../../lax/sorting.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike, tensorLikeKind } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { concatenate } from "../arrays/joining.js";
import { flip } from "../arrays/shaping.js";
import { add, clip, divide, mod, multiply, subtract } from "../elementwise/arithmetic.js";
import { conj } from "../elementwise/complex.js";
import { abs } from "../elementwise/elementwise.js";
import { equal, greater, less, logicalAnd, where } from "../elementwise/logic.js";
import { take } from "../indexing/take.js";
import { matmul } from "../linalg/contraction.js";
import { asFloat, asInexact, asTensor, inexactType, toType } from "../operands.js";
import { sum } from "../reductions/reductions.js";
import { searchsorted } from "../reductions/sorting.js";
import { cumsum, diff } from "../statistics/statistics.js";
import { pad } from "./pad.js";

/** Which part of a filtered vector to return: every overlap, as many as the longer one has, or only complete ones. */
export type ConvolveMode = "full" | "same" | "valid";

function requireVector(x: Tensor, caller: string): Tensor {
  if (x.ndim === 1 && x.size > 0) return x;
  throw new ShapeError(`[${caller}] takes vectors with elements, got ${formatType(x.type)}`);
}

/** Two vectors of one type, which as in JAX is float32 for integers. */
function floatVectors(x: TensorLike, y: TensorLike, caller: string): [Tensor, Tensor] {
  const dtype = inexactType(operandType(x, y));
  const vector = (value: TensorLike) => requireVector(toType(value, dtype, caller), caller);
  return [vector(x), vector(y)];
}

/**
 * The discrete convolution of two vectors, as floats.
 *
 * @example
 * ```ts
 * np.convolve(np.array([1, 2, 3]), np.array([1, 1])); // [1, 3, 5, 3]
 * ```
 */
export function convolve(x: TensorLike, y: TensorLike, mode: ConvolveMode = "full"): Tensor {
  const [a, b] = floatVectors(x, y, "convolve");
  const [signal, filter] = a.size >= b.size ? [a, b] : [b, a];
  return slide(signal, flip(filter), mode, "convolve");
}

/**
 * The cross-correlation of two vectors, as floats: the second, conjugated, slides along the first.
 *
 * @example
 * ```ts
 * np.correlate(np.array([1, 2, 3]), np.array([0, 1])); // [2, 3]
 * ```
 */
export function correlate(x: TensorLike, y: TensorLike, mode: ConvolveMode = "valid"): Tensor {
  const [a, given] = floatVectors(x, y, "correlate");
  const b = conj(given);
  // A longer second vector slides the other way round.
  return a.size >= b.size ? slide(a, b, mode, "correlate") : flip(slide(b, a, mode, "correlate"));
}

/** The products of a filter with every window of a signal that is at least as long. */
function slide(signal: Tensor, filter: Tensor, mode: ConvolveMode, caller: string): Tensor {
  const [n, m] = [signal.size, filter.size];
  const around: Readonly<Record<ConvolveMode, readonly [number, number]>> = {
    full: [m - 1, m - 1],
    same: [Math.floor(m / 2), m - 1 - Math.floor(m / 2)],
    valid: [0, 0],
  };
  const widths = typeof mode === "string" && Object.hasOwn(around, mode) ? around[mode] : undefined;
  if (!widths)
    throw new ValueError(`[${caller}] unknown mode ${describe(mode)}: use "full", "same" or "valid"`);
  const padded = pad(signal, [[widths[0], widths[1]]]);
  const length = n + widths[0] + widths[1] - m + 1;
  const starts = ops.iota("int32", [length, m], 0);
  const windows = take(padded, ops.add(starts, ops.iota("int32", [length, m], 1)), 0, { mode: "clip" });
  return matmul(windows, filter);
}

const interpOptions = schema({
  /** The value left of all points, or `extrapolate` for that of the first line; that of the first point by default. */
  left: optional(either(tensorLikeKind, oneOf("extrapolate"))),
  /** The value right of all points, or `extrapolate` for that of the last line; that of the last point by default. */
  right: optional(either(tensorLikeKind, oneOf("extrapolate"))),
  /** The period after which the points repeat; they may then be in any order, and `left` and `right` have no effect. */
  period: optional(tensorLikeKind),
});

/** Options of {@link interp}. */
export interface InterpOptions extends OptionsOf<typeof interpOptions> {}

/**
 * The value at `x` of the line through points with rising `xp` and values `fp`.
 *
 * ```ts
 * np.interp(angles, np.array([0, 120, 240]), values, { period: 360 })
 * ```
 *
 * @example
 * ```ts
 * np.interp(np.array([1.5]), np.array([1, 2]), np.array([10, 20])); // [15]
 * ```
 */
export function interp(x: TensorLike, xp: TensorLike, fp: TensorLike, options?: InterpOptions): Tensor {
  const { left, right, period } = interpOptions.read(options, "interp");
  const given = requireVector(asFloat(xp, "interp"), "interp");
  const heights = requireVector(asFloat(fp, "interp"), "interp");
  if (given.size !== heights.size) {
    throw new ShapeError(`[interp] ${given.size} points but ${heights.size} values`);
  }
  const [wanted, points, values] =
    period === undefined
      ? [asFloat(x, "interp"), given, heights]
      : repeatedPoints(asFloat(x, "interp"), given, heights, period);
  const last = points.size - 1;
  const high = clip(searchsorted(points, wanted, { side: "right" }), Math.min(1, last), last);
  const low = ops.max(ops.sub(high, 1), 0);
  const at0 = (from: Tensor) => take(from, low, 0, { mode: "clip" });
  const at1 = (from: Tensor) => take(from, high, 0, { mode: "clip" });
  const width = subtract(at1(points), at0(points));
  const share = where(
    equal(width, 0),
    0,
    divide(subtract(wanted, at0(points)), where(equal(width, 0), 1, width)),
  );
  const between = add(at0(values), multiply(share, subtract(at1(values), at0(values))));
  if (period !== undefined) return between;
  const outside = (is: Tensor, end: typeof left, index: number, inside: Tensor) =>
    end === "extrapolate" ? inside : where(is, end ?? take(values, ops.full([], index, "int32"), 0), inside);
  const first = take(points, ops.full([], 0, "int32"), 0);
  const end = take(points, ops.full([], last, "int32"), 0);
  return outside(less(wanted, first), left, 0, outside(greater(wanted, end), right, last, between));
}

/** Places within one period, and points that surround all of it. */
function repeatedPoints(
  x: Tensor,
  xp: Tensor,
  fp: Tensor,
  period: TensorLike,
): [wanted: Tensor, points: Tensor, values: Tensor] {
  const length = abs(asFloat(period, "interp"));
  if (length.ndim !== 0)
    throw new ShapeError(`[interp] period must be a scalar, got ${formatType(length.type)}`);
  const [points, order] = sortWithIndices(mod(xp, length), 0, false);
  const values = take(fp, order, 0, { mode: "clip" });
  const part = (of: Tensor, from: number, to: number) => ops.sliceDim(of, 0, from, to);
  const n = points.size;
  return [
    mod(x, length),
    concatenate([subtract(part(points, n - 1, n), length), points, add(part(points, 0, 1), length)]),
    concatenate([part(values, n - 1, n), values, part(values, 0, 1)]),
  ];
}

/**
 * The slopes along a dim of values with a distance between neighbours, by central differences inside.
 *
 * @example
 * ```ts
 * np.gradient(np.array([1, 4, 9])); // [3, 4, 5]
 * ```
 */
export function gradient(value: TensorLike, spacing = 1, dim = -1): Tensor {
  const x = asInexact(value, "gradient");
  const d = normalizeDim(dim, x.ndim, "gradient");
  const n = at(x.shape, d);
  if (n < 2) throw new ShapeError(`[gradient] needs 2 elements along dim ${d}, got ${formatType(x.type)}`);
  const part = (from: number, to: number) => ops.sliceDim(x, d, from, to);
  const parts = [
    divide(subtract(part(1, 2), part(0, 1)), spacing),
    divide(subtract(part(2, n), part(0, n - 2)), 2 * spacing),
    divide(subtract(part(n - 1, n), part(n - 2, n - 1)), spacing),
  ];
  return concatenate(n === 2 ? [at(parts, 0), at(parts, 2)] : parts, d);
}

const trapezoidOptions = schema({
  /** Where the values lie, a vector along the dim; `dx` apart by default. */
  x: optional(tensorLikeKind),
  /** The distance of neighbours; 1 by default. */
  dx: 1,
  /** The dim along which the area is taken; the last by default. */
  dim: -1,
});

/** Options of {@link trapezoid}. */
export interface TrapezoidOptions extends OptionsOf<typeof trapezoidOptions> {}

/**
 * The area under values, by the trapezoidal rule.
 *
 * @example
 * ```ts
 * np.trapezoid(np.array([1, 2, 3])); // 4
 * ```
 */
export function trapezoid(value: TensorLike, options?: TrapezoidOptions): Tensor {
  const { x, dx, dim } = trapezoidOptions.read(options, "trapezoid");
  const y = asInexact(value, "trapezoid");
  const d = normalizeDim(dim, y.ndim, "trapezoid");
  const n = at(y.shape, d);
  const means = multiply(add(ops.sliceDim(y, d, 1, n), ops.sliceDim(y, d, 0, n - 1)), 0.5);
  if (x === undefined) return multiply(sum(means, d), dx);
  const widths = diff(asInexact(x, "trapezoid"));
  const shaped =
    widths.ndim === y.ndim
      ? widths
      : ops.reshape(
          widths,
          y.shape.map((_, i) => (i === d ? n - 1 : 1)),
        );
  return sum(multiply(means, shaped), d);
}

/**
 * Angles along a dim with the jumps of more than half a period taken out.
 *
 * @example
 * ```ts
 * np.unwrap(np.array([0, 6.2])); // [0, -0.08319]
 * ```
 */
export function unwrap(value: TensorLike, dim = -1, period = 2 * Math.PI): Tensor {
  const x = asFloat(value, "unwrap");
  const d = normalizeDim(dim, x.ndim, "unwrap");
  const n = at(x.shape, d);
  if (n < 2) return x;
  const steps = diff(x, 1, d);
  const inside = subtract(mod(add(steps, period / 2), period), period / 2);
  const upper = logicalAnd(equal(inside, -period / 2), greater(steps, 0));
  const wrapped = where(upper, period / 2, inside);
  const jumps = where(less(abs(steps), period / 2), 0, subtract(wrapped, steps));
  const rest = add(ops.sliceDim(x, d, 1, n), cumsum(jumps, d));
  return concatenate([ops.sliceDim(x, d, 0, 1), rest], d);
}

/**
 * The differences of neighbours of the flattened tensor.
 *
 * @example
 * ```ts
 * np.ediff1d(np.array([1, 4, 9])); // [3, 5]
 * ```
 */
export function ediff1d(value: TensorLike): Tensor {
  const x = asTensor(value, "ediff1d");
  return diff(ops.reshape(x, [x.size]));
}
