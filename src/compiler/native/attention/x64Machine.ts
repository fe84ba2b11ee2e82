/** Attention in x86-64 with AVX2 or AVX-512. Variables that are no pointers are words of the stack frame. */
import { getOrInsert } from "../../../ir/collections.js";
import { at as entry, range } from "../../../ir/shape.js";
import {
  type AttentionArgument,
  type AttentionKernel,
  argumentBytes,
  attentionScratchBytes,
} from "../../attention/attentionKernel.js";
import {
  type AttentionMachine,
  add,
  type Int,
  type IntVariable,
  type LaneOperand,
  type LaneOperation,
  type LaneVector,
  type Place,
  type SameLanes,
  type TileProduct,
} from "../../attention/attentionMachine.js";
import { writeUnit } from "../../attention/writeUnit.js";
import { float32Bits } from "../../wasm/vectorProgram.js";
import type { Label } from "../code.js";
import type { PackKernel } from "../gemm/target.js";
import { SUM_ARGUMENTS, sumSteps, X64Tile } from "../gemm/x64Multiply.js";
import { writePackColumns } from "../gemm/x64Packing.js";
import { Vectors } from "../gemm/x64Vectors.js";
import { resolveArgument } from "../kernels/x64Arguments.js";
import { ConstantPool, SLOT_BYTES, StackFrame } from "../kernels/x64Frame.js";
import type { KernelTarget } from "../kernels/x64Kernel.js";
import { repeatWords } from "../kernels/x64Lanes.js";
import { X64 } from "../x64/assembler.js";
import { type Gpr, gpr, low32, type Mem, mem, type Vector } from "../x64/operands.js";

const { rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15 } = gpr;

const SAVED = [rbx, rbp, r12, r13, r14, r15];

/** Pointers; registers in which integers are computed; and where the scratch memory of the thread begins. */
const POINTERS = [rsi, rdi, r8, r9, r10, rbp];
const TEMPORARIES = [rax, rcx, rdx, r11];
const SCRATCH = r15;

/** The registers that vectors of 256 bits use as masks, and those of 512 bits. */
const MASK_VECTOR = 15;
const [MASK, PART_MASK] = [1, 2];

/** Predicates of comparisons. */
const PREDICATES = { "<": 1, ">": 14 } as const;

const arithmetic = {
  add: "vaddps",
  sub: "vsubps",
  mul: "vmulps",
  div: "vdivps",
  max: "vmaxps",
  and: "vpand",
  or: "vpor",
} as const satisfies { readonly [O in LaneOperation]: keyof X64 };

/** Writes a function with the arguments of a kernel that threads share; see `writeKernel`. */
export class X64Machine implements AttentionMachine {
  readonly scratch: IntVariable = { kind: "pointer", id: POINTERS.length };
  readonly unit: IntVariable;
  private readonly x: X64;
  private readonly v: Vectors;
  private readonly frame = new StackFrame();
  private readonly pool: ConstantPool;
  private readonly words: Mem[] = [];
  private readonly arguments = new Map<AttentionArgument, IntVariable>();
  private readonly pack: Label;
  /** The tile in use. */
  private current: X64Tile | undefined;

  constructor(
    private readonly kernel: AttentionKernel,
    private readonly target: KernelTarget,
    listing?: string[],
  ) {
    this.x = new X64(listing);
    this.v = new Vectors(target.bits, "float32");
    this.pool = new ConstantPool(this.x);
    this.pack = this.x.label();
    // Packing adds these to its addresses.
    for (const _ of range(3)) this.word();
    this.unit = this.word();
    for (const name of kernel.args) this.arguments.set(name, this.word());
  }

  /** The finished function; its frame is known at the end, so that is where the prologue is. */
  write(): Uint8Array<ArrayBuffer> {
    const { x, frame } = this;
    const [begin, body, done] = [x.label(), x.label(), x.label()];
    const [end, stack] = [this.word(), this.word()];
    x.jmp(begin).place(body);
    this.resolve(end, done);
    this.loop(this.unit, end, 1, () => writeUnit(this, this.kernel));
    x.place(done).vzeroupper().mov(rsp, this.memory(stack));
    for (const register of SAVED.toReversed()) x.pop(register);
    x.ret();
    x.place(begin);
    for (const register of SAVED) x.push(register);
    x.mov(rax, rsp)
      .sub(rsp, frame.bytes + SLOT_BYTES)
      .and(rsp, -SLOT_BYTES)
      .mov(this.memory(stack), rax)
      .jmp(body);
    const pack: PackKernel = {
      ...{ kind: "packColumns", from: "b", extent: this.kernel.tile.columns, leftOver: 0, zeros: 0 },
    };
    x.align(64).place(this.pack);
    writePackColumns(x, this.v, pack);
    this.pool.write();
    return x.finish();
  }

  private resolve(end: IntVariable, done: Label): void {
    const { x, kernel } = this;
    const part = this.memory(this.word());
    x.mov(this.memory(this.unit), rcx).mov(this.memory(end), r8).mov(part, r9);
    const { addressType } = this.target;
    kernel.args.forEach((name, index) => {
      const extent = { from: 0, to: argumentBytes(kernel, index) };
      resolveArgument(x, addressType, { index, extent }, this.memory(this.argument(name)), done);
    });
    const bytes = attentionScratchBytes(kernel);
    const scratch = this.memory(this.word());
    const place = {
      index: kernel.args.length,
      extent: { from: 0, to: bytes },
      part: { number: part, bytes },
    };
    resolveArgument(x, addressType, place, scratch, done);
    x.mov(SCRATCH, scratch).xor(low32(rax), low32(rax));
    for (const i of range(3)) x.mov(entry(this.words, i), rax);
  }

  argument(name: AttentionArgument): IntVariable {
    return getOrInsert(this.arguments, name, () => this.word());
  }

  word(): IntVariable {
    return { kind: "word", id: this.words.push(this.frame.word()) - 1 };
  }

  pointer(id: number): IntVariable {
    return { kind: "pointer", id };
  }

  private memory({ id }: IntVariable): Mem {
    return entry(this.words, id);
  }

  private register({ id }: IntVariable): Gpr {
    return POINTERS[id] ?? SCRATCH;
  }

  /** The value of an integer in one of the registers for it, and with it those that follow. */
  private value(int: Int, depth = 0): Gpr {
    const { x } = this;
    const to = entry(TEMPORARIES, depth);
    if (typeof int === "number") {
      if (int >= 0) x.mov(low32(to), int);
      else x.xor(low32(to), low32(to)).add(to, int);
      return to;
    }
    if (int.kind !== "sum") x.mov(to, int.kind === "word" ? this.memory(int) : this.register(int));
    else if (int.op === "min" || int.op === "max") {
      this.value(int.a, depth);
      const other = this.value(int.b, depth + 1);
      x.cmp(to, other).cmov(int.op === "min" ? "g" : "l", to, other);
    } else if (int.op === "mul") {
      this.value(int.a, depth);
      x.imul(to, to, Number(int.b));
    } else this.combine(int.op, to, int, depth);
    return to;
  }

  private combine(op: "add" | "sub" | "and", to: Gpr, { a, b }: { a: Int; b: Int }, depth: number): void {
    const { x } = this;
    this.value(a, depth);
    if (typeof b === "number") x[op](to, b);
    else if (b.kind === "word") x[op](to, this.memory(b));
    else if (b.kind === "pointer") x[op](to, this.register(b));
    else x[op](to, this.value(b, depth + 1));
  }

  set(to: IntVariable, value: Int): void {
    const { x } = this;
    const isStep = typeof value === "object" && value.kind === "sum" && value.op === "add" && value.a === to;
    if (to.kind === "word") x.mov(this.memory(to), this.value(value));
    else if (isStep && typeof value.b === "number") x.add(this.register(to), value.b);
    else x.mov(this.register(to), this.value(value));
  }

  divide(value: Int, by: number, quotient: IntVariable, rest: IntVariable): void {
    const { x } = this;
    this.value(value);
    x.xor(low32(rdx), low32(rdx)).mov(low32(rcx), by).div(rcx);
    x.mov(this.memory(quotient), rax).mov(this.memory(rest), rdx);
  }

  /** Compares integers. */
  private compare(a: Int, b: Int): void {
    const { x } = this;
    const isPointer = typeof a === "object" && a.kind === "pointer";
    const first = isPointer ? this.register(a) : this.value(a);
    if (typeof b === "number") x.cmp(first, b);
    else if (b.kind === "word") x.cmp(first, this.memory(b));
    else x.cmp(first, this.value(b, 1));
  }

  loop(counter: IntVariable, end: Int, step: number, body: () => void): void {
    const { x } = this;
    const done = x.label();
    this.compare(counter, end);
    const again = x.j("ge", done).here();
    body();
    this.set(counter, add(counter, step));
    this.compare(counter, end);
    x.j("l", again).place(done);
  }

  when(a: Int, b: Int, body: () => void): void {
    const { x } = this;
    const done = x.label();
    this.compare(a, b);
    x.j("ge", done);
    body();
    x.place(done);
  }

  free(index: number): LaneVector {
    return (this.current?.free(index).id ?? index) as LaneVector;
  }

  sum(row: number, vector: number): LaneVector {
    return (this.current?.sum(row, vector).id ?? 0) as LaneVector;
  }

  private vector(id: LaneVector): Vector {
    return this.v.vec(id);
  }

  private place({ pointer, bytes }: Place): Mem {
    return mem(this.register(pointer), bytes);
  }

  private operand(operand: LaneOperand): Vector | Mem {
    if (typeof operand === "number") return this.vector(operand);
    return "bits" in operand ? this.constant(operand) : this.place(operand);
  }

  private constant({ bits }: SameLanes): Mem {
    return this.pool.place(repeatWords([bits, bits, bits, bits], this.v.bytes));
  }

  copy(to: LaneVector, from: LaneOperand): void {
    if (typeof from === "object" && "bits" in from && from.bits === 0) this.v.clear(this.x, to);
    else this.v.move(this.x, this.vector(to), this.operand(from));
  }

  store(to: Place, from: LaneVector): void {
    this.v.move(this.x, this.place(to), this.vector(from));
  }

  loadPart(to: LaneVector, from: Place, count: number): void {
    const mask = this.partMask(count);
    if (mask) this.x.vmaskmovps(this.vector(to), mask, this.place(from));
    else this.x.vmovups(this.vector(to), this.place(from), { mask: PART_MASK, zero: true });
  }

  storePart(to: Place, from: LaneVector, count: number): void {
    const mask = this.partMask(count);
    if (mask) this.x.vmaskmovps(this.place(to), mask, this.vector(from));
    else this.x.vmovups(this.place(to), this.vector(from), { mask: PART_MASK });
  }

  /** Makes a mask of the first lanes: a vector, if vectors have 256 bits. */
  private partMask(count: number): Vector | undefined {
    const { x, v } = this;
    if (v.bits === 512) {
      x.mov(low32(rax), 2 ** count - 1).kmovw(PART_MASK, low32(rax));
      return undefined;
    }
    const lanes = Int32Array.from(range(v.lanes), (lane) => (lane < count ? -1 : 0));
    x.vmovups(v.vec(MASK_VECTOR), this.pool.place(new Uint8Array(lanes.buffer)));
    return v.vec(MASK_VECTOR);
  }

  storeFirst(to: Place, from: LaneVector): void {
    this.x.vmovd(this.place(to), { ...this.vector(from), bits: 128 });
  }

  broadcast(to: LaneVector, from: Place): void {
    this.v.broadcast(this.x, this.vector(to), this.place(from));
  }

  splat(to: LaneVector, value: Int): void {
    const { x } = this;
    const [vector, low] = [this.vector(to), { ...this.vector(to), bits: 128 as const }];
    x.vmovd(low, low32(this.value(value)))
      .vpbroadcastd(vector, low)
      .vcvtdq2ps(vector, vector);
  }

  iota(to: LaneVector): void {
    const lanes = Float32Array.from(range(this.v.lanes));
    this.x.vmovups(this.vector(to), this.pool.place(new Uint8Array(lanes.buffer)));
  }

  op(op: LaneOperation, to: LaneVector, a: LaneVector, b: LaneOperand): void {
    this.x[arithmetic[op]](this.vector(to), this.vector(a), this.operand(b));
  }

  multiplyAdd(to: LaneVector, a: LaneVector, b: LaneOperand): void {
    this.x.vfmadd213ps(this.vector(to), this.vector(a), this.operand(b));
  }

  addProduct(to: LaneVector, a: LaneVector, b: LaneOperand): void {
    this.x.vfmadd231ps(this.vector(to), this.vector(a), this.operand(b));
  }

  shift(direction: "left" | "right", to: LaneVector, a: LaneVector, bits: number): void {
    this.x[direction === "left" ? "vpslld" : "vpsrld"](this.vector(to), this.vector(a), bits);
  }

  replace(to: LaneVector, a: LaneVector, is: "<" | ">", b: LaneOperand, by: SameLanes): void {
    const { x, v } = this;
    const [vector, first, other] = [this.vector(to), this.vector(a), this.operand(b)];
    if (v.bits === 512) {
      x.vcmpps(MASK, first, other, PREDICATES[is]);
      x.vmovups(vector, this.constant(by), { mask: MASK });
      return;
    }
    const mask = v.vec(MASK_VECTOR);
    x.vcmpps(mask, first, other, PREDICATES[is]).vpandn(vector, mask, vector);
    if (by.bits !== float32Bits(0)) x.vpand(mask, mask, this.constant(by)).vpor(vector, vector, mask);
  }

  fold(op: "add" | "max", to: LaneVector, other: LaneVector): void {
    const { x, v } = this;
    const [vector, turned] = [this.vector(to), this.vector(other)];
    const combine = () => x[arithmetic[op]](vector, vector, turned);
    if (v.bits === 512) {
      for (const order of [0x4e, 0xb1]) {
        x.vshuff32x4(turned, vector, vector, order);
        combine();
      }
    } else {
      x.vpermq(turned, vector, 0x4e);
      combine();
    }
    for (const order of [0x4e, 0xb1]) {
      x.vpshufd(turned, vector, order);
      combine();
    }
  }

  tile({ height, vectors, a, b, steps }: TileProduct, body: () => void): void {
    const { x, v } = this;
    const tile = new X64Tile(v, height, vectors);
    x.mov(SUM_ARGUMENTS.a, this.value(a.from)).mov(SUM_ARGUMENTS.b, this.value(b.from));
    x.mov(SUM_ARGUMENTS.steps, this.value(steps));
    tile.clear(x);
    const width = vectors * v.lanes;
    sumSteps(x, v, { height, width, a, b: { row: v.size, step: b.step } }, tile);
    this.current = tile;
    body();
    this.current = undefined;
  }

  packColumns(from: Int, rowBytes: number, to: Int, features: number): void {
    const { x } = this;
    x.mov(rdi, this.value(from)).mov(rdx, this.value(to));
    x.mov(low32(rsi), rowBytes).mov(low32(rcx), features).mov(low32(r8), 1).call(this.pack);
  }
}
