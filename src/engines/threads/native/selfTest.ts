import type { Product } from "../../../compiler/native/gemmPlan.js";
import type { CodeMemory } from "./codeMemory.js";
import { type InstructionSet, NativeGemm } from "./nativeGemm.js";

/** Shapes that reach every kind of kernel: factors in place and packed, edges, several steps along k. */
const SHAPES = [
  [1, 1, 1],
  [15, 33, 7],
  [29, 70, 19],
  [20, 40, 400],
] as const;

/** Rows of the larger shapes are this much longer, so that factors are packed. */
const LONG_ROW = 261;

/** Whether every element of some products is right. */
export function multipliesRight(memory: CodeMemory, set: InstructionSet): boolean {
  const gemm = new NativeGemm(memory, set);
  return ([4, 8] as const).every((size) =>
    SHAPES.every(([m, n, k]) =>
      [false, true].every((transposeA) =>
        [false, true].every((transposeB) => {
          const pad = m > 20 ? LONG_ROW : 0;
          const [lda, ldb, ldc] = [(transposeA ? m : k) + pad, (transposeB ? k : n) + pad, n + 1];
          const shape = { transposeA, transposeB, m, n, k, lda, ldb, ldc };
          return isRight(memory, gemm, size, { ...shape, alpha: -0.5, beta: transposeA ? 1 : 0 });
        }),
      ),
    ),
  );
}

/** Compares a product of small whole numbers, which every order of adding computes exactly. */
function isRight(memory: CodeMemory, gemm: NativeGemm, size: 4 | 8, product: Product): boolean {
  const { transposeA, transposeB, m, n, k, lda, ldb, ldc, alpha, beta } = product;
  const bAt = (transposeA ? k : m) * lda;
  const cAt = bAt + (transposeB ? n : k) * ldb;
  const buffer = new SharedArrayBuffer((cAt + m * ldc) * size);
  const data = size === 4 ? new Float32Array(buffer) : new Float64Array(buffer);
  for (let i = 0; i < data.length; i++) data[i] = ((i * 7919) % 17) - 8;
  const old = data.slice(cAt);
  if (beta === 0) data.fill(Number.NaN, cAt);
  const at = memory.addressOf(buffer);
  gemm.prepare(size, product)(at, at + bAt * size, at + cAt * size);
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < n; j++) {
      let sum = 0;
      for (let l = 0; l < k; l++) {
        const x = data[transposeA ? l * lda + i : i * lda + l] ?? 0;
        sum += x * (data[transposeB ? bAt + j * ldb + l : bAt + l * ldb + j] ?? 0);
      }
      if (data[cAt + i * ldc + j] !== alpha * sum + beta * (old[i * ldc + j] ?? 0)) return false;
    }
  }
  return true;
}
