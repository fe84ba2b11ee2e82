import { type A64, type Lanes, q, type Register, x } from "./a64.js";
import { loadPart, MATRIX, storePart, VECTOR } from "./a64Packing.js";
import type { Label } from "./code.js";
import type { Elements, MultiplyKernel } from "./gemmTarget.js";

const [A, B, C, C_STRIDE, K, STRIPS, PANELS] = [x(0), x(1), x(2), x(3), x(4), x(5), x(6)];
/** Where the running step and tile are, what is left to do, and two registers for addresses. */
const [A_AT, B_AT, C_AT, STEPS_LEFT, PANELS_LEFT, ROW, SCRATCH] = [
  ...[x(7), x(8), x(9)],
  ...[x(10), x(11), x(12), x(13)],
] as const;

/** Steps along k that one turn of the innermost loop does. */
const UNROLL = 4;

/** The sums take registers from here on; those before hold a step of A and of B. */
const FIRST_SUM = 8;

/** Writes the code of `multiply` for packed factors: a strip of A stays near while all panels of B pass. */
export function writeMultiply(code: A64, { size, perLane }: Elements, kernel: MultiplyKernel): void {
  const { height, width } = kernel;
  const tile = new Tile(size, perLane, height, width);
  const labels = { alpha: code.label(), beta: code.label() };
  code.add(C, C, MATRIX.c);
  const strip = code.here();
  code.mov(B_AT, B).mov(C_AT, C).mov(PANELS_LEFT, PANELS);
  const panel = code.here();
  code.mov(A_AT, A).mov(STEPS_LEFT, K);
  prefetchTile(code, height);
  for (let id = 0; id < height * tile.vectorsB; id++) code.movi0(q(FIRST_SUM + id));
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

/** The registers of a tile of C. */
class Tile {
  readonly lanes: Lanes;
  readonly numLanes: number;
  readonly vectorsA: number;
  readonly vectorsB: number;

  constructor(
    readonly size: 4 | 8,
    private readonly perLane: 1 | 2,
    readonly height: number,
    width: number,
  ) {
    this.lanes = size === 4 ? "4s" : "2d";
    this.numLanes = VECTOR / size;
    this.vectorsA = Math.ceil(height / this.numLanes);
    this.vectorsB = Math.ceil(width / this.numLanes);
  }

  a(vector: number): Register {
    return q(vector);
  }

  b(vector: number): Register {
    return q(this.vectorsA + vector);
  }

  sum(row: number, vector: number): Register {
    return q(FIRST_SUM + row * this.vectorsB + vector);
  }

  /** Adds the products of a vector of B with one lane of A, over the neighbours that share a lane. */
  sumProducts(code: A64, row: number, vector: number): void {
    const [sum, b] = [this.sum(row, vector), this.b(vector)];
    const [element, lane] = [this.a(Math.floor(row / this.numLanes)), row % this.numLanes];
    if (this.perLane === 2) code.bfdotLane(sum, b, element, lane);
    else code.fmlaLane(this.lanes, sum, b, element, lane);
  }
}

/** Asks for the first line of every row of the tile of C, which is needed when its sums are done. */
function prefetchTile(code: A64, height: number): void {
  code.mov(ROW, C_AT);
  for (let i = 0; i < height; i++) {
    code.prfmStore(ROW);
    if (i + 1 < height) code.add(ROW, ROW, C_STRIDE);
  }
}

/** The sums of a tile over all steps along k. */
function sumSteps(code: A64, tile: Tile): void {
  const [aBytes, bBytes] = [tile.vectorsA * VECTOR, tile.vectorsB * VECTOR];
  const single = code.label();
  const done = code.label();
  code.subs(STEPS_LEFT, STEPS_LEFT, UNROLL).bCond("lt", single);
  const loop = code.here();
  for (let u = 0; u < UNROLL; u++) sumStep(code, tile, u * aBytes, u * bBytes);
  code.add(A_AT, A_AT, UNROLL * aBytes).add(B_AT, B_AT, UNROLL * bBytes);
  code.subs(STEPS_LEFT, STEPS_LEFT, UNROLL).bCond("ge", loop);
  code.place(single).adds(STEPS_LEFT, STEPS_LEFT, UNROLL).bCond("eq", done);
  const one = code.here();
  sumStep(code, tile, 0, 0);
  code.add(A_AT, A_AT, aBytes).add(B_AT, B_AT, bBytes).subs(STEPS_LEFT, STEPS_LEFT, 1).bCond("ne", one);
  code.place(done);
}

/** One step along k: every element of A times the vectors of B. */
function sumStep(code: A64, tile: Tile, aByte: number, bByte: number): void {
  for (let i = 0; i < tile.vectorsA; i++) code.ldr(tile.a(i), A_AT, aByte + i * VECTOR);
  for (let j = 0; j < tile.vectorsB; j++) code.ldr(tile.b(j), B_AT, bByte + j * VECTOR);
  for (let j = 0; j < tile.vectorsB; j++) {
    for (let i = 0; i < tile.height; i++) tile.sumProducts(code, i, j);
  }
}

/** C = alpha · sums + beta · C for a tile; whatever else should happen to finished sums belongs here. */
function writeTile(
  code: A64,
  { width, height, alpha, beta }: MultiplyKernel,
  tile: Tile,
  labels: { readonly alpha: Label; readonly beta: Label },
): void {
  const { size, lanes, numLanes } = tile;
  const [old, scale, oldScale] = [q(0), q(1), q(2)];
  if (alpha !== 1) code.ldrLiteral(scale, labels.alpha);
  if (beta !== 0 && beta !== 1) code.ldrLiteral(oldScale, labels.beta);
  code.mov(ROW, C_AT);
  for (let i = 0; i < height; i++) {
    for (let j = 0; j < tile.vectorsB; j++) {
      const sum = tile.sum(i, j);
      const rest = j === tile.vectorsB - 1 ? width % numLanes : 0;
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

/** Writes a number behind the code, in every lane of a vector. */
function placeVector(code: A64, size: 4 | 8, label: Label, value: number): void {
  const vector =
    size === 4 ? new Float32Array(VECTOR / 4).fill(value) : new Float64Array(VECTOR / 8).fill(value);
  code.place(label).data(new Uint8Array(vector.buffer));
}
