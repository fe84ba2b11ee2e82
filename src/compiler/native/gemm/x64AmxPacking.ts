/**
 * How A is packed for AMX: for every 32 adjacent elements along k the rows of a strip, 64 bytes each, one after the
 * other, so that 16 of them are a tile. The last 32 are padded with zeros.
 */

import type { X64 } from "../x64/assembler.js";
import { type Gpr, gpr, low32, mem } from "../x64/operands.js";
import { type PackKernel, stepsBehind } from "./target.js";
import { loadPair, nextStrip, repeat, transposeSquare } from "./x64Packing.js";
import { MATRIX, type Vectors } from "./x64Vectors.js";

const { rax, rcx, rdx, rbx, rsi, rdi, r8, r9, r10, r11, r12 } = gpr;

/** The largest tile: rows, and bytes of a row. */
export const TILE = { rows: 16, bytes: 64 } as const;

const [SOURCE, STRIDE, TARGET, K, COUNT] = [rdi, rsi, rdx, rcx, r8];
const [FROM, TO, PLACE, LEFT, ROWS] = [r9, r10, r11, r12, rbx];

/** Number of pairs in the last block; undefined if it is full. */
function lastPairs(kernel: PackKernel): number | undefined {
  const more = stepsBehind(kernel);
  return more > 0 ? TILE.rows - more : undefined;
}

/** Bytes of a step of a strip; 16 steps are its part of a block. */
function pitchOf(extent: number): number {
  return Math.ceil(extent / TILE.rows) * TILE.bytes;
}

/** Writes the code of `packColumns` for A, whose rows are lines of tiles already. */
export function packLines(x: X64, v: Vectors, kernel: PackKernel): void {
  const { extent: height, leftOver } = kernel;
  const pitch = pitchOf(height);
  const pairs = lastPairs(kernel);
  v.prepareMask(x, pairs ?? 0);
  x.add(SOURCE, MATRIX.a);
  const strip = x.here();
  x.mov(low32(ROWS), height).mov(PLACE, TARGET);
  const row = x.here();
  x.mov(FROM, SOURCE).mov(TO, PLACE).mov(LEFT, K);
  const rest = x.label();
  repeat(x, LEFT, TILE.rows, rest, () => {
    v.move(x, v.vec(0), mem(FROM));
    v.move(x, mem(TO), v.vec(0));
    x.add(FROM, TILE.bytes).add(TO, TILE.rows * pitch);
  });
  x.place(rest);
  if (pairs !== undefined) {
    if (pairs > 0) v.loadPart(x, v.vec(0), mem(FROM), v.vec(0));
    else v.clear(x, 0);
    v.move(x, mem(TO), v.vec(0));
    if (leftOver > 0) {
      x.movzx16(low32(rax), mem(FROM, v.size * pairs)).mov(mem(TO, v.size * pairs), low32(rax));
    }
  }
  x.add(SOURCE, STRIDE).add(PLACE, TILE.bytes).dec(ROWS).j("ne", row);
  nextStrip(x, kernel, pitch);
  x.dec(COUNT).j("ne", strip).ret();
}

/** Writes the code of `packRows` for A, whose columns are lines of tiles: squares of pairs are transposed. */
export function packTurned(x: X64, v: Vectors, kernel: PackKernel): void {
  const { extent: width, leftOver } = kernel;
  const pitch = pitchOf(width);
  const pairs = lastPairs(kernel);
  v.prepareMask(x, width % v.lanes);
  x.add(SOURCE, MATRIX.a);
  const strip = x.here();
  x.mov(FROM, SOURCE).mov(TO, TARGET).mov(LEFT, K);
  const rest = x.label();
  repeat(x, LEFT, TILE.rows, rest, () => {
    turnBlock(x, v, width, TILE.rows, 0);
    x.imul(rax, STRIDE, 2 * TILE.rows)
      .add(FROM, rax)
      .add(TO, TILE.rows * pitch);
  });
  x.place(rest);
  if (pairs !== undefined) turnBlock(x, v, width, pairs, leftOver);
  x.add(SOURCE, (width * v.size) / v.perLane);
  nextStrip(x, kernel, pitch);
  x.dec(COUNT).j("ne", strip).ret();
}

/** One block along k of all rows of a strip. */
function turnBlock(x: X64, v: Vectors, width: number, pairs: number, leftOver: number): void {
  for (let first = 0; first < width; first += v.lanes) {
    const rows = Math.min(v.lanes, width - first);
    const isPart = rows < v.lanes;
    x.lea(PLACE, mem(FROM, (first * v.size) / v.perLane));
    for (let pair = 0; pair < v.lanes; pair++) {
      if (pair < pairs) loadNext(x, v, pair, PLACE, 2, isPart);
      else if (pair === pairs && leftOver > 0) loadNext(x, v, pair, PLACE, 1, isPart);
      else v.clear(x, pair);
    }
    transposeSquare(x, v, (row, vector) => {
      if (row < rows) v.move(x, mem(TO, (first + row) * TILE.bytes), vector);
    });
  }
}

/** Loads elements of one row, or those of two as pairs, and advances past them. */
function loadNext(x: X64, v: Vectors, to: number, at: Gpr, numRows: 1 | 2, isPart: boolean): void {
  const partner = numRows === 2 ? mem(at, 0, STRIDE) : undefined;
  loadPair(x, v, v.vec(to), mem(at), partner, isPart);
  x.lea(at, mem(at, 0, STRIDE, numRows));
}
