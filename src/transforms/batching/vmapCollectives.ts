import { ValueError } from "../../ir/errors.js";
import { axesCoordinates, axesSize, type MeshAxis } from "../../ir/mesh.js";
import type { CollectiveOp } from "../../ir/opFacts.js";
import type { OpParams } from "../../ir/ops.js";
import { at, entriesOf, range } from "../../ir/shape.js";
import { bind1 } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import {
  type BatchContext,
  type Batched,
  batched,
  materialize,
  sumOverBatch,
  unbatched,
  type VmapRule,
} from "./vmapContext.js";

/** The axes of a collective around the mapped one; positions are row-major over before, mapped, after. */
interface Around {
  readonly before: readonly MeshAxis[];
  readonly after: readonly MeshAxis[];
}

/** The axes around the mapped one, if the collective names it. */
function aroundMapped(axes: readonly MeshAxis[], { axisName, splitBy }: BatchContext): Around | undefined {
  const i = axes.findIndex(({ name }) => name === axisName);
  return i < 0 ? undefined : { before: [...axes.slice(0, i), ...splitBy], after: axes.slice(i + 1) };
}

/**
 * The rule of a collective from its two cases.
 *
 * @param through its parameters with the batch as dim 0, when it communicates over other axes only
 * @param over what it does when the mapped axis is among its axes
 */
function collective<K extends CollectiveOp>(
  through: (params: OpParams[K]) => OpParams[K],
  over: (x: Batched, around: Around, params: OpParams[K], context: BatchContext) => Batched,
): VmapRule<K> {
  return (ins, params, context, op) => {
    const x = at(ins, 0);
    const around = aroundMapped(params.axes, context);
    if (around) return [over(x, around, params, context)];
    return [batched(bind1(op, [x.tensor], through(params)))];
  };
}

/** The largest or smallest over the batch, then over the other axes. */
const extreme = (
  reduce: (x: Tensor, dims: readonly number[]) => Tensor,
  across: (x: Tensor, axes: readonly MeshAxis[]) => Tensor,
): VmapRule<"pmax" | "pmin"> =>
  collective(
    (params) => params,
    (x, { before, after }) =>
      unbatched(across(x.batched ? reduce(x.tensor, [0]) : x.tensor, [...before, ...after])),
  );

/** Blocks are concatenated from the innermost axis outwards. */
function allGather(x: Batched, { before, after }: Around, dim: number, context: BatchContext): Batched {
  const inner = ops.allGather(materialize(x, context), after, dim + 1);
  const moved = ops.moveDim(inner, 0, dim);
  const joined = moved.shape.filter((_, d) => d !== dim);
  joined[dim] = at(moved.shape, dim) * at(moved.shape, dim + 1);
  return unbatched(ops.allGather(ops.reshape(moved, joined), before, dim));
}

/** The blocks of the outermost axis are the largest, so that axis is scattered first. */
function psumScatter(x: Batched, { before, after }: Around, dim: number, context: BatchContext): Batched {
  const summed = ops.psumScatter(sumOverBatch(x, context), before, dim);
  const { size } = context;
  const blocks = [...summed.shape.slice(0, dim), size, at(summed.shape, dim) / size];
  const split = ops.reshape(summed, [...blocks, ...summed.shape.slice(dim + 1)]);
  return batched(ops.psumScatter(ops.moveDim(split, dim, 0), after, dim + 1));
}

type Permutation = OpParams["ppermute"]["permutation"];

/** Moves row `source` to row `target`, with zeros where no row comes from; adjacent rows move together. */
function permuteRows(x: Tensor, permutation: Permutation): Tensor {
  const sources = x.shape[0] === undefined ? [] : range(x.shape[0]).map(() => -1);
  for (const [source, target] of permutation) sources[target] = source;
  const blocks: Tensor[] = [];
  for (let first = 0; first < sources.length; ) {
    const source = at(sources, first);
    const follows = (i: number) => sources[i] === (source < 0 ? source : source + i - first);
    let end = first + 1;
    while (follows(end)) end++;
    const rows = [end - first, ...x.shape.slice(1)];
    blocks.push(
      source < 0
        ? ops.zeros({ dtype: x.dtype, shape: rows })
        : ops.sliceDim(x, 0, source, source + end - first),
    );
    first = end;
  }
  return ops.concatenate(blocks, 0);
}

/** A permutation over several axes: for every pair of rows of the batch a permutation over the other axes. */
function permuteAcross(x: Tensor, { before, after }: Around, permutation: Permutation): Tensor {
  const size = at(x.shape, 0);
  const others = [...before, ...after];
  const inner = axesSize(after);
  const split = (position: number) => {
    const place = axesCoordinates(
      [
        { name: "before", size: axesSize(before) },
        { name: "mapped", size },
        { name: "after", size: inner },
      ],
      position,
    );
    const [outer, row, rest] = entriesOf(place, 3);
    return { row, other: outer * inner + rest };
  };
  const pairs = permutation.map(([source, target]) => ({ from: split(source), to: split(target) }));
  const join = x.dtype === "bool" ? ops.or : ops.add;
  const rows = range(size).map((row) => {
    const received = range(size).flatMap((source) => {
      const between = pairs.filter(({ from, to }) => from.row === source && to.row === row);
      if (between.length === 0) return [];
      const sent = ops.sliceDim(x, 0, source, source + 1);
      const steps = between.map(({ from, to }) => [from.other, to.other] as const);
      return [ops.ppermute(sent, others, steps)];
    });
    const none = () => ops.zeros({ dtype: x.dtype, shape: [1, ...x.shape.slice(1)] });
    return received.length === 0 ? none() : received.reduce((a, b) => join(a, b));
  });
  return ops.concatenate(rows, 0);
}

/**
 * The split dim is reshaped into one digit per axis; each axis exchanges its own digit, after which the digits say
 * where a block came from and move in front of the dim to concatenate along.
 */
function allToAll(
  x: Batched,
  { before, after }: Around,
  params: OpParams["allToAll"],
  context: BatchContext,
) {
  const { splitDim, concatDim } = params;
  const tensor = materialize(x, context);
  const digits = [axesSize(before), context.size, axesSize(after)];
  const [outer, mapped, inner] = [splitDim + 1, splitDim + 2, splitDim + 3];
  const rest = at(tensor.shape, outer) / digits.reduce((a, b) => a * b);
  const apart = ops.reshape(tensor, [
    ...tensor.shape.slice(0, outer),
    ...digits,
    rest,
    ...tensor.shape.slice(outer + 1),
  ]);
  const swap = range(apart.ndim).map((d) => (d === 0 ? mapped : d === mapped ? 0 : d));
  const exchanged = ops.allToAll(
    ops.transpose(ops.allToAll(apart, before, outer, outer), swap),
    after,
    inner,
    inner,
  );
  const placeOf = (dim: number) => (dim < splitDim ? dim + 1 : dim + 4);
  const dims = range(tensor.ndim - 1);
  const order = dims.flatMap((dim) =>
    dim === concatDim ? [outer, mapped, inner, placeOf(dim)] : placeOf(dim),
  );
  const together = ops.transpose(exchanged, [0, ...order]);
  const count = digits.reduce((a, b) => a * b);
  const shape = dims.map((dim) => at(exchanged.shape, placeOf(dim)) * (dim === concatDim ? count : 1));
  return batched(ops.reshape(together, [context.size, ...shape]));
}

/** One exchange for all elements of the batch if their tables are the same, else one for each. */
function exchangeEach(ins: readonly Batched[], axes: readonly MeshAxis[], context: BatchContext): Tensor {
  const [x, into, sends, receives] = [at(ins, 0), at(ins, 1), at(ins, 2), at(ins, 3)];
  const [rows, target] = [materialize(x, context), materialize(into, context)];
  if (!sends.batched && !receives.batched) {
    const [from, to] = [ops.moveDim(rows, 0, 1), ops.moveDim(target, 0, 1)];
    return ops.moveDim(ops.raggedAllToAll([from, to, sends.tensor, receives.tensor], axes), 1, 0);
  }
  const tables = [materialize(sends, context), materialize(receives, context)] as const;
  const one = (tensor: Tensor, i: number) =>
    ops.reshape(ops.sliceDim(tensor, 0, i, i + 1), tensor.shape.slice(1));
  const moved = range(context.size).map((i) =>
    ops.raggedAllToAll([one(rows, i), one(target, i), one(tables[0], i), one(tables[1], i)], axes),
  );
  return ops.stack(moved);
}

/** Over the mapped axis rows move within the batch: every row of a result looks up the row that it receives. */
function exchangeRows(ins: readonly Batched[], context: BatchContext): Tensor {
  const operand = (i: number) => materialize(at(ins, i), context);
  const [x, into, receives] = [operand(0), operand(1), operand(3)];
  const { size } = context;
  const numRows = at(x.shape, 1);
  const numBlocks = at(receives.shape, 1);
  const shape = [size, at(into.shape, 1), numBlocks];
  const column = (i: number) =>
    ops.broadcastInDim(ops.reshape(ops.sliceDim(receives, 2, i, i + 1), [size, numBlocks]), shape, [0, 2]);
  const behind = ops.sub(ops.iota("int32", shape, 1), column(0));
  const isReceived = ops.and(ops.compare("ge", behind, 0), ops.compare("lt", behind, column(1)));
  const sender = ops.div(ops.iota("int32", shape, 2), numBlocks / size);
  const row = ops.add(ops.add(behind, column(2)), ops.mul(sender, numRows));
  const source = ops.reduceMax(ops.select(isReceived, row, ops.full(shape, -1, "int32")), [2]);
  const all = ops.reshape(x, [size * numRows, ...x.shape.slice(2)]);
  const taken = ops.gather(all, source, { dim: 0, batchDims: 0 });
  return ops.select(ops.broadcastInDim(ops.compare("ge", source, 0), into.shape, [0, 1]), taken, into);
}

/** The row-major position: `before`, then the element of the batch, then `after`. */
function axisIndex({ before, after }: Around, context: BatchContext): Batched {
  const shape = [context.size];
  const own = ops.mul(ops.iota("int32", shape, 0), axesSize(after));
  const addIndex = (total: Tensor, axes: readonly MeshAxis[], step: number) => {
    if (axes.length === 0) return total;
    const index = ops.mul(ops.axisIndex(axes), step);
    return ops.add(total, ops.broadcastInDim(index, shape, []));
  };
  return batched(addIndex(addIndex(own, before, context.size * axesSize(after)), after, 1));
}

/** How collectives work on a batch: over the mapped axis they become ordinary ops along dim 0. */
export const vmapCollectiveRules: { readonly [K in CollectiveOp | "axisIndex"]: VmapRule<K> } = {
  psum: collective(
    (params) => params,
    (x, { before, after }, _params, context) =>
      unbatched(ops.psum(sumOverBatch(x, context), [...before, ...after])),
  ),
  pmax: extreme(ops.reduceMax, ops.pmax),
  pmin: extreme(ops.reduceMin, ops.pmin),
  allGather: collective(
    ({ axes, dim }) => ({ axes, dim: dim + 1 }),
    (x, around, { dim }, context) => allGather(x, around, dim, context),
  ),
  psumScatter: collective(
    ({ axes, dim }) => ({ axes, dim: dim + 1 }),
    (x, around, { dim }, context) => psumScatter(x, around, dim, context),
  ),
  ppermute: collective(
    (params) => params,
    (x, around, { permutation }, context) => {
      const rows = materialize(x, context);
      const isAlone = around.before.length + around.after.length === 0;
      return batched(isAlone ? permuteRows(rows, permutation) : permuteAcross(rows, around, permutation));
    },
  ),
  allToAll: collective(
    ({ axes, splitDim, concatDim }) => ({ axes, splitDim: splitDim + 1, concatDim: concatDim + 1 }),
    (x, around, params, context) => allToAll(x, around, params, context),
  ),
  raggedAllToAll: (ins, { axes }, context) => {
    const isMapped = aroundMapped(axes, context) !== undefined;
    if (isMapped && axes.length > 1) {
      throw new ValueError(
        "[raggedAllToAll] vmap over one of several axes is not available: map over the only axis, or over another one",
      );
    }
    return [batched(isMapped ? exchangeRows(ins, context) : exchangeEach(ins, axes, context))];
  },
  axisIndex: (_ins, { axes }, context, op) => {
    const around = aroundMapped(axes, context);
    return around ? [axisIndex(around, context)] : [unbatched(bind1(op, [], { axes }))];
  },
};
