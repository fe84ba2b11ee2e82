import { isFloat } from "../../../ir/dtype.js";
import { type MeshShape, type Spec, sameSpec, splitCount } from "../../../ir/mesh.js";
import type { Eqn } from "../../../ir/program.js";
import { at, range, type TensorType } from "../../../ir/shape.js";
import {
  besides,
  type Moves,
  movedDims,
  type RowIndex,
  type Segments,
  type Term,
  type Value,
} from "../placement/rowValues.js";
import { segment } from "./segments.js";

/** The result of an equation as rows that are not yet moved, if it moves rows of a split dim or adds such. */
export function unmoved(
  eqn: Eqn,
  ins: readonly Value[],
  type: TensorType,
  mesh: MeshShape,
): Segments | Moves | undefined {
  const rows = ins.filter((value) => value.kind !== "moves");
  const simple = rows.length === ins.length ? segment(eqn, rows, type) : undefined;
  if (simple) return simple;
  if (eqn.op === "add") return addMoves(ins, type);
  return eqn.op === "slice" || eqn.op === "pad" ? moveRows(eqn, at(ins, 0), type, mesh) : undefined;
}

/** A value as rows to be moved, if all of them come from values that are split alike. */
function asMoves(value: Value): Moves | undefined {
  if (value.kind === "moves") return value;
  if (value.kind === "blocks") return undefined;
  const { pieces, dim, type, after, base } = value;
  const sources = new Set(pieces.flatMap(({ source }) => source ?? []));
  const [first] = sources;
  if (!first || [...sources].some(({ spec }) => !sameSpec(spec, first.spec))) return undefined;
  const terms = [...sources].map((source): Term => {
    const index = pieces.flatMap((piece) =>
      range(piece.length).map((i) => (piece.source === source ? piece.start + i : -1)),
    );
    return { source, rows: new Map([[dim, index]]), ...(after ? { after } : {}) };
  });
  return { kind: "moves", type, terms, ...(base ? { base } : {}) };
}

/** How the values are split whose rows move. */
export function specOfMoves({ terms }: Moves): Spec {
  return at(terms, 0).source.spec;
}

/** The result of a slice or pad as moves, if it moves rows of a split dim. */
function moveRows(
  eqn: Eqn<"slice"> | Eqn<"pad">,
  value: Value,
  type: TensorType,
  mesh: MeshShape,
): Moves | undefined {
  const dims = movedDims(eqn);
  if (value.kind === "blocks") {
    const split = dims.filter((d) => (value.spec[d] ?? []).length > 0);
    // Zeros may be cut off again; what remains of a window and does not split evenly is taken from the whole.
    const isEven = (d: number) => at(type.shape, d) % splitCount(mesh, value.spec[d] ?? []) === 0;
    if (split.length === 0 || (eqn.op === "slice" && !split.every(isEven))) return undefined;
  }
  const moves: Moves | undefined =
    value.kind === "blocks"
      ? { kind: "moves", type: at(eqn.ins, 0).type, terms: [{ source: value, rows: new Map() }] }
      : asMoves(value);
  if (!moves || moves.base || dims.length === 0) return undefined;
  const before = at(eqn.ins, 0).type.shape;
  const terms = moves.terms.map((term): Term => {
    const along = dims.filter((d) => term.rows.has(d) || (term.source.spec[d] ?? []).length > 0);
    const rows = new Map(term.rows);
    for (const d of along) rows.set(d, movedIndex(eqn, d, rows.get(d) ?? range(at(before, d))));
    return { source: term.source, rows, ...besides(eqn, along, term.after) };
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

/** The sum of values of which at least one is rows to be moved, to be moved together. */
function addMoves(values: readonly Value[], type: TensorType): Moves | undefined {
  if (!isFloat(type.dtype)) return undefined;
  const moves = values.flatMap((value) => (value.kind === "blocks" ? [] : [asMoves(value)]));
  const bases = values.filter((value) => value.kind === "blocks");
  const known = moves.filter((value) => value !== undefined);
  const [first] = known;
  if (!first || known.length !== moves.length) return undefined;
  const all = [...bases, ...known.flatMap(({ base }) => base ?? [])];
  const specs = [
    ...known.flatMap(({ terms }) => terms.map(({ source }) => source.spec)),
    ...all.map(({ spec }) => spec),
  ];
  if (all.length > 1 || specs.some((spec) => !sameSpec(spec, specOfMoves(first)))) return undefined;
  const [base] = all;
  return { kind: "moves", type, terms: known.flatMap(({ terms }) => terms), ...(base ? { base } : {}) };
}

/** Whether a value is rows between zeros, as gradients of windows are: such values are added before they move. */
export function isSparse(value: Value): value is Segments | Moves {
  if (value.kind === "blocks") return false;
  if (value.kind === "segments") return value.pieces.some(({ source }) => source === null);
  return value.terms.some(({ rows }) => [...rows.values()].some((index) => index.includes(-1)));
}
