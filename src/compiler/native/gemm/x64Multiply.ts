import type { Label } from "../code.js";
import type { X64 } from "../x64/assembler.js";
import { gpr, type Mem, mem, ripTo, type Vector } from "../x64/operands.js";
import type { FactorLayout, MultiplyKernel } from "./target.js";
import { repeat } from "./x64Packing.js";
import { MATRIX, type Vectors } from "./x64Vectors.js";

const { rax, rcx, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14 } = gpr;

const [A, B, C, C_STRIDE, K, STRIPS, PANELS] = [rdi, rsi, rdx, rcx, r8, r9, r10];
/** The current step and tile, what is left to do, and the start of the panel of B. */
const [A_AT, B_AT, C_AT, STEPS_LEFT, PANELS_LEFT, PANEL, ROW] = [rbx, r12, r11, r13, r14, rax, rbp];
/** The bytes of a packed strip of A while sums are computed; no row of C is accessed then. */
const STRIP = ROW;
/** What is prefetched next, in place of the number of strips. */
const AHEAD = STRIPS;

/** Steps along k in one iteration of the innermost loop. */
const UNROLL = 4;

/** Rows of the next strip that are prefetched beside one panel of B. */
export const ROWS_AHEAD = 2;

/** Prefetch distance in bytes for a packed panel of B, which is in the L2 cache. */
const PREFETCH_BYTES = 512;

/** Prefetch distance in steps for B in place: rows that share a set of the L1 cache, of at least eight lines, fit. */
const PREFETCH_STEPS = 6;

/** Minimum distance between rows of B, in bytes, at which prefetching pays. */
const MIN_PREFETCH_DISTANCE = 512;

/** Writes the code of `multiply`: a strip of A stays in the caches of the core for all panels of B. */
export function writeMultiply(x: X64, v: Vectors, kernel: MultiplyKernel): void {
  const { height, width, a, b, ahead } = kernel;
  const tile = new X64Tile(v, height, Math.ceil(width / v.lanes));
  const labels = { mask: x.label(), alpha: x.label(), beta: x.label() };
  if (a !== "packed") x.add(A, MATRIX.a);
  if (b !== "packed") x.add(B, MATRIX.b);
  x.add(C, MATRIX.c);
  if (ahead !== undefined) x.add(AHEAD, MATRIX.a);
  v.prepareMask(x, width % v.lanes);
  const strip = x.here();
  x.mov(B_AT, B).mov(C_AT, C).mov(PANELS_LEFT, PANELS);
  const panel = x.here();
  x.mov(A_AT, A).mov(STEPS_LEFT, K).mov(PANEL, B_AT);
  // A tile that is only stored waits in the store buffer: prefetching it would delay the first steps.
  if (kernel.beta !== 0) prefetchTile(x, v, kernel);
  if (a === "packed") x.imul(STRIP, K, stepBytes(v, a, height));
  tile.clear(x);
  sumSteps(x, v, kernel, tile, ahead);
  writeTile(x, v, kernel, tile, labels);
  x.add(C_AT, width * v.size);
  if (ahead !== undefined)
    x.imul(ROW, K, v.size)
      .sub(AHEAD, ROW)
      .add(AHEAD, ROWS_AHEAD * ahead);
  if (b !== "packed") x.lea(B_AT, mem(PANEL, width * v.size));
  x.dec(PANELS_LEFT).j("ne", panel);
  if (ahead === undefined) {
    if (a === "packed") x.imul(rax, K, stepBytes(v, a, height)).add(A, rax);
    else x.add(A, height * a.row);
    x.imul(rax, C_STRIDE, height).add(C, rax).dec(STRIPS).j("ne", strip);
  }
  x.ret();
  v.placeMask(x, width % v.lanes, labels.mask);
  v.placeNumber(x, labels.alpha, kernel.alpha);
  v.placeNumber(x, labels.beta, kernel.beta);
}

/** The registers of a tile of C: its sums, then the vectors of a step of B, then elements of A. */
export class X64Tile {
  constructor(
    private readonly v: Vectors,
    readonly height: number,
    /** Vectors of a row. */
    readonly vectors: number,
  ) {}

  sum(row: number, vector: number): Vector {
    return this.v.vec(row * this.vectors + vector);
  }

  /** A register besides the sums; tiles leave at least four. */
  free(index: number): Vector {
    return this.v.vec(this.height * this.vectors + index);
  }

  clear(x: X64): void {
    for (let id = 0; id < this.height * this.vectors; id++) this.v.clear(x, id);
  }
}

/** Bytes from one step along k to the next. */
function stepBytes(v: Vectors, layout: FactorLayout, extent: number): number {
  return layout === "packed" ? Math.ceil(extent / v.lanes) * v.bytes : layout.step;
}

/** Prefetches the tile of C, which is added to its sums when they are done. */
function prefetchTile(x: X64, v: Vectors, { height, width }: MultiplyKernel): void {
  x.mov(ROW, C_AT);
  for (let i = 0; i < height; i++) {
    for (let byte = 0; byte < width * v.size; byte += 64) x.prefetcht0(mem(ROW, byte));
    if (i + 1 < height) x.add(ROW, C_STRIDE);
  }
}

/** Where `sumSteps` finds its first elements of A and B and the number of steps. */
export const SUM_ARGUMENTS = { a: A_AT, b: B_AT, steps: STEPS_LEFT } as const;

/** The layouts of the factors of a tile. */
type TileFactors = Pick<MultiplyKernel, "height" | "width" | "a" | "b">;

/**
 * Adds the products of all steps along k to the sums of a tile.
 *
 * @param ahead the distance between rows that are prefetched meanwhile
 */
export function sumSteps(x: X64, v: Vectors, kernel: TileFactors, tile: X64Tile, ahead?: number): void {
  const aBytes = stepBytes(v, kernel.a, kernel.height);
  const bBytes = stepBytes(v, kernel.b, kernel.width);
  const done = x.label();
  for (const steps of [UNROLL, 1]) {
    repeat(x, STEPS_LEFT, steps, done, () => {
      for (let u = 0; u < steps; u++) sumStep(x, v, kernel, tile, u * aBytes, u * bBytes);
      // Each line several times, which costs nothing: loads are not what limits the loop.
      for (let row = 0; ahead !== undefined && row < ROWS_AHEAD; row++) {
        x.prefetcht1(mem(AHEAD, row * ahead));
      }
      if (ahead !== undefined) x.add(AHEAD, steps * v.size);
      x.add(A_AT, steps * aBytes).add(B_AT, steps * bBytes);
    });
  }
  x.place(done);
}

/** One step along k: every row's element of A times the vectors of B. */
function sumStep(x: X64, v: Vectors, kernel: TileFactors, tile: X64Tile, aByte: number, bByte: number): void {
  const { vectors } = tile;
  const rowBytes = kernel.a === "packed" ? v.size : kernel.a.row;
  for (let j = 0; j < vectors; j++) v.move(x, tile.free(j), mem(B_AT, bByte + j * v.bytes));
  prefetchStep(x, v, kernel, bByte, vectors);
  // The same step of the next strip, which comes from L3 or memory: it takes long, and all panels of B are still to
  // come.
  if (kernel.a === "packed") x.prefetcht1(mem(A_AT, aByte, STRIP));
  for (let i = 0; i < tile.height; i++) {
    // Two registers alternate, so that the next element can be loaded while this one is used.
    const element = tile.free(vectors + (i % 2));
    v.broadcast(x, element, mem(A_AT, aByte + i * rowBytes));
    for (let j = 0; j < vectors; j++) v.sumProducts(x, tile.sum(i, j), element, tile.free(j));
  }
}

/** Prefetches a later step of B. */
function prefetchStep(x: X64, v: Vectors, { b }: TileFactors, bByte: number, vectors: number): void {
  if (b !== "packed" && b.step < MIN_PREFETCH_DISTANCE) return;
  const ahead = b === "packed" ? PREFETCH_BYTES : PREFETCH_STEPS * b.step;
  for (let byte = bByte; byte < bByte + vectors * v.bytes; byte += v.bytes) {
    if (byte % 64 === 0) x.prefetcht0(mem(B_AT, byte + ahead));
  }
}

interface Labels {
  readonly mask: Label;
  readonly alpha: Label;
  readonly beta: Label;
}

/** C = alpha · sums + beta · C for a tile; anything else to be done with finished sums belongs here. */
function writeTile(x: X64, v: Vectors, kernel: MultiplyKernel, tile: X64Tile, labels: Labels): void {
  const { width, height, alpha, beta } = kernel;
  const rest = width % v.lanes;
  const [old, mask, scale, oldScale] = [tile.free(0), tile.free(1), tile.free(2), tile.free(3)];
  v.loadMask(x, rest, mask, labels.mask);
  if (alpha !== 1) v.broadcast(x, scale, ripTo(labels.alpha));
  if (beta !== 0 && beta !== 1) v.broadcast(x, oldScale, ripTo(labels.beta));
  x.mov(ROW, C_AT);
  for (let i = 0; i < height; i++) {
    for (let j = 0; j < tile.vectors; j++) {
      const [sum, place] = [tile.sum(i, j), mem(ROW, j * v.bytes)];
      const isPart = rest > 0 && j === tile.vectors - 1;
      if (alpha !== 1) v.multiply(x, sum, sum, scale);
      if (beta !== 0 && isPart) v.loadPart(x, old, place, mask);
      const before: Vector | Mem = isPart ? old : place;
      if (beta === 1) v.add(x, sum, sum, before);
      else if (beta !== 0) v.multiplyAdd(x, sum, oldScale, before);
      if (isPart) v.storePart(x, place, sum, mask);
      else v.move(x, place, sum);
    }
    if (i + 1 < height) x.add(ROW, C_STRIDE);
  }
}
