/** Products of bfloat16 on the tiles of AMX: C in up to four tiles, of 16 rows and columns each. */
import { InternalError } from "../../../ir/errors.js";
import type { Label } from "../code.js";
import { X64 } from "../x64/assembler.js";
import { type Gpr, gpr, low32, type Mem, mem, ripTo } from "../x64/operands.js";
import { type TileShape, Tiles } from "../x64/tiles.js";
import { elementsOf, type GemmTarget, kernelWith, type MultiplyKernel } from "./target.js";
import { packLines, packTurned, TILE } from "./x64AmxPacking.js";
import { writeRunner } from "./x64Gemm.js";
import { writePackColumns, writePackRows } from "./x64Packing.js";
import { MATRIX, Vectors } from "./x64Vectors.js";

const { rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15 } = gpr;

/** Packed factors, and C. */
const [PAIRS, SUMS] = [new Vectors(512, "bfloat16"), new Vectors(512, "float32")];

/** The kernels for x86-64 with AMX-BF16 in addition to AVX-512. */
export function x64AmxGemm(TileClass = Tiles): GemmTarget {
  return {
    name: "AMX",
    ...elementsOf("bfloat16"),
    perLane: PAIRS.perLane,
    lanes: TILE.rows,
    // A tile of a factor holds 32 adjacent elements along k.
    depthUnit: 2 * TILE.rows,
    rows: 2 * TILE.rows,
    columns: 2 * TILE.rows,
    fullStrips: true,
    prefetches: false,
    block: { rows: 2048, columns: 512, depth: 512 },
    // Rows of A in place are lines of tiles; if they are farther apart they evict each other from the cache.
    direct: { a: 1024, transposedA: 0, b: 0, rows: 0 },
    kernel: kernelWith(X64, {
      packRows: (x, kernel) => (kernel.from === "a" ? packTurned : writePackRows)(x, PAIRS, kernel),
      packColumns: (x, kernel) => (kernel.from === "a" ? packLines : writePackColumns)(x, PAIRS, kernel),
      multiply: (x, kernel) => {
        if (kernel.b !== "packed") throw new InternalError("[x64AmxGemm] tiles of B are loaded packed");
        writeMultiply(x, kernel, TileClass);
      },
    }),
    runner: (listing?: string[]) => writeRunner(new X64(listing)).finish(),
  };
}

const [A, B, C, C_STRIDE, K, STRIPS, PANELS] = [rdi, rsi, rdx, rcx, r8, r9, r10];
/** The current step and tiles, what is left to do, the lower half of the tiles of C, and the number 64. */
const [A_AT, B_AT, C_AT, STEPS_LEFT, PANELS_LEFT, LOWER, LINE] = [rbx, r12, r11, r13, r14, rbp, rax];
/** The distance in bytes between rows of A in place; this is a register of the runner, which is saved. */
const A_STRIDE = r15;

/** The tiles of a product: which parts of C, A and B they hold. */
class TileGrid {
  readonly heights: readonly number[];
  readonly widths: readonly number[];

  constructor({ height, width }: MultiplyKernel) {
    this.heights = halves(height);
    this.widths = halves(width);
  }

  sum(i: number, j: number): number {
    return 2 * i + j;
  }

  a(i: number): number {
    return 4 + i;
  }

  b(j: number): number {
    return 6 + j;
  }

  /** The shapes of the eight tiles; unused ones are as small as possible. */
  shapes(): TileShape[] {
    const shapes: TileShape[] = Array.from({ length: 8 }, () => ({ rows: 1, bytes: 4 }));
    this.heights.forEach((rows, i) => {
      shapes[this.a(i)] = { rows, bytes: TILE.bytes };
      this.widths.forEach((columns, j) => {
        shapes[this.sum(i, j)] = { rows, bytes: 4 * columns };
      });
    });
    this.widths.forEach((columns, j) => {
      shapes[this.b(j)] = { rows: TILE.rows, bytes: 4 * columns };
    });
    return shapes;
  }

  /** Every tile of C, with its place. */
  each(visit: (sum: number, place: Mem, rows: number, columns: number) => void): void {
    this.heights.forEach((rows, i) => {
      this.widths.forEach((columns, j) => {
        visit(this.sum(i, j), mem(i === 0 ? C_AT : LOWER, j * TILE.bytes, C_STRIDE), rows, columns);
      });
    });
  }
}

/** An extent of up to two tiles. */
function halves(extent: number): readonly number[] {
  return extent <= TILE.rows ? [extent] : [TILE.rows, extent - TILE.rows];
}

/** Writes the code of `multiply`: a strip of A stays in the cache for all panels of B. */
function writeMultiply(x: X64, kernel: MultiplyKernel, TileClass: typeof Tiles): void {
  const { height, width, alpha, beta } = kernel;
  const grid = new TileGrid(kernel);
  const tiles = new TileClass(x, grid.shapes());
  const labels = { alpha: x.label(), beta: x.label() };
  const a = layoutOfA(kernel, grid);
  // Tiles can start from C and be stored to it; only other scales need vectors and space for the sums.
  const isPlain = alpha === 1 && (beta === 0 || beta === 1);
  x.add(C, MATRIX.c);
  if (kernel.a !== "packed") x.add(A, MATRIX.a).push(A_STRIDE).mov(low32(A_STRIDE), a.row);
  SUMS.prepareMask(x, width % SUMS.lanes);
  if (!isPlain) x.sub(rsp, TILE.rows * TILE.bytes);
  tiles.configure();
  x.mov(low32(LINE), TILE.bytes);
  const strip = x.here();
  x.mov(B_AT, B).mov(C_AT, C).mov(PANELS_LEFT, PANELS);
  const panel = x.here();
  x.mov(A_AT, A).mov(STEPS_LEFT, K);
  pointBelow(x, grid);
  grid.each((sum, place) => {
    if (isPlain && beta === 1) tiles.load(sum, place);
    else tiles.clear(sum);
  });
  sumBlocks(x, tiles, grid, a);
  pointBelow(x, grid);
  if (isPlain) grid.each((sum, place) => tiles.store(place, sum));
  else scaleTiles(x, tiles, grid, kernel, labels);
  x.add(C_AT, width * SUMS.size)
    .dec(PANELS_LEFT)
    .j("ne", panel);
  if (kernel.a === "packed") x.imul(STEPS_LEFT, K, a.block / TILE.rows).add(A, STEPS_LEFT);
  else x.add(A, height * a.row);
  x.imul(STEPS_LEFT, C_STRIDE, height).add(C, STEPS_LEFT).dec(STRIPS).j("ne", strip);
  tiles.release();
  if (!isPlain) x.add(rsp, TILE.rows * TILE.bytes);
  if (kernel.a !== "packed") x.pop(A_STRIDE);
  x.ret();
  tiles.placeShapes();
  SUMS.placeNumber(x, labels.alpha, alpha);
  SUMS.placeNumber(x, labels.beta, beta);
}

/** Points at the lower tiles of C, if there are any. */
function pointBelow(x: X64, { heights }: TileGrid): void {
  if (heights.length === 2) x.imul(LOWER, C_STRIDE, TILE.rows).add(LOWER, C_AT);
}

/**
 * Where tiles of A are: the distance in bytes between rows, the register that holds it, and the distance between
 * blocks.
 */
interface LayoutOfA {
  readonly row: number;
  readonly stride: Gpr;
  readonly block: number;
}

function layoutOfA({ a }: MultiplyKernel, { heights }: TileGrid): LayoutOfA {
  return a === "packed"
    ? { row: TILE.bytes, stride: LINE, block: heights.length * TILE.rows * TILE.bytes }
    : { row: a.row, stride: A_STRIDE, block: TILE.bytes };
}

/** The sums of all tiles over the blocks along k, of as many steps as a tile of B has rows. */
function sumBlocks(x: X64, tiles: Tiles, grid: TileGrid, a: LayoutOfA): void {
  const pitch = grid.widths.length * TILE.bytes;
  x.align(32);
  const block = x.here();
  grid.heights.forEach((_, i) => {
    tiles.load(grid.a(i), mem(A_AT, i * TILE.rows * a.row, a.stride));
    grid.widths.forEach((_, j) => {
      if (i === 0) tiles.load(grid.b(j), mem(B_AT, j * TILE.bytes, LINE, pitch === TILE.bytes ? 1 : 2));
      tiles.sumProducts(grid.sum(i, j), grid.a(i), grid.b(j));
    });
  });
  x.add(A_AT, a.block)
    .add(B_AT, TILE.rows * pitch)
    .sub(STEPS_LEFT, TILE.rows)
    .j("ne", block);
}

/** C = alpha · sums + beta · C, row by row of tiles that are stored on the stack. */
function scaleTiles(
  x: X64,
  tiles: Tiles,
  grid: TileGrid,
  { beta }: MultiplyKernel,
  labels: { readonly alpha: Label; readonly beta: Label },
): void {
  const [sum, old, scale, oldScale] = [SUMS.vec(0), SUMS.vec(1), SUMS.vec(2), SUMS.vec(3)];
  grid.each((tile, place, rows, columns) => {
    if (place.kind !== "mem") throw new InternalError("[x64AmxGemm] C is in memory");
    tiles.store(mem(rsp, 0, LINE), tile);
    SUMS.broadcast(x, scale, ripTo(labels.alpha));
    SUMS.broadcast(x, oldScale, ripTo(labels.beta));
    x.lea(STEPS_LEFT, mem(place.base, place.disp));
    const isPart = columns < TILE.rows;
    for (let row = 0; row < rows; row++) {
      const at = mem(STEPS_LEFT);
      SUMS.move(x, sum, mem(rsp, row * TILE.bytes));
      SUMS.multiply(x, sum, sum, scale);
      if (beta !== 0) {
        if (isPart) SUMS.loadPart(x, old, at, old);
        else SUMS.move(x, old, at);
        SUMS.multiplyAdd(x, sum, old, oldScale);
      }
      if (isPart) SUMS.storePart(x, at, sum, old);
      else SUMS.move(x, at, sum);
      x.add(STEPS_LEFT, C_STRIDE);
    }
  });
}
