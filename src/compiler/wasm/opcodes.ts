/** The words of a text. */
type Words<Text> = Text extends `${infer First} ${infer Rest}` ? First | Words<Rest> : Text;

/** Instructions of one type whose codes follow each other. */
function run<const Type extends string, const Names extends string>(type: Type, first: number, names: Names) {
  const codes = names.split(" ").map((name, i) => [`${type}.${name}`, first + i]);
  return Object.fromEntries(codes) as { readonly [N in Words<Names> as `${Type}.${N}`]: number };
}

/** Instructions without immediates that are one byte long. */
export const SCALAR_OPS = {
  drop: 0x1a,
  select: 0x1b,
  ...run("i32", 0x45, "eqz eq ne lt_s lt_u gt_s"),
  "i32.ge_s": 0x4e,
  ...run("i64", 0x50, "eqz eq ne"),
  "i64.lt_u": 0x54,
  "i64.ge_s": 0x59,
  "f32.ne": 0x5c,
  "f64.ne": 0x62,
  ...run("i32", 0x6a, "add sub mul div_s div_u"),
  "i32.and": 0x71,
  ...run("i32", 0x74, "shl shr_s shr_u"),
  ...run("i64", 0x7c, "add sub mul div_s div_u"),
  ...run("i64", 0x83, "and or xor shl"),
  "i64.rotl": 0x89,
  "f32.add": 0x92,
  "f32.mul": 0x94,
  "f64.add": 0xa0,
  "f64.mul": 0xa2,
  "i32.wrap_i64": 0xa7,
  "i64.extend_i32_u": 0xad,
  "f32.convert_i32_s": 0xb2,
  "f32.demote_f64": 0xb6,
  "f64.promote_f32": 0xbb,
};

/** Saturating float to integer conversions (prefix 0xfc). */
export const SATURATING_OPS = {
  "i32.trunc_sat_f32_s": 0x00,
  "i64.trunc_sat_f64_u": 0x07,
};

/** SIMD instructions (prefix 0xfd) whose operands and result are all v128, without immediates. */
export const VECTOR_OPS = {
  ...run("i32x4", 0x37, "eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u"),
  ...run("f32x4", 0x41, "eq ne lt gt le ge"),
  ...run("f64x2", 0x47, "eq ne lt gt le ge"),
  ...run("v128", 0x4d, "not and andnot or xor bitselect"),
  "f32x4.demote_f64x2_zero": 0x5e,
  "f64x2.promote_low_f32x4": 0x5f,
  ...run("i8x16", 0x65, "narrow_i16x8_s narrow_i16x8_u"),
  ...run("f32x4", 0x67, "ceil floor trunc nearest"),
  "i8x16.add": 0x6e,
  ...run("f64x2", 0x74, "ceil floor"),
  ...run("i8x16", 0x76, "min_s min_u max_s max_u"),
  "f64x2.trunc": 0x7a,
  ...run("i16x8", 0x85, "narrow_i32x4_s narrow_i32x4_u extend_low_i8x16_s"),
  "i16x8.extend_low_i8x16_u": 0x89,
  "i16x8.add": 0x8e,
  "f64x2.nearest": 0x94,
  ...run("i16x8", 0x96, "min_s min_u max_s max_u"),
  ...run("i32x4", 0xa0, "abs neg"),
  "i32x4.extend_low_i16x8_s": 0xa7,
  "i32x4.extend_low_i16x8_u": 0xa9,
  "i32x4.add": 0xae,
  "i32x4.sub": 0xb1,
  ...run("i32x4", 0xb5, "mul min_s min_u max_s max_u"),
  "i64x2.sub": 0xd1,
  ...run("f32x4", 0xe0, "abs neg"),
  ...run("f32x4", 0xe3, "sqrt add sub mul div min max pmin pmax"),
  ...run("f64x2", 0xec, "abs neg"),
  ...run("f64x2", 0xef, "sqrt add sub mul div min max"),
  ...run("i32x4", 0xf8, "trunc_sat_f32x4_s trunc_sat_f32x4_u"),
  ...run("f32x4", 0xfa, "convert_i32x4_s convert_i32x4_u"),
  ...run("i32x4", 0xfc, "trunc_sat_f64x2_s_zero trunc_sat_f64x2_u_zero"),
  ...run("f64x2", 0xfe, "convert_low_i32x4_s convert_low_i32x4_u"),
  ...run("f32x4", 0x105, "relaxed_madd relaxed_nmadd"),
};

/** SIMD shifts: a v128 and an i32 amount that all lanes share. */
export const VECTOR_SHIFT_OPS = {
  ...run("i32x4", 0xab, "shl shr_s shr_u"),
  ...run("i64x2", 0xcb, "shl shr_s"),
};

/** SIMD instructions without immediates that mix scalars and vectors. */
export const VECTOR_SCALAR_OPS = {
  "i32x4.splat": 0x11,
  "f32x4.splat": 0x13,
  "v128.any_true": 0x53,
};

/** SIMD instructions with a lane index. */
export const LANE_OPS = {
  ...run("i32x4", 0x1b, "extract_lane replace_lane"),
  ...run("f32x4", 0x1f, "extract_lane replace_lane"),
  ...run("f64x2", 0x21, "extract_lane replace_lane"),
};

/** Scalar loads and stores: opcode and the largest alignment hint (log2 bytes). */
export const MEMORY_OPS = {
  "i32.load": [0x28, 2],
  "i64.load": [0x29, 3],
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
