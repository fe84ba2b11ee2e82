/** The operands of AArch64 instructions. */

/** A register: general (`x`, or the stack pointer), or 128 (`q`), 64 (`d`), 32 (`s`) or 16 bits (`h`) of a vector. */
export interface Register {
  readonly kind: "x" | "q" | "d" | "s" | "h";
  readonly id: number;
}

/** A general register. */
export const x = (id: number): Register => ({ kind: "x", id });
/** All 128 bits of a vector register. */
export const q = (id: number): Register => ({ kind: "q", id });
/** The lowest 64 bits of a vector register. */
export const d = (id: number): Register => ({ kind: "d", id });
/** The lowest 32 bits of a vector register. */
export const s = (id: number): Register => ({ kind: "s", id });
/** The lowest 16 bits of a vector register. */
export const h = (id: number): Register => ({ kind: "h", id });
/** The stack pointer, which shares its number with the register that is always zero. */
export const sp = x(31);

/** How 128 bits are divided into floating-point numbers, with the number that instructions have for it. */
export const FLOAT_LANES = { "4s": 0, "2d": 1 } as const;
/** How 128 bits are divided into lanes of any type, with the number that instructions have for it. */
export const INTEGER_LANES = { "8h": 1, "4s": 2, "2d": 3 } as const;
/** When a jump happens, with the number that instructions have for it. */
export const CONDITIONS = { eq: 0, ne: 1, ge: 10, lt: 11 } as const;

/** Four lanes of 32 bits or two of 64. */
export type FloatLanes = keyof typeof FLOAT_LANES;
/** Eight lanes of 16 bits, four of 32 or two of 64. */
export type IntegerLanes = keyof typeof INTEGER_LANES;
/** When a jump happens after flags were set. */
export type Condition = keyof typeof CONDITIONS;
