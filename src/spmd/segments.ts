import { isFloat } from "../ir/dtype.js";
import { type MeshShape, type Spec, sameSpec, splitCount } from "../ir/mesh.js";
import type { Eqn } from "../ir/program.js";
import { at, type TensorType } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import type { Tensor } from "../trace/tensor.js";
import { namedAxes } from "./reshard.js";

/** A value as its blocks on the devices. */
export interface Blocks {
  readonly kind: "blocks";
  readonly block: Tensor;
  readonly spec: Spec;
}

/** Part of a row of rows: a range of some split tensor along a dim, or zeros. */
interface Piece {
  readonly source: Blocks | null;
  readonly start: number;
  readonly length: number;
}

/**
 * The result of slices, pads and concatenations along a split dim, not yet moved: a chain of them (a roll, a
 * shift) is put together first and then becomes a single exchange with neighbours.
 */
export interface Segments {
  readonly kind: "segments";
  readonly type: TensorType;
  readonly dim: number;
  readonly pieces: readonly Piece[];
  /** Something to add once the pieces are in their place. */
  readonly base?: Blocks;
}

/** A value under partitioning. */
export type Value = Blocks | Segments;

/** The one dim along which an equation moves rows, if it moves them evenly along exactly one. */
function movedDim(eqn: Eqn): number | undefined {
  const only = (moved: readonly boolean[]) => {
    const dims = moved.flatMap((flag, d) => (flag ? [d] : []));
    return dims.length === 1 ? dims[0] : undefined;
  };
  const shape = eqn.ins[0]?.type.shape ?? [];
  if (eqn.op === "concatenate") return eqn.params.dim;
  if (eqn.op === "slice") {
    const { starts, limits, strides } = eqn.params;
    if (strides.some((s) => s !== 1)) return undefined;
    return only(shape.map((n, d) => starts[d] !== 0 || limits[d] !== n));
  }
  if (eqn.op === "pad") {
    const { low, high, interior } = eqn.params;
    const value = eqn.ins[1];
    if (interior.some((n) => n !== 0) || value?.kind !== "literal" || value.value !== 0) return undefined;
    return only(shape.map((_, d) => low[d] !== 0 || high[d] !== 0));
  }
  return undefined;
}

/** The result of an equation as segments, if it moves rows of a split dim. */
export function segment(eqn: Eqn, ins: readonly Value[], type: TensorType): Segments | undefined {
  if (eqn.op === "add") return merge(ins, type);
  const dim = movedDim(eqn);
  if (dim === undefined) return undefined;
  const operands = eqn.op === "pad" ? ins.slice(0, 1) : ins;
  const isSplit = (value: Value) =>
    value.kind === "segments"
      ? value.dim === dim && value.base === undefined
      : (value.spec[dim] ?? []).length > 0;
  if (!operands.every(isSplit)) return undefined;
  const lists = operands.map((value, i) => piecesOf(value, at(at(eqn.ins, i).type.shape, dim)));
  if (eqn.op === "concatenate") return consistent({ kind: "segments", type, dim, pieces: lists.flat() });
  const pieces = at(lists, 0);
  if (eqn.op === "slice") {
    return {
      kind: "segments",
      type,
      dim,
      pieces: cut(pieces, at(eqn.params.starts, dim), at(eqn.params.limits, dim)),
    };
  }
  if (eqn.op !== "pad") return undefined;
  const [low, high] = [at(eqn.params.low, dim), at(eqn.params.high, dim)];
  const zeros = (length: number): Piece[] => (length > 0 ? [{ source: null, start: 0, length }] : []);
  const total = pieces.reduce((n, piece) => n + piece.length, 0);
  const kept = cut(pieces, Math.max(0, -low), total - Math.max(0, -high));
  return { kind: "segments", type, dim, pieces: [...zeros(low), ...kept, ...zeros(high)] };
}

function piecesOf(value: Value, length: number): readonly Piece[] {
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

/** Exchanges need all sources split the same way. */
function consistent(segments: Segments): Segments | undefined {
  const specs = new Set(
    segments.pieces.flatMap(({ source }) => (source ? [JSON.stringify(source.spec)] : [])),
  );
  return specs.size === 1 ? segments : undefined;
}

/**
 * Sums that can wait: of values of which each is zero where the other is not (together they are the
 * derivative of a roll), and of such a value and any other.
 */
function merge(ins: readonly Value[], type: TensorType): Segments | undefined {
  const [a, b] = ins;
  if (!a || !b || !isFloat(type.dtype)) return undefined;
  if (a.kind === "blocks" && b.kind === "blocks") return undefined;
  if (a.kind === "blocks" || b.kind === "blocks") {
    const [base, rest] = a.kind === "blocks" ? [a, b] : [b, a];
    if (base.kind !== "blocks" || rest.kind !== "segments" || rest.base) return undefined;
    return isPadded(rest) && sameSpec(base.spec, sourceSpec(rest)) ? { ...rest, base } : undefined;
  }
  const base = a.base ?? b.base;
  const pieces = a.dim === b.dim && !(a.base && b.base) ? interleave(a.pieces, b.pieces) : undefined;
  if (!pieces) return undefined;
  return consistent({ kind: "segments", type, dim: a.dim, pieces, ...(base ? { base } : {}) });
}

/** Whether a value has rows of zeros that a sum with it could fill. */
export function isPadded(value: Value): boolean {
  return value.kind === "segments" && value.pieces.some(({ source }) => source === null);
}

/** The spec that all sources have. */
export function sourceSpec({ pieces }: Segments): Spec {
  return at(
    pieces.flatMap(({ source }) => (source ? [source.spec] : [])),
    0,
  );
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

/** A run of local rows that all come from the same relative neighbour. */
interface Run {
  readonly source: Blocks;
  /** How many positions further the sender is. */
  readonly shift: number;
  readonly offset: number;
  readonly length: number;
  /** The positions that receive rows; the others get zeros. */
  readonly receivers: readonly number[];
}

/** Puts segments in their place by exchange with neighbours; `undefined` when devices would do different things. */
export function exchange(segments: Segments, mesh: MeshShape): Blocks | undefined {
  const { dim, pieces } = segments;
  const first = pieces.find(({ source }) => source)?.source;
  if (!first) return undefined;
  const axes = at(first.spec, dim);
  const n = splitCount(mesh, axes);
  const total = at(segments.type.shape, dim);
  if (total % n !== 0) return undefined;
  const runs = findRuns(pieces, dim, n, total / n);
  if (!runs) return undefined;
  const group = namedAxes(mesh, axes);
  const parts = runs.map((run): Tensor => {
    if (!run.source)
      return ops.zeros({ dtype: segments.type.dtype, shape: withDim(first.block.shape, dim, run.length) });
    const rows = ops.sliceDim(run.source.block, dim, run.offset, run.offset + run.length);
    if (run.shift === 0 && run.receivers.length === n) return rows;
    const permutation = run.receivers.map((p) => [(p + run.shift) % n, p] as const);
    return ops.ppermute(rows, group, permutation);
  });
  const moved = ops.concatenate(parts, dim);
  const block = segments.base ? ops.add(segments.base.block, moved) : moved;
  return { kind: "blocks", block, spec: first.spec };
}

function withDim(shape: readonly number[], dim: number, size: number): number[] {
  return shape.map((n, d) => (d === dim ? size : n));
}

type AnyRun = Run | { readonly source: null; readonly length: number };

/** For every local row where it comes from, the same on all devices or nothing. */
function findRuns(pieces: readonly Piece[], dim: number, n: number, rows: number): AnyRun[] | undefined {
  const origin = (index: number) => {
    let rest = index;
    for (const { source, start, length } of pieces) {
      if (rest < length) return source ? { source, row: start + rest } : null;
      rest -= length;
    }
    return null;
  };
  const runs: {
    source: Blocks | null;
    shift: number;
    offset: number;
    length: number;
    receivers: number[];
  }[] = [];
  for (let row = 0; row < rows; row++) {
    let found: { source: Blocks; shift: number; offset: number } | undefined;
    const receivers: number[] = [];
    for (let p = 0; p < n; p++) {
      const from = origin(p * rows + row);
      if (!from) continue;
      const size = at(from.source.block.shape, dim);
      const [sender, offset] = [Math.floor(from.row / size), from.row % size];
      const next = { source: from.source, shift: (((sender - p) % n) + n) % n, offset };
      if (
        found &&
        (found.source !== next.source || found.shift !== next.shift || found.offset !== next.offset)
      ) {
        return undefined;
      }
      found = next;
      receivers.push(p);
    }
    const last = runs.at(-1);
    const continued =
      last &&
      last.source === (found?.source ?? null) &&
      last.shift === (found?.shift ?? 0) &&
      (!found || last.offset + last.length === found.offset) &&
      last.receivers.join() === receivers.join();
    if (last && continued) last.length++;
    else
      runs.push({
        source: found?.source ?? null,
        shift: found?.shift ?? 0,
        offset: found?.offset ?? 0,
        length: 1,
        receivers,
      });
  }
  return runs.map(
    (run): AnyRun => (run.source ? { ...run, source: run.source } : { source: null, length: run.length }),
  );
}

/** Puts segments in their place by gathering every source first. */
export function gatherSegments(segments: Segments, gather: (blocks: Blocks) => Tensor): Tensor {
  const { dim, pieces, type } = segments;
  const first = pieces.find(({ source }) => source)?.source;
  const parts = pieces.map(({ source, start, length }) => {
    if (source) return ops.sliceDim(gather(source), dim, start, start + length);
    const shape = withDim(first?.block.shape ?? type.shape, dim, length);
    return ops.zeros({ dtype: type.dtype, shape });
  });
  return ops.concatenate(parts, dim);
}
