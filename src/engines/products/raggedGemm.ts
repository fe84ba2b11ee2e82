import { elementsOf } from "../../compiler/native/gemm/target.js";
import type { GemmBatch, GemmStep, RaggedGemm, SlotAddress } from "../../compiler/steps.js";
import { getOrInsert } from "../../ir/collections.js";
import type { PreparedGemm } from "./preparedGemm.js";

/** Maximum number of group sizes for which the product of a step stays prepared. */
const MAX_PREPARED = 4096;

/** Computes the groups of one index of the batch dims; `sizes` is the address of their sizes. */
type Groups = (a: number, b: number, c: number, sizes: number) => void;

/**
 * A product of groups of rows: one product for every group, prepared for its number of rows when that first occurs.
 * Every element is the same sum in the same order as in a product of all rows with the group's matrix.
 *
 * @param prepare prepares a product of fixed size
 */
export function prepareRagged(
  step: GemmStep,
  ragged: RaggedGemm<SlotAddress>,
  memory: WebAssembly.Memory,
  prepare: (step: GemmStep) => PreparedGemm,
): PreparedGemm {
  const { batch, ragged: _, ...whole } = step;
  const known = new Map<number, PreparedGemm>();
  const product = (count: number): PreparedGemm =>
    getOrInsert(known, count, () => {
      if (known.size >= MAX_PREPARED) known.clear();
      return prepare({ ...whole, [ragged.dim]: count, batch: [] });
    });
  const groups =
    ragged.dim === "m" ? ofRows(step, ragged, memory, product) : ofSums(step, ragged, memory, product);
  const around = batch.reduceRight<{ readonly run: Groups; readonly numSizes: number }>(
    ({ run, numSizes }, dim) => ({ run: alongBatch(run, dim, 4 * numSizes), numSizes: numSizes * dim.count }),
    { run: groups, numSizes: ragged.groups },
  );
  return (a, b, c, sizes = 0) => around.run(a, b, c, sizes);
}

function alongBatch(
  run: Groups,
  { count, strideA, strideB, strideC }: GemmBatch,
  strideSizes: number,
): Groups {
  return (a, b, c, sizes) => {
    for (let i = 0; i < count; i++)
      run(a + i * strideA, b + i * strideB, c + i * strideC, sizes + i * strideSizes);
  };
}

/** Groups of rows of A and C, with a B each. */
function ofRows(
  { dtype, m, n, lda, ldc, transposeA }: GemmStep,
  { groups, stride }: RaggedGemm<SlotAddress>,
  memory: WebAssembly.Memory,
  product: (count: number) => PreparedGemm,
): Groups {
  const { size, factorBytes } = elementsOf(dtype);
  const rowA = (transposeA ? 1 : lda) * factorBytes;
  const rowC = ldc * size;
  const [words, bytes] = [new Int32Array(memory.buffer), new Uint8Array(memory.buffer)];
  return (a, b, c, sizes) => {
    let first = 0;
    for (let group = 0; group < groups; group++) {
      const count = Math.min(Math.max(words[sizes / 4 + group] ?? 0, 0), m - first);
      if (count === 0) continue;
      product(count)(a + first * rowA, b + group * stride, c + first * rowC);
      first += count;
    }
    if (first < m) bytes.fill(0, c + first * rowC, c + (m - 1) * rowC + n * size);
  };
}

/** Groups of what is summed, with a C each. */
function ofSums(
  { dtype, m, n, k, lda, ldb, ldc, transposeA, transposeB }: GemmStep,
  { groups, stride }: RaggedGemm<SlotAddress>,
  memory: WebAssembly.Memory,
  product: (count: number) => PreparedGemm,
): Groups {
  const { size, factorBytes } = elementsOf(dtype);
  const stepA = (transposeA ? lda : 1) * factorBytes;
  const stepB = (transposeB ? 1 : ldb) * factorBytes;
  const bytesC = ((m - 1) * ldc + n) * size;
  const [words, bytes] = [new Int32Array(memory.buffer), new Uint8Array(memory.buffer)];
  return (a, b, c, sizes) => {
    let first = 0;
    for (let group = 0; group < groups; group++) {
      const count = Math.min(Math.max(words[sizes / 4 + group] ?? 0, 0), k - first);
      const target = c + group * stride;
      if (count === 0) bytes.fill(0, target, target + bytesC);
      else product(count)(a + first * stepA, b + first * stepB, target);
      first += count;
    }
  };
}
