import type { Spec } from "../../../ir/mesh.js";
import type { Eqn } from "../../../ir/program.js";
import { at, range, type TensorType } from "../../../ir/shape.js";
import * as ops from "../../../trace/ops.js";
import type { Tensor } from "../../../trace/tensor.js";

/** A value as blocks on devices. */
export interface DeviceBlocks {
  readonly kind: "blocks";
  readonly block: Tensor;
  readonly spec: Spec;
}

/** Blocks that are split by a spec. */
export function blocksOf(block: Tensor, spec: Spec): DeviceBlocks {
  return { kind: "blocks", block, spec };
}

/** For every row of a result along a dim, the row of the source that it copies; -1 for zeros. */
export type RowIndex = readonly number[];

/** Rows of one value, along any of its dims. */
export interface Term {
  readonly source: DeviceBlocks;
  readonly rows: ReadonlyMap<number, RowIndex>;
  /** What is done along dims that no axis splits, whose rows need not travel. */
  readonly after?: (x: Tensor) => Tensor;
}

/**
 * A sum of rows that are not yet moved: slices, pads and concatenations along split dims, and what gradients of windows
 * add up. A chain of them (a roll, a shift, a window with strides) is put together first and then becomes one exchange
 * with each neighbour. All sources are split alike, apart from those that have all rows on every device; without terms
 * the rows are zeros.
 */
export interface Moves {
  readonly kind: "moves";
  readonly type: TensorType;
  readonly terms: readonly Term[];
  /** Something to add once the rows are in their place. */
  readonly base?: DeviceBlocks;
}

/** A value during partitioning. */
export type PartitionedValue = DeviceBlocks | Moves;

/** The dims along which an equation moves rows. */
export function movedDims(eqn: Eqn): readonly number[] {
  const where = (isMoved: (dim: number) => boolean) =>
    range(eqn.ins[0]?.type.shape.length ?? 0).filter(isMoved);
  if (eqn.op === "concatenate") return [eqn.params.dim];
  if (eqn.op === "slice") {
    const { starts, limits, strides } = eqn.params;
    return where((d) => starts[d] !== 0 || limits[d] !== eqn.ins[0]?.type.shape[d] || strides[d] !== 1);
  }
  if (eqn.op === "pad") {
    const { low, high, interior } = eqn.params;
    const value = eqn.ins[1];
    if (value?.kind !== "literal" || value.value !== 0) return [];
    return where((d) => low[d] !== 0 || high[d] !== 0 || interior[d] !== 0);
  }
  return [];
}

/** What a slice or pad does along the dims that are not in `rows`, after `first`. */
export function besides(
  eqn: Eqn<"slice"> | Eqn<"pad">,
  rows: readonly number[],
  first: Term["after"],
): Pick<Term, "after"> {
  const others = movedDims(eqn).filter((d) => !rows.includes(d));
  if (others.length === 0) return first ? { after: first } : {};
  const along = (list: readonly number[], rest: (d: number) => number) =>
    list.map((n, d) => (others.includes(d) ? n : rest(d)));
  const none = (list: readonly number[]) => along(list, () => 0);
  const step = (x: Tensor): Tensor => {
    if (eqn.op === "slice") {
      const { starts, limits, strides } = eqn.params;
      const once = along(strides, () => 1);
      const ends = along(limits, (d) => at(x.shape, d));
      return ops.slice(x, none(starts), ends, once);
    }
    const { low, high, interior } = eqn.params;
    const zero = ops.full([], 0, x.dtype);
    return ops.pad(x, zero, { low: none(low), high: none(high), interior: none(interior) });
  };
  return { after: (x) => step(first ? first(x) : x) };
}
