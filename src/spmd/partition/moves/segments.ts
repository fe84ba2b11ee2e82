import { isFloat } from "../../../ir/dtype.js";
import { type DimAxes, type MeshShape, type Spec, sameSpec, splitCount } from "../../../ir/mesh.js";
import type { Eqn } from "../../../ir/program.js";
import { at, type Shape, type TensorType } from "../../../ir/shape.js";
import * as ops from "../../../trace/ops.js";
import type { Tensor } from "../../../trace/tensor.js";
import { namedAxes } from "../placement/reshard.js";
import { type Blocks, besides, movedDims, type Piece, type Segments } from "../placement/rowValues.js";

/** A value whose rows are along one dim. */
type Row = Blocks | Segments;

/** Of the dims along which an equation moves rows the one that is split, if it is the only one. */
function splitDim(eqn: Eqn, operands: readonly Row[]): number | undefined {
  const dims = movedDims(eqn);
  if (eqn.op === "concatenate") return eqn.params.dim;
  const [value] = operands;
  if (dims.length === 0 || !value) return undefined;
  const split = dims.filter(
    (d) => rowAxes(value, d).length > 0 || (value.kind === "segments" && d === value.dim),
  );
  if (split.some((d) => isSpaced(eqn, d))) return undefined;
  if (value.kind === "segments") return split.every((d) => d === value.dim) ? value.dim : undefined;
  return split.length === 1 ? split[0] : undefined;
}

/** Whether an equation takes rows out of between others, or puts zeros between them. */
function isSpaced({ op, params }: Eqn, dim: number): boolean {
  if (op === "slice") return params.strides[dim] !== 1;
  return op === "pad" && params.interior[dim] !== 0;
}

/** The result of an equation as segments, if it moves rows of a split dim. */
export function segment(eqn: Eqn, ins: readonly Row[], type: TensorType): Segments | undefined {
  if (eqn.op === "add") return merge(ins, type);
  const operands = eqn.op === "pad" ? ins.slice(0, 1) : ins;
  const dim = splitDim(eqn, operands);
  if (dim === undefined) return undefined;
  const isRow = (value: Row) =>
    value.kind === "blocks" ||
    (value.dim === dim && !value.base && !(value.after && eqn.op === "concatenate"));
  if (!operands.every(isRow) || !operands.some((value) => rowAxes(value, dim).length > 0)) return undefined;
  const lists = operands.map((value, i) => piecesOf(value, at(at(eqn.ins, i).type.shape, dim)));
  if (eqn.op === "concatenate") return consistent({ kind: "segments", type, dim, pieces: lists.flat() });
  if (eqn.op !== "slice" && eqn.op !== "pad") return undefined;
  const pieces = at(lists, 0);
  const [operand] = operands;
  const after = besides(eqn, [dim], operand?.kind === "segments" ? operand.after : undefined);
  if (eqn.op === "slice") {
    const rows = cut(pieces, at(eqn.params.starts, dim), at(eqn.params.limits, dim));
    return { kind: "segments", type, dim, pieces: rows, ...after };
  }
  const [low, high] = [at(eqn.params.low, dim), at(eqn.params.high, dim)];
  const zeros = (length: number): Piece[] => (length > 0 ? [{ source: null, start: 0, length }] : []);
  const total = pieces.reduce((n, piece) => n + piece.length, 0);
  const kept = cut(pieces, Math.max(0, -low), total - Math.max(0, -high));
  return { kind: "segments", type, dim, pieces: [...zeros(low), ...kept, ...zeros(high)], ...after };
}

/** The axes that split a value along a dim, or the tensors that it is put together from. */
function rowAxes(value: Row, dim: number): DimAxes {
  return (value.kind === "segments" ? sourceSpec(value) : value.spec)[dim] ?? [];
}

/** Rows of zeros, which need not be sent. */
export function zeroRows(type: TensorType, dim: number): Segments {
  return { kind: "segments", type, dim, pieces: [{ source: null, start: 0, length: at(type.shape, dim) }] };
}

function piecesOf(value: Row, length: number): readonly Piece[] {
  return value.kind === "segments" ? value.pieces : [{ source: value, start: 0, length }];
}

function cut(pieces: readonly Piece[], start: number, limit: number): Piece[] {
  let position = 0;
  return pieces.flatMap((piece) => {
    const from = Math.max(start - position, 0);
    const to = Math.min(limit - position, piece.length);
    position += piece.length;
    return to > from ? [{ ...piece, start: piece.start + from, length: to - from }] : [];
  });
}

/** Exchanges need all sources split the same way, apart from those that every device has all rows of. */
function consistent(segments: Segments): Segments | undefined {
  const spec = sourceSpec(segments);
  const isAlike = ({ source }: Piece) =>
    !source ||
    segments.type.shape.every((_, d) => {
      const axes = source.spec[d] ?? [];
      return (d === segments.dim && axes.length === 0) || axes.join() === (spec[d] ?? []).join();
    });
  return segments.pieces.every(isAlike) ? segments : undefined;
}

/**
 * Sums that can wait: of values of which each is zero where the other is not (together they are the
 * derivative of a roll), and of such a value and any other.
 */
function merge(ins: readonly Row[], type: TensorType): Segments | undefined {
  const [a, b] = ins;
  if (!a || !b || !isFloat(type.dtype)) return undefined;
  if (a.kind === "blocks" && b.kind === "blocks") return undefined;
  if (a.kind === "blocks" || b.kind === "blocks") {
    const [base, rest] = a.kind === "blocks" ? [a, b] : [b, a];
    if (base.kind !== "blocks" || rest.kind !== "segments" || rest.base) return undefined;
    return isPadded(rest) && sameSpec(base.spec, sourceSpec(rest)) ? { ...rest, base } : undefined;
  }
  if (!isPadded(a) || !isPadded(b)) return undefined;
  const base = a.base ?? b.base;
  const pieces = a.dim === b.dim && !(a.base && b.base) ? interleave(a.pieces, b.pieces) : undefined;
  if (!pieces) return undefined;
  return consistent({ kind: "segments", type, dim: a.dim, pieces, ...(base ? { base } : {}) });
}

/** Whether a value has rows of zeros that a sum with it could fill, and moves along no other dim. */
function isPadded(value: Row): boolean {
  return value.kind === "segments" && !value.after && value.pieces.some(({ source }) => source === null);
}

/** The spec that all sources with split rows have; whole where there are none. */
export function sourceSpec({ pieces, type, dim }: Segments): Spec {
  const sources = pieces.flatMap(({ source }) => source ?? []);
  const split = sources.find(({ spec }) => (spec[dim] ?? []).length > 0);
  return (split ?? sources[0])?.spec ?? type.shape.map(() => []);
}

/** Two rows of pieces as one, unless both have rows at the same place. */
function interleave(a: readonly Piece[], b: readonly Piece[]): Piece[] | undefined {
  const ends = (pieces: readonly Piece[]) => {
    let end = 0;
    return pieces.map((piece) => {
      end += piece.length;
      return end;
    });
  };
  const bounds = [...new Set([...ends(a), ...ends(b)])].sort((x, y) => x - y);
  const merged: Piece[] = [];
  let start = 0;
  for (const end of bounds) {
    const [x, y] = [at(cut(a, start, end), 0), at(cut(b, start, end), 0)];
    if (x.source && y.source) return undefined;
    merged.push(x.source ? x : y);
    start = end;
  }
  return merged;
}

/** Rows that some devices take from the same relative neighbour. */
interface Move {
  readonly source: Blocks;
  /** How many positions further the sender is. */
  readonly shift: number;
  readonly offset: number;
  /** The positions that receive the rows. */
  readonly receivers: readonly number[];
}

/** A run of local rows; rows that no move brings are zeros. */
interface Run {
  readonly length: number;
  readonly moves: readonly Move[];
}

/** Rows that were received already, by the tensor that they come from: overlapping windows ask for the same ones. */
export type Received = WeakMap<Tensor, Map<string, Tensor>>;

/**
 * Puts segments in their place by exchange with neighbours; `undefined` when the result does not split evenly
 * or more rows would have to travel than a gather moves.
 */
export function exchange(segments: Segments, mesh: MeshShape, known: Received): Blocks | undefined {
  const { dim, pieces } = segments;
  const sources = new Set(
    pieces.flatMap(({ source }) => (source && (source.spec[dim] ?? []).length > 0 ? [source] : [])),
  );
  const [first] = sources;
  if (!first) return undefined;
  const axes = at(first.spec, dim);
  const n = splitCount(mesh, axes);
  const total = at(segments.type.shape, dim);
  if (total % n !== 0) return undefined;
  const runs = findRuns(pieces, dim, n, total / n);
  const sent = runs.reduce((rows, { length, moves }) => rows + length * moves.filter(travels).length, 0);
  const gathered = [...sources].reduce((rows, { block }) => rows + at(block.shape, dim) * (n - 1), 0);
  if (sent > gathered) return undefined;
  const group = namedAxes(mesh, axes);
  const parts = runs.map(({ length, moves }): Tensor => {
    let rows: Tensor | undefined;
    for (const { source, shift, offset, receivers } of moves.toSorted((a, b) => b.shift - a.shift)) {
      const own = ops.sliceDim(source.block, dim, offset, offset + length);
      if (shift === 0 && receivers.length === n) return own;
      if (shift === 0) {
        const others = rows ?? ops.zeros(own.type);
        rows = ops.select(isAmong(ops.axisIndex(group), receivers, own.shape), own, others);
        continue;
      }
      const permutation = receivers.map((p) => [(p + shift) % n, p] as const);
      const calls = known.get(source.block) ?? new Map<string, Tensor>();
      const key = [axes, dim, offset, length, permutation].join(" ");
      const received = calls.get(key) ?? ops.ppermute(own, group, permutation);
      known.set(source.block, calls.set(key, received));
      rows = rows ? overlay(rows, received) : received;
    }
    const shape = withDim(first.block.shape, dim, length);
    return rows ?? ops.zeros({ dtype: segments.type.dtype, shape });
  });
  const rows = ops.concatenate(parts, dim);
  const moved = segments.after?.(rows) ?? rows;
  const block = segments.base ? ops.add(segments.base.block, moved) : moved;
  return { kind: "blocks", block, spec: first.spec };
}

const travels = ({ shift }: Move) => shift !== 0;

/** Two tensors of which one is zero where the other is not. */
export function overlay(a: Tensor, b: Tensor): Tensor {
  return a.dtype === "bool" ? ops.or(a, b) : ops.add(a, b);
}

/** Whether a device's position is in an ascending list, as a tensor of the given shape. */
export function isAmong(position: Tensor, list: readonly number[], shape: Shape): Tensor {
  const starts = list.filter((p) => !list.includes(p - 1));
  const ends = list.filter((p) => !list.includes(p + 1));
  const ranges = starts.map((start, i) =>
    start === ends[i]
      ? ops.compare("eq", position, start)
      : ops.and(ops.compare("ge", position, start), ops.compare("le", position, at(ends, i))),
  );
  return ops.broadcastInDim(ranges.reduce(ops.or), shape, []);
}

function withDim(shape: readonly number[], dim: number, size: number): number[] {
  return shape.map((n, d) => (d === dim ? size : n));
}

/** For every local row where each device finds it; neighbouring rows that travel together are one run. */
function findRuns(pieces: readonly Piece[], dim: number, n: number, rows: number): Run[] {
  const origin = (index: number) => {
    let rest = index;
    for (const { source, start, length } of pieces) {
      if (rest < length) return source ? { source, row: start + rest } : null;
      rest -= length;
    }
    return null;
  };
  const movesOf = (row: number) => {
    const moves: (Move & { readonly receivers: number[] })[] = [];
    for (let p = 0; p < n; p++) {
      const from = origin(p * rows + row);
      if (!from) continue;
      const { source } = from;
      const size = at(source.block.shape, dim);
      const isHere = (source.spec[dim] ?? []).length === 0;
      const [sender, offset] = isHere ? [p, from.row] : [Math.floor(from.row / size), from.row % size];
      const shift = (((sender - p) % n) + n) % n;
      const known = moves.find((m) => m.source === source && m.shift === shift && m.offset === offset);
      if (known) known.receivers.push(p);
      else moves.push({ source, shift, offset, receivers: [p] });
    }
    return moves;
  };
  const runs: { length: number; readonly moves: readonly Move[] }[] = [];
  for (let row = 0; row < rows; row++) {
    const moves = movesOf(row);
    const last = runs.at(-1);
    if (last && continues(last, moves)) last.length++;
    else runs.push({ length: 1, moves });
  }
  return runs;
}

function continues({ length, moves }: Run, next: readonly Move[]): boolean {
  return (
    moves.length === next.length &&
    moves.every((move, i) => {
      const other = at(next, i);
      return (
        move.source === other.source &&
        move.shift === other.shift &&
        move.offset + length === other.offset &&
        move.receivers.join() === other.receivers.join()
      );
    })
  );
}

/** Puts segments in their place by gathering every source first. */
export function gatherSegments(segments: Segments, gather: (blocks: Blocks) => Tensor): Tensor {
  const { dim, pieces, type, after } = segments;
  const first = pieces.find(({ source }) => source)?.source;
  if (!first) return ops.zeros(type);
  const parts = pieces.map(({ source, start, length }) => {
    if (source) return ops.sliceDim(gather(source), dim, start, start + length);
    return ops.zeros({ dtype: type.dtype, shape: withDim(first.block.shape, dim, length) });
  });
  const rows = ops.concatenate(parts, dim);
  return after?.(rows) ?? rows;
}
