import type { Product } from "../../compiler/native/gemm/gemmPlan.js";
import { elementsOf, type ProductType } from "../../compiler/native/gemm/target.js";
import { toBfloat16Bits } from "../../ir/dtype.js";
import type { CodeMemory } from "../system/codeMemory.js";
import type { ProductSets } from "../system/instructionSets.js";
import { NativeGemm, targetsOf } from "./nativeGemm.js";

/** Padding of rows that makes a plan pack its factors. */
const LONG = 261;

/** Products that together reach every kind of kernel: factors in place and packed, edges, several steps along k. */
const PRODUCTS = [
  { m: 15, n: 33, k: 7, transposeA: false, transposeB: false, pad: 0, beta: 0 },
  { m: 14, n: 5, k: 19, transposeA: true, transposeB: true, pad: 0, beta: 1 },
  { m: 17, n: 40, k: 21, transposeA: true, transposeB: false, pad: LONG, beta: 1 },
  { m: 4, n: 18, k: 390, transposeA: false, transposeB: true, pad: 0, beta: 0 },
];

/** Whether every element of the test products is correct, for all types that these instructions multiply. */
export function multipliesRight(memory: CodeMemory, sets: ProductSets): boolean {
  const gemm = new NativeGemm(memory, targetsOf(sets));
  const types: readonly ProductType[] = [
    "float32",
    "float64",
    ...(sets.bfloat16 ? ["bfloat16" as const] : []),
  ];
  return PRODUCTS.every(({ pad, ...sizes }) => {
    const { m, n, k, transposeA, transposeB } = sizes;
    const [lda, ldb, ldc] = [(transposeA ? m : k) + pad, (transposeB ? k : n) + pad, n + 1];
    const test = exactProduct({ ...sizes, lda, ldb, ldc, alpha: -0.5 });
    return types.every((type) => isRight(memory, gemm, type, test));
  });
}

/** A product of small integers, which is exact in every type whatever the order of additions. */
interface ExactProduct {
  readonly product: Product;
  /** A, and B from `bAt` on. */
  readonly factors: Float64Array;
  readonly bAt: number;
  /** The memory of the result before and after the product; the gaps between its rows must not change. */
  readonly before: Float64Array;
  readonly after: Float64Array;
}

function exactProduct(product: Product): ExactProduct {
  const { transposeA, transposeB, m, n, k, lda, ldb, ldc, alpha, beta } = product;
  const bAt = (transposeA ? k : m) * lda;
  const factors = new Float64Array(bAt + (transposeB ? n : k) * ldb);
  for (let i = 0; i < factors.length; i++) factors[i] = ((i * 7919) % 17) - 8;
  const before = new Float64Array(m * ldc);
  for (let i = 0; i < before.length; i++) before[i] = beta === 0 ? Number.NaN : (i % 13) - 6;
  const after = before.slice();
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < n; j++) {
      let sum = 0;
      for (let l = 0; l < k; l++) {
        const x = factors[transposeA ? l * lda + i : i * lda + l] ?? 0;
        sum += x * (factors[transposeB ? bAt + j * ldb + l : bAt + l * ldb + j] ?? 0);
      }
      const kept = beta === 0 ? 0 : beta * (before[i * ldc + j] ?? 0);
      after[i * ldc + j] = alpha * sum + kept;
    }
  }
  return { product, factors, bAt, before, after };
}

/** Whether machine code computes every element of a product correctly and leaves the memory around them unchanged. */
function isRight(
  memory: CodeMemory,
  gemm: NativeGemm,
  type: ProductType,
  { product, factors, bAt, before, after }: ExactProduct,
): boolean {
  const { size, factorBytes } = elementsOf(type);
  // Factors first; the result starts where as many elements of its own, possibly larger, type would end.
  const place = factors.length * size;
  const buffer = new SharedArrayBuffer(place + after.length * size);
  if (type === "bfloat16") new Uint16Array(buffer).set(factors.map(toBfloat16Bits));
  else (size === 4 ? new Float32Array(buffer) : new Float64Array(buffer)).set(factors);
  const result = size === 4 ? new Float32Array(buffer, place) : new Float64Array(buffer, place);
  result.set(before);
  const at = memory.addressOf(buffer);
  gemm.prepare(type, product)(at, at + bAt * factorBytes, at + place);
  const isSame = (a: number, b: number) => a === b || (Number.isNaN(a) && Number.isNaN(b));
  return after.every((value, i) => isSame(value, result[i] ?? 0));
}
