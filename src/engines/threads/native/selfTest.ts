import type { Product } from "../../../compiler/native/gemmPlan.js";
import { elementsOf, type ProductType } from "../../../compiler/native/gemmTarget.js";
import { toBfloat16Bits } from "../../../ir/dtype.js";
import type { CodeMemory } from "./codeMemory.js";
import { NativeGemm, type ProductSets, targetsOf } from "./nativeGemm.js";

/** Rows that are this much longer than they need be make a plan pack its factors. */
const LONG = 261;

/** Products that together reach every kind of kernel: factors in place and packed, edges, several steps along k. */
const PRODUCTS = [
  { m: 15, n: 33, k: 7, transposeA: false, transposeB: false, pad: 0, beta: 0 },
  { m: 14, n: 5, k: 19, transposeA: true, transposeB: true, pad: 0, beta: 1 },
  { m: 17, n: 40, k: 21, transposeA: true, transposeB: false, pad: LONG, beta: 1 },
  { m: 9, n: 18, k: 390, transposeA: false, transposeB: true, pad: 0, beta: 0 },
];

/** Whether every element of some products is right, for all types that these instructions multiply. */
export function multipliesRight(memory: CodeMemory, sets: ProductSets): boolean {
  const gemm = new NativeGemm(memory, targetsOf(sets));
  const types: readonly ProductType[] = [
    "float32",
    "float64",
    ...(sets.bfloat16 ? ["bfloat16" as const] : []),
  ];
  return types.every((type) =>
    PRODUCTS.every(({ pad, ...product }) => {
      const { m, n, k, transposeA, transposeB } = product;
      const [lda, ldb, ldc] = [(transposeA ? m : k) + pad, (transposeB ? k : n) + pad, n + 1];
      return isRight(memory, gemm, type, { ...product, lda, ldb, ldc, alpha: -0.5 });
    }),
  );
}

/** Compares a product of small whole numbers, which every order of adding computes exactly. */
function isRight(memory: CodeMemory, gemm: NativeGemm, type: ProductType, product: Product): boolean {
  const { transposeA, transposeB, m, n, k, lda, ldb, ldc, alpha, beta } = product;
  const { size, factorBytes } = elementsOf(type);
  const bAt = (transposeA ? k : m) * lda;
  const numFactors = bAt + (transposeB ? n : k) * ldb;
  // Factors first, of whatever size; the result after as many lanes as there are of them.
  const buffer = new SharedArrayBuffer((numFactors + m * ldc) * size);
  const factors = Float64Array.from({ length: numFactors }, (_, i) => ((i * 7919) % 17) - 8);
  if (type === "bfloat16") new Uint16Array(buffer).set(factors.map(toBfloat16Bits));
  else (size === 4 ? new Float32Array(buffer) : new Float64Array(buffer)).set(factors);
  const place = numFactors * size;
  const result = size === 4 ? new Float32Array(buffer, place) : new Float64Array(buffer, place);
  for (let i = 0; i < result.length; i++) result[i] = beta === 0 ? Number.NaN : (i % 13) - 6;
  const old = result.slice();
  const at = memory.addressOf(buffer);
  gemm.prepare(type, product)(at, at + bAt * factorBytes, at + place);
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < n; j++) {
      let sum = 0;
      for (let l = 0; l < k; l++) {
        const x = factors[transposeA ? l * lda + i : i * lda + l] ?? 0;
        sum += x * (factors[transposeB ? bAt + j * ldb + l : bAt + l * ldb + j] ?? 0);
      }
      const kept = beta === 0 ? 0 : beta * (old[i * ldc + j] ?? 0);
      if (result[i * ldc + j] !== alpha * sum + kept) return false;
    }
  }
  return true;
}
