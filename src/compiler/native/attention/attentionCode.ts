/** What the code of attention and of its cotangents have in common: their arguments, packing, masks and products. */
import { getOrInsert } from "../../../ir/collections.js";
import { at, range } from "../../../ir/shape.js";
import {
  type AttentionArgument,
  type AttentionKernel,
  argumentBytes,
  attentionScratchBytes,
  type HeadStrides,
  type HeadsName,
  PANEL,
  packedFeatures,
  queriesOf,
  STRIP,
} from "../../kernel/attentionKernel.js";
import type { AddressType } from "../../wasm/addresses.js";
import type { Label } from "../code.js";
import type { MultiplyKernel, PackKernel } from "../gemm/target.js";
import { SUM_ARGUMENTS, sumSteps, writeMultiply, X64Tile } from "../gemm/x64Multiply.js";
import { writePackColumns } from "../gemm/x64Packing.js";
import { resolveArgument } from "../kernels/x64Arguments.js";
import { SLOT_BYTES } from "../kernels/x64Frame.js";
import { type Gpr, gpr, low32, type Mem, mem, type Vector } from "../x64/operands.js";
import { Avx512Writer } from "./avx512Writer.js";

const { rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r12, r13, r14, r15 } = gpr;

const SAVED = [rbx, rbp, r12, r13, r14, r15];

/** Where the scratch memory of the thread begins; products and packing do not change it. */
export const SCRATCH = r15;

/** Mask registers: lanes of the last vector of a row, of keys that exist, and of those that a query sees. */
const LAST_LANES = 4;
const EXIST = [2, 3] as const;
const SEEN = [5, 6] as const;
/** A mask of a single instruction or two. */
export const BRIEF = 1;

/** Predicates of comparisons. */
const [EQUAL, LESS, AT_MOST, AT_LEAST] = [0, 1, 2, 5];
/** Not less, or NaN. */
const NOT_LESS = 5;

/** The powers of the polynomial of 2^x. */
export const EXP2_POWERS = range(7);

/** The coefficients of 2^x for |x| ≤ ½, lowest first; relative error 2^-24. */
const EXP2 = [
  1.0000000005542748, 0.6931472057422732, 0.24022646890259786, 0.05550328765900397, 0.009618488953080385,
  0.0013399935737849846, 0.0001534582492772427,
];
/** The least exponent of normal numbers: smaller powers count as 0, since computing with them is slow. */
const LEAST_EXPONENT = -126;

export const LOG2_E = Math.LOG2E;

/** Words of the frame of an operand of a product, all addresses, and the number of its steps. */
export interface ProductPlaces {
  readonly a: Mem;
  readonly b: Mem;
  readonly c: Mem;
  readonly steps: Mem;
}

/** A strip of a matrix plus a strip of one times rows of another; distances are in bytes. */
export interface StripProduct {
  readonly height: number;
  readonly width: number;
  readonly a: { readonly row: number; readonly step: number };
  readonly bStep: number;
  readonly cStride: number;
  readonly alpha: number;
}

/** Writes a function with the arguments of a kernel that threads share; see `writeKernel`. */
export abstract class AttentionCode extends Avx512Writer {
  /** Scores of a strip of queries and a panel of keys. */
  protected readonly tile = new X64Tile(this.v, STRIP, PANEL / 16);
  /** Bytes of a packed row. */
  protected readonly rowBytes: number;
  private readonly bases = new Map<AttentionArgument, Mem>();
  /** The first unit of the part, and the one after its last. */
  protected readonly unit: Mem;
  private readonly lastUnit: Mem;
  private readonly part: Mem;
  private readonly scratch: Mem;
  private readonly stack: Mem;
  /** The number of queries of a block. */
  protected readonly queries: number;
  /** Words of the frame: the first query of the block; the first key of its block, and their number; … */
  protected readonly first: Mem;
  protected readonly start: Mem;
  protected readonly keys: Mem;
  /** … the strip, its first query relative to the first key, and the columns it sees. */
  protected readonly row: Mem;
  protected readonly position: Mem;
  protected readonly from: Mem;
  protected readonly to: Mem;
  protected readonly column: Mem;
  protected readonly product: ProductPlaces;

  constructor(
    protected readonly kernel: AttentionKernel,
    private readonly addressType: AddressType,
    listing?: string[],
  ) {
    super(listing);
    this.rowBytes = 4 * packedFeatures(kernel);
    // Products and packing add these to their addresses.
    for (const _ of range(3)) this.word();
    for (const name of kernel.args) this.bases.set(name, this.word());
    [this.unit, this.lastUnit, this.part] = [this.word(), this.word(), this.word()];
    [this.scratch, this.stack] = [this.word(), this.word()];
    this.queries = queriesOf(kernel);
    [this.first, this.start, this.keys] = [this.word(), this.word(), this.word()];
    [this.row, this.position, this.column] = [this.word(), this.word(), this.word()];
    [this.from, this.to] = [this.word(), this.word()];
    this.product = { a: this.word(), b: this.word(), c: this.word(), steps: this.word() };
  }

  /** Writes the code of a unit of work, whose number is in `unit`. */
  protected abstract writeUnit(): void;

  /** The finished function; its frame is known at the end, so that is where the prologue is. */
  write(): Uint8Array<ArrayBuffer> {
    const { x, frame } = this;
    const [begin, body, done] = [x.label(), x.label(), x.label()];
    x.jmp(begin).place(body);
    this.resolve(done);
    this.loop(this.unit, this.lastUnit, 1, () => this.writeUnit());
    x.place(done).vzeroupper().mov(rsp, this.stack);
    for (const register of SAVED.toReversed()) x.pop(register);
    x.ret();
    x.place(begin);
    for (const register of SAVED) x.push(register);
    x.mov(rax, rsp)
      .sub(rsp, frame.bytes + SLOT_BYTES)
      .and(rsp, -SLOT_BYTES)
      .mov(this.stack, rax)
      .jmp(body);
    return this.finish();
  }

  private resolve(done: Label): void {
    const { x, kernel } = this;
    x.mov(this.unit, rcx).mov(this.lastUnit, r8).mov(this.part, r9);
    kernel.args.forEach((name, index) => {
      const extent = { from: 0, to: argumentBytes(kernel, index) };
      resolveArgument(x, this.addressType, { index, extent }, this.base(name), done);
    });
    const bytes = attentionScratchBytes(kernel);
    const extent = { from: 0, to: bytes };
    const place = { index: kernel.args.length, extent, part: { number: this.part, bytes } };
    resolveArgument(x, this.addressType, place, this.scratch, done);
    x.mov(SCRATCH, this.scratch).xor(low32(rax), low32(rax));
    for (const i of range(3)) x.mov(mem(rsp, 8 * i), rax);
    const rest = kernel.headSize % 16;
    x.mov(low32(rax), rest === 0 ? 0xffff : 2 ** rest - 1).kmovw(LAST_LANES, low32(rax));
  }

  /** Where the address of an argument is. */
  protected base(name: AttentionArgument): Mem {
    return getOrInsert(this.bases, name, () => this.word());
  }

  protected strides(name: HeadsName): HeadStrides {
    return this.kernel.strides[name] ?? { batch: 0, row: 0, head: 0 };
  }

  /** register = the key after the last one that the query in the register sees. */
  protected endOfKeys(register: Gpr): void {
    const { ahead, keyLength } = this.kernel;
    if (ahead < 0) {
      this.x.mov(low32(register), keyLength);
      return;
    }
    this.x.add(register, ahead + 1);
    this.atMost(register, keyLength);
  }

  /**
   * Copies rows, as many as rcx says, at least one, from the address in rsi to that in rdi.
   *
   * @param packed which of the two has whole vectors
   * @param scale a number that all elements are multiplied by, or where each row's is: the address in rdx
   */
  protected copyRows(
    packed: "from" | "to",
    fromStride: number,
    toStride: number,
    scale: number | "rdx" = 1,
  ): void {
    const { x, v } = this;
    const { headSize } = this.kernel;
    const vectors = Math.ceil(headSize / 16);
    const factor = v.vec(31);
    if (typeof scale === "number" && scale !== 1) x.vmovups(factor, this.constant(scale));
    const again = x.here();
    if (scale === "rdx") x.vbroadcastss(factor, mem(rdx)).add(rdx, 4);
    for (const j of range(vectors)) {
      const isLast = j === vectors - 1 && headSize % 16 !== 0;
      const to = v.vec(j % 16);
      const [source, target] = [mem(rsi, 64 * j), mem(rdi, 64 * j)];
      this.loadRow(to, source, isLast && packed === "to");
      if (scale !== 1) v.multiply(x, to, to, factor);
      this.storeRow(target, to, isLast && packed === "from");
    }
    x.add(rsi, fromStride).add(rdi, toStride).dec(rcx).j("ne", again);
  }

  /** Loads a vector of a row, of which the last may be a part. */
  protected loadRow(to: Vector, from: Mem, isPart: boolean): void {
    this.x.vmovups(to, from, isPart ? { mask: LAST_LANES, zero: true } : undefined);
  }

  protected storeRow(to: Mem, from: Vector, isPart: boolean): void {
    this.x.vmovups(to, from, isPart ? { mask: LAST_LANES } : undefined);
  }

  /** Packs the transposed keys of a block as panels: `target[panel][feature][key]`. */
  protected packPanels(
    name: HeadsName,
    source: Mem,
    target: number,
    lastKeys: number,
    block: { readonly start: Mem; readonly keys: Mem },
    column: Mem,
  ): void {
    const { x } = this;
    const { keyLength, headSize } = this.kernel;
    const { row } = this.strides(name);
    const kernel: PackKernel = { kind: "packColumns", from: "b", extent: PANEL, leftOver: 0, zeros: 0 };
    const pack = this.routine(kernel, () => writePackColumns(x, this.v, kernel));
    this.set(column, 0);
    this.loop(column, block.keys, PANEL, () => {
      const [whole, ready] = [x.label(), x.label()];
      x.imul(rsi, column, row).add(rsi, source);
      x.mov(rcx, block.start).add(rcx, column).sub(rcx, keyLength).add(rcx, PANEL).j("le", whole);
      // There are fewer keys than a panel has columns: the others are zeros.
      x.sub(rcx, PANEL).imul(rcx, rcx, -1).lea(rdi, mem(SCRATCH, lastKeys)).mov(rdx, rcx);
      this.clear(PANEL * this.rowBytes);
      x.lea(rdi, mem(SCRATCH, lastKeys)).mov(rcx, rdx);
      this.copyRows("to", row, this.rowBytes);
      x.lea(rdi, mem(SCRATCH, lastKeys)).mov(low32(rsi), this.rowBytes).jmp(ready);
      x.place(whole).mov(rdi, rsi).mov(low32(rsi), row);
      x.place(ready)
        .imul(rdx, column, 4 * headSize)
        .lea(rdx, mem(rdx, target, SCRATCH));
      x.mov(low32(rcx), headSize).mov(low32(r8), 1).call(pack);
    });
  }

  /** Adds a product to a strip. */
  protected addProduct(product: StripProduct, { a, b, c, steps }: ProductPlaces): void {
    const { x } = this;
    const { width, height, alpha, cStride } = product;
    const groups = [
      { width: PANEL, count: Math.floor(width / PANEL), first: 0 },
      { width: width % PANEL, count: 1, first: width - (width % PANEL) },
    ];
    for (const group of groups) {
      if (group.width === 0 || group.count === 0) continue;
      const kernel: MultiplyKernel = {
        ...{ kind: "multiply", height, width: group.width, alpha, beta: 1 },
        a: product.a,
        b: { row: 4, step: product.bStep },
      };
      const multiply = this.routine(kernel, () => writeMultiply(x, this.v, kernel));
      x.mov(rdi, a).mov(rsi, b).mov(rdx, c).mov(low32(rcx), cStride).mov(r8, steps);
      x.add(rsi, 4 * group.first).add(rdx, 4 * group.first);
      x.mov(low32(r9), 1).mov(low32(r10), group.count).call(multiply);
    }
  }

  /** The tile of products of a packed strip at an address of the scratch memory and a panel. */
  protected multiplyTile(rows: number, row: Mem, panels: number, column: Mem): void {
    const { x, v, tile } = this;
    const { headSize } = this.kernel;
    const { a, b, steps } = SUM_ARGUMENTS;
    x.imul(a, row, this.rowBytes).lea(a, mem(a, rows, SCRATCH));
    x.imul(b, column, 4 * headSize).lea(b, mem(b, panels, SCRATCH));
    x.mov(low32(steps), headSize);
    tile.clear(x);
    const factors = { height: STRIP, width: PANEL, a: { row: this.rowBytes, step: 4 }, b: "packed" } as const;
    sumSteps(x, v, factors, tile);
  }

  /** Makes the scores −∞ of keys that a query does not see, unless the strip sees all of the panel. */
  protected hideScores(): void {
    const { x, column, position, start } = this;
    const { keyLength, before, ahead } = this.kernel;
    const [some, all] = [x.label(), x.label()];
    x.mov(rcx, column).mov(rdx, position);
    x.mov(rax, start)
      .add(rax, rcx)
      .add(rax, PANEL - keyLength)
      .j("g", some);
    if (ahead >= 0) {
      x.mov(rax, rcx)
        .add(rax, PANEL - 1 - ahead)
        .cmp(rax, rdx)
        .j("g", some);
    }
    if (before >= 0) {
      x.mov(rax, rdx)
        .add(rax, STRIP - 1 - before)
        .cmp(rax, rcx)
        .j("g", some);
    }
    x.jmp(all).place(some);
    this.hideSome(start);
    x.place(all);
  }

  /** The column is in rcx, the position in rdx. */
  private hideSome(start: Mem): void {
    const { x, tile } = this;
    const { keyLength, before, ahead } = this.kernel;
    const [first, second, query, other] = [tile.free(0), tile.free(1), tile.free(2), tile.free(3)];
    x.vpbroadcastd(first, low32(rcx)).vpaddd(first, first, this.iota());
    x.vpaddd(second, first, this.integers(16));
    x.mov(low32(rax), keyLength).sub(rax, start).vpbroadcastd(other, low32(rax));
    const keys = [first, second];
    for (const [j, key] of keys.entries()) x.vpcmpd(at(EXIST, j), key, other, LESS);
    x.vpbroadcastd(query, low32(rdx));
    const isLimited = ahead >= 0 || before >= 0;
    for (const i of range(STRIP)) {
      let masks: readonly number[] = EXIST;
      const compare = (bound: Vector, predicate: number) => {
        const known = masks;
        for (const [j, key] of keys.entries())
          x.vpcmpd(at(SEEN, j), key, bound, predicate, { mask: at(known, j) });
        masks = SEEN;
      };
      if (ahead === 0) compare(query, AT_MOST);
      else if (ahead > 0) {
        x.vpaddd(other, query, this.integers(ahead));
        compare(other, AT_MOST);
      }
      if (before >= 0) {
        x.vpsubd(other, query, this.integers(before));
        compare(other, AT_LEAST);
      }
      for (const j of range(2)) {
        x.vmovups(other, this.constant(Number.NEGATIVE_INFINITY));
        x.vmovups(other, tile.sum(i, j), { mask: at(masks, j) }).vmovups(tile.sum(i, j), other);
      }
      if (isLimited) x.vpaddd(query, query, this.integers(1));
    }
  }

  /**
   * The columns of the block of keys that the strip sees, from `from`, a multiple of a panel's, to before `to`; goes on
   * with the next strip if there are none.
   */
  protected findStrip(next: Label): void {
    const { x, position, keys } = this;
    x.mov(rax, this.first).add(rax, this.row).sub(rax, this.start).mov(position, rax);
    const { before, ahead } = this.kernel;
    x.xor(low32(rcx), low32(rcx));
    if (before >= 0) {
      x.mov(rcx, position).sub(rcx, before);
      this.atLeastZero(rcx);
      x.and(rcx, -PANEL);
    }
    x.mov(this.from, rcx);
    x.mov(rax, keys);
    if (ahead >= 0) {
      x.mov(rax, position).add(rax, STRIP + ahead);
      this.atMost(rax, keys);
    }
    x.mov(this.to, rax);
    x.mov(rax, this.from).cmp(rax, this.to).j("ge", next);
  }

  /**
   * to = 2^z, where smaller powers than normal numbers are 0; changes z and n.
   *
   * @param coefficient of the polynomial, by its power
   */
  protected exp2(
    to: Vector,
    z: Vector,
    n: Vector,
    coefficient: (power: number) => Vector | Mem = (power) => this.exp2Coefficient(power),
  ): void {
    const { x } = this;
    x.vcmpps(BRIEF, z, this.constant(LEAST_EXPONENT), NOT_LESS);
    x.vroundps(n, z, 8).vsubps(z, z, n);
    x.vmovups(to, coefficient(EXP2.length - 1));
    for (let power = EXP2.length - 2; power >= 0; power--) x.vfmadd213ps(to, z, coefficient(power));
    x.vscalefps(to, to, n, { mask: BRIEF, zero: true });
  }

  protected exp2Coefficient(power: number): Mem {
    return this.constant(at(EXP2, power));
  }

  /** Replaces a number by another one in all lanes; the other is in memory. */
  protected replace(vector: Vector, number: number, by: Mem): void {
    this.x.vcmpps(BRIEF, vector, this.constant(number), EQUAL).vmovups(vector, by, { mask: BRIEF });
  }
}
