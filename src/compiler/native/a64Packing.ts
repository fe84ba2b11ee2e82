import { at } from "../../ir/shape.js";
import { type A64, d, q, type Register, s, x } from "./a64.js";
import type { PackColumnsKernel, PackRowsKernel } from "./gemmTarget.js";

const [SOURCE, STRIDE, TARGET, K, COUNT] = [x(0), x(1), x(2), x(3), x(4)];

/** Where the runner keeps the addresses of A, B and C. */
export const MATRIX: { readonly [K in "a" | "b" | "c"]: Register } = { a: x(20), b: x(21), c: x(22) };

/** Bytes of a vector. */
export const VECTOR = 16;

/** Writes the code of `packRows`; rows are the outer loop, so that they are read from end to end. */
export function writePackRows(code: A64, size: 4 | 8, { from: factor, width }: PackRowsKernel): void {
  const [from, to, left, panelBytes, behind] = [x(5), x(6), x(7), x(8), x(9)];
  const lanes = VECTOR / size;
  const rest = width % lanes;
  const whole = (width - rest) / lanes;
  const vectors = whole + (rest > 0 ? 1 : 0);
  code.add(SOURCE, SOURCE, MATRIX[factor]);
  code.movz(panelBytes, vectors * VECTOR).mul(panelBytes, panelBytes, K);
  const row = code.here();
  code.mov(from, SOURCE).mov(to, TARGET).mov(left, COUNT);
  const panel = code.here();
  for (let j = 0; j < whole; j++) code.ldr(q(j), from, j * VECTOR);
  loadPart(code, size, rest, whole, from, whole * VECTOR, behind);
  for (let j = 0; j < vectors; j++) code.str(q(j), to, j * VECTOR);
  code
    .add(from, from, width * size)
    .add(to, to, panelBytes)
    .subs(left, left, 1)
    .bCond("ne", panel);
  code
    .add(SOURCE, SOURCE, STRIDE)
    .add(TARGET, TARGET, vectors * VECTOR)
    .subs(K, K, 1)
    .bCond("ne", row);
  code.ret();
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
export function writePackColumns(code: A64, size: 4 | 8, { from: factor, height }: PackColumnsKernel): void {
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
  }
  code.movz(scratch, pitch).madd(TARGET, K, scratch, TARGET).subs(COUNT, COUNT, 1).bCond("ne", strip);
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
