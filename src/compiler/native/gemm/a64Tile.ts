/** The registers of a tile of C: which sums each holds, and how a step along k adds to them. */
import type { A64 } from "../a64/assembler.js";
import { type FloatLanes, q, type Register } from "../a64/operands.js";
import { VECTOR } from "./a64Packing.js";
import type { Elements } from "./target.js";

/** The first register of sums; those before hold a step of A and of B, or temporaries of finished sums. */
export const FIRST_SUM = 8;

/** Where a step of a packed factor begins: a register plus bytes. */
export type FactorPlace = readonly [base: Register, byte: number];

/** A tile of C in registers. */
export interface Tile {
  /** Bytes of an element of C. */
  readonly size: 4 | 8;
  readonly lanes: FloatLanes;
  readonly numSums: number;
  /** Bytes of one step along k of the packed factors. */
  readonly stepBytes: { readonly a: number; readonly b: number };
  /** Writes the code of one step along k. */
  sumStep(code: A64, a: FactorPlace, b: FactorPlace): void;
  /**
   * The register with the sums of a vector of a row of C, once all steps are done; may use the fourth register for it.
   */
  finished(code: A64, row: number, vector: number): Register;
}

/** A tile of C of this height and width. */
export function tileOf({ size, factorBytes }: Elements, height: number, width: number): Tile {
  return factorBytes === 2 ? new SquareTile(height, width) : new LaneTile(size, height, width);
}

/** Sums of vectors of B times lanes of A. */
class LaneTile implements Tile {
  readonly lanes: FloatLanes;
  readonly numSums: number;
  readonly stepBytes: Tile["stepBytes"];
  private readonly vectorsA: number;
  private readonly vectorsB: number;

  constructor(
    readonly size: 4 | 8,
    private readonly height: number,
    width: number,
  ) {
    this.lanes = size === 4 ? "4s" : "2d";
    this.vectorsA = Math.ceil((height * size) / VECTOR);
    this.vectorsB = Math.ceil((width * size) / VECTOR);
    this.numSums = height * this.vectorsB;
    this.stepBytes = { a: this.vectorsA * VECTOR, b: this.vectorsB * VECTOR };
  }

  sumStep(code: A64, [a, aByte]: FactorPlace, [b, bByte]: FactorPlace): void {
    const { vectorsA, vectorsB, height } = this;
    const numLanes = VECTOR / this.size;
    for (let i = 0; i < vectorsA; i++) code.ldr(q(i), a, aByte + i * VECTOR);
    for (let j = 0; j < vectorsB; j++) code.ldr(q(vectorsA + j), b, bByte + j * VECTOR);
    for (let j = 0; j < vectorsB; j++) {
      for (let i = 0; i < height; i++) {
        const element = q(Math.floor(i / numLanes));
        code.fmlaLane(this.lanes, this.sum(i, j), q(vectorsA + j), element, i % numLanes);
      }
    }
  }

  finished(_code: A64, row: number, vector: number): Register {
    return this.sum(row, vector);
  }

  private sum(row: number, vector: number): Register {
    return q(FIRST_SUM + row * this.vectorsB + vector);
  }
}

/** Squares of 2 × 2 sums of two rows of A times two columns of B, each four bfloat16 long. */
class SquareTile implements Tile {
  readonly size = 4;
  readonly lanes = "4s";
  readonly numSums: number;
  readonly stepBytes: Tile["stepBytes"];
  private readonly pairsA: number;
  private readonly pairsB: number;

  constructor(height: number, width: number) {
    this.pairsA = Math.ceil(height / 2);
    this.pairsB = Math.ceil(width / 2);
    this.numSums = this.pairsA * this.pairsB;
    this.stepBytes = { a: this.pairsA * VECTOR, b: this.pairsB * VECTOR };
  }

  sumStep(code: A64, [a, aByte]: FactorPlace, [b, bByte]: FactorPlace): void {
    const { pairsA, pairsB } = this;
    for (let i = 0; i < pairsA; i++) code.ldr(q(i), a, aByte + i * VECTOR);
    for (let j = 0; j < pairsB; j++) {
      // Pairs of columns alternate in the remaining registers.
      const columns = q(pairsA + (j % (FIRST_SUM - pairsA)));
      code.ldr(columns, b, bByte + j * VECTOR);
      for (let i = 0; i < pairsA; i++) code.bfmmla(this.sum(i, j), q(i), columns);
    }
  }

  /** Four adjacent elements of a row are in two squares: in their lower halves, or in the upper ones for an odd row. */
  finished(code: A64, row: number, vector: number): Register {
    const [rows, columns, to] = [Math.floor(row / 2), 2 * vector, q(3)];
    const [left, right] = [this.sum(rows, columns), this.sum(rows, Math.min(columns + 1, this.pairsB - 1))];
    if (row % 2 === 0) code.zip1("2d", to, left, right);
    else code.zip2("2d", to, left, right);
    return to;
  }

  private sum(rows: number, columns: number): Register {
    return q(FIRST_SUM + rows * this.pairsB + columns);
  }
}
