import type { Vec, VecBuilder } from "../vectorProgram.js";

/** Widens bfloat16 bits (one per 32-bit lane, upper half clear) to float32. */
export function fromBfloat16(b: VecBuilder, bits: Vec): Vec {
  return b.ishl(bits, 16);
}

/** Rounds float32 to bfloat16 bits, ties to even; a NaN stays a NaN. */
export function toBfloat16(b: VecBuilder, x: Vec): Vec {
  const odd = b.and(b.ishr(x, 16), b.i32(1));
  const rounded = b.ishr(b.iadd(x, b.iadd(odd, b.i32(0x7fff))), 16);
  const quiet = b.or(b.ishr(x, 16), b.i32(0x40));
  return b.select(b.op("f32x4.eq", x, x), rounded, quiet);
}

/** Widens float16 bits (one per 32-bit lane, upper half clear) to float32. */
export function fromFloat16(b: VecBuilder, bits: Vec): Vec {
  const magnitude = b.and(bits, b.i32(0x7fff));
  const shifted = b.ishl(magnitude, 13);
  // Scaling by 2^112 moves the exponent's bias and normalises denormals in one exact product.
  let scaled = b.mul(shifted, b.f32(2 ** 112));
  if (b.features.gpu) {
    // A GPU may take what float32 calls denormal for 0.
    const steps = b.mul(b.op("f32x4.convert_i32x4_s", magnitude), b.f32(2 ** -24));
    scaled = b.select(b.op("i32x4.lt_s", magnitude, b.i32(0x400)), steps, scaled);
  }
  const special = b.and(b.op("i32x4.gt_s", shifted, b.i32(0x0f7fffff)), b.i32(0x7f800000));
  return b.or(b.or(scaled, special), b.ishl(b.and(bits, b.i32(0x8000)), 16));
}

/** Rounds float32 to float16 bits, ties to even, through denormals to infinity; a NaN stays a NaN. */
export function toFloat16(b: VecBuilder, x: Vec): Vec {
  const magnitude = b.and(x, b.i32(0x7fffffff));
  const odd = b.and(b.ishr(magnitude, 13), b.i32(1));
  const normal = b.ishr(b.iadd(magnitude, b.iadd(odd, b.i32(0xc8000fff))), 13);
  // Adding one half aligns the mantissa so that the addition itself rounds to float16's denormal steps.
  const half = b.f32(0.5);
  const denormal = b.isub(b.add(magnitude, half), half);
  const nan = b.op("i32x4.gt_s", magnitude, b.i32(0x7f800000));
  const special = b.select(nan, b.i32(0x7e00), b.i32(0x7c00));
  const small = b.op("i32x4.lt_s", magnitude, b.i32(0x38800000));
  const large = b.op("i32x4.gt_s", magnitude, b.i32(0x477fffff));
  const result = b.select(small, denormal, b.select(large, special, normal));
  return b.or(result, b.and(b.ishr(x, 16), b.i32(0x8000)));
}

/** A mask as 0 or 1. */
export function maskToInteger(b: VecBuilder, mask: Vec): Vec {
  return b.and(mask, b.i32(1));
}

/** A mask as 0.0 or 1.0. */
export function maskToFloat(b: VecBuilder, mask: Vec): Vec {
  return b.and(mask, b.f32(1));
}

/** The mask of integer lanes that are not zero. */
export function integerToMask(b: VecBuilder, x: Vec): Vec {
  return b.op("i32x4.ne", x, b.i32(0));
}

/** The mask of float lanes that are not zero (NaN counts as true). */
export function floatToMask(b: VecBuilder, x: Vec): Vec {
  return b.op("f32x4.ne", x, b.f32(0));
}
