import { BLAS_CROSSOVER } from "#engines/products/blas";
import { NativeProducts } from "#engines/products/nativeProducts";
import { createWasmGemm, type Gemm, type WasmGemm } from "../../compiler/gemm/wasmGemm.js";
import type { GemmStep, RaggedGemm, SlotAddress } from "../../compiler/steps.js";
import { InternalError } from "../../ir/errors.js";
import type { Crew } from "../protocol/crew.js";
import { type GemmChoice, isInMachineCode } from "./gemmChoice.js";
import { type PreparedGemm, repeat } from "./preparedGemm.js";
import { groupByGroup, prepareRagged, type RunGroups } from "./raggedGemm.js";

/**
 * The matrix products of one device, by the implementation that the main thread chose: our machine code, the
 * system's BLAS for products large enough for its calls to pay, or our WebAssembly kernel.
 */
export class GemmPreparer {
  private readonly native: NativeProducts;
  private wasm: WasmGemm | undefined;

  /**
   * @param scratch where the WebAssembly kernel packs its operands
   * @param crew the threads that share large products of machine code
   */
  constructor(
    private readonly memory: WebAssembly.Memory,
    private readonly choice: GemmChoice,
    private readonly scratch: number,
    private readonly crew?: Crew,
  ) {
    this.native = new NativeProducts(memory, choice, crew);
  }

  /** Prepares a product; `module` holds the WebAssembly kernel, if machine code does not compute it. */
  prepare(step: GemmStep, module: WebAssembly.Module | undefined): PreparedGemm {
    const { m, n, k, transposeA, transposeB, lda, ldb, ldc, alpha, beta } = step;
    if (m === 0 || n === 0 || step.batch.some(({ count }) => count === 0)) return () => {};
    if (step.ragged)
      return prepareRagged(step, step.ragged, this.memory, this.groups(step, step.ragged, module));
    if (isInMachineCode(this.choice, step)) return this.native.prepare(step);
    const [gemm, base] = this.choose(step, module);
    const one: PreparedGemm = (a, b, c) =>
      gemm(transposeA, transposeB, m, n, k, alpha, base + a, lda, base + b, ldb, beta, base + c, ldc);
    return step.batch.reduceRight(repeat, one);
  }

  private groups(
    step: GemmStep,
    ragged: RaggedGemm<SlotAddress>,
    module: WebAssembly.Module | undefined,
  ): RunGroups {
    if (this.crew !== undefined && isInMachineCode(this.choice, step))
      return this.native.prepareGroups(step, ragged, this.crew);
    return groupByGroup(step, ragged, (one) => this.prepare(one, module));
  }

  /** Releases what lies outside of JavaScript; prepared products must not be called afterwards. */
  release(): void {
    this.native.release();
  }

  private choose(
    { m, n, k, dtype }: GemmStep,
    module: WebAssembly.Module | undefined,
  ): readonly [gemm: Gemm, base: number] {
    if (dtype === "bfloat16" || dtype === "float16")
      throw new InternalError(`[threads] WebAssembly and BLAS do not multiply ${dtype}`);
    const kind = dtype === "float32" ? "sgemm" : "dgemm";
    if (this.choice.kind === "blas" && m * n * k > BLAS_CROSSOVER) {
      const { library, base } = this.native.blas(this.choice.path);
      return [library[kind], base];
    }
    if (module === undefined)
      throw new InternalError("[threads] a program with matrix products needs their kernel");
    this.wasm ??= createWasmGemm(module, this.memory, this.scratch);
    return [this.wasm[kind], 0];
  }
}
