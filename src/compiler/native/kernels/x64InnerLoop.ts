import { byteSize, type DType } from "../../../ir/dtype.js";
import { InternalError } from "../../../ir/errors.js";
import { at, range, rowMajorStrides } from "../../../ir/shape.js";
import { identityOf } from "../../identities.js";
import { identityWords } from "../../kernel/innerLoop.js";
import { combineInstruction } from "../../kernel/lanes.js";
import type { KernelPlan } from "../../kernel/phases.js";
import type { Section } from "../../kernel/section.js";
import type { Access, Indirection, KernelNode } from "../../kernel/spec.js";
import { type Gpr, low32, type Mem, mem, rax, rcx, rdx, rsp, type Vector, vec } from "../x64/operands.js";
import { combineVectors } from "./x64Combine.js";
import { SLOT_BYTES } from "./x64Frame.js";
import { type KernelTools, POINTERS } from "./x64KernelTools.js";
import { repeatWords } from "./x64Lanes.js";
import { type LineTools, loadPinned, numRegisters, planLine, writeLine } from "./x64Line.js";
import { elementsOf, planStages, type Stage } from "./x64Stages.js";
import { loadSplat, loadVector, splat, storeOne, storeVector } from "./x64Storage.js";

/** The element of the vectorised dim that the running turn begins with. */
const INDEX = rcx;

/** A place that the loop reads or writes, with where the address of the row's first element is. */
interface Stream {
  readonly access: Access;
  readonly dtype: DType;
  readonly pointer: Gpr | Mem;
}

/** What an input slot of the section is at the running row. */
type Input =
  | { readonly kind: "stream"; readonly stream: Stream }
  /** The number at the first element of the row, and the distance from element to element. */
  | { readonly kind: "iota"; readonly start: Mem; readonly step: number };

/** One reduction of the section: its partial results on the stack between stages. */
interface Reduction {
  readonly output: number;
  readonly node: Extract<KernelNode, { kind: "reduce" }>;
  readonly index: number;
  /** Where the vectors of partial results begin in the frame. */
  readonly place: number;
}

/** One run through the inner dims of a row, as `InnerLoop` of the WebAssembly kernels. */
export class X64InnerLoop {
  private readonly last: number;
  private readonly stages: readonly Stage[];
  private readonly inputs: readonly Input[];
  private readonly outputs = new Map<number, Stream>();
  private readonly reductions: readonly Reduction[];
  private readonly lineTools: LineTools;
  private numPointers = 0;

  constructor(
    private readonly tools: KernelTools,
    private readonly plan: KernelPlan,
    private readonly section: Section,
  ) {
    const { spec } = plan;
    this.last = spec.dims.length - 1;
    this.lineTools = tools.forSection(section);
    const reduces = section.outputs.some(({ kind }) => kind === "reduce");
    this.stages = planStages(section.program, at(spec.dims, this.last), tools.bits, reduces);
    this.inputs = section.inputs.map(({ kind, node }) => this.input(node, kind === "spill"));
    this.reductions = section.outputs.flatMap((output, i) => {
      if (output.kind === "store")
        this.outputs.set(i, this.stream(output.store.access, at(spec.nodes, output.store.node).dtype));
      else if (output.kind === "spill") this.outputs.set(i, this.spillStream(output.node));
      if (output.kind !== "reduce") return [];
      const node = at(spec.nodes, output.node);
      if (node.kind !== "reduce") throw new InternalError("[X64InnerLoop] only reductions are reduced");
      return [{ output: i, node, index: output.node, place: tools.frame.vectors(MOST_PARTIALS) }];
    });
  }

  /** Writes the loops. */
  write(): void {
    const { spec } = this.plan;
    this.startReductions();
    this.tools.loops(range(this.last).slice(spec.numRows), () => {
      this.setPointers();
      this.tools.x.xor(low32(INDEX), low32(INDEX));
      let end = 0;
      for (const stage of this.stages) {
        end += stage.count * elementsOf(stage);
        this.stage(stage, end);
      }
    });
    for (const reduction of this.reductions) this.finishReduction(reduction);
  }

  private stream(access: Access, dtype: DType): Stream {
    const pointer = POINTERS[this.numPointers++] ?? this.tools.frame.word();
    return { access, dtype, pointer };
  }

  private spillStream(node: number): Stream {
    const { dims, numRows, args } = this.plan.spec;
    const strides = [...range(numRows).map(() => 0), ...rowMajorStrides(dims.slice(numRows))];
    return this.stream({ arg: args.length + this.plan.spills.indexOf(node), strides }, "float32");
  }

  private input(index: number, isSpilled: boolean): Input {
    const node = at(this.plan.spec.nodes, index);
    if (isSpilled) return { kind: "stream", stream: this.spillStream(index) };
    if (node.kind === "load") return { kind: "stream", stream: this.stream(node.access, node.dtype) };
    if (node.kind !== "iota") throw new InternalError("[X64InnerLoop] only loads and iotas are inputs");
    return { kind: "iota", start: this.tools.frame.word(), step: at(node.coefficients, this.last) };
  }

  private setPointers(): void {
    const { x } = this.tools;
    const point = ({ access, dtype, pointer }: Stream, index?: Indirection): void => {
      this.tools.address(access, byteSize(dtype), this.last, index);
      x.mov(pointer, rax);
    };
    this.inputs.forEach((input, slot) => {
      const node = at(this.plan.spec.nodes, at(this.section.inputs, slot).node);
      if (input.kind === "stream") {
        const isLoad = at(this.section.inputs, slot).kind === "node" && node.kind === "load";
        point(input.stream, isLoad ? node.index : undefined);
      } else if (node.kind === "iota") {
        this.tools.iota(node, this.last);
        x.mov(input.start, rax);
      }
    });
    for (const stream of this.outputs.values()) point(stream);
  }

  /** The place of an element some elements behind the running one. */
  private at({ access, dtype, pointer }: Stream, behind: number): Mem {
    const bytes = byteSize(dtype);
    let base = pointer;
    if (base.kind !== "gpr") {
      this.tools.x.mov(rdx, base);
      base = rdx;
    }
    if (at(access.strides, this.last) === 0) return mem(base);
    return mem(base, behind * bytes, INDEX, bytes === 1 ? 1 : bytes === 2 ? 2 : 4);
  }

  private stage(stage: Stage, end: number): void {
    const { x } = this.tools;
    const { bits, copies, count } = stage;
    const { program } = this.section;
    // Partial results are in the last registers, one for each copy, while a stage runs.
    const reserved = this.reductions.length * copies;
    const isHeld = reserved <= numRegisters(bits) / 2;
    const line = planLine(program, bits, copies, isHeld ? reserved : 0, count > 1);
    const held = (reduction: number, copy: number): Vector =>
      vec(bits, numRegisters(bits) - 1 - reduction * copies - copy);
    const movePartials = (move: (partial: Vector, place: Mem) => void) => {
      if (!isHeld) return;
      this.reductions.forEach(({ place }, r) => {
        for (const copy of range(copies)) move(held(r, copy), mem(rsp, place + (copy * bits) / 8));
      });
    };
    movePartials((partial, place) => x.vmovups(partial, place));
    loadPinned(this.lineTools, line);
    if (count > 1) x.align(32);
    const loop = x.here();
    writeLine(this.lineTools, line, {
      input: (slot, copy, to, temporary) => this.load(stage, slot, copy, to, temporary),
      output: (index, copy, value, temporary) => {
        const r = this.reductions.findIndex(({ output }) => output === index);
        if (r < 0) this.store(stage, index, copy, value, temporary);
        else this.accumulate(stage, r, copy, value, temporary, isHeld ? held(r, copy) : undefined);
      },
    });
    x.add(INDEX, elementsOf(stage));
    if (count > 1) x.cmp(INDEX, end).j("l", loop);
    movePartials((partial, place) => x.vmovups(place, partial));
  }

  private load(stage: Stage, slot: number, copy: number, to: Vector, temporary: () => Vector): void {
    const { tools } = this;
    const input = at(this.inputs, slot);
    const first = copy * elementsOf({ ...stage, copies: 1 });
    if (input.kind === "stream") {
      const { stream } = input;
      const from = this.at(stream, first);
      const isSplat = stage.mode === "single" || at(stream.access.strides, this.last) === 0;
      (isSplat ? loadSplat : loadVector)({ ...tools.storage, temporary }, stream.dtype, to, from);
      return;
    }
    const { start, step } = input;
    tools.x.mov(rax, start);
    if (step !== 0) tools.x.imul(rdx, INDEX, step).add(rax, rdx);
    splat(tools.x, to);
    if (step === 0 || stage.mode === "single") return;
    const lanes = Int32Array.from({ length: stage.bits / 32 }, (_, lane) => (first + lane) * step);
    tools.x.vpaddd(to, to, tools.pool.place(new Uint8Array(lanes.buffer)));
  }

  private store(stage: Stage, index: number, copy: number, value: Vector, temporary: () => Vector): void {
    const { tools } = this;
    const stream = this.outputs.get(index);
    const output = at(this.section.outputs, index);
    if (stream === undefined) return;
    const { dtype } = stream;
    const place = this.at(stream, copy * elementsOf({ ...stage, copies: 1 }));
    const storage = { ...tools.storage, temporary };
    let stored = value;
    if (output.kind === "store" && output.store.combine !== undefined) {
      const before = temporary();
      (stage.mode === "single" ? loadSplat : loadVector)(storage, dtype, before, place);
      stored = temporary();
      combineVectors(storage, combineInstruction(output.store.combine, dtype), stored, before, value);
    }
    (stage.mode === "single" ? storeOne : storeVector)(storage, dtype, place, stored);
  }

  /** Adds to the partial results in a register, or on the stack when there are too many. */
  private accumulate(
    stage: Stage,
    reduction: number,
    copy: number,
    value: Vector,
    temporary: () => Vector,
    held: Vector | undefined,
  ): void {
    const { tools } = this;
    const { node, place } = at(this.reductions, reduction);
    const storage = { ...tools.storage, temporary };
    const home = mem(rsp, place + (copy * stage.bits) / 8);
    const partial = held ?? temporary();
    if (held === undefined) tools.x.vmovups(partial, home);
    let added = value;
    if (stage.mode === "single" && node.combine === "sum") {
      added = temporary();
      tools.x.vpand(added, value, tools.pool.place(repeatWords([0xffffffff, 0, 0, 0], 16)));
    }
    combineVectors(storage, combineInstruction(node.combine, node.dtype), partial, partial, added);
    if (held === undefined) tools.x.vmovups(home, partial);
  }

  /** How many vectors of 128 bits the partial results of a row take. */
  private get numPartials(): number {
    const widest = this.stages[0];
    return widest === undefined ? 1 : Math.max(1, (widest.copies * widest.bits) / 128);
  }

  private startReductions(): void {
    const { x } = this.tools;
    for (const { node, place } of this.reductions) {
      const words = identityWords(node.dtype, identityOf(node.combine, node.dtype));
      x.vmovups(vec(128, 0), this.tools.pool.place(repeatWords(words, 16)));
      for (const i of range(this.numPartials)) x.vmovups(mem(rsp, place + 16 * i), vec(128, 0));
    }
  }

  /** Combines the partial results of all copies and lanes in the order of the WebAssembly kernels. */
  private finishReduction({ node, index, place }: Reduction): void {
    const { tools } = this;
    const { x } = tools;
    const op = combineInstruction(node.combine, node.dtype);
    const [sum, other] = [vec(128, 0), vec(128, 1)];
    let used = 2;
    const storage = { ...tools.storage, temporary: () => vec(128, used++) };
    const combine = (): void => {
      used = 2;
      combineVectors(storage, op, sum, sum, other);
    };
    const partial = (i: number): Mem => mem(rsp, place + 16 * i);
    for (let half = this.numPartials / 2; half >= 1; half /= 2) {
      for (const k of range(half)) {
        x.vmovups(sum, partial(k)).vmovups(other, partial(k + half));
        combine();
        x.vmovups(partial(k), sum);
      }
    }
    x.vmovups(sum, partial(0));
    for (const order of [0b01_00_11_10, 0b10_11_00_01]) {
      x.vpshufd(other, sum, order);
      combine();
    }
    tools.keepRowValue(index, sum);
  }
}

/** The partial results of a reduction are at most eight vectors of 128 bits. */
const MOST_PARTIALS = (8 * 16) / SLOT_BYTES;
