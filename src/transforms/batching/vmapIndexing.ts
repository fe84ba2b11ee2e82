import type { OpParams } from "../../ir/ops.js";
import { at, type Shape, sameNumbers } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import {
  type BatchContext,
  type Batched,
  batched,
  elementShape,
  materialize,
  unbatched,
  type VmapRule,
} from "./vmapContext.js";

const zero = (): Tensor => Tensor.scalar(0, "int32");

/**
 * Where only x is batched, shared indices select the same slices of every element; where only the indices are, they are
 * looked up together in the shared x.
 */
function gather(x: Batched, indices: Batched, params: OpParams["gather"], context: BatchContext): Batched {
  const { dim, batchDims } = params;
  if (!x.batched) {
    const taken = ops.gather(x.tensor, ops.moveDim(indices.tensor, 0, batchDims), params);
    return batched(ops.moveDim(taken, dim, 0));
  }
  if (!indices.batched && batchDims === 0) {
    return batched(ops.gather(x.tensor, indices.tensor, { dim: dim + 1, batchDims }));
  }
  const paired = { dim: dim + 1, batchDims: batchDims + 1 };
  return batched(ops.gather(x.tensor, materialize(indices, context), paired));
}

function scatter(ins: readonly Batched[], params: OpParams["scatter"], context: BatchContext): Batched {
  const [x, updates] = [materialize(at(ins, 0), context), materialize(at(ins, 2), context)];
  const indices = at(ins, 1);
  const { dim, batchDims, combine } = params;
  if (!indices.batched && batchDims === 0) {
    return batched(ops.scatter(x, indices.tensor, updates, { dim: dim + 1, batchDims, combine }));
  }
  const paired = { dim: dim + 1, batchDims: batchDims + 1, combine };
  return batched(ops.scatter(x, materialize(indices, context), updates, paired));
}

/** For every element of the batch the indices of its window: `size` from its start, clamped to lie in 0 … n − 1. */
function windowIndices(start: Batched, n: number, size: number, context: BatchContext): Batched {
  const clamped = ops.clamp(zero(), materialize(start, context), Tensor.scalar(n - size, "int32"));
  const shape = [context.size, size];
  return batched(ops.add(ops.broadcastInDim(clamped, shape, [0]), ops.iota("int32", shape, 1)));
}

/** Dims whose start is shared are sliced first, all at once; along the others each element gathers its window. */
function dynamicSlice(x: Batched, starts: readonly Batched[], sizes: Shape, context: BatchContext): Batched {
  const shape = elementShape(x);
  const shared = sliceShared(
    x,
    starts.map((start) => (start.batched ? zero() : start.tensor)),
    sizes.map((size, d) => (at(starts, d).batched ? at(shape, d) : size)),
  );
  return starts.reduce((value, start, d) => {
    const [n, size] = [at(shape, d), at(sizes, d)];
    if (!start.batched || size === n) return value;
    return gather(value, windowIndices(start, n, size, context), { dim: d, batchDims: 0 }, context);
  }, shared);
}

function sliceShared(x: Batched, starts: readonly Tensor[], sizes: Shape): Batched {
  const { tensor } = x;
  if (elementShape(x).every((n, d) => n === sizes[d])) return x;
  if (!x.batched) return unbatched(ops.dynamicSlice(tensor, starts, sizes));
  return batched(ops.dynamicSlice(tensor, [zero(), ...starts], [at(tensor.shape, 0), ...sizes]));
}

/**
 * Along the first dim whose start differs within the batch, each element's window is read, updated along the
 * other dims, and written back; what remains is an update with shared starts.
 */
function dynamicUpdateSlice(
  x: Tensor,
  update: Tensor,
  starts: readonly Batched[],
  context: BatchContext,
): Tensor {
  const d = starts.findIndex((start, i) => start.batched && update.shape[i + 1] !== x.shape[i + 1]);
  if (sameNumbers(x.shape, update.shape)) return update;
  if (d < 0) {
    const shared = starts.map((start) => (start.batched ? zero() : start.tensor));
    return ops.dynamicUpdateSlice(x, update, [zero(), ...shared]);
  }
  const [n, size] = [at(x.shape, d + 1), at(update.shape, d + 1)];
  const { tensor: indices } = windowIndices(at(starts, d), n, size, context);
  const place = { dim: d + 1, batchDims: 1 };
  const window = dynamicUpdateSlice(ops.gather(x, indices, place), update, starts, context);
  return ops.scatter(x, indices, window, { ...place, combine: "set" });
}

type IndexingOp = "gather" | "scatter" | "dynamicSlice" | "dynamicUpdateSlice";

/** How ops that find elements by index work on a batch. */
export const vmapIndexingRules: { readonly [K in IndexingOp]: VmapRule<K> } = {
  gather: (ins, params, context) => [gather(at(ins, 0), at(ins, 1), params, context)],
  scatter: (ins, params, context) => [scatter(ins, params, context)],
  dynamicSlice: (ins, { sizes }, context) => [dynamicSlice(at(ins, 0), ins.slice(1), sizes, context)],
  dynamicUpdateSlice: (ins, _params, context) => {
    const [x, update] = [materialize(at(ins, 0), context), materialize(at(ins, 1), context)];
    return [batched(dynamicUpdateSlice(x, update, ins.slice(2), context))];
  },
};
