import { range } from "../../../ir/shape.js";
import {
  type AttentionKernel,
  backwardScratch,
  KEYS,
  PANEL,
  SCORE_PITCH,
  STRIP,
} from "../../kernel/attentionKernel.js";
import type { AddressType } from "../../wasm/addresses.js";
import type { Label } from "../code.js";
import { gpr, low32, mem } from "../x64/operands.js";
import { AttentionCode, LOG2_E, SCRATCH } from "./attentionCode.js";

const { rax, rcx, rdx, rsi, rdi, r8, r9 } = gpr;

/**
 * Writes the cotangents of attention: a unit is a head of keys with all its queries. For each block of keys, whose
 * cotangents are summed in scratch memory, and each block of queries that sees it: the weights are computed again from
 * the log-sums, then the cotangents of the scores, strip by strip, which adds to those of the queries; then strips of
 * keys add the products over all these queries.
 *
 * As in the forward pass, scores are in units of log₂ e. Cotangents of scores are those before scaling.
 */
export class BackwardCode extends AttentionCode {
  private readonly places;
  /** The unit: its place in the batch, its head of keys, and the query head in work with its place in its group. */
  private readonly batch = this.word();
  private readonly keyHead = this.word();
  private readonly group = this.word();
  private readonly head = this.word();
  private readonly rowOfHead = this.word();
  /** The block of keys, and the end of the queries that see it. */
  private readonly keyAt = this.word();
  private readonly valueAt = this.word();
  private readonly firstQuery = this.word();
  private readonly endOfQueries = this.word();
  /** The block of queries. */
  private readonly rows = this.word();
  private readonly query = this.word();
  private readonly mixed = this.word();
  private readonly mixedCotangent = this.word();
  private readonly queryCotangent = this.word();
  /** Bytes from the first value of a row to that of the row in work. */
  private readonly values = this.word();

  constructor(kernel: AttentionKernel, addressType: AddressType, listing?: string[]) {
    super(kernel, addressType, listing);
    this.places = backwardScratch(kernel).at;
  }

  protected writeUnit(): void {
    const { kernel } = this;
    this.divide(this.unit, kernel.keyHeads);
    this.x.mov(this.batch, rax).mov(this.keyHead, rdx);
    this.eachHead(() => this.prepareHead());
    this.set(this.start, 0);
    this.loop(this.start, kernel.keyLength, KEYS, () => {
      this.packKeys();
      this.eachHead(() => {
        this.x.mov(rax, this.firstQuery).mov(this.first, rax);
        this.loop(this.first, this.endOfQueries, this.queries, () => this.pullBlock());
      });
      this.writeCotangents();
    });
  }

  /** Runs the body for every query head that the head of keys serves. */
  private eachHead(body: () => void): void {
    const { length, heads, keyHeads } = this.kernel;
    const numGroups = heads / keyHeads;
    this.set(this.group, 0);
    this.loop(this.group, numGroups, 1, () => {
      this.sum(this.head, this.group, [this.keyHead, numGroups]);
      this.x.imul(rax, this.group, length).mov(this.rowOfHead, rax);
      body();
    });
  }

  /** The address of the first row of a head from the query in `first` on. */
  private findRows(name: "query" | "mixed" | "mixedCotangent" | "queryCotangent"): void {
    const { batch, head, row } = this.strides(name);
    this.sum(this[name], this.base(name), [this.batch, batch], [this.head, head], [this.first, row]);
  }

  /** Clears the cotangents of a head's queries, and finds what its rows have in common. */
  private prepareHead(): void {
    const { x, places } = this;
    const { length, heads, args } = this.kernel;
    this.set(this.first, 0);
    for (const name of ["mixed", "mixedCotangent", "queryCotangent"] as const) this.findRows(name);
    x.imul(rax, this.batch, heads)
      .add(rax, this.head)
      .imul(rax, rax, 4 * length)
      .mov(this.values, rax);
    // Log-sums in units of log₂ e; those of rows that see no key are 0.
    x.mov(rsi, this.base("logSums")).add(rsi, this.values);
    x.imul(rdi, this.rowOfHead, 4)
      .lea(rdi, mem(rdi, places.logSums, SCRATCH))
      .mov(low32(rcx), length);
    const again = x.here();
    const value = this.vec(0);
    x.vbroadcastss(value, mem(rsi));
    this.replace(value, Number.NEGATIVE_INFINITY, this.constant(0));
    x.vmulps(value, value, this.constant(LOG2_E)).vmovd(mem(rdi), { ...value, bits: 128 });
    x.add(rsi, 4).add(rdi, 4).dec(rcx).j("ne", again);
    this.sumRows(args.includes("logSumsCotangent"));
  }

  /** The sum of each row's products of a result and its cotangent, minus the cotangent of its log-sum. */
  private sumRows(hasCotangents: boolean): void {
    const { x, places } = this;
    const { length, headSize } = this.kernel;
    const [sum, other, factor] = [this.vec(0), this.vec(1), this.vec(2)];
    if (hasCotangents) x.mov(r8, this.base("logSumsCotangent")).add(r8, this.values);
    x.mov(rsi, this.mixed).mov(rdx, this.mixedCotangent).mov(r9, this.queryCotangent);
    x.imul(rdi, this.rowOfHead, 4)
      .lea(rdi, mem(rdi, places.shared, SCRATCH))
      .mov(low32(rcx), length);
    const again = x.here();
    x.vpxor(sum, sum, sum).vpxor(other, other, other);
    const vectors = Math.ceil(headSize / 16);
    for (const j of range(vectors)) {
      const isLast = j === vectors - 1 && headSize % 16 !== 0;
      this.loadRow(factor, mem(rsi, 64 * j), isLast);
      this.loadRow(this.vec(3), mem(rdx, 64 * j), isLast);
      x.vfmadd231ps(sum, factor, this.vec(3));
      this.storeRow(mem(r9, 64 * j), other, isLast);
    }
    for (const half of [0x4e, 0xb1]) x.vshuff32x4(factor, sum, sum, half).vaddps(sum, sum, factor);
    for (const half of [0x4e, 0xb1]) x.vpshufd(factor, sum, half).vaddps(sum, sum, factor);
    if (hasCotangents) {
      x.vbroadcastss(factor, mem(r8)).vsubps(sum, sum, factor).add(r8, 4);
    }
    x.vmovd(mem(rdi), { ...sum, bits: 128 }).add(rdi, 4);
    x.add(rsi, this.strides("mixed").row).add(rdx, this.strides("mixedCotangent").row);
    x.add(r9, this.strides("queryCotangent").row).dec(rcx).j("ne", again);
  }

  /** Packs a block of keys and values, clears their cotangents, and finds the queries that see any of them. */
  private packKeys(): void {
    const { x, places } = this;
    const { keyLength, length, before, ahead } = this.kernel;
    x.mov(low32(rax), keyLength).sub(rax, this.start);
    this.atMost(rax, KEYS);
    x.mov(this.keys, rax);
    const block = { start: this.start, keys: this.keys };
    for (const [name, target] of [["key", this.keyAt] as const, ["value", this.valueAt] as const]) {
      const { batch, head, row } = this.strides(name);
      this.sum(target, this.base(name), [this.batch, batch], [this.keyHead, head], [this.start, row]);
      this.packPanels(name, target, places[name], places.lastKeys, block, this.column);
    }
    x.mov(rsi, this.keyAt).lea(rdi, mem(SCRATCH, places.keyRows)).mov(rcx, this.keys);
    this.copyRows("to", this.strides("key").row, this.rowBytes);
    for (const name of ["keyCotangent", "valueCotangent"] as const) {
      x.lea(rdi, mem(SCRATCH, places[name]));
      this.clear(KEYS * this.rowBytes);
    }
    x.xor(low32(rax), low32(rax));
    if (ahead >= 0) {
      x.mov(rax, this.start).sub(rax, ahead);
      this.atLeastZero(rax);
      // Strips begin at the same queries for all blocks of keys.
      x.mov(this.first, rax);
      this.divide(this.first, STRIP);
      x.imul(rax, rax, STRIP);
    }
    x.mov(this.firstQuery, rax).mov(low32(rax), length);
    if (before >= 0) {
      x.mov(rax, this.start).add(rax, this.keys).add(rax, before);
      this.atMost(rax, length);
    }
    x.mov(this.endOfQueries, rax);
  }

  private pullBlock(): void {
    const { x, places } = this;
    const { length, scale } = this.kernel;
    x.mov(low32(rax), length).sub(rax, this.first);
    this.atMost(rax, this.queries);
    x.mov(this.rows, rax);
    for (const name of ["query", "mixedCotangent", "queryCotangent"] as const) this.findRows(name);
    for (const name of ["query", "mixedCotangent"] as const) {
      x.mov(rsi, this[name]).lea(rdi, mem(SCRATCH, places[name])).mov(rcx, this.rows);
      this.copyRows("to", this.strides(name).row, this.rowBytes, name === "query" ? scale * LOG2_E : 1);
      this.clear((STRIP - 1) * this.rowBytes);
    }
    this.set(this.row, 0);
    this.loop(this.row, this.rows, STRIP, (next) => this.pullStrip(next));
    this.set(this.column, 0);
    this.loop(this.column, this.keys, STRIP, (next) => this.pullKeys(next));
  }

  /** The weights and the cotangents of the scores of a strip, and what they add to the cotangents of its queries. */
  private pullStrip(next: Label): void {
    const { x, places, tile } = this;
    this.findStrip(next);
    // Where the values of the strip's rows are, relative to those of the first row.
    x.mov(rax, this.rowOfHead).add(rax, this.first).add(rax, this.row);
    x.imul(rax, rax, 4).add(rax, SCRATCH).mov(this.values, rax);
    const [row, n, weight] = [tile.free(0), tile.free(1), tile.free(2)];
    x.mov(rax, this.from).mov(this.column, rax);
    this.loop(this.column, this.to, PANEL, () => {
      this.multiplyTile(places.query, this.row, places.key, this.column);
      this.hideScores();
      this.pointAtScores();
      for (const i of range(STRIP)) {
        x.vbroadcastss(row, mem(rsi, places.logSums + 4 * i));
        for (const j of range(2)) {
          const score = tile.sum(i, j);
          x.vsubps(score, score, row);
          this.exp2(weight, score, n);
          x.vmovups(mem(rdx, places.weights + i * SCORE_PITCH + 64 * j), weight);
        }
      }
      this.multiplyTile(places.mixedCotangent, this.row, places.value, this.column);
      this.pointAtScores();
      for (const i of range(STRIP)) {
        x.vbroadcastss(row, mem(rsi, places.shared + 4 * i));
        for (const j of range(2)) {
          const [ct, byte] = [tile.sum(i, j), i * SCORE_PITCH + 64 * j];
          x.vsubps(ct, ct, row).vmulps(ct, ct, mem(rdx, places.weights + byte));
          x.vmovups(mem(rdx, places.scoreCotangents + byte), ct);
        }
      }
    });
    this.clearBeside();
    this.pullQueries();
  }

  /** rdx = where the scores of the panel are in the scratch memory, rsi = where the values of the rows are. */
  private pointAtScores(): void {
    const { x } = this;
    x.imul(rdx, this.row, SCORE_PITCH)
      .mov(rax, this.column)
      .lea(rdx, mem(rdx, 0, rax, 4));
    x.add(rdx, SCRATCH).mov(rsi, this.values);
  }

  /** Strips of keys are not whole panels: clears the panels beside those of a strip of queries, which they may read. */
  private clearBeside(): void {
    const { x, places } = this;
    const { before, ahead } = this.kernel;
    const zero = this.vec(0);
    const clear = () => {
      for (const i of range(STRIP)) {
        for (const place of [places.weights, places.scoreCotangents]) {
          for (const j of range(2)) x.vmovups(mem(rdx, place + i * SCORE_PITCH + 64 * j), zero);
        }
      }
    };
    if (before < 0 && ahead < 0) return;
    x.vpxor(zero, zero, zero).imul(r8, this.row, SCORE_PITCH).add(r8, SCRATCH);
    if (ahead >= 0) {
      // The column counter has stopped at the end of the last panel.
      x.mov(rax, this.column).lea(rdx, mem(r8, 0, rax, 4));
      clear();
    }
    if (before >= 0) {
      const none = x.label();
      x.mov(rax, this.from)
        .sub(rax, PANEL)
        .j("l", none)
        .lea(rdx, mem(r8, 0, rax, 4));
      clear();
      x.place(none);
    }
  }

  private pullQueries(): void {
    const { x, places, product } = this;
    const { length, headSize, scale } = this.kernel;
    const cStride = this.strides("queryCotangent").row;
    x.mov(rax, this.from)
      .imul(rdx, this.row, SCORE_PITCH)
      .lea(rdx, mem(rdx, places.scoreCotangents, rax, 4));
    x.add(rdx, SCRATCH).mov(product.a, rdx);
    x.imul(rdx, rax, this.rowBytes)
      .lea(rdx, mem(rdx, places.keyRows, SCRATCH))
      .mov(product.b, rdx);
    x.imul(rdx, this.row, cStride).add(rdx, this.queryCotangent).mov(product.c, rdx);
    x.mov(rdx, this.to).sub(rdx, rax).mov(product.steps, rdx);
    const shape = { width: headSize, alpha: scale, a: { row: SCORE_PITCH, step: 4 } };
    const strides = { bStep: this.rowBytes, cStride };
    const [last, done] = [x.label(), x.label()];
    const rest = length % STRIP;
    if (rest > 0) x.mov(rax, this.rows).sub(rax, this.row).cmp(rax, STRIP).j("l", last);
    this.addProduct({ height: STRIP, ...shape, ...strides }, product);
    if (rest > 0) {
      x.jmp(done).place(last);
      this.addProduct({ height: rest, ...shape, ...strides }, product);
    }
    x.place(done);
  }

  /** What a strip of keys gets from the queries of the block that see any of it. */
  private pullKeys(next: Label): void {
    const { x, places, product } = this;
    const { before, ahead } = this.kernel;
    // The key relative to the first query.
    x.mov(rcx, this.start).add(rcx, this.column).sub(rcx, this.first);
    x.mov(rdx, this.rows);
    if (before >= 0) {
      // Strips of queries that see none of the keys that exist are not computed.
      x.mov(rdx, this.column).add(rdx, STRIP);
      this.atMost(rdx, this.keys);
      x.add(rdx, this.start).sub(rdx, this.first).add(rdx, before);
      this.atMost(rdx, this.rows);
    }
    if (ahead < 0) x.xor(low32(rcx), low32(rcx));
    else {
      x.sub(rcx, ahead);
      this.atLeastZero(rcx);
    }
    x.sub(rdx, rcx).j("le", next).mov(product.steps, rdx).mov(this.from, rcx);
    const strides = { a: { row: 4, step: SCORE_PITCH }, bStep: this.rowBytes, cStride: this.rowBytes };
    const pairs = [
      { scores: places.weights, rows: places.mixedCotangent, to: places.valueCotangent },
      { scores: places.scoreCotangents, rows: places.query, to: places.keyCotangent },
    ];
    for (const { scores, rows, to } of pairs) {
      x.mov(rax, this.column)
        .imul(rdx, this.from, SCORE_PITCH)
        .lea(rdx, mem(rdx, scores, rax, 4));
      x.add(rdx, SCRATCH).mov(product.a, rdx);
      x.imul(rdx, this.from, this.rowBytes)
        .lea(rdx, mem(rdx, rows, SCRATCH))
        .mov(product.b, rdx);
      x.imul(rdx, rax, this.rowBytes)
        .lea(rdx, mem(rdx, to, SCRATCH))
        .mov(product.c, rdx);
      this.addProduct({ height: STRIP, width: this.rowBytes / 4, alpha: 1, ...strides }, product);
    }
  }

  private writeCotangents(): void {
    const { x, places } = this;
    const results = [
      { name: "keyCotangent", scale: 1 / LOG2_E },
      { name: "valueCotangent", scale: 1 },
    ] as const;
    for (const { name, scale } of results) {
      const { batch, head, row } = this.strides(name);
      this.sum(this.query, this.base(name), [this.batch, batch], [this.keyHead, head], [this.start, row]);
      x.mov(rdi, this.query).lea(rsi, mem(SCRATCH, places[name])).mov(rcx, this.keys);
      this.copyRows("from", this.rowBytes, row, scale);
    }
  }
}
