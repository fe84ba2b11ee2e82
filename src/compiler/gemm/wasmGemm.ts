import {
  type FunctionBody,
  type FunctionIndex,
  type Local,
  ModuleBuilder,
  type Signature,
} from "../wasm/assembler.js";
import type { WasmFeatures } from "../wasm/features.js";
import { DOUBLE_GEMM_SIGNATURE, writeDoubleGemm } from "./doubleGemm.js";
import { type ALayout, countDown, MICRO_KERNEL_SIGNATURE, writeMicroKernel } from "./microKernel.js";
import { PACK_SIGNATURE, writeGather, writeInterleave } from "./packing.js";
import { type GemmTile, PANEL_WIDTH } from "./tile.js";

/** Rows of A, depth and columns of B that are packed at a time: A's block stays in L2, a panel of B in L1. */
const BLOCK_ROWS = 128;
const BLOCK_DEPTH = 256;
const BLOCK_COLUMNS = 512;

const STRIPE_BYTES = BLOCK_ROWS * PANEL_WIDTH * 4;
const PACKED_A_BYTES = BLOCK_ROWS * BLOCK_DEPTH * 4;
const PACKED_B_BYTES = BLOCK_DEPTH * BLOCK_COLUMNS * 4;

/** Bytes of scratch memory, 16-byte aligned, that each device sets aside for GEMM. */
export const GEMM_SCRATCH_BYTES = STRIPE_BYTES + PACKED_A_BYTES + PACKED_B_BYTES;

/** B is packed when at least this many rows share it, A when at least this many columns do. */
const PACK_B_ROWS = 32;
const PACK_A_COLUMNS = 64;

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

/** `count` products whose operands lie `strideA`, `strideB` and `strideC` bytes apart, by any `gemm`. */
export function batchedGemm(
  gemm: Gemm,
  batch: {
    readonly count: number;
    readonly strideA: number;
    readonly strideB: number;
    readonly strideC: number;
  },
  ...[transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc]: Parameters<Gemm>
): void {
  const { count, strideA, strideB, strideC } = batch;
  for (let i = 0; i < count; i++) {
    const [ai, bi, ci] = [a + i * strideA, b + i * strideB, c + i * strideC];
    gemm(transA, transB, m, n, k, alpha, ai, lda, bi, ldb, beta, ci, ldc);
  }
}

/** m, k, a, bytes from row to row of a, step of a, b, step of b, c, row step of c, alpha, beta. */
const PANEL_SIGNATURE: Signature = {
  params: [...Array.from({ length: 9 }, () => "i32" as const), "f32", "f32"],
  results: [],
};

/** rows, columns, source (rows of a panel's width), c, row step of c, beta. */
const BLEND_SIGNATURE: Signature = { params: ["i32", "i32", "i32", "i32", "i32", "f32"], results: [] };

/** The bytes of the module behind `createWasmGemm`; it imports a shared memory as `env.memory`. */
export function buildGemmModule(features: WasmFeatures, tile: GemmTile): Uint8Array<ArrayBuffer> {
  const builder = new ModuleBuilder();
  builder.importMemory({ module: "env", name: "memory", shared: true, minimumPages: 1, maximumPages: 65536 });
  builder.function(PACK_SIGNATURE, writeInterleave, "interleave");
  builder.function(PACK_SIGNATURE, writeGather, "gather");
  builder.function(BLEND_SIGNATURE, writeBlend, "blend");
  builder.function(DOUBLE_GEMM_SIGNATURE, writeDoubleGemm, "dgemm");
  for (const layout of ["columns", "rows"] as const) {
    const kernels = tile.heights.map((height): [number, FunctionIndex] => [
      height,
      builder.function(MICRO_KERNEL_SIGNATURE, (code) =>
        writeMicroKernel(code, height, layout, tile, features),
      ),
    ]);
    builder.function(PANEL_SIGNATURE, (code) => writePanel(code, layout, kernels), `${layout}Panel`);
  }
  return builder.toBytes();
}

/** Writes the function that multiplies m rows of A with one panel of B, in strips of falling height. */
function writePanel(
  code: FunctionBody,
  layout: ALayout,
  kernels: readonly (readonly [number, FunctionIndex])[],
): void {
  const at = (index: number): Local => code.param(index);
  const [m, k, a, aRow, aStep] = [at(0), at(1), at(2), at(3), at(4)];
  const [b, bStep, c, cStep, alpha, beta] = [at(5), at(6), at(7), at(8), at(9), at(10)];
  for (const [height, kernel] of kernels) {
    countDown(code, m, height, () => {
      code.get(k).get(a);
      // A step of 0 stands for packed strips, which are as wide as they are high.
      if (layout === "columns")
        code
          .get(aStep)
          .i32(height * 4)
          .get(aStep)
          .op("select");
      else code.get(aRow);
      code.get(b).get(bStep).get(c).get(cStep).get(alpha).get(beta).call(kernel);
      code.get(a).get(aRow).i32(height).op("i32.mul").op("i32.add").set(a);
      code.get(c).get(cStep).i32(height).op("i32.mul").op("i32.add").set(c);
    });
  }
}

/** Writes the function that moves the valid columns of a stripe to C: C = stripe + beta · C. */
function writeBlend(code: FunctionBody): void {
  const at = (index: number): Local => code.param(index);
  const [rows, columns, source, c, cStep, beta] = [at(0), at(1), at(2), at(3), at(4), at(5)];
  const [left, from, to] = [code.local("i32"), code.local("i32"), code.local("i32")];
  const value = code.local("f32");
  countDown(code, rows, 1, () => {
    code.get(columns).set(left).get(source).set(from).get(c).set(to);
    countDown(code, left, 1, () => {
      code.get(from).memory("f32.load").set(value);
      code
        .get(beta)
        .f32(0)
        .op("f32.ne")
        .if(() => {
          code.get(to).memory("f32.load").get(beta).op("f32.mul").get(value).op("f32.add").set(value);
        });
      code.get(to).get(value).memory("f32.store");
      code.increment(from, 4).increment(to, 4);
    });
    code.increment(source, PANEL_WIDTH * 4);
    code.get(c).get(cStep).op("i32.add").set(c);
  });
}

type Export = (...args: number[]) => void;

/**
 * Instantiates the module of `buildGemmModule` on a memory.
 *
 * @param scratch address of `GEMM_SCRATCH_BYTES` bytes that nobody else uses, 16-byte aligned
 */
export function createWasmGemm(
  module: WebAssembly.Module,
  memory: WebAssembly.Memory,
  scratch: number,
  tile: GemmTile,
): WasmGemm {
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  const find = (name: string): Export => {
    const found = exports[name];
    if (typeof found !== "function") throw new TypeError(`[createWasmGemm] the module exports no ${name}`);
    return found as Export;
  };
  const [interleave, gather, blend] = [find("interleave"), find("gather"), find("blend")];
  const [columnsPanel, rowsPanel, doubleGemm] = [find("columnsPanel"), find("rowsPanel"), find("dgemm")];
  const stripe = scratch;
  const packedA = stripe + STRIPE_BYTES;
  const packedB = packedA + PACKED_A_BYTES;

  const packA = (transA: boolean, rows: number, depth: number, a: number, lda: number): void => {
    let row = 0;
    for (const height of tile.heights) {
      for (; rows - row >= height; row += height) {
        const to = packedA + row * depth * 4;
        if (transA) gather(height, depth, a + row * 4, lda * 4, to, height);
        else interleave(height, depth, a + row * lda * 4, lda * 4, to, height);
      }
    }
  };

  const sgemm: Gemm = (transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) => {
    const shouldPackB = transB || m >= PACK_B_ROWS;
    const shouldPackA = n >= PACK_A_COLUMNS && m >= tile.heights[0];
    const panel = transA || shouldPackA ? columnsPanel : rowsPanel;
    for (let column = 0; column < n; column += BLOCK_COLUMNS) {
      const columns = Math.min(BLOCK_COLUMNS, n - column);
      // An empty sum still scales C, so the first round runs even for k = 0.
      for (let depth = 0; depth === 0 || depth < k; depth += BLOCK_DEPTH) {
        const kc = Math.min(BLOCK_DEPTH, k - depth);
        const betaHere = depth === 0 ? beta : 1;
        for (let j = 0; j < columns; j += PANEL_WIDTH) {
          const width = Math.min(PANEL_WIDTH, columns - j);
          const to = packedB + j * kc * 4;
          if (transB) interleave(width, kc, b + ((column + j) * ldb + depth) * 4, ldb * 4, to, PANEL_WIDTH);
          else if (shouldPackB || width < PANEL_WIDTH) {
            gather(width, kc, b + (depth * ldb + column + j) * 4, ldb * 4, to, PANEL_WIDTH);
          }
        }
        for (let row = 0; row < m; row += BLOCK_ROWS) {
          const rows = Math.min(BLOCK_ROWS, m - row);
          let from = transA ? a + (depth * lda + row) * 4 : a + (row * lda + depth) * 4;
          let aRow = transA ? 4 : lda * 4;
          let aStep = lda * 4;
          if (shouldPackA) {
            packA(transA, rows, kc, from, lda);
            from = packedA;
            aRow = kc * 4;
            aStep = 0;
          }
          for (let j = 0; j < columns; j += PANEL_WIDTH) {
            const width = columns - j;
            const packed = shouldPackB || width < PANEL_WIDTH;
            const panelB = packed ? packedB + j * kc * 4 : b + (depth * ldb + column + j) * 4;
            const bStep = packed ? PANEL_WIDTH * 4 : ldb * 4;
            const to = c + (row * ldc + column + j) * 4;
            if (width >= PANEL_WIDTH) {
              panel(rows, kc, from, aRow, aStep, panelB, bStep, to, ldc * 4, alpha, betaHere);
            } else {
              panel(rows, kc, from, aRow, aStep, panelB, bStep, stripe, PANEL_WIDTH * 4, alpha, 0);
              blend(rows, width, stripe, to, ldc * 4, betaHere);
            }
          }
        }
      }
    }
  };

  const dgemm: Gemm = (transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) => {
    const [aRow, aStep] = transA ? [8, lda * 8] : [lda * 8, 8];
    const [bStep, bColumn] = transB ? [8, ldb * 8] : [ldb * 8, 8];
    doubleGemm(m, n, k, a, aRow, aStep, b, bStep, bColumn, c, ldc * 8, alpha, beta);
  };
  return { sgemm, dgemm };
}
