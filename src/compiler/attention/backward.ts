import { type AttentionKernel, backwardScratch } from "./attentionKernel.js";
import {
  type AttentionMachine,
  add,
  at,
  type LaneVector,
  lanesOf,
  max,
  min,
  mul,
  type Place,
  sub,
} from "./attentionMachine.js";
import { AttentionWriter, LOG2_E } from "./attentionWriter.js";

/**
 * Writes the cotangents of attention: a unit is a head of keys with all its queries. For each block of keys, whose
 * cotangents are summed in scratch memory, and each block of queries that sees it: the weights are computed again from
 * the log-sums, then the cotangents of the scores, strip by strip, which adds to those of the queries; then strips of
 * keys add the products over all these queries.
 *
 * As in the forward pass, scores are in units of log₂ e. Cotangents of scores are those before scaling.
 */
export class BackwardCode extends AttentionWriter {
  private readonly places;
  /** The unit: its place in the batch, its head of keys, and the query head in work with its place in its group. */
  private readonly batch = this.m.word();
  private readonly keyHead = this.m.word();
  private readonly inGroup = this.m.word();
  private readonly head = this.m.word();
  /** The first value of the head in scratch memory, in bytes; and of the strip in work. */
  private readonly values = this.m.word();
  private readonly rowValues = this.m.word();
  /** The first row of the block of keys, and the queries that see it. */
  private readonly source = this.m.word();
  private readonly firstQuery = this.m.word();
  private readonly endOfQueries = this.m.word();
  private readonly rest = this.m.word();

  constructor(m: AttentionMachine, kernel: AttentionKernel) {
    super(m, kernel);
    this.places = backwardScratch(kernel).at;
  }

  writeUnit(): void {
    const { m, first, start } = this;
    const { keyHeads, keyLength } = this.kernel;
    m.divide(m.unit, keyHeads, this.batch, this.keyHead);
    this.eachHead(() => this.prepareHead());
    m.set(start, 0);
    m.loop(start, keyLength, this.keysPerBlock, () => {
      this.packKeys();
      this.eachHead(() => {
        m.set(first, this.firstQuery);
        m.loop(first, this.endOfQueries, this.queries, () => this.pullBlock());
      });
      this.writeCotangents();
    });
  }

  /** Runs the body for every query head that the head of keys serves. */
  private eachHead(body: () => void): void {
    const { m, inGroup } = this;
    const { length, heads, keyHeads } = this.kernel;
    m.set(inGroup, 0);
    m.loop(inGroup, heads / keyHeads, 1, () => {
      m.set(this.head, add(mul(this.keyHead, heads / keyHeads), inGroup));
      m.set(this.values, mul(inGroup, 4 * length));
      body();
    });
  }

  /** Clears the cotangents of a head's queries, and finds what its rows have in common. */
  private prepareHead(): void {
    const { m, places, batch, head, rest } = this;
    const { length, heads } = this.kernel;
    const [from, to, value] = [m.pointer(0), m.pointer(1), m.free(0)];
    const sums = add(mul(batch, 4 * length * heads), mul(head, 4 * length));
    // Log-sums in units of log₂ e; those of rows that see no key are 0.
    m.set(from, add(m.argument("logSums"), sums));
    m.set(to, this.scratch(places.logSums, this.values));
    m.set(rest, 0);
    m.loop(rest, length, 1, () => {
      m.broadcast(value, at(from));
      this.finite(value);
      m.op("mul", value, value, lanesOf(LOG2_E));
      m.storeFirst(at(to), value);
      m.set(from, add(from, 4));
      m.set(to, add(to, 4));
    });
    this.sumRows();
  }

  /** The sum of each row's products of a result and its cotangent, minus the cotangent of its log-sum. */
  private sumRows(): void {
    const { m, places, batch, head, rest, vectorBytes } = this;
    const { length, heads, args } = this.kernel;
    const names = ["mixed", "mixedCotangent", "queryCotangent"] as const;
    const [mixed, ct, queryCt] = [m.pointer(0), m.pointer(1), m.pointer(2)];
    const rows = [mixed, ct, queryCt].map((pointer, i) => ({ pointer, name: names[i] ?? "mixed" }));
    const [to, sums] = [m.pointer(3), m.pointer(4)];
    const [sum, zero, factor, other] = [m.free(0), m.free(1), m.free(2), m.free(3)];
    for (const { pointer, name } of rows) m.set(pointer, this.rowsOf(name, batch, head, 0));
    m.set(to, this.scratch(places.shared, this.values));
    const hasSums = args.includes("logSumsCotangent");
    const place = add(mul(batch, 4 * length * heads), mul(head, 4 * length));
    if (hasSums) m.set(sums, add(m.argument("logSumsCotangent"), place));
    m.set(rest, 0);
    m.loop(rest, length, 1, () => {
      m.copy(sum, lanesOf(0));
      m.copy(zero, lanesOf(0));
      this.eachVector((j, part) => {
        const load = (vector: LaneVector, from: Place) =>
          part ? m.loadPart(vector, from, part) : m.copy(vector, from);
        load(factor, at(mixed, j * vectorBytes));
        load(other, at(ct, j * vectorBytes));
        m.addProduct(sum, factor, other);
        this.storeVector(false, queryCt, j, part, zero);
      });
      m.fold("add", sum, other);
      if (hasSums) {
        m.broadcast(factor, at(sums));
        m.op("sub", sum, sum, factor);
        m.set(sums, add(sums, 4));
      }
      m.storeFirst(at(to), sum);
      m.set(to, add(to, 4));
      for (const { pointer, name } of rows) m.set(pointer, add(pointer, this.strides(name).row));
    });
  }

  /** Packs a block of keys and values, clears their cotangents, and finds the queries that see any of them. */
  private packKeys(): void {
    const { m, places, batch, keyHead, start, source, firstQuery, keys, strip } = this;
    const { keyLength, length, before, ahead } = this.kernel;
    m.set(keys, this.keysUpTo(keyLength));
    for (const name of ["value", "key"] as const) {
      m.set(source, this.rowsOf(name, batch, keyHead, start));
      this.packPanels(name, source, places[name], places.lastKeys);
    }
    this.copyRows(keys, this.given("key", source), this.packed(places.keyRows));
    for (const name of ["keyCotangent", "valueCotangent"] as const) {
      this.clearRows(this.scratch(places[name]), this.keysPerBlock);
    }
    m.set(firstQuery, 0);
    if (ahead >= 0) {
      // Strips begin at the same queries for all blocks of keys.
      m.divide(max(sub(start, ahead), 0), strip, firstQuery, this.rest);
      m.set(firstQuery, mul(firstQuery, strip));
    }
    m.set(this.endOfQueries, before < 0 ? length : min(add(start, keys, before), length));
  }

  private pullBlock(): void {
    const { m, places, batch, head, first, row, rows, column } = this;
    const { length, scale } = this.kernel;
    m.set(rows, min(sub(length, first), this.queries));
    for (const name of ["query", "mixedCotangent"] as const) {
      const from = this.rowsOf(name, batch, head, first);
      this.packQueries(name, from, places[name], name === "query" ? scale * LOG2_E : 1);
    }
    m.set(row, 0);
    m.loop(row, rows, this.strip, () => {
      this.inStrip(() => {
        this.pullStrip();
        this.clearBeside();
        this.pullQueries();
      });
    });
    m.set(column, 0);
    m.loop(column, this.keys, this.strip, () => this.pullKeys());
  }

  /** The weights and the cotangents of the scores of a strip. */
  private pullStrip(): void {
    const { m, places, pitch, vectorBytes, rowValues } = this;
    const [to, values] = [m.pointer(0), m.pointer(1)];
    m.set(rowValues, this.scratch(0, this.values, mul(this.first, 4), mul(this.row, 4)));
    const point = (place: number) => {
      m.set(to, this.scratch(0, mul(this.row, pitch), mul(this.column, 4)));
      m.set(values, add(rowValues, place));
    };
    this.eachPanel(() => {
      this.panelTile(places.query, places.key, () => {
        const [ofRow, n, weight] = [m.free(0), m.free(1), m.free(2)];
        this.hideScores();
        point(places.logSums);
        this.eachSum((score, i, j) => {
          if (j === 0) m.broadcast(ofRow, at(values, 4 * i));
          m.op("sub", score, score, ofRow);
          this.exp2(weight, score, n);
          m.store(at(to, places.weights + i * pitch + j * vectorBytes), weight);
        });
      });
      this.panelTile(places.mixedCotangent, places.value, () => {
        const ofRow = m.free(0);
        point(places.shared);
        this.eachSum((ct, i, j) => {
          if (j === 0) m.broadcast(ofRow, at(values, 4 * i));
          m.op("sub", ct, ct, ofRow);
          m.op("mul", ct, ct, at(to, places.weights + i * pitch + j * vectorBytes));
          m.store(at(to, places.scoreCotangents + i * pitch + j * vectorBytes), ct);
        });
      });
    });
  }

  /** Strips of keys are not whole panels: clears the panels beside those of a strip of queries, which they may read. */
  private clearBeside(): void {
    const { m, places, panel, pitch, vectorBytes, column, from } = this;
    const { before, ahead } = this.kernel;
    const [to, zero] = [m.pointer(0), m.free(0)];
    const clear = () => {
      m.copy(zero, lanesOf(0));
      m.set(to, this.scratch(0, mul(this.row, pitch), mul(column, 4)));
      for (let i = 0; i < this.strip; i++) {
        for (let j = 0; j < this.vectors; j++) {
          const byte = i * pitch + j * vectorBytes;
          m.store(at(to, places.weights + byte), zero);
          m.store(at(to, places.scoreCotangents + byte), zero);
        }
      }
    };
    // The column has stopped at the end of the last panel.
    if (ahead >= 0) clear();
    if (before >= 0) {
      m.when(0, from, () => {
        m.set(column, sub(from, panel));
        clear();
      });
    }
  }

  /** What the cotangents of the scores of a strip add to those of its queries. */
  private pullQueries(): void {
    const { m, places, row, rows, from, pitch, rowBytes, strip } = this;
    const { length, headSize, scale } = this.kernel;
    const cotangents = add(this.first, row);
    const product = {
      width: headSize,
      alpha: scale,
      a: {
        from: this.scratch(places.scoreCotangents, mul(row, pitch), mul(from, 4)),
        ...{ row: pitch, step: 4 },
      },
      b: { from: this.scratch(places.keyRows, mul(from, rowBytes)), step: rowBytes },
      c: {
        from: this.rowsOf("queryCotangent", this.batch, this.head, cotangents),
        row: this.strides("queryCotangent").row,
      },
      steps: sub(this.to, from),
    };
    m.when(add(row, strip - 1), rows, () => this.addProduct({ height: strip, ...product }));
    const rest = length % strip;
    // Only the last strip of all is not whole.
    if (rest > 0) m.when(rows, add(row, strip), () => this.addProduct({ height: rest, ...product }));
  }

  /** What a strip of keys gets from the queries of the block that see any of it. */
  private pullKeys(): void {
    const { m, places, first, start, column, keys, rows, from, to, pitch, rowBytes, strip } = this;
    const { before, ahead } = this.kernel;
    // Strips of queries that see none of the keys that exist are not computed.
    const end = sub(add(min(add(column, strip), keys), start, before), first);
    m.set(to, before < 0 ? rows : min(end, rows));
    m.set(from, ahead < 0 ? 0 : max(sub(add(start, column, -ahead), first), 0));
    const pairs = [
      { scores: places.weights, ofRows: places.mixedCotangent, into: places.valueCotangent },
      { scores: places.scoreCotangents, ofRows: places.query, into: places.keyCotangent },
    ];
    m.when(from, to, () => {
      for (const { scores, ofRows, into } of pairs) {
        this.addProduct({
          height: strip,
          width: rowBytes / 4,
          a: { from: this.scratch(scores, mul(from, pitch), mul(column, 4)), row: 4, step: pitch },
          b: { from: this.scratch(ofRows, mul(from, rowBytes)), step: rowBytes },
          c: { from: this.scratch(into, mul(column, rowBytes)), row: rowBytes },
          steps: sub(to, from),
        });
      }
    });
  }

  private writeCotangents(): void {
    const { batch, keyHead, start, keys, places } = this;
    for (const name of ["keyCotangent", "valueCotangent"] as const) {
      const to = this.given(name, this.rowsOf(name, batch, keyHead, start));
      this.copyRows(keys, this.packed(places[name]), to, name === "keyCotangent" ? 1 / LOG2_E : 1);
    }
  }
}
