import type { Label } from "../code.js";
import type { X64 } from "../x64/assembler.js";
import { gpr, low32, type Mem, mem, repeated, ripTo, type Vector } from "../x64/operands.js";
import type { FactorLayout, MultiplyKernel } from "./target.js";
import { repeat } from "./x64Packing.js";
import { MATRIX, type Vectors } from "./x64Vectors.js";

const { rax, rcx, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14 } = gpr;

const [A, B, C, C_STRIDE, K, STRIPS, PANELS] = [rdi, rsi, rdx, rcx, r8, r9, r10];
/** The current step and tile, what is left to do, and the start of the panel of B. */
const [A_AT, B_AT, C_AT, STEPS_LEFT, PANELS_LEFT, PANEL, ROW] = [rbx, r12, r11, r13, r14, rax, rbp];
/**
 * The distance to what is prefetched of the next strip of A: for each packed panel of B, whose start is not needed, one
 * line in an iteration, and for the next panel the lines behind those.
 */
const NEXT = PANEL;
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
  const isPacked = a === "packed" && b === "packed";
  if (a !== "packed") x.add(A, MATRIX.a);
  if (b !== "packed") x.add(B, MATRIX.b);
  x.add(C, MATRIX.c);
  if (ahead !== undefined) x.add(AHEAD, MATRIX.a);
  v.prepareMask(x, width % v.lanes);
  const strip = x.here();
  x.mov(B_AT, B).mov(C_AT, C).mov(PANELS_LEFT, PANELS);
  if (isPacked) x.imul(NEXT, K, stepBytes(v, a, height));
  const panel = x.here();
  x.mov(A_AT, A);
  if (b !== "packed") x.mov(PANEL, B_AT);
  tile.clear(x);
  const beside = (steps: number) => {
    if (isPacked && steps === UNROLL) x.prefetcht1(mem(A_AT, 0, NEXT));
    if (ahead === undefined) return;
    // Each line several times, which only the first columns of a product do.
    for (let row = 0; row < ROWS_AHEAD; row++) x.prefetcht1(mem(AHEAD, row * ahead));
    x.add(AHEAD, steps * v.size);
  };
  const [few, rest] = [x.label(), x.label()];
  const numFirst = UNROLL * height;
  x.mov(ROW, C_AT).cmp(K, numFirst).j("l", few).mov(low32(STEPS_LEFT), numFirst);
  sumSteps(x, v, kernel, tile, [UNROLL], (steps) => {
    prefetchRow(x, v, kernel);
    beside(steps);
  });
  x.mov(STEPS_LEFT, K).sub(STEPS_LEFT, numFirst).jmp(rest);
  x.place(few);
  // A tile that is only stored waits in the store buffer: prefetching all rows at once would delay the first steps.
  if (kernel.beta !== 0) for (let row = 0; row < height; row++) prefetchRow(x, v, kernel);
  x.mov(STEPS_LEFT, K).place(rest);
  sumSteps(x, v, kernel, tile, [UNROLL, 1], beside);
  writeTile(x, v, kernel, tile, labels);
  x.add(C_AT, width * v.size);
  if (isPacked) x.add(NEXT, 64);
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

  /**
   * The number of rows whose elements of A are operands of the multiply-adds, which repeat them in all lanes, instead of
   * being loaded by an instruction of their own. That saves an instruction, which matters most while another thread uses
   * the same core, but costs loads, of which a core does as many as multiply-adds: a quarter is left for prefetching and
   * for lines that arrive.
   */
  get numRepeated(): number {
    const { height, vectors, v } = this;
    if (v.bits === 256) return 0;
    if (vectors === 1) return height;
    const loads = 0.75 * height * vectors - height - vectors;
    return Math.max(0, Math.floor(loads / (vectors - 1)));
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

/** Prefetches the next row of a tile of C, to which finished sums are added or over which they are stored. */
function prefetchRow(x: X64, v: Vectors, { width }: MultiplyKernel): void {
  for (let byte = 0; byte < width * v.size; byte += 64) x.prefetcht1(mem(ROW, byte));
  x.add(ROW, C_STRIDE);
}

/** Where `sumSteps` finds its first elements of A and B and the number of steps. */
export const SUM_ARGUMENTS = { a: A_AT, b: B_AT, steps: STEPS_LEFT } as const;

/** The layouts of the factors of a tile. */
type TileFactors = Pick<MultiplyKernel, "height" | "width" | "a" | "b">;

/**
 * Adds the products of all steps along k to the sums of a tile.
 *
 * @param unrolls how many steps an iteration has, of loops that follow each other
 * @param beside writes what else an iteration does
 */
export function sumSteps(
  x: X64,
  v: Vectors,
  kernel: TileFactors,
  tile: X64Tile,
  unrolls: readonly number[] = [UNROLL, 1],
  beside: (steps: number) => void = () => {},
): void {
  const aBytes = stepBytes(v, kernel.a, kernel.height);
  const bBytes = stepBytes(v, kernel.b, kernel.width);
  const done = x.label();
  for (const steps of unrolls) {
    repeat(x, STEPS_LEFT, steps, done, () => {
      for (let u = 0; u < steps; u++) sumStep(x, v, kernel, tile, u * aBytes, u * bBytes);
      beside(steps);
      x.add(A_AT, steps * aBytes).add(B_AT, steps * bBytes);
    });
  }
  x.place(done);
}

/** One step along k: every row's element of A times the vectors of B. */
function sumStep(x: X64, v: Vectors, kernel: TileFactors, tile: X64Tile, aByte: number, bByte: number): void {
  const { height, vectors, numRepeated } = tile;
  const rowBytes = kernel.a === "packed" ? v.size : kernel.a.row;
  for (let j = 0; j < vectors; j++) v.move(x, tile.free(j), mem(B_AT, bByte + j * v.bytes));
  prefetchStep(x, v, kernel, bByte, vectors);
  // Evenly among the others.
  const isRepeated = (row: number) => (row * numRepeated) % height >= height - numRepeated;
  for (let i = 0; i < height; i++) {
    const place = aByte + i * rowBytes;
    // Two registers alternate, so that the next element can be loaded while this one is used.
    const element = isRepeated(i) ? repeated(A_AT, place, v.lanes) : tile.free(vectors + (i % 2));
    if (element.kind === "vector") v.broadcast(x, element, mem(A_AT, place));
    for (let j = 0; j < vectors; j++) v.sumProducts(x, tile.sum(i, j), tile.free(j), element);
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
