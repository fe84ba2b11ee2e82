import { BlockedGemm } from "./blockedGemm.js";
import { instantiateGemm } from "./gemmModule.js";

/**
 * A row-major matrix product on byte addresses: C = alpha · op(A) · op(B) + beta · C.
 *
 * Leading dimensions are in elements, op(A) is m by k and op(B) k by n, and C is not read when beta is 0.
 */
export type Gemm = (
  transA: boolean,
  transB: boolean,
  m: number,
  n: number,
  k: number,
  alpha: number,
  a: number,
  lda: number,
  b: number,
  ldb: number,
  beta: number,
  c: number,
  ldc: number,
) => void;

/** Matrix products on one memory. */
export interface WasmGemm {
  /** Float32. */
  readonly sgemm: Gemm;
  /** Float64, plain loops. */
  readonly dgemm: Gemm;
}

/**
 * Matrix products on a memory by the module of `buildGemmModule`.
 *
 * @param scratch address of `GEMM_SCRATCH_BYTES` bytes for exclusive use, 16-byte aligned
 */
export function createWasmGemm(
  module: WebAssembly.Module,
  memory: WebAssembly.Memory,
  scratch: number,
): WasmGemm {
  const functions = instantiateGemm(module, memory);
  const blocked = new BlockedGemm(functions, scratch);
  return {
    sgemm: (transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) => {
      blocked.multiply({ transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc });
    },
    dgemm: (transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) => {
      const [aRow, aStep] = transA ? [8, lda * 8] : [lda * 8, 8];
      const [bStep, bColumn] = transB ? [8, ldb * 8] : [ldb * 8, 8];
      functions.dgemm(m, n, k, a, aRow, aStep, b, bStep, bColumn, c, ldc * 8, alpha, beta);
    },
  };
}
