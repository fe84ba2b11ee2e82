import { getOrInsert } from "../../../ir/collections.js";
import { byteSize } from "../../../ir/dtype.js";
import { InternalError } from "../../../ir/errors.js";
import { at, range } from "../../../ir/shape.js";
import type {
  Iota,
  Loop,
  LoopPlan,
  LoopStage,
  LoopTerm,
  Reduce,
  SectionPlan,
  Store,
  Stream,
  StreamIndex,
  VectorTarget,
} from "../../kernel/loopPlan.js";
import type { LoopRenderer, Position } from "../../kernel/renderLoops.js";
import { maxLive } from "../../wasm/emitInterleaved.js";
import type { Ports } from "../../wasm/vectorProgram.js";
import { X64 } from "../x64/assembler.js";
import { type Gpr, gpr, low32, type Mem, mem, type Vector, type VectorBits, vec } from "../x64/operands.js";
import { combineVectors } from "./x64Combine.js";
import { ConstantPool, SLOT_BYTES, StackFrame } from "./x64Frame.js";
import { repeatWords } from "./x64Lanes.js";
import { type LineTools, type LineValue, loadPinned, numRegisters, planLine, writeLine } from "./x64Line.js";
import { bytesAhead } from "./x64Prefetch.js";
import { loadSplat, loadVector, type StorageTools, splat, storeOne, storeVector } from "./x64Storage.js";

const { rax, rcx, rdx, rbx, rsp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15 } = gpr;

/** Registers that may point to the rows of a loop; rax and rdx hold intermediate results. */
const POINTERS = [rbx, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15];
/** The element of the vectorised dim that the running turn begins with. */
const INDEX = rcx;

/** The partial results of a reduction are at most as many vectors of 128 bits. */
const MAX_PARTIAL_VECTORS = 8;
const MAX_PARTIALS = (MAX_PARTIAL_VECTORS * 16) / SLOT_BYTES;

/** Registers that constants and intermediate results should have besides the values that are alive. */
const SPARE_REGISTERS = 6;

/** What a plan has to know about vectors of up to this width. */
export function vectorTarget(bits: 256 | 512): VectorTarget {
  return {
    widths: [512, 256, 128].filter((width) => width <= bits).map((width) => width / 32),
    copies: (program, width) => {
      const most = (numRegisters(bitsOf(width)) - SPARE_REGISTERS) / maxLive(program);
      return most >= 4 ? 4 : most >= 2 ? 2 : 1;
    },
  };
}

/** The width of vectors of 32-bit elements. */
function bitsOf(lanes: number): VectorBits {
  return lanes === 16 ? 512 : lanes === 8 ? 256 : 128;
}

/**
 * Writes loops as x86-64 code. Streams are addressed by the first element of the row and an index that all share;
 * counters, values of the row and partial results are on the stack.
 */
export class X64Renderer implements LoopRenderer<LineValue> {
  readonly x: X64;
  readonly frame = new StackFrame();
  readonly pool: ConstantPool;
  /** Where the address of every argument is. */
  readonly bases: readonly Mem[];
  /** Where the bounds and the number of the part are. */
  readonly part: { readonly from: Mem; readonly to: Mem; readonly number: Mem };
  private readonly counters: readonly Mem[];
  private readonly rowValues = new Map<number, Mem>();
  /** Those of the open section: where each stream and iota begins, and where in the frame partial results are. */
  private readonly starts = new Map<Stream | Iota, Gpr | Mem>();
  private readonly partials = new Map<Reduce, number>();
  /** Whether the first stage of the open section begins with the identities of its reductions in registers. */
  private beginsInRegisters = false;
  /** The registers of partial results while a stage runs; none when there are too many. */
  private held: ReadonlyMap<Reduce, readonly Vector[]> = new Map();
  /** The vectors of partial results that are in registers while they are joined, by number. */
  private readonly inRegisters = new Set<number>();
  /** How many bytes ahead of streams to prefetch. */
  private readonly ahead: ReadonlyMap<Stream, number>;

  constructor(
    plan: LoopPlan,
    private readonly bits: 256 | 512,
    listing?: string[],
  ) {
    const { frame } = this;
    this.ahead = bytesAhead(plan);
    this.x = new X64(listing);
    this.pool = new ConstantPool(this.x);
    this.bases = plan.args.map(() => frame.word());
    this.counters = plan.dims.map(() => frame.word());
    this.part = { from: frame.word(), to: frame.word(), number: frame.word() };
  }

  loop({ dim, count, isDivided }: Loop, body: () => void): void {
    const { x, part } = this;
    const counter = at(this.counters, dim);
    if (isDivided) x.mov(rax, part.from);
    else x.xor(low32(rax), low32(rax));
    x.mov(counter, rax);
    const next = x.here();
    body();
    if (count === 1 && !isDivided) return;
    x.mov(rax, counter).add(rax, 1).mov(counter, rax);
    x.cmp(rax, isDivided ? part.to : count).j("l", next);
  }

  open({ inputs, outputs, loops, stages, numPartials }: SectionPlan): void {
    const { x, frame } = this;
    this.starts.clear();
    this.partials.clear();
    const free = [...POINTERS];
    for (const input of inputs) {
      this.starts.set(input, (input.kind === "stream" ? free.shift() : undefined) ?? frame.word());
    }
    for (const output of outputs) {
      if (output.kind === "store") this.starts.set(output.stream, free.shift() ?? frame.word());
      if (output.kind === "reduce") this.partials.set(output, frame.vectors(MAX_PARTIALS));
    }
    // A vector that is loaded from where narrower ones were stored waits until everything before it is done.
    this.beginsInRegisters = loops.length === 0 && stages[0] !== undefined && this.isHeld(stages[0]);
    if (this.beginsInRegisters) return;
    const first = vec(128, 0);
    for (const reduction of this.partials.keys()) {
      x.vmovups(first, this.pool.place(repeatWords(reduction.identity, 16)));
      for (const k of range(numPartials)) x.vmovups(this.partial(reduction, k), first);
    }
  }

  /** Whether the partial results of all reductions are in registers while a stage runs. */
  private isHeld({ copies, lanes }: LoopStage): boolean {
    return this.partials.size * copies <= numRegisters(bitsOf(lanes)) / 2;
  }

  start(): void {
    const { x } = this;
    for (const [from, place] of this.starts) {
      if (from.kind === "stream") this.address(from);
      else this.sum(from.terms);
      x.mov(place, rax);
    }
    x.xor(low32(INDEX), low32(INDEX));
  }

  /** Puts the address of a stream's first element at the current counters into rax. */
  private address({ arg, dtype, offset, terms, index }: Stream): void {
    const { x } = this;
    const bytes = byteSize(dtype);
    const base = at(this.bases, arg);
    if (index) {
      this.clampedIndex(index);
      x.imul(rax, rax, index.factor * bytes).add(rax, base);
    } else x.mov(rax, base);
    if (offset !== 0) x.add(rax, offset * bytes);
    this.addTerms(terms, bytes);
  }

  /** Puts the sum of some terms into rax. */
  private sum(terms: readonly LoopTerm[]): void {
    this.x.xor(low32(rax), low32(rax));
    this.addTerms(terms, 1);
  }

  private addTerms(terms: readonly LoopTerm[], unit: number): void {
    const { x } = this;
    for (const { dim, factor } of terms) {
      x.mov(rdx, at(this.counters, dim));
      x.imul(rdx, rdx, factor * unit).add(rax, rdx);
    }
  }

  /** Puts an index from memory into rax, at least 0 and less than its limit. */
  private clampedIndex({ stream, limit }: StreamIndex): void {
    const { x } = this;
    this.address(stream);
    x.movsxd(rax, mem(rax));
    x.xor(low32(rdx), low32(rdx)).cmp(rax, 0).cmov("l", rax, rdx);
    x.mov(low32(rdx), limit - 1);
    x.cmp(rax, rdx).cmov("g", rax, rdx);
  }

  whereInRange(): void {
    throw new InternalError("[X64Renderer] stores through an index stay WebAssembly");
  }

  stage(section: SectionPlan, stage: LoopStage, ports: Ports<LineValue>): void {
    const { x } = this;
    const { copies, count } = stage;
    const bits = bitsOf(stage.lanes);
    // Partial results are in the last registers, one for each copy, while a stage runs.
    const reductions = section.isRow ? [] : [...this.partials.keys()];
    const isHeld = this.isHeld(stage);
    const line = planLine(section.program, bits, copies, isHeld ? reductions.length * copies : 0, count > 1);
    const last = numRegisters(bits) - 1;
    this.held = new Map(
      (isHeld ? reductions : []).map((reduction, r) => [
        reduction,
        range(copies).map((copy) => vec(bits, last - r * copies - copy)),
      ]),
    );
    const tools = this.lineTools(section);
    const isFirst = this.beginsInRegisters && stage === section.stages[0];
    this.movePartials((partial, place, { identity }) => {
      const first = isFirst ? this.pool.place(repeatWords(identity, this.bits / 8)) : place;
      x.vmovups(partial, first);
    });
    loadPinned(tools, line);
    if (count > 1) x.align(32);
    const loop = x.here();
    writeLine(tools, line, ports);
    if (section.isRow) return;
    x.add(INDEX, stage.elements);
    if (count > 1) x.cmp(INDEX, stage.end).j("l", loop);
    this.movePartials((partial, place) => x.vmovups(place, partial));
  }

  /** Moves partial results between the registers of a stage and the stack. */
  private movePartials(move: (partial: Vector, place: Mem, reduction: Reduce) => void): void {
    for (const [reduction, vectors] of this.held) {
      for (const [copy, vector] of vectors.entries())
        move(vector, this.partial(reduction, copy, vector.bits), reduction);
    }
  }

  /** Where a vector of partial results is on the stack. */
  private partial(reduction: Reduce, k: number, bits: VectorBits = 128): Mem {
    return mem(rsp, (this.partials.get(reduction) ?? 0) + (k * bits) / 8);
  }

  /** What the straight-line code of a section is written with. */
  private lineTools({ uniforms }: SectionPlan): LineTools {
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

  /** A constant with the same 32 bits in every lane. */
  private constant(word: number): Mem {
    return this.pool.place(repeatWords([word, word, word, word], this.bits / 8));
  }

  private rowValue(node: number): Mem {
    return getOrInsert(this.rowValues, node, () => this.frame.vector());
  }

  private storage(temporary: () => Vector): StorageTools {
    return { x: this.x, constant: (word) => this.constant(word), temporary };
  }

  /** The place of the element that many elements after the current one. */
  private place(stream: Stream, behind: number): Mem {
    const pointer = this.starts.get(stream);
    const bytes = byteSize(stream.dtype);
    if (pointer === undefined) {
      this.address(stream);
      return mem(rax);
    }
    const base = pointer.kind === "gpr" ? pointer : rdx;
    if (pointer.kind !== "gpr") this.x.mov(rdx, pointer);
    if (stream.step === 0) return mem(base);
    return mem(base, behind * bytes, INDEX, bytes === 1 ? 1 : bytes === 2 ? 2 : 4);
  }

  load({ vector, temporary }: LineValue, stream: Stream, { stage, first }: Position): void {
    const from = this.place(stream, first);
    const load = stage.isSingle || stream.step === 0 ? loadSplat : loadVector;
    load(this.storage(temporary), stream.dtype, vector, from);
    this.prefetch(stream, from, first);
  }

  /** Prefetches what a stream reads later, once for every line of the cache. */
  private prefetch(stream: Stream, from: Mem, first: number): void {
    const ahead = this.ahead.get(stream);
    if (ahead === undefined || from.kind !== "mem" || (first * byteSize(stream.dtype)) % 64 !== 0) return;
    this.x.prefetcht0(mem(from.base, from.disp + ahead, from.index, from.scale));
  }

  iota({ vector }: LineValue, iota: Iota, { stage, first }: Position): void {
    const { x } = this;
    const { step } = iota;
    const start = this.starts.get(iota);
    if (start === undefined) this.sum(iota.terms);
    else x.mov(rax, start);
    if (step !== 0) x.imul(rdx, INDEX, step).add(rax, rdx);
    splat(x, vector);
    if (step === 0 || stage.isSingle) return;
    const lanes = Int32Array.from({ length: stage.lanes }, (_, lane) => (first + lane) * step);
    x.vpaddd(vector, vector, this.pool.place(new Uint8Array(lanes.buffer)));
  }

  store({ vector, temporary }: LineValue, { stream, combine }: Store, { stage, first }: Position): void {
    const { dtype } = stream;
    const storage = this.storage(temporary);
    const place = this.place(stream, first);
    let stored = vector;
    if (combine !== undefined) {
      const before = temporary();
      (stage.isSingle ? loadSplat : loadVector)(storage, dtype, before, place);
      stored = temporary();
      combineVectors(storage, combine, stored, before, vector);
    }
    (stage.isSingle ? storeOne : storeVector)(storage, dtype, place, stored);
  }

  /** Adds to the partial results in a register, or on the stack when there are too many. */
  accumulate({ vector, temporary }: LineValue, reduction: Reduce, { stage, copy }: Position): void {
    const { x } = this;
    const home = this.partial(reduction, copy, vector.bits);
    const held = this.held.get(reduction)?.[copy];
    const partial = held ?? temporary();
    if (held === undefined) x.vmovups(partial, home);
    let added = vector;
    if (stage.isSingle && reduction.isSum) {
      added = temporary();
      x.vpand(added, vector, this.pool.place(repeatWords([0xffffffff, 0, 0, 0], 16)));
    }
    combineVectors(this.storage(temporary), reduction.combine, partial, partial, added);
    if (held === undefined) x.vmovups(home, partial);
  }

  join(reduction: Reduce, first: number, second: number): void {
    const sum = this.joined(reduction, first);
    combineVectors(this.besideJoined(), reduction.combine, sum, sum, this.joined(reduction, second));
  }

  finish(reduction: Reduce): void {
    const sum = this.joined(reduction, 0);
    for (const [a, b, c, d] of reduction.folds) {
      this.x.vpshufd(TURNED, sum, a | (b << 2) | (c << 4) | (d << 6));
      combineVectors(this.besideJoined(), reduction.combine, sum, sum, TURNED);
    }
    this.keepLowest(sum, reduction.node);
    this.inRegisters.clear();
  }

  /** A vector of partial results, from the first time on in the register of its number. */
  private joined(reduction: Reduce, k: number): Vector {
    const vector = vec(128, k);
    if (!this.inRegisters.has(k)) this.x.vmovups(vector, this.partial(reduction, k));
    this.inRegisters.add(k);
    return vector;
  }

  private besideJoined(): StorageTools {
    let used = TURNED.id + 1;
    return this.storage(() => vec(128, used++));
  }

  keep({ vector }: LineValue, node: number): void {
    this.keepLowest(vector, node);
  }

  /** Keeps the lowest lane of 128 bits as the value that a node has in the running row. */
  private keepLowest({ id }: Vector, node: number): void {
    const wide = vec(this.bits, id);
    this.x.vbroadcastss(wide, vec(128, id)).vmovups(this.rowValue(node), wide);
  }
}

/** The register behind those of partial results while these are joined. */
const TURNED = vec(128, MAX_PARTIAL_VECTORS);
