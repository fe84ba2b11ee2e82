import { getOrInsert } from "../../ir/collections.js";
import { byteSize, type DType } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";
import { at, range } from "../../ir/shape.js";
import {
  chooseUnroll,
  emitInterleaved,
  type HostImports,
  type PreparedVectors,
  prepareProgram,
} from "../wasm/emitInterleaved.js";
import type { FunctionBody, Local } from "../wasm/functionBody.js";
import type { VectorOp } from "../wasm/opcodes.js";
import type { Ports } from "../wasm/vectorProgram.js";
import { emitGather, emitLoad, emitSplat, emitStore, emitStoreOne, type LaneCount } from "./kernelMemory.js";
import {
  type Iota,
  type Loop,
  type LoopPlan,
  type LoopStage,
  type LoopTerm,
  planLoops,
  type Reduce,
  type SectionPlan,
  type Store,
  type Stream,
  type StreamIndex,
} from "./loopPlan.js";
import type { KernelPlan } from "./phases.js";
import { type LoopRenderer, type Position, renderLoops } from "./renderLoops.js";

/**
 * Writes the function body of a kernel. Parameters are the address table and the argument list; a kernel that is
 * divided among threads also takes the first row of a part, the row after its last, and the part's number.
 */
export function emitKernel(
  code: FunctionBody,
  plan: KernelPlan,
  host: HostImports,
  isDivided: boolean,
): void {
  const lanes = plan.spec.nodes.some(({ dtype }) => dtype === "float64") ? 2 : 4;
  const loops = planLoops(plan, isDivided, {
    widths: [lanes],
    copies: (program) => chooseUnroll(program, plan.features.fewRegisters),
  });
  renderLoops(loops, new WasmRenderer(code, loops, lanes, host));
}

/** Writes loops as WebAssembly. Vectors are locals, and each stream has a pointer that moves along with the loop. */
class WasmRenderer implements LoopRenderer<Local> {
  private readonly bases: readonly Local[];
  private readonly counters: readonly Local[];
  private readonly rowValues = new Map<number, Local>();
  private readonly temporaries = new Map<string, Local>();
  private readonly programs: ReadonlyMap<SectionPlan, PreparedVectors>;
  /** State of the open section: a pointer to the current element of each stream, and the current value of each iota. */
  private readonly pointers = new Map<Stream, Local>();
  private readonly iotas = new Map<Iota, Local>();
  private readonly partials = new Map<Reduce, readonly Local[]>();

  constructor(
    private readonly code: FunctionBody,
    private readonly plan: LoopPlan,
    private readonly lanes: LaneCount,
    host: HostImports,
  ) {
    this.bases = plan.args.map(() => code.local("address"));
    this.counters = plan.dims.map(() => code.local("i32"));
    this.resolveArguments();
    for (const { arg, count, value } of plan.fills) this.fill(arg, count, value);
    this.programs = new Map(
      plan.sections.map((section) => {
        const uniform = (slot: number) => this.rowValue(at(section.uniforms, slot));
        return [section, prepareProgram(code, section.program, host, uniform)];
      }),
    );
  }

  /** Finds the address of every argument; each part of a divided kernel has scratch memory of its own. */
  private resolveArguments(): void {
    const { code, plan } = this;
    const [table, args] = [code.param(0), code.param(1)];
    this.bases.forEach((base, k) => {
      const pair = 2 * k * code.addressBytes;
      code.get(args).loadAddress(pair).get(table).op("address.add").loadAddress();
      code.get(args).loadAddress(pair + code.addressBytes);
      code.op("address.add").set(base);
    });
    if (!plan.loops[0]?.isDivided) return;
    plan.scratch.forEach((bytes, i) => {
      const base = at(this.bases, plan.args.length - plan.scratch.length + i);
      code.get(code.param(4)).toAddress().address(bytes).op("address.mul");
      code.get(base).op("address.add").set(base);
    });
  }

  private fill(arg: number, count: number, value: number): void {
    const { code } = this;
    const dtype = at(this.plan.args, arg);
    const bytes = byteSize(dtype);
    const base = at(this.bases, arg);
    const [divided] = this.plan.loops;
    if (divided?.isDivided) {
      // Only zeros are divided among threads.
      const share = (count / divided.count) * bytes;
      const [from, to] = [code.param(2), code.param(3)];
      code.get(base).get(from).toAddress().address(share).op("address.mul").op("address.add").i32(0);
      code.get(to).get(from).op("i32.sub").toAddress().address(share).op("address.mul").memoryFill();
      return;
    }
    if (value === 0) {
      const length = count * bytes;
      code.get(base).i32(0).address(length).memoryFill();
      return;
    }
    const pointer = this.temporary("fill", "address");
    code.get(base).set(pointer);
    this.repeat(this.innermost, count, () => {
      code.get(pointer);
      if (dtype === "float64") code.f64(value).memory("f64.store");
      else if (dtype === "float32") code.f32(value).memory("f32.store");
      else code.i32(value).memory(bytes === 4 ? "i32.store" : "i32.store8");
      code.advance(pointer, bytes);
    });
  }

  /** The counter of the vectorised dim. */
  private get innermost(): Local {
    return at(this.counters, this.counters.length - 1);
  }

  private rowValue(node: number): Local {
    return getOrInsert(this.rowValues, node, () => this.code.local("v128"));
  }

  private temporary(name: string, type: "i32" | "address" | "v128"): Local {
    return getOrInsert(this.temporaries, name, () => this.code.local(type));
  }

  loop({ dim, count, isDivided }: Loop, body: () => void): void {
    const { code } = this;
    const counter = at(this.counters, dim);
    if (!isDivided) {
      this.repeat(counter, count, body);
      return;
    }
    code.get(code.param(2)).set(counter);
    code.loop((next) => {
      body();
      code.get(counter).i32(1).op("i32.add").tee(counter).get(code.param(3)).op("i32.lt_s").brIf(next);
    });
  }

  /** Runs a body `count` ≥ 1 times with a counter from 0. */
  private repeat(counter: Local, count: number, body: () => void): void {
    const { code } = this;
    code.i32(0).set(counter);
    if (count === 1) {
      body();
      return;
    }
    code.loop((next) => {
      body();
      code.get(counter).i32(1).op("i32.add").tee(counter).i32(count).op("i32.lt_s").brIf(next);
    });
  }

  open({ inputs, outputs, numPartials }: SectionPlan): void {
    const { code } = this;
    for (const places of [this.pointers, this.iotas, this.partials]) places.clear();
    for (const input of inputs) {
      if (input.kind === "iota") this.iotas.set(input, code.local("i32"));
      else this.pointers.set(input, code.local("address"));
      if (input.kind === "stream" && input.index)
        this.pointers.set(input.index.stream, code.local("address"));
    }
    for (const output of outputs) {
      if (output.kind === "store") this.pointers.set(output.stream, code.local("address"));
      if (output.kind !== "reduce") continue;
      const locals = range(numPartials).map(() => code.local("v128"));
      this.partials.set(output, locals);
    }
    for (const [{ identity }, locals] of this.partials) {
      for (const local of locals) code.v128(identity).set(local);
    }
  }

  start({ inputs, outputs }: SectionPlan): void {
    const { code } = this;
    const streams = inputs.filter((input) => input.kind === "stream");
    const stored = outputs.flatMap((output) => (output.kind === "store" ? [output.stream] : []));
    for (const stream of [...streams, ...stored]) this.setPointer(stream);
    for (const stream of streams) {
      const { index, dtype } = stream;
      if (!index) continue;
      this.setPointer(index.stream);
      if (index.stream.step !== 0) continue;
      const pointer = this.pointer(stream);
      code.get(this.pointer(index.stream));
      this.pushIndex(index, byteSize(dtype));
      code.get(pointer).op("address.add").set(pointer);
    }
    for (const [{ terms }, local] of this.iotas) {
      this.pushSum(terms);
      code.set(local);
    }
  }

  private pointer(stream: Stream): Local {
    const pointer = this.pointers.get(stream);
    if (pointer === undefined)
      throw new InternalError("[WasmRenderer] a stream of a section that is not open");
    return pointer;
  }

  private setPointer(stream: Stream): void {
    this.pushAddress(stream);
    this.code.set(this.pointer(stream));
  }

  /** Pushes the address of a stream's first element at the current counters, as if it had no index. */
  private pushAddress({ arg, dtype, offset, terms }: Stream): void {
    const { code } = this;
    code.get(at(this.bases, arg));
    if (offset !== 0) code.address(offset * byteSize(dtype)).op("address.add");
    for (const { dim, factor } of terms) {
      const bytes = factor * byteSize(dtype);
      code.get(at(this.counters, dim)).toAddress().address(bytes).op("address.mul").op("address.add");
    }
  }

  private pushSum(terms: readonly LoopTerm[]): void {
    const { code } = this;
    code.i32(0);
    for (const { dim, factor } of terms) {
      code.get(at(this.counters, dim)).i32(factor).op("i32.mul").op("i32.add");
    }
  }

  /** Pushes the bytes of an index that is read at the address on the stack and clamped. */
  private pushIndex({ limit, factor }: StreamIndex, bytes: number): void {
    const { code } = this;
    const value = this.temporary("index", "i32");
    const most = limit - 1;
    code.memory("i32.load").set(value);
    code.get(value).i32(0).get(value).i32(0).op("i32.gt_s").op("select").set(value);
    code.get(value).i32(most).get(value).i32(most).op("i32.lt_s").op("select").toAddress();
    code.address(factor * bytes).op("address.mul");
  }

  whereInRange(stream: Stream, body: () => void): void {
    const { index } = stream;
    if (index) this.movedByIndex(index.stream, index, stream.dtype, this.pointer(stream), body);
    else body();
  }

  /** Moves a pointer by an index and runs the body if the index is in range. */
  private movedByIndex(
    from: Stream,
    { limit, factor }: StreamIndex,
    dtype: DType,
    pointer: Local,
    body: () => void,
  ): void {
    const { code } = this;
    const place = this.temporary("place", "i32");
    const bytes = factor * byteSize(dtype);
    this.pushAddress(from);
    code.memory("i32.load").tee(place).i32(limit).op("i32.lt_u");
    code.if(() => {
      code.get(place).toAddress().address(bytes).op("address.mul");
      code.get(pointer).op("address.add").set(pointer);
      body();
    });
  }

  stage(section: SectionPlan, stage: LoopStage, ports: Ports<Local>): void {
    const program = this.programs.get(section);
    if (program === undefined) throw new InternalError("[WasmRenderer] a section of another kernel");
    const turn = () => emitInterleaved(this.code, program, stage.copies, ports);
    if (section.isRow) turn();
    else {
      this.repeat(this.innermost, stage.count, () => {
        turn();
        this.advance(stage.elements);
      });
    }
  }

  private advance(elements: number): void {
    for (const [{ step, dtype }, pointer] of this.pointers) {
      if (step !== 0) this.code.advance(pointer, elements * step * byteSize(dtype));
    }
    for (const [{ step }, local] of this.iotas) if (step !== 0) this.code.increment(local, elements * step);
  }

  load(to: Local, stream: Stream, { stage, first }: Position): void {
    const { code } = this;
    const { index, dtype, step } = stream;
    if (index && index.stream.step !== 0) this.gather(stream, index, stage, first);
    else if (stage.isSingle || step === 0) {
      this.pushElement(stream);
      emitSplat(code, dtype);
    } else {
      const [pointer, offset] = this.vectorAt(stream, first);
      emitLoad(code, dtype, this.lanes, pointer, step, offset);
    }
    code.set(to);
  }

  /** Pushes the address of the running element. */
  private pushElement(stream: Stream): void {
    const { code } = this;
    const pointer = this.pointers.get(stream);
    if (pointer !== undefined) {
      code.get(pointer);
      return;
    }
    this.pushAddress(stream);
    if (!stream.index) return;
    this.pushAddress(stream.index.stream);
    this.pushIndex(stream.index, byteSize(stream.dtype));
    code.op("address.add");
  }

  /** A pointer and an offset for the vector that begins `first` elements after the current one. */
  private vectorAt(stream: Stream, first: number): readonly [pointer: Local, offset: number] {
    const { code } = this;
    const pointer = this.pointer(stream);
    const offset = first * stream.step * byteSize(stream.dtype);
    if (offset >= 0) return [pointer, offset];
    // Negative distances do not fit the immediate offsets of loads and stores.
    const behind = this.temporary("behind", "address");
    code.get(pointer).address(offset).op("address.add").set(behind);
    return [behind, 0];
  }

  /** Pushes a vector of which every element has an index of its own. */
  private gather(stream: Stream, index: StreamIndex, { isSingle }: LoopStage, first: number): void {
    const { code } = this;
    const bytes = byteSize(stream.dtype);
    const push = (k: number) => {
      const element = first + k;
      code.get(this.pointer(stream)).address(element * stream.step * bytes);
      code.op("address.add");
      code.get(this.pointer(index.stream)).address(element * index.stream.step * 4);
      code.op("address.add");
      this.pushIndex(index, bytes);
      code.op("address.add");
    };
    if (isSingle) {
      push(0);
      emitSplat(code, stream.dtype);
    } else emitGather(code, stream.dtype, this.lanes, this.temporary("gathered", "v128"), push);
  }

  iota(to: Local, iota: Iota, { stage, first }: Position): void {
    const { code } = this;
    const { step } = iota;
    const start = this.iotas.get(iota);
    if (start === undefined) this.pushSum(iota.terms);
    else
      code
        .get(start)
        .i32(first * step)
        .op("i32.add");
    code.vector("i32x4.splat");
    if (step !== 0 && !stage.isSingle) code.v128([0, step, 2 * step, 3 * step]).vector("i32x4.add");
    code.set(to);
  }

  store(value: Local, { stream, combine }: Store, { stage, first }: Position): void {
    const { code, lanes } = this;
    const { dtype, step } = stream;
    if (stage.isSingle) {
      this.storeElement(value, stream, combine);
      return;
    }
    const [pointer, offset] = this.vectorAt(stream, first);
    const combined = this.combined(value, combine, () => emitLoad(code, dtype, lanes, pointer, step, offset));
    emitStore(code, dtype, lanes, pointer, step, offset, combined);
  }

  private storeElement(value: Local, stream: Stream, combine: VectorOp | undefined): void {
    const { code } = this;
    const { dtype, index } = stream;
    let pointer = this.pointers.get(stream);
    if (pointer === undefined) {
      pointer = this.temporary("rowPointer", "address");
      this.pushAddress(stream);
      code.set(pointer);
    }
    const write = (to: Local) => {
      const combined = this.combined(value, combine, () => {
        code.get(to);
        emitSplat(code, dtype);
      });
      emitStoreOne(code, dtype, to, combined);
    };
    if (!index || index.stream.step === 0) {
      write(pointer);
      return;
    }
    // The index changes with every element: the counter of this loop is the element of the vectorised dim.
    const element = this.temporary("elementPointer", "address");
    const dim = this.plan.dims.length - 1;
    const terms = [...index.stream.terms, { dim, factor: index.stream.step }];
    code.get(pointer).set(element);
    this.movedByIndex({ ...index.stream, terms }, index, dtype, element, () => write(element));
  }

  /** The local that holds a value combined with the one that `pushOther` pushes. */
  private combined(value: Local, combine: VectorOp | undefined, pushOther: () => void): Local {
    if (combine === undefined) return value;
    const sum = this.temporary("sum", "v128");
    pushOther();
    this.code.get(value).vector(combine).set(sum);
    return sum;
  }

  accumulate(value: Local, reduction: Reduce, { stage, copy }: Position): void {
    const { code } = this;
    const partial = this.partial(reduction, copy);
    code.get(partial).get(value);
    if (stage.isSingle && reduction.isSum)
      code.v128(reduction.dtype === "float64" ? [-1, -1, 0, 0] : [-1, 0, 0, 0]).vector("v128.and");
    code.vector(reduction.combine).set(partial);
  }

  private partial(reduction: Reduce, k: number): Local {
    return at(this.partials.get(reduction) ?? [], k);
  }

  join(reduction: Reduce, first: number, second: number): void {
    const [a, b] = [this.partial(reduction, first), this.partial(reduction, second)];
    this.code.get(a).get(b).vector(reduction.combine).set(a);
  }

  finish(reduction: Reduce): void {
    const result = this.partial(reduction, 0);
    for (const order of reduction.folds) {
      this.code.get(result).get(result).get(result).shuffle(order).vector(reduction.combine).set(result);
    }
    this.keep(result, reduction.node);
  }

  keep(value: Local, node: number): void {
    this.code.get(value).set(this.rowValue(node));
  }
}
