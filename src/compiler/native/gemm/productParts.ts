import type { GemmBatch } from "../../steps.js";
import type { Product } from "./gemmPlan.js";
import type { GemmTarget } from "./target.js";

/** A part of a batch of products that can run concurrently with the others: no other part writes its elements of C. */
export interface ProductPart {
  readonly product: Product;
  readonly batch: GemmBatch;
  /** Where the part begins in each matrix, in bytes. */
  readonly a: number;
  readonly b: number;
  readonly c: number;
}

/** Number of pieces into which products, rows and columns are divided. */
interface PartGrid {
  readonly products: number;
  readonly rows: number;
  readonly columns: number;
}

/** Minimum number of operations of a part that another thread runs. */
const MIN_FLOPS = 1e6;

/** Cost of packing an element, in multiply-adds of an element of a tile. */
const PACKING_COST = 8;

/**
 * Divides a batch of products into at most `count` parts of about the same work. Every element of C is the same sum in
 * the same order for any division, since sums are never divided.
 */
export function divideProduct(
  target: GemmTarget,
  product: Product,
  batch: GemmBatch,
  count: number,
): readonly ProductPart[] {
  const { m, n, k } = product;
  const most = Math.min(count, Math.max(1, Math.floor((2 * m * n * k * batch.count) / MIN_FLOPS)));
  const { products, rows, columns } = bestGrid(target, product, batch.count, most);
  const parts: ProductPart[] = [];
  for (const some of cuts(batch.count, products, 1)) {
    for (const height of cuts(m, rows, 1)) {
      for (const width of cuts(n, columns, target.columns)) {
        parts.push(part(target, product, batch, some, height, width));
      }
    }
  }
  return parts;
}

/** Rows of op(A) and of C that belong to one group of a product. */
export interface GroupPart {
  readonly group: number;
  readonly from: number;
  readonly rows: number;
}

/**
 * Divides products of groups of rows into at most `count` lists of about the same work, in the order of the groups: a
 * group is cut only where the equal share of a list ends.
 *
 * @param sizes the rows of each group
 * @param height the rows of each group's C if the rows of groups are what is summed, else undefined
 * @param flops the operations of all groups together
 */
export function divideGroups(
  { rows: tile }: GemmTarget,
  sizes: readonly number[],
  height: number | undefined,
  flops: number,
  count: number,
): readonly (readonly GroupPart[])[] {
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const numParts = Math.min(count, Math.max(1, Math.floor(flops / MIN_FLOPS)));
  // Groups of sums are cut in few places, so that few products of different sizes have to be prepared.
  const unit = height === undefined ? tile : Math.ceil(height / 16 / tile) * tile;
  const parts: GroupPart[][] = Array.from({ length: numParts }, () => []);
  let first = 0;
  sizes.forEach((size, group) => {
    const extent = height ?? size;
    const rowsBefore = (end: number): number => {
      const share = (end - first) / size;
      return share >= 1 ? extent : Math.min(extent, Math.max(0, Math.round((share * extent) / unit)) * unit);
    };
    parts.forEach((part, i) => {
      const from = rowsBefore((total * i) / numParts);
      const rows = rowsBefore((total * (i + 1)) / numParts) - from;
      if (rows > 0) part.push({ group, from, rows });
    });
    first += size;
  });
  return parts;
}

function part(
  target: GemmTarget,
  product: Product,
  batch: GemmBatch,
  products: Cut,
  rows: Cut,
  columns: Cut,
): ProductPart {
  const { transposeA, transposeB, lda, ldb, ldc } = product;
  const bytes = target.factorBytes;
  return {
    product: { ...product, m: rows.length, n: columns.length },
    batch: { ...batch, count: products.length },
    a: products.from * batch.strideA + rows.from * (transposeA ? 1 : lda) * bytes,
    b: products.from * batch.strideB + columns.from * (transposeB ? ldb : 1) * bytes,
    c: products.from * batch.strideC + (rows.from * ldc + columns.from) * target.size,
  };
}

/** The grid whose largest part costs least. */
function bestGrid(target: GemmTarget, { m, n, k }: Product, numProducts: number, most: number): PartGrid {
  let best: PartGrid = { products: 1, rows: 1, columns: 1 };
  let least = Number.POSITIVE_INFINITY;
  for (let products = 1; products <= Math.min(most, numProducts); products++) {
    for (let rows = 1; rows * products <= most && rows <= m; rows++) {
      const columns = Math.min(Math.floor(most / products / rows), Math.ceil(n / target.columns));
      const [height, width] = [m / rows, Math.ceil(n / columns / target.columns) * target.columns];
      const strips = Math.ceil(height / target.rows);
      const work = k * (strips * target.rows * width + PACKING_COST * (height + width));
      const time = Math.ceil(numProducts / products) * work;
      if (time < least) [best, least] = [{ products, rows, columns }, time];
    }
  }
  return best;
}

/** Consecutive rows, columns or products. */
interface Cut {
  readonly from: number;
  readonly length: number;
}

/** Divides an extent into at most `count` pieces, as equal as multiples of `unit` allow. */
function cuts(extent: number, count: number, unit: number): readonly Cut[] {
  const units = Math.ceil(extent / unit);
  const at = (i: number) => Math.min(extent, Math.floor((i * units) / count) * unit);
  const list: Cut[] = [];
  for (let i = 0; i < count; i++) {
    const [from, to] = [at(i), at(i + 1)];
    if (to > from) list.push({ from, length: to - from });
  }
  return list;
}
