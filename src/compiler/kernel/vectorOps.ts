import { type DType, isFloat, isNarrowInteger, signedOf, unsignedOf } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";
import { type ElementwiseOp, type OpsOf, opFacts } from "../../ir/opFacts.js";
import type { CompareDirection } from "../../ir/ops.js";
import type { ScalarFunction } from "../../ir/scalarFunctions.js";
import { at } from "../../ir/shape.js";
import type { Combine } from "../identities.js";
import type { FusedOp } from "../lowering.js";
import * as math from "../wasm/math.js";
import type { VectorOp } from "../wasm/opcodes.js";
import type { Vec, VecBuilder } from "../wasm/vectorProgram.js";
import {
  bitcast,
  combinations,
  compare,
  convert,
  doubleMask,
  type Lane,
  type LanesOf,
  laneOf,
  saturate,
  wordMask,
  wrap,
} from "./lanes.js";

/** The elementwise ops that kernels compute: those that normalisation leaves. */
export type KernelOp = Extract<ElementwiseOp, FusedOp>;

/** Elementwise ops whose operands and results have different types. */
type OtherOp = Extract<OpsOf<"elementwise">, FusedOp>;

/** An elementwise op as the kernels see it: its name, and the parameters that matter. */
export interface VectorOpCall {
  readonly op: KernelOp;
  readonly direction?: CompareDirection | undefined;
  /** The type of the first operand that is not a predicate. */
  readonly from: DType;
  readonly to: DType;
  /** Whether the operand is known to be at most 0 (or NaN). */
  readonly isBelowZero?: true;
}

/** Emits an elementwise op on registers; gives one register per result. */
export function emitVectorOp(b: VecBuilder, call: VectorOpCall, args: readonly Vec[]): readonly Vec[] {
  const results = emitUnrounded(b, call, args);
  if (isNarrowInteger(call.to))
    return keepRange.has(call.op) ? results : results.map((x) => wrap(b, x, call.to));
  return opFacts[call.op].exact ? results : results.map((x) => roundTo(b, x, call.to));
}

/** The ops whose results are in the range of a narrow integer whenever the operands are. */
const keepRange: ReadonlySet<KernelOp> = new Set(["select", "max", "min", "sign", "bitcast", "rem"]);

function roundTo(b: VecBuilder, x: Vec, to: DType): Vec {
  if (to === "bfloat16") return math.fromBfloat16(b, math.toBfloat16(b, x));
  if (to === "float16") return math.fromFloat16(b, math.toFloat16(b, x));
  return x;
}

/** An op on registers of one kind of lanes; ops of one operand leave the second alone. */
type Emit = (b: VecBuilder, x: Vec, y: Vec, call: VectorOpCall) => Vec;

const instruction =
  (op: VectorOp): Emit =>
  (b, x) =>
    b.op(op, x);
const instructionOfTwo =
  (op: VectorOp): Emit =>
  (b, x, y) =>
    b.op(op, x, y);
const host =
  (name: ScalarFunction): Emit =>
  (b, x) =>
    b.host(name, x);
const hostOfTwo =
  (name: ScalarFunction): Emit =>
  (b, x, y) =>
    b.host(name, x, y);

/** The same on integers with and without a sign. */
const both = (emit: Emit) => ({ signed: emit, unsigned: emit });

/** On integers, where the sign matters. */
const integers = (op: (b: VecBuilder, x: Vec, y: Vec, kind: math.Signedness) => Vec) => ({
  signed: (b: VecBuilder, x: Vec, y: Vec) => op(b, x, y, "signed"),
  unsigned: (b: VecBuilder, x: Vec, y: Vec) => op(b, x, y, "unsigned"),
});

const bitwise = (op: "and" | "or" | "xor") => {
  const emit: Emit = (b, x, y) => b[op](x, y);
  return { ...both(emit), mask: emit };
};

/** Bits that are shifted in are zeros or the sign bit of the type, not of the 32-bit lane. */
const shift = (op: "shl" | "shrLogical" | "shrArithmetic") => {
  const emit =
    (bits: (dtype: DType) => DType): Emit =>
    (b, x, y, { from }) =>
      math.shiftLanes(b, op, wrap(b, x, bits(from)), y);
  if (op === "shl") return both(emit((dtype) => dtype));
  return both(emit(op === "shrLogical" ? unsignedOf : signedOf));
};

const extreme = (how: Combine): { readonly [L in Lane]: Emit } => ({
  float: instructionOfTwo(combinations[how].float),
  double: instructionOfTwo(combinations[how].double),
  signed: instructionOfTwo(combinations[how].signed),
  unsigned: instructionOfTwo(combinations[how].unsigned),
  mask: instructionOfTwo(combinations[how].mask),
});

const signOfDouble: Emit = (b, x) => {
  const one = b.or(b.and(x, b.i64(0x80000000, 0)), b.f64(1));
  return b.select(b.op("f64x2.gt", b.op("f64x2.abs", x), b.f64(0)), one, x);
};
const signOfInteger: Emit = (b, x) => b.or(b.and(b.op("i32x4.gt_s", x, b.i32(0)), b.i32(1)), b.isar(x, 31));

/** Every op whose operands and result have one type, on each kind of lanes that its domain has. */
const uniformOps: {
  readonly [K in Exclude<KernelOp, OtherOp>]: { readonly [L in LanesOf<(typeof opFacts)[K]["on"]>]: Emit };
} = {
  neg: {
    float: (b, x) => b.neg(x),
    double: instruction("f64x2.neg"),
    ...both(instruction("i32x4.neg")),
  },
  exp: {
    float: (b, x, _, { isBelowZero }) => (isBelowZero ? math.expBelowZero(b, x) : math.exp(b, x)),
    double: host("exp"),
  },
  expm1: { float: math.expm1, double: host("expm1") },
  log: { float: math.log, double: host("log") },
  log1p: { float: math.log1p, double: host("log1p") },
  tanh: { float: math.tanh, double: host("tanh") },
  sin: { float: math.sin, double: host("sin") },
  cos: { float: math.cos, double: host("cos") },
  sqrt: { float: math.sqrt, double: instruction("f64x2.sqrt") },
  rsqrt: { float: math.rsqrt, double: (b, x) => b.op("f64x2.div", b.f64(1), b.op("f64x2.sqrt", x)) },
  cbrt: { float: math.cbrt, double: host("cbrt") },
  abs: {
    float: (b, x) => b.abs(x),
    double: instruction("f64x2.abs"),
    signed: instruction("i32x4.abs"),
    unsigned: (_, x) => x,
  },
  sign: {
    float: math.sign,
    double: signOfDouble,
    signed: signOfInteger,
    unsigned: (b, x) => b.and(b.op("i32x4.ne", x, b.i32(0)), b.i32(1)),
  },
  floor: { float: math.floor, double: instruction("f64x2.floor") },
  ceil: { float: math.ceil, double: instruction("f64x2.ceil") },
  round: { float: math.roundEven, double: instruction("f64x2.nearest") },
  erf: { float: math.erf, double: host("erf") },
  erfInv: { float: math.erfInv, double: host("erfInv") },
  logistic: { float: math.logistic, double: host("logistic") },
  not: { ...both(instruction("v128.not")), mask: instruction("v128.not") },
  add: {
    float: (b, x, y) => b.add(x, y),
    double: instructionOfTwo("f64x2.add"),
    ...both((b, x, y) => b.iadd(x, y)),
  },
  sub: {
    float: (b, x, y) => b.sub(x, y),
    double: instructionOfTwo("f64x2.sub"),
    ...both((b, x, y) => b.isub(x, y)),
  },
  mul: {
    float: (b, x, y) => b.mul(x, y),
    double: instructionOfTwo("f64x2.mul"),
    ...both(instructionOfTwo("i32x4.mul")),
  },
  div: {
    float: (b, x, y) => b.div(x, y),
    double: instructionOfTwo("f64x2.div"),
    ...integers(math.divideInteger),
  },
  rem: { float: math.rem, double: hostOfTwo("rem"), ...integers(math.remainderInteger) },
  pow: { float: math.pow, double: hostOfTwo("pow"), ...integers(math.powerInteger) },
  max: extreme("max"),
  min: extreme("min"),
  and: bitwise("and"),
  or: bitwise("or"),
  xor: bitwise("xor"),
  shl: shift("shl"),
  shrLogical: shift("shrLogical"),
  shrArithmetic: shift("shrArithmetic"),
  atan2: { float: math.atan2, double: hostOfTwo("atan2") },
};

type Expand = (b: VecBuilder, args: readonly Vec[], call: VectorOpCall) => readonly Vec[];

/** The other elementwise ops, whose operands and results have different types. */
const otherOps: { readonly [K in OtherOp]: Expand } = {
  isFinite: (b, args, { from }) => {
    const x = at(args, 0);
    if (laneOf(from) === "float") return [math.isFinite(b, x)];
    return [wordMask(b, b.op("f64x2.lt", b.op("f64x2.abs", x), b.f64(Number.POSITIVE_INFINITY)))];
  },
  convert: (b, args, { from, to }) => {
    const x = convert(b, at(args, 0), laneOf(from), laneOf(to));
    return [isFloat(from) ? saturate(b, x, to) : x];
  },
  bitcast: (b, args, { from, to }) => [bitcast(b, at(args, 0), from, to)],
  compare: (b, args, { direction = "eq", from }) => [
    compare(b, direction, at(args, 0), at(args, 1), laneOf(from)),
  ],
  select: (b, args, { to }) => {
    const mask = to === "float64" ? doubleMask(b, at(args, 0)) : at(args, 0);
    return [b.select(mask, at(args, 1), at(args, 2))];
  },
  threefry2x32: (b, args) => math.threefry2x32(b, [at(args, 0), at(args, 1)], [at(args, 2), at(args, 3)]),
};

const isOther = (op: KernelOp): op is OtherOp => opFacts[op].family === "elementwise";

function emitUnrounded(b: VecBuilder, call: VectorOpCall, args: readonly Vec[]): readonly Vec[] {
  const { op, from } = call;
  if (isOther(op)) return otherOps[op](b, args, call);
  const perLane: { readonly [L in Lane]?: Emit } = uniformOps[op];
  const emit = perLane[laneOf(from)];
  if (!emit) throw new InternalError(`[emitVectorOp] ${op} has no meaning on ${from}`);
  const x = at(args, 0);
  return [emit(b, x, args[1] ?? x, call)];
}
