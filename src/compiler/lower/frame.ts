import { getOrInsert, zip } from "../../ir/collections.js";
import { byteSize } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";
import type { Atom, Eqn, Program, SourceLocation, Var } from "../../ir/program.js";
import { at, bytesOf, inversePermutation, sizeOf } from "../../ir/shape.js";
import { type FusedProgram, fuse } from "../fuse/fuse.js";
import type { KernelSpec } from "../kernel/spec.js";
import { isView, type ViewOp } from "../lowering.js";
import type { Compilation } from "../plan/compilation.js";
import {
  applyView,
  type Buffer,
  isDense,
  joinedBlock,
  refOf,
  reshapeView,
  type View,
} from "../plan/planBuffers.js";
import type { PlannedKernel, UnplacedStep } from "../plan/plannedSteps.js";
import type { LowerAttention } from "./lowerAttention.js";
import { beginUpdate, lowerEqn } from "./lowerEqn.js";
import { lowerGroup } from "./lowerGroup.js";

/** An update of a block whose start is known only when the program runs. */
export interface DynamicUpdate {
  /** The memory of the result, which already holds the tensor that is updated. */
  readonly whole: View;
  /** The block in it. */
  readonly block: View;
}

/** Whether a block is updated with this value. */
function isUpdateWith({ ins }: Eqn<"dynamicUpdateSlice">, value: Var): boolean {
  const update = at(ins, 1);
  return update.kind === "var" && update.id === value.id;
}

/** The lowering of one program, or of one body inside it: where its values lie, and the steps so far. */
export class LoweringFrame {
  readonly steps: UnplacedStep[] = [];
  readonly fused: FusedProgram;
  /** Values that are read outside the kernel that computes them. */
  readonly escaping = new Set<number>();
  /** The equations that read each value. */
  readonly readers = new Map<number, Eqn[]>();
  private readonly views = new Map<number, View>();
  private readonly copies = new Map<number, View>();
  private readonly retargeted = new Set<Buffer>();
  private readonly positions: ReadonlyMap<Eqn, number>;
  private readonly joins = new Map<number, View>();
  private readonly updates = new Map<Eqn, DynamicUpdate>();
  private readonly outputIds: ReadonlySet<number>;
  /** Equations that have a kernel to themselves. */
  private readonly alone: ReadonlySet<Eqn>;
  private readonly skipped = new Set<Eqn>();
  /** Memory whose contents are never read. */
  private readonly unset = new Set<Buffer>();

  constructor(
    readonly compilation: Compilation,
    readonly program: Program,
    readonly depth: number,
    private readonly attention?: LowerAttention,
  ) {
    this.fused = fuse(program, { addsOverRows: !compilation.features.gpu });
    this.outputIds = new Set(program.outputs.flatMap((atom) => (atom.kind === "var" ? [atom.id] : [])));
    this.positions = new Map(program.eqns.map((eqn, i) => [eqn, i]));
    this.alone = new Set(
      this.fused.units.flatMap((unit) => {
        if (unit.kind === "eqn") return [];
        const { members, materialised } = unit.group;
        return members.length === 1 && materialised.length === 0 ? members : [];
      }),
    );
    this.findEscaping();
  }

  private findEscaping(): void {
    for (const eqn of this.program.eqns) {
      for (const atom of eqn.ins) {
        if (atom.kind === "var") getOrInsert(this.readers, atom.id, () => []).push(eqn);
      }
    }
    const markEscaping = (atom: Atom): void => {
      if (atom.kind === "var") this.escaping.add(this.base(atom).id);
    };
    for (const unit of this.fused.units) {
      if (unit.kind === "eqn") unit.eqn.ins.forEach(markEscaping);
      else unit.group.reads.forEach(markEscaping);
    }
    this.program.outputs.forEach(markEscaping);
  }

  /** The value whose memory a view refers to. */
  private base(value: Var): Var {
    const eqn = this.fused.definitions.get(value.id);
    if (!eqn || !isView(eqn) || this.isExpanded(value)) return value;
    const source = at(eqn.ins, 0);
    return source.kind === "var" ? this.base(source) : value;
  }

  private isExpanded(value: Var): boolean {
    return this.fused.free.has(value.id);
  }

  /** Position of an equation in the program. */
  positionOf(eqn: Eqn): number {
    return this.positions.get(eqn) ?? 0;
  }

  /** Lowers all units in order: first every operand gets a place, so that lowering a unit only asks where it is. */
  run(): void {
    for (const unit of this.fused.units) {
      if (unit.kind === "eqn") {
        for (const atom of unit.eqn.ins) this.locate(atom);
        lowerEqn(this, unit.eqn);
      } else if (!unit.group.members.some((eqn) => this.skipped.has(eqn))) {
        const { group } = unit;
        // Some reads are views of what the group computes itself, and stay in registers.
        const outside = [...group.reads.values()].filter((value) => !group.maps.has(this.base(value).id));
        for (const value of outside) this.locate(value);
        lowerGroup(this, group);
      }
    }
  }

  /** The only equation that reads a value; undefined if there are several or the value is an output. */
  onlyReader(value: Var): Eqn | undefined {
    const [reader, ...others] = this.readers.get(value.id) ?? [];
    return others.length === 0 && !this.outputIds.has(value.id) ? reader : undefined;
  }

  /** Whether a kernel computes this equation and nothing else. */
  isSingletonKernel(eqn: Eqn): boolean {
    return this.alone.has(eqn);
  }

  /** Whether the steps emitted so far compute a value. */
  isComputed(value: Var): boolean {
    return this.views.has(value.id);
  }

  /** Skips a singleton kernel whose equation something else has computed. */
  skip(eqn: Eqn): void {
    this.skipped.add(eqn);
  }

  /**
   * New memory for a result: its block of a concatenation that is the only one to read it, or of a buffer whose update
   * with it has begun, so that it need not be moved there, else a buffer of its own.
   */
  target(value: Var): View {
    return this.blockOf(value) ?? this.updatedBlock(value) ?? this.temporary(value);
  }

  /** Begins the update with a value that is about to be computed, so that it can be computed in its place. */
  beginUpdates(value: Var): void {
    if (this.blockOf(value)) return;
    for (const reader of this.readers.get(value.id) ?? []) {
      if (this.updatedBlock(value)) return;
      if (reader.op === "reshape") this.beginUpdates(at(reader.outs, 0));
      if (reader.op === "dynamicUpdateSlice" && this.canBegin(reader, value)) this.update(reader);
    }
  }

  /** Begins a dynamic update, unless it has begun with the value that it is updated with. */
  update(eqn: Eqn<"dynamicUpdateSlice">): DynamicUpdate {
    return getOrInsert(this.updates, eqn, () => beginUpdate(this, eqn));
  }

  private updatedBlock(value: Var): View | undefined {
    for (const reader of this.readers.get(value.id) ?? []) {
      let block: View | undefined;
      if (reader.op === "dynamicUpdateSlice") {
        block = isUpdateWith(reader, value) ? this.updates.get(reader)?.block : undefined;
      } else if (reader.op === "reshape") {
        const target = this.updatedBlock(at(reader.outs, 0));
        block = target && reshapeView(target, value.type.shape);
      }
      // Other readers of the value read it there.
      if (block && isDense(block)) return block;
    }
    return undefined;
  }

  /**
   * Whether an update can begin before its update value is computed: everything else is known, and nothing else reads
   * the tensor that is updated, which would prevent updating in place.
   */
  private canBegin(eqn: Eqn<"dynamicUpdateSlice">, update: Var): boolean {
    const [whole, , ...starts] = eqn.ins;
    if (whole?.kind !== "var" || !isUpdateWith(eqn, update)) return false;
    const isAlone = this.readers.get(whole.id)?.length === 1 && !this.outputIds.has(whole.id);
    return isAlone && [whole, ...starts].every((atom) => atom.kind === "literal" || this.views.has(atom.id));
  }

  /** The memory of a concatenation's result, allocated when its first operand is computed. */
  joined(eqn: Eqn<"concatenate">): View {
    const out = at(eqn.outs, 0);
    return getOrInsert(this.joins, out.id, () => this.temporary(out));
  }

  private blockOf(value: Var): View | undefined {
    const readers = this.readers.get(value.id) ?? [];
    const [reader] = readers;
    if (!reader || readers.length !== 1 || this.outputIds.has(value.id)) return undefined;
    if (reader.op === "concatenate") {
      const place = reader.ins.findIndex((atom) => atom.kind === "var" && atom.id === value.id);
      if (reader.ins.filter((atom) => atom.kind === "var" && atom.id === value.id).length !== 1)
        return undefined;
      return joinedBlock(this.joined(reader), reader, place);
    }
    // A view that only renames elements passes its target on to the value behind it.
    if (reader.op !== "reshape" && reader.op !== "transpose") return undefined;
    const target = this.blockOf(at(reader.outs, 0));
    if (!target) return undefined;
    if (reader.op === "reshape") return reshapeView(target, value.type.shape);
    const strides = inversePermutation(reader.params.permutation).map((p) => at(target.strides, p));
    return { ...target, shape: value.type.shape, strides };
  }

  /** Records where a value lies. */
  define(value: Var, view: View): void {
    this.views.set(value.id, view);
  }

  /** Records where each of some values lies. */
  defineAll(values: readonly Var[], views: readonly View[]): void {
    for (const [value, view] of zip(values, views)) this.define(value, view);
  }

  /** Whether every element of a value is guaranteed to be written before it is read. */
  isUnset(value: Var): boolean {
    const eqn = this.fused.definitions.get(value.id);
    return eqn?.op === "broadcastInDim" && eqn.params.unset === true;
  }

  /** Allocates memory for a value without initialising it. */
  defineUnset(value: Var): void {
    const view = this.temporary(value);
    this.unset.add(view.buffer);
    this.define(value, view);
  }

  /** Where an atom lies. */
  view(atom: Atom): View {
    const view = this.find(atom);
    if (view) return view;
    throw new InternalError("[lower] a view that memory cannot show was read before its operand was copied");
  }

  /** Where an atom lies; undefined for a view that memory cannot show. */
  private find(atom: Atom): View | undefined {
    if (atom.kind === "literal") return this.compilation.literal(atom);
    const known = this.views.get(atom.id);
    if (known) return known;
    const eqn = this.viewOf(atom);
    const source = this.find(at(eqn.ins, 0));
    const view = source && applyView(eqn, source);
    if (view) this.define(atom, view);
    return view;
  }

  private viewOf(value: Var): Eqn<ViewOp> {
    const eqn = this.fused.definitions.get(value.id);
    if (eqn && isView(eqn)) return eqn;
    throw new InternalError(`[lower] a value of ${eqn?.op ?? "an input"} has no place`);
  }

  /** Gives an atom a place: what a view that memory cannot show looks at is copied. */
  private locate(atom: Atom): View {
    if (atom.kind === "literal") return this.compilation.literal(atom);
    const found = this.find(atom);
    if (found) return found;
    const eqn = this.viewOf(atom);
    const source = at(eqn.ins, 0);
    const view = applyView(eqn, this.locate(source)) ?? applyView(eqn, this.dense(source));
    if (!view) throw new InternalError(`[lower] ${eqn.op} of a dense value has no view`);
    this.define(atom, view);
    return view;
  }

  /** Where an atom lies, dense and row-major: a copy if need be. */
  dense(atom: Atom): View {
    const view = this.locate(atom);
    if (isDense(view)) return view;
    if (atom.kind === "literal") return view;
    return getOrInsert(this.copies, atom.id, () => {
      const copy = this.temporary(atom);
      this.copy(view, copy, "copy");
      return copy;
    });
  }

  /** New memory for a value. */
  temporary(value: { readonly type: Var["type"] }): View {
    return this.compilation.temporary(value.type, this.depth);
  }

  /** Moves elements from one place to another of the same shape. */
  copy(source: View, target: View, op: string, location?: SourceLocation): void {
    const elements = sizeOf(source.shape);
    if (elements === 0 || this.unset.has(source.buffer)) return;
    const isInPlace =
      source.buffer === target.buffer &&
      source.offset === target.offset &&
      source.shape.every((n, d) => n === 1 || source.strides[d] === target.strides[d]);
    if (isInPlace) return;
    const bytes = elements * byteSize(source.dtype);
    const info = this.compilation.info([op], location, 0, 2 * bytes);
    if (isDense(source) && isDense(target)) {
      this.steps.push({ op: "copy", source: refOf(source), target: refOf(target), bytes, info });
      return;
    }
    const spec: KernelSpec = {
      dims: source.shape,
      numRows: 0,
      args: [source.dtype, source.dtype],
      nodes: [{ kind: "load", dtype: source.dtype, access: { arg: 0, strides: source.strides } }],
      stores: [{ node: 0, access: { arg: 1, strides: target.strides } }],
      fills: [],
    };
    this.kernel(spec, [source, target], [0], [1], info);
  }

  /** Emits a call of a kernel. */
  kernel(
    spec: KernelSpec,
    args: readonly View[],
    reads: readonly number[],
    writes: readonly number[],
    info: number,
    aliases: PlannedKernel["aliases"] = [],
  ): void {
    if (spec.dims.some((n) => n === 0)) return;
    const kernel = this.compilation.library.add(spec);
    const spills = kernel.spillBytes.map((bytes) =>
      this.compilation.buffer(bytes, { kind: "temporary" }, this.depth),
    );
    const first = args.length;
    const spilled = spills.map((_, i) => first + i);
    this.steps.push({
      op: "kernel",
      kernel: kernel.index,
      rows: kernel.rows,
      args: [...args.map(refOf), ...spills.map((buffer) => ({ buffer, offset: 0 }))],
      reads: [...reads, ...spilled],
      writes: [...writes, ...spilled],
      aliases,
      info,
    });
  }

  /**
   * Moves a result to its target: the buffer it is computed in becomes the target where possible, otherwise its
   * elements are copied.
   */
  place(atom: Atom, target: View): void {
    const view = this.locate(atom);
    const { buffer } = view;
    const isRedirectable =
      buffer.kind.kind === "temporary" && !buffer.sharedWith && buffer.depth === this.depth;
    const isWhole = view.offset === 0 && isDense(view) && buffer.bytes === bytesOf(view);
    if (isRedirectable && isWhole && target.offset === 0 && isDense(target) && !this.retargeted.has(buffer)) {
      this.retargeted.add(buffer);
      buffer.sharedWith = target.buffer;
      return;
    }
    this.copy(view, target, "copy");
  }

  /** Emits attention where it is one kernel; normalisation leaves none elsewhere. */
  lowerAttention(eqn: Eqn<"attention"> | Eqn<"attentionBackward">): void {
    if (!this.attention) throw new InternalError("[compile] attention is not one kernel here");
    this.attention(this, eqn);
  }

  /** Lowers a body inside this program into a frame of its own whose inputs lie at the given places. */
  lowerBody(body: Program, inputs: readonly View[]): LoweringFrame {
    const frame = new LoweringFrame(this.compilation, body, this.depth + 1, this.attention);
    frame.defineAll(body.inputs, inputs);
    frame.run();
    return frame;
  }
}
