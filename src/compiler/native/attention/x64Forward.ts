import { at, range } from "../../../ir/shape.js";
import {
  type AttentionKernel,
  forwardScratch,
  KEYS,
  PANEL,
  SCORE_PITCH,
  STRIP,
} from "../../kernel/attentionKernel.js";
import type { AddressType } from "../../wasm/addresses.js";
import { transposeSquare } from "../gemm/x64Packing.js";
import { type Gpr, gpr, low32, mem, type Vector } from "../x64/operands.js";
import { AttentionCode, BRIEF, EXP2_POWERS, LOG2_E, SCRATCH } from "./attentionCode.js";

const { rax, rcx, rdx, rsi, rdi, r8, r9 } = gpr;

/** Terms of the series of the logarithm, 2 (s + s³/3 + …) for s = (x − 1) / (x + 1) ≤ 1/3. */
const LOG_TERMS = 8;

/**
 * Writes attention: a unit is a block of queries of one head. For each block of keys that it sees, keys and values are
 * packed once; then a strip of queries after the other multiplies its tiles of scores, whose exponentials are relative
 * to the largest score so far, and adds their products with the values to what it has, scaled down.
 *
 * Scores are in units of log₂ e, since packed queries are multiplied by it: exponentials are powers of 2.
 */
export class ForwardCode extends AttentionCode {
  private readonly places;
  /** Where these are: the block of queries and its rows, … */
  private readonly query = this.word();
  private readonly mixed = this.word();
  private readonly logSums = this.word();
  private readonly key = this.word();
  private readonly value = this.word();
  private readonly rows = this.word();
  private readonly batch = this.word();
  private readonly head = this.word();
  /** … the end of all keys, and the keys of the block. */
  private readonly end = this.word();
  private readonly keyAt = this.word();

  constructor(kernel: AttentionKernel, addressType: AddressType, listing?: string[]) {
    super(kernel, addressType, listing);
    this.places = forwardScratch(kernel).at;
  }

  protected writeUnit(): void {
    const { x, kernel } = this;
    this.findUnit();
    this.packQueries();
    x.mov(rax, this.first);
    if (kernel.before < 0) x.xor(low32(rax), low32(rax));
    else {
      x.sub(rax, kernel.before);
      this.atLeastZero(rax);
    }
    x.mov(this.start, rax).mov(rax, this.first).add(rax, this.rows).sub(rax, 1);
    this.endOfKeys(rax);
    x.mov(this.end, rax);
    this.loop(this.start, this.end, KEYS, () => {
      this.packKeys();
      this.set(this.row, 0);
      this.loop(this.row, this.rows, STRIP, (next) => {
        this.findStrip(next);
        this.computeScores();
        this.findReference();
        this.scaleMixed();
        this.exponentiate();
        this.mixValues();
      });
    });
    this.set(this.row, 0);
    this.loop(this.row, this.rows, STRIP, () => this.finishStrip());
  }

  /** Units take blocks from both ends of a sequence in turn, so that parts of them take equally long. */
  private findUnit(): void {
    const { x, kernel } = this;
    const { length, heads, keyHeads } = kernel;
    const numBlocks = Math.ceil(length / this.queries);
    this.divide(this.unit, numBlocks);
    x.mov(this.head, rax).mov(r8, rdx).shr(r8);
    x.mov(low32(r9), numBlocks - 1)
      .sub(r9, r8)
      .and(rdx, 1)
      .cmov("ne", r8, r9);
    x.imul(r8, r8, this.queries).mov(this.first, r8);
    x.mov(low32(r9), length).sub(r9, r8);
    this.atMost(r9, this.queries);
    x.mov(this.rows, r9);
    this.sum(this.logSums, this.base("logSums"), [this.head, 4 * length], [this.first, 4]);
    this.divide(this.head, heads);
    x.mov(this.batch, rax).mov(this.head, rdx);
    for (const name of ["query", "mixed"] as const) {
      const { batch, head, row } = this.strides(name);
      this.sum(this[name], this.base(name), [this.batch, batch], [this.head, head], [this.first, row]);
    }
    this.divide(this.head, heads / keyHeads);
    x.mov(this.head, rax);
    for (const name of ["key", "value"] as const) {
      const { batch, head } = this.strides(name);
      this.sum(this[name], this.base(name), [this.batch, batch], [this.head, head]);
    }
  }

  private packQueries(): void {
    const { x, places, queries } = this;
    const { scale } = this.kernel;
    x.mov(rsi, this.query).lea(rdi, mem(SCRATCH, places.query)).mov(rcx, this.rows);
    this.copyRows("to", this.strides("query").row, this.rowBytes, scale * LOG2_E);
    this.clear((STRIP - 1) * this.rowBytes);
    x.lea(rdi, mem(SCRATCH, places.mixed));
    this.clear(queries * this.rowBytes);
    x.lea(rdi, mem(SCRATCH, places.sums));
    this.clear(queries * 64);
    x.lea(rdi, mem(SCRATCH, places.peaks)).vmovups(this.vec(1), this.constant(Number.NEGATIVE_INFINITY));
    for (const strip of range(queries / STRIP)) x.vmovups(mem(rdi, 8 * STRIP * strip), this.vec(1));
  }

  private packKeys(): void {
    const { x, places } = this;
    x.mov(rax, this.end).sub(rax, this.start);
    this.atMost(rax, KEYS);
    x.mov(this.keys, rax);
    this.sum(this.keyAt, this.key, [this.start, this.strides("key").row]);
    const block = { start: this.start, keys: this.keys };
    this.packPanels("key", this.keyAt, places.key, places.lastKeys, block, this.column);
    const { row } = this.strides("value");
    x.imul(rsi, this.start, row).add(rsi, this.value).lea(rdi, mem(SCRATCH, places.value));
    x.mov(rcx, this.keys);
    this.copyRows("to", row, this.rowBytes);
  }

  /** The scores of a strip, and the largest in each lane. */
  private computeScores(): void {
    const { x, places, tile } = this;
    x.vmovups(this.vec(0), this.constant(Number.NEGATIVE_INFINITY));
    for (const i of range(STRIP)) x.vmovups(mem(SCRATCH, places.maxima + 64 * i), this.vec(0));
    x.mov(rax, this.from).mov(this.column, rax);
    this.loop(this.column, this.to, PANEL, () => {
      this.multiplyTile(places.query, this.row, places.key, this.column);
      this.hideScores();
      x.mov(rax, this.column).lea(rdx, mem(SCRATCH, places.scores, rax, 4));
      for (const i of range(STRIP)) {
        const [left, right] = [tile.sum(i, 0), tile.sum(i, 1)];
        const largest = mem(SCRATCH, places.maxima + 64 * i);
        x.vmovups(mem(rdx, i * SCORE_PITCH), left).vmovups(mem(rdx, i * SCORE_PITCH + 64), right);
        x.vmaxps(left, left, right).vmaxps(left, left, largest).vmovups(largest, left);
      }
    });
  }

  /** Combines the lanes of each of a strip's rows, at an offset in a register: lane i of the result belongs to row i. */
  private combineLanes(from: number, op: "vmaxps" | "vaddps", to: Vector, index?: Gpr): void {
    const { x, v } = this;
    for (const i of range(16)) {
      if (i < STRIP) x.vmovups(v.vec(i), mem(SCRATCH, from + 64 * i, index));
      else v.clear(x, i);
    }
    transposeSquare(x, v, (step, vector) => {
      if (step === 0) x.vmovups(to, vector);
      else x[op](to, to, vector);
    });
  }

  /** What is subtracted from the scores of each row, and what its earlier sums are scaled by. */
  private findReference(): void {
    const { x, places } = this;
    const [peak, old, factor] = [this.vec(28), this.vec(29), this.vec(30)];
    const [n, z] = [this.vec(27), this.vec(26)];
    this.combineLanes(places.maxima, "vmaxps", peak);
    x.mov(rax, this.row).lea(rdx, mem(SCRATCH, places.peaks, rax, 8));
    x.vmovups(old, mem(rdx)).vmaxps(peak, peak, old).vmovups(mem(rdx), peak);
    // A row that has seen no key yet.
    this.replace(peak, Number.NEGATIVE_INFINITY, this.constant(0));
    x.vmovups(mem(SCRATCH, places.reference), peak).vsubps(z, old, peak);
    this.exp2(factor, z, n);
    x.vmovups(mem(SCRATCH, places.factor), factor);
  }

  private scaleMixed(): void {
    const { x, places } = this;
    const factor = this.vec(31);
    x.imul(rdi, this.row, this.rowBytes).lea(rdi, mem(rdi, places.mixed, SCRATCH));
    x.lea(rdx, mem(SCRATCH, places.factor)).mov(low32(rcx), STRIP);
    const again = x.here();
    x.vbroadcastss(factor, mem(rdx)).add(rdx, 4);
    for (const j of range(this.rowBytes / 64)) {
      x.vmulps(this.vec(j % 16), factor, mem(rdi, 64 * j)).vmovups(mem(rdi, 64 * j), this.vec(j % 16));
    }
    x.add(rdi, this.rowBytes).dec(rcx).j("ne", again);
  }

  /** Replaces the scores of a strip by their exponentials, and adds these to the lanes of its sums. */
  private exponentiate(): void {
    const { x, places } = this;
    const [reference, factor, sum, other] = [this.vec(16), this.vec(17), this.vec(18), this.vec(19)];
    const coefficients = EXP2_POWERS.map((power) => this.vec(20 + power));
    for (const power of EXP2_POWERS) x.vmovups(this.vec(20 + power), this.exp2Coefficient(power));
    const coefficient = (power: number) => at(coefficients, power);
    x.mov(rdx, this.from).lea(rdi, mem(SCRATCH, places.scores, rdx, 4));
    x.mov(rdx, this.row)
      .imul(rdx, rdx, 64)
      .lea(rdx, mem(SCRATCH, places.sums, rdx));
    x.mov(r8, SCRATCH).mov(low32(r9), STRIP);
    const row = x.here();
    x.vbroadcastss(reference, mem(r8, places.reference)).vbroadcastss(factor, mem(r8, places.factor));
    x.vmulps(sum, factor, mem(rdx)).vpxor(other, other, other);
    x.mov(rax, rdi).mov(rcx, this.to).sub(rcx, this.from);
    const panel = x.here();
    [sum, other].forEach((total, j) => {
      const [z, n, to] = [this.vec(3 * j), this.vec(3 * j + 1), this.vec(3 * j + 2)];
      x.vmovups(z, mem(rax, 64 * j)).vsubps(z, z, reference);
      this.exp2(to, z, n, coefficient);
      x.vmovups(mem(rax, 64 * j), to).vaddps(total, total, to);
    });
    x.add(rax, 4 * PANEL)
      .sub(rcx, PANEL)
      .j("g", panel);
    x.vaddps(sum, sum, other).vmovups(mem(rdx), sum);
    x.add(rdx, 64).add(rdi, SCORE_PITCH).add(r8, 4).dec(r9).j("ne", row);
  }

  private mixValues(): void {
    const { x, places, product } = this;
    x.mov(rax, this.from)
      .lea(rdx, mem(SCRATCH, places.scores, rax, 4))
      .mov(product.a, rdx);
    x.imul(rdx, rax, this.rowBytes)
      .lea(rdx, mem(rdx, places.value, SCRATCH))
      .mov(product.b, rdx);
    x.imul(rdx, this.row, this.rowBytes)
      .lea(rdx, mem(rdx, places.mixed, SCRATCH))
      .mov(product.c, rdx);
    x.mov(rdx, this.to).sub(rdx, rax).mov(product.steps, rdx);
    const shape = { height: STRIP, width: this.rowBytes / 4, alpha: 1 };
    const strides = { a: { row: SCORE_PITCH, step: 4 }, bStep: this.rowBytes, cStride: this.rowBytes };
    this.addProduct({ ...shape, ...strides }, product);
  }

  /** Divides the mixed values of a strip by the sums of their weights, and finds its log-sums. */
  private finishStrip(): void {
    const { x, places } = this;
    const [sum, one, peak] = [this.vec(28), this.vec(29), this.vec(30)];
    x.imul(rdx, this.row, 64);
    this.combineLanes(places.sums, "vaddps", sum, rdx);
    x.mov(rcx, this.rows).sub(rcx, this.row);
    this.atMost(rcx, STRIP);
    this.storeLogSums(sum, peak);
    this.replace(sum, 0, this.constant(1));
    x.vmovups(one, this.constant(1)).vdivps(sum, one, sum).vmovups(mem(SCRATCH, places.factor), sum);
    x.imul(rsi, this.row, this.rowBytes).lea(rsi, mem(rsi, places.mixed, SCRATCH));
    const { row } = this.strides("mixed");
    x.imul(rdi, this.row, row).add(rdi, this.mixed).lea(rdx, mem(SCRATCH, places.factor));
    this.copyRows("from", this.rowBytes, row, "rdx");
  }

  /** The number of rows is in rcx. */
  private storeLogSums(sum: Vector, peak: Vector): void {
    const { x, places } = this;
    const [exponent, mantissa] = [this.vec(0), this.vec(1)];
    const [s, square, log] = [this.vec(2), this.vec(3), this.vec(4)];
    x.vgetexpps(exponent, sum).vgetmantps(mantissa, sum, 0);
    x.vsubps(s, mantissa, this.constant(1)).vaddps(square, mantissa, this.constant(1));
    x.vdivps(s, s, square).vmulps(square, s, s);
    x.vmovups(log, this.constant(2 / (2 * LOG_TERMS - 1)));
    for (let k = LOG_TERMS - 2; k >= 0; k--) x.vfmadd213ps(log, square, this.constant(2 / (2 * k + 1)));
    x.vmulps(log, log, s).vfmadd231ps(log, exponent, this.constant(Math.LN2));
    x.mov(rax, this.row).vmovups(peak, mem(SCRATCH, places.peaks, rax, 8));
    x.vfmadd231ps(log, peak, this.constant(Math.LN2));
    x.vmovups(exponent, this.iota()).vpbroadcastd(mantissa, low32(rcx)).vpcmpd(BRIEF, exponent, mantissa, 1);
    x.lea(rdx, mem(rax, 0, rax))
      .add(rdx, rdx)
      .add(rdx, this.logSums);
    x.vmovups(mem(rdx), log, { mask: BRIEF });
  }
}
