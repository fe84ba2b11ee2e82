/**
 * Afterwards every point of a row's inner dims is computed exactly once: by unrolled vectors as long as they fit,
 * then by single vectors, then by single elements; nothing is written outside the stores.
 *
 * Unchanged are the values; sums over a row are added in a different order, which is the same in every run.
 */

import { byteSize, type DType, isInteger } from "../../ir/dtype.js";
import { at, range, rowMajorStrides } from "../../ir/shape.js";
import { identityOf } from "../identities.js";
import { chooseUnroll, emitInterleaved, type PreparedProgram } from "../wasm/emitInterleaved.js";
import type { FunctionBody, Local } from "../wasm/functionBody.js";
import { float32Bits, type VecProgram, type Words } from "../wasm/vectorProgram.js";
import { combineInstruction } from "./lanes.js";
import { emitGather, emitLoad, emitSplat, emitStore, emitStoreOne, type LaneCount } from "./memory.js";
import type { KernelPlan } from "./phases.js";
import type { Section } from "./section.js";
import type { Access, Indirection, KernelNode, KernelStore } from "./spec.js";

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

/** What the vector loops need from the kernel around them. */
export interface Surroundings {
  loops(dims: readonly number[], body: () => void): void;
  repeat(count: number, body: () => void): void;
  pushAddress(access: Access, bytes: number, end: number): void;
  pushIndirect(index: Indirection, bytes: number): void;
  pushIota(node: Extract<KernelNode, { kind: "iota" }>, end: number): void;
  guarded(store: KernelStore, end: number, pointer: Local, dtype: DType, body: () => void): void;
  combineAndStoreOne(store: KernelStore, pointer: Local, dtype: DType, value: Local): void;
  temporary(name: string, type: "i32" | "address" | "v128"): Local;
  rowValue(node: number): Local;
}

/** One run through the inner dims of a row: loops around a vector loop, its remainder and its accumulators. */
export class InnerLoop {
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
    const { spec, features } = plan;
    this.last = spec.dims.length - 1;
    const size = at(spec.dims, this.last);
    const sums = section.outputs.some(({ kind }) => kind === "reduce");
    const how = { sums, fewRegisters: features.fewRegisters ?? false };
    const unroll = this.hasInnerIndexedStore() ? 1 : unrollFor(section.program, lanes, size, how);
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
    return { access, dtype, stride, pointer: this.code.local("address") };
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
    return {
      access: { arg: 0, strides: [] },
      dtype: "int32",
      stride: 0,
      pointer: this.code.local("address"),
    };
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
      code.get(pointer).op("address.add").set(pointer);
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
        code.advance(pointer, elements * stride * byteSize(dtype));
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
    const pointer = this.around.temporary("behind", "address");
    code.get(stream.pointer).address(offset).op("address.add").set(pointer);
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
        .address((first + k) * stream.stride * bytes)
        .op("address.add");
      code
        .get(index.pointer)
        .address((first + k) * index.stride * 4)
        .op("address.add");
      this.around.pushIndirect(indirection, bytes);
      code.op("address.add");
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
    const pointer = offset >= 0 ? stream.pointer : this.around.temporary("behind", "address");
    if (offset < 0) code.get(stream.pointer).address(offset).op("address.add").set(pointer);
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
    const pointer = this.around.temporary("elementPointer", "address");
    this.code.get(stream.pointer).set(pointer);
    this.around.guarded(store, this.plan.spec.dims.length, pointer, stream.dtype, () =>
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

/** How many vectors side by side a loop of this length takes in: sums have as many accumulators. */
export function unrollFor(
  program: VecProgram,
  lanes: LaneCount,
  size: number,
  how = { sums: true, fewRegisters: false },
): number {
  let unroll: number = chooseUnroll(program, how);
  while (unroll > 1 && unroll * lanes > size) unroll /= 2;
  return unroll;
}

/** The vector that a reduction begins with. */
export function identityWords(dtype: DType, value: number): Words {
  if (dtype === "float64") {
    const [low = 0, high = 0] = new Uint32Array(new Float64Array([value]).buffer);
    return [low, high, low, high];
  }
  const word = dtype === "bool" ? (value ? -1 : 0) : isInteger(dtype) ? value : float32Bits(value);
  return [word, word, word, word];
}
