/** The operands of x86-64 instructions: registers and memory. */
import { type Label, labelName } from "../code.js";

/** A general register, whole or its lower half. */
export interface Gpr {
  readonly kind: "gpr";
  readonly id: number;
  readonly bits: 32 | 64;
  readonly name: string;
}

/** A vector register. */
export interface Vector {
  readonly kind: "vector";
  readonly id: number;
  readonly bits: VectorBits;
}

/** The widths of vector registers. */
export type VectorBits = 128 | 256 | 512;

/** Memory: base + index · scale + displacement, or a label of the same code. */
export type Mem =
  | {
      readonly kind: "mem";
      readonly base: Gpr;
      readonly disp: number;
      readonly index: Gpr | undefined;
      readonly scale: 1 | 2 | 4 | 8;
      /** The number of lanes in which one element of memory is repeated, if it is no whole vector; only with EVEX. */
      readonly lanes?: number;
    }
  | { readonly kind: "rip"; readonly label: Label };

const names64 = "rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15" as const;
const names32 = "eax ecx edx ebx esp ebp esi edi r8d r9d r10d r11d r12d r13d r14d r15d".split(" ");
const registers = names64
  .split(" ")
  .map((name, id): [string, Gpr] => [name, { kind: "gpr", id, bits: 64, name }]);

type Words<Text> = Text extends `${infer First} ${infer Rest}` ? First | Words<Rest> : Text;

/** The general registers. */
export const gpr = Object.fromEntries(registers) as Readonly<Record<Words<typeof names64>, Gpr>>;

/** The lower 32 bits of a general register. */
export function low32(register: Gpr): Gpr {
  return { ...register, bits: 32, name: names32[register.id] ?? "" };
}

/** A vector register by width and number. */
export function vec(bits: VectorBits, id: number): Vector {
  return { kind: "vector", id, bits };
}

/** The memory at `base + index · scale + disp`. */
export function mem(base: Gpr, disp = 0, index?: Gpr, scale: 1 | 2 | 4 | 8 = 1): Mem {
  return { kind: "mem", base, disp, index, scale };
}

/** The element at `base + disp`, in each of `lanes` lanes. */
export function repeated(base: Gpr, disp: number, lanes: number): Mem {
  return { kind: "mem", base, disp, index: undefined, scale: 1, lanes };
}

/** The memory at a label of the same code. */
export function ripTo(label: Label): Mem {
  return { kind: "rip", label };
}

/** The lanes that an AVX-512 instruction writes: mask register k1 to k7; the others are kept or cleared. */
export interface Masking {
  readonly mask: number;
  readonly zero?: boolean;
}

/** The conditions of jumps and moves after a comparison, signed except for `ae`. */
export const CONDITIONS = { ae: 3, e: 4, ne: 5, l: 12, ge: 13, le: 14, g: 15 } as const;

/** A condition of a jump or a move. */
export type Condition = keyof typeof CONDITIONS;

/** A memory operand as GNU `as` reads it. */
export function memText(at: Mem): string {
  if (at.kind === "rip") return `[rip + ${labelName(at.label)}]`;
  const index = at.index === undefined ? "" : ` + ${at.index.name} * ${at.scale}`;
  const disp = at.disp === 0 ? "" : at.disp < 0 ? ` - ${-at.disp}` : ` + ${at.disp}`;
  const lanes = at.lanes === undefined ? "" : `{1to${at.lanes}}`;
  return `[${at.base.name}${index}${disp}]${lanes}`;
}

/** A vector register as GNU `as` reads it. */
export function vectorText({ bits, id }: Vector): string {
  return `${bits === 512 ? "zmm" : bits === 256 ? "ymm" : "xmm"}${id}`;
}

/** The mask of an instruction as GNU `as` reads it. */
export function maskText(masking: Masking | undefined): string {
  return masking === undefined ? "" : `{k${masking.mask}}${masking.zero ? "{z}" : ""}`;
}
