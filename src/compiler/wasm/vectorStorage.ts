import type { FunctionBody } from "./functionBody.js";
import type { MemoryOp, VectorOp } from "./opcodes.js";

/**
 * How four elements lie in memory; their registers always have 32-bit lanes. Words are as they are; halves and bytes
 * are extended by zeros, or by their sign where they have one; a flag is a byte that becomes a mask.
 */
export type VectorStorage = "word" | "half" | "signedHalf" | "byte" | "signedByte" | "flag";

/** The instructions of a storage. */
interface StorageCode {
  /** Loads four elements, which `widen` extends to 32 bits. */
  readonly load: MemoryOp;
  readonly widen: readonly VectorOp[];
  /** Loads one element: into all lanes if it is a word, else as an integer. */
  readonly loadOne: MemoryOp;
  /** Each halves the width of the elements; the other half of the vector is filled with zeros. */
  readonly narrow: readonly VectorOp[];
}

const BYTE: StorageCode = {
  load: "v128.load32_zero",
  widen: ["i16x8.extend_low_i8x16_u", "i32x4.extend_low_i16x8_u"],
  loadOne: "i32.load8_u",
  narrow: ["i16x8.narrow_i32x4_u", "i8x16.narrow_i16x8_u"],
};

const STORAGE_CODE: { readonly [S in VectorStorage]: StorageCode } = {
  word: { load: "v128.load", widen: [], loadOne: "v128.load32_splat", narrow: [] },
  half: { load: "v128.load16x4_u", widen: [], loadOne: "i32.load16_u", narrow: ["i16x8.narrow_i32x4_u"] },
  signedHalf: {
    load: "v128.load16x4_s",
    widen: [],
    loadOne: "i32.load16_s",
    narrow: ["i16x8.narrow_i32x4_s"],
  },
  byte: BYTE,
  signedByte: {
    load: "v128.load32_zero",
    widen: ["i16x8.extend_low_i8x16_s", "i32x4.extend_low_i16x8_s"],
    loadOne: "i32.load8_s",
    narrow: ["i16x8.narrow_i32x4_s", "i8x16.narrow_i16x8_s"],
  },
  flag: BYTE,
};

/** Bytes an element of each storage takes. */
export const STORAGE_BYTES: { readonly [S in VectorStorage]: 1 | 2 | 4 } = {
  ...{ word: 4, half: 2, signedHalf: 2, byte: 1, signedByte: 1, flag: 1 },
};

/** Loads four consecutive elements from the address on the stack. */
export function emitVectorLoad(code: FunctionBody, storage: VectorStorage, offset = 0): void {
  const { load, widen } = STORAGE_CODE[storage];
  code.memory(load, offset, STORAGE_BYTES[storage] === 1 ? 0 : undefined);
  for (const op of widen) code.vector(op);
  if (storage === "flag") toMask(code);
}

/** Extends the elements in the lowest bits of the lanes of the vector on the stack, whose other bits are clear. */
export function emitWidening(code: FunctionBody, storage: VectorStorage): void {
  if (storage === "flag") toMask(code);
  if (storage !== "signedHalf" && storage !== "signedByte") return;
  const unused = 32 - 8 * STORAGE_BYTES[storage];
  code.i32(unused).vector("i32x4.shl").i32(unused).vector("i32x4.shr_s");
}

/** Loads one element from the address on the stack into every lane, for broadcasts and remainders. */
export function emitSplatLoad(code: FunctionBody, storage: VectorStorage, offset = 0): void {
  code.memory(STORAGE_CODE[storage].loadOne, offset);
  if (STORAGE_BYTES[storage] < 4) code.vector("i32x4.splat");
  if (storage === "flag") toMask(code);
}

/**
 * Stores four lanes at consecutive elements, none of which is out of the storage's range; the stack holds the address
 * and the vector. A mask becomes 0 or 1.
 */
export function emitVectorStore(code: FunctionBody, storage: VectorStorage, offset = 0): void {
  if (storage === "flag") toBit(code);
  for (const op of STORAGE_CODE[storage].narrow) code.v128([0, 0, 0, 0]).vector(op);
  const bytes = STORAGE_BYTES[storage];
  if (bytes === 4) code.memory("v128.store", offset);
  else code.laneMemory(bytes === 2 ? "v128.store64_lane" : "v128.store32_lane", 0, offset);
}

/** Stores lane 0 alone; the stack holds the address and the vector. */
export function emitLaneStore(code: FunctionBody, storage: VectorStorage, offset = 0): void {
  if (storage === "flag") toBit(code);
  const bits = { 1: 8, 2: 16, 4: 32 } as const;
  code.laneMemory(`v128.store${bits[STORAGE_BYTES[storage]]}_lane`, 0, offset);
}

function toMask(code: FunctionBody): void {
  code.v128([0, 0, 0, 0]).vector("i32x4.ne");
}

/** Makes 0 or 1 of the mask on the stack. */
export function toBit(code: FunctionBody): void {
  code.v128([1, 1, 1, 1]).vector("v128.and");
}
