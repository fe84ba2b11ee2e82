import type { FunctionBody } from "./functionBody.js";

/**
 * How four elements lie in memory; their registers always have 32-bit lanes. Words are as they are; halves and bytes
 * are extended by zeros, or by their sign where they have one; a flag is a byte that becomes a mask.
 */
export type VectorStorage = "word" | "half" | "signedHalf" | "byte" | "signedByte" | "flag";

/** Bytes an element of each storage takes. */
export const STORAGE_BYTES: { readonly [S in VectorStorage]: number } = {
  word: 4,
  half: 2,
  signedHalf: 2,
  byte: 1,
  signedByte: 1,
  flag: 1,
};

/** Loads four consecutive elements from the address on the stack. */
export function emitVectorLoad(code: FunctionBody, storage: VectorStorage, offset = 0): void {
  switch (storage) {
    case "word":
      code.memory("v128.load", offset);
      return;
    case "half":
      code.memory("v128.load16x4_u", offset);
      return;
    case "signedHalf":
      code.memory("v128.load16x4_s", offset);
      return;
    case "signedByte":
      code.memory("v128.load32_zero", offset, 0);
      code.vector("i16x8.extend_low_i8x16_s").vector("i32x4.extend_low_i16x8_s");
      return;
    case "byte":
    case "flag":
      code.memory("v128.load32_zero", offset, 0);
      code.vector("i16x8.extend_low_i8x16_u").vector("i32x4.extend_low_i16x8_u");
      if (storage === "flag") emitWidening(code, storage);
      return;
  }
}

/** Makes lanes of the vector on the stack of elements that stand in the lowest bits of lanes that are clear else. */
export function emitWidening(code: FunctionBody, storage: VectorStorage): void {
  switch (storage) {
    case "word":
    case "half":
    case "byte":
      return;
    case "signedHalf":
    case "signedByte": {
      const unused = 32 - 8 * STORAGE_BYTES[storage];
      code.i32(unused).vector("i32x4.shl").i32(unused).vector("i32x4.shr_s");
      return;
    }
    case "flag":
      code.v128([0, 0, 0, 0]).vector("i32x4.ne");
      return;
  }
}

/** Loads one element from the address on the stack into every lane, for broadcasts and remainders. */
export function emitSplatLoad(code: FunctionBody, storage: VectorStorage, offset = 0): void {
  switch (storage) {
    case "word":
      code.memory("v128.load32_splat", offset);
      return;
    case "half":
      code.memory("i32.load16_u", offset).vector("i32x4.splat");
      return;
    case "signedHalf":
      code.memory("i32.load16_s", offset).vector("i32x4.splat");
      return;
    case "signedByte":
      code.memory("i32.load8_s", offset).vector("i32x4.splat");
      return;
    case "byte":
    case "flag":
      code.memory("i32.load8_u", offset).vector("i32x4.splat");
      emitWidening(code, storage);
      return;
  }
}

/**
 * Stores four lanes at consecutive elements, none of which is out of the storage's range; the stack holds the address
 * and the vector. A mask becomes 0 or 1.
 */
export function emitVectorStore(code: FunctionBody, storage: VectorStorage, offset = 0): void {
  const zeros = () => code.v128([0, 0, 0, 0]);
  switch (storage) {
    case "word":
      code.memory("v128.store", offset);
      return;
    case "half":
      zeros().vector("i16x8.narrow_i32x4_u").laneMemory("v128.store64_lane", 0, offset);
      return;
    case "signedHalf":
      zeros().vector("i16x8.narrow_i32x4_s").laneMemory("v128.store64_lane", 0, offset);
      return;
    case "signedByte":
      zeros().vector("i16x8.narrow_i32x4_s");
      zeros().vector("i8x16.narrow_i16x8_s").laneMemory("v128.store32_lane", 0, offset);
      return;
    case "byte":
    case "flag":
      if (storage === "flag") code.v128([1, 1, 1, 1]).vector("v128.and");
      zeros().vector("i16x8.narrow_i32x4_u");
      zeros().vector("i8x16.narrow_i16x8_u").laneMemory("v128.store32_lane", 0, offset);
      return;
  }
}

/** Stores lane 0 alone; the stack holds the address and the vector. */
export function emitLaneStore(code: FunctionBody, storage: VectorStorage, offset = 0): void {
  if (storage === "flag") code.v128([1, 1, 1, 1]).vector("v128.and");
  switch (STORAGE_BYTES[storage]) {
    case 4:
      code.laneMemory("v128.store32_lane", 0, offset);
      return;
    case 2:
      code.laneMemory("v128.store16_lane", 0, offset);
      return;
    default:
      code.laneMemory("v128.store8_lane", 0, offset);
  }
}
