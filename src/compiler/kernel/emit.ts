import { byteSize, type DType } from "../../ir/dtype.js";
import { at, range, rowMajorStrides } from "../../ir/shape.js";
import { identityOf } from "../identities.js";
import type { FunctionBody, Local } from "../wasm/assembler.js";
import {
  chooseUnroll,
  emitInterleaved,
  type HostImports,
  type PreparedProgram,
  prepareProgram,
} from "../wasm/emitInterleaved.js";
import { float32Bits } from "../wasm/vectorProgram.js";
import { emitGather, emitLoad, emitSplat, emitStore, emitStoreOne, type LaneCount } from "./memory.js";
import type { KernelPlan, Section } from "./phases.js";
import type { Access, Indirection, KernelNode, KernelStore } from "./spec.js";
import { combineInstruction } from "./vectorOps.js";

/** The data types of a kernel's arguments, the scratch rows of its spilled values included. */
export function kernelArgs(plan: KernelPlan): DType[] {
  return [...plan.spec.args, ...plan.spills.map((node) => spillType(plan, node))];
}

/** The bytes of scratch that each spilled value needs. */
export function spillBytes(plan: KernelPlan): number[] {
  const { dims, numRows } = plan.spec;
  const row = dims.slice(numRows).reduce((n, d) => n * d, 1);
  return plan.spills.map((node) => row * byteSize(spillType(plan, node)));
}

function spillType(plan: KernelPlan, node: number): "float64" | "float32" {
  return at(plan.spec.nodes, node).dtype === "float64" ? "float64" : "float32";
}

/** Writes the kernel's function body: parameters are the address table and the argument list. */
export function emitKernel(code: FunctionBody, plan: KernelPlan, host: HostImports): void {
  new KernelEmitter(code, plan, host).emit();
}

/** How a vector loop steps: whole vectors or single elements. */
type Mode = "vector" | "single";

/** A place that a vector loop reads or writes, with the local that points to the current element. */
interface Stream {
  readonly access: Access;
  readonly dtype: DType;
  readonly pointer: Local;
  /** Elements along the vectorised dim. */
  readonly stride: number;
}

class KernelEmitter {
  private readonly lanes: LaneCount;
  private readonly bases: Local[];
  private readonly types: readonly DType[];
  private readonly counters: Local[];
  private readonly left: Local;
  private readonly rowValues = new Map<number, Local>();
  private readonly scratch = new Map<string, Local>();

  constructor(
    private readonly code: FunctionBody,
    private readonly plan: KernelPlan,
    private readonly host: HostImports,
  ) {
    this.types = kernelArgs(plan);
    const { nodes } = plan.spec;
    this.lanes = nodes.some((n) => n.dtype === "float64") ? 2 : 4;
    this.bases = this.types.map(() => code.local("i32"));
    this.counters = plan.spec.dims.map(() => code.local("i32"));
    this.left = code.local("i32");
  }

  emit(): void {
    const { code, plan } = this;
    const { spec } = plan;
    const [table, args] = [code.param(0), code.param(1)];
    this.bases.forEach((base, k) => {
      code
        .get(args)
        .memory("i32.load", 8 * k)
        .get(table)
        .op("i32.add")
        .memory("i32.load");
      code
        .get(args)
        .memory("i32.load", 8 * k + 4)
        .op("i32.add")
        .set(base);
    });
    for (const { arg, count, value } of spec.fills) this.fill(arg, count, value);
    const prepared = plan.phases.map(({ row, inner }) => ({
      row: this.prepare(row),
      inner: this.prepare(inner),
    }));
    const last = this.prepare(plan.last);
    this.loops(range(spec.numRows), () => {
      plan.phases.forEach(({ row, inner }, p) => {
        const programs = at(prepared, p);
        this.rowSection(row, programs.row);
        this.innerSection(inner, programs.inner);
      });
      this.rowSection(plan.last, last);
    });
  }

  private prepare(section: Section): PreparedProgram {
    return prepareProgram(this.code, section.program, {
      uniform: (slot) => this.rowValue(at(section.uniforms, slot)),
      host: this.host,
    });
  }

  private rowValue(node: number): Local {
    const known = this.rowValues.get(node);
    if (known !== undefined) return known;
    const local = this.code.local("v128");
    this.rowValues.set(node, local);
    return local;
  }

  private temporary(name: string, type: "i32" | "v128"): Local {
    const known = this.scratch.get(name);
    if (known !== undefined) return known;
    const local = this.code.local(type);
    this.scratch.set(name, local);
    return local;
  }

  /** Nested counting loops over some dims, the first outermost. */
  private loops(dims: readonly number[], body: () => void): void {
    const [first, ...rest] = dims;
    if (first === undefined) {
      body();
      return;
    }
    this.repeat(at(this.counters, first), at(this.plan.spec.dims, first), () => this.loops(rest, body));
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

  private fill(arg: number, count: number, value: number): void {
    const { code } = this;
    const dtype = at(this.types, arg);
    const bytes = byteSize(dtype);
    const base = at(this.bases, arg);
    if (value === 0 && !Object.is(value, -0)) {
      code
        .get(base)
        .i32(0)
        .i32(count * bytes)
        .memoryFill();
      return;
    }
    const pointer = this.temporary("fill", "i32");
    code.get(base).set(pointer);
    this.repeat(this.left, count, () => {
      code.get(pointer);
      if (dtype === "float64") code.f64(value).memory("f64.store");
      else if (dtype === "float32") code.f32(value).memory("f32.store");
      else if (bytes === 4) code.i32(value).memory("i32.store");
      else code.i32(value).memory("i32.store8");
      code.increment(pointer, bytes);
    });
  }

  /** Pushes the address of an access at the current counters; the dims from `end` on count as 0. */
  private pushAddress(access: Access, bytes: number, end: number): void {
    const { code } = this;
    code.get(at(this.bases, access.arg));
    access.strides.slice(0, end).forEach((stride, d) => {
      if (stride === 0 || this.plan.spec.dims[d] === 1) return;
      code
        .get(at(this.counters, d))
        .i32(stride * bytes)
        .op("i32.mul")
        .op("i32.add");
    });
  }

  /** Pushes `clamp(index) · stride` bytes, the index being read at the address on the stack. */
  private pushIndirect(index: Indirection, bytes: number): void {
    const { code } = this;
    const value = this.temporary("index", "i32");
    code.memory("i32.load").set(value);
    code.get(value).i32(0).get(value).i32(0).op("i32.gt_s").op("select").set(value);
    code
      .get(value)
      .i32(index.limit - 1)
      .get(value)
      .i32(index.limit - 1)
      .op("i32.lt_s")
      .op("select");
    code.i32(index.stride * bytes).op("i32.mul");
  }

  private rowSection(section: Section, prepared: PreparedProgram): void {
    if (section.outputs.length === 0) return;
    const { code } = this;
    const { numRows } = this.plan.spec;
    emitInterleaved(code, prepared, 1, {
      input: (slot) => {
        const input = at(section.inputs, slot);
        const node = at(this.plan.spec.nodes, input.node);
        if (node.kind === "load") {
          this.pushAddress(node.access, byteSize(node.dtype), numRows);
          if (node.index) {
            this.pushAddress(node.index.access, 4, numRows);
            this.pushIndirect(node.index, byteSize(node.dtype));
            code.op("i32.add");
          }
          emitSplat(code, node.dtype);
        } else if (node.kind === "iota") {
          this.pushIota(node, numRows);
          code.vector("i32x4.splat");
        }
      },
      output: (index, _copy, value) => {
        const output = at(section.outputs, index);
        if (output.kind === "keep") code.get(value).set(this.rowValue(output.node));
        else if (output.kind === "store") this.rowStore(output.store, value);
      },
    });
  }

  private rowStore(store: KernelStore, value: Local): void {
    const { code } = this;
    const { dtype } = at(this.plan.spec.nodes, store.node);
    const pointer = this.temporary("rowPointer", "i32");
    this.pushAddress(store.access, byteSize(dtype), this.plan.spec.numRows);
    code.set(pointer);
    this.guarded(store, this.plan.spec.numRows, pointer, dtype, () =>
      this.combineAndStoreOne(store, pointer, dtype, value),
    );
  }

  /** Moves the pointer of an indexed store to where the index says and runs the body if that is in range. */
  private guarded(store: KernelStore, end: number, pointer: Local, dtype: DType, body: () => void): void {
    const { code } = this;
    const { index } = store;
    if (!index) {
      body();
      return;
    }
    const place = this.temporary("place", "i32");
    this.pushAddress(index.access, 4, end);
    code
      .memory("i32.load")
      .tee(place)
      .i32(index.limit)
      .op("i32.lt_u")
      .if(() => {
        code
          .get(place)
          .i32(index.stride * byteSize(dtype))
          .op("i32.mul")
          .get(pointer)
          .op("i32.add")
          .set(pointer);
        body();
      });
  }

  private combineAndStoreOne(store: KernelStore, pointer: Local, dtype: DType, value: Local): void {
    const { code } = this;
    if (!store.combine) {
      emitStoreOne(code, dtype, pointer, value);
      return;
    }
    const sum = this.temporary("sum", "v128");
    code.get(pointer);
    emitSplat(code, dtype);
    code.get(value).vector(combineInstruction(store.combine, dtype)).set(sum);
    emitStoreOne(code, dtype, pointer, sum);
  }

  private pushIota(node: Extract<KernelNode, { kind: "iota" }>, end: number): void {
    const { code } = this;
    code.i32(0);
    node.coefficients.slice(0, end).forEach((c, d) => {
      if (c !== 0) code.get(at(this.counters, d)).i32(c).op("i32.mul").op("i32.add");
    });
  }

  private innerSection(section: Section, prepared: PreparedProgram): void {
    if (section.outputs.length === 0) return;
    new InnerLoop(section, prepared, this.code, this.plan, this.lanes, {
      loops: (dims, body) => this.loops(dims, body),
      repeat: (count, body) => this.repeat(at(this.counters, this.counters.length - 1), count, body),
      pushAddress: (access, bytes, end) => this.pushAddress(access, bytes, end),
      pushIndirect: (index, bytes) => this.pushIndirect(index, bytes),
      pushIota: (node, end) => this.pushIota(node, end),
      guarded: (store, end, pointer, dtype, body) => this.guarded(store, end, pointer, dtype, body),
      combineAndStoreOne: (store, pointer, dtype, value) =>
        this.combineAndStoreOne(store, pointer, dtype, value),
      temporary: (name, type) => this.temporary(name, type),
      rowValue: (node) => this.rowValue(node),
    }).emit();
  }
}

/** What the vector loops need from the kernel around them. */
interface Surroundings {
  loops(dims: readonly number[], body: () => void): void;
  repeat(count: number, body: () => void): void;
  pushAddress(access: Access, bytes: number, end: number): void;
  pushIndirect(index: Indirection, bytes: number): void;
  pushIota(node: Extract<KernelNode, { kind: "iota" }>, end: number): void;
  guarded(store: KernelStore, end: number, pointer: Local, dtype: DType, body: () => void): void;
  combineAndStoreOne(store: KernelStore, pointer: Local, dtype: DType, value: Local): void;
  temporary(name: string, type: "i32" | "v128"): Local;
  rowValue(node: number): Local;
}

/** One run through the inner dims of a row: loops around a vector loop, its remainder and its accumulators. */
class InnerLoop {
  private readonly last: number;
  private readonly inputs: (Stream & { readonly index?: Stream; readonly indirection?: Indirection })[];
  private readonly iotas = new Map<number, { readonly local: Local; readonly step: number }>();
  private readonly outputs = new Map<number, Stream>();
  private readonly accumulators = new Map<number, Local[]>();
  private readonly unroll: number;

  constructor(
    private readonly section: Section,
    private readonly prepared: PreparedProgram,
    private readonly code: FunctionBody,
    private readonly plan: KernelPlan,
    private readonly lanes: LaneCount,
    private readonly around: Surroundings,
  ) {
    const { spec } = plan;
    this.last = spec.dims.length - 1;
    const size = at(spec.dims, this.last);
    let unroll: number = this.hasInnerIndexedStore() ? 1 : chooseUnroll(section.program);
    while (unroll > 1 && unroll * lanes > size) unroll /= 2;
    this.unroll = unroll;
    this.inputs = section.inputs.map((input) => this.inputStream(input.node, input.kind === "spill"));
    section.outputs.forEach((output, i) => {
      if (output.kind === "store")
        this.outputs.set(i, this.stream(output.store.access, at(spec.nodes, output.store.node).dtype));
      else if (output.kind === "spill") this.outputs.set(i, this.spillStream(output.node));
      else if (output.kind === "reduce") {
        this.accumulators.set(
          i,
          range(unroll).map(() => code.local("v128")),
        );
      }
    });
  }

  /** Whether elements of one vector may go to the same place, so that they must be stored one by one. */
  private hasInnerIndexedStore(): boolean {
    return this.section.outputs.some(
      (o) =>
        o.kind === "store" &&
        o.store.index &&
        (at(o.store.index.access.strides, this.last) !== 0 || at(o.store.access.strides, this.last) === 0),
    );
  }

  private stream(access: Access, dtype: DType): Stream {
    const stride = at(access.strides, this.last);
    return { access, dtype, stride, pointer: this.code.local("i32") };
  }

  private spillStream(node: number): Stream {
    const { dims, numRows } = this.plan.spec;
    const strides = [...range(numRows).map(() => 0), ...rowMajorStrides(dims.slice(numRows))];
    const arg = this.plan.spec.args.length + this.plan.spills.indexOf(node);
    const dtype = at(this.plan.spec.nodes, node).dtype === "float64" ? "float64" : "float32";
    return this.stream({ arg, strides }, dtype);
  }

  private inputStream(
    i: number,
    spilled: boolean,
  ): Stream & { readonly index?: Stream; readonly indirection?: Indirection } {
    if (spilled) return this.spillStream(i);
    const node = at(this.plan.spec.nodes, i);
    if (node.kind === "load") {
      const stream = this.stream(node.access, node.dtype);
      if (!node.index) return stream;
      return { ...stream, index: this.stream(node.index.access, "int32"), indirection: node.index };
    }
    if (node.kind !== "iota") throw new Error("[emitKernel] only loads and iotas are inputs");
    const step = at(node.coefficients, this.last);
    this.iotas.set(i, { local: this.code.local("i32"), step });
    return { access: { arg: 0, strides: [] }, dtype: "int32", stride: 0, pointer: this.code.local("i32") };
  }

  emit(): void {
    const { spec } = this.plan;
    this.startAccumulators();
    this.around.loops(range(this.last).slice(spec.numRows), () => {
      this.setPointers();
      this.insideIndexedStores([...this.outputs.entries()], () => this.vectorLoops());
    });
    this.finishAccumulators();
  }

  /** Indexed stores whose index belongs to the whole vector loop are resolved once before it. */
  private insideIndexedStores(outputs: readonly (readonly [number, Stream])[], body: () => void): void {
    const [first, ...rest] = outputs;
    if (first === undefined) {
      body();
      return;
    }
    const [i, stream] = first;
    const output = at(this.section.outputs, i);
    if (
      output.kind !== "store" ||
      !output.store.index ||
      at(output.store.index.access.strides, this.last) !== 0
    ) {
      this.insideIndexedStores(rest, body);
      return;
    }
    this.around.guarded(output.store, this.last, stream.pointer, stream.dtype, () =>
      this.insideIndexedStores(rest, body),
    );
  }

  private setPointers(): void {
    const { code } = this;
    for (const stream of [...this.inputs, ...this.outputs.values()]) this.setPointer(stream);
    for (const { index, indirection, pointer, dtype } of this.inputs) {
      if (!index || !indirection) continue;
      this.setPointer(index);
      if (index.stride !== 0) continue;
      code.get(index.pointer);
      this.around.pushIndirect(indirection, byteSize(dtype));
      code.get(pointer).op("i32.add").set(pointer);
    }
    for (const [i, { local }] of this.iotas) {
      const node = at(this.plan.spec.nodes, i);
      if (node.kind !== "iota") continue;
      this.around.pushIota(node, this.last);
      code.set(local);
    }
  }

  private setPointer({ access, dtype, pointer }: Stream): void {
    if (access.strides.length === 0) return;
    this.around.pushAddress(access, byteSize(dtype), this.last);
    this.code.set(pointer);
  }

  private vectorLoops(): void {
    const { lanes, unroll } = this;
    const size = at(this.plan.spec.dims, this.last);
    const singles = this.hasInnerIndexedStore() ? size : size % lanes;
    const whole = size - singles;
    const main = Math.floor(whole / (lanes * unroll));
    if (main > 0) this.stage(main, unroll, "vector");
    const rest = (whole - main * lanes * unroll) / lanes;
    if (rest > 0) this.stage(rest, 1, "vector");
    if (singles > 0) this.stage(singles, 1, "single");
  }

  private stage(count: number, unroll: number, mode: Mode): void {
    this.around.repeat(count, () => {
      emitInterleaved(this.code, this.prepared, unroll, {
        input: (slot, copy) => this.input(slot, copy, mode),
        output: (index, copy, value) => this.output(index, copy, value, mode),
      });
      this.advance(unroll * (mode === "vector" ? this.lanes : 1));
    });
  }

  private advance(elements: number): void {
    const { code } = this;
    const move = ({ pointer, stride, dtype, access }: Stream) => {
      if (stride !== 0 && access.strides.length > 0)
        code.increment(pointer, elements * stride * byteSize(dtype));
    };
    for (const input of this.inputs) {
      move(input);
      if (input.index) move(input.index);
    }
    for (const stream of this.outputs.values()) move(stream);
    for (const { local, step } of this.iotas.values()) if (step !== 0) code.increment(local, elements * step);
  }

  private input(slot: number, copy: number, mode: Mode): void {
    const { code, lanes } = this;
    const stream = at(this.inputs, slot);
    const { node } = at(this.section.inputs, slot);
    const iota = this.iotas.get(node);
    if (iota) {
      code
        .get(iota.local)
        .i32(copy * lanes * iota.step)
        .op("i32.add")
        .vector("i32x4.splat");
      if (iota.step !== 0 && mode === "vector")
        code.v128([0, iota.step, 2 * iota.step, 3 * iota.step]).vector("i32x4.add");
      return;
    }
    const bytes = byteSize(stream.dtype);
    if (stream.index && stream.indirection && stream.index.stride !== 0) {
      this.gatherInput(stream, stream.index, stream.indirection, copy, mode);
    } else if (mode === "single" || stream.stride === 0) {
      code.get(stream.pointer);
      emitSplat(code, stream.dtype);
    } else {
      const offset = copy * lanes * stream.stride * bytes;
      if (offset >= 0) emitLoad(code, stream.dtype, lanes, stream.pointer, stream.stride, offset);
      else this.loadBehind(stream, offset);
    }
  }

  /** Negative distances do not fit the immediate offsets of loads. */
  private loadBehind(stream: Stream, offset: number): void {
    const { code } = this;
    const pointer = this.around.temporary("behind", "i32");
    code.get(stream.pointer).i32(offset).op("i32.add").set(pointer);
    emitLoad(code, stream.dtype, this.lanes, pointer, stream.stride, 0);
  }

  /** Every element has an index of its own. */
  private gatherInput(
    stream: Stream,
    index: Stream,
    indirection: Indirection,
    copy: number,
    mode: Mode,
  ): void {
    const { code } = this;
    const bytes = byteSize(stream.dtype);
    const first = copy * this.lanes;
    const push = (k: number) => {
      code
        .get(stream.pointer)
        .i32((first + k) * stream.stride * bytes)
        .op("i32.add");
      code
        .get(index.pointer)
        .i32((first + k) * index.stride * 4)
        .op("i32.add");
      this.around.pushIndirect(indirection, bytes);
      code.op("i32.add");
    };
    if (mode === "single") {
      push(0);
      emitSplat(code, stream.dtype);
    } else {
      emitGather(code, stream.dtype, this.lanes, this.around.temporary("gathered", "v128"), push);
    }
  }

  private output(index: number, copy: number, value: Local, mode: Mode): void {
    const { code, lanes } = this;
    const output = at(this.section.outputs, index);
    const accumulators = this.accumulators.get(index);
    if (output.kind === "reduce" && accumulators) {
      this.accumulate(output.node, at(accumulators, copy), value, mode);
      return;
    }
    const stream = this.outputs.get(index);
    if (!stream) return;
    const store = output.kind === "store" ? output.store : undefined;
    if (mode === "single") {
      this.storeSingle(store, stream, value);
      return;
    }
    const offset = copy * lanes * stream.stride * byteSize(stream.dtype);
    const pointer = offset >= 0 ? stream.pointer : this.around.temporary("behind", "i32");
    if (offset < 0) code.get(stream.pointer).i32(offset).op("i32.add").set(pointer);
    const from = Math.max(0, offset);
    if (store?.combine) {
      const sum = this.around.temporary("sum", "v128");
      emitLoad(code, stream.dtype, lanes, pointer, stream.stride, from);
      code.get(value).vector(combineInstruction(store.combine, stream.dtype)).set(sum);
      emitStore(code, stream.dtype, lanes, pointer, stream.stride, from, sum);
    } else {
      emitStore(code, stream.dtype, lanes, pointer, stream.stride, from, value);
    }
  }

  private storeSingle(store: KernelStore | undefined, stream: Stream, value: Local): void {
    if (!store) {
      emitStoreOne(this.code, stream.dtype, stream.pointer, value);
      return;
    }
    const { index } = store;
    if (!index || at(index.access.strides, this.last) === 0) {
      this.around.combineAndStoreOne(store, stream.pointer, stream.dtype, value);
      return;
    }
    // The index changes with every element: the counter of this loop stands for the vectorised dim.
    const pointer = this.around.temporary("elementPointer", "i32");
    this.code.get(stream.pointer).set(pointer);
    this.around.guarded(store, this.last + 1, pointer, stream.dtype, () =>
      this.around.combineAndStoreOne(store, pointer, stream.dtype, value),
    );
  }

  private startAccumulators(): void {
    const { code } = this;
    for (const [i, locals] of this.accumulators) {
      const output = at(this.section.outputs, i);
      const node = at(this.plan.spec.nodes, output.kind === "reduce" ? output.node : 0);
      if (node.kind !== "reduce") continue;
      const words = identityWords(node.dtype, identityOf(node.combine, node.dtype));
      for (const local of locals) code.v128(words).set(local);
    }
  }

  private accumulate(nodeIndex: number, accumulator: Local, value: Local, mode: Mode): void {
    const { code } = this;
    const node = at(this.plan.spec.nodes, nodeIndex);
    if (node.kind !== "reduce") return;
    code.get(accumulator).get(value);
    if (mode === "single" && node.combine === "sum") {
      code.v128(node.dtype === "float64" ? [-1, -1, 0, 0] : [-1, 0, 0, 0]).vector("v128.and");
    }
    code.vector(combineInstruction(node.combine, node.dtype)).set(accumulator);
  }

  /** Combines the accumulators of all copies and lanes; the result fills every lane. */
  private finishAccumulators(): void {
    const { code, lanes } = this;
    for (const [i, locals] of this.accumulators) {
      const output = at(this.section.outputs, i);
      if (output.kind !== "reduce") continue;
      const node = at(this.plan.spec.nodes, output.node);
      if (node.kind !== "reduce") continue;
      const op = combineInstruction(node.combine, node.dtype);
      let live = [...locals];
      while (live.length > 1) {
        const half = live.length / 2;
        live = range(half).map((k) => {
          const [a, b] = [at(live, k), at(live, k + half)];
          code.get(a).get(b).vector(op).set(a);
          return a;
        });
      }
      const result = at(live, 0);
      const fold = (order: readonly [number, number, number, number]) =>
        code.get(result).get(result).get(result).shuffle(order).vector(op).set(result);
      if (node.dtype === "float64") fold([2, 3, 0, 1]);
      else if (lanes === 2) fold([1, 0, 3, 2]);
      else {
        fold([2, 3, 0, 1]);
        fold([1, 0, 3, 2]);
      }
      code.get(result).set(this.around.rowValue(output.node));
    }
  }
}

function identityWords(dtype: DType, value: number): readonly [number, number, number, number] {
  if (dtype === "float64") {
    const words = new Uint32Array(new Float64Array([value]).buffer);
    return [at([...words], 0), at([...words], 1), at([...words], 0), at([...words], 1)];
  }
  const word =
    dtype === "bool"
      ? value
        ? -1
        : 0
      : dtype === "int32" || dtype === "uint32"
        ? value
        : float32Bits(value);
  return [word, word, word, word];
}
