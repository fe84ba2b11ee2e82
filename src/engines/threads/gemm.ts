import { tileFor } from "../../compiler/gemm/tile.js";
import { createWasmGemm, type Gemm, type WasmGemm } from "../../compiler/gemm/wasmGemm.js";
import type { GemmBatch, GemmStep } from "../../compiler/steps.js";
import { InternalError } from "../../ir/errors.js";
import { BLAS_CROSSOVER, type Blas, findBlas, nativeAddress } from "./blas.js";

/** A matrix product of a program, ready to be called with the addresses of A, B and C. */
export type PreparedGemm = (a: number, b: number, c: number) => void;

/**
 * The matrix products of one device: the system's BLAS where it was found and the product is large enough for
 * its calls to pay, else our WebAssembly kernel.
 */
export class GemmPreparer {
  private blas: { readonly library: Blas; readonly base: number } | undefined;
  private wasm: WasmGemm | undefined;

  /**
   * @param blasPath the library that the main thread found
   * @param scratch where the WebAssembly kernel packs its operands
   */
  constructor(
    private readonly memory: WebAssembly.Memory,
    private readonly blasPath: string | undefined,
    private readonly scratch: number,
  ) {}

  /** Makes a product ready; `module` holds the WebAssembly kernel. */
  prepare(step: GemmStep, module: WebAssembly.Module | undefined): PreparedGemm {
    const { m, n, k, transposeA, transposeB, lda, ldb, ldc, alpha, beta } = step;
    if (m === 0 || n === 0) return () => {};
    const [gemm, base] = this.choose(step, module);
    const one: PreparedGemm = (a, b, c) =>
      gemm(transposeA, transposeB, m, n, k, alpha, base + a, lda, base + b, ldb, beta, base + c, ldc);
    return step.batch.reduceRight(repeat, one);
  }

  private choose(
    { m, n, k, dtype }: GemmStep,
    module: WebAssembly.Module | undefined,
  ): readonly [gemm: Gemm, base: number] {
    const kind = dtype === "float32" ? "sgemm" : "dgemm";
    if (this.blasPath !== undefined && m * n * k > BLAS_CROSSOVER) {
      this.blas ??= openBlas(this.blasPath, this.memory);
      return [this.blas.library[kind], this.blas.base];
    }
    if (module === undefined)
      throw new InternalError("[threads] a program with matrix products needs their kernel");
    this.wasm ??= createWasmGemm(module, this.memory, this.scratch, tileFor(process.arch));
    return [this.wasm[kind], 0];
  }
}

function openBlas(path: string, memory: WebAssembly.Memory): { library: Blas; base: number } {
  const library = findBlas(path);
  if (library === undefined)
    throw new InternalError(`[threads] ${path} multiplied before but does not any more`);
  // The first calls of a thread are slow; the first step of a training run should not be.
  library.warmUp();
  return { library, base: nativeAddress(memory) };
}

function repeat(inner: PreparedGemm, { count, strideA, strideB, strideC }: GemmBatch): PreparedGemm {
  return (a, b, c) => {
    for (let i = 0; i < count; i++) inner(a + i * strideA, b + i * strideB, c + i * strideC);
  };
}
