import { at } from "../../../ir/shape.js";
import type { X64 } from "../x64/assembler.js";
import { type Gpr, gpr, low32, type Mem, mem, type Vector, vec } from "../x64/operands.js";
import { type PackKernel, stepsBehind } from "./target.js";
import { MATRIX, type Vectors } from "./x64Vectors.js";

const { rax, rcx, rdx, rbx, rsi, rdi, r8, r9, r10, r11, r12, r13, r14 } = gpr;

const [SOURCE, STRIDE, TARGET, K, COUNT] = [rdi, rsi, rdx, rcx, r8];

/** Writes the code of `packRows`; rows are the outer loop, so that they are read from end to end. */
export function writePackRows(x: X64, v: Vectors, kernel: PackKernel): void {
  const { from: factor, extent: width, leftOver, zeros } = kernel;
  const rest = width % v.lanes;
  const pitch = Math.ceil(width / v.lanes) * v.bytes;
  const maskData = x.label();
  v.prepareMask(x, rest);
  v.loadMask(x, rest, MASK, maskData);
  x.add(SOURCE, MATRIX[factor]).imul(PANEL_BYTES, K, pitch);
  const last = x.label();
  const more = stepsBehind(kernel);
  if (more > 0) {
    x.add(PANEL_BYTES, more * pitch)
      .test(K, K)
      .j("e", last);
  }
  const row = x.here();
  packRow(x, v, width, v.perLane);
  for (let i = 0; i < v.perLane; i++) x.add(SOURCE, STRIDE);
  x.add(TARGET, pitch).dec(K).j("ne", row);
  x.place(last);
  if (leftOver > 0) {
    packRow(x, v, width, 1);
    x.add(TARGET, pitch);
  }
  if (zeros > 0) clearRows(x, v, zeros * pitch);
  x.ret();
  v.placeMask(x, rest, maskData);
}

const [FROM, TO, LEFT, PANEL_BYTES, PARTNER] = [r9, r10, r11, rbx, r12];
const MASK = vec(256, 15);

/** One row of every panel, of one row of the source or of two whose elements become pairs. */
function packRow(x: X64, v: Vectors, width: number, numRows: number): void {
  const rest = width % v.lanes;
  const vectors = Math.ceil(width / v.lanes);
  const bytes = v.size / v.perLane;
  x.mov(FROM, SOURCE).mov(TO, TARGET).mov(LEFT, COUNT);
  if (numRows === 2) x.lea(PARTNER, mem(SOURCE, 0, STRIDE));
  const panel = x.here();
  for (let j = 0; j < vectors; j++) {
    const isPart = rest > 0 && j === vectors - 1;
    const [to, place] = [v.vec(j), j * v.lanes * bytes];
    const partner = numRows === 2 ? mem(PARTNER, place) : undefined;
    if (v.perLane === 2) loadPair(x, v, to, mem(FROM, place), partner, isPart);
    else if (isPart) v.loadPart(x, to, mem(FROM, place), MASK);
    else v.move(x, to, mem(FROM, place));
  }
  for (let j = 0; j < vectors; j++) v.move(x, mem(TO, j * v.bytes), v.vec(j));
  x.add(FROM, width * bytes);
  if (numRows === 2) x.add(PARTNER, width * bytes);
  x.add(TO, PANEL_BYTES).dec(LEFT).j("ne", panel);
}

/** Elements of 16 bits in the lower halves of lanes, and those of the next row, if any, in the upper ones. */
export function loadPair(
  x: X64,
  v: Vectors,
  to: Vector,
  from: Mem,
  partner: Mem | undefined,
  isPart: boolean,
): void {
  const masking = isPart ? { mask: 1, zero: true } : undefined;
  x.vpmovzxwd(to, from, masking);
  if (partner === undefined) return;
  const upper = v.vec(16);
  x.vpmovzxwd(upper, partner, masking).vpslld(upper, upper, 16);
  x.vpor(to, to, upper);
}

/** Clears the next bytes of every panel. */
function clearRows(x: X64, v: Vectors, bytes: number): void {
  v.clear(x, 0);
  x.mov(LEFT, COUNT);
  const panel = x.here();
  for (let byte = 0; byte < bytes; byte += v.bytes) v.move(x, mem(TARGET, byte), v.vec(0));
  x.add(TARGET, PANEL_BYTES).dec(LEFT).j("ne", panel);
}

/** Writes the code of `packColumns`, which works on as many rows at a time as a vector has lanes. */
export function writePackColumns(x: X64, v: Vectors, kernel: PackKernel): void {
  const { from: factor, extent: height, leftOver, zeros } = kernel;
  const groups = Math.ceil(height / v.lanes);
  const pitch = groups * v.bytes;
  const [to, left] = [r9, r10];
  if (v.bits === 512) {
    for (const quarter of [1, 2, 3]) x.mov(low32(rax), 0xf << (4 * quarter)).kmovw(quarter, low32(rax));
  }
  x.add(SOURCE, MATRIX[factor]).lea(STRIDE3, mem(STRIDE, 0, STRIDE, 2));
  const strip = x.here();
  for (let group = 0; group < groups; group++) {
    const rows = Math.min(v.lanes, height - group * v.lanes);
    pointAtRows(x, rows);
    x.lea(to, mem(TARGET, group * v.bytes)).mov(left, K);
    const done = x.label();
    if (v.bits === 512) repeat(x, left, v.lanes, done, () => transposeLines(x, v, rows, to, pitch));
    repeat(x, left, 16 / v.size, done, () => transposeBlock(x, v, rows, to, pitch));
    repeat(x, left, 1, done, () => transposeStep(x, v, rows, to, pitch));
    x.place(done);
    if (leftOver > 0) {
      transposeLast(x, v, rows, to);
      x.add(to, pitch);
    }
    if (zeros > 0) v.clear(x, 0);
    for (let step = 0; step < zeros; step++) v.move(x, mem(to, step * pitch), v.vec(0));
    x.mov(rax, STRIDE).imul(rax, rax, rows).add(SOURCE, rax);
  }
  nextStrip(x, kernel, pitch);
  x.dec(COUNT).j("ne", strip);
  x.ret();
}

/** Advances past a packed strip. */
export function nextStrip(x: X64, kernel: PackKernel, pitch: number): void {
  x.imul(rax, K, pitch).add(TARGET, rax);
  const more = stepsBehind(kernel);
  if (more > 0) x.add(TARGET, more * pitch);
}

/** Repeats `body` while at least `steps` are left; jumps to `done` when none are. */
export function repeat(
  x: X64,
  left: Gpr,
  steps: number,
  done: ReturnType<X64["label"]>,
  body: () => void,
): void {
  const fewer = x.label();
  x.sub(left, steps).j("l", fewer).align(32);
  const again = x.here();
  body();
  x.sub(left, steps).j("ge", again);
  x.place(fewer).add(left, steps).j("e", done);
}

/** Row r of a group lies at `QUADS[r >> 2] + (r & 3) · stride`. */
const QUADS = [rbx, r12, r13, r14];
const STRIDE3 = r11;

function pointAtRows(x: X64, rows: number): void {
  x.mov(at(QUADS, 0), SOURCE);
  for (let q = 1; 4 * q < rows; q++) x.lea(at(QUADS, q), mem(at(QUADS, q - 1), 0, STRIDE, 4));
}

function rowAt(row: number): Mem {
  const quad = at(QUADS, row >> 2);
  const places = [mem(quad), mem(quad, 0, STRIDE), mem(quad, 0, STRIDE, 2), mem(quad, 0, STRIDE3)];
  return at(places, row & 3);
}

function advance(x: X64, rows: number, bytes: number, to: Gpr, written: number): void {
  for (let q = 0; 4 * q < rows; q++) x.add(at(QUADS, q), bytes);
  x.add(to, written);
}

/**
 * Transposes a square of whole vectors of 512 bits: within quarters first, then the quarters. Every cache line is read
 * once, which matters if rows are so far apart that the cache cannot hold the lines of all.
 */
function transposeLines(x: X64, v: Vectors, rows: number, to: Gpr, pitch: number): void {
  for (let row = 0; row < v.lanes; row++) {
    if (row < rows) v.move(x, v.vec(row), rowAt(row));
    else v.clear(x, row);
  }
  transposeSquare(x, v, (step, vector) => v.move(x, mem(to, step * pitch), vector));
  advance(x, rows, v.bytes, to, v.lanes * pitch);
}

/** Transposes the first registers of 512 bits, as many as a vector has lanes; each result is stored at once. */
export function transposeSquare(x: X64, v: Vectors, store: (step: number, vector: Vector) => void): void {
  const perQuarter = 16 / v.size;
  for (let q = 0; q < 4; q++) transposeQuarters(x, v, perQuarter * q);
  // Quarter i of vector perQuarter · q + j holds step perQuarter · i + j of the rows from perQuarter · q on.
  for (let j = 0; j < perQuarter; j++) {
    const [a, b, c, d] = [
      v.vec(j),
      v.vec(perQuarter + j),
      v.vec(2 * perQuarter + j),
      v.vec(3 * perQuarter + j),
    ];
    const [even1, odd1, even2, odd2] = [v.vec(16), v.vec(17), v.vec(18), v.vec(19)];
    const step = (quarter: number) => v.vec(20 + quarter);
    x.vshuff32x4(even1, a, b, 0x88).vshuff32x4(odd1, a, b, 0xdd);
    x.vshuff32x4(even2, c, d, 0x88).vshuff32x4(odd2, c, d, 0xdd);
    x.vshuff32x4(step(0), even1, even2, 0x88).vshuff32x4(step(1), odd1, odd2, 0x88);
    x.vshuff32x4(step(2), even1, even2, 0xdd).vshuff32x4(step(3), odd1, odd2, 0xdd);
    for (let quarter = 0; quarter < 4; quarter++) store(perQuarter * quarter + j, step(quarter));
  }
}

/**
 * Transposes 16 bytes of each row: quarter q of vector i begins as row `q · perQuarter + i`, so that transposing
 * within quarters leaves consecutive rows in every vector.
 */
function transposeBlock(x: X64, v: Vectors, rows: number, to: Gpr, pitch: number): void {
  const perQuarter = 16 / v.size;
  for (let i = 0; i < perQuarter; i++) {
    if (i < rows) x.vmovups(vec(128, i), rowAt(i));
    else v.clear(x, i);
    for (let quarter = 1; quarter * perQuarter + i < rows; quarter++) {
      const row = rowAt(quarter * perQuarter + i);
      if (v.bits === 512) x.vbroadcastf32x4(v.vec(i), row, { mask: quarter });
      else x.vinsertf128(v.vec(i), v.vec(i), row, 1);
    }
  }
  transposeQuarters(x, v, 0);
  for (let i = 0; i < perQuarter; i++) v.move(x, mem(to, i * pitch), v.vec(i));
  advance(x, rows, 16, to, perQuarter * pitch);
}

/** One step along k, element by element. */
function transposeStep(x: X64, v: Vectors, rows: number, to: Gpr, pitch: number): void {
  const element = v.size === 4 ? low32(rax) : rax;
  for (let row = 0; row < rows; row++) x.mov(element, rowAt(row)).mov(mem(to, row * v.size), element);
  advance(x, rows, v.size, to, pitch);
}

/** The remaining element of every row, each paired with a zero. */
function transposeLast(x: X64, v: Vectors, rows: number, to: Gpr): void {
  const element = low32(rax);
  for (let row = 0; row < rows; row++) {
    x.movzx16(element, rowAt(row)).mov(mem(to, row * v.size), element);
  }
}

/** Transposes the vectors from `first` on within each quarter, in place. */
function transposeQuarters(x: X64, v: Vectors, first: number): void {
  const [a, b, c, d] = [v.vec(first), v.vec(first + 1), v.vec(first + 2), v.vec(first + 3)];
  const spare = v.bits === 512 ? 16 : 8;
  const [low1, high1, low2, high2] = [v.vec(spare), v.vec(spare + 1), v.vec(spare + 2), v.vec(spare + 3)];
  if (v.size === 8) {
    x.vunpcklpd(low1, a, b).vunpckhpd(b, a, b).vmovupd(a, low1);
    return;
  }
  x.vunpcklps(low1, a, b).vunpckhps(high1, a, b).vunpcklps(low2, c, d).vunpckhps(high2, c, d);
  x.vunpcklpd(a, low1, low2).vunpckhpd(b, low1, low2).vunpcklpd(c, high1, high2).vunpckhpd(d, high1, high2);
}
