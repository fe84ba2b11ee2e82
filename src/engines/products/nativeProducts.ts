import { extentBytes } from "../../compiler/native/gemm/gemmPlan.js";
import { divideGroups } from "../../compiler/native/gemm/productParts.js";
import { elementsOf } from "../../compiler/native/gemm/target.js";
import type { GemmBatch, GemmStep, RaggedGemm, SlotAddress } from "../../compiler/steps.js";
import { getOrInsert } from "../../ir/collections.js";
import { InternalError } from "../../ir/errors.js";
import { at } from "../../ir/shape.js";
import { type Crew, MAX_CALLS, runCalls, writeProducts } from "../protocol/crew.js";
import { CodeMemory } from "../system/codeMemory.js";
import { nativeAddress, releaseNativeAddress } from "../system/nativeAddress.js";
import { type Blas, findBlas } from "./blas.js";
import type { GemmChoice } from "./gemmChoice.js";
import { NativeGemm, type NativePart, type NativeProduct, targetsOf } from "./nativeGemm.js";
import { type PreparedGemm, repeat } from "./preparedGemm.js";
import { distances, type RowGroup, type RunGroups } from "./raggedGemm.js";

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

  /**
   * The products of groups of rows, which the threads share all together: one of them computes several small groups,
   * or several of them a large one.
   */
  prepareGroups(step: GemmStep, ragged: RaggedGemm<SlotAddress>, crew: Crew): RunGroups {
    this.native ??= this.openNative();
    const { gemm, base } = this.native;
    const { dtype, transposeA, transposeB, m, n, k, lda, ldb, ldc, alpha, beta } = step;
    const isRows = ragged.dim === "m";
    const { rowA, rowC } = distances(step);
    const programs = Array.from({ length: crew.size }, () => new Map<number, number>());
    const program = (part: number, rows: number, depth: number): number =>
      getOrInsert(at(programs, part), rows * (k + 1) + depth, () => {
        const shape = { m: rows, n, k: depth, lda, ldb, ldc, alpha, beta };
        const product = { transposeA, transposeB, ...shape };
        return gemm.preparePart(dtype, product, part);
      });
    const callsOf = (groups: readonly RowGroup[]): NativePart[][] => {
      const sizes = groups.map(({ count }) => count);
      const flops = 2 * n * (isRows ? k : m) * sizes.reduce((sum, size) => sum + size, 0);
      const parts = divideGroups(gemm.target(dtype), sizes, isRows ? undefined : m, flops, crew.size);
      return parts.map((pieces, part) =>
        pieces.map(({ group, from, rows }) => {
          const { count, a, b, c } = at(groups, group);
          const depth = isRows ? k : count;
          return { program: program(part, rows, depth), a: a + from * rowA, b, c: c + from * rowC };
        }),
      );
    };
    // Every thread may cut a group in two.
    const most = MAX_CALLS - crew.size;
    const stride = { count: ragged.groups, strideA: 0, strideB: 0, strideC: 0 };
    const batch = [{ ...stride, [isRows ? "strideB" : "strideC"]: ragged.stride }];
    const check = this.checked({ ...step, batch }, () => {});
    return (groups, a, b, c) => {
      check(a, b, c);
      for (let first = 0; first < groups.length; first += most) {
        const parts = callsOf(groups.slice(first, first + most));
        shareCalls(crew, gemm, parts, [base + a, base + b, base + c]);
      }
    };
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
  const calls = parts.map((part) => [part]);
  return (a, b, c) => shareCalls(crew, gemm, calls, [a, b, c]);
}

/** Calls that the threads of a device make, each those of one part after the other. */
function shareCalls(
  crew: Crew,
  gemm: NativeGemm,
  parts: readonly (readonly NativePart[])[],
  matrices: readonly [a: number, b: number, c: number],
): void {
  const { job } = crew.memory;
  crew.share(
    parts.length,
    () => writeProducts(job, gemm.runner, parts, matrices),
    (part) => runCalls(job, part, gemm.run),
  );
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
