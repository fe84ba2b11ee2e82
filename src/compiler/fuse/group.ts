/**
 * Afterwards a group knows, for each of its values and through all views of it, along which of its loops every dim
 * runs; no two dims of one value run along the same loop.
 *
 * Unchanged are the equations: a group lists them and never rewrites one.
 */

import type { ReduceOp } from "../../ir/opFacts.js";
import type { Atom, Eqn, Var } from "../../ir/program.js";
import { at, inversePermutation, range } from "../../ir/shape.js";
import { type FusedOp, isView, type ViewOp } from "../lowering.js";
import { align, type Dim, type DimList, distribute, expand, type IndexMap, sameLoops } from "./dims.js";

/** An equation that runs in a group: everything fused but iota, which every kernel computes for itself. */
export type FusionMember = Eqn<Exclude<FusedOp, "iota">>;

/** Maximum number of equations in a group; writing a larger kernel takes longer than running a second one. */
const MAX_MEMBERS = 512;

/** A value that a group computes but cannot read: the sums of all rows are complete only at its end. */
export const AFTER_GROUP = Symbol("after the group");

/** What a group knows about a value: its loops, that it comes from outside, or that it is not ready in the group. */
export type Knowledge = IndexMap | undefined | typeof AFTER_GROUP;

/** Equations that run as one kernel over common loops. */
export class FusionGroup {
  readonly members: FusionMember[] = [];
  /** The values that members compute, with their loops. */
  readonly maps = new Map<number, DimList[]>();
  /** The results of reductions that are complete only when the whole kernel has run. */
  readonly late = new Map<number, DimList[]>();
  /** The loops of the operands of reductions. */
  readonly operandMaps = new Map<Eqn<ReduceOp>, readonly DimList[]>();
  /** The loops that reductions inside the rows run over. */
  inner: DimList | undefined;
  /** Values from outside, by id. */
  readonly reads = new Map<number, Var>();
  /** How the group runs along values from outside that it reads element by element. */
  readonly readMaps = new Map<number, readonly DimList[]>();
  /** Cheap values of other groups that this one recomputes instead of reading. */
  readonly inlined = new Set<number>();
  /** Free values that the group exists to write. */
  readonly materialised: Var[] = [];

  constructor(public dims: DimList) {}

  /** What the group knows about a value, looking through views of its own values. */
  knows(atom: Atom, definitions: ReadonlyMap<number, Eqn>): Knowledge {
    if (atom.kind === "literal") return undefined;
    const known = this.maps.get(atom.id);
    if (known) return known;
    if (this.late.has(atom.id)) return AFTER_GROUP;
    const eqn = definitions.get(atom.id);
    if (!eqn || !isView(eqn)) return undefined;
    const source = this.knows(at(eqn.ins, 0), definitions);
    if (source === undefined || source === AFTER_GROUP) return source;
    return forward(eqn, source) ?? AFTER_GROUP;
  }

  /**
   * The loops of a result whose operands have the given loops (undefined where they come from outside): loops
   * that only broadcasts leave open are taken from those of the group that are not used yet.
   */
  unify(operands: readonly IndexMap[], shape: readonly number[]): DimList[] | undefined {
    const result: (DimList | undefined)[] = shape.map((n) => (n === 1 ? [] : undefined));
    for (const map of operands) {
      for (let d = 0; d < shape.length; d++) {
        const known = result[d];
        const given = map[d];
        if (!given || shape[d] === 1 || known === given) continue;
        if (!known) result[d] = given;
        else if (!canBeSame(known, given)) return undefined;
      }
    }
    if (!result.includes(undefined)) return complete(result);
    const missing = range(shape.length).filter((d) => result[d] === undefined);
    const used = new Set(result.flatMap((list) => (list ? expand(list) : [])));
    const open = expand(this.dims).filter((dim) => !used.has(dim));
    const sizes = missing.map((d) => at(shape, d));
    const lists = distribute(open, sizes);
    if (!lists) return undefined;
    missing.forEach((d, i) => {
      result[d] = at(lists, i);
    });
    return complete(result);
  }

  /** All current loops. */
  loops(): Dim[] {
    return expand(this.dims);
  }

  /** Whether the group may get no more equations. */
  get isFull(): boolean {
    return this.members.length >= MAX_MEMBERS;
  }

  /** The loops that each reduction over all rows of the group runs over. */
  private lateDims(): Dim[][] {
    return [...this.operandMaps]
      .filter(([eqn]) => this.late.has(at(eqn.outs, 0).id))
      .map(([eqn, map]) => expand(eqn.params.dims.flatMap((d) => at(map, d))));
  }

  /**
   * Where the group can reduce a value: `rows` makes the reduced loops the inner ones, `row` reduces over the inner
   * loops that there are already, `late` adds up over all rows, so that the result is ready when the kernel ends.
   *
   * @param valueLoops the loops of the value
   * @param addsOverRows whether kernels may add up over all of their rows
   */
  reductionPlace(
    valueLoops: readonly Dim[],
    reduced: readonly Dim[],
    addsOverRows: boolean,
  ): "rows" | "row" | "late" | undefined {
    const loops = this.loops();
    const late = addsOverRows ? "late" : undefined;
    const inner = this.inner && expand(this.inner);
    const isWhole = loops.every((dim) => valueLoops.includes(dim));
    const last = loops.at(-1);
    if (!inner) {
      if (!isWhole) return undefined;
      if (addsOverRows && (!last || !reduced.includes(last))) return "late";
      return this.lateDims().every((others) => hasAllOrNone(others, reduced)) ? "rows" : undefined;
    }
    const touched = inner.filter((dim) => reduced.includes(dim));
    if (touched.length === inner.length) {
      if (reduced.length === inner.length) return "row";
      return isWhole ? late : undefined;
    }
    if (touched.length > 0) return undefined;
    const hasRows = loops.every((dim) => inner.includes(dim) || valueLoops.includes(dim));
    const isRowValue = !valueLoops.some((dim) => inner.includes(dim));
    return isWhole || (hasRows && isRowValue) ? late : undefined;
  }

  /**
   * Takes over the members of another group if one kernel can run both.
   *
   * @param pairs which loop of this group each loop of the other is
   */
  tryMerge(other: FusionGroup, pairs: ReadonlyMap<Dim, Dim>): boolean {
    if (this.members.length + other.members.length > MAX_MEMBERS) return false;
    const [loops, ownLoops] = [other.loops(), this.loops()];
    const targets = loops.map((dim) => pairs.get(dim));
    if (targets.some((dim) => dim === undefined) || new Set(targets).size !== targets.length) return false;
    // Sums over rows count every row of the group once, so they only move to a group with the same rows.
    const hasSameRows = loops.length === ownLoops.length && targets.at(-1) === ownLoops.at(-1);
    if (other.late.size > 0 && !hasSameRows) return false;
    const mine = this.inner && expand(this.inner);
    const theirs = other.inner && expand(other.inner).flatMap((dim) => pairs.get(dim) ?? []);
    if (mine && theirs && !(mine.length === theirs.length && mine.every((dim) => theirs.includes(dim))))
      return false;
    const inner = mine ?? theirs;
    const fits = (reduced: readonly (Dim | undefined)[]) => !inner || hasAllOrNone(reduced, inner);
    if (!this.lateDims().every(fits)) return false;
    if (!other.lateDims().every((reduced) => fits(reduced.map((dim) => pairs.get(dim))))) return false;
    this.inner = inner;
    for (const [dim, target] of pairs) if (dim !== target && loops.includes(dim)) dim.become(target);
    this.members.push(...other.members);
    for (const [id, map] of other.maps) this.maps.set(id, map);
    for (const [id, map] of other.late) this.late.set(id, map);
    for (const [eqn, map] of other.operandMaps) this.operandMaps.set(eqn, map);
    for (const [id, value] of other.reads) this.reads.set(id, value);
    for (const [id, map] of other.readMaps) if (!this.readMaps.has(id)) this.readMaps.set(id, map);
    for (const id of other.inlined) this.inlined.add(id);
    for (const id of [...this.maps.keys(), ...this.late.keys()]) this.reads.delete(id);
    return true;
  }
}

/** Whether a list has all of some loops, or none of them. */
function hasAllOrNone(list: readonly (Dim | undefined)[], loops: readonly Dim[]): boolean {
  return loops.every((dim) => list.includes(dim)) || !loops.some((dim) => list.includes(dim));
}

/** Whether two lists are the same loops, once those of one are split where those of the other are. */
function canBeSame(a: DimList, b: DimList): boolean {
  return sameLoops(a, b) || (align(a, b) !== undefined && sameLoops(a, b));
}

function complete(lists: readonly (DimList | undefined)[]): DimList[] | undefined {
  const used = new Set<Dim>();
  for (const list of lists) {
    if (!list) return undefined;
    for (const dim of expand(list)) {
      // A diagonal: two dims of one tensor would run in the same loop.
      if (used.has(dim)) return undefined;
      used.add(dim);
    }
  }
  return lists.map((list) => list ?? []);
}

/** How the loops of a view's result follow from those of its operand, and the reverse. */
interface LoopRule<K extends ViewOp> {
  readonly forward: (eqn: Eqn<K>, source: IndexMap) => IndexMap | undefined;
  readonly backward: (eqn: Eqn<K>, result: readonly DimList[]) => DimList[] | undefined;
}

/** Views that a kernel can read through in registers; the others omit or reverse elements. */
const loopRules: { readonly [K in ViewOp]: LoopRule<K> | undefined } = {
  transpose: {
    forward: ({ params }, source) => params.permutation.map((p) => source[p]),
    backward: ({ params }, result) => inversePermutation(params.permutation).map((p) => at(result, p)),
  },
  broadcastInDim: {
    forward: ({ params: { shape, dims }, ins }, source) => {
      const from = at(ins, 0).type.shape;
      const result: (DimList | undefined)[] = shape.map((n) => (n === 1 ? [] : undefined));
      dims.forEach((d, i) => {
        if (from[i] === shape[d]) result[d] = source[i];
      });
      return result;
    },
    backward: ({ params: { dims }, ins }, result) =>
      at(ins, 0).type.shape.map((n, i) => (n === 1 ? [] : at(result, at(dims, i)))),
  },
  reshape: {
    forward: ({ params }, source) => {
      const known = source.flatMap((list) => (list ? [list] : []));
      return known.length === source.length ? distribute(known.flat(), params.shape) : undefined;
    },
    backward: ({ ins }, result) => distribute(result.flat(), at(ins, 0).type.shape),
  },
  reverse: undefined,
  slice: undefined,
};

/** Whether a view has all elements of its operand in the order of some loops. */
export function keepsLoops(eqn: Eqn<ViewOp>): boolean {
  return loopRules[eqn.op] !== undefined;
}

/** The loops of a view's result, given those of its operand. */
export function forward<K extends ViewOp>(eqn: Eqn<K>, source: IndexMap): IndexMap | undefined {
  const { op }: { readonly op: K } = eqn;
  const rule: LoopRule<K> | undefined = loopRules[op];
  return rule?.forward(eqn, source);
}

/** The loops of a view's operand, given those of its result. */
export function backward<K extends ViewOp>(eqn: Eqn<K>, result: readonly DimList[]): DimList[] | undefined {
  const { op }: { readonly op: K } = eqn;
  const rule: LoopRule<K> | undefined = loopRules[op];
  return rule?.backward(eqn, result);
}
