import { describe, expect, it } from "vitest";
import { describeWith, wideMemories } from "../../../test/support/optional.js";
import { FEATURE_SETS } from "../../../test/support/vectorKernels.js";
import { newMemory } from "../../engines/memory/memoryLayout.js";
import { GEMM_SCRATCH_BYTES } from "./blockedGemm.js";
import { buildGemmModule } from "./gemmModule.js";
import { tileFor } from "./tile.js";
import { createWasmGemm, type Gemm } from "./wasmGemm.js";

const SCRATCH = 1024;
const DATA = SCRATCH + GEMM_SCRATCH_BYTES;
const memory = new WebAssembly.Memory({ initial: 128, maximum: 65536, shared: true });

interface Layout {
  readonly transA: boolean;
  readonly transB: boolean;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly pad: number;
  readonly alpha: number;
  readonly beta: number;
}

/** Runs one product on random data and compares every element, and that the padding of C is untouched. */
function check(gemm: Gemm, double: boolean, layout: Layout, { buffer } = memory): void {
  const { transA, transB, m, n, k, pad, alpha, beta } = layout;
  const size = double ? 8 : 4;
  const lda = (transA ? m : k) + pad;
  const ldb = (transB ? k : n) + pad;
  const ldc = n + pad;
  const base = Math.ceil(DATA / size);
  const [aAt, bAt] = [base, base + (transA ? k : m) * lda];
  const cAt = bAt + (transB ? n : k) * ldb;
  const data = double ? new Float64Array(buffer) : new Float32Array(buffer);
  let state = m * 7 + n * 3 + k;
  for (let i = base; i < cAt + m * ldc; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    data[i] = state / 2 ** 31 - 1;
  }
  if (beta === 0) data.fill(Number.NaN, cAt, cAt + m * ldc);
  const before = data.slice(cAt, cAt + m * ldc);
  gemm(transA, transB, m, n, k, alpha, aAt * size, lda, bAt * size, ldb, beta, cAt * size, ldc);
  let worst = 0;
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < ldc; j++) {
      const got = data[cAt + i * ldc + j] ?? 0;
      const old = before[i * ldc + j] ?? 0;
      if (j >= n) {
        if (!Object.is(got, old)) expect.fail(`padding at ${i}, ${j} changed`);
        continue;
      }
      let sum = 0;
      for (let l = 0; l < k; l++) {
        const x = data[transA ? aAt + l * lda + i : aAt + i * lda + l] ?? 0;
        sum += x * (data[transB ? bAt + j * ldb + l : bAt + l * ldb + j] ?? 0);
      }
      const error = Math.abs(alpha * sum + (beta === 0 ? 0 : beta * old) - got);
      worst = Number.isNaN(error) ? Infinity : Math.max(worst, error);
    }
  }
  expect(worst, JSON.stringify(layout)).toBeLessThan((double ? 1e-13 : 3e-6) * (k + 8));
}

const SIZES: readonly (readonly [number, number, number])[] = [
  [1, 1, 1],
  [1, 8, 3],
  [8, 1, 5],
  [2, 3, 4],
  [7, 9, 11],
  [8, 8, 8],
  [16, 16, 16],
  [13, 17, 6],
  [3, 70, 40],
  [40, 3, 70],
  [33, 64, 33],
  [64, 64, 64],
  [65, 67, 66],
  [5, 5, 0],
  [130, 70, 260],
  [20, 530, 12],
  [140, 9, 300],
];

/** Every processor that has a tile of its own. */
const PROCESSORS = FEATURE_SETS.flatMap((features) =>
  [false, true].map((fewRegisters) => ({ ...features, fewRegisters })),
);

describe.each(PROCESSORS)("WebAssembly GEMM (fma $fma, few registers $fewRegisters)", (features) => {
  const module = new WebAssembly.Module(buildGemmModule(features, tileFor(features)));
  const { sgemm, dgemm } = createWasmGemm(module, memory, SCRATCH);

  for (const transA of [false, true]) {
    for (const transB of [false, true]) {
      it(`multiplies any shape with transA ${transA} and transB ${transB}`, () => {
        for (const [m, n, k] of SIZES) {
          for (const pad of [0, 3]) {
            check(sgemm, false, { transA, transB, m, n, k, pad, alpha: 1, beta: 0 });
            check(sgemm, false, { transA, transB, m, n, k, pad, alpha: -0.5, beta: 2 });
          }
        }
      });

      it(`multiplies float64 with transA ${transA} and transB ${transB}`, () => {
        for (const [m, n, k] of SIZES.slice(0, 12)) {
          check(dgemm, true, { transA, transB, m, n, k, pad: 1, alpha: 1, beta: 0 });
          check(dgemm, true, { transA, transB, m, n, k, pad: 0, alpha: 2, beta: 1 });
        }
      });
    }
  }
});

// Node 24 is the first that has such memories; `npm run test:nodes` runs this there.
describeWith(wideMemories, "WebAssembly GEMM on a memory of 64-bit addresses", () => {
  it("multiplies any shape in any layout", () => {
    const wide = newMemory("i64", 128 * 65536);
    for (const features of PROCESSORS) {
      const module = new WebAssembly.Module(buildGemmModule(features, tileFor(features), "i64"));
      const { sgemm, dgemm } = createWasmGemm(module, wide, SCRATCH);
      for (const [m, n, k] of SIZES) {
        for (const [transA, transB] of [
          [false, false],
          [false, true],
          [true, false],
          [true, true],
        ] as const) {
          check(sgemm, false, { transA, transB, m, n, k, pad: 3, alpha: -0.5, beta: 2 }, wide);
          check(dgemm, true, { transA, transB, m, n, k, pad: 0, alpha: 1, beta: 0 }, wide);
        }
      }
    }
  });
});
