/** Functions of how numbers are stored: their neighbours, exponents and bits. */

import { oneOf } from "../../ir/arguments.js";
import { DTypeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, normalizeDim, range } from "../../ir/shape.js";
import * as lax from "../../lax/bits.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { copysign } from "../elementwise/arithmetic.js";
import { abs } from "../elementwise/elementwise.js";
import {
  asFloat,
  asNumber,
  asTensor,
  cast,
  floatType,
  like,
  pair,
  requireBits,
  spelledOut,
  toBool,
  wideType,
} from "../operands.js";
import { pad } from "./pad.js";

/**
 * The next number after x in the direction of y, as it is stored.
 *
 * @example
 * ```ts
 * np.nextafter(1, 2).sub(1).mul(2 ** 23); // 1
 * ```
 */
export function nextafter(x: TensorLike, y: TensorLike): Tensor {
  const [a, b] = pair(x, y, "nextafter", floatType);
  return lax.nextafter(spelledOut(a, b), spelledOut(b, a));
}

/**
 * The distance of x to its neighbour away from 0, with the sign of x; of float16 to the one above.
 *
 * @example
 * ```ts
 * np.spacing(np.array([1, 2])).mul(2 ** 23); // [1, 2]
 * ```
 */
export function spacing(value: TensorLike): Tensor {
  const x = asFloat(value, "spacing");
  const infinity = ops.full(x.shape, Number.POSITIVE_INFINITY, x.dtype);
  return ops.sub(lax.nextafter(x, x.dtype === "float16" ? infinity : copysign(infinity, x)), x);
}

/**
 * Splits numbers into a mantissa from ½ to 1 and an int32 exponent: x = mantissa · 2^exponent. Zeros, infinities
 * and NaN are their own mantissa, with exponent 0.
 *
 * @example
 * ```ts
 * np.frexp(np.array([8, 0.75])); // [[0.5, 0.75], [4, 0]]
 * ```
 */
export function frexp(value: TensorLike): [mantissa: Tensor, exponent: Tensor] {
  const given = asFloat(value, "frexp");
  const x = cast(given, wideType(given.dtype));
  const isOrdinary = ops.and(ops.finite(x), ops.compare("ne", x, 0));
  let mantissa = ops.select(isOrdinary, x, like(x, 0.5));
  let exponent = ops.full(x.shape, 0, "int32");
  const scaleWhere = (chosen: Tensor, by: number) => {
    mantissa = ops.select(chosen, ops.mul(mantissa, 2 ** -by), mantissa);
    exponent = ops.select(chosen, ops.add(exponent, by), exponent);
  };
  // Every factor is a power of two, so nothing is rounded; the first is needed twice for the smallest numbers.
  const largest = x.dtype === "float64" ? 9 : 6;
  for (const power of [largest, ...range(largest + 1).reverse()]) {
    const by = 2 ** power;
    scaleWhere(ops.compare("ge", ops.abs(mantissa), 2 ** by), by);
    scaleWhere(ops.compare("lt", ops.abs(mantissa), 2 ** -by), -by);
  }
  scaleWhere(ops.compare("ge", ops.abs(mantissa), 1), 1);
  return [cast(ops.select(isOrdinary, mantissa, x), given.dtype), exponent];
}

/**
 * The number of ones among the bits of the absolute value of integers, as uint8.
 *
 * @example
 * ```ts
 * np.bitwiseCount(np.array([7, 8], "int32")); // [3, 1]
 * ```
 */
export function bitwiseCount(value: TensorLike): Tensor {
  const x = asNumber(value, "bitwiseCount");
  requireBits(x, "bitwiseCount");
  return cast(lax.populationCount(abs(x)), "uint8");
}

/** Which bit of a byte the first element is: the highest (`big`, by default) or the lowest (`little`). */
export type BitOrder = "big" | "little";

const packbitsOptions = schema({
  /** Which bit of a byte the first element is; the highest (`big`) by default. */
  bitorder: optional(oneOf("big", "little"), "big"),
});

/** Options of {@link packbits}. */
export interface PackbitsOptions extends OptionsOf<typeof packbitsOptions> {}

const unpackbitsOptions = schema({
  ...packbitsOptions.fields,
  /** Number of bits to return, padded with zeros; if negative, that many fewer than all. */
  count: optional("integer"),
});

/** Options of {@link unpackbits}. */
export interface UnpackbitsOptions extends OptionsOf<typeof unpackbitsOptions> {}

/** The value of each bit of a byte, in the order in which elements are packed. */
function bitShifts(order: BitOrder, shape: readonly number[]): Tensor {
  const places = ops.iota("int32", shape, shape.length - 1);
  return order === "little" ? places : ops.sub(ops.full(shape, 7, "int32"), places);
}

/** The tensor with the given dim last, and a function that moves it back; flattened without a dim. */
function lastDim(x: Tensor, dim: number | null | undefined, caller: string): [Tensor, (y: Tensor) => Tensor] {
  if (dim === undefined || dim === null) return [ops.reshape(x, [x.size]), (y) => y];
  const d = normalizeDim(dim, x.ndim, caller);
  return [ops.moveDim(x, d, x.ndim - 1), (y) => ops.moveDim(y, y.ndim - 1, d)];
}

/**
 * Packs eight elements each into the bits of one uint8: 1 for what is not zero, with zeros at the end.
 *
 * ```ts
 * np.packbits(np.array([1, 0, 1, 1, 0, 0, 0, 0], "uint8")) // [176]
 * ```
 *
 * @param dim the dim to pack along; without it the tensor is flat
 *
 * @example
 * ```ts
 * np.packbits(np.array([1, 0, 0, 0, 0, 0, 0, 1], "uint8")); // [129]
 * ```
 */
export function packbits(value: TensorLike, dim?: number | null, options?: PackbitsOptions): Tensor {
  requireBits(asTensor(value, "packbits"), "packbits");
  const [bits, back] = lastDim(toBool(value, "packbits"), dim, "packbits");
  const n = at(bits.shape, bits.ndim - 1);
  const outer = bits.shape.slice(0, -1);
  const whole = pad(cast(bits, "int32"), [...outer.map(() => [0, 0] as const), [0, (8 - (n % 8)) % 8]]);
  const shape = [...outer, Math.ceil(n / 8), 8];
  const placed = ops.shl(
    ops.reshape(whole, shape),
    bitShifts(packbitsOptions.read(options, "packbits").bitorder, shape),
  );
  return back(cast(ops.reduceSum(placed, [shape.length - 1]), "uint8"));
}

/**
 * The bits of bytes as elements 0 and 1 of uint8.
 *
 * @param dim the dim to unpack along; without it the tensor is flat
 *
 * @example
 * ```ts
 * np.unpackbits(np.array([5], "uint8")); // [0, 0, 0, 0, 0, 1, 0, 1]
 * ```
 */
export function unpackbits(value: TensorLike, dim?: number | null, options?: UnpackbitsOptions): Tensor {
  const given = unpackbitsOptions.read(options, "unpackbits");
  const x = asTensor(value, "unpackbits");
  if (x.dtype !== "uint8") {
    throw new DTypeError(`[unpackbits] takes uint8, got ${formatType(x.type)}: convert with astype("uint8")`);
  }
  const [bytes, back] = lastDim(cast(x, "int32"), dim, "unpackbits");
  const shape = [...bytes.shape, 8];
  const spread = ops.broadcastInDim(bytes, shape, range(bytes.ndim));
  const shifted = ops.shrLogical(spread, bitShifts(given.bitorder, shape));
  const all = 8 * at(bytes.shape, bytes.ndim - 1);
  const outer = bytes.shape.slice(0, -1);
  const bits = ops.reshape(ops.and(shifted, 1), [...outer, all]);
  const { count = all } = given;
  const kept = count < 0 ? Math.max(0, all + count) : Math.min(count, all);
  const cut = ops.sliceDim(bits, outer.length, 0, kept);
  const filled = pad(cut, [...outer.map(() => [0, 0] as const), [0, Math.max(0, count - all)]]);
  return back(cast(filled, "uint8"));
}
