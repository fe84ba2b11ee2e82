import type { OpName, OpParams } from "../../ir/ops.js";
import type { Atom, Eqn, Var } from "../../ir/program.js";
import { at, range } from "../../ir/shape.js";
import { align, type Dim, type DimList, distribute, expand, type IndexMap, sameLoops } from "./dims.js";

/** An equation that is only another way to look at its operand. */
export type ViewEqn = Eqn<"broadcastInDim" | "reshape" | "transpose" | "reverse" | "slice">;

/** Whether the equation is only another way to look at its operand. */
export function isView(eqn: Eqn): eqn is ViewEqn {
  return viewOps.has(eqn.op);
}

const viewOps: ReadonlySet<OpName> = new Set(["broadcastInDim", "reshape", "transpose", "reverse", "slice"]);

/** A value that a group computes but cannot read: the sums of all rows are complete only at its end. */
export const AFTER_GROUP = Symbol("after the group");

/** What a group knows of a value: its loops, that it comes from outside, or that it is not ready in the group. */
export type Knowledge = IndexMap | undefined | typeof AFTER_GROUP;

/** Equations that run as one kernel over common loops. */
export class Group {
  readonly members: Eqn[] = [];
  /** The values that members compute, with their loops. */
  readonly maps = new Map<number, DimList[]>();
  /** The results of reductions that are complete only when the whole kernel has run. */
  readonly late = new Map<number, DimList[]>();
  /** The loops of the operands of reductions. */
  readonly operandMaps = new Map<Eqn<"reduceSum" | "reduceMax" | "reduceMin">, readonly DimList[]>();
  /** The loops that reductions inside the rows run over. */
  inner: DimList | undefined;
  /** Values from outside, by id. */
  readonly reads = new Map<number, Var>();
  /** How the group runs along values from outside that it reads element by element. */
  readonly readMaps = new Map<number, readonly DimList[]>();
  /** Cheap values of other groups that this one computes again instead of reading them. */
  readonly inlined = new Set<number>();
  /** Free values that the group is there to write. */
  readonly materialised: Var[] = [];

  constructor(public dims: DimList) {}

  /** What the group knows of a value, looking through views of its own values. */
  knows(atom: Atom, definitions: ReadonlyMap<number, Eqn>): Knowledge {
    if (atom.kind === "literal") return undefined;
    const own = this.maps.get(atom.id);
    if (own) return own;
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
      for (const d of range(shape.length)) {
        const [known, given] = [result[d], map[d]];
        if (!given || shape[d] === 1) continue;
        if (!known) result[d] = given;
        else if (!(align(known, given) && sameLoops(known, given))) return undefined;
      }
    }
    const used = new Set(result.flatMap((list) => (list ? expand(list) : [])));
    const open = expand(this.dims).filter((dim) => !used.has(dim));
    const missing = range(shape.length).filter((d) => result[d] === undefined);
    if (missing.length === 0) return complete(result);
    const sizes = missing.map((d) => at(shape, d));
    const lists = distribute(open, sizes);
    if (!lists) return undefined;
    missing.forEach((d, i) => {
      result[d] = at(lists, i);
    });
    return complete(result);
  }

  /** All loops as they are today. */
  loops(): Dim[] {
    return expand(this.dims);
  }
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

/** The loops of a view's result, given those of its operand. */
export function forward(eqn: ViewEqn, source: IndexMap): IndexMap | undefined {
  switch (eqn.op) {
    case "transpose":
      return eqn.params.permutation.map((p) => source[p]);
    case "broadcastInDim":
      return forwardBroadcast(eqn.params, source, at(eqn.ins, 0).type.shape);
    case "reshape": {
      if (source.some((list) => list === undefined)) return undefined;
      return distribute(
        source.flatMap((list) => list ?? []),
        eqn.params.shape,
      );
    }
    default:
      return undefined;
  }
}

function forwardBroadcast(
  { shape, dims }: OpParams["broadcastInDim"],
  source: IndexMap,
  from: readonly number[],
): IndexMap {
  const result: (DimList | undefined)[] = shape.map((n) => (n === 1 ? [] : undefined));
  dims.forEach((d, i) => {
    if (from[i] === shape[d]) result[d] = source[i];
  });
  return result;
}

/** The loops of a view's operand, given those of its result. */
export function backward(eqn: ViewEqn, result: readonly DimList[]): DimList[] | undefined {
  switch (eqn.op) {
    case "transpose": {
      const source: DimList[] = [];
      eqn.params.permutation.forEach((p, i) => {
        source[p] = at(result, i);
      });
      return source;
    }
    case "broadcastInDim":
      return at(eqn.ins, 0).type.shape.map((n, i) => (n === 1 ? [] : at(result, at(eqn.params.dims, i))));
    case "reshape":
      return distribute(result.flat(), at(eqn.ins, 0).type.shape);
    default:
      return undefined;
  }
}
