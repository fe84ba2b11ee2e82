import { at } from "../../../ir/shape.js";
import type { KernelPlan } from "../../kernel/phases.js";
import type { Section } from "../../kernel/section.js";
import type { Access, Indirection, KernelNode } from "../../kernel/spec.js";
import { X64 } from "../x64/assembler.js";
import {
  low32,
  type Mem,
  r8,
  r9,
  r10,
  r11,
  r12,
  r13,
  r14,
  r15,
  rax,
  rbx,
  rdi,
  rdx,
  rsi,
  type Vector,
  vec,
} from "../x64/operands.js";
import { ConstantPool, Frame } from "./x64Frame.js";
import { repeatWords } from "./x64Lanes.js";
import type { LineTools } from "./x64Line.js";

/** Registers that may point to the rows of a loop; rax and rdx are for what is over at once, rcx counts elements. */
export const POINTERS = [rbx, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15];

/** What all parts of a kernel are written with: its code, its stack, its loops and the values of the running row. */
export class KernelTools {
  readonly x: X64;
  readonly frame = new Frame();
  readonly pool: ConstantPool;
  /** Where the address of every argument is. */
  readonly bases: readonly Mem[];
  /** Where the number of the running iteration of every dim is. */
  readonly counters: readonly Mem[];
  private readonly rowValues = new Map<number, Mem>();

  /** @param numArgs how many arguments the kernel has, scratch rows included */
  constructor(
    private readonly plan: KernelPlan,
    readonly bits: 256 | 512,
    numArgs: number,
    listing?: string[],
  ) {
    this.x = new X64(listing);
    this.pool = new ConstantPool(this.x);
    this.bases = Array.from({ length: numArgs }, () => this.frame.word());
    this.counters = plan.spec.dims.map(() => this.frame.word());
  }

  /** What loads and stores need. */
  get storage() {
    return { x: this.x, constant: (word: number) => this.constant(word) };
  }

  /** Where 32 bits stand in every lane. */
  constant(word: number): Mem {
    return this.pool.place(repeatWords([word, word, word, word], this.bits / 8));
  }

  /** What the straight-line code of a section is written with. */
  forSection({ uniforms }: Section): LineTools {
    return {
      x: this.x,
      slot: () => this.frame.vector(),
      constant: (word) => this.constant(word),
      invariant: (program, vec) => {
        const instruction = at(program.instructions, vec);
        if (instruction.kind === "constant")
          return this.pool.place(repeatWords(instruction.words, this.bits / 8));
        return this.rowValue(at(uniforms, instruction.kind === "uniform" ? instruction.slot : 0));
      },
    };
  }

  /** Keeps the lowest lane of 128 bits as the value that a node has in the running row. */
  keepRowValue(node: number, { id }: Vector): void {
    const wide = vec(this.bits, id);
    this.x.vbroadcastss(wide, vec(128, id)).vmovups(this.rowValue(node), wide);
  }

  private rowValue(node: number): Mem {
    let place = this.rowValues.get(node);
    if (place === undefined) {
      place = this.frame.vector();
      this.rowValues.set(node, place);
    }
    return place;
  }

  /** Nested counting loops over some dims, the first outermost. */
  loops(dims: readonly number[], body: () => void): void {
    const [first, ...rest] = dims;
    if (first === undefined) {
      body();
      return;
    }
    const { x } = this;
    const [counter, count] = [at(this.counters, first), at(this.plan.spec.dims, first)];
    x.xor(low32(rax), low32(rax)).mov(counter, rax);
    const next = x.here();
    this.loops(rest, body);
    if (count > 1) x.mov(rax, counter).add(rax, 1).mov(counter, rax).cmp(rax, count).j("l", next);
  }

  /** Puts the address of an access at the current counters into rax; the dims from `end` on count as 0. */
  address(access: Access, bytes: number, end: number, index?: Indirection): void {
    const { x } = this;
    if (index) {
      this.clampedIndex(index, end);
      x.imul(rax, rax, index.stride * bytes).add(rax, at(this.bases, access.arg));
    } else x.mov(rax, at(this.bases, access.arg));
    this.addMultiples(access.strides, bytes, end);
  }

  /** Puts Σ counter · coefficient into rax; the dims from `end` on count as 0. */
  iota({ coefficients }: Extract<KernelNode, { kind: "iota" }>, end: number): void {
    this.x.xor(low32(rax), low32(rax));
    this.addMultiples(coefficients, 1, end);
  }

  private addMultiples(factors: readonly number[], unit: number, end: number): void {
    const { x } = this;
    factors.slice(0, end).forEach((factor, d) => {
      if (factor === 0 || this.plan.spec.dims[d] === 1) return;
      x.mov(rdx, at(this.counters, d))
        .imul(rdx, rdx, factor * unit)
        .add(rax, rdx);
    });
  }

  /** Puts an index from memory into rax, at least 0 and less than its limit. */
  private clampedIndex({ access, limit }: Indirection, end: number): void {
    const { x } = this;
    this.address(access, 4, end);
    x.movsxd(rax, { kind: "mem", base: rax, disp: 0, index: undefined, scale: 1 });
    x.xor(low32(rdx), low32(rdx)).cmp(rax, 0).cmov("l", rax, rdx);
    x.mov(low32(rdx), limit - 1)
      .cmp(rax, rdx)
      .cmov("g", rax, rdx);
  }
}
