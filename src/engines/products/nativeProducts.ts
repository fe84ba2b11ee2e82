import { extentBytes } from "../../compiler/native/gemm/gemmPlan.js";
import { elementsOf } from "../../compiler/native/gemm/target.js";
import type { GemmBatch, GemmStep } from "../../compiler/steps.js";
import { InternalError } from "../../ir/errors.js";
import { type Crew, JOB, JOB_FIELD, PART_FIELD, PRODUCT_FIELD } from "../protocol/crew.js";
import { CodeMemory } from "../system/codeMemory.js";
import { nativeAddress, releaseNativeAddress } from "../system/nativeAddress.js";
import { type Blas, findBlas } from "./blas.js";
import type { GemmChoice } from "./gemmChoice.js";
import { NativeGemm, type NativePart, type NativeProduct, targetsOf } from "./nativeGemm.js";
import { type PreparedGemm, repeat } from "./preparedGemm.js";

/** The matrix products of one device that native code computes: our machine code, or a BLAS library. */
export class NativeProducts {
  private blasHere: { readonly library: Blas; readonly base: number } | undefined;
  private native: { readonly gemm: NativeGemm; readonly code: CodeMemory; readonly base: number } | undefined;

  /** @param crew the threads that share large products of machine code */
  constructor(
    private readonly memory: WebAssembly.Memory,
    private readonly choice: GemmChoice,
    private readonly crew?: Crew,
  ) {}

  /** Releases what lies outside of JavaScript; prepared products must not be called afterwards. */
  release(): void {
    this.native?.code.release();
    this.native = undefined;
    releaseNativeAddress(this.memory);
  }

  /** The BLAS library, and the native address of the memory. */
  blas(path: string): { readonly library: Blas; readonly base: number } {
    this.blasHere ??= openBlas(path, this.memory);
    return this.blasHere;
  }

  /** One call for the innermost batch dims that can be walked with one stride; the others are loops here. */
  prepare(step: GemmStep): PreparedGemm {
    this.native ??= this.openNative();
    const { gemm, base } = this.native;
    const outer = joinBatches(step.batch);
    const inner = outer.pop();
    const product = this.prepareProduct(gemm, step, inner);
    const one: PreparedGemm = (a, b, c) => product(base + a, base + b, base + c);
    return this.checked(step, outer.reduceRight(repeat, one));
  }

  private prepareProduct(gemm: NativeGemm, step: GemmStep, batch: GemmBatch | undefined): NativeProduct {
    const { dtype, transposeA, transposeB, m, n, k, lda, ldb, ldc, alpha, beta } = step;
    const product = { transposeA, transposeB, m, n, k, lda, ldb, ldc, alpha, beta };
    if (this.crew === undefined) return gemm.prepare(dtype, product, batch);
    const parts = gemm.prepareParts(dtype, product, batch, this.crew.size);
    return parts.length === 1 ? gemm.prepare(dtype, product, batch) : shareProduct(this.crew, gemm, parts);
  }

  /** Machine code would crash or overwrite other data, so addresses are compared with the end of the memory. */
  private checked(step: GemmStep, product: PreparedGemm): PreparedGemm {
    const end = this.memory.buffer.byteLength;
    const extent = stepExtents(step);
    const [lastA, lastB, lastC] = [end - extent.a, end - extent.b, end - extent.c];
    return (a, b, c) => {
      if (a > lastA || b > lastB || c > lastC || a < 0 || b < 0 || c < 0) {
        throw new InternalError(
          `[threads] a product of ${extent.a}, ${extent.b} and ${extent.c} bytes at ${a}, ${b} and ${c} leaves a memory of ${end} bytes`,
        );
      }
      product(a, b, c);
    };
  }

  private openNative(): { gemm: NativeGemm; code: CodeMemory; base: number } {
    const code = CodeMemory.open();
    if (typeof code === "string" || this.choice.kind !== "native") {
      throw new InternalError(
        `[threads] machine code worked on the main thread but not here: ${String(code)}`,
      );
    }
    return { gemm: new NativeGemm(code, targetsOf(this.choice)), code, base: nativeAddress(this.memory) };
  }
}

/** A product that the threads of a device share. */
function shareProduct(crew: Crew, gemm: NativeGemm, parts: readonly NativePart[]): NativeProduct {
  const { job } = crew.memory;
  const run = (part: number): void => {
    const at = PRODUCT_FIELD.parts + PART_FIELD.size * part;
    const { program, a, b, c } = PART_FIELD;
    gemm.run(job[at + program] ?? 0, job[at + a] ?? 0, job[at + b] ?? 0, job[at + c] ?? 0);
  };
  return (a, b, c) => {
    const describe = (): void => {
      job[JOB_FIELD.kind] = JOB.product;
      job[PRODUCT_FIELD.runner] = gemm.runner;
      for (let i = 0; i < parts.length; i++) {
        const part = parts[i];
        if (part === undefined) continue;
        const at = PRODUCT_FIELD.parts + PART_FIELD.size * i;
        job[at + PART_FIELD.program] = part.program;
        job[at + PART_FIELD.a] = a + part.a;
        job[at + PART_FIELD.b] = b + part.b;
        job[at + PART_FIELD.c] = c + part.c;
      }
    };
    crew.share(parts.length, describe, run);
  };
}

function openBlas(path: string, memory: WebAssembly.Memory): { library: Blas; base: number } {
  const library = findBlas(path);
  if (library === undefined)
    throw new InternalError(`[threads] ${path} multiplied before but does not any more`);
  // The first calls of a thread are slow: make them now, not in the first step of a training run.
  library.warmUp();
  return { library, base: nativeAddress(memory) };
}

/** Neighbouring batch dims become one where a single stride walks both. */
export function joinBatches(batch: readonly GemmBatch[]): GemmBatch[] {
  const joined: GemmBatch[] = [];
  for (const inner of batch) {
    const outer = joined.at(-1);
    const isWalk =
      outer !== undefined &&
      outer.strideA === inner.count * inner.strideA &&
      outer.strideB === inner.count * inner.strideB &&
      outer.strideC === inner.count * inner.strideC;
    if (isWalk) joined[joined.length - 1] = { ...inner, count: outer.count * inner.count };
    else joined.push(inner);
  }
  return joined;
}

/** The bytes from the first element of each operand to the end of the last one of the whole batch. */
function stepExtents(step: GemmStep): { readonly a: number; readonly b: number; readonly c: number } {
  const { m, n, k, transposeA, transposeB, lda, ldb, ldc, batch, dtype } = step;
  const { size, factorBytes: bytes } = elementsOf(dtype);
  const walked = (stride: (one: GemmBatch) => number) =>
    batch.reduce((sum, one) => sum + (one.count - 1) * stride(one), 0);
  const [rowsA, columnsA] = transposeA ? [k, m] : [m, k];
  const [rowsB, columnsB] = transposeB ? [n, k] : [k, n];
  return {
    a: extentBytes(bytes, rowsA, columnsA, lda) + walked(({ strideA }) => strideA),
    b: extentBytes(bytes, rowsB, columnsB, ldb) + walked(({ strideB }) => strideB),
    c: extentBytes(size, m, n, ldc) + walked(({ strideC }) => strideC),
  };
}
