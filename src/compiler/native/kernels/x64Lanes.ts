/**
 * Every vector instruction of kernels as machine code. Results have the bits that WebAssembly defines, at any width,
 * since lanes are independent. Only the payload of a NaN may differ, as WebAssembly allows.
 */

import type { VectorOp, VectorShiftOp } from "../../wasm/opcodes.js";
import type { Words } from "../../wasm/vectorProgram.js";
import type { X64 } from "../x64/assembler.js";
import type { NamesOf } from "../x64/instructions.js";
import type { Mem, Vector } from "../x64/operands.js";
import { expandMask } from "./x64Storage.js";

/** The operands of one instruction, and registers for what it computes. */
export interface Operands {
  readonly x: X64;
  /** Whether vectors have 512 bits, where comparisons set mask registers. */
  readonly isWide: boolean;
  /** Whether an operand is in a register already. */
  isInRegister(arg: number): boolean;
  /** Whether this instruction is the last to read an operand, which is in a register of its own. */
  dies(arg: number): boolean;
  /** An operand in a register. */
  register(arg: number): Vector;
  /** An operand in a register or in memory. */
  any(arg: number): Vector | Mem;
  /** The register of the result, which may be that of an operand that dies: all must be read by then. */
  result(): Vector;
  /** The register of the result, different from those of the operands. */
  separateResult(): Vector;
  /** The register of an operand that dies, which becomes that of the result. */
  resultIn(arg: number): Vector;
  /** A register until the end of the instruction. */
  temporary(): Vector;
  /** The same 32 bits in every lane, in memory. */
  constant(word: number): Mem;
}

/** Writes the code of an instruction. */
export type Emit = (o: Operands) => void;

/** The instructions on lanes of 32 bits that kernels use. */
export type LaneInstruction = Exclude<
  Extract<VectorOp, `f32x4.${string}` | `i32x4.${string}` | `v128.${string}`>,
  | `i32x4.extend_${string}`
  | `i32x4.trunc_sat_f64x2_${string}`
  | "i32x4.trunc_sat_f32x4_u"
  | "f32x4.demote_f64x2_zero"
>;

type UnaryName = NamesOf<"V W">;
type BinaryName = NamesOf<"V H W">;
type ShiftName = NamesOf<"H U Ib">;

const SIGN = 0x80000000;
const ONES = 0xffffffff;

const unary =
  (name: UnaryName): Emit =>
  (o) => {
    const x = o.any(0);
    o.x[name](o.result(), x);
  };

const binary =
  (name: BinaryName, [left, right]: readonly [number, number] = [0, 1]): Emit =>
  (o) => {
    const a = o.register(left);
    const b = o.any(right);
    o.x[name](o.result(), a, b);
  };

/** Takes the operand that is in memory second, where it can be read from there. */
const commutative =
  (name: BinaryName): Emit =>
  (o) =>
    binary(name, o.isInRegister(0) || !o.isInRegister(1) ? [0, 1] : [1, 0])(o);

const withConstant =
  (name: BinaryName, word: number): Emit =>
  (o) => {
    const x = o.register(0);
    o.x[name](o.result(), x, o.constant(word));
  };

const rounding =
  (mode: 0 | 1 | 2 | 3): Emit =>
  (o) => {
    const x = o.any(0);
    // The fourth bit keeps exceptions quiet.
    o.x.vroundps(o.result(), x, mode | 8);
  };

/** Predicates of comparisons of numbers; with NaN only `ne` holds. */
const FLOAT_PREDICATES = { eq: 0, lt: 1, le: 2, ne: 4, ge: 13, gt: 14 } as const;
const INTEGER_PREDICATES = { eq: 0, lt: 1, le: 2, ne: 4, ge: 5, gt: 6 } as const;
/** Holds when either is NaN. */
const UNORDERED = 3;
const ORDERED = 7;

const wideCompare = (o: Operands, name: "vcmpps" | "vpcmpd" | "vpcmpud", predicate: number): void => {
  const [a, b] = [o.register(0), o.any(1)];
  o.x[name](1, a, b, predicate);
  expandMask(o.x, o.result());
};

const compareFloats =
  (how: keyof typeof FLOAT_PREDICATES): Emit =>
  (o) => {
    const predicate = FLOAT_PREDICATES[how];
    if (o.isWide) {
      wideCompare(o, "vcmpps", predicate);
      return;
    }
    const [a, b] = [o.register(0), o.any(1)];
    o.x.vcmpps(o.result(), a, b, predicate);
  };

/** Up to 256 bits there are only == and signed >: the others are swapped, negated, or made of extremes. */
const compareIntegers = (
  how: keyof typeof INTEGER_PREDICATES,
  kind: "signed" | "unsigned",
  { name, swapped = false, negated = false, extreme }: NarrowComparison,
): Emit => {
  return (o) => {
    if (o.isWide) {
      wideCompare(o, kind === "signed" ? "vpcmpd" : "vpcmpud", INTEGER_PREDICATES[how]);
      return;
    }
    const [a, b] = swapped ? [o.register(1), o.any(0)] : [o.register(0), o.any(1)];
    const to = o.separateResult();
    if (extreme !== undefined) o.x[extreme](to, a, b)[name](to, to, a);
    else o.x[name](to, a, b);
    if (negated) o.x.vpxor(to, to, o.constant(ONES));
  };
};

interface NarrowComparison {
  readonly name: "vpcmpeqd" | "vpcmpgtd";
  readonly swapped?: boolean;
  readonly negated?: boolean;
  /** Compares the extreme of both with the first operand. */
  readonly extreme?: "vpmaxud" | "vpminud";
}

/**
 * The hardware's extremes give their second operand when either is NaN or both are zeros. In both orders they differ
 * only then: the signs of zeros are joined, and a sum makes a NaN of either.
 */
const extreme =
  (name: "vminps" | "vmaxps", join: "vpor" | "vpand"): Emit =>
  (o) => {
    const [a, b] = [o.register(0), o.register(1)];
    const [to, other] = [o.separateResult(), o.temporary()];
    o.x[name](to, a, b)[name](other, b, a)[join](to, to, other);
    if (o.isWide) {
      o.x.vcmpps(1, a, b, UNORDERED).vaddps(to, a, b, { mask: 1 });
      return;
    }
    const unordered = o.temporary();
    // A NaN is what all set bits are too.
    o.x.vcmpps(unordered, a, b, UNORDERED).vpor(to, to, unordered);
  };

/** `a · b + c` or `c − a · b`, over the operand whose register becomes the result's. */
const multiplyAdd =
  (sign: "" | "n"): Emit =>
  (o) => {
    const [onto, over] = [`vf${sign}madd231ps`, `vf${sign}madd213ps`] as const;
    const dying = o.dies(2) ? undefined : [0, 1].find((arg) => o.dies(arg));
    if (dying !== undefined) {
      const [other, addend] = [o.register(1 - dying), o.any(2)];
      o.x[over](o.resultIn(dying), other, addend);
      return;
    }
    const [factor, other] = o.isInRegister(0) ? [0, 1] : [1, 0];
    const [a, b] = [o.register(factor), o.any(other)];
    const isInPlace = o.dies(2);
    const sum = isInPlace ? o.resultIn(2) : o.separateResult();
    if (!isInPlace) o.x.vmovups(sum, o.any(2));
    o.x[onto](sum, a, b);
  };

/** The table of `vpternlogd` that takes bits of the second vector where those of the first are set, else of the third. */
const FIRST_CHOOSES = 0xca;

const select: Emit = (o) => {
  const [a, b, mask] = [o.register(0), o.register(1), o.register(2)];
  if (o.isWide) {
    const to = o.dies(2) ? o.resultIn(2) : o.separateResult();
    if (to.id !== mask.id) o.x.vmovups(to, mask);
    o.x.vpternlogd(to, a, b, FIRST_CHOOSES);
    return;
  }
  const [to, rest] = [o.separateResult(), o.temporary()];
  o.x.vpand(to, mask, a).vpandn(rest, mask, b).vpor(to, to, rest);
};

/** Conversions beyond the range give the least integer, which is right below it; above and for NaN it is mended. */
const truncate: Emit = (o) => {
  const x = o.register(0);
  const [to, mask] = [o.separateResult(), o.temporary()];
  const tooLarge = o.constant(0x4f000000);
  const when = (predicate: number, other: Vector | Mem) => {
    if (o.isWide) expandMask(o.x.vcmpps(1, x, other, predicate), mask);
    else o.x.vcmpps(mask, x, other, predicate);
  };
  o.x.vcvttps2dq(to, x);
  when(FLOAT_PREDICATES.ge, tooLarge);
  o.x.vpxor(to, to, mask);
  when(ORDERED, x);
  o.x.vpand(to, to, mask);
};

/** Both halves convert exactly, and their sum is rounded once. */
const fromUnsigned: Emit = (o) => {
  const x = o.register(0);
  const [to, low] = [o.separateResult(), o.temporary()];
  o.x.vpsrld(to, x, 16).vcvtdq2ps(to, to).vmulps(to, to, o.constant(0x47800000));
  o.x.vpand(low, x, o.constant(0xffff)).vcvtdq2ps(low, low).vaddps(to, to, low);
};

/** −x is ~x + 1. */
const negateInteger: Emit = (o) => {
  const x = o.register(0);
  const to = o.result();
  o.x.vpxor(to, x, o.constant(ONES)).vpsubd(to, to, o.constant(ONES));
};

/** The code of every instruction on lanes of 32 bits. */
export const laneInstructions: { readonly [K in LaneInstruction]: Emit } = {
  "f32x4.add": commutative("vaddps"),
  "f32x4.sub": binary("vsubps"),
  "f32x4.mul": commutative("vmulps"),
  "f32x4.div": binary("vdivps"),
  "f32x4.min": extreme("vminps", "vpor"),
  "f32x4.max": extreme("vmaxps", "vpand"),
  // These are the hardware's extremes with their operands swapped.
  "f32x4.pmin": binary("vminps", [1, 0]),
  "f32x4.pmax": binary("vmaxps", [1, 0]),
  "f32x4.sqrt": unary("vsqrtps"),
  "f32x4.abs": withConstant("vpand", 0x7fffffff),
  "f32x4.neg": withConstant("vpxor", SIGN),
  "f32x4.nearest": rounding(0),
  "f32x4.floor": rounding(1),
  "f32x4.ceil": rounding(2),
  "f32x4.trunc": rounding(3),
  "f32x4.eq": compareFloats("eq"),
  "f32x4.ne": compareFloats("ne"),
  "f32x4.lt": compareFloats("lt"),
  "f32x4.le": compareFloats("le"),
  "f32x4.gt": compareFloats("gt"),
  "f32x4.ge": compareFloats("ge"),
  "f32x4.convert_i32x4_s": unary("vcvtdq2ps"),
  "f32x4.convert_i32x4_u": fromUnsigned,
  "f32x4.relaxed_madd": multiplyAdd(""),
  "f32x4.relaxed_nmadd": multiplyAdd("n"),
  "i32x4.trunc_sat_f32x4_s": truncate,
  "i32x4.add": commutative("vpaddd"),
  "i32x4.sub": binary("vpsubd"),
  "i32x4.mul": commutative("vpmulld"),
  "i32x4.min_s": commutative("vpminsd"),
  "i32x4.min_u": commutative("vpminud"),
  "i32x4.max_s": commutative("vpmaxsd"),
  "i32x4.max_u": commutative("vpmaxud"),
  "i32x4.abs": unary("vpabsd"),
  "i32x4.neg": negateInteger,
  "i32x4.eq": compareIntegers("eq", "signed", { name: "vpcmpeqd" }),
  "i32x4.ne": compareIntegers("ne", "signed", { name: "vpcmpeqd", negated: true }),
  "i32x4.gt_s": compareIntegers("gt", "signed", { name: "vpcmpgtd" }),
  "i32x4.lt_s": compareIntegers("lt", "signed", { name: "vpcmpgtd", swapped: true }),
  "i32x4.le_s": compareIntegers("le", "signed", { name: "vpcmpgtd", negated: true }),
  "i32x4.ge_s": compareIntegers("ge", "signed", { name: "vpcmpgtd", swapped: true, negated: true }),
  "i32x4.ge_u": compareIntegers("ge", "unsigned", { name: "vpcmpeqd", extreme: "vpmaxud" }),
  "i32x4.le_u": compareIntegers("le", "unsigned", { name: "vpcmpeqd", extreme: "vpminud" }),
  "i32x4.lt_u": compareIntegers("lt", "unsigned", { name: "vpcmpeqd", extreme: "vpmaxud", negated: true }),
  "i32x4.gt_u": compareIntegers("gt", "unsigned", { name: "vpcmpeqd", extreme: "vpminud", negated: true }),
  "v128.and": commutative("vpand"),
  "v128.or": commutative("vpor"),
  "v128.xor": commutative("vpxor"),
  // The hardware negates its first operand, WebAssembly its second.
  "v128.andnot": binary("vpandn", [1, 0]),
  "v128.not": withConstant("vpxor", ONES),
  "v128.bitselect": select,
};

/** Whether there is machine code for an instruction. */
export function isLaneInstruction(op: VectorOp): op is LaneInstruction {
  return op in laneInstructions;
}

const shifts: { readonly [K in Extract<VectorShiftOp, `i32x4.${string}`>]: ShiftName } = {
  "i32x4.shl": "vpslld",
  "i32x4.shr_s": "vpsrad",
  "i32x4.shr_u": "vpsrld",
};

/** The shift of an instruction; nothing for lanes of other widths. */
export function shiftName(op: VectorShiftOp): ShiftName | undefined {
  const known: { readonly [op: string]: ShiftName | undefined } = shifts;
  return known[op];
}

/** The bytes of a pattern of 128 bits, repeated. */
export function repeatWords(words: Words, bytes: number): Uint8Array {
  const lanes = Uint32Array.from({ length: bytes / 4 }, (_, i) => words[i % 4] ?? 0);
  return new Uint8Array(lanes.buffer);
}
