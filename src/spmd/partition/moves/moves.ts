import { getOrInsert } from "../../../ir/collections.js";
import { isFloat } from "../../../ir/dtype.js";
import { type MeshShape, type Spec, sameSpec, splitCount } from "../../../ir/mesh.js";
import type { Eqn } from "../../../ir/program.js";
import { at, range, type TensorType } from "../../../ir/shape.js";
import {
  besides,
  type DeviceBlocks,
  type Moves,
  movedDims,
  type PartitionedValue,
  type RowIndex,
  type Term,
} from "../placement/rowValues.js";

/** The result of an equation as moves that are still to be made, if it moves rows of a split dim or adds moved rows. */
export function unmoved(
  eqn: Eqn,
  ins: readonly PartitionedValue[],
  type: TensorType,
  mesh: MeshShape,
): Moves | undefined {
  if (eqn.op === "add") return addMoves(ins, type);
  if (eqn.op === "concatenate") return joinRows(eqn, ins, type);
  return eqn.op === "slice" || eqn.op === "pad" ? moveRows(eqn, at(ins, 0), type, mesh) : undefined;
}

/** The spec of the values whose rows move; some of them may have all rows of a dim on every device. */
export function specOfMoves({ terms, type }: Moves): Spec {
  const numAxes = ({ source }: Term) => source.spec.flat().length;
  const [first, ...others] = terms;
  const finest = others.reduce((best, term) => (best && numAxes(term) > numAxes(best) ? term : best), first);
  return finest?.source.spec ?? type.shape.map(() => []);
}

/** Rows of zeros, which need not be sent. */
export function zeroRows(type: TensorType): Moves {
  return { kind: "moves", type, terms: [] };
}

/** Whether a value can be concatenated along a dim before its rows move. */
export function isChain(value: PartitionedValue, dim: number): boolean {
  if (value.kind === "blocks" || value.terms.length === 0) return true;
  const isPlain = ({ rows, after }: Term) => !after && rows.size === 1 && rows.has(dim);
  return !value.base && value.terms.every(isPlain) && at(maxAndMin(value), 0) <= 1;
}

/** The largest and the smallest number of terms that bring the same row of moves along one dim. */
export function maxAndMin({ terms }: Moves): readonly [most: number, least: number] {
  const lists = terms.flatMap(({ rows }) => [...rows.values()]);
  const counts = at(lists, 0).map((_, row) => lists.filter((index) => at(index, row) >= 0).length);
  return [Math.max(0, ...counts), Math.min(...counts)];
}

/** A concatenation along a split dim. */
function joinRows(
  { ins: atoms, params: { dim } }: Eqn<"concatenate">,
  ins: readonly PartitionedValue[],
  type: TensorType,
): Moves | undefined {
  if (!ins.every((value) => isChain(value, dim))) return undefined;
  const joined = new Map<DeviceBlocks, number[]>();
  let offset = 0;
  ins.forEach((value, i) => {
    const length = at(at(atoms, i).type.shape, dim);
    const terms =
      value.kind === "moves" ? value.terms : [{ source: value, rows: new Map<number, RowIndex>() }];
    for (const { source, rows } of terms) {
      const index = getOrInsert(joined, source, () => range(at(type.shape, dim)).map(() => -1));
      for (const [r, row] of (rows.get(dim) ?? range(length)).entries())
        if (row >= 0) index[offset + r] = row;
    }
    offset += length;
  });
  const terms = [...joined].map(([source, index]): Term => ({ source, rows: new Map([[dim, index]]) }));
  const moves: Moves = { kind: "moves", type, terms };
  const spec = specOfMoves(moves);
  const isAlike = ({ source }: Term) =>
    type.shape.every((_, d) => {
      const axes = source.spec[d] ?? [];
      return (d === dim && axes.length === 0) || axes.join() === (spec[d] ?? []).join();
    });
  return (spec[dim] ?? []).length > 0 && terms.every(isAlike) ? moves : undefined;
}

/** Whether an equation skips rows, or puts zeros between them. */
function isSpaced({ op, params }: Eqn<"slice"> | Eqn<"pad">, dim: number): boolean {
  return op === "slice" ? params.strides[dim] !== 1 : params.interior[dim] !== 0;
}

/** The result of a slice or pad as moves, if it moves rows of a split dim. */
function moveRows(
  eqn: Eqn<"slice"> | Eqn<"pad">,
  value: PartitionedValue,
  type: TensorType,
  mesh: MeshShape,
): Moves | undefined {
  const dims = movedDims(eqn);
  if (value.kind === "blocks") {
    const split = dims.filter((d) => (value.spec[d] ?? []).length > 0);
    const [first] = split;
    if (first === undefined) return undefined;
    // Rows of one dim may be put together again; what remains of another window and does not split evenly is taken from
    // the whole. Zeros may be cut off again.
    const isRow = split.length === 1 && !isSpaced(eqn, first);
    const isEven = (d: number) => at(type.shape, d) % splitCount(mesh, value.spec[d] ?? []) === 0;
    if (eqn.op === "slice" && !isRow && !split.every(isEven)) return undefined;
  }
  const before = at(eqn.ins, 0).type;
  const moves: Moves =
    value.kind === "moves"
      ? value
      : { kind: "moves", type: before, terms: [{ source: value, rows: new Map() }] };
  if (moves.base || dims.length === 0) return undefined;
  // Terms to which the same happens share one function, so that it can happen to all of them together.
  const shared = new Map<Term["after"], Map<string, Pick<Term, "after">>>();
  const terms = moves.terms.map(({ source, rows: given, after }): Term => {
    const along = dims.filter((d) => given.has(d) || (source.spec[d] ?? []).length > 0);
    const rows = new Map(given);
    for (const d of along) rows.set(d, movedIndex(eqn, d, rows.get(d) ?? range(at(before.shape, d))));
    const known = getOrInsert(shared, after, () => new Map());
    const next = getOrInsert(known, `${along}`, () => besides(eqn, along, after));
    return { source, rows, ...next };
  });
  return { kind: "moves", type, terms };
}

function movedIndex({ op, params }: Eqn<"slice"> | Eqn<"pad">, dim: number, index: RowIndex): RowIndex {
  if (op === "slice") {
    const kept = index.slice(at(params.starts, dim), at(params.limits, dim));
    return kept.filter((_, i) => i % at(params.strides, dim) === 0);
  }
  const [low, high, interior] = [params.low, params.high, params.interior].map((list) => at(list, dim));
  const zeros = (count = 0) => range(Math.max(count, 0)).map(() => -1);
  const spaced = index.flatMap((row, i) => (i === 0 ? [row] : [...zeros(interior), row]));
  const cut = spaced.slice(Math.max(-(low ?? 0), 0), spaced.length - Math.max(-(high ?? 0), 0));
  return [...zeros(low), ...cut, ...zeros(high)];
}

/** A sum with at least one operand whose rows are still to be moved; all of them move together. */
function addMoves(values: readonly PartitionedValue[], type: TensorType): Moves | undefined {
  if (!isFloat(type.dtype)) return undefined;
  const moves = values.filter((value) => value.kind === "moves");
  const bases = values.filter((value) => value.kind === "blocks");
  const all = [...bases, ...moves.flatMap(({ base }) => base ?? [])];
  const terms = moves.flatMap((value) => value.terms);
  const specs = [...terms.map(({ source }) => source.spec), ...all.map(({ spec }) => spec)];
  const [first] = specs;
  if (moves.length === 0 || !first || all.length > 1 || specs.some((spec) => !sameSpec(spec, first)))
    return undefined;
  const [base] = all;
  return { kind: "moves", type, terms: terms.reduce(withTerm, []), ...(base ? { base } : {}) };
}

/**
 * The terms with another one. Rows of the same value for different places, as the gradient of a roll adds, become one
 * term, so that they travel together.
 */
function withTerm(terms: readonly Term[], next: Term): readonly Term[] {
  const [[dim, index] = []] = next.rows;
  if (dim === undefined || index === undefined || next.rows.size > 1) return [...terms, next];
  const place = terms.findIndex(({ source, rows, after }) => {
    const known = rows.size === 1 ? rows.get(dim) : undefined;
    const isFree = known?.every((row, i) => row < 0 || at(index, i) < 0);
    return isFree && source === next.source && after === next.after;
  });
  const rows = terms[place]?.rows.get(dim)?.map((row, i) => Math.max(row, at(index, i)));
  return rows ? terms.with(place, { ...next, rows: new Map([[dim, rows]]) }) : [...terms, next];
}

/** Whether a value is a sum, or rows between zeros, as gradients of windows are: such are added before they move. */
export function isSparse(value: PartitionedValue): value is Moves {
  if (value.kind === "blocks") return false;
  const dims = new Set(value.terms.flatMap(({ rows }) => [...rows.keys()]));
  if (value.terms.length > 1 && dims.size === 1) {
    const [most, least] = maxAndMin(value);
    return most > 1 || least === 0;
  }
  return value.terms.some(({ rows }) => [...rows.values()].some((index) => index.includes(-1)));
}
