import { getOrInsert } from "../../ir/collections.js";
import { byteSize, type DType } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";
import { isElementwiseEqn, isReduction, type ReduceOp } from "../../ir/opFacts.js";
import type { Atom, Eqn, Var } from "../../ir/program.js";
import { at, range, sizeOf } from "../../ir/shape.js";
import { type Dim, type DimList, expand } from "../fuse/dims.js";
import { backward, type FusionGroup, type FusionMember } from "../fuse/group.js";
import { type Combine, combineOf, identityOf } from "../identities.js";
import { exactKey } from "../kernel/exactKey.js";
import type { Access, KernelNode, KernelSpec, KernelStore } from "../kernel/spec.js";
import type { KernelOp, VectorOpCall } from "../kernel/vectorOps.js";
import { isFused, isView } from "../lowering.js";
import { mayOverlap, type View } from "../plan/planBuffers.js";
import type { LoweringFrame } from "./frame.js";

/** Emits the kernel of a fusion group. */
export function lowerGroup(frame: LoweringFrame, group: FusionGroup): void {
  new GroupLowering(frame, group).run();
}

class GroupLowering {
  private readonly loops: readonly Dim[];
  private readonly inner: ReadonlySet<Dim>;
  private readonly position = new Map<Dim, number>();
  private readonly nodes: KernelNode[] = [];
  private readonly nodeKeys = new Map<string, number>();
  private readonly args: View[] = [];
  private readonly argKeys = new Map<string, number>();
  private readonly members = new Map<number, number>();
  private readonly stores: KernelStore[] = [];
  private readonly fills: { arg: number; count: number; value: number }[] = [];
  private readonly reads = new Set<number>();
  private readonly writes = new Set<number>();

  constructor(
    private readonly frame: LoweringFrame,
    private readonly group: FusionGroup,
  ) {
    const loops = group.loops();
    this.inner = new Set(group.inner ? expand(group.inner) : []);
    this.loops = [...loops.filter((d) => !this.inner.has(d)), ...loops.filter((d) => this.inner.has(d))];
    this.loops.forEach((dim, i) => {
      this.position.set(dim, i);
    });
  }

  run(): void {
    const { frame, group } = this;
    const members = [...group.members].sort((a, b) => frame.positionOf(a) - frame.positionOf(b));
    this.beginUpdates(members);
    for (const value of group.materialised) {
      if (frame.isUnset(value)) {
        frame.defineUnset(value);
        continue;
      }
      const map = this.mapOf(value);
      const node = this.expanded(value, map);
      this.members.set(value.id, node);
      this.storeValue(value, node, map);
    }
    for (const eqn of members) this.member(eqn);
    if (this.stores.length === 0) return;
    const dims = this.loops.map((dim) => dim.size);
    const spec: KernelSpec = {
      dims,
      numRows: this.inner.size > 0 ? this.loops.length - this.inner.size : 0,
      args: this.args.map((view) => view.dtype),
      nodes: this.nodes,
      stores: this.stores,
      fills: this.fills,
    };
    const names = members.length > 0 ? members.map((eqn) => eqn.op) : ["constant"];
    const points = sizeOf(dims);
    const flops = this.nodes.filter((n) => n.kind === "op" || n.kind === "reduce").length * points;
    const bytes = [...this.reads, ...this.writes].reduce((sum, i) => sum + footprint(at(this.args, i)), 0);
    const info = frame.compilation.info(names, members.at(-1)?.source, flops, bytes);
    frame.kernel(spec, this.args, [...this.reads], [...this.writes], info, this.aliases(spec));
  }

  /** Begins updates with what the kernel stores. */
  private beginUpdates(members: readonly FusionMember[]): void {
    const { materialised, late } = this.group;
    const stored = members.flatMap(({ outs }) => outs.filter(({ id }) => this.frame.escaping.has(id)));
    for (const value of [...materialised, ...stored]) {
      if (!this.frame.isUnset(value) && !late.has(value.id)) this.frame.beginUpdates(value);
    }
  }

  private member(eqn: FusionMember): void {
    if (isReduction(eqn)) this.reduce(eqn);
    else if (eqn.op === "gather") this.gather(eqn);
    else this.elementwise(eqn);
  }

  private mapOf(value: Var): readonly DimList[] {
    const map = this.group.maps.get(value.id) ?? this.group.late.get(value.id);
    if (!map) throw new InternalError("[lowerGroup] a member has no loops");
    return map;
  }

  private elementwise(eqn: Eqn<KernelOp>): void {
    const map = this.mapOf(at(eqn.outs, 0));
    const args = eqn.ins.map((atom) => this.operand(atom, map));
    eqn.outs.forEach((out, result) => {
      const node = this.node(opNode(eqn, args, out.type.dtype, result));
      this.members.set(out.id, node);
      if (this.frame.escaping.has(out.id)) this.storeValue(out, node, map);
    });
  }

  private reduce(eqn: Eqn<ReduceOp>): void {
    const out = at(eqn.outs, 0);
    const map = this.group.operandMaps.get(eqn) ?? [];
    const arg = this.operand(at(eqn.ins, 0), map);
    const reduced = new Set(expand(eqn.params.dims.flatMap((d) => at(map, d))));
    const combine = combineOf[eqn.op];
    const { dtype } = out.type;
    const overInner = this.inner.size > 0 && [...this.inner].every((dim) => reduced.has(dim));
    const node = overInner ? this.node({ kind: "reduce", dtype, combine, arg }) : arg;
    this.members.set(out.id, node);
    if (this.group.late.has(out.id)) this.storeValue(out, node, this.mapOf(out), combine);
    else if (this.frame.escaping.has(out.id)) this.storeValue(out, node, this.mapOf(out));
  }

  private gather(eqn: Eqn<"gather">): void {
    const [x, indices] = [this.frame.view(at(eqn.ins, 0)), this.frame.view(at(eqn.ins, 1))];
    const out = at(eqn.outs, 0);
    const map = this.mapOf(out);
    const layout = gatherLayout(x, indices, eqn.params);
    const access = this.access({ ...x, shape: out.type.shape, strides: layout.strides }, map, this.reads);
    const indexView = { ...indices, shape: out.type.shape, strides: layout.indexStrides };
    const index = this.access(indexView, map, this.reads);
    const { dtype } = out.type;
    const indirection = { access: index, stride: layout.stride, limit: layout.limit };
    const node = this.node({ kind: "load", dtype, access, index: indirection });
    this.members.set(out.id, node);
    if (this.frame.escaping.has(out.id)) this.storeValue(out, node, map);
  }

  private operand(atom: Atom, map: readonly DimList[]): number {
    if (atom.kind === "literal") {
      return this.node({ kind: "literal", dtype: atom.type.dtype, value: atom.value });
    }
    const member = this.memberOf(atom);
    if (member !== undefined) return member;
    const isFree = this.frame.fused.free.has(atom.id) && !this.group.reads.has(atom.id);
    if (isFree || this.group.inlined.has(atom.id)) return this.expanded(atom, map);
    return this.load(atom, map);
  }

  /** The node of a value that the group computes, perhaps through views. */
  private memberOf(value: Var): number | undefined {
    const computed = this.members.get(value.id);
    if (computed !== undefined && !this.group.late.has(value.id)) return computed;
    const eqn = this.frame.fused.definitions.get(value.id);
    if (!eqn || !isView(eqn)) return undefined;
    const source = at(eqn.ins, 0);
    return source.kind === "var" ? this.memberOf(source) : undefined;
  }

  private load(value: Var, map: readonly DimList[]): number {
    const view = this.frame.view(value);
    const access = this.access(view, map, this.reads);
    return this.node({ kind: "load", dtype: view.dtype, access });
  }

  /** The node of a free value along the given loops. */
  private expanded(value: Var, map: readonly DimList[]): number {
    const eqn = this.frame.fused.definitions.get(value.id);
    if (!eqn) throw new InternalError("[lowerGroup] a free value has no definition");
    if (eqn.op === "iota") {
      const steps = value.type.shape.map((_, d) => (d === eqn.params.dim ? 1 : 0));
      const coefficients = this.strides(value.type.shape, map, steps);
      return this.node({ kind: "iota", dtype: value.type.dtype, coefficients });
    }
    if (isView(eqn)) {
      const source = at(eqn.ins, 0);
      const sourceMap = backward(eqn, map);
      return sourceMap ? this.operand(source, sourceMap) : this.load(value, map);
    }
    if (!isFused(eqn) || !isElementwiseEqn(eqn))
      throw new InternalError(`[lowerGroup] ${eqn.op} is not free`);
    const args = eqn.ins.map((atom) => this.operand(atom, map));
    const result = eqn.outs.findIndex((out) => out.id === value.id);
    return this.node(opNode(eqn, args, value.type.dtype, result));
  }

  private storeValue(value: Var, node: number, map: readonly DimList[], combine?: Combine): void {
    const view = combine ? this.frame.temporary(value) : this.frame.target(value);
    this.frame.define(value, view);
    const access = this.access(view, map, this.writes);
    this.stores.push({ node, access, ...(combine && { combine }) });
    if (!combine) return;
    this.reads.add(access.arg);
    const { dtype, shape } = value.type;
    this.fills.push({ arg: access.arg, count: sizeOf(shape), value: identityOf(combine, dtype) });
  }

  /** Adds a node unless there is an equal one. */
  private node(node: KernelNode): number {
    const key = exactKey(node);
    return getOrInsert(this.nodeKeys, key, () => this.nodes.push(node) - 1);
  }

  private access(view: View, map: readonly DimList[], into: Set<number>): Access {
    const key = `${view.buffer.id}:${view.offset}:${view.dtype}`;
    const arg = getOrInsert(this.argKeys, key, () => this.args.push(view) - 1);
    into.add(arg);
    return { arg, strides: this.strides(view.shape, map, view.strides) };
  }

  /** Distances per loop from distances per dim. */
  private strides(shape: readonly number[], map: readonly DimList[], perDim: readonly number[]): number[] {
    const result = this.loops.map(() => 0);
    shape.forEach((n, d) => {
      if (n === 1) return;
      let step = at(perDim, d);
      for (const dim of expand(at(map, d)).reverse()) {
        const position = this.position.get(dim);
        if (position === undefined)
          throw new InternalError("[lowerGroup] a value runs along a loop outside its group");
        result[position] = step;
        step *= dim.size;
      }
    });
    return result;
  }

  /** Which results may reuse the memory of which operands. */
  private aliases(spec: KernelSpec): (readonly [number, number])[] {
    const pairs: (readonly [number, number])[] = [];
    const kernel = this.frame.compilation.library.add(spec);
    for (const store of this.stores) {
      if (store.combine || store.index) continue;
      const written = at(this.args, store.access.arg);
      for (const read of this.reads) {
        const view = at(this.args, read);
        if (byteSize(view.dtype) !== byteSize(written.dtype)) continue;
        const loads = this.loadsFrom(view);
        const isSame = loads.every(
          ({ access, index }) =>
            !index && access.arg === read && access.strides.join() === store.access.strides.join(),
        );
        if (isSame && loads.length > 0 && isReadInTime(kernel.plan, read, store.access.arg))
          pairs.push([store.access.arg, read]);
      }
    }
    return pairs;
  }

  private loadsFrom(view: View): Extract<KernelNode, { kind: "load" }>[] {
    return this.nodes.filter(
      (node): node is Extract<KernelNode, { kind: "load" }> =>
        node.kind === "load" &&
        (mayOverlap(at(this.args, node.access.arg).buffer, view.buffer) ||
          (node.index !== undefined && mayOverlap(at(this.args, node.index.access.arg).buffer, view.buffer))),
    );
  }
}

type Plan = ReturnType<LoweringFrame["compilation"]["library"]["add"]>["plan"];

/** Whether no later run through the row reads an argument after a store has overwritten it. */
function isReadInTime({ phases, spec }: Plan, read: number, written: number): boolean {
  const storedIn = phases.findIndex(({ inner }) =>
    inner.outputs.some((output) => output.kind === "store" && output.store.access.arg === written),
  );
  if (storedIn < 0) return phases.length === 0;
  const readsArg = (node: number) => {
    const found = at(spec.nodes, node);
    return found.kind === "load" && found.access.arg === read;
  };
  const isReadLater = phases
    .slice(storedIn + 1)
    .some(({ inner }) => inner.inputs.some((input) => input.kind === "node" && readsArg(input.node)));
  const isReadByRow = phases.some(({ row }) => row.inputs.some((input) => readsArg(input.node)));
  return !isReadLater && !isReadByRow;
}

function opNode(eqn: Eqn<KernelOp>, args: readonly number[], dtype: DType, result: number): KernelNode {
  const { op } = eqn;
  const from = at(eqn.ins, op === "select" ? 1 : 0).type.dtype;
  const direction = eqn.op === "compare" ? eqn.params.direction : undefined;
  const call: VectorOpCall = { op, from, to: dtype, ...(direction && { direction }) };
  return { kind: "op", dtype, call, args, result };
}

/** The bytes that a kernel touches of an argument. */
function footprint(view: View): number {
  const touched = view.shape.reduce((n, size, d) => (view.strides[d] === 0 ? n : n * size), 1);
  return touched * byteSize(view.dtype);
}

/** The distances of a gather's result dims in x and in the indices. */
export function gatherLayout(
  x: View,
  indices: View,
  { dim, batchDims }: { readonly dim: number; readonly batchDims: number },
): {
  readonly strides: readonly number[];
  readonly indexStrides: readonly number[];
  readonly stride: number;
  readonly limit: number;
} {
  const rest = indices.shape.length - batchDims;
  const strides = [...x.strides.slice(0, dim), ...range(rest).map(() => 0), ...x.strides.slice(dim + 1)];
  const indexStrides = [
    ...indices.strides.slice(0, batchDims),
    ...range(dim - batchDims).map(() => 0),
    ...indices.strides.slice(batchDims),
    ...range(x.shape.length - dim - 1).map(() => 0),
  ];
  return { strides, indexStrides, stride: at(x.strides, dim), limit: at(x.shape, dim) };
}
