import { type DType, isFloat, isInteger, limits } from "../../ir/dtype.js";
import type { ReduceOp } from "../../ir/opFacts.js";
import type { OpParams } from "../../ir/ops.js";
import { at, inversePermutation, range, sizeOf, type TensorType, tensorType } from "../../ir/shape.js";
import { decode, encode, type HostTensor } from "./hostTensor.js";
import { type EvalRule, onEveryLane } from "./rule.js";
import { transposed } from "./strided.js";

/** How the elements of a row are reduced to one: `combine` from left to right, beginning with `start`. */
interface Fold {
  readonly start: number;
  readonly combine: (total: number, x: number) => number;
}

/** Sums of floats are float64 sums rounded once at the end; sums of integers wrap around. */
export function sumFold(dtype: DType): Fold {
  return { start: 0, combine: isInteger(dtype) ? (total, x) => (total + x) | 0 : (total, x) => total + x };
}

/** The largest element, NaN if there is one; for an empty row the smallest value of the type. */
export function maxFold(dtype: DType): Fold {
  return { start: isFloat(dtype) ? Number.NEGATIVE_INFINITY : limits(dtype).min, combine: Math.max };
}

/** The smallest element, NaN if there is one; for an empty row the largest value of the type. */
export function minFold(dtype: DType): Fold {
  return { start: isFloat(dtype) ? Number.POSITIVE_INFINITY : limits(dtype).max, combine: Math.min };
}

/** The elements with the dims `dims` moved to the end, in their order: rows to work on. */
function rowsAlong(x: HostTensor, dims: readonly number[]): Float64Array {
  const kept = range(x.type.shape.length).filter((d) => !dims.includes(d));
  return decode(transposed(x, [...kept, ...[...dims].sort((a, b) => a - b)]));
}

function reduce(
  x: HostTensor,
  dims: readonly number[],
  { start, combine }: Fold,
  type: TensorType,
): HostTensor {
  // Rows of one element are not added to the start, so that -0 stays -0.
  if (dims.every((d) => x.type.shape[d] === 1)) return { type, data: x.data };
  const rows = rowsAlong(x, dims);
  const length = sizeOf(dims.map((d) => at(x.type.shape, d)));
  const result = new Float64Array(sizeOf(type.shape));
  for (let row = 0; row < result.length; row++) {
    let total = start;
    for (let i = row * length; i < (row + 1) * length; i++) total = combine(total, rows[i] as number);
    result[row] = total;
  }
  return encode(type, result);
}

/** The index of the first extreme element; NaN counts as more extreme than everything. */
function indexOfExtreme(
  x: HostTensor,
  dim: number,
  beats: (x: number, best: number) => boolean,
  type: TensorType,
): HostTensor {
  const rows = rowsAlong(x, [dim]);
  const length = at(x.type.shape, dim);
  const result = new Float64Array(sizeOf(type.shape));
  for (let row = 0; row < result.length; row++) {
    const start = row * length;
    let best = 0;
    for (let i = 1; i < length; i++) {
      const [candidate, current] = [rows[start + i] as number, rows[start + best] as number];
      if (Number.isNaN(current)) break;
      if (beats(candidate, current) || Number.isNaN(candidate)) best = i;
    }
    result[row] = best;
  }
  return encode(type, result);
}

/** Running sums in float64, each rounded to the result's type. */
function cumsum(x: HostTensor, { dim, reverse }: OpParams["cumsum"]): HostTensor {
  const { dtype, shape } = x.type;
  const { start, combine } = sumFold(dtype);
  const order = [...range(shape.length).filter((d) => d !== dim), dim];
  const rows = rowsAlong(x, [dim]);
  const length = at(shape, dim);
  const result = new Float64Array(rows.length);
  for (let row = 0; row < rows.length; row += length) {
    let total = start;
    for (let k = 0; k < length; k++) {
      const i = row + (reverse ? length - 1 - k : k);
      total = combine(total, rows[i] as number);
      result[i] = total;
    }
  }
  const rowsShape = order.map((d) => at(shape, d));
  return transposed(encode(tensorType(dtype, rowsShape), result), inversePermutation(order));
}

const reduction = (fold: (dtype: DType) => Fold): EvalRule<ReduceOp> =>
  onEveryLane((ins, { dims }, types) => {
    const x = at(ins, 0);
    return [reduce(x, dims, fold(x.type.dtype), at(types, 0))];
  });

const extreme = (beats: (x: number, best: number) => boolean): EvalRule<"argmax" | "argmin"> =>
  onEveryLane((ins, { dim }, types) => [indexOfExtreme(at(ins, 0), dim, beats, at(types, 0))]);

type ReductionOp = ReduceOp | "argmax" | "argmin" | "cumsum";

/** Reference rules of the ops that combine many elements. */
export const reductionRules: { readonly [K in ReductionOp]: EvalRule<K> } = {
  reduceSum: reduction(sumFold),
  reduceMax: reduction(maxFold),
  reduceMin: reduction(minFold),
  argmax: extreme((x, best) => x > best),
  argmin: extreme((x, best) => x < best),
  cumsum: onEveryLane((ins, params) => [cumsum(at(ins, 0), params)]),
};
