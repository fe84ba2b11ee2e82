import { elementsOf } from "../../compiler/native/gemm/target.js";
import type { GemmBatch, GemmStep, RaggedGemm, SlotAddress } from "../../compiler/steps.js";
import { getOrInsert } from "../../ir/collections.js";
import type { PreparedGemm } from "./preparedGemm.js";

/** Maximum number of group sizes for which the product of a step stays prepared. */
const MAX_PREPARED = 4096;

/** A group that is not empty: its rows, and where its matrices begin, in bytes from those of the step. */
export interface RowGroup {
  readonly count: number;
  readonly a: number;
  readonly b: number;
  readonly c: number;
}

/** Computes the products of groups; the addresses are those of the step's matrices. */
export type RunGroups = (groups: readonly RowGroup[], a: number, b: number, c: number) => void;

/** Computes the groups of one index of the batch dims; `sizes` is the address of their sizes. */
type Ragged = (a: number, b: number, c: number, sizes: number) => void;

/**
 * A product of groups of rows. Every element is the same sum in the same order as in a product of all rows with the
 * group's matrix.
 */
export function prepareRagged(
  step: GemmStep,
  ragged: RaggedGemm<SlotAddress>,
  memory: WebAssembly.Memory,
  run: RunGroups,
): PreparedGemm {
  const one = ragged.dim === "m" ? ofRows(step, ragged, memory, run) : ofSums(step, ragged, memory, run);
  const around = step.batch.reduceRight<{ readonly run: Ragged; readonly numSizes: number }>(
    (inner, dim) => ({
      run: alongBatch(inner.run, dim, 4 * inner.numSizes),
      numSizes: inner.numSizes * dim.count,
    }),
    { run: one, numSizes: ragged.groups },
  );
  return (a, b, c, sizes = 0) => around.run(a, b, c, sizes);
}

/**
 * One product after the other, prepared for the rows of its group when that number first occurs.
 *
 * @param prepare prepares a product of fixed size
 */
export function groupByGroup(
  step: GemmStep,
  ragged: RaggedGemm<SlotAddress>,
  prepare: (step: GemmStep) => PreparedGemm,
): RunGroups {
  const { ragged: _, ...whole } = step;
  const known = new Map<number, PreparedGemm>();
  const product = (count: number): PreparedGemm =>
    getOrInsert(known, count, () => {
      if (known.size >= MAX_PREPARED) known.clear();
      return prepare({ ...whole, [ragged.dim]: count, batch: [] });
    });
  return (groups, a, b, c) => {
    for (const group of groups) product(group.count)(a + group.a, b + group.b, c + group.c);
  };
}

function alongBatch(
  run: Ragged,
  { count, strideA, strideB, strideC }: GemmBatch,
  strideSizes: number,
): Ragged {
  return (a, b, c, sizes) => {
    for (let i = 0; i < count; i++)
      run(a + i * strideA, b + i * strideB, c + i * strideC, sizes + i * strideSizes);
  };
}

/** The bytes from a row of op(A) and of C to the next, and from a step along k to the next. */
export function distances({ dtype, transposeA, transposeB, lda, ldb, ldc }: GemmStep) {
  const { size, factorBytes } = elementsOf(dtype);
  return {
    rowA: (transposeA ? 1 : lda) * factorBytes,
    rowC: ldc * size,
    stepA: (transposeA ? lda : 1) * factorBytes,
    stepB: (transposeB ? 1 : ldb) * factorBytes,
  };
}

/** Groups of rows of A and C, with a B each. */
function ofRows(
  step: GemmStep,
  { groups, stride, keepsRest }: RaggedGemm<SlotAddress>,
  memory: WebAssembly.Memory,
  run: RunGroups,
): Ragged {
  const { dtype, m, n } = step;
  const { size } = elementsOf(dtype);
  const { rowA, rowC } = distances(step);
  const [words, bytes] = [new Int32Array(memory.buffer), new Uint8Array(memory.buffer)];
  return (a, b, c, sizes) => {
    const filled: RowGroup[] = [];
    let first = 0;
    for (let group = 0; group < groups; group++) {
      const count = Math.min(Math.max(words[sizes / 4 + group] ?? 0, 0), m - first);
      if (count > 0) filled.push({ count, a: first * rowA, b: group * stride, c: first * rowC });
      first += count;
    }
    run(filled, a, b, c);
    if (first < m && !keepsRest) bytes.fill(0, c + first * rowC, c + (m - 1) * rowC + n * size);
  };
}

/** Groups of what is summed, with a C each. */
function ofSums(
  step: GemmStep,
  { groups, stride }: RaggedGemm<SlotAddress>,
  memory: WebAssembly.Memory,
  run: RunGroups,
): Ragged {
  const { dtype, m, n, k, beta } = step;
  const { stepA, stepB, rowC } = distances(step);
  const bytesC = (m - 1) * rowC + n * elementsOf(dtype).size;
  const [words, bytes] = [new Int32Array(memory.buffer), new Uint8Array(memory.buffer)];
  return (a, b, c, sizes) => {
    const filled: RowGroup[] = [];
    let first = 0;
    for (let group = 0; group < groups; group++) {
      const count = Math.min(Math.max(words[sizes / 4 + group] ?? 0, 0), k - first);
      const target = group * stride;
      if (count > 0) filled.push({ count, a: first * stepA, b: first * stepB, c: target });
      else if (beta === 0) bytes.fill(0, c + target, c + target + bytesC);
      first += count;
    }
    run(filled, a, b, c);
  };
}
