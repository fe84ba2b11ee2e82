import { attentionOperands } from "../../ir/infer/inferAttention.js";
import { elementwiseFamilies, type ReduceOp, rowsOf } from "../../ir/opFacts.js";
import type { OpName, OpParams } from "../../ir/ops.js";
import { at, range } from "../../ir/shape.js";
import { bind, bind1 } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { vmapCallback } from "./vmapCallback.js";
import { vmapCollectiveRules } from "./vmapCollectives.js";
import {
  type BatchContext,
  type Batched,
  batched,
  elementShape,
  flagsOf,
  materialize,
  tensorsOf,
  unbatched,
  type VmapRule,
  withFlags,
} from "./vmapContext.js";
import { vmapControlRules } from "./vmapControl.js";
import { vmapIndexingRules } from "./vmapIndexing.js";
import { vmapSpmdRules } from "./vmapSpmd.js";

/** Elementwise ops: shared operands are repeated; scalar constants fit any shape. */
function pointwise<K extends OpName>(
  ins: readonly Batched[],
  params: OpParams[K],
  context: BatchContext,
  op: K,
): Batched[] {
  const operands = ins.map((x) => (x.tensor.node.kind === "literal" ? x.tensor : materialize(x, context)));
  return bind(op, operands, params).map(batched);
}

/** Ops whose operands all become batched, with parameters that count the batch as dim 0. */
function shifted<K extends OpName>(
  shift: (params: OpParams[K], context: BatchContext) => OpParams[K],
): VmapRule<K> {
  return (ins, params, context, op) => {
    const operands = ins.map((x) => materialize(x, context));
    return bind(op, operands, shift(params, context)).map(batched);
  };
}

const next = (dim: number): number => dim + 1;

const reduce: VmapRule<ReduceOp> = shifted(({ dims }) => ({ dims: dims.map(next) }));

/** A padding value that differs within the batch is selected where a padded mask marks padding. */
function pad(ins: readonly Batched[], params: OpParams["pad"], context: BatchContext): Batched[] {
  const [x, value] = [at(ins, 0), at(ins, 1)];
  const { low, high, interior } = params;
  const around: OpParams["pad"] = { low: [0, ...low], high: [0, ...high], interior: [0, ...interior] };
  const tensor = materialize(x, context);
  if (!value.batched) return [batched(bind1("pad", [tensor, value.tensor], around))];
  const padded = bind1("pad", [tensor, Tensor.scalar(0, tensor.dtype)], around);
  const mask = bind1("pad", [ops.full(elementShape(x), true, "bool"), Tensor.scalar(false, "bool")], params);
  const padding = ops.broadcastInDim(value.tensor, padded.shape, [0]);
  return [batched(ops.select(materialize(unbatched(mask), context), padded, padding))];
}

/** The batch is a batch dim of the product when both operands have it, otherwise a free dim that moves to the front. */
function dotGeneral(ins: readonly Batched[], params: OpParams["dotGeneral"]): Batched[] {
  const [x, y] = [at(ins, 0), at(ins, 1)];
  const { lhsContract, rhsContract, lhsBatch, rhsBatch } = params;
  const both = x.batched && y.batched;
  const dimsOf = (side: Batched, dims: readonly number[]) => (side.batched ? dims.map(next) : dims);
  const product = bind1("dotGeneral", [x.tensor, y.tensor], {
    ...params,
    lhsContract: dimsOf(x, lhsContract),
    rhsContract: dimsOf(y, rhsContract),
    lhsBatch: both ? [0, ...lhsBatch.map(next)] : dimsOf(x, lhsBatch),
    rhsBatch: both ? [0, ...rhsBatch.map(next)] : dimsOf(y, rhsBatch),
  });
  if (both) return [batched(product)];
  const place = x.batched ? lhsBatch.length : x.tensor.ndim - lhsContract.length;
  return [batched(ops.moveDim(product, place, 0))];
}

/** The batch is merged with the batch dim of attention; operands that repeat along the latter stay as they are. */
function attention<K extends "attention" | "attentionBackward">(
  ins: readonly Batched[],
  params: OpParams[K],
  context: BatchContext,
  op: K,
): Batched[] {
  const query = at(ins, 0);
  const inner = at(query.tensor.shape, query.batched ? 1 : 0);
  const operands = ins.map((x, i) => {
    if (!x.batched && x.tensor.shape[0] === 1 && i >= attentionOperands[op]) return x.tensor;
    const whole = materialize(x, context);
    const rest = whole.shape.slice(2);
    const all =
      whole.shape[1] === inner
        ? whole
        : ops.broadcastInDim(whole, [context.size, inner, ...rest], range(whole.ndim));
    return ops.reshape(all, [context.size * inner, ...rest]);
  });
  return bind(op, operands, params).map((out) =>
    batched(ops.reshape(out, [context.size, inner, ...out.shape.slice(1)])),
  );
}

/** How every op works on a batch. */
export const vmapRules: { readonly [K in OpName]: VmapRule<K> } = {
  ...rowsOf(elementwiseFamilies, pointwise),
  optimizationBarrier: (ins, params, _context, op) =>
    withFlags(bind(op, tensorsOf(ins), params), flagsOf(ins)),

  iota: (_ins, params, _context, op) => bind(op, [], params).map(unbatched),
  broadcastInDim: shifted(({ shape, dims }, { size }) => ({
    shape: [size, ...shape],
    dims: [0, ...dims.map(next)],
  })),
  reshape: shifted(({ shape }, { size }) => ({ shape: [size, ...shape] })),
  transpose: shifted(({ permutation }) => ({ permutation: [0, ...permutation.map(next)] })),
  reverse: shifted(({ dims }) => ({ dims: dims.map(next) })),
  slice: shifted(({ starts, limits, strides }, { size }) => ({
    starts: [0, ...starts],
    limits: [size, ...limits],
    strides: [1, ...strides],
  })),
  pad,
  concatenate: shifted(({ dim }) => ({ dim: next(dim) })),
  ...vmapIndexingRules,

  ...rowsOf(["reduction"], reduce),
  argmax: shifted(({ dim }) => ({ dim: next(dim) })),
  argmin: shifted(({ dim }) => ({ dim: next(dim) })),
  cumsum: shifted(({ dim, reverse }) => ({ dim: next(dim), reverse })),
  sort: shifted(({ dim, numKeys }) => ({ dim: next(dim), numKeys })),
  dotGeneral,
  raggedDot: shifted((params) => params),
  attention,
  attentionBackward: attention,

  callback: vmapCallback,
  ...vmapControlRules,
  ...vmapCollectiveRules,
  ...vmapSpmdRules,
};
