import type { Product } from "../../../compiler/native/gemmPlan.js";
import type { CodeMemory } from "./codeMemory.js";
import { type InstructionSet, NativeGemm } from "./nativeGemm.js";

/** Rows that are this much longer than they need be make a plan pack its factors. */
const LONG = 261;

/** Products that together reach every kind of kernel: factors in place and packed, edges, several steps along k. */
const PRODUCTS = [
  { m: 15, n: 33, k: 7, transposeA: false, transposeB: false, pad: 0, beta: 0 },
  { m: 14, n: 5, k: 19, transposeA: true, transposeB: true, pad: 0, beta: 1 },
  { m: 17, n: 40, k: 21, transposeA: true, transposeB: false, pad: LONG, beta: 1 },
  { m: 9, n: 18, k: 390, transposeA: false, transposeB: true, pad: 0, beta: 0 },
];

/** Whether every element of some products is right. */
export function multipliesRight(memory: CodeMemory, set: InstructionSet): boolean {
  const gemm = new NativeGemm(memory, set);
  return ([4, 8] as const).every((size) =>
    PRODUCTS.every(({ pad, ...product }) => {
      const { m, n, k, transposeA, transposeB } = product;
      const [lda, ldb, ldc] = [(transposeA ? m : k) + pad, (transposeB ? k : n) + pad, n + 1];
      return isRight(memory, gemm, size, { ...product, lda, ldb, ldc, alpha: -0.5 });
    }),
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
