import type { GemmFunctions } from "./gemmModule.js";
import { PANEL_WIDTH } from "./tile.js";

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

/** The arguments of `Gemm`, by name. */
export interface GemmArguments {
  readonly transA: boolean;
  readonly transB: boolean;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly alpha: number;
  readonly a: number;
  readonly lda: number;
  readonly b: number;
  readonly ldb: number;
  readonly beta: number;
  readonly c: number;
  readonly ldc: number;
}

/** Some columns of B and C over a part of k. */
interface Block {
  readonly column: number;
  readonly columns: number;
  /** The first k. */
  readonly from: number;
  readonly depth: number;
}

/** Where a panel function finds rows of A: the first, bytes from row to row, and bytes from k to k + 1. */
interface RowsOfA {
  readonly address: number;
  readonly rowStep: number;
  readonly step: number;
}

/** Float32 products in blocks that fit the caches, packed where enough of the product shares a block. */
export class BlockedGemm {
  /** Results of a panel that is not full, before they are copied to C. */
  private readonly stripe: number;
  private readonly packedA: number;
  private readonly packedB: number;

  /** @param scratch address of `GEMM_SCRATCH_BYTES` bytes for exclusive use, 16-byte aligned */
  constructor(
    private readonly functions: GemmFunctions,
    scratch: number,
  ) {
    this.stripe = scratch;
    this.packedA = this.stripe + STRIPE_BYTES;
    this.packedB = this.packedA + PACKED_A_BYTES;
  }

  /** C = alpha · op(A) · op(B) + beta · C. */
  multiply(product: GemmArguments): void {
    const { m, n, k } = product;
    for (let column = 0; column < n; column += BLOCK_COLUMNS) {
      const columns = Math.min(BLOCK_COLUMNS, n - column);
      // An empty sum still scales C, so the first round runs even for k = 0.
      for (let from = 0; from === 0 || from < k; from += BLOCK_DEPTH) {
        const block = { column, columns, from, depth: Math.min(BLOCK_DEPTH, k - from) };
        this.packB(product, block);
        for (let row = 0; row < m; row += BLOCK_ROWS) this.multiplyRows(product, block, row);
      }
    }
  }

  private packsA({ m, n }: GemmArguments): boolean {
    return n >= PACK_A_COLUMNS && m >= this.functions.tile.heights[0];
  }

  /** Whether a panel of this width is read from packed memory: always when it is not full. */
  private packsB({ transB, m }: GemmArguments, width: number): boolean {
    return transB || m >= PACK_B_ROWS || width < PANEL_WIDTH;
  }

  private packB(product: GemmArguments, { column, columns, from, depth }: Block): void {
    const { transB, b, ldb } = product;
    for (let j = 0; j < columns; j += PANEL_WIDTH) {
      const width = Math.min(PANEL_WIDTH, columns - j);
      if (!this.packsB(product, width)) continue;
      const to = this.packedB + j * depth * 4;
      const source = b + (transB ? (column + j) * ldb + from : from * ldb + column + j) * 4;
      const pack = transB ? this.functions.interleave : this.functions.gather;
      pack(width, depth, source, ldb * 4, to, PANEL_WIDTH);
    }
  }

  /** Packs rows of A in strips as high as the micro-kernels. */
  private packA({ transA, lda }: GemmArguments, rows: number, depth: number, from: number): void {
    const { interleave, gather } = this.functions;
    let row = 0;
    for (const height of this.functions.tile.heights) {
      for (; rows - row >= height; row += height) {
        const to = this.packedA + row * depth * 4;
        if (transA) gather(height, depth, from + row * 4, lda * 4, to, height);
        else interleave(height, depth, from + row * lda * 4, lda * 4, to, height);
      }
    }
  }

  private rowsOfA(product: GemmArguments, { from, depth }: Block, row: number, rows: number): RowsOfA {
    const { transA, a, lda } = product;
    const address = a + (transA ? from * lda + row : row * lda + from) * 4;
    if (!this.packsA(product)) return { address, rowStep: transA ? 4 : lda * 4, step: lda * 4 };
    this.packA(product, rows, depth, address);
    return { address: this.packedA, rowStep: depth * 4, step: 0 };
  }

  /** A block of rows of C: op(A) is packed once for all panels of B. */
  private multiplyRows(product: GemmArguments, block: Block, row: number): void {
    const { transA, m, alpha, b, ldb, beta, c, ldc } = product;
    const { column, columns, from, depth } = block;
    const { packedPanel, columnsPanel, rowsPanel, blend } = this.functions;
    const rows = Math.min(BLOCK_ROWS, m - row);
    const { address, rowStep, step } = this.rowsOfA(product, block, row, rows);
    const packsA = this.packsA(product);
    const panelOfA = transA || packsA ? columnsPanel : rowsPanel;
    const betaHere = from === 0 ? beta : 1;
    for (let j = 0; j < columns; j += PANEL_WIDTH) {
      const width = columns - j;
      const packed = this.packsB(product, width);
      const panel = packsA && packed ? packedPanel : panelOfA;
      const panelB = packed ? this.packedB + j * depth * 4 : b + (from * ldb + column + j) * 4;
      const bStep = packed ? PANEL_WIDTH * 4 : ldb * 4;
      const to = c + (row * ldc + column + j) * 4;
      if (width >= PANEL_WIDTH) {
        panel(rows, depth, address, rowStep, step, panelB, bStep, to, ldc * 4, alpha, betaHere);
      } else {
        const { stripe } = this;
        panel(rows, depth, address, rowStep, step, panelB, bStep, stripe, PANEL_WIDTH * 4, alpha, 0);
        blend(rows, width, stripe, to, ldc * 4, betaHere);
      }
    }
  }
}
