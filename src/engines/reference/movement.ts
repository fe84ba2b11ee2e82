import { allocateHost, isFloat } from "../../ir/dtype.js";
import type { MovementOp } from "../../ir/opFacts.js";
import type { OpParams } from "../../ir/ops.js";
import { at, rowMajorStrides, type Shape, sizeOf, type TensorType } from "../../ir/shape.js";
import { encode, type HostTensor, scalarOf, unsetValues } from "./hostTensor.js";
import { type EvalRule, onEveryLane } from "./rule.js";
import {
  concatenated,
  copyWindow,
  readBlock,
  readWindow,
  transposed,
  windowAt,
  writeWindow,
} from "./strided.js";

function iota({ shape, dim }: OpParams["iota"], type: TensorType): HostTensor {
  const stride = at(rowMajorStrides(shape), dim);
  const size = at(shape, dim);
  const indices = new Float64Array(sizeOf(shape)).map((_, i) => Math.floor(i / stride) % size);
  return encode(type, indices);
}

function broadcastInDim(x: HostTensor, { shape, dims, unset }: OpParams["broadcastInDim"]): HostTensor {
  if (unset && isFloat(x.type.dtype)) return unsetValues({ ...x.type, shape });
  const strides = shape.map(() => 0);
  rowMajorStrides(x.type.shape).forEach((stride, i) => {
    strides[at(dims, i)] = x.type.shape[i] === 1 ? 0 : stride;
  });
  return readWindow(x, shape, { offset: 0, strides });
}

function reversed(x: HostTensor, dims: readonly number[]): HostTensor {
  const { shape } = x.type;
  const starts = shape.map((n, d) => (dims.includes(d) ? n - 1 : 0));
  const steps = shape.map((_, d) => (dims.includes(d) ? -1 : 1));
  return readWindow(x, shape, windowAt(shape, starts, steps));
}

/** Writes the elements of x that land inside the result, `interior + 1` apart, over the padding value. */
function padded(x: HostTensor, value: HostTensor, params: OpParams["pad"], type: TensorType): HostTensor {
  const { low, interior } = params;
  const data = allocateHost(type.dtype, sizeOf(type.shape)).fill(value.data[0] as number);
  const steps = interior.map((n) => n + 1);
  const first = low.map((n, d) => Math.max(0, Math.ceil(-n / at(steps, d))));
  const kept = x.type.shape.map((n, d) => {
    const end = Math.floor((at(type.shape, d) - 1 - at(low, d)) / at(steps, d)) + 1;
    return Math.max(0, Math.min(n, end) - at(first, d));
  });
  const targets = low.map((n, d) => n + at(first, d) * at(steps, d));
  const from = windowAt(x.type.shape, first);
  copyWindow(kept, x.data, from, data, windowAt(type.shape, targets, steps));
  return { type, data };
}

/** Clamps starts so that a block of `sizes` lies inside `shape`. */
function clampStarts(starts: readonly HostTensor[], shape: Shape, sizes: Shape): number[] {
  return starts.map((start, d) => Math.min(Math.max(scalarOf(start), 0), at(shape, d) - at(sizes, d)));
}

function dynamicSlice(x: HostTensor, starts: readonly HostTensor[], sizes: Shape): HostTensor {
  return readBlock(x, clampStarts(starts, x.type.shape, sizes), sizes);
}

function dynamicUpdateSlice(x: HostTensor, update: HostTensor, starts: readonly HostTensor[]): HostTensor {
  const { shape } = x.type;
  const data = x.data.slice();
  writeWindow(data, windowAt(shape, clampStarts(starts, shape, update.type.shape)), update);
  return { type: x.type, data };
}

type MadeOp = MovementOp | "iota";

/** Reference rules of the ops that create and move elements; none of them depends on values. */
export const movementRules: { readonly [K in MadeOp]: EvalRule<K> } = {
  iota: onEveryLane((_ins, params, types) => [iota(params, at(types, 0))]),
  broadcastInDim: onEveryLane((ins, params) => [broadcastInDim(at(ins, 0), params)]),
  reshape: onEveryLane((ins, _params, types) => [{ type: at(types, 0), data: at(ins, 0).data }]),
  transpose: onEveryLane((ins, { permutation }) => [transposed(at(ins, 0), permutation)]),
  reverse: onEveryLane((ins, { dims }) => [reversed(at(ins, 0), dims)]),
  slice: onEveryLane((ins, { starts, strides }, types) => {
    const x = at(ins, 0);
    return [readWindow(x, at(types, 0).shape, windowAt(x.type.shape, starts, strides))];
  }),
  pad: onEveryLane((ins, params, types) => [padded(at(ins, 0), at(ins, 1), params, at(types, 0))]),
  concatenate: onEveryLane((ins, { dim }) => [concatenated(ins, dim)]),
  dynamicSlice: onEveryLane((ins, { sizes }) => [dynamicSlice(at(ins, 0), ins.slice(1), sizes)]),
  dynamicUpdateSlice: onEveryLane((ins) => [dynamicUpdateSlice(at(ins, 0), at(ins, 1), ins.slice(2))]),
};
