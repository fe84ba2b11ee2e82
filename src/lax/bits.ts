/** Functions of the bits of numbers. */
import { byteSize, type DType, isComplex, isFloat, isInteger, isUnsigned, needDType } from "../ir/dtype.js";
import { DTypeError, ShapeError } from "../ir/errors.js";
import { formatType, range } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import type { TensorLike } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { libraryVjp } from "../transforms/derivatives/customVjp.js";
import { operand, operandsOf } from "./operands.js";

/** The unsigned integers by their width in bytes. */
const words: Readonly<Record<number, DType>> = { 1: "uint8", 2: "uint16", 4: "uint32" };

/**
 * The same bits as another data type. A narrower type adds a last dim for the parts of each element, the lowest first;
 * a wider one takes the parts from the last dim.
 *
 * @example
 * ```ts
 * lax.bitcastConvertType(np.array([1]), "uint8"); // [[0, 0, 128, 63]]
 * ```
 */
export function bitcastConvertType(value: TensorLike, dtype: DType): Tensor {
  needDType(dtype, "lax.bitcastConvertType");
  const x = operand(value, "bitcastConvertType");
  const [from, to] = [byteSize(x.dtype), byteSize(dtype)];
  if (x.dtype === dtype || (from === to && !isComplex(x.dtype) && !isComplex(dtype)))
    return ops.bitcast(x, dtype);
  const [narrow, wide] = [words[Math.min(from, to)], words[Math.max(from, to)]];
  const isNumber = (type: DType) => type !== "bool" && !isComplex(type);
  if (narrow === undefined || wide === undefined || !isNumber(x.dtype) || !isNumber(dtype)) {
    throw new DTypeError(
      `[lax.bitcastConvertType] cannot read the bits of ${x.dtype} as ${dtype}: it takes integers and floats of 8 to 32 bits`,
    );
  }
  return from > to ? ops.bitcast(split(x, wide, narrow), dtype) : ops.bitcast(join(x, narrow, wide), dtype);
}

/** The words of each element, the lowest first. */
function split(x: Tensor, wide: DType, narrow: DType): Tensor {
  const count = byteSize(wide) / byteSize(narrow);
  const shape = [...x.shape, count];
  const all = ops.broadcastInDim(ops.bitcast(x, wide), shape, range(x.ndim));
  return ops.convert(ops.shrLogical(all, shifts(wide, shape, narrow)), narrow);
}

/** Elements of the words along the last dim. */
function join(x: Tensor, narrow: DType, wide: DType): Tensor {
  const count = byteSize(wide) / byteSize(narrow);
  if (x.shape.at(-1) !== count) {
    throw new ShapeError(
      `[lax.bitcastConvertType] the last dim of ${formatType(x.type)} must hold the ${count} parts of a ${byteSize(wide)}-byte element`,
    );
  }
  const parts = ops.convert(ops.bitcast(x, narrow), wide);
  return ops.reduceSum(ops.shl(parts, shifts(wide, x.shape, narrow)), [x.ndim - 1]);
}

/** How far each word lies from the lowest bit. */
function shifts(wide: DType, shape: readonly number[], narrow: DType): Tensor {
  return ops.mul(ops.iota(wide, shape, shape.length - 1), 8 * byteSize(narrow));
}

/** Integers as unsigned ones of 32 bits. */
function asWord(value: TensorLike, caller: string): { x: Tensor; word: Tensor; bits: number } {
  const x = operand(value, caller);
  if (!isInteger(x.dtype))
    throw new DTypeError(`[lax.${caller}] counts bits of integers, got ${formatType(x.type)}`);
  const own = words[byteSize(x.dtype)] ?? "uint32";
  return { x, word: ops.convert(ops.bitcast(x, own), "uint32"), bits: 8 * byteSize(x.dtype) };
}

/** The number of ones in words, by adding neighbours in ever wider groups. */
function ones(word: Tensor): Tensor {
  const constant = (value: number) => ops.full(word.shape, value, "uint32");
  const shifted = (x: Tensor, by: number) => ops.shrLogical(x, constant(by));
  const pairs = ops.sub(word, ops.and(shifted(word, 1), constant(0x55555555)));
  const fours = constant(0x33333333);
  const nibbles = ops.add(ops.and(pairs, fours), ops.and(shifted(pairs, 2), fours));
  const bytes = ops.and(ops.add(nibbles, shifted(nibbles, 4)), constant(0x0f0f0f0f));
  return shifted(ops.mul(bytes, constant(0x01010101)), 24);
}

/**
 * The number of ones among the bits of each integer.
 *
 * @example
 * ```ts
 * lax.populationCount(np.array([7, 8], "int32")); // [3, 1]
 * ```
 */
export function populationCount(value: TensorLike): Tensor {
  const { x, word } = asWord(value, "populationCount");
  return ops.convert(ones(word), x.dtype);
}

/**
 * The number of zeros before the highest one among the bits of each integer; all of them for 0.
 *
 * @example
 * ```ts
 * lax.clz(np.array([1, 16], "int32")); // [31, 27]
 * ```
 */
export function clz(value: TensorLike): Tensor {
  const { x, word, bits } = asWord(value, "clz");
  // Below its highest one every bit becomes one, so that counting tells where that is.
  const filled = [1, 2, 4, 8, 16].reduce(
    (all, by) => ops.or(all, ops.shrLogical(all, ops.full(x.shape, by, "uint32"))),
    word,
  );
  return ops.convert(ops.sub(ops.full(x.shape, bits, "uint32"), ones(filled)), x.dtype);
}

/**
 * The next number after x in the direction of y, as it is stored: `nextafter(0, 1)` is the smallest number above 0. The
 * step is constant between powers of two, so the derivative by x is 1 and by y 0; JAX has none.
 *
 * @example
 * ```ts
 * lax.nextafter(np.array([1]), np.array([2])).sub(1).mul(2 ** 23); // [1]
 * ```
 */
export function nextafter(x: TensorLike, y: TensorLike): Tensor {
  const [a, b] = operandsOf([x, y] as const, "nextafter");
  if (!isFloat(a.dtype)) throw new DTypeError(`[lax.nextafter] takes floats, got ${formatType(a.type)}`);
  return differentiable(a, b);
}

const differentiable = libraryVjp(next, {
  forward: (x, y) => [next(x, y), null],
  backward: (_, ct) => [ct, null],
});

function next(x: Tensor, y: Tensor): Tensor {
  const constant = (value: number) => ops.full(x.shape, value, x.dtype);
  const isUp = ops.compare("lt", x, y);
  const moved = x.dtype === "float64" ? stepOf(x, isUp) : bitStep(x, isUp);
  const isSame = ops.compare("eq", x, y);
  const isNan = ops.or(ops.compare("ne", x, x), ops.compare("ne", y, y));
  return ops.select(isNan, constant(Number.NaN), ops.select(isSame, y, moved));
}

/** The neighbour of floats, whose bits count them away from 0. */
function bitStep(x: Tensor, isUp: Tensor): Tensor {
  const word = words[byteSize(x.dtype)] ?? "uint32";
  const constant = (value: number) => ops.full(x.shape, value, word);
  const bits = ops.bitcast(x, word);
  const isOutward = ops.compare("eq", isUp, ops.compare("gt", x, 0));
  const step = ops.select(isOutward, ops.add(bits, 1), ops.sub(bits, 1));
  const sign = 2 ** (8 * byteSize(word) - 1);
  const fromZero = ops.select(isUp, constant(1), constant(sign + 1));
  return ops.bitcast(ops.select(ops.compare("eq", x, 0), fromZero, step), x.dtype);
}

/**
 * The neighbour of float64, for which there is no integer of its width: x plus or minus a little more than half of its
 * spacing, which rounds to the neighbour. Where that spacing would lose digits, x is scaled up first.
 */
function stepOf(x: Tensor, isUp: Tensor): Tensor {
  const unit = 2 ** -53;
  const direction = ops.select(isUp, ops.full(x.shape, 1, x.dtype), ops.full(x.shape, -1, x.dtype));
  const moved = (from: Tensor) =>
    ops.add(from, ops.mul(ops.mul(ops.abs(from), unit * (1 + 2 * unit)), direction));
  const size = ops.abs(x);
  const scaled = ops.mul(moved(ops.mul(x, 2 ** 53)), unit);
  const tiny = ops.add(x, ops.mul(direction, Number.MIN_VALUE));
  const isTiny = ops.compare("lt", size, 2 ** -1021);
  const isSmall = ops.compare("lt", size, 2 ** -968);
  // An infinite x comes back to the largest number, which no sum with it gives.
  const largest = ops.mul(direction, -Number.MAX_VALUE);
  const back = ops.select(ops.compare("eq", size, Number.POSITIVE_INFINITY), largest, moved(x));
  return ops.select(isTiny, tiny, ops.select(isSmall, scaled, back));
}

/**
 * The upper half of the bits of a product of integers, as many as each of them has.
 *
 * @example
 * ```ts
 * lax.mulhi(np.array([200], "uint8"), np.array([100], "uint8")); // [78]
 * ```
 */
export function mulhi(x: TensorLike, y: TensorLike): Tensor {
  const [a, b] = operandsOf([x, y] as const, "mulhi");
  if (!isInteger(a.dtype)) {
    throw new DTypeError(`[lax.mulhi] multiplies integers, got ${formatType(a.type)}`);
  }
  const bits = 8 * byteSize(a.dtype);
  const isSmall = bits < 32;
  const wide: DType = isUnsigned(a.dtype) ? "uint32" : "int32";
  if (isSmall) {
    const product = ops.mul(ops.convert(a, wide), ops.convert(b, wide));
    const by = ops.full(product.shape, bits, wide);
    const shift = isUnsigned(a.dtype) ? ops.shrLogical : ops.shrArithmetic;
    return ops.convert(shift(product, by), a.dtype);
  }
  const high = unsignedHigh(ops.bitcast(a, "uint32"), ops.bitcast(b, "uint32"));
  if (isUnsigned(a.dtype)) return high;
  // A negative number counts as 2³² more in the unsigned product.
  const extra = (sign: Tensor, other: Tensor) =>
    ops.select(ops.compare("lt", sign, 0), other, ops.zeros(other.type));
  return ops.sub(ops.sub(ops.bitcast(high, "int32"), extra(a, b)), extra(b, a));
}

/** The upper 32 of the 64 bits of a product, by halves of 16 bits. */
function unsignedHigh(a: Tensor, b: Tensor): Tensor {
  const sixteen = ops.full(a.shape, 16, "uint32");
  const upper = (x: Tensor) => ops.shrLogical(x, sixteen);
  const lower = (x: Tensor) => ops.and(x, ops.full(x.shape, 0xffff, "uint32"));
  const middle = ops.add(ops.mul(upper(a), lower(b)), upper(ops.mul(lower(a), lower(b))));
  const other = ops.add(ops.mul(lower(a), upper(b)), lower(middle));
  return ops.add(ops.add(ops.mul(upper(a), upper(b)), upper(middle)), upper(other));
}
