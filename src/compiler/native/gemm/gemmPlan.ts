import { InternalError } from "../../../ir/errors.js";
import { range } from "../../../ir/shape.js";
import {
  type FactorLayout,
  type GemmTarget,
  type GemmTask,
  type MultiplyKernel,
  numStrips,
  type PackKernel,
  pitchBytes,
  type Side,
  stepsBehind,
} from "./target.js";

/** `C = alpha · op(A) · op(B) + beta · C`, row-major; op(A) is m × k, op(B) is k × n, strides are in elements. */
export interface Product {
  readonly transposeA: boolean;
  readonly transposeB: boolean;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly lda: number;
  readonly ldb: number;
  readonly ldc: number;
  readonly alpha: number;
  readonly beta: number;
}

/** Addresses for packed strips of A and panels of B; `packingBytes` says how much space they take. */
export type PackingSpace = { readonly [F in Side]: number };

/** `count` strips or panels of one extent, one after the other. */
interface TileGroup {
  readonly extent: number;
  readonly count: number;
  /** The first row or column of the group in its block. */
  readonly first: number;
  /** Where it is when it is packed. */
  readonly packed: number;
}

/** A part of the product: these rows of A, columns of B and steps along k. */
interface Block {
  readonly rows: Piece;
  readonly columns: Piece;
  readonly depth: Piece;
}

interface Piece {
  readonly at: number;
  readonly size: number;
}

/** The calls that compute a product. */
export function planProduct(target: GemmTarget, product: Product, space: PackingSpace): readonly GemmTask[] {
  const { m, n, k } = product;
  const planner = new ProductPlanner(target, product, space);
  const block = blockOf(target, product, planner.tile);
  for (const rows of pieces(m, block.rows, planner.tile.rows)) {
    for (const depth of pieces(k, block.depth, target.lanes * target.perLane)) {
      const isByStrip = planner.packsByStrip;
      if (!isByStrip) planner.packA({ rows, depth });
      for (const columns of pieces(n, block.columns, planner.tile.columns)) {
        planner.packB({ columns, depth });
        if (isByStrip && columns.at === 0) planner.packAndMultiply({ rows, columns, depth });
        else planner.multiply({ rows, columns, depth });
      }
    }
  }
  return planner.tasks;
}

/**
 * How much of a product is packed at a time: of fewer steps along k, more rows and columns. What is added to C with a
 * factor is a small part of it, such as an update of weights, so that its steps are one block, if there is room, and C is
 * rounded once.
 */
function blockOf(target: GemmTarget, { k, alpha, beta }: Product, tile: Tile): GemmTarget["block"] {
  const { block, lanes, perLane } = target;
  const strips = Math.ceil(block.rows / target.rows);
  const panels = Math.ceil(block.columns / target.columns);
  const isOnce = alpha !== 1 && beta !== 0;
  const most = isOnce ? block.depth * Math.min(strips, panels) : block.depth;
  const depth = sizeOfPieces(k, most, lanes * perLane);
  const share = (count: number) => Math.floor((count * block.depth) / depth);
  return {
    rows: share(strips) * target.rows,
    columns: share(panels) * Math.min(tile.columns, target.columns),
    depth,
  };
}

/** Maximum bytes of the packed blocks of a product. */
export function packingBytes(target: GemmTarget): { readonly [F in Side]: number } {
  const { rows, columns, block } = target;
  const steps = stepsOf(target, block.depth);
  return {
    a: Math.ceil(block.rows / rows) * pitchBytes(target, rows) * steps,
    b: Math.ceil(block.columns / columns) * pitchBytes(target, columns) * steps,
  };
}

/** The number of steps for this many elements along k. */
function stepsOf({ perLane, depthUnit }: GemmTarget, depth: number): number {
  return (Math.ceil(depth / depthUnit) * depthUnit) / perLane;
}

/** The bytes from the first element of a matrix to the end of its last. */
export function extentBytes(size: number, rows: number, columns: number, stride: number): number {
  return ((rows - 1) * stride + columns) * size;
}

/** The rows and columns of C that stay in registers. */
type Tile = Pick<GemmTarget, "rows" | "columns">;

/** Maximum distance between rows of A, in bytes, at which 32-bit displacements reach all rows of a tile. */
const MAX_ROW_DISTANCE = 2 ** 28;

/** The tile for a product: a flat one if C has no more rows or columns than it, or if it saves packing A. */
function tileOf(target: GemmTarget, { transposeA, lda, m, n }: Product, isNearA: boolean): Tile {
  const { flat, columns, factorBytes } = target;
  if (flat === undefined || lda * factorBytes > MAX_ROW_DISTANCE) return target;
  if (m <= flat.rows) return flat;
  const isFlat = isNearA ? n > columns && n <= flat.columns : !transposeA && n <= flat.maxColumns;
  return isFlat ? flat : target;
}

class ProductPlanner {
  readonly tasks: GemmTask[] = [];
  readonly tile: Tile;
  private readonly stride: { readonly [F in "a" | "b" | "c"]: number };
  private readonly isDirect: { readonly [F in Side]: boolean };

  constructor(
    private readonly target: GemmTarget,
    private readonly product: Product,
    private readonly space: PackingSpace,
  ) {
    const { size, factorBytes: bytes, direct, depthUnit } = target;
    const { transposeA, transposeB, lda, ldb, ldc, m, k } = product;
    this.stride = { a: lda * bytes, b: ldb * bytes, c: ldc * size };
    const isNearA = this.stride.a <= (transposeA ? direct.transposedA : direct.a);
    this.tile = tileOf(target, product, isNearA);
    const isNearB = m <= direct.rows || k * this.stride.b <= direct.b;
    // Only packing pads with zeros.
    const isWhole = k % depthUnit === 0;
    this.isDirect = {
      a: isWhole && (isNearA || (!transposeA && this.tile === target.flat)),
      b: isWhole && !transposeB && isNearB,
    };
  }

  /** Whether strips of A are packed one by one, because kernels prefetch the next one; not for a few strips. */
  get packsByStrip(): boolean {
    const { transposeA, m } = this.product;
    const { prefetches, direct } = this.target;
    const canPrefetch = prefetches && !transposeA && this.stride.a <= MAX_ROW_DISTANCE;
    return canPrefetch && !this.isDirect.a && m > direct.rows;
  }

  packA({ rows, depth }: Omit<Block, "columns">): void {
    if (this.isDirect.a) return;
    for (const strips of this.strips(rows, depth)) this.packStrips(strips, rows, depth);
  }

  private packStrips(strips: TileGroup, rows: Piece, depth: Piece): void {
    const source = this.placeInA(rows.at + strips.first, depth.at);
    this.pack("a", !this.product.transposeA, strips, source, depth.size);
  }

  packB({ columns, depth }: Omit<Block, "rows">): void {
    for (const panel of this.panels(columns, depth)) {
      if (this.isDirectPanel(panel)) continue;
      const source = this.placeInB(columns.at + panel.first, depth.at);
      this.pack("b", this.product.transposeB, panel, source, depth.size);
    }
  }

  multiply(block: Block): void {
    for (const panels of this.panels(block.columns, block.depth)) {
      for (const strips of this.strips(block.rows, block.depth)) this.multiplyTiles(block, strips, panels);
    }
  }

  /** Packs each strip of A just before it is multiplied, while the one before is, prefetched by the kernel. */
  packAndMultiply(block: Block): void {
    const { rows, columns, depth } = block;
    const strips = this.strips(rows, depth).flatMap((group) => this.singles(group, depth));
    for (const [i, strip] of strips.entries()) {
      this.packStrips(strip, rows, depth);
      for (const [j, panels] of this.panels(columns, depth).entries()) {
        this.multiplyTiles(block, strip, panels, j === 0 ? strips[i + 1] : undefined);
      }
    }
  }

  /** Multiplies strips with panels; one strip if the next one is prefetched meanwhile. */
  private multiplyTiles(
    { rows, columns, depth }: Block,
    strips: TileGroup,
    panels: TileGroup,
    next?: TileGroup,
  ): void {
    const { alpha, transposeA } = this.product;
    const { size } = this.target;
    const steps = stepsOf(this.target, depth.size);
    // Later steps along k add to what the first ones wrote.
    const beta = depth.at === 0 ? this.product.beta : 1;
    const whereA: FactorLayout = transposeA
      ? { row: size, step: this.stride.a }
      : { row: this.stride.a, step: size };
    const placeOf = (strip: TileGroup) => this.placeInA(rows.at + strip.first, depth.at);
    const b: FactorLayout = this.isDirectPanel(panels) ? { row: size, step: this.stride.b } : "packed";
    const bAt = b === "packed" ? panels.packed : this.placeInB(columns.at + panels.first, depth.at);
    const a = this.isDirect.a ? whereA : "packed";
    const aAt = a === "packed" ? strips.packed : placeOf(strips);
    const cAt = (rows.at + strips.first) * this.stride.c + (columns.at + panels.first) * size;
    const ahead = next && { ahead: this.stride.a };
    const [height, width] = [strips.extent, panels.extent];
    const kernel: MultiplyKernel = { kind: "multiply", height, width, a, b, alpha, beta, ...ahead };
    const numOrNext = next ? placeOf(next) : strips.count;
    const args = [aAt, bAt, cAt, this.stride.c, steps, numOrNext, panels.count] as const;
    this.tasks.push({ kind: "multiply", kernel, args });
  }

  private pack(from: Side, transposed: boolean, group: TileGroup, source: number, depth: number): void {
    const { extent, count, packed } = group;
    const { perLane } = this.target;
    const [k, leftOver] = [Math.floor(depth / perLane), depth % perLane];
    const zeros = stepsOf(this.target, depth) - Math.ceil(depth / perLane);
    const kind = transposed ? "packColumns" : "packRows";
    const kernel: PackKernel = { kind, from, extent, leftOver, zeros };
    this.tasks.push({ kind: "pack", kernel, args: [source, this.stride[from], packed, k, count] });
  }

  /** Panels whose last vector is not full are packed, so that only C is ever accessed in part. */
  private isDirectPanel({ extent }: TileGroup): boolean {
    return this.isDirect.b && extent % this.target.lanes === 0;
  }

  private placeInA(row: number, step: number): number {
    const bytes = this.target.factorBytes;
    return this.product.transposeA ? step * this.stride.a + row * bytes : row * this.stride.a + step * bytes;
  }

  private placeInB(column: number, step: number): number {
    const bytes = this.target.factorBytes;
    return this.product.transposeB
      ? column * this.stride.b + step * bytes
      : step * this.stride.b + column * bytes;
  }

  /** As few strips as possible, of two heights that differ by one, so that no strip is left with only a row or two. */
  private strips({ size }: Piece, depth: Piece): readonly TileGroup[] {
    if (this.target.fullStrips) return this.wholeGroups("a", size, this.tile.rows, depth);
    const count = Math.ceil(size / this.tile.rows);
    const low = Math.floor(size / count);
    const numHigh = size - low * count;
    return this.groups("a", depth, [
      [low + 1, numHigh],
      [low, count - numHigh],
    ]);
  }

  /** The strips of a group one by one. */
  private singles({ count, ...group }: TileGroup, depth: Piece): TileGroup[] {
    const bytes = stepsOf(this.target, depth.size) * pitchBytes(this.target, group.extent);
    return range(count).map((i) => ({
      extent: group.extent,
      count: 1,
      first: group.first + i * group.extent,
      packed: group.packed + i * bytes,
    }));
  }

  /** Panels of a tile's width, and one with the rest. */
  private panels({ size }: Piece, depth: Piece): readonly TileGroup[] {
    return this.wholeGroups("b", size, this.tile.columns, depth);
  }

  private wholeGroups(factor: Side, size: number, extent: number, depth: Piece): readonly TileGroup[] {
    return this.groups(factor, depth, [
      [extent, Math.floor(size / extent)],
      [size % extent, 1],
    ]);
  }

  private groups(factor: Side, depth: Piece, kinds: readonly (readonly [number, number])[]): TileGroup[] {
    const groups: TileGroup[] = [];
    let [first, packed] = [0, this.space[factor]];
    for (const [extent, count] of kinds) {
      if (extent === 0 || count === 0) continue;
      groups.push({ extent, count, first, packed });
      first += extent * count;
      packed += count * stepsOf(this.target, depth.size) * pitchBytes(this.target, extent);
    }
    return groups;
  }
}

/** Divides an extent into as few pieces of at most `most` as possible, as equal as multiples of `unit` allow. */
function pieces(extent: number, most: number, unit: number): readonly Piece[] {
  const size = sizeOfPieces(extent, most, unit);
  const cut: Piece[] = [];
  for (let from = 0; from < extent; from += size) cut.push({ at: from, size: Math.min(size, extent - from) });
  return cut;
}

/** The size of all pieces but the last. */
function sizeOfPieces(extent: number, most: number, unit: number): number {
  const count = Math.ceil(extent / most);
  return Math.min(most, Math.ceil(extent / count / unit) * unit);
}

/** The bytes of a matrix or of packing space that a task touches: from the first to the end of the last. */
export interface Touched {
  readonly what: "a" | "b" | "c" | "packedA" | "packedB";
  readonly from: number;
  readonly to: number;
}

/** What a task reads and writes. */
export function touchedBy(target: GemmTarget, task: GemmTask): readonly Touched[] {
  const { size } = target;
  const packed = (
    what: "packedA" | "packedB",
    from: number,
    extent: number,
    steps: number,
    count: number,
  ) => ({
    ...{ what, from },
    to: from + count * steps * pitchBytes(target, extent),
  });
  if (task.kind === "pack") {
    const { kernel } = task;
    const [source, stride, to, k, count] = task.args;
    const steps = k + stepsBehind(kernel);
    const depth = k * target.perLane + kernel.leftOver;
    const { extent } = kernel;
    const [rows, columns] = kernel.kind === "packRows" ? [depth, extent * count] : [extent * count, depth];
    const end = source + (rows - 1) * stride + columns * target.factorBytes;
    const place = kernel.from === "a" ? "packedA" : "packedB";
    return [{ what: kernel.from, from: source, to: end }, packed(place, to, extent, steps, count)];
  }
  const { kernel } = task;
  const [a, b, c, cStride, k, , panels] = task.args;
  const { height, width } = kernel;
  const [m, n] = [numStrips(task) * height, panels * width];
  return [
    kernel.a === "packed"
      ? packed("packedA", a, height, k, numStrips(task))
      : { what: "a", from: a, to: a + (m - 1) * kernel.a.row + (k - 1) * kernel.a.step + size },
    kernel.b === "packed"
      ? packed("packedB", b, width, k, panels)
      : { what: "b", from: b, to: b + (k - 1) * kernel.b.step + n * size },
    { what: "c", from: c, to: c + (m - 1) * cStride + n * size },
  ];
}

/** Throws if a task would leave its matrices or the packing space, which machine code would not notice. */
export function assertInBounds(
  target: GemmTarget,
  product: Product,
  space: PackingSpace,
  tasks: readonly GemmTask[],
): void {
  const { m, n, k, transposeA, transposeB, lda, ldb, ldc } = product;
  const bytes = target.factorBytes;
  const room = packingBytes(target);
  const bounds: { readonly [W in Touched["what"]]: readonly [from: number, to: number] } = {
    a: [0, transposeA ? extentBytes(bytes, k, m, lda) : extentBytes(bytes, m, k, lda)],
    b: [0, transposeB ? extentBytes(bytes, n, k, ldb) : extentBytes(bytes, k, n, ldb)],
    c: [0, extentBytes(target.size, m, n, ldc)],
    packedA: [space.a, space.a + room.a],
    packedB: [space.b, space.b + room.b],
  };
  for (const task of tasks) {
    for (const { what, from, to } of touchedBy(target, task)) {
      const [first, end] = bounds[what];
      if (from < first || to > end || !Number.isSafeInteger(from)) {
        throw new InternalError(
          `[planProduct] ${task.kernel.kind} of ${m}×${n}×${k} touches bytes ${from} to ${to} of ${what}, which has ${first} to ${end}`,
        );
      }
    }
  }
}
