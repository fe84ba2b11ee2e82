import {
  byteSize,
  type DType,
  isNarrowInteger,
  isUnsigned,
  kindOfNumbers,
  limits,
  partType,
  unsignedOf,
} from "../../ir/dtype.js";
import type { Domain } from "../../ir/opFacts.js";
import type { CompareDirection } from "../../ir/ops.js";
import type { Combine } from "../identities.js";
import * as math from "../wasm/math.js";
import type { VectorOp } from "../wasm/opcodes.js";
import type { Vec, VecBuilder } from "../wasm/vectorProgram.js";

/**
 * How elements are held in vector registers: float32, bfloat16 and float16 as float32 lanes (16-bit floats already
 * rounded), integers as 32-bit lanes (narrower ones sign-extended or zero-extended), bool as masks, float64 as two
 * lanes. A kernel that touches float64 works on two elements at a time, and its 32-bit values use lanes 0 and 1.
 */
export type Lane = "float" | "double" | "signed" | "unsigned" | "mask";

/** The lanes of a data type; complex numbers appear only as their parts. */
export function laneOf(dtype: DType): Lane {
  const kind = kindOfNumbers(partType(dtype));
  if (kind === "signed" || kind === "unsigned") return kind;
  return kind === "bool" ? "mask" : partType(dtype) === "float64" ? "double" : "float";
}

/** The lanes on which an op of a domain must be able to work. */
export type LanesOf<D extends Domain> = {
  readonly float: "float" | "double";
  readonly number: "float" | "double" | "signed" | "unsigned";
  readonly integer: "signed" | "unsigned";
  readonly bits: "signed" | "unsigned" | "mask";
  readonly any: Lane;
}[D];

/** The instruction that combines two registers. */
export const combinations: { readonly [C in Combine]: { readonly [L in Lane]: VectorOp } } = {
  sum: {
    float: "f32x4.add",
    double: "f64x2.add",
    signed: "i32x4.add",
    unsigned: "i32x4.add",
    mask: "v128.or",
  },
  max: {
    float: "f32x4.max",
    double: "f64x2.max",
    signed: "i32x4.max_s",
    unsigned: "i32x4.max_u",
    mask: "v128.or",
  },
  min: {
    float: "f32x4.min",
    double: "f64x2.min",
    signed: "i32x4.min_s",
    unsigned: "i32x4.min_u",
    mask: "v128.and",
  },
};

/** The instruction that combines two registers of a data type; reductions consist of these. */
export function combineInstruction(how: Combine, dtype: DType): VectorOp {
  return combinations[how][laneOf(dtype)];
}

const integerComparisons: {
  readonly [D in CompareDirection]: readonly [signed: VectorOp, unsigned: VectorOp];
} = {
  eq: ["i32x4.eq", "i32x4.eq"],
  ne: ["i32x4.ne", "i32x4.ne"],
  lt: ["i32x4.lt_s", "i32x4.lt_u"],
  le: ["i32x4.le_s", "i32x4.le_u"],
  gt: ["i32x4.gt_s", "i32x4.gt_u"],
  ge: ["i32x4.ge_s", "i32x4.ge_u"],
};

/** Compares two registers; gives a mask. */
export function compare(b: VecBuilder, direction: CompareDirection, x: Vec, y: Vec, lane: Lane): Vec {
  const [signed, unsigned] = integerComparisons[direction];
  switch (lane) {
    case "float":
      return b.op(`f32x4.${direction}`, x, y);
    case "double":
      return wordMask(b, b.op(`f64x2.${direction}`, x, y));
    case "signed":
      return b.op(signed, x, y);
    case "unsigned":
      return b.op(unsigned, x, y);
    case "mask":
      // A set mask reads as −1, so false < true holds for unsigned lanes.
      return b.op(unsigned, x, y);
  }
}

/** The mask of two float64 lanes as a mask of the 32-bit lanes 0 and 1. */
export function wordMask(b: VecBuilder, mask: Vec): Vec {
  return b.shuffle(mask, mask, [0, 2, 0, 2]);
}

/** The mask of the 32-bit lanes 0 and 1 as a mask of two float64 lanes. */
export function doubleMask(b: VecBuilder, mask: Vec): Vec {
  return b.shuffle(mask, mask, [0, 0, 1, 1]);
}

/** Converts a register from one kind of lanes to another. */
export function convert(b: VecBuilder, x: Vec, from: Lane, to: Lane): Vec {
  if (from === to) return x;
  switch (to) {
    case "float":
      if (from === "double") return b.op("f32x4.demote_f64x2_zero", x);
      if (from === "mask") return math.maskToFloat(b, x);
      return b.op(from === "signed" ? "f32x4.convert_i32x4_s" : "f32x4.convert_i32x4_u", x);
    case "double":
      if (from === "float") return b.op("f64x2.promote_low_f32x4", x);
      if (from === "mask") return b.op("f64x2.convert_low_i32x4_s", math.maskToInteger(b, x));
      return b.op(from === "signed" ? "f64x2.convert_low_i32x4_s" : "f64x2.convert_low_i32x4_u", x);
    case "signed":
    case "unsigned": {
      const suffix = to === "signed" ? "s" : "u";
      if (from === "float") return b.op(`i32x4.trunc_sat_f32x4_${suffix}`, x);
      if (from === "double") return b.op(`i32x4.trunc_sat_f64x2_${suffix}_zero`, x);
      return from === "mask" ? math.maskToInteger(b, x) : x;
    }
    case "mask":
      if (from === "float") return math.floatToMask(b, x);
      if (from === "double") return wordMask(b, b.op("f64x2.ne", x, b.f64(0)));
      return math.integerToMask(b, x);
  }
}

/** Reduces integers modulo the width of their type. */
export function wrap(b: VecBuilder, x: Vec, dtype: DType): Vec {
  if (!isNarrowInteger(dtype)) return x;
  const bits = 8 * byteSize(dtype);
  return isUnsigned(dtype) ? b.and(x, b.i32(2 ** bits - 1)) : b.isar(b.ishl(x, 32 - bits), 32 - bits);
}

/** Clamps integers to the range of a type, as a conversion from floats does. */
export function saturate(b: VecBuilder, x: Vec, dtype: DType): Vec {
  if (!isNarrowInteger(dtype)) return x;
  const { min, max } = limits(dtype);
  if (isUnsigned(dtype)) return b.op("i32x4.min_u", x, b.i32(max));
  return b.op("i32x4.max_s", b.op("i32x4.min_s", x, b.i32(max)), b.i32(min));
}

/** Reinterprets the bits of one type as another; 16-bit floats are wider in registers than in memory. */
export function bitcast(b: VecBuilder, x: Vec, from: DType, to: DType): Vec {
  if (from === to || byteSize(from) > 2) return x;
  return fromBits(b, wrap(b, toBits(b, x, from), unsignedOf(from)), to);
}

/** The bits of 16-bit floats, one per 32-bit lane; other registers as they are. */
export function toBits(b: VecBuilder, x: Vec, dtype: DType): Vec {
  if (dtype === "bfloat16") return math.toBfloat16(b, x);
  return dtype === "float16" ? math.toFloat16(b, x) : x;
}

function fromBits(b: VecBuilder, bits: Vec, dtype: DType): Vec {
  if (dtype === "bfloat16") return math.fromBfloat16(b, bits);
  return dtype === "float16" ? math.fromFloat16(b, bits) : wrap(b, bits, dtype);
}
