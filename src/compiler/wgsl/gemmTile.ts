/** Which part of a matrix product a workgroup of a GPU computes. */
import type { GemmStep } from "../steps.js";

/** The part of a product that a workgroup computes, and each of its threads. */
export interface ShaderTile {
  /** Rows and columns of a workgroup, and how many products it adds at a time. */
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** Rows and columns of a thread; multiples of 4, or 1. */
  readonly threadM: number;
  readonly threadN: number;
  /** Groups of threads that compute the same results, each from every n-th product, for n groups; 1 by default. */
  readonly slices?: number;
  /** Strips of each operand in shared memory; with 2, the next is written while threads still read the last. */
  readonly strips?: 1 | 2;
}

/** A product without its places. */
export type GemmShape = Omit<GemmStep, "op" | "a" | "b" | "c" | "epilogue" | "info">;

/** What decides which tile suits a product. */
export interface TileChoice {
  /** Whether the GPU is a program on the CPU. */
  readonly isSoftware: boolean;
  /** The most shared memory of a workgroup, in bytes. */
  readonly sharedBytes: number;
  /** The tile of large products that was measured to be the fastest; by default the first of {@link LARGE_TILES}. */
  readonly largeTile?: ShaderTile | undefined;
}

/** Tiles of large products. Which of them is fastest depends on the GPU and on its compiler. */
export const LARGE_TILES: readonly [ShaderTile, ...ShaderTile[]] = [
  { m: 128, n: 128, k: 16, threadM: 8, threadN: 8, strips: 2 },
  { m: 256, n: 128, k: 16, threadM: 16, threadN: 8 },
  { m: 128, n: 256, k: 16, threadM: 8, threadN: 16 },
];
/** Tiles of other products, down to the smallest, of which there are most. */
const TILES: readonly ShaderTile[] = [
  { m: 128, n: 64, k: 16, threadM: 8, threadN: 8 },
  { m: 64, n: 64, k: 16, threadM: 8, threadN: 8, slices: 2 },
  { m: 64, n: 32, k: 16, threadM: 8, threadN: 4, slices: 4 },
  { m: 32, n: 32, k: 16, threadM: 4, threadN: 4 },
];
const SMALL_TILE: ShaderTile = { m: 16, n: 16, k: 16, threadM: 1, threadN: 1 };

/** Workgroups of 256 threads that keep a GPU busy, and how its speed depends on how many of those threads there are. */
const BUSY_WORKGROUPS = 128;
const BUSY_THREADS = 256 * BUSY_WORKGROUPS;
const IDLE_POWER = 0.4;

/**
 * How fast a product is with a tile: the speed of the tile itself, which follows the products for each element that a
 * thread reads, times the part of its elements that exist, times the part of a GPU that it keeps busy.
 */
function speedOf(shape: GemmShape, tile: ShaderTile): number {
  const { m, n, threadM, threadN, slices = 1 } = tile;
  const [columns, rows, batches] = workgroupsOf(shape, tile);
  const count = columns * rows * batches;
  const used = (shape.m * shape.n * batches) / (count * m * n);
  const turns = (count * slices * ((m / threadM) * (n / threadN))) / BUSY_THREADS;
  // Large tiles have a part of the GPU for themselves, and the last ones leave the others' idle.
  const isLarge = m * n >= 128 * 128;
  const busy = isLarge ? turns / Math.ceil(turns) : Math.min(1, turns) ** IDLE_POWER;
  return used * busy * ((threadM * threadN) / (threadM + threadN)) ** SPEED_POWER;
}

const SPEED_POWER = 0.35;

/** Products that are added from which on a tile was measured; of few, loading and storing takes most of the time. */
const LONG_SUM = 256;

/** The tile that suits a product; none where each thread computes one element by itself. */
export function chooseTile(
  shape: GemmShape,
  { isSoftware, sharedBytes, largeTile }: TileChoice,
): ShaderTile | undefined {
  // Shared memory gains nothing on a CPU, and shaders with barriers take its compiler seconds.
  if (isSoftware) return undefined;
  if (shape.m < 32 || shape.n < 32) return SMALL_TILE;
  // The measured one may be too large for this product, where the smaller one of the large tiles still serves.
  const measured = largeTile && shape.k >= LONG_SUM ? [largeTile] : [];
  const tiles = [...measured, LARGE_TILES[0], ...TILES];
  const fitting = tiles.filter((tile) => fits(tile, sharedBytes));
  const speeds = fitting.map((tile) => speedOf(shape, tile));
  return fitting[speeds.indexOf(Math.max(...speeds))] ?? SMALL_TILE;
}

/** Whether a workgroup has the shared memory that a tile takes. */
export function fits(tile: ShaderTile, sharedBytes: number): boolean {
  return 4 * sharedFloats(tile) <= sharedBytes;
}

/** Shared memory that a tile takes: strips of each operand. */
function sharedFloats(tile: ShaderTile): number {
  const { m, n, k, slices = 1, strips = 1 } = tile;
  return strips * slices * k * (m + n + 2 * padding(tile));
}

/** Elements between the rows of a strip: without them threads that write a column would meet in one memory bank. */
export function padding(tile: ShaderTile): number {
  return vectorWidth(tile) === 4 ? 4 : 0;
}

/** Width of the vectors that a thread reads from shared memory. */
export function vectorWidth({ threadM, threadN }: ShaderTile): 1 | 4 {
  return threadM % 4 === 0 && threadN % 4 === 0 ? 4 : 1;
}

/** Workgroups along columns, rows and batches. */
export function workgroupsOf(shape: GemmShape, tile: ShaderTile): readonly [number, number, number] {
  return [Math.ceil(shape.n / tile.n), Math.ceil(shape.m / tile.m), batchCount(shape)];
}

/** The number of batches of a product. */
export function batchCount({ batch }: GemmShape): number {
  return batch.reduce((count, dim) => count * dim.count, 1);
}
