/** Which part of a matrix product a workgroup computes with matrices that the threads of a subgroup multiply together. */
import { batchCount, type GemmShape } from "./gemmTile.js";

/** The matrices that a subgroup multiplies: m × k times k × n elements, of float16, with sums in float32. */
export interface MatrixUnit {
  readonly m: number;
  readonly n: number;
  readonly k: number;
}

/** The part of a product that a workgroup computes, and each of its subgroups. */
export interface MatrixTile {
  /** Rows and columns of a workgroup, and how many products it adds at a time. */
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** Rows and columns of a subgroup. */
  readonly groupM: number;
  readonly groupN: number;
  /** Strips of each operand in shared memory; with 2, the next is written while threads still read the last. */
  readonly strips: 1 | 2;
}

/** Tiles from the largest, which reads the least, to the smallest, of which there are most; the fastest of many on NVIDIA. */
export const MATRIX_TILES: readonly [MatrixTile, ...MatrixTile[]] = [
  { m: 128, n: 128, k: 32, groupM: 64, groupN: 64, strips: 1 },
  { m: 64, n: 64, k: 64, groupM: 32, groupN: 32, strips: 1 },
  { m: 32, n: 32, k: 32, groupM: 16, groupN: 16, strips: 2 },
];

/** Workgroups that keep a GPU busy. */
const BUSY_WORKGROUPS = 128;

/** The matrices that a GPU multiplies, and what decides which tiles it can have. */
export interface MatrixSetting {
  readonly unit: MatrixUnit;
  /** Threads of a subgroup. */
  readonly subgroupSize: number;
}

/** Whether all tiles consist of whole matrices. */
export function suits({ m, n, k }: MatrixUnit): boolean {
  return MATRIX_TILES.every((tile) => tile.groupM % m === 0 && tile.groupN % n === 0 && tile.k % k === 0);
}

/** The largest tile that keeps a GPU busy and fits into its shared memory, else the smallest. */
export function chooseMatrixTile(
  shape: GemmShape,
  { unit }: MatrixSetting,
  { sharedBytes }: { readonly sharedBytes: number },
): MatrixTile {
  const fitting = MATRIX_TILES.filter((tile) => matrixBytes(tile, unit) <= sharedBytes);
  const isBusy = ({ m, n }: MatrixTile) =>
    Math.ceil(shape.m / m) * Math.ceil(shape.n / n) * batchCount(shape) >= BUSY_WORKGROUPS;
  const smallest = MATRIX_TILES[MATRIX_TILES.length - 1] ?? MATRIX_TILES[0];
  return fitting.find(isBusy) ?? fitting.at(-1) ?? smallest;
}

/** Elements after each row of a strip: without them rows would begin in the same memory bank. */
export const MATRIX_PADDING = 8;

/** Subgroups of a workgroup. */
export function subgroupsOf({ m, n, groupM, groupN }: MatrixTile): number {
  return (m / groupM) * (n / groupN);
}

/** Shared memory of a tile in bytes: strips of both operands, whichever way they lie, and a matrix of sums for each subgroup. */
export function matrixBytes(tile: MatrixTile, unit: MatrixUnit): number {
  const strip = (size: number) =>
    Math.max(size * (tile.k + MATRIX_PADDING), tile.k * (size + MATRIX_PADDING));
  return 2 * tile.strips * (strip(tile.m) + strip(tile.n)) + 4 * unit.m * unit.n * subgroupsOf(tile);
}
