/** Instructions without immediates that are one byte long. */
export const SCALAR_OPS = {
  return: 0x0f,
  drop: 0x1a,
  select: 0x1b,
  "i32.eqz": 0x45,
  "i32.eq": 0x46,
  "i32.ne": 0x47,
  "i32.lt_s": 0x48,
  "i32.lt_u": 0x49,
  "i32.gt_s": 0x4a,
  "i32.ge_s": 0x4e,
  "i64.eqz": 0x50,
  "i64.eq": 0x51,
  "i64.ne": 0x52,
  "i64.lt_u": 0x54,
  "i64.ge_s": 0x59,
  "f32.ne": 0x5c,
  "f64.ne": 0x62,
  "i32.add": 0x6a,
  "i32.sub": 0x6b,
  "i32.mul": 0x6c,
  "i32.div_s": 0x6d,
  "i32.div_u": 0x6e,
  "i32.and": 0x71,
  "i32.shl": 0x74,
  "i32.shr_s": 0x75,
  "i32.shr_u": 0x76,
  "i64.add": 0x7c,
  "i64.sub": 0x7d,
  "i64.mul": 0x7e,
  "i64.and": 0x83,
  "i64.shl": 0x86,
  "f32.add": 0x92,
  "f32.mul": 0x94,
  "f64.add": 0xa0,
  "f64.mul": 0xa2,
  "i64.extend_i32_u": 0xad,
  "f32.convert_i32_s": 0xb2,
  "f32.demote_f64": 0xb6,
  "f64.promote_f32": 0xbb,
} as const;

/** Saturating float to integer conversions (prefix 0xfc). */
export const SATURATING_OPS = {
  "i32.trunc_sat_f32_s": 0,
  "i64.trunc_sat_f64_u": 7,
} as const;

/** SIMD instructions (prefix 0xfd) whose operands and result are all v128, without immediates. */
export const VECTOR_OPS = {
  "i32x4.eq": 0x37,
  "i32x4.ne": 0x38,
  "i32x4.lt_s": 0x39,
  "i32x4.lt_u": 0x3a,
  "i32x4.gt_s": 0x3b,
  "i32x4.gt_u": 0x3c,
  "i32x4.le_s": 0x3d,
  "i32x4.le_u": 0x3e,
  "i32x4.ge_s": 0x3f,
  "i32x4.ge_u": 0x40,
  "f32x4.eq": 0x41,
  "f32x4.ne": 0x42,
  "f32x4.lt": 0x43,
  "f32x4.gt": 0x44,
  "f32x4.le": 0x45,
  "f32x4.ge": 0x46,
  "f64x2.eq": 0x47,
  "f64x2.ne": 0x48,
  "f64x2.lt": 0x49,
  "f64x2.gt": 0x4a,
  "f64x2.le": 0x4b,
  "f64x2.ge": 0x4c,
  "v128.not": 0x4d,
  "v128.and": 0x4e,
  "v128.andnot": 0x4f,
  "v128.or": 0x50,
  "v128.xor": 0x51,
  "v128.bitselect": 0x52,
  "f32x4.demote_f64x2_zero": 0x5e,
  "f64x2.promote_low_f32x4": 0x5f,
  "i8x16.narrow_i16x8_s": 0x65,
  "i8x16.narrow_i16x8_u": 0x66,
  "f32x4.ceil": 0x67,
  "f32x4.floor": 0x68,
  "f32x4.trunc": 0x69,
  "f32x4.nearest": 0x6a,
  "i8x16.add": 0x6e,
  "i8x16.min_s": 0x76,
  "i8x16.min_u": 0x77,
  "i8x16.max_s": 0x78,
  "i8x16.max_u": 0x79,
  "f64x2.ceil": 0x74,
  "f64x2.floor": 0x75,
  "f64x2.trunc": 0x7a,
  "i16x8.narrow_i32x4_s": 0x85,
  "i16x8.narrow_i32x4_u": 0x86,
  "i16x8.extend_low_i8x16_s": 0x87,
  "i16x8.extend_low_i8x16_u": 0x89,
  "i16x8.add": 0x8e,
  "f64x2.nearest": 0x94,
  "i16x8.min_s": 0x96,
  "i16x8.min_u": 0x97,
  "i16x8.max_s": 0x98,
  "i16x8.max_u": 0x99,
  "i32x4.abs": 0xa0,
  "i32x4.neg": 0xa1,
  "i32x4.extend_low_i16x8_s": 0xa7,
  "i32x4.extend_low_i16x8_u": 0xa9,
  "i32x4.add": 0xae,
  "i32x4.sub": 0xb1,
  "i32x4.mul": 0xb5,
  "i32x4.min_s": 0xb6,
  "i32x4.min_u": 0xb7,
  "i32x4.max_s": 0xb8,
  "i32x4.max_u": 0xb9,
  "i64x2.sub": 0xd1,
  "f32x4.abs": 0xe0,
  "f32x4.neg": 0xe1,
  "f32x4.sqrt": 0xe3,
  "f32x4.add": 0xe4,
  "f32x4.sub": 0xe5,
  "f32x4.mul": 0xe6,
  "f32x4.div": 0xe7,
  "f32x4.min": 0xe8,
  "f32x4.max": 0xe9,
  "f32x4.pmin": 0xea,
  "f32x4.pmax": 0xeb,
  "f64x2.abs": 0xec,
  "f64x2.neg": 0xed,
  "f64x2.sqrt": 0xef,
  "f64x2.add": 0xf0,
  "f64x2.sub": 0xf1,
  "f64x2.mul": 0xf2,
  "f64x2.div": 0xf3,
  "f64x2.min": 0xf4,
  "f64x2.max": 0xf5,
  "i32x4.trunc_sat_f32x4_s": 0xf8,
  "i32x4.trunc_sat_f32x4_u": 0xf9,
  "f32x4.convert_i32x4_s": 0xfa,
  "f32x4.convert_i32x4_u": 0xfb,
  "i32x4.trunc_sat_f64x2_s_zero": 0xfc,
  "i32x4.trunc_sat_f64x2_u_zero": 0xfd,
  "f64x2.convert_low_i32x4_s": 0xfe,
  "f64x2.convert_low_i32x4_u": 0xff,
  "f32x4.relaxed_madd": 0x105,
  "f32x4.relaxed_nmadd": 0x106,
} as const;

/** SIMD shifts: a v128 and an i32 amount that all lanes share. */
export const VECTOR_SHIFT_OPS = {
  "i32x4.shl": 0xab,
  "i32x4.shr_s": 0xac,
  "i32x4.shr_u": 0xad,
  "i64x2.shl": 0xcb,
  "i64x2.shr_s": 0xcc,
} as const;

/** SIMD instructions without immediates that mix scalars and vectors. */
export const VECTOR_SCALAR_OPS = {
  "i32x4.splat": 0x11,
  "f32x4.splat": 0x13,
  "v128.any_true": 0x53,
} as const;

/** SIMD instructions with a lane index. */
export const LANE_OPS = {
  "i32x4.extract_lane": 0x1b,
  "i32x4.replace_lane": 0x1c,
  "f32x4.extract_lane": 0x1f,
  "f32x4.replace_lane": 0x20,
  "f64x2.extract_lane": 0x21,
  "f64x2.replace_lane": 0x22,
} as const;

/** Scalar loads and stores: opcode and the largest alignment hint (log2 bytes). */
export const MEMORY_OPS = {
  "i32.load": [0x28, 2],
  "f32.load": [0x2a, 2],
  "f64.load": [0x2b, 3],
  "i32.load8_s": [0x2c, 0],
  "i32.load8_u": [0x2d, 0],
  "i32.load16_s": [0x2e, 1],
  "i32.load16_u": [0x2f, 1],
  "i32.store": [0x36, 2],
  "f32.store": [0x38, 2],
  "f64.store": [0x39, 3],
  "i32.store8": [0x3a, 0],
} as const;

/** Vector loads and stores (prefix 0xfd): opcode and the largest alignment hint (log2 bytes). */
export const VECTOR_MEMORY_OPS = {
  "v128.load": [0x00, 4],
  "v128.load16x4_s": [0x03, 3],
  "v128.load16x4_u": [0x04, 3],
  "v128.load8_splat": [0x07, 0],
  "v128.load16_splat": [0x08, 1],
  "v128.load32_splat": [0x09, 2],
  "v128.load64_splat": [0x0a, 3],
  "v128.store": [0x0b, 4],
  "v128.load32_zero": [0x5c, 2],
  "v128.load64_zero": [0x5d, 3],
} as const;

/** Vector loads and stores of one lane (prefix 0xfd): opcode and the largest alignment hint (log2 bytes). */
export const LANE_MEMORY_OPS = {
  "v128.load8_lane": [0x54, 0],
  "v128.load16_lane": [0x55, 1],
  "v128.load32_lane": [0x56, 2],
  "v128.load64_lane": [0x57, 3],
  "v128.store8_lane": [0x58, 0],
  "v128.store16_lane": [0x59, 1],
  "v128.store32_lane": [0x5a, 2],
  "v128.store64_lane": [0x5b, 3],
} as const;

/** A scalar instruction without immediates. */
export type ScalarOp = keyof typeof SCALAR_OPS | keyof typeof SATURATING_OPS;
/** A SIMD instruction from v128 operands to a v128 result. */
export type VectorOp = keyof typeof VECTOR_OPS;
/** A SIMD shift by an amount that all lanes share. */
export type VectorShiftOp = keyof typeof VECTOR_SHIFT_OPS;
/** A SIMD instruction that mixes scalars and vectors. */
export type VectorScalarOp = keyof typeof VECTOR_SCALAR_OPS;
/** A SIMD instruction with a lane index. */
export type LaneOp = keyof typeof LANE_OPS;
/** A scalar or whole-vector load or store. */
export type MemoryOp = keyof typeof MEMORY_OPS | keyof typeof VECTOR_MEMORY_OPS;
/** A load or store of one lane. */
export type LaneMemoryOp = keyof typeof LANE_MEMORY_OPS;
