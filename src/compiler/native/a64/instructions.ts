/**
 * The instructions of AArch64 that generated code uses. A form is `text: word`: the instruction as GNU `as` reads it, with a
 * field for each operand, and the 32 bits in which the fields are 0. An instruction with several forms takes the first
 * that accepts its operands.
 *
 * A field is `<kind:bit>`, where bit is the lowest of its bits, and `<kind:bit*unit>` for numbers that count in units. Kinds
 * are those of {@link OperandKinds}. Fields before the mnemonic are not part of the text: `f` and `i` there say which lanes
 * the vectors of the text have.
 */
import type { Label } from "../code.js";
import type { Condition, FloatLanes, IntegerLanes, Register } from "./operands.js";

/** The kinds of operands. */
export interface OperandKinds {
  /** A general register; 128, 64, 32, 16 bits of a vector register; a vector register and its lanes; a lane of one. */
  readonly x: Register;
  readonly q: Register;
  readonly d: Register;
  readonly s: Register;
  readonly h: Register;
  readonly v: Register;
  readonly e: Register;
  /** The number of that lane. */
  readonly lane: number;
  /** The lanes of all vectors, of floating-point numbers and of any type. */
  readonly f: FloatLanes;
  readonly i: IntegerLanes;
  /** Unsigned numbers of this many bits; signed ones; offsets, which default to 0. */
  readonly u12: number;
  readonly u16: number;
  readonly s7: number;
  readonly s9: number;
  readonly o12: number;
  /** Where to jump or to load from, as a signed distance in words; and when. */
  readonly j19: Label;
  readonly j26: Label;
  readonly c: Condition;
}

const INSTRUCTIONS = {
  // Loads and stores. ldrPost moves the base on, ldrLiteral loads from a label of the same code.
  ldr: [
    "ldr <x:0>, [<x:5>, #<o12:10*8>]: f9400000",
    "ldr <q:0>, [<x:5>, #<o12:10*16>]: 3dc00000",
    "ldr <d:0>, [<x:5>, #<o12:10*8>]: fd400000",
    "ldr <s:0>, [<x:5>, #<o12:10*4>]: bd400000",
    "ldr <h:0>, [<x:5>, #<o12:10*2>]: 7d400000",
  ],
  str: [
    "str <x:0>, [<x:5>, #<o12:10*8>]: f9000000",
    "str <q:0>, [<x:5>, #<o12:10*16>]: 3d800000",
    "str <d:0>, [<x:5>, #<o12:10*8>]: fd000000",
    "str <s:0>, [<x:5>, #<o12:10*4>]: bd000000",
  ],
  ldrPost: [
    "ldr <q:0>, [<x:5>], #<s9:12>: 3cc00400",
    "ldr <d:0>, [<x:5>], #<s9:12>: fc400400",
    "ldr <s:0>, [<x:5>], #<s9:12>: bc400400",
  ],
  ldrLiteral: "ldr <q:0>, <j19:5>: 9c000000",
  ldp: [
    "ldp <x:0>, <x:10>, [<x:5>, #<s7:15*8>]: a9400000",
    "ldp <d:0>, <d:10>, [<x:5>, #<s7:15*8>]: 6d400000",
  ],
  stp: [
    "stp <x:0>, <x:10>, [<x:5>, #<s7:15*8>]: a9000000",
    "stp <d:0>, <d:10>, [<x:5>, #<s7:15*8>]: 6d000000",
  ],
  // The third lane of 32 bits, and of 16 bits.
  ld1Lane2: "ld1 {<v:0>.s}[2], [<x:5>]: 4d408000",
  ld1HalfLane2: "ld1 {<v:0>.h}[2], [<x:5>]: 0d405000",
  st1Lane2: "st1 {<v:0>.s}[2], [<x:5>]: 4d008000",
  // Prefetches memory that will be written soon.
  prfmStore: "prfm pstl1keep, [<x:5>]: f9800010",
  // Vectors. fmla is to += a · b.
  fmla: "<f:22> fmla <v:0>, <v:5>, <v:16>: 4e20cc00",
  fmlaLane: "<f:22> fmla <v:0>, <v:5>, <e:16>[<lane:11>]: 4f801000",
  fadd: "<f:22> fadd <v:0>, <v:5>, <v:16>: 4e20d400",
  fmul: "<f:22> fmul <v:0>, <v:5>, <v:16>: 6e20dc00",
  // to += a · bᵀ: 2 × 2 sums of float32, row by row, of factors with two rows of four bfloat16 each.
  bfmmla: "bfmmla <v:0>.4s, <v:5>.8h, <v:16>.8h: 6e40ec00",
  // Join the lower halves of two registers lane by lane, and the upper halves.
  zip1: "<i:22> zip1 <v:0>, <v:5>, <v:16>: 4e003800",
  zip2: "<i:22> zip2 <v:0>, <v:5>, <v:16>: 4e007800",
  movi0: "movi <v:0>.2d, #0: 6f00e400",
  // General registers. madd is to = a · b + c; adds and subs set the flags.
  mov: "mov <x:0>, <x:16>: aa0003e0",
  movz: "mov <x:0>, #<u16:5>: d2800000",
  add: ["add <x:0>, <x:5>, <x:16>: 8b000000", "add <x:0>, <x:5>, #<u12:10>: 91000000"],
  sub: "sub <x:0>, <x:5>, #<u12:10>: d1000000",
  adds: "adds <x:0>, <x:5>, #<u12:10>: b1000000",
  subs: "subs <x:0>, <x:5>, #<u12:10>: f1000000",
  mul: "mul <x:0>, <x:5>, <x:16>: 9b007c00",
  madd: "madd <x:0>, <x:5>, <x:16>, <x:10>: 9b000000",
  // Control.
  b: "b <j26:0>: 14000000",
  bCond: "b.<c:0> <j19:5>: 54000000",
  cbz: "cbz <x:0>, <j19:5>: b4000000",
  blr: "blr <x:5>: d63f0000",
  ret: "ret: d65f03c0",
} as const satisfies Readonly<Record<string, string | readonly string[]>>;

type Table = typeof INSTRUCTIONS;

/** The name of an instruction. */
export type InstructionName = keyof Table;

type FormOperands<Form> = Form extends `${string}<${infer Kind}:${string}>${infer Rest}`
  ? Kind extends keyof OperandKinds
    ? Kind extends "o12"
      ? [offset?: number]
      : [OperandKinds[Kind], ...FormOperands<Rest>]
    : never
  : [];

/** The operands of an instruction. */
export type OperandsOf<N extends InstructionName> = Table[N] extends readonly string[]
  ? FormOperands<Table[N][number]>
  : FormOperands<Table[N]>;

/** An operand of an instruction: what it is, and which bits of the word it takes. */
export interface BitField {
  readonly kind: keyof OperandKinds;
  readonly bit: number;
  readonly unit: number;
}

/** One form of an instruction, as the encoder reads it. */
export interface Form {
  readonly fields: readonly BitField[];
  readonly word: number;
  /** The text around the fields. */
  readonly text: readonly string[];
}

export const instructionNames = Object.keys(INSTRUCTIONS) as InstructionName[];

/** The forms of an instruction, in order. */
export function formsOf(name: InstructionName): readonly Form[] {
  return [INSTRUCTIONS[name]].flat().map(parse);
}

function parse(form: string): Form {
  const [, text = "", word = ""] = /^(.*): (\w+)$/.exec(form) ?? [];
  // Text alternates with the parts of fields.
  const pieces = text.replace(/^(<[fi]:\d+>) /, "$1").split(/<(\w+):(\d+)(?:\*(\d+))?>/);
  return {
    fields: pieces.flatMap((kind, i) =>
      i % 4 === 1
        ? [{ kind: kind as BitField["kind"], bit: Number(pieces[i + 1]), unit: Number(pieces[i + 2] ?? 1) }]
        : [],
    ),
    word: Number.parseInt(word, 16),
    text: pieces.filter((_, i) => i % 4 === 0),
  };
}
