/**
 * Afterwards every equation belongs to exactly one unit, a fused kernel or a single step; only views and free
 * values belong to none, since their readers read through them. Units are in an order in which each needs only
 * earlier ones, so no group waits for something that waits for the group.
 *
 * Unchanged is the program itself: fusion decides what runs together, not what is computed.
 */

import { getOrInsert } from "../../ir/collections.js";
import { byteSize } from "../../ir/dtype.js";
import { hasEffects } from "../../ir/effects.js";
import { InternalError } from "../../ir/errors.js";
import { isElementwiseEqn, isReduction, opFacts, type ReduceOp } from "../../ir/opFacts.js";
import type { OpName } from "../../ir/ops.js";
import type { Atom, Eqn, Program, Var } from "../../ir/program.js";
import { at, range, sizeOf } from "../../ir/shape.js";
import { type FusedOp, isFused, isGone, isView, type StepOp, type ViewOp } from "../lowering.js";
import { type Dim, type DimList, expand, freshMap, type IndexMap, pairLoops } from "./dims.js";
import {
  AFTER_GROUP,
  backward,
  FusionGroup,
  type FusionMember,
  type Knowledge,
  keepsLoops,
} from "./group.js";
import { Reachability } from "./reachability.js";

/** A fused kernel or a single equation; each becomes one or a few steps. */
export type Unit =
  | { readonly kind: "group"; readonly group: FusionGroup }
  | { readonly kind: "eqn"; readonly eqn: Eqn<StepOp> };

/** A program divided into units, in an order in which each comes after what it reads. */
export interface FusedProgram {
  readonly program: Program;
  readonly units: readonly Unit[];
  readonly definitions: ReadonlyMap<number, Eqn>;
  /** Values that each kernel recomputes where it needs them: constants, iotas and masks made of them. */
  readonly free: ReadonlySet<number>;
  /** Free values that are nevertheless written to memory. */
  readonly materialised: ReadonlySet<number>;
}

/** How a program is divided. */
export interface FuseOptions {
  /** Whether kernels may add up over all of their rows, which then have to run one after the other. */
  readonly addsOverRows: boolean;
}

/** Divides a normalised program into fused kernels and other steps. */
export function fuse(program: Program, options: FuseOptions = { addsOverRows: true }): FusedProgram {
  return new Fuser(program, options).run();
}

/** Minimum number of elements of an operand for which reading it once instead of twice pays. */
const LARGE_OPERAND = 4096;

/**
 * Maximum number of equations of groups that are merged to read an operand once; larger kernels run out of registers.
 */
const MAX_SIBLINGS = 32;

/** Maximum number of operands that fit comfortably into one kernel. */
const MAX_READS = 24;

/** Maximum number of ops that are recomputed to save a read. */
const MAX_INLINED = 4;

/** Whether an equation reads its operands from memory, since they cannot be in the registers of its kernel. */
function readsMemory(eqn: Eqn): boolean {
  return !isView(eqn) && (!isFused(eqn) || eqn.op === "gather");
}

/** Whether computing a value takes less time than reading it from memory. */
function isCheap(eqn: Eqn): boolean {
  return isElementwiseEqn(eqn) && opFacts[eqn.op].price === "trivial";
}

class Fuser {
  private readonly definitions = new Map<number, Eqn>();
  private readonly free = new Set<number>();
  private readonly materialised = new Set<number>();
  private readonly unitOf = new Map<number, number>();
  private readonly units: (Unit | undefined)[] = [];
  private readonly reach: Reachability;
  /** The last unit with a side effect; the next one must come after it. */
  private lastEffect: number | undefined;
  /** Values that must be in memory because something other than a kernel reads them. */
  private readonly pinned = new Set<number>();

  constructor(
    private readonly program: Program,
    private readonly options: FuseOptions,
  ) {
    this.reach = new Reachability();
  }

  private findPinned(): void {
    const sources = new Map<number, Atom>();
    const pin = (atom: Atom | undefined): void => {
      if (atom?.kind !== "var" || this.pinned.has(atom.id)) return;
      this.pinned.add(atom.id);
      pin(sources.get(atom.id));
    };
    for (const eqn of this.program.eqns) if (isView(eqn)) sources.set(at(eqn.outs, 0).id, at(eqn.ins, 0));
    for (const eqn of this.program.eqns) if (readsMemory(eqn)) eqn.ins.forEach(pin);
    this.program.outputs.forEach(pin);
  }

  run(): FusedProgram {
    this.findPinned();
    for (const eqn of this.program.eqns) {
      for (const out of eqn.outs) this.definitions.set(out.id, eqn);
      if (this.isFree(eqn)) for (const out of eqn.outs) this.free.add(out.id);
      else if (isView(eqn)) this.view(eqn);
      else if (isFused(eqn)) this.fused(eqn);
      else this.single(eqn);
    }
    for (const output of this.program.outputs) this.demand(output);
    this.mergeSiblings();
    const { program, definitions, free, materialised } = this;
    const order = this.reach.order(range(this.units.length).filter((u) => this.units[u] !== undefined));
    const units = order.flatMap((u) => this.units[u] ?? []);
    return { program, units, definitions, free, materialised };
  }

  private isFree(eqn: Eqn): boolean {
    if (eqn.op === "iota") return true;
    const fromFree = (a: Atom) => a.kind === "literal" || this.free.has(a.id);
    const isQuick = isElementwiseEqn(eqn) && opFacts[eqn.op].price !== "heavy";
    return (isQuick || (isView(eqn) && keepsLoops(eqn))) && eqn.ins.every(fromFree);
  }

  private fused(eqn: Eqn<FusedOp>): void {
    if (isReduction(eqn)) this.reduce(eqn);
    else if (eqn.op !== "iota") this.elementwise(eqn);
  }

  /** A view refers to memory, so free operands of views that are not free themselves are written. */
  private view(eqn: Eqn): void {
    for (const atom of eqn.ins) this.demand(atom);
  }

  /** Makes sure that a value is in memory before the unit that reads it. */
  private demand(atom: Atom): void {
    if (atom.kind === "var" && this.free.has(atom.id)) this.materialise(atom);
  }

  private materialise(value: Var): void {
    if (this.materialised.has(value.id)) return;
    this.materialised.add(value.id);
    const map = freshMap(value.type.shape);
    const group = new FusionGroup(map.flat());
    group.maps.set(value.id, map);
    group.materialised.push(value);
    const unit = this.add({ kind: "group", group });
    this.unitOf.set(value.id, unit);
    this.expandFree(value, map, unit, group, true);
  }

  private add(unit: Unit): number {
    this.units.push(unit);
    return this.reach.add();
  }

  /** The unit that computes the memory of a value, through views; undefined for inputs and free values. */
  private producer(atom: Atom): number | undefined {
    if (atom.kind === "literal") return undefined;
    const unit = this.unitOf.get(atom.id);
    if (unit !== undefined) return this.reach.current(unit);
    const eqn = this.definitions.get(atom.id);
    return eqn && isView(eqn) && !this.free.has(atom.id) ? this.producer(at(eqn.ins, 0)) : undefined;
  }

  private groupAt(unit: number): FusionGroup | undefined {
    const found = this.units[unit];
    return found?.kind === "group" ? found.group : undefined;
  }

  private single(eqn: Eqn<Exclude<OpName, FusedOp | ViewOp>>): void {
    if (isGone(eqn)) throw new InternalError(`[compile] ${eqn.op} must not occur in a per-device program`);
    for (const atom of eqn.ins) this.demand(atom);
    const unit = this.add({ kind: "eqn", eqn });
    for (const out of eqn.outs) this.unitOf.set(out.id, unit);
    for (const atom of eqn.ins) this.dependOn(unit, atom);
    if (hasEffects(eqn)) {
      if (this.lastEffect !== undefined) this.reach.depend(unit, this.reach.current(this.lastEffect));
      this.lastEffect = unit;
    }
  }

  private dependOn(unit: number, atom: Atom): void {
    const producer = this.producer(atom);
    if (producer !== undefined) this.reach.depend(unit, producer);
  }

  /** Candidate units, the latest first, so that values are used soon after they are made. */
  private candidates(eqn: Eqn): number[] {
    const units = new Set<number>();
    for (const atom of eqn.ins) {
      const unit = this.producer(atom);
      if (unit !== undefined && this.groupAt(unit)) units.add(unit);
    }
    return [...units].sort((a, b) => b - a);
  }

  private elementwise(eqn: Exclude<FusionMember, Eqn<ReduceOp>>): void {
    const shape = at(eqn.outs, 0).type.shape;
    if (eqn.op === "gather") for (const atom of eqn.ins) this.demand(atom);
    const place = (group: FusionGroup): DimList[] | undefined => {
      const known = this.knownOperands(group, eqn);
      return known && (known.length > 0 ? group.unify(known, shape) : undefined);
    };
    for (const unit of this.candidates(eqn)) {
      const group = this.groupAt(unit);
      const map = group && this.mayJoin(unit, group, eqn) ? place(group) : undefined;
      if (!group || !map) continue;
      this.mergeOthers(unit, group, eqn, map);
      this.join(unit, group, eqn, place(group) ?? map);
      return;
    }
    const map = freshMap(shape);
    const group = new FusionGroup(map.flat());
    this.join(this.add({ kind: "group", group }), group, eqn, map);
  }

  /** The loops of the operands that the group computes; undefined where one of them is not ready in it. */
  private knownOperands(group: FusionGroup, eqn: Eqn): IndexMap[] | undefined {
    const maps: IndexMap[] = [];
    for (const atom of eqn.ins) {
      const known: Knowledge = group.knows(atom, this.definitions);
      if (known === AFTER_GROUP || (known && eqn.op === "gather")) return undefined;
      if (known) maps.push(known);
    }
    return maps;
  }

  /** Whether the equation can run in the group without waiting for something that waits for the group. */
  private mayJoin(unit: number, group: FusionGroup, eqn: Eqn): boolean {
    if (group.isFull) return false;
    const outside = this.outsideOperands(group, eqn);
    if (new Set([...group.reads.keys(), ...outside.map((v) => v.id)]).size > MAX_READS) return false;
    return outside.every((atom) => {
      const producer = this.producer(atom);
      return producer === undefined || (producer !== unit && !this.reach.depends(producer, unit));
    });
  }

  private outsideOperands(group: FusionGroup, eqn: Eqn): Var[] {
    return eqn.ins.filter(
      (atom): atom is Var =>
        atom.kind === "var" && !this.isExpanded(atom) && !group.knows(atom, this.definitions),
    );
  }

  private isExpanded(atom: Var): boolean {
    return this.free.has(atom.id) && !this.materialised.has(atom.id);
  }

  private join(
    unit: number,
    group: FusionGroup,
    eqn: FusionMember,
    map: readonly DimList[],
    late = false,
  ): void {
    for (const atom of this.outsideOperands(group, eqn)) {
      if (isElementwiseEqn(eqn) && this.inline(atom, map, unit, group, MAX_INLINED)) continue;
      this.read(atom, unit, group);
      const along = isReduction(eqn) ? group.operandMaps.get(eqn) : map;
      if (eqn.op !== "gather") group.readMaps.set(atom.id, along ?? map);
    }
    if (isElementwiseEqn(eqn)) {
      for (const atom of eqn.ins) {
        if (atom.kind === "var" && this.isExpanded(atom)) this.expandFree(atom, map, unit, group, false);
      }
    }
    group.members.push(eqn);
    for (const out of eqn.outs) {
      this.unitOf.set(out.id, unit);
      (late ? group.late : group.maps).set(out.id, [...map]);
    }
  }

  private read(atom: Var, unit: number, group: FusionGroup): void {
    group.reads.set(atom.id, atom);
    this.dependOn(unit, atom);
  }

  /**
   * Recomputes a cheap value of another group where that reads no more memory than reading the value: one operand of
   * the same size, and small ones. Values that only recomputed values need are then never written to memory.
   */
  private inline(
    value: Var,
    map: readonly DimList[],
    unit: number,
    group: FusionGroup,
    budget: number,
  ): boolean {
    if (group.inlined.has(value.id)) return true;
    const eqn = this.definitions.get(value.id);
    const producer = this.producer(value);
    if (!eqn || !isCheap(eqn) || producer === undefined || !this.groupAt(producer)) return false;
    if (this.pinned.has(value.id) || budget === 0 || group.reads.has(value.id)) return false;
    if (this.groupAt(producer)?.late.has(value.id)) return false;
    const operands = eqn.ins.filter((atom): atom is Var => atom.kind === "var");
    const size = sizeOf(value.type.shape);
    const large = new Set(operands.filter((o) => this.weight(o) * 4 > size).map((o) => o.id));
    if (large.size > 1 || operands.some((o) => o.type.shape.length !== value.type.shape.length)) return false;
    if (operands.some((o) => byteSize(o.type.dtype) > byteSize(value.type.dtype))) return false;
    group.inlined.add(value.id);
    for (const o of operands) {
      if (group.knows(o, this.definitions)) continue;
      if (this.isExpanded(o)) this.expandFree(o, map, unit, group, false);
      else if (!this.inline(o, map, unit, group, budget - 1)) this.read(o, unit, group);
    }
    return true;
  }

  /** The elements of memory that reading a value touches. */
  private weight(value: Var): number {
    if (this.isExpanded(value)) return 0;
    const eqn = this.definitions.get(value.id);
    const source = eqn && isView(eqn) ? at(eqn.ins, 0) : undefined;
    const size = sizeOf(value.type.shape);
    return source?.kind === "var" ? Math.min(size, this.weight(source)) : size;
  }

  /** Checks that a free value can be computed along the loops; parts of it that cannot are written to memory. */
  private expandFree(
    value: Var,
    map: readonly DimList[],
    unit: number,
    group: FusionGroup,
    isRoot: boolean,
  ): void {
    if (!isRoot && this.materialised.has(value.id)) {
      group.reads.set(value.id, value);
      this.dependOn(unit, value);
      return;
    }
    const eqn = this.definitions.get(value.id);
    if (!eqn || eqn.op === "iota") return;
    const sourceMap = isView(eqn) ? backward(eqn, map) : map;
    for (const atom of eqn.ins) {
      if (atom.kind === "literal") continue;
      if (!sourceMap) this.materialise(atom);
      this.expandFree(atom, sourceMap ?? [], unit, group, false);
    }
  }

  /** Merges other groups that compute operands of the equation into its group where their loops are the same. */
  private mergeOthers(unit: number, group: FusionGroup, eqn: Eqn, map: readonly DimList[]): void {
    for (const other of this.candidates(eqn)) {
      const found = this.groupAt(other);
      if (other === unit || !found || found.materialised.length > 0) continue;
      const known = this.knownOperands(found, eqn);
      if (!known || known.length === 0 || !this.reach.areIndependent(unit, other)) continue;
      if (this.waitsFor(eqn, other)) continue;
      if (new Set([...group.reads.keys(), ...found.reads.keys()]).size > MAX_READS) continue;
      const unified = found.unify(known, at(eqn.outs, 0).type.shape);
      if (unified) this.merge(unit, group, other, found, pairLoops(unified, map));
    }
  }

  private merge(
    unit: number,
    group: FusionGroup,
    other: number,
    found: FusionGroup,
    pairs: Map<Dim, Dim> | undefined,
  ): boolean {
    if (!pairs || !group.tryMerge(found, pairs)) return false;
    this.reach.merge(unit, other);
    this.units[other] = undefined;
    for (const id of [...found.maps.keys(), ...found.late.keys()]) this.unitOf.set(id, unit);
    return true;
  }

  /** Merges groups that walk the same large operand in the same way, so that it is read once. */
  private mergeSiblings(): void {
    const readers = new Map<number, number[]>();
    this.units.forEach((unit, u) => {
      if (unit?.kind !== "group") return;
      for (const id of unit.group.readMaps.keys()) getOrInsert(readers, id, () => []).push(u);
    });
    for (const [id, units] of readers) {
      for (const [i, late] of units.entries()) {
        for (const early of units.slice(0, i)) this.trySiblings(id, early, late);
      }
    }
  }

  private trySiblings(id: number, early: number, late: number): void {
    const [group, other] = [this.groupAt(early), this.groupAt(late)];
    const [map, otherMap] = [group?.readMaps.get(id), other?.readMaps.get(id)];
    if (!group || !other || !map || !otherMap || other.materialised.length > 0) return;
    if (!this.reach.areIndependent(early, late)) return;
    if (group.members.length + other.members.length > MAX_SIBLINGS) return;
    if (new Set([...group.reads.keys(), ...other.reads.keys()]).size > MAX_READS) return;
    const value = group.reads.get(id);
    if (!value || this.weight(value) < LARGE_OPERAND || group.loops().length !== other.loops().length) return;
    this.merge(early, group, late, other, pairLoops(otherMap, map));
  }

  /** Whether an operand of the equation that the unit does not compute itself depends on the unit. */
  private waitsFor(eqn: Eqn, unit: number): boolean {
    return eqn.ins.some((atom) => {
      const producer = this.producer(atom);
      return producer !== undefined && producer !== unit && this.reach.depends(producer, unit);
    });
  }

  private reduce(eqn: Eqn<ReduceOp>): void {
    const x = at(eqn.ins, 0);
    const { shape } = x.type;
    for (const unit of this.candidates(eqn)) {
      const group = this.groupAt(unit);
      if (!group || !this.mayJoin(unit, group, eqn)) continue;
      const known = group.knows(x, this.definitions);
      if (!known || known === AFTER_GROUP) continue;
      const map = group.unify([known], shape);
      if (map && this.reduceIn(unit, group, eqn, map)) return;
    }
    const map = freshMap(shape);
    const group = new FusionGroup(map.flat());
    this.reduceIn(this.add({ kind: "group", group }), group, eqn, map);
  }

  private reduceIn(unit: number, group: FusionGroup, eqn: Eqn<ReduceOp>, map: readonly DimList[]): boolean {
    const { dims } = eqn.params;
    const reduced = expand(dims.flatMap((d) => at(map, d)));
    const valueLoops = map.flatMap((list) => expand(list));
    const place = group.reductionPlace(valueLoops, reduced, this.options.addsOverRows);
    if (place === undefined) return false;
    if (place === "rows") group.inner = reduced;
    group.operandMaps.set(eqn, map);
    const kept = map.filter((_, d) => !dims.includes(d));
    this.join(unit, group, eqn, kept, place === "late");
    const x = at(eqn.ins, 0);
    if (x.kind === "var" && this.isExpanded(x)) this.expandFree(x, map, unit, group, false);
    return true;
  }
}
