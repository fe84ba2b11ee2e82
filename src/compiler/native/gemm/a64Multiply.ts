import type { A64 } from "../a64/assembler.js";
import { q, x } from "../a64/operands.js";
import type { Label } from "../code.js";
import { loadPart, MATRIX, repeat, storePart, VECTOR } from "./a64Packing.js";
import { FIRST_SUM, type Tile, tileOf } from "./a64Tile.js";
import type { Elements, MultiplyKernel } from "./target.js";

const [A, B, C, C_STRIDE, K, STRIPS, PANELS] = [x(0), x(1), x(2), x(3), x(4), x(5), x(6)];
/** The current step and tile, what is left to do, and two registers for addresses. */
const [A_AT, B_AT, C_AT, STEPS_LEFT, PANELS_LEFT, ROW, SCRATCH] = [
  ...[x(7), x(8), x(9)],
  ...[x(10), x(11), x(12), x(13)],
] as const;

/** Steps along k in one iteration of the innermost loop. */
const UNROLL = 4;

/** Writes the code of `multiply` for packed factors: a strip of A stays in the cache for all panels of B. */
export function writeMultiply(code: A64, elements: Elements, kernel: MultiplyKernel): void {
  const { size } = elements;
  const { height, width } = kernel;
  const tile = tileOf(elements, height, width);
  const labels = { alpha: code.label(), beta: code.label() };
  code.add(C, C, MATRIX.c);
  const strip = code.here();
  code.mov(B_AT, B).mov(C_AT, C).mov(PANELS_LEFT, PANELS);
  const panel = code.here();
  code.mov(A_AT, A).mov(STEPS_LEFT, K);
  prefetchTile(code, height);
  for (let id = 0; id < tile.numSums; id++) code.movi0(q(FIRST_SUM + id));
  sumSteps(code, tile);
  writeTile(code, kernel, tile, labels);
  code
    .add(C_AT, C_AT, width * size)
    .subs(PANELS_LEFT, PANELS_LEFT, 1)
    .bCond("ne", panel);
  code.mov(A, A_AT).movz(SCRATCH, height).madd(C, C_STRIDE, SCRATCH, C);
  code.subs(STRIPS, STRIPS, 1).bCond("ne", strip);
  code.ret();
  placeVector(code, size, labels.alpha, kernel.alpha);
  placeVector(code, size, labels.beta, kernel.beta);
}

/** Prefetches the first line of every row of the tile of C, which is needed when its sums are done. */
function prefetchTile(code: A64, height: number): void {
  code.mov(ROW, C_AT);
  for (let i = 0; i < height; i++) {
    code.prfmStore(ROW);
    if (i + 1 < height) code.add(ROW, ROW, C_STRIDE);
  }
}

/** The sums of a tile over all steps along k. */
function sumSteps(code: A64, tile: Tile): void {
  const { a: aBytes, b: bBytes } = tile.stepBytes;
  const done = code.label();
  for (const steps of [UNROLL, 1]) {
    repeat(code, STEPS_LEFT, steps, done, () => {
      for (let u = 0; u < steps; u++) tile.sumStep(code, [A_AT, u * aBytes], [B_AT, u * bBytes]);
      code.add(A_AT, A_AT, steps * aBytes).add(B_AT, B_AT, steps * bBytes);
    });
  }
  code.place(done);
}

/** C = alpha · sums + beta · C for a tile; anything else to be done with finished sums belongs here. */
function writeTile(
  code: A64,
  { width, height, alpha, beta }: MultiplyKernel,
  tile: Tile,
  labels: { readonly alpha: Label; readonly beta: Label },
): void {
  const { size, lanes } = tile;
  const numLanes = VECTOR / size;
  const [old, scale, oldScale] = [q(0), q(1), q(2)];
  if (alpha !== 1) code.ldrLiteral(scale, labels.alpha);
  if (beta !== 0 && beta !== 1) code.ldrLiteral(oldScale, labels.beta);
  code.mov(ROW, C_AT);
  for (let i = 0; i < height; i++) {
    for (let j = 0; j * numLanes < width; j++) {
      const sum = tile.finished(code, i, j);
      const rest = width - j * numLanes < numLanes ? width % numLanes : 0;
      if (alpha !== 1) code.fmul(lanes, sum, sum, scale);
      if (beta !== 0) {
        if (rest > 0) loadPart(code, size, rest, old.id, ROW, j * VECTOR, SCRATCH);
        else code.ldr(old, ROW, j * VECTOR);
        if (beta === 1) code.fadd(lanes, sum, sum, old);
        else code.fmla(lanes, sum, old, oldScale);
      }
      if (rest > 0) storePart(code, size, rest, sum.id, ROW, j * VECTOR, SCRATCH);
      else code.str(sum, ROW, j * VECTOR);
    }
    if (i + 1 < height) code.add(ROW, ROW, C_STRIDE);
  }
}

/** Writes a number after the code, in every lane of a vector. */
function placeVector(code: A64, size: 4 | 8, label: Label, value: number): void {
  const vector =
    size === 4 ? new Float32Array(VECTOR / 4).fill(value) : new Float64Array(VECTOR / 8).fill(value);
  code.place(label).data(new Uint8Array(vector.buffer));
}
