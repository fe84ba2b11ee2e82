import type { FunctionBody } from "./functionBody.js";

/** How four elements lie in memory; their registers always have 32-bit lanes. */
export type VectorStorage = "word" | "half" | "byte";

/** Bytes an element of each storage takes. */
export const STORAGE_BYTES: { readonly [S in VectorStorage]: number } = { word: 4, half: 2, byte: 1 };

/**
 * Loads four consecutive elements from the address on the stack: words as they are, halves
 * zero-extended (see `fromBfloat16`, `fromFloat16`), bytes as masks that are set where the byte is not zero.
 */
export function emitVectorLoad(code: FunctionBody, storage: VectorStorage, offset = 0): void {
  switch (storage) {
    case "word":
      code.memory("v128.load", offset);
      return;
    case "half":
      code.memory("v128.load16x4_u", offset);
      return;
    case "byte":
      code.memory("v128.load32_zero", offset, 0);
      code.vector("i16x8.extend_low_i8x16_u").vector("i32x4.extend_low_i16x8_u");
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
    case "byte":
      code.memory("i32.load8_u", offset).vector("i32x4.splat");
      code.v128([0, 0, 0, 0]).vector("i32x4.ne");
      return;
  }
}

/**
 * Stores four lanes at consecutive elements; the stack holds the address and the vector. Halves take the
 * low 16 bits (upper half clear), bytes a mask that becomes 0 or 1.
 */
export function emitVectorStore(code: FunctionBody, storage: VectorStorage, offset = 0): void {
  switch (storage) {
    case "word":
      code.memory("v128.store", offset);
      return;
    case "half":
      code.v128([0, 0, 0, 0]).vector("i16x8.narrow_i32x4_u").laneMemory("v128.store64_lane", 0, offset);
      return;
    case "byte":
      code.v128([1, 1, 1, 1]).vector("v128.and");
      code.v128([0, 0, 0, 0]).vector("i16x8.narrow_i32x4_u");
      code.v128([0, 0, 0, 0]).vector("i8x16.narrow_i16x8_u").laneMemory("v128.store32_lane", 0, offset);
      return;
  }
}

/** Stores lane 0 alone; the stack holds the address and the vector. */
export function emitLaneStore(code: FunctionBody, storage: VectorStorage, offset = 0): void {
  switch (storage) {
    case "word":
      code.laneMemory("v128.store32_lane", 0, offset);
      return;
    case "half":
      code.laneMemory("v128.store16_lane", 0, offset);
      return;
    case "byte":
      code.v128([1, 1, 1, 1]).vector("v128.and").laneMemory("v128.store8_lane", 0, offset);
      return;
  }
}
