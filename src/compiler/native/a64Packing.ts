import { at } from "../../ir/shape.js";
import { type A64, d, h, q, type Register, s, x } from "./a64.js";
import type { Elements, PackColumnsKernel, PackRowsKernel } from "./gemmTarget.js";

const [SOURCE, STRIDE, TARGET, K, COUNT] = [x(0), x(1), x(2), x(3), x(4)];

/** Where the runner keeps the addresses of A, B and C. */
export const MATRIX: { readonly [K in "a" | "b" | "c"]: Register } = { a: x(20), b: x(21), c: x(22) };

/** Bytes of a vector. */
export const VECTOR = 16;

/** Writes the code of `packRows`; rows are the outer loop, so that they are read from end to end. */
export function writePackRows(code: A64, elements: Elements, kernel: PackRowsKernel): void {
  const { from: factor, width, isOdd } = kernel;
  const pitch = Math.ceil(width / (VECTOR / elements.size)) * VECTOR;
  code.add(SOURCE, SOURCE, MATRIX[factor]);
  code.movz(PANEL_BYTES, pitch).mul(PANEL_BYTES, PANEL_BYTES, K);
  const last = code.label();
  if (isOdd) code.add(PANEL_BYTES, PANEL_BYTES, pitch).cbz(K, last);
  const row = code.here();
  packRow(code, elements, width, elements.perLane);
  for (let i = 0; i < elements.perLane; i++) code.add(SOURCE, SOURCE, STRIDE);
  code.add(TARGET, TARGET, pitch).subs(K, K, 1).bCond("ne", row);
  code.place(last);
  if (isOdd) packRow(code, elements, width, 1);
  code.ret();
}

const [FROM, TO, LEFT, PANEL_BYTES, BEHIND, PARTNER] = [x(5), x(6), x(7), x(8), x(9), x(10)];

/** One row of every panel, of one row of the source or of two whose elements become pairs. */
function packRow(code: A64, { size, perLane }: Elements, width: number, numRows: number): void {
  const lanes = VECTOR / size;
  const bytes = size / perLane;
  const vectors = Math.ceil(width / lanes);
  code.mov(FROM, SOURCE).mov(TO, TARGET).mov(LEFT, COUNT);
  if (numRows === 2) code.add(PARTNER, SOURCE, STRIDE);
  const panel = code.here();
  for (let j = 0; j < vectors; j++) {
    const [count, place] = [Math.min(lanes, width - j * lanes), j * lanes * bytes];
    if (perLane === 2) loadPairs(code, j, place, count, numRows);
    else if (count === lanes) code.ldr(q(j), FROM, place);
    else loadPart(code, size, count, j, FROM, place, BEHIND);
  }
  for (let j = 0; j < vectors; j++) code.str(q(j), TO, j * VECTOR);
  code.add(FROM, FROM, width * bytes);
  if (numRows === 2) code.add(PARTNER, PARTNER, width * bytes);
  code.add(TO, TO, PANEL_BYTES).subs(LEFT, LEFT, 1).bCond("ne", panel);
}

/** Up to four elements of 16 bits in the lower halves of lanes, and those of the next row in the upper ones. */
function loadPairs(code: A64, to: number, place: number, count: number, numRows: number): void {
  const [lower, upper] = [q(16), q(17)];
  loadHalves(code, lower, FROM, place, count);
  if (numRows === 2) loadHalves(code, upper, PARTNER, place, count);
  else code.movi0(upper);
  code.zip1("8h", q(to), lower, upper);
}

/** Loads one to four elements of 16 bits, none behind them. */
function loadHalves(code: A64, { id }: Register, base: Register, offset: number, count: number): void {
  code.ldr(count === 4 ? d(id) : count === 1 ? h(id) : s(id), base, offset);
  if (count === 3) code.add(BEHIND, base, offset + 4).ld1Lane2(q(id), BEHIND, "h");
}

/** Loads the first `rest` elements of a vector, none behind them. */
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
export function writePackColumns(code: A64, { size }: Elements, kernel: PackColumnsKernel): void {
  const { from: factor, height, isOdd } = kernel;
  const lanes = VECTOR / size;
  const groups = Math.ceil(height / lanes);
  const pitch = groups * VECTOR;
  const [to, left, scratch] = [x(9), x(10), x(11)];
  const rowPointers = [x(5), x(6), x(7), x(8)];
  code.add(SOURCE, SOURCE, MATRIX[factor]);
  const strip = code.here();
  for (let group = 0; group < groups; group++) {
    const rows = rowPointers.slice(0, Math.min(lanes, height - group * lanes));
    rows.forEach((row, i) => {
      if (i === 0) code.mov(row, SOURCE);
      else code.add(row, at(rows, i - 1), STRIDE);
    });
    code.add(SOURCE, at(rows, rows.length - 1), STRIDE);
    code.add(to, TARGET, group * VECTOR).mov(left, K);
    const single = code.label();
    const done = code.label();
    code.subs(left, left, lanes).bCond("lt", single);
    const block = code.here();
    transposeBlock(code, size, rows, to, pitch);
    code.subs(left, left, lanes).bCond("ge", block);
    code.place(single).adds(left, left, lanes).bCond("eq", done);
    const step = code.here();
    rows.forEach((row, i) => {
      const element = size === 4 ? s(0) : d(0);
      code.ldrPost(element, row, size).str(element, to, i * size);
    });
    code.add(to, to, pitch).subs(left, left, 1).bCond("ne", step);
    code.place(done);
    if (isOdd) {
      // What is left over shares its lane with the zero that a load of 16 bits leaves behind it.
      rows.forEach((row, i) => {
        code.ldr(h(0), row).str(s(0), to, i * size);
      });
    }
  }
  code.movz(scratch, pitch).madd(TARGET, K, scratch, TARGET);
  if (isOdd) code.add(TARGET, TARGET, pitch);
  code.subs(COUNT, COUNT, 1).bCond("ne", strip);
  code.ret();
}

/** Transposes 16 bytes of each row; lanes of rows that are not there hold anything. */
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
