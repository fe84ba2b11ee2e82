/** Writes a function of AVX-512 code whose variables are words of its stack frame. */
import { getOrInsert } from "../../../ir/collections.js";
import { range } from "../../../ir/shape.js";
import { float32Bits } from "../../wasm/vectorProgram.js";
import type { Label } from "../code.js";
import { Vectors } from "../gemm/x64Vectors.js";
import { ConstantPool, StackFrame } from "../kernels/x64Frame.js";
import { repeatWords } from "../kernels/x64Lanes.js";
import { X64 } from "../x64/assembler.js";
import { type Gpr, gpr, low32, type Mem, mem, type Vector, vec } from "../x64/operands.js";

const { rax, rcx, rdx, rdi, r11 } = gpr;

/** The assembler, the frame and the constants of a function, and the loops and sums that are written with them. */
export abstract class Avx512Writer {
  protected readonly x: X64;
  protected readonly v = new Vectors(512, "float32");
  protected readonly frame = new StackFrame();
  private readonly pool: ConstantPool;
  private readonly routines = new Map<string, { readonly label: Label; readonly write: () => void }>();

  constructor(listing?: string[]) {
    this.x = new X64(listing);
    this.pool = new ConstantPool(this.x);
  }

  /** Writes the routines and constants behind the function. */
  protected finish(): Uint8Array<ArrayBuffer> {
    // Routines may need others.
    for (const { label, write } of this.routines.values()) {
      this.x.align(64).place(label);
      write();
    }
    this.pool.write();
    return this.x.finish();
  }

  /** A routine that is written after the function itself. */
  protected routine(key: object, write: () => void): Label {
    return getOrInsert(this.routines, JSON.stringify(key), () => ({ label: this.x.label(), write })).label;
  }

  /** A word of the frame. */
  protected word(): Mem {
    return this.frame.word();
  }

  /** The same number in every lane, in memory. */
  protected constant(value: number): Mem {
    return this.integers(float32Bits(value));
  }

  protected integers(word: number): Mem {
    return this.pool.place(repeatWords([word, word, word, word], 64));
  }

  /** 0, 1, 2, … */
  protected iota(): Mem {
    return this.pool.place(new Uint8Array(Int32Array.from(range(16)).buffer));
  }

  /** Repeats the body while the counter is less than the end; the counter is set before. */
  protected loop(counter: Mem, end: Mem | number, step: number, body: (next: Label) => void): void {
    const { x } = this;
    const [again, next, done] = [x.here(), x.label(), x.label()];
    x.mov(rax, counter);
    if (typeof end === "number") x.cmp(rax, end);
    else x.cmp(rax, end);
    x.j("ge", done);
    body(next);
    x.place(next).mov(rax, counter).add(rax, step).mov(counter, rax).jmp(again);
    x.place(done);
  }

  protected set(target: Mem, value: number): void {
    if (value === 0) this.x.xor(low32(rax), low32(rax));
    else this.x.mov(low32(rax), value);
    this.x.mov(target, rax);
  }

  /** target = base + Σ word · factor. */
  protected sum(target: Mem, base: Mem | Gpr, ...terms: readonly (readonly [Mem, number])[]): void {
    const { x } = this;
    x.mov(rax, base);
    for (const [word, factor] of terms) x.imul(rcx, word, factor).add(rax, rcx);
    x.mov(target, rax);
  }

  /** register = min(register, limit). */
  protected atMost(register: Gpr, limit: Mem | number): void {
    const { x } = this;
    if (typeof limit === "number") x.mov(low32(r11), limit);
    else x.mov(r11, limit);
    x.cmp(register, r11).cmov("g", register, r11);
  }

  /** register = max(register, 0). */
  protected atLeastZero(register: Gpr): void {
    this.x.xor(low32(r11), low32(r11)).cmp(register, r11).cmov("l", register, r11);
  }

  /** Divides a word by a number: the quotient is in rax, the rest in rdx. */
  protected divide(word: Mem, by: number): void {
    this.x.mov(rax, word).xor(low32(rdx), low32(rdx)).mov(low32(rcx), by).div(rcx);
  }

  /** Clears whole vectors from the address in rdi on. */
  protected clear(bytes: number): void {
    const { x, v } = this;
    const perTurn = 16;
    const [turns, rest] = [Math.floor(bytes / 64 / perTurn), (bytes / 64) % perTurn];
    v.clear(x, 0);
    const stores = (count: number) => {
      for (const i of range(count)) v.move(x, mem(rdi, 64 * i), v.vec(0));
    };
    if (turns > 0) {
      x.mov(low32(rcx), turns);
      const again = x.here();
      stores(perTurn);
      x.add(rdi, 64 * perTurn)
        .dec(rcx)
        .j("ne", again);
    }
    stores(rest);
  }

  /** A vector register. */
  protected vec(id: number): Vector {
    return vec(512, id);
  }
}
