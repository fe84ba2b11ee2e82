/**
 * The instructions of x86-64 that generated code uses, written as the manual does. A form is `operands: encoding`, and an
 * instruction with several forms takes the first that accepts its operands.
 *
 * Operands are letters of the manual's opcode maps, see {@link OperandKinds}. The encoding is
 * * the bytes of the opcode, or for vectors `VEX`, the implied prefix, the opcode map and the opcode: VEX stands for EVEX
 *   too, which is used where VEX does not reach; `W1` sets the W bit in both, `EW1` only in EVEX;
 * * `/2`: a digit in the field of the first register;
 * * `d64`: works on 64 bits without a prefix that says so;
 * * `by4`, `half`, `quarter`: what a displacement of one byte counts in with EVEX, in bytes or parts of a vector, when it
 *   is not a whole vector;
 * * a name, which the instruction has in its EVEX form;
 * * `'name'`: its name for the assembler, when it is not that of the row.
 */
import type { Label } from "../code.js";
import type { Condition, Gpr, Masking, Mem, Vector } from "./operands.js";

/** The kinds of operands, and the field of an instruction that each goes to. */
export interface OperandKinds {
  /** A general register in ModRM.reg; one in ModRM.rm; one in the opcode, of 32 bits for `Zd`; the first one. */
  readonly G: Gpr;
  readonly R: Gpr;
  readonly Z: Gpr;
  readonly Zd: Gpr;
  readonly A: Gpr;
  /** Memory; a second letter is its size: 1, 2, 4, 8 bytes. */
  readonly M: Mem;
  readonly Mb: Mem;
  readonly Mw: Mem;
  readonly Md: Mem;
  readonly Mq: Mem;
  /** A general register or memory in ModRM.rm. */
  readonly E: Gpr | Mem;
  /** A vector register in ModRM.reg; in VEX.vvvv; in ModRM.rm; and a vector register or memory there. */
  readonly V: Vector;
  readonly H: Vector;
  readonly U: Vector;
  readonly W: Vector | Mem;
  /** A vector register from 8 to 15 in ModRM.reg, and one below 8 in ModRM.rm. */
  readonly Vhigh: Vector;
  readonly Ulow: Vector;
  /** The number of a mask register in ModRM.reg. */
  readonly K: number;
  /** The number of a tile in ModRM.reg; in ModRM.rm; in VEX.vvvv. */
  readonly T: number;
  readonly TW: number;
  readonly TH: number;
  /** A byte; one whose sign is extended; 32 bits, signed; 32 bits, unsigned. */
  readonly Ib: number;
  readonly Is: number;
  readonly Iz: number;
  readonly Id: number;
  /** Where to jump, and when. */
  readonly J: Label;
  readonly cc: Condition;
}

/** The forms of an arithmetic instruction, which differ by a digit. */
function arithmetic(digit: number) {
  const opcode = (form: number) => (8 * digit + form).toString(16);
  return [
    `E G: ${opcode(1)}`,
    `G M: ${opcode(3)}`,
    `R Is: 83 /${digit}`,
    `A Iz: ${opcode(5)}`,
    `R Iz: 81 /${digit}`,
  ] as const;
}

const INSTRUCTIONS = {
  // General registers.
  mov: ["E G: 89", "G M: 8b", "Zd Id: b8"],
  lea: "G M: 8d",
  add: arithmetic(0),
  and: arithmetic(4),
  sub: arithmetic(5),
  xor: arithmetic(6),
  cmp: arithmetic(7),
  test: "E G: 85",
  imul: ["G E Is: 6b", "G E Iz: 69"],
  dec: "R: ff /1",
  // rax = rdx:rax / operand, rdx = what remains; unsigned.
  div: "R: f7 /6",
  push: "Z: 50 d64",
  pop: "Z: 58 d64",
  cmov: "cc G E: 0f 40",
  movzx8: "G Mb: 0f b6 'movzx'",
  movzx16: "G Mw: 0f b7 'movzx'",
  movsxd: "G Md: 63",
  cvttsd2si: "G Mq: f2 0f 2c",
  // Stores eax ecx times, starting at the address in rdi.
  repStosb: ": f3 aa 'rep stosb'",
  repStosw: ": 66 f3 ab 'rep stosw'",
  repStosd: ": f3 ab 'rep stosd'",
  // Control, and queries of the processor.
  call: ["R: ff /2 d64", "J: e8"],
  ret: ": c3",
  jmp: "J: e9 '{disp32} jmp'",
  j: "cc J: 0f 80 '{disp32} j'",
  cpuid: ": 0f a2",
  xgetbv: ": 0f 01 d0",
  prefetcht0: "M: 0f 18 /1",
  prefetcht1: "M: 0f 18 /2",
  vzeroupper: ": c5 f8 77",
  // Vectors: moves. Both opcodes work between two registers; that of stores is shorter if only the source is high.
  vmovups: ["Ulow Vhigh: VEX.0F 11", "V W: VEX.0F 10", "M V: VEX.0F 11"],
  vmovupd: ["Ulow Vhigh: VEX.66.0F.EW1 11", "V W: VEX.66.0F.EW1 10", "M V: VEX.66.0F.EW1 11"],
  vmaskmovps: ["V H M: VEX.66.0F38 2c", "M H V: VEX.66.0F38 2e"],
  vmaskmovpd: ["V H M: VEX.66.0F38 2d", "M H V: VEX.66.0F38 2f"],
  vmovd: ["V R: VEX.66.0F 6e", "M V: VEX.66.0F 7e"],
  vmovq: "M V: VEX.66.0F d6",
  vpextrb: "M V Ib: VEX.66.0F3A 14",
  vpextrw: "M V Ib: VEX.66.0F3A 15",
  vpmovzxbd: "V W: VEX.66.0F38 31 quarter",
  vpmovzxwd: "V W: VEX.66.0F38 33 half",
  vpmovdb: "M V: VEX.F3.0F38 31 quarter",
  vpmovdw: "M V: VEX.F3.0F38 33 half",
  vbroadcastss: "V W: VEX.66.0F38 18 by4",
  vbroadcastsd: "V W: VEX.66.0F38.EW1 19 by8",
  vbroadcastf32x4: "V M: VEX.66.0F38 1a by16",
  vpbroadcastd: ["V R: VEX.66.0F38 7c", "V W: VEX.66.0F38 58 by4"],
  kmovw: "K R: VEX.0F 92",
  // Vectors: other orders of lanes.
  vinsertf128: "V H M Ib: VEX.66.0F3A 18",
  vshuff32x4: "V H W Ib: VEX.66.0F3A 23",
  vpshufd: "V W Ib: VEX.66.0F 70",
  vpermq: "V W Ib: VEX.66.0F3A.W1 00",
  vunpcklps: "V H W: VEX.0F 14",
  vunpckhps: "V H W: VEX.0F 15",
  vunpcklpd: "V H W: VEX.66.0F.EW1 14",
  vunpckhpd: "V H W: VEX.66.0F.EW1 15",
  vpackuswb: "V H W: VEX.66.0F 67",
  vpackusdw: "V H W: VEX.66.0F38 2b",
  // Vectors: floating-point numbers. vfmadd231 is to += a · b, vfmadd213 is to = a · to + b; vfn… subtracts the product.
  vsqrtps: "V W: VEX.0F 51",
  vxorps: "V H W: VEX.0F 57",
  vaddps: "V H W: VEX.0F 58",
  vaddpd: "V H W: VEX.66.0F.EW1 58",
  vmulps: "V H W: VEX.0F 59",
  vmulpd: "V H W: VEX.66.0F.EW1 59",
  vsubps: "V H W: VEX.0F 5c",
  vminps: "V H W: VEX.0F 5d",
  vdivps: "V H W: VEX.0F 5e",
  vmaxps: "V H W: VEX.0F 5f",
  vcvtdq2ps: "V W: VEX.0F 5b",
  vcvttps2dq: "V W: VEX.F3.0F 5b",
  vroundps: "V W Ib: VEX.66.0F3A 08 vrndscaleps",
  vfmadd213ps: "V H W: VEX.66.0F38 a8",
  vfmadd231ps: "V H W: VEX.66.0F38 b8",
  vfmadd231pd: "V H W: VEX.66.0F38.W1 b8",
  vfnmadd213ps: "V H W: VEX.66.0F38 ac",
  vfnmadd231ps: "V H W: VEX.66.0F38 bc",
  // to += the products of both pairs of bfloat16 in each lane, which count as zero where they are denormal.
  vdpbf16ps: "V H W: VEX.F3.0F38 52",
  // Vectors: integers and bits.
  vpand: "V H W: VEX.66.0F db vpandd",
  vpandn: "V H W: VEX.66.0F df vpandnd",
  vpor: "V H W: VEX.66.0F eb vpord",
  vpxor: "V H W: VEX.66.0F ef vpxord",
  // Every bit of the result is the bit of the immediate that the corresponding bits of the three vectors select.
  vpternlogd: "V H W Ib: VEX.66.0F3A 25",
  vpsubd: "V H W: VEX.66.0F fa",
  vpaddd: "V H W: VEX.66.0F fe",
  vpabsd: "V W: VEX.66.0F38 1e",
  vpminsd: "V H W: VEX.66.0F38 39",
  vpminud: "V H W: VEX.66.0F38 3b",
  vpmaxsd: "V H W: VEX.66.0F38 3d",
  vpmaxud: "V H W: VEX.66.0F38 3f",
  vpmulld: "V H W: VEX.66.0F38 40",
  vpsrld: "H U Ib: VEX.66.0F 72 /2",
  vpsrad: "H U Ib: VEX.66.0F 72 /4",
  vpslld: "H U Ib: VEX.66.0F 72 /6",
  // Comparisons set all bits of a lane; those of 512 bits set mask registers.
  vcmpps: ["V H W Ib: VEX.0F c2", "K H W Ib: VEX.0F c2"],
  vpcmpgtd: "V H W: VEX.66.0F 66",
  vpcmpeqd: "V H W: VEX.66.0F 76",
  vpcmpud: "K H W Ib: VEX.66.0F3A 1e",
  vpcmpd: "K H W Ib: VEX.66.0F3A 1f",
  // Tiles of AMX; the index of their memory operands is the distance between rows, in bytes.
  ldtilecfg: "M: VEX.0F38 49",
  tilerelease: ": VEX.0F38 49",
  tilezero: "T: VEX.F2.0F38 49",
  tileloadd: "T M: VEX.F2.0F38 4b",
  tilestored: "M T: VEX.F3.0F38 4b",
  // sum += a · b, where b holds pairs of rows.
  tdpbf16ps: "T TW TH: VEX.F3.0F38 5c",
} as const satisfies Readonly<Record<string, string | readonly string[]>>;

type Table = typeof INSTRUCTIONS;

/** The name of an instruction. */
export type InstructionName = keyof Table;

/** The names of the instructions whose only form has these operands. */
export type NamesOf<Operands extends string> = {
  [N in InstructionName]: Table[N] extends `${Operands}: ${string}` ? N : never;
}[InstructionName];

type KindsOf<Operands extends string> = Operands extends `${infer First} ${infer Rest}`
  ? [...KindsOf<First>, ...KindsOf<Rest>]
  : Operands extends keyof OperandKinds
    ? [OperandKinds[Operands]]
    : [];

type FormOperands<Form> = Form extends `${infer Operands}: ${infer Encoding}`
  ? [...KindsOf<Operands>, ...(Encoding extends `VEX${string}` ? [masking?: Masking] : [])]
  : never;

/** Each operand is accepted by some form; whether one form accepts them all is checked when code is written. */
type AnyForm<First extends readonly unknown[], Forms extends readonly unknown[]> = {
  [I in keyof First]: Forms[I & keyof Forms];
};

/** The operands of an instruction. */
export type OperandsOf<N extends InstructionName> = Table[N] extends readonly string[]
  ? AnyForm<FormOperands<Table[N][0]>, FormOperands<Table[N][number]>>
  : FormOperands<Table[N]>;

/** One form of an instruction, as the encoder reads it. */
export interface Form {
  readonly kinds: readonly (keyof OperandKinds)[];
  /** Its names for GNU `as`, without and with EVEX. */
  readonly mnemonic: string;
  readonly evexMnemonic: string;
  /** What precedes the opcode of vector instructions. */
  readonly vex: Vex | undefined;
  readonly opcode: readonly number[];
  /** The value of ModRM.reg if there is no operand. */
  readonly digit: number;
  /** Whether the operands have 64 bits without a prefix that says so. */
  readonly isAlways64: boolean;
}

/** The implied prefix, the opcode map and the W bits of an instruction on vectors. */
export interface Vex {
  readonly pp: number;
  readonly map: number;
  readonly w: 0 | 1;
  readonly evexW: 0 | 1;
  /** The unit of one-byte displacements with EVEX: a number of bytes, or a fraction of the vector. */
  readonly unit: number | undefined;
  readonly share: number;
}

const PREFIXES = ["", "66", "F3", "F2"];
const MAPS = ["", "0F", "0F38", "0F3A"];

export const instructionNames = Object.keys(INSTRUCTIONS) as InstructionName[];

/** The forms of an instruction, in order. */
export function formsOf(name: InstructionName): readonly Form[] {
  return [INSTRUCTIONS[name]].flat().map((form) => parse(name, form));
}

function parse(name: string, form: string): Form {
  const [, operands = "", encoding = "", mnemonic = name] = /^(.*): ([^']*)(?:'(.*)')?$/.exec(form) ?? [];
  const words = encoding.trim().split(" ");
  const find = (pattern: RegExp) => words.map((word) => pattern.exec(word)?.[1]).find((found) => found);
  return {
    kinds: operands.split(" ").filter((kind) => kind !== "") as (keyof OperandKinds)[],
    ...{ mnemonic, evexMnemonic: find(/^(v\w+)$/) ?? mnemonic },
    vex: encoding.startsWith("VEX") ? parseVex(words) : undefined,
    opcode: words.filter((word) => /^[0-9a-f]{1,2}$/.test(word)).map((byte) => Number.parseInt(byte, 16)),
    digit: Number(find(/^\/(\d)$/) ?? 0),
    isAlways64: words.includes("d64"),
  };
}

function parseVex([prefixes = "", ...words]: readonly string[]): Vex {
  const parts = prefixes.split(".");
  const index = (names: readonly string[]) => Math.max(0, ...parts.map((part) => names.indexOf(part)));
  const unit = words.find((word) => word.startsWith("by"))?.slice(2);
  return {
    ...{ pp: index(PREFIXES), map: index(MAPS) },
    w: parts.includes("W1") ? 1 : 0,
    evexW: parts.includes("W1") || parts.includes("EW1") ? 1 : 0,
    unit: unit === undefined ? undefined : Number(unit),
    share: words.includes("quarter") ? 4 : words.includes("half") ? 2 : 1,
  };
}
