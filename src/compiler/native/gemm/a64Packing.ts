import { at } from "../../../ir/shape.js";
import type { A64 } from "../a64/assembler.js";
import { d, h, q, type Register, s, x } from "../a64/operands.js";
import type { Label } from "../code.js";
import type { Elements, PackKernel } from "./target.js";

const [SOURCE, STRIDE, TARGET, K, COUNT] = [x(0), x(1), x(2), x(3), x(4)];

/** Where the runner keeps the addresses of A, B and C. */
export const MATRIX: { readonly [K in "a" | "b" | "c"]: Register } = { a: x(20), b: x(21), c: x(22) };

/** Bytes of a vector. */
export const VECTOR = 16;

/** A lane of a packed factor: its bytes, and how many adjacent elements along k share it. */
export interface Packing {
  readonly laneBytes: 4 | 8;
  readonly perLane: 1 | 4;
}

/** Four adjacent bfloat16 share a lane, of which a vector holds two: what one instruction multiplies. */
export function packingOf({ size, factorBytes }: Elements): Packing {
  return factorBytes === 2 ? { laneBytes: 8, perLane: 4 } : { laneBytes: size, perLane: 1 };
}

/** Writes the code of `packRows`; rows are the outer loop, so that they are read from end to end. */
export function writePackRows(code: A64, packing: Packing, kernel: PackKernel): void {
  const { from: factor, extent: width, leftOver } = kernel;
  const pitch = Math.ceil(width / (VECTOR / packing.laneBytes)) * VECTOR;
  code.add(SOURCE, SOURCE, MATRIX[factor]);
  code.movz(PANEL_BYTES, pitch).mul(PANEL_BYTES, PANEL_BYTES, K);
  const last = code.label();
  if (leftOver > 0) code.add(PANEL_BYTES, PANEL_BYTES, pitch).cbz(K, last);
  const step = code.here();
  packStep(code, packing, width, packing.perLane);
  for (let i = 0; i < packing.perLane; i++) code.add(SOURCE, SOURCE, STRIDE);
  code.add(TARGET, TARGET, pitch).subs(K, K, 1).bCond("ne", step);
  code.place(last);
  if (leftOver > 0) packStep(code, packing, width, leftOver);
  code.ret();
}

const [TO, LEFT, PANEL_BYTES, BEHIND] = [x(6), x(7), x(8), x(9)];
/** Where the rows of a step are: one, or up to four whose elements share lanes. */
const ROWS = [x(5), x(10), x(11), x(12)];

/** One step of every panel, from up to four rows of the source. */
function packStep(code: A64, { laneBytes, perLane }: Packing, width: number, numRows: number): void {
  const rows = ROWS.slice(0, numRows);
  pointAtRows(code, rows);
  code.mov(TO, TARGET).mov(LEFT, COUNT);
  const panel = code.here();
  if (perLane === 4) loadFours(code, rows, width);
  else loadRow(code, laneBytes, at(rows, 0), width);
  const vectors = Math.ceil(width / (VECTOR / laneBytes));
  for (let j = 0; j < vectors; j++) code.str(q(j), TO, j * VECTOR);
  for (const row of rows) code.add(row, row, (width * laneBytes) / perLane);
  code.add(TO, TO, PANEL_BYTES).subs(LEFT, LEFT, 1).bCond("ne", panel);
}

/** Loads the elements of a row into the first registers. */
function loadRow(code: A64, size: 4 | 8, row: Register, width: number): void {
  const lanes = VECTOR / size;
  for (let j = 0; j * lanes < width; j++) {
    const [count, place] = [Math.min(lanes, width - j * lanes), j * VECTOR];
    if (count === lanes) code.ldr(q(j), row, place);
    else loadPart(code, size, count, j, row, place, BEHIND);
  }
}

/** Loads up to four rows of elements of 16 bits into the first registers, column by column; other rows are zeros. */
function loadFours(code: A64, rows: readonly Register[], width: number): void {
  const [r0, r1, r2, r3] = [q(16), q(17), q(18), q(19)];
  const [even, odd] = [q(20), q(21)];
  for (let first = 0; first < width; first += 4) {
    const count = Math.min(4, width - first);
    [r0, r1, r2, r3].forEach((to, i) => {
      const row = rows[i];
      if (row === undefined) code.movi0(to);
      else loadHalves(code, to, row, 2 * first, count, BEHIND);
    });
    code.zip1("8h", even, r0, r2).zip1("8h", odd, r1, r3);
    code.zip1("8h", q(first / 2), even, odd);
    if (count > 2) code.zip2("8h", q(first / 2 + 1), even, odd);
  }
}

/** Loads one to four elements of 16 bits, and nothing after them; the rest of the register becomes zero. */
function loadHalves(
  code: A64,
  { id }: Register,
  base: Register,
  offset: number,
  count: number,
  behind: Register,
): void {
  code.ldr(count === 4 ? d(id) : count === 1 ? h(id) : s(id), base, offset);
  if (count === 3) code.add(behind, base, offset + 4).ld1HalfLane2(q(id), behind);
}

/** Points at the next rows of the source. */
function pointAtRows(code: A64, rows: readonly Register[]): void {
  rows.forEach((row, i) => {
    if (i === 0) code.mov(row, SOURCE);
    else code.add(row, at(rows, i - 1), STRIDE);
  });
}

/** Loads the first `rest` elements of a vector, and nothing after them. */
export function loadPart(
  code: A64,
  size: 4 | 8,
  rest: number,
  to: number,
  base: Register,
  offset: number,
  behind: Register,
): void {
  if (rest === 0) return;
  code.ldr(size === 8 || rest >= 2 ? d(to) : s(to), base, offset);
  if (rest === 3) code.add(behind, base, offset + 8).ld1Lane2(q(to), behind);
}

/** Stores the first `rest` elements of a vector. */
export function storePart(
  code: A64,
  size: 4 | 8,
  rest: number,
  from: number,
  base: Register,
  offset: number,
  behind: Register,
): void {
  code.str(size === 8 || rest >= 2 ? d(from) : s(from), base, offset);
  if (rest === 3) code.add(behind, base, offset + 8).st1Lane2(q(from), behind);
}

/** Writes the code of `packColumns`, which works on as many rows at a time as a vector has lanes. */
export function writePackColumns(code: A64, { laneBytes }: Packing, kernel: PackKernel): void {
  const { from: factor, extent: height, leftOver } = kernel;
  const lanes = VECTOR / laneBytes;
  const groups = Math.ceil(height / lanes);
  const pitch = groups * VECTOR;
  const [to, left, scratch] = [x(9), x(10), x(11)];
  const rowPointers = [x(5), x(6), x(7), x(8)];
  code.add(SOURCE, SOURCE, MATRIX[factor]);
  const strip = code.here();
  for (let group = 0; group < groups; group++) {
    const rows = rowPointers.slice(0, Math.min(lanes, height - group * lanes));
    pointAtRows(code, rows);
    code.add(SOURCE, at(rows, rows.length - 1), STRIDE);
    code.add(to, TARGET, group * VECTOR).mov(left, K);
    const done = code.label();
    const lane = laneBytes === 4 ? s(0) : d(0);
    repeat(code, left, lanes, done, () => transposeBlock(code, laneBytes, rows, to, pitch));
    repeat(code, left, 1, done, () => {
      rows.forEach((row, i) => {
        code.ldrPost(lane, row, laneBytes).str(lane, to, i * laneBytes);
      });
      code.add(to, to, pitch);
    });
    code.place(done);
    if (leftOver > 0) {
      rows.forEach((row, i) => {
        loadHalves(code, lane, row, 0, leftOver, scratch);
        code.str(lane, to, i * laneBytes);
      });
    }
  }
  code.movz(scratch, pitch).madd(TARGET, K, scratch, TARGET);
  if (leftOver > 0) code.add(TARGET, TARGET, pitch);
  code.subs(COUNT, COUNT, 1).bCond("ne", strip);
  code.ret();
}

/** Repeats `body` while at least `steps` are left; jumps to `done` when none are. */
export function repeat(code: A64, left: Register, steps: number, done: Label, body: () => void): void {
  const fewer = code.label();
  code.subs(left, left, steps).bCond("lt", fewer);
  const again = code.here();
  body();
  code.subs(left, left, steps).bCond("ge", again);
  code.place(fewer).adds(left, left, steps).bCond("eq", done);
}

/** Transposes 16 bytes of each row; lanes of missing rows hold arbitrary values. */
function transposeBlock(
  code: A64,
  size: 4 | 8,
  rows: readonly Register[],
  to: Register,
  pitch: number,
): void {
  rows.forEach((row, i) => {
    code.ldrPost(q(i), row, VECTOR);
  });
  const steps: Register[] = [];
  if (size === 8) {
    code.zip1("2d", q(16), q(0), q(1)).zip2("2d", q(17), q(0), q(1));
    steps.push(q(16), q(17));
  } else {
    code.zip1("4s", q(4), q(0), q(1)).zip2("4s", q(5), q(0), q(1));
    code.zip1("4s", q(6), q(2), q(3)).zip2("4s", q(7), q(2), q(3));
    code.zip1("2d", q(16), q(4), q(6)).zip2("2d", q(17), q(4), q(6));
    code.zip1("2d", q(18), q(5), q(7)).zip2("2d", q(19), q(5), q(7));
    steps.push(q(16), q(17), q(18), q(19));
  }
  for (const step of steps) code.str(step, to).add(to, to, pitch);
}
