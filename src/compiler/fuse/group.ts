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

/** A value that a group computes but cannot read: the sums of all rows are complete only at its end. */
export const AFTER_GROUP = Symbol("after the group");

/** What a group knows of a value: its loops, that it comes from outside, or that it is not ready in the group. */
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

  /** What the group knows of a value, looking through views of its own values. */
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
