/** What the code of attention and of its cotangents have in common: packing, masks, products and exponentials. */
import { at as entry, range } from "../../ir/shape.js";
import {
  type AttentionKernel,
  type HeadStrides,
  type HeadsName,
  keysOf,
  packedFeatures,
  queriesOf,
  scorePitch,
} from "./attentionKernel.js";
import {
  type AttentionMachine,
  add,
  and,
  at,
  type Int,
  type IntVariable,
  type LaneVector,
  lanesOf,
  max,
  min,
  mul,
  sub,
  type TileProduct,
} from "./attentionMachine.js";

/** The coefficients of 2^x for |x| ≤ ½, lowest first; relative error 2^-24. */
const EXP2 = [
  1.0000000005542748, 0.6931472057422732, 0.24022646890259786, 0.05550328765900397, 0.009618488953080385,
  0.0013399935737849846, 0.0001534582492772427,
];

/**
 * A float32 plus this number is rounded to an integer, which the lowest bits of the sum hold, with the bias of exponents:
 * shifted to their place, they are the power of two.
 */
const ROUND = 1.5 * 2 ** 23 + 127;

/** The least exponent of normal numbers: smaller powers count as 0, since computing with them is slow. */
const LEAST_EXPONENT = -126;

/** Below all finite numbers but the least, and so only −∞. */
const LEAST = -3.4028234663852886e38;

/** Integers up to here are exact as float32. */
const EXACT = 2 ** 20;

const NO_SCORE = lanesOf(Number.NEGATIVE_INFINITY);

export const LOG2_E = Math.LOG2E;

/** Rows of packed features, or of memory whose last vector is only a part of one. */
interface Rows {
  readonly from: Int;
  /** Bytes from row to row. */
  readonly stride: number;
  readonly isPacked: boolean;
}

/** Rows of a matrix plus a strip of one times rows of another. */
export interface StripProduct extends Omit<TileProduct, "vectors"> {
  /** Elements of a row, and where the rows are that the product is added to. */
  readonly width: number;
  readonly c: { readonly from: Int; readonly row: number };
  readonly alpha?: number;
}

/** Writes the code of a unit of work of a kernel. */
export abstract class AttentionWriter {
  /** Rows and columns of a tile, the lanes of a vector, and the bytes and number of a row's vectors. */
  protected readonly strip: number;
  protected readonly panel: number;
  private readonly lanes: number;
  protected readonly vectorBytes: number;
  protected readonly vectors: number;
  /** Bytes of a packed row, and from a row of scores to the next. */
  protected readonly rowBytes: number;
  protected readonly pitch: number;
  /** Numbers of queries and keys of a block. */
  protected readonly queries: number;
  protected readonly keysPerBlock: number;
  /** The first query of the block, and their number; the first key of its block, and their number; … */
  protected readonly first: IntVariable;
  protected readonly rows: IntVariable;
  protected readonly start: IntVariable;
  protected readonly keys: IntVariable;
  /** … the strip, its first query relative to the first key, and the columns it sees. */
  protected readonly row: IntVariable;
  private readonly position: IntVariable;
  protected readonly from: IntVariable;
  protected readonly to: IntVariable;
  protected readonly column: IntVariable;
  private readonly group: IntVariable;

  constructor(
    protected readonly m: AttentionMachine,
    protected readonly kernel: AttentionKernel,
  ) {
    const { lanes, rows, columns } = kernel.tile;
    [this.strip, this.panel, this.lanes] = [rows, columns, lanes];
    this.vectorBytes = 4 * lanes;
    this.vectors = columns / lanes;
    this.rowBytes = 4 * packedFeatures(kernel);
    this.pitch = scorePitch(kernel);
    [this.queries, this.keysPerBlock] = [queriesOf(kernel), keysOf(kernel)];
    [this.first, this.rows, this.start, this.keys] = [m.word(), m.word(), m.word(), m.word()];
    [this.row, this.position, this.from, this.to] = [m.word(), m.word(), m.word(), m.word()];
    [this.column, this.group] = [m.word(), m.word()];
  }

  /** Writes the code of a unit of work, whose number is in `unit`. */
  abstract writeUnit(): void;

  protected strides(name: HeadsName): HeadStrides {
    return this.kernel.strides[name] ?? { batch: 0, row: 0, head: 0 };
  }

  /** The address of the first row of a head from a position on. */
  protected rowsOf(name: HeadsName, batch: Int, head: Int, position: Int): Int {
    const strides = this.strides(name);
    const place = add(mul(batch, strides.batch), mul(head, strides.head), mul(position, strides.row));
    return add(this.m.argument(name), place);
  }

  /** An address of the scratch memory. */
  protected scratch(place: number, ...more: readonly Int[]): Int {
    return add(this.m.scratch, place, ...more);
  }

  /** Rows of the scratch memory, and of an argument. */
  protected packed(place: number): Rows {
    return { from: this.scratch(place), stride: this.rowBytes, isPacked: true };
  }

  protected given(name: HeadsName, from: Int): Rows {
    return { from, stride: this.strides(name).row, isPacked: false };
  }

  /** Copies rows, multiplied by a number. */
  protected copyRows(count: Int, from: Rows, to: Rows, scale = 1): void {
    const { m, vectorBytes } = this;
    const [source, target, done] = [m.pointer(0), m.pointer(1), m.pointer(2)];
    m.set(source, from.from);
    m.set(target, to.from);
    m.set(done, 0);
    m.loop(done, count, 1, () => {
      this.eachVector((j, part) => {
        const [vector, place] = [m.free(j % 8), at(source, j * vectorBytes)];
        if (part && to.isPacked) m.loadPart(vector, place, part);
        else m.copy(vector, place);
        if (scale !== 1) m.op("mul", vector, vector, lanesOf(scale));
        this.storeVector(to.isPacked, target, j, part, vector);
      });
      m.set(source, add(source, from.stride));
      m.set(target, add(target, to.stride));
    });
  }

  /** Stores a vector of a row, of which the last may be a part. */
  protected storeVector(
    isPacked: boolean,
    to: IntVariable,
    j: number,
    part: number,
    vector: LaneVector,
  ): void {
    const place = at(to, j * this.vectorBytes);
    if (part && !isPacked) this.m.storePart(place, vector, part);
    else this.m.store(place, vector);
  }

  /** Runs the body for the vectors of a row; `part` is the number of lanes of one that is not whole, otherwise 0. */
  protected eachVector(body: (j: number, part: number) => void): void {
    const { headSize } = this.kernel;
    for (const j of range(this.rowBytes / this.vectorBytes)) {
      body(j, (j + 1) * this.lanes > headSize ? headSize % this.lanes : 0);
    }
  }

  /** Clears packed rows. */
  protected clearRows(from: Int, count: Int): void {
    const { m } = this;
    const [target, done, zero] = [m.pointer(0), m.pointer(1), m.free(0)];
    m.copy(zero, lanesOf(0));
    m.set(target, from);
    m.set(done, 0);
    m.loop(done, count, 1, () => {
      for (const j of range(this.rowBytes / this.vectorBytes))
        m.store(at(target, j * this.vectorBytes), zero);
      m.set(target, add(target, this.rowBytes));
    });
  }

  /** Packs the rows of a block of queries, and zeros that fill up its last strip. */
  protected packQueries(name: HeadsName, from: Int, to: number, scale: number): void {
    this.copyRows(this.rows, this.given(name, from), this.packed(to), scale);
    this.clearRows(this.scratch(to, mul(this.rows, this.rowBytes)), this.strip - 1);
  }

  /** Packs the transposed rows of the block of keys as panels: `to[panel][feature][key]`. */
  protected packPanels(name: HeadsName, from: IntVariable, to: number, lastKeys: number): void {
    const { m, panel, column, keys } = this;
    const { headSize } = this.kernel;
    const { row } = this.strides(name);
    const target = () => this.scratch(to, mul(column, 4 * headSize));
    m.set(column, 0);
    m.loop(column, sub(keys, panel - 1), panel, () => {
      m.packColumns(add(from, mul(column, row)), row, target(), headSize);
    });
    m.when(column, keys, () => {
      // There are fewer keys than a panel has columns: the others are zeros.
      this.clearRows(this.scratch(lastKeys), panel);
      const last = this.given(name, add(from, mul(column, row)));
      this.copyRows(sub(keys, column), last, this.packed(lastKeys));
      m.packColumns(this.scratch(lastKeys), this.rowBytes, target(), headSize);
    });
  }

  /** The number of keys from the first of the block on, up to an end. */
  protected keysUpTo(end: Int): Int {
    return min(sub(end, this.start), this.keysPerBlock);
  }

  /** The columns of the block of keys that the strip sees, from a multiple of a panel's on; runs the body if there are any. */
  protected inStrip(body: () => void): void {
    const { m, position, keys } = this;
    const { before, ahead } = this.kernel;
    m.set(position, sub(add(this.first, this.row), this.start));
    m.set(this.from, before < 0 ? 0 : and(max(sub(position, before), 0), -this.panel));
    m.set(this.to, ahead < 0 ? keys : min(add(position, this.strip + ahead), keys));
    m.when(this.from, this.to, body);
  }

  /** Runs the body for every panel that the strip sees. */
  protected eachPanel(body: () => void): void {
    this.m.set(this.column, this.from);
    this.m.loop(this.column, this.to, this.panel, body);
  }

  /** The tile of products of packed rows and a panel. */
  protected panelTile(rows: number, panels: number, body: () => void): void {
    const { column, rowBytes, strip: height, vectors } = this;
    const { headSize } = this.kernel;
    const a = { from: this.scratch(rows, mul(this.row, rowBytes)), row: rowBytes, step: 4 };
    const b = { from: this.scratch(panels, mul(column, 4 * headSize)), step: 4 * this.panel };
    this.m.tile({ height, vectors, a, b, steps: headSize }, body);
  }

  /** Runs the body for the sums of a tile. */
  protected eachSum(body: (sum: LaneVector, i: number, j: number) => void): void {
    for (const i of range(this.strip)) for (const j of range(this.vectors)) body(this.m.sum(i, j), i, j);
  }

  /** Makes the scores −∞ of keys that a query does not see. */
  protected hideScores(): void {
    const { m, column, position, keys, panel, strip } = this;
    const { before, ahead } = this.kernel;
    m.when(keys, add(column, panel), () => this.hide(">", sub(add(keys, -1), column), 0));
    if (ahead >= 0) {
      m.when(add(position, ahead), add(column, panel - 1), () => {
        this.hide(">", sub(add(position, ahead), column), 1);
      });
    }
    if (before >= 0) {
      m.when(column, add(position, strip - 1 - before), () => {
        this.hide("<", sub(add(position, -before), column), 1);
      });
    }
  }

  /** Hides the columns of the panel beyond a bound, which is larger by `step` in every next row. */
  private hide(is: "<" | ">", bound: Int, step: number): void {
    const { m, lanes, vectors } = this;
    const [place, limit] = [m.free(0), m.free(1)];
    m.iota(place);
    m.splat(limit, min(max(bound, -EXACT), EXACT));
    this.eachSum((sum, _, j) => {
      m.replace(sum, place, is, limit, NO_SCORE);
      const more = j + 1 < vectors ? -lanes : lanes * (vectors - 1) + step;
      if (more !== 0) m.op("add", limit, limit, lanesOf(more));
    });
  }

  /** Adds a product to some rows. */
  protected addProduct(product: StripProduct): void {
    const { m, panel, group } = this;
    const { width } = product;
    const count = Math.floor(width / panel);
    if (count > 0) {
      m.set(group, 0);
      m.loop(group, 4 * count * panel, 4 * panel, () => this.addGroup(product, group, panel));
    }
    if (width % panel > 0) this.addGroup(product, 4 * panel * count, width % panel);
  }

  /** The same for some columns, the first of which is some bytes behind the first of a row. */
  private addGroup(product: StripProduct, bytes: Int, width: number): void {
    const { m, lanes, vectorBytes } = this;
    const { height, a, b, c, steps, alpha = 1 } = product;
    const vectors = Math.ceil(width / lanes);
    const to = m.pointer(0);
    m.tile({ height, vectors, a, b: { ...b, from: add(b.from, bytes) }, steps }, () => {
      m.set(to, add(c.from, bytes));
      for (const i of range(height)) {
        for (const j of range(vectors)) {
          const [sum, place, old] = [m.sum(i, j), at(to, j * vectorBytes), m.free(0)];
          const part = (j + 1) * lanes > width ? width % lanes : 0;
          if (alpha !== 1) m.op("mul", sum, sum, lanesOf(alpha));
          if (part) m.loadPart(old, place, part);
          m.op("add", sum, sum, part ? old : place);
          if (part) m.storePart(place, sum, part);
          else m.store(place, sum);
        }
        if (i + 1 < height) m.set(to, add(to, c.row));
      }
    });
  }

  /** to = 2^z, where smaller powers than normal numbers are 0; changes z and n. */
  protected exp2(to: LaneVector, z: LaneVector, n: LaneVector): void {
    const { m } = this;
    m.op("add", n, z, lanesOf(ROUND));
    m.op("sub", to, n, lanesOf(ROUND));
    m.op("sub", z, z, to);
    m.copy(to, lanesOf(entry(EXP2, EXP2.length - 1)));
    for (let power = EXP2.length - 2; power >= 0; power--) m.multiplyAdd(to, z, lanesOf(entry(EXP2, power)));
    // The power is a factor, and not added to the bits of the exponent, so that NaN stays NaN, whatever its bits are.
    m.shift("left", z, n, 23);
    m.op("mul", to, to, z);
    m.replace(to, n, "<", lanesOf(ROUND + LEAST_EXPONENT + 1), lanesOf(0));
  }

  /** Makes −∞, of a row that sees no key, 0. */
  protected finite(vector: LaneVector): void {
    this.m.replace(vector, vector, "<", lanesOf(LEAST), lanesOf(0));
  }
}
