/** Reductions over dims, which disappear from the result unless `keepdims` is set. */

import { dtypeKind, partType } from "../../ir/dtype.js";
import { DTypeError, ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, normalizeDim, normalizeDims, range, sizeOf } from "../../ir/shape.js";
import { reduceProd } from "../../lax/contraction.js";
import { tracedAsOneCall } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { type TensorLike, tensorLikeKind } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { maximum, minimum } from "../elementwise/arithmetic.js";
import { real } from "../elementwise/complex.js";
import { where as choose } from "../elementwise/logic.js";
import {
  asInexact,
  asTensor,
  broadcastShape,
  cast,
  type Dims,
  expandTo,
  floatType,
  inexactType,
  like,
  squaredSize,
  toBool,
  toType,
  totalType,
  wideType,
} from "../operands.js";

/** The schema of {@link KeepdimsOptions}. */
export const keepdimsOptions = schema({
  /** Keeps the reduced dims with size 1, so that the result broadcasts against the operand. */
  keepdims: optional("flag"),
});

/** How a reduction treats the dims it reduces. */
export interface KeepdimsOptions extends OptionsOf<typeof keepdimsOptions> {}

/** The schema of {@link MaskedOptions}. */
export const maskedOptions = schema({
  ...keepdimsOptions.fields,
  /** Which elements take part; it broadcasts against the operand. */
  where: optional(tensorLikeKind),
});

/** Options of reductions that can leave elements out. */
export interface MaskedOptions extends OptionsOf<typeof maskedOptions> {}

const sumOptions = schema({
  ...maskedOptions.fields,
  /** The data type of the result. */
  dtype: optional(dtypeKind),
  /** What the reduction starts from. */
  initial: optional(tensorLikeKind),
});

/** Options of `sum` and `prod`. */
export interface SumOptions extends OptionsOf<typeof sumOptions> {}

/** The schema of {@link ExtremeOptions}. */
export const extremeOptions = schema({
  ...maskedOptions.fields,
  /** A value that takes part besides the elements; needed with `where` and for empty tensors. */
  initial: optional(tensorLikeKind),
});

/** Options of `max` and `min`. */
export interface ExtremeOptions extends OptionsOf<typeof extremeOptions> {}

/** The schema of {@link MeanOptions}. */
export const meanOptions = schema({
  ...maskedOptions.fields,
  /** The data type of the result; that of the tensor by default, float32 for integers. */
  dtype: optional(dtypeKind),
});

/** Options of `mean`. */
export interface MeanOptions extends OptionsOf<typeof meanOptions> {}

/** The schema of {@link VarianceOptions}. */
export const varianceOptions = schema({
  ...meanOptions.fields,
  /** What is subtracted from the count in the divisor: 1 gives the unbiased estimate. */
  ddof: 0,
  /** The mean, if it is known, as `np.mean` gives it with `keepdims`; it broadcasts against the operand. */
  mean: optional(tensorLikeKind),
});

/** Options of `var` and `std`. */
export interface VarianceOptions extends OptionsOf<typeof varianceOptions> {}

/** Puts reduced dims back with size 1. */
export function restoreDims(
  result: Tensor,
  x: Tensor,
  dims: readonly number[],
  keepdims: boolean | undefined,
): Tensor {
  if (!keepdims) return result;
  return ops.reshape(
    result,
    x.shape.map((n, d) => (dims.includes(d) ? 1 : n)),
  );
}

function masked(x: Tensor, mask: TensorLike | undefined, filler: number, caller: string): Tensor {
  if (mask === undefined) return x;
  const condition = toBool(mask, caller);
  const whole = expandTo(x, broadcastShape([x.shape, condition.shape], caller));
  return choose(condition, whole, like(x, filler));
}

type TotalOf = (value: TensorLike, dim?: Dims, options?: SumOptions) => Tensor;

/** Adds or multiplies along dims; errors name a function. @param neutral what masked elements count as */
function totalling(
  name: string,
  reduce: (x: Tensor, dims: readonly number[]) => Tensor,
  combine: (a: Tensor, b: Tensor) => Tensor,
  neutral: number,
): TotalOf {
  return (value, dim, options) => {
    const given = sumOptions.read(options, name);
    const operand = asTensor(value, name);
    const dtype = given.dtype ?? totalType(operand.dtype);
    return tracedAsOneCall(() => {
      const x = masked(cast(operand, wideType(dtype)), given.where, neutral, name);
      const dims = normalizeDims(dim, x.ndim, name);
      const total = restoreDims(reduce(x, dims), x, dims, given.keepdims);
      const { initial } = given;
      return cast(initial === undefined ? total : combine(total, toScalar(initial, total, name)), dtype);
    });
  };
}

/** A sum whose errors name a function. */
export const summing = (name: string): TotalOf => totalling(name, ops.reduceSum, ops.add, 0);

/**
 * The sum; bool and narrow integers are counted in 32 bits, half-width floats are accumulated in float32.
 *
 * @example
 * ```ts
 * np.sum(np.array([[1, 2], [3, 4]]), 1); // [3, 7]
 * ```
 */
export const sum = summing("sum");

/** A product whose errors name a function. */
export const multiplying = (name: string): TotalOf => totalling(name, reduceProd, ops.mul, 1);

/**
 * The product; bool and narrow integers become 32 bits wide, half-width floats are accumulated in float32.
 *
 * @example
 * ```ts
 * np.prod(np.array([2, 3, 4])); // 24
 * ```
 */
export const prod = multiplying("prod");

/** A starting value, which must be a scalar. */
function toScalar(initial: TensorLike, like: Tensor, caller: string): Tensor {
  const scalar = toType(initial, like.dtype, caller);
  if (scalar.ndim !== 0) {
    throw new ShapeError(`[${caller}] initial must be a scalar, got ${formatType(scalar.type)}`);
  }
  return scalar.node.kind === "literal" ? scalar : expandTo(scalar, like.shape);
}

/** An extreme whose errors name a function. */
export function extreme(
  name: string,
  reduce: (x: Tensor, dims: readonly number[]) => Tensor,
  combine: (x: TensorLike, y: TensorLike) => Tensor,
): (value: TensorLike, dim?: Dims, options?: ExtremeOptions) => Tensor {
  return (value, dim, options = {}) => {
    const { keepdims, where: mask, initial } = extremeOptions.read(options, name);
    const operand = asTensor(value, name);
    const dims = normalizeDims(dim, operand.ndim, name);
    if (initial === undefined) {
      if (mask !== undefined) {
        throw new ValueError(
          `[${name}] with \`where\` there may be no element left: pass \`initial\`, the value to return then`,
        );
      }
      const empty = dims.find((d) => operand.shape[d] === 0);
      if (empty !== undefined) {
        throw new ShapeError(
          `[${name}] dim ${empty} of ${formatType(operand.type)} has size 0, so it has no largest or smallest element: pass \`initial\``,
        );
      }
      return restoreDims(reduce(operand, dims), operand, dims, keepdims);
    }
    const start = toType(initial, operand.dtype, name);
    const x = mask === undefined ? operand : choose(mask, operand, start);
    const isEmpty = dims.some((d) => x.shape[d] === 0);
    const kept = x.shape.filter((_, d) => !dims.includes(d));
    const result = isEmpty ? expandTo(start, kept) : combine(reduce(x, dims), start);
    return restoreDims(result, x, dims, keepdims);
  };
}

/**
 * The largest element; NaN if there is one.
 *
 * @example
 * ```ts
 * np.max(np.array([[1, 5], [3, 2]]), 1); // [5, 3]
 * ```
 */
export const max = extreme("max", ops.reduceMax, maximum);
/**
 * The smallest element; NaN if there is one.
 *
 * @example
 * ```ts
 * np.min(np.array([[1, 5], [3, 2]]), 1); // [1, 2]
 * ```
 */
export const min = extreme("min", ops.reduceMin, minimum);

/**
 * The difference of the largest and the smallest element.
 *
 * @example
 * ```ts
 * np.ptp(np.array([2, 7, 4])); // 5
 * ```
 */
export function ptp(x: TensorLike, dim?: Dims, options?: KeepdimsOptions): Tensor {
  const given = keepdimsOptions.read(options, "ptp");
  if (asTensor(x, "ptp").dtype === "bool") {
    throw new DTypeError(`[ptp] works on numbers, not on bool: convert with astype("int32")`);
  }
  return ops.sub(extreme("ptp", ops.reduceMax, maximum)(x, dim, given), min(x, dim, given));
}

/**
 * Whether all elements are not 0.
 *
 * @example
 * ```ts
 * np.all(np.array([true, false])); // false
 * ```
 */
export function all(value: TensorLike, dim?: Dims, options?: MaskedOptions): Tensor {
  const { keepdims, where: mask } = maskedOptions.read(options, "all");
  const x = masked(toBool(value, "all"), mask, 1, "all");
  const dims = normalizeDims(dim, x.ndim, "all");
  return restoreDims(ops.reduceMin(x, dims), x, dims, keepdims);
}

/**
 * Whether one of the elements is not 0.
 *
 * @example
 * ```ts
 * np.any(np.array([true, false])); // true
 * ```
 */
export function any(value: TensorLike, dim?: Dims, options?: MaskedOptions): Tensor {
  const { keepdims, where: mask } = maskedOptions.read(options, "any");
  const x = masked(toBool(value, "any"), mask, 0, "any");
  const dims = normalizeDims(dim, x.ndim, "any");
  return restoreDims(ops.reduceMax(x, dims), x, dims, keepdims);
}

/**
 * How many elements are not 0, in int32.
 *
 * @example
 * ```ts
 * np.countNonzero(np.array([0, 1, 2])); // 2
 * ```
 */
export function countNonzero(x: TensorLike, dim?: Dims, options: KeepdimsOptions = {}): Tensor {
  return summing("countNonzero")(toBool(x, "countNonzero"), dim, options);
}

/** How many elements of x a mean over `dims` divides by. */
function count(x: Tensor, dims: readonly number[], mask: TensorLike | undefined, caller: string): TensorLike {
  if (mask === undefined) return sizeOf(dims.map((d) => at(x.shape, d)));
  const chosen = expandTo(toBool(mask, caller), x.shape);
  return cast(ops.reduceSum(cast(chosen, "int32"), dims), wideType(x.dtype));
}

/** A mean whose errors name a function. */
export function averaging(name: string): (value: TensorLike, dim?: Dims, options?: MeanOptions) => Tensor {
  return (value, dim, options) => {
    const given = meanOptions.read(options, name);
    const operand = asTensor(value, name);
    const dtype = given.dtype ?? inexactType(operand.dtype);
    return tracedAsOneCall(() => {
      const x = masked(cast(operand, wideType(dtype)), given.where, 0, name);
      const dims = normalizeDims(dim, x.ndim, name);
      const divisor = toType(count(x, dims, given.where, name), x.dtype, name);
      const result = ops.div(ops.reduceSum(x, dims), divisor);
      return cast(restoreDims(result, x, dims, given.keepdims), dtype);
    });
  };
}

/**
 * The mean; integers give float32, half-width floats are accumulated in float32.
 *
 * @example
 * ```ts
 * np.mean(np.array([[1, 2], [3, 4]]), 0); // [2, 3]
 * ```
 */
export const mean = averaging("mean");

/** A variance whose errors name a function. */
export function spreading(
  name: string,
): (value: TensorLike, dim?: Dims, options?: VarianceOptions) => Tensor {
  return (value, dim, options) => {
    const operand = asTensor(value, name);
    const { where: mask, ddof, keepdims, ...given } = varianceOptions.read(options, name);
    const dtype = partType(given.dtype ?? inexactType(operand.dtype));
    const x = cast(operand, wideType(operand.parts ? operand.dtype : floatType(dtype)));
    const dims = normalizeDims(dim, x.ndim, name);
    const center =
      given.mean === undefined
        ? averaging(name)(x, dims, { keepdims: true, where: mask })
        : cast(asTensor(given.mean, name), x.dtype);
    broadcastShape([x.shape, center.shape], name);
    const distance = ops.sub(x, expandTo(center, x.shape));
    // Masked before it is squared: the slope of what is left out may be NaN.
    const squares = squaredSize(masked(distance, mask, 0, name));
    const total = ops.reduceSum(squares, dims);
    const n = count(x, dims, mask, name);
    const result =
      typeof n === "number"
        ? ops.div(total, n > ddof ? n - ddof : Number.NaN)
        : divideOrNan(total, ops.sub(toType(n, total.dtype, name), ddof));
    return cast(restoreDims(result, x, dims, keepdims), dtype);
  };
}

/**
 * The mean squared distance from the mean, which is real for complex numbers too.
 *
 * @example
 * ```ts
 * np.var(np.array([1, 3])); // 1
 * ```
 */
export const variance = spreading("var");

/** x / divisor where that is positive, else NaN. */
function divideOrNan(x: Tensor, divisor: Tensor): Tensor {
  return choose(ops.compare("gt", divisor, 0), ops.div(x, divisor), Number.NaN);
}

/**
 * The square root of the variance.
 *
 * @example
 * ```ts
 * np.std(np.array([1, 3])); // 1
 * ```
 */
export function std(x: TensorLike, dim?: Dims, options?: VarianceOptions): Tensor {
  return ops.sqrt(spreading("std")(x, dim, options));
}

/** The place of an extreme, whose errors name a function. */
export function indexOf(
  name: string,
  op: (x: Tensor, dim: number) => Tensor,
): (value: TensorLike, dim?: number | null, options?: KeepdimsOptions) => Tensor {
  return (value, dim, options = {}) => {
    const { keepdims } = keepdimsOptions.read(options, name);
    const x = asTensor(value, name);
    if (dim === undefined || dim === null) {
      return restoreDims(op(ops.reshape(x, [x.size]), 0), x, range(x.ndim), keepdims);
    }
    const d = normalizeDim(dim, x.ndim, name);
    return restoreDims(op(x, d), x, [d], keepdims);
  };
}

/**
 * The int32 index of the first largest element, of the flattened tensor when no dim is given.
 *
 * @example
 * ```ts
 * np.argmax(np.array([1, 5, 2])); // 1
 * ```
 */
export const argmax = indexOf("argmax", ops.argmax);
/**
 * The int32 index of the first smallest element, of the flattened tensor when no dim is given.
 *
 * @example
 * ```ts
 * np.argmin(np.array([3, 1, 2])); // 1
 * ```
 */
export const argmin = indexOf("argmin", ops.argmin);

const logsumexpOptions = schema({
  ...maskedOptions.fields,
  /** Factors of the exponentials. */
  b: optional(tensorLikeKind),
});

/** Options of {@link logsumexp}. */
export interface LogsumexpOptions extends OptionsOf<typeof logsumexpOptions> {}

/**
 * log(Σ b·exp(x)) without overflow.
 *
 * @example
 * ```ts
 * nn.logsumexp(np.array([0, 0])); // 0.6931
 * ```
 */
export function logsumexp(value: TensorLike, dim?: Dims, options?: LogsumexpOptions): Tensor {
  const given = logsumexpOptions.read(options, "logsumexp");
  const x = masked(asInexact(value, "logsumexp"), given.where, Number.NEGATIVE_INFINITY, "logsumexp");
  const dims = normalizeDims(dim, x.ndim, "logsumexp");
  const initial = x.size === 0 ? Number.NEGATIVE_INFINITY : undefined;
  const peak = ops.stopGradient(max(real(x), dims, { keepdims: true, initial }));
  const shift = ops.convert(ops.select(ops.finite(peak), peak, like(peak, 0)), x.dtype);
  const exps = ops.exp(ops.sub(x, expandTo(shift, x.shape)));
  const weighted =
    given.b === undefined ? exps : ops.mul(exps, expandTo(toType(given.b, x.dtype, "logsumexp"), x.shape));
  const logs = ops.add(ops.log(sum(weighted, dims, { keepdims: true })), shift);
  const kept = x.shape.filter((_, d) => !dims.includes(d));
  return given.keepdims ? logs : ops.reshape(logs, kept);
}
