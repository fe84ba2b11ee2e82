import { range } from "../../ir/shape.js";
import { type AttentionKernel, forwardScratch } from "./attentionKernel.js";
import {
  type AttentionMachine,
  add,
  at,
  bitsOf,
  type Int,
  type IntVariable,
  type LaneVector,
  lanesOf,
  max,
  min,
  mul,
  type Place,
  sub,
} from "./attentionMachine.js";
import { AttentionWriter, LOG2_E } from "./attentionWriter.js";

/** Terms of the series of the logarithm, 2 (s + s³/3 + …) for s = (x − 1) / (x + 1) ≤ 1/3. */
const LOG_TERMS = 8;

/** Less than the sum of any weights, of which the largest is 1. */
const NO_WEIGHT = 2 ** -20;

/**
 * Writes attention: a unit is a block of queries of one head. For each block of keys that it sees, keys and values are
 * packed once; then a strip of queries after the other multiplies its tiles of scores, whose exponentials are relative
 * to the largest score so far, and adds their products with the values to what it has, scaled down.
 *
 * Scores are in units of log₂ e, since packed queries are multiplied by it: exponentials are powers of 2.
 */
export class ForwardCode extends AttentionWriter {
  private readonly places;
  /** The place of the unit, and the end of the keys that its queries see. */
  private readonly batch = this.m.word();
  private readonly head = this.m.word();
  private readonly keyHead = this.m.word();
  private readonly rest = this.m.word();
  private readonly end = this.m.word();
  private readonly key = this.m.word();
  private readonly logSums = this.m.word();

  constructor(m: AttentionMachine, kernel: AttentionKernel) {
    super(m, kernel);
    this.places = forwardScratch(kernel).at;
  }

  writeUnit(): void {
    const { m, first, rows, start, row, strip } = this;
    const { before, ahead, keyLength } = this.kernel;
    this.findUnit();
    this.prepareRows();
    const last = add(first, rows, ahead);
    m.set(start, before < 0 ? 0 : max(sub(first, before), 0));
    m.set(this.end, ahead < 0 ? keyLength : min(last, keyLength));
    m.loop(start, this.end, this.keysPerBlock, () => {
      this.packKeys();
      m.set(row, 0);
      m.loop(row, rows, strip, () => {
        this.inStrip(() => {
          this.computeScores();
          this.weigh();
          this.mixValues();
        });
      });
    });
    this.finishRows();
  }

  /** Units take blocks from both ends of a sequence in turn, so that parts of them take equally long. */
  private findUnit(): void {
    const { m, first, batch, head, rest, queries } = this;
    const { length, heads, keyHeads } = this.kernel;
    const numBlocks = Math.ceil(length / queries);
    m.divide(m.unit, numBlocks, head, rest);
    m.divide(rest, 2, first, rest);
    m.when(0, rest, () => m.set(first, sub(numBlocks - 1, first)));
    m.set(first, mul(first, queries));
    m.set(this.rows, min(sub(length, first), queries));
    m.set(this.logSums, add(m.argument("logSums"), mul(head, 4 * length), mul(first, 4)));
    m.divide(head, heads, batch, head);
    m.divide(head, heads / keyHeads, this.keyHead, rest);
  }

  /** Packs the block of queries; none of them has seen a key. */
  private prepareRows(): void {
    const { m, places, queries, vectorBytes } = this;
    const from = this.rowsOf("query", this.batch, this.head, this.first);
    this.packQueries("query", from, places.query, this.kernel.scale * LOG2_E);
    // Strips are whole.
    const whole = min(add(this.rows, this.strip - 1), queries);
    this.clearRows(this.scratch(places.mixed), whole);
    const [peak, sum, done] = [m.pointer(0), m.pointer(1), m.pointer(2)];
    const [none, zero] = [m.free(0), m.free(1)];
    m.copy(none, lanesOf(Number.NEGATIVE_INFINITY));
    m.copy(zero, lanesOf(0));
    m.set(peak, this.scratch(places.peaks));
    m.set(sum, this.scratch(places.sums));
    m.set(done, 0);
    m.loop(done, whole, 1, () => {
      m.storeFirst(at(peak), none);
      m.store(at(sum), zero);
      m.set(peak, add(peak, 4));
      m.set(sum, add(sum, vectorBytes));
    });
  }

  private packKeys(): void {
    const { m, places, batch, keyHead, start } = this;
    m.set(this.keys, this.keysUpTo(this.end));
    m.set(this.key, this.rowsOf("key", batch, keyHead, start));
    this.packPanels("key", this.key, places.key, places.lastKeys);
    const values = this.given("value", this.rowsOf("value", batch, keyHead, start));
    this.copyRows(this.keys, values, this.packed(places.value));
  }

  private computeScores(): void {
    const { m, places, column, pitch, vectorBytes } = this;
    const to = m.pointer(0);
    this.eachPanel(() => {
      this.panelTile(places.query, places.key, () => {
        this.hideScores();
        m.set(to, this.scratch(places.scores, mul(column, 4)));
        this.eachSum((sum, i, j) => m.store(at(to, i * pitch + j * vectorBytes), sum));
      });
    });
  }

  /**
   * Replaces the scores of a strip by their exponentials relative to the largest so far, and adds these to the lanes of
   * the sums; what its rows had is scaled down to the same reference.
   */
  private weigh(): void {
    const { m, places, row, from, rowBytes, vectorBytes, pitch } = this;
    const [scores, sums, peaks, mixed] = [m.pointer(0), m.pointer(1), m.pointer(2), m.pointer(3)];
    const [reference, factor, sum, other] = [m.free(0), m.free(1), m.free(2), m.free(3)];
    const [z, n, to] = [m.free(4), m.free(5), m.free(6)];
    m.set(scores, this.scratch(places.scores, mul(from, 4)));
    m.set(sums, this.scratch(places.sums, mul(row, vectorBytes)));
    m.set(peaks, this.scratch(places.peaks, mul(row, 4)));
    m.set(mixed, this.scratch(places.mixed, mul(row, rowBytes)));
    m.set(this.rest, 0);
    m.loop(this.rest, this.strip, 1, () => {
      m.broadcast(factor, at(peaks));
      m.copy(reference, factor);
      m.copy(other, factor);
      this.alongRow(scores, (place, j) => {
        const largest = j % 2 === 0 ? reference : other;
        m.op("max", largest, largest, place);
      });
      m.op("max", reference, reference, other);
      m.fold("max", reference, other);
      m.storeFirst(at(peaks), reference);
      this.finite(reference);
      m.op("sub", z, factor, reference);
      this.exp2(factor, z, n);
      this.eachVector((j) => {
        m.op("mul", to, factor, at(mixed, j * vectorBytes));
        m.store(at(mixed, j * vectorBytes), to);
      });
      m.op("mul", sum, factor, at(sums));
      m.copy(other, lanesOf(0));
      this.alongRow(scores, (place, j) => {
        const total = j % 2 === 0 ? sum : other;
        m.copy(z, place);
        m.op("sub", z, z, reference);
        this.exp2(to, z, n);
        m.store(place, to);
        m.op("add", total, total, to);
      });
      m.op("add", sum, sum, other);
      m.store(at(sums), sum);
      m.set(scores, add(scores, pitch));
      m.set(sums, add(sums, vectorBytes));
      m.set(peaks, add(peaks, 4));
      m.set(mixed, add(mixed, rowBytes));
    });
  }

  /** Runs the body for the vectors of a row of scores that the strip sees. */
  private alongRow(row: IntVariable, body: (place: Place, j: number) => void): void {
    const { m, vectorBytes, panel } = this;
    const [place, column] = [m.pointer(4), m.pointer(5)];
    m.set(place, row);
    m.set(column, this.from);
    m.loop(column, this.to, panel, () => {
      for (const j of range(this.vectors)) body(at(place, j * vectorBytes), j);
      m.set(place, add(place, 4 * panel));
    });
  }

  private mixValues(): void {
    const { places, from, rowBytes } = this;
    this.addProduct({
      height: this.strip,
      width: rowBytes / 4,
      a: { from: this.scratch(places.scores, mul(from, 4)), row: this.pitch, step: 4 },
      b: { from: this.scratch(places.value, mul(from, rowBytes)), step: rowBytes },
      c: { from: this.scratch(places.mixed, mul(this.row, rowBytes)), row: rowBytes },
      steps: sub(this.to, from),
    });
  }

  /** Divides the mixed values of all rows by the sums of their weights, and finds their log-sums. */
  private finishRows(): void {
    const { m, places, rowBytes, vectorBytes } = this;
    const [sums, peaks, mixed, to, logs] = [
      m.pointer(0),
      m.pointer(1),
      m.pointer(2),
      m.pointer(3),
      m.pointer(4),
    ];
    const [sum, one, value] = [m.free(0), m.free(1), m.free(2)];
    const pairs: readonly (readonly [IntVariable, Int, number])[] = [
      [sums, this.scratch(places.sums), vectorBytes],
      [peaks, this.scratch(places.peaks), 4],
      [mixed, this.scratch(places.mixed), rowBytes],
      [to, this.rowsOf("mixed", this.batch, this.head, this.first), this.strides("mixed").row],
      [logs, this.logSums, 4],
    ];
    for (const [pointer, start] of pairs) m.set(pointer, start);
    m.set(this.row, 0);
    m.loop(this.row, this.rows, 1, () => {
      m.copy(sum, at(sums));
      m.fold("add", sum, one);
      m.broadcast(one, at(peaks));
      this.logSum(m.free(3), sum, one);
      m.storeFirst(at(logs), m.free(3));
      m.replace(sum, sum, "<", lanesOf(NO_WEIGHT), lanesOf(1));
      m.copy(one, lanesOf(1));
      m.op("div", sum, one, sum);
      this.eachVector((j, part) => {
        m.op("mul", value, sum, at(mixed, j * vectorBytes));
        this.storeVector(false, to, j, part, value);
      });
      for (const [pointer, , step] of pairs) m.set(pointer, add(pointer, step));
    });
  }

  /** to = ln(sum) + peak · ln 2, or −∞ where there is no weight. */
  private logSum(to: LaneVector, sum: LaneVector, peak: LaneVector): void {
    const { m } = this;
    const [exponent, s, square] = [m.free(4), m.free(5), m.free(6)];
    // The bits of 2^23 + n are those of 2^23 and n.
    m.shift("right", exponent, sum, 23);
    m.op("or", exponent, exponent, lanesOf(2 ** 23));
    m.op("sub", exponent, exponent, lanesOf(2 ** 23 + 127));
    m.op("and", s, sum, bitsOf(0x7fffff));
    m.op("or", s, s, lanesOf(1));
    m.op("add", square, s, lanesOf(1));
    m.op("sub", s, s, lanesOf(1));
    m.op("div", s, s, square);
    m.op("mul", square, s, s);
    m.copy(to, lanesOf(2 / (2 * LOG_TERMS - 1)));
    for (let k = LOG_TERMS - 2; k >= 0; k--) m.multiplyAdd(to, square, lanesOf(2 / (2 * k + 1)));
    m.op("mul", to, to, s);
    m.addProduct(to, exponent, lanesOf(Math.LN2));
    m.addProduct(to, peak, lanesOf(Math.LN2));
    m.replace(to, sum, "<", lanesOf(NO_WEIGHT), lanesOf(Number.NEGATIVE_INFINITY));
    // NaN where the sum is.
    m.op("sub", square, sum, sum);
    m.op("add", to, to, square);
  }
}
