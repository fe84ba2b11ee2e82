import type { DType } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";
import type { ElementwiseOp } from "../../ir/opFacts.js";
import type { CompareDirection } from "../../ir/ops.js";
import { at } from "../../ir/shape.js";
import type { Combine } from "../identities.js";
import * as math from "../wasm/math.js";
import type { VectorOp } from "../wasm/opcodes.js";
import type { HostFunction, Vec, VecBuilder } from "../wasm/vectorProgram.js";

/**
 * How elements live in vector registers: float32, bfloat16 and float16 as float32 lanes (16-bit floats already
 * rounded), integers as 32-bit lanes, bool as masks, float64 as two lanes. A kernel that touches float64 works
 * on two elements at a time, and its 32-bit values use lanes 0 and 1.
 */
type Lane = "float" | "double" | "signed" | "unsigned" | "mask";

const lanes: { readonly [D in DType]: Lane } = {
  float32: "float",
  bfloat16: "float",
  float16: "float",
  float64: "double",
  int32: "signed",
  uint32: "unsigned",
  bool: "mask",
};

/** An elementwise op as the kernels see it: its name, and the parameters that matter. */
export interface VectorOpCall {
  readonly op: ElementwiseOp;
  readonly direction?: CompareDirection | undefined;
  /** The type of the first operand that is not a predicate. */
  readonly from: DType;
  readonly to: DType;
  /** Whether the operand is known to be at most 0 (or NaN). */
  readonly isBelowZero?: true;
}

/** Emits an elementwise op on registers; gives one register per result. */
export function emitVectorOp(b: VecBuilder, call: VectorOpCall, args: readonly Vec[]): readonly Vec[] {
  if (call.op === "threefry2x32") {
    return math.threefry2x32(b, [at(args, 0), at(args, 1)], [at(args, 2), at(args, 3)]);
  }
  return [roundTo(b, emitUnrounded(b, call, args), call)];
}

/** Ops whose results are exact in a 16-bit type when the operands are. */
const exactOps: ReadonlySet<ElementwiseOp> = new Set([
  "neg",
  "abs",
  "sign",
  "floor",
  "ceil",
  "round",
  "max",
  "min",
  "select",
  "bitcast",
]);

function roundTo(b: VecBuilder, x: Vec, { op, to }: VectorOpCall): Vec {
  if (exactOps.has(op)) return x;
  if (to === "bfloat16") return math.fromBfloat16(b, math.toBfloat16(b, x));
  if (to === "float16") return math.fromFloat16(b, math.toFloat16(b, x));
  return x;
}

function emitUnrounded(b: VecBuilder, call: VectorOpCall, args: readonly Vec[]): Vec {
  if (call.op === "exp" && call.isBelowZero && lanes[call.from] === "float") {
    return math.expBelowZero(b, at(args, 0));
  }
  const { op, from, to } = call;
  const [x, y] = [at(args, 0), args[1] ?? at(args, 0)];
  switch (op) {
    case "convert":
      return convert(b, x, lanes[from], lanes[to]);
    case "bitcast":
      return bitcast(b, x, from, to);
    case "select": {
      const mask = to === "float64" ? doubleMask(b, x) : x;
      return b.select(mask, y, at(args, 2));
    }
    case "compare":
      return compare(b, call.direction ?? "eq", x, y, lanes[from]);
    case "name":
    case "stopGradient":
      return x;
    case "clamp":
      return combine(b, "min", combine(b, "max", y, x, to), at(args, 2), to);
    case "max":
    case "min":
      return combine(b, op, x, y, to);
    default:
      break;
  }
  switch (lanes[from]) {
    case "float":
      return floatOp(b, op, x, y);
    case "double":
      return doubleOp(b, op, x, y);
    case "signed":
    case "unsigned":
      return integerOp(b, op, x, y, lanes[from] === "signed" ? "signed" : "unsigned");
    case "mask":
      return maskOp(b, op, x, y);
  }
}

function missing(op: string, lane: string): never {
  throw new InternalError(`[emitVectorOp] ${op} has no meaning on ${lane} lanes`);
}

const floatFunctions = {
  exp: math.exp,
  expm1: math.expm1,
  log: math.log,
  log1p: math.log1p,
  tanh: math.tanh,
  sin: math.sin,
  cos: math.cos,
  sqrt: math.sqrt,
  rsqrt: math.rsqrt,
  cbrt: math.cbrt,
  sign: math.sign,
  floor: math.floor,
  ceil: math.ceil,
  erf: math.erf,
  erfInv: math.erfInv,
  logistic: math.logistic,
  isFinite: math.isFinite,
};

const floatFunctionsOfTwo = { rem: math.rem, pow: math.pow, atan2: math.atan2 };

function floatOp(b: VecBuilder, op: ElementwiseOp, x: Vec, y: Vec): Vec {
  switch (op) {
    case "neg":
      return b.neg(x);
    case "abs":
      return b.abs(x);
    case "add":
      return b.add(x, y);
    case "sub":
      return b.sub(x, y);
    case "mul":
      return b.mul(x, y);
    case "div":
      return b.div(x, y);
    case "round":
      return math.roundEven(b, x);
    case "exp":
    case "expm1":
    case "log":
    case "log1p":
    case "tanh":
    case "sin":
    case "cos":
    case "sqrt":
    case "rsqrt":
    case "cbrt":
    case "sign":
    case "floor":
    case "ceil":
    case "erf":
    case "erfInv":
    case "logistic":
    case "isFinite":
      return floatFunctions[op](b, x);
    case "rem":
    case "pow":
    case "atan2":
      return floatFunctionsOfTwo[op](b, x, y);
    default:
      return missing(op, "float");
  }
}

function doubleOp(b: VecBuilder, op: ElementwiseOp, x: Vec, y: Vec): Vec {
  switch (op) {
    case "neg":
      return b.op("f64x2.neg", x);
    case "abs":
      return b.op("f64x2.abs", x);
    case "add":
      return b.op("f64x2.add", x, y);
    case "sub":
      return b.op("f64x2.sub", x, y);
    case "mul":
      return b.op("f64x2.mul", x, y);
    case "div":
      return b.op("f64x2.div", x, y);
    case "sqrt":
      return b.op("f64x2.sqrt", x);
    case "rsqrt":
      return b.op("f64x2.div", b.f64(1), b.op("f64x2.sqrt", x));
    case "floor":
      return b.op("f64x2.floor", x);
    case "ceil":
      return b.op("f64x2.ceil", x);
    case "round":
      return b.op("f64x2.nearest", x);
    case "sign": {
      const one = b.or(b.and(x, b.i64(0x80000000, 0)), b.f64(1));
      return b.select(b.op("f64x2.gt", b.op("f64x2.abs", x), b.f64(0)), one, x);
    }
    case "isFinite":
      return wordMask(b, b.op("f64x2.lt", b.op("f64x2.abs", x), b.f64(Number.POSITIVE_INFINITY)));
    case "exp":
    case "expm1":
    case "log":
    case "log1p":
    case "tanh":
    case "sin":
    case "cos":
    case "cbrt":
    case "erf":
    case "erfInv":
    case "logistic":
      return b.host(op satisfies HostFunction, "f64", x);
    case "rem":
    case "pow":
    case "atan2":
      return b.host(op satisfies HostFunction, "f64", x, y);
    default:
      return missing(op, "double");
  }
}

function integerOp(b: VecBuilder, op: ElementwiseOp, x: Vec, y: Vec, kind: math.Signedness): Vec {
  switch (op) {
    case "neg":
      return b.op("i32x4.neg", x);
    case "abs":
      return kind === "signed" ? b.op("i32x4.abs", x) : x;
    case "sign": {
      const positive = b.and(b.op(kind === "signed" ? "i32x4.gt_s" : "i32x4.ne", x, b.i32(0)), b.i32(1));
      return kind === "signed" ? b.or(positive, b.isar(x, 31)) : positive;
    }
    case "not":
      return b.op("v128.not", x);
    case "add":
      return b.iadd(x, y);
    case "sub":
      return b.isub(x, y);
    case "mul":
      return b.op("i32x4.mul", x, y);
    case "div":
      return math.divideInteger(b, x, y, kind);
    case "rem":
      return math.remainderInteger(b, x, y, kind);
    case "pow":
      return math.powerInteger(b, x, y, kind);
    case "and":
    case "or":
    case "xor":
      return b[op](x, y);
    case "shl":
    case "shrLogical":
    case "shrArithmetic":
      return math.shiftLanes(b, op, x, y);
    default:
      return missing(op, kind);
  }
}

function maskOp(b: VecBuilder, op: ElementwiseOp, x: Vec, y: Vec): Vec {
  switch (op) {
    case "not":
      return b.op("v128.not", x);
    case "and":
    case "or":
    case "xor":
      return b[op](x, y);
    default:
      return missing(op, "mask");
  }
}

/** The larger, the smaller or the sum of two registers. */
function combine(b: VecBuilder, how: Combine, x: Vec, y: Vec, dtype: DType): Vec {
  return b.op(combineInstruction(how, dtype), x, y);
}

/** The one instruction that combines two registers of a data type; reductions are made of these. */
export function combineInstruction(how: Combine, dtype: DType): VectorOp {
  switch (lanes[dtype]) {
    case "float":
      return how === "sum" ? "f32x4.add" : `f32x4.${how}`;
    case "double":
      return how === "sum" ? "f64x2.add" : `f64x2.${how}`;
    case "signed":
      return how === "sum" ? "i32x4.add" : `i32x4.${how}_s`;
    case "unsigned":
      return how === "sum" ? "i32x4.add" : `i32x4.${how}_u`;
    case "mask":
      return how === "min" ? "v128.and" : "v128.or";
  }
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

function compare(b: VecBuilder, direction: CompareDirection, x: Vec, y: Vec, lane: Lane): Vec {
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
function wordMask(b: VecBuilder, mask: Vec): Vec {
  return b.shuffle(mask, mask, [0, 2, 0, 2]);
}

/** The mask of the 32-bit lanes 0 and 1 as a mask of two float64 lanes. */
function doubleMask(b: VecBuilder, mask: Vec): Vec {
  return b.shuffle(mask, mask, [0, 0, 1, 1]);
}

function convert(b: VecBuilder, x: Vec, from: Lane, to: Lane): Vec {
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

/** Reads the bits of one type as another; in registers 16-bit floats are wider than their bits. */
function bitcast(b: VecBuilder, x: Vec, from: DType, to: DType): Vec {
  if (from === "bfloat16" && to === "float16") return math.fromFloat16(b, math.toBfloat16(b, x));
  if (from === "float16" && to === "bfloat16") return math.fromBfloat16(b, math.toFloat16(b, x));
  return x;
}
