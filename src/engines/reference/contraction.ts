import { isInteger } from "../../ir/dtype.js";
import { attentionBackwardProgram, attentionProgram } from "../../ir/expansions/attention.js";
import type { OpsOf } from "../../ir/opFacts.js";
import type { OpName, OpParams } from "../../ir/ops.js";
import type { Program } from "../../ir/program.js";
import { at, entriesOf, range, sizeOf, type TensorType, tensorType } from "../../ir/shape.js";
import { convert } from "./elementwise.js";
import { decode, encode, type HostTensor } from "./hostTensor.js";
import { type EvalRule, onEveryLane } from "./rule.js";
import { transposed } from "./strided.js";

/** A stack of matrices: `batch` times `rows` rows of `length` elements. */
interface Matrices {
  readonly values: Float64Array;
  readonly rows: number;
  readonly length: number;
}

/** The operand as `[batch, free, contracted]`, so that every dot product reads two contiguous runs. */
function matrices(x: HostTensor, batch: readonly number[], contract: readonly number[]): Matrices {
  const { shape } = x.type;
  const free = range(shape.length).filter((d) => !batch.includes(d) && !contract.includes(d));
  return {
    values: decode(transposed(x, [...batch, ...free, ...contract])),
    rows: sizeOf(free.map((d) => at(shape, d))),
    length: sizeOf(contract.map((d) => at(shape, d))),
  };
}

/**
 * Every element is a float64 sum of the products in row-major order of the contracted dims. Four columns are
 * summed side by side, since a single sum is bound by the latency of additions.
 */
function multiplyFloats(lhs: Matrices, rhs: Matrices, batch: number): Float64Array {
  const { rows, length, values: x } = lhs;
  const { rows: columns, values: y } = rhs;
  const result = new Float64Array(batch * rows * columns);
  for (let row = 0; row < batch * rows; row++) {
    const left = row * length;
    const firstColumn = Math.floor(row / rows) * columns;
    for (let j = 0; j < columns; j += 4) {
      // Past the last column, the last one is summed again and the result discarded.
      const last = firstColumn + columns - 1;
      const at0 = (firstColumn + j) * length;
      const at1 = Math.min(firstColumn + j + 1, last) * length;
      const at2 = Math.min(firstColumn + j + 2, last) * length;
      const at3 = Math.min(firstColumn + j + 3, last) * length;
      let [sum0, sum1, sum2, sum3] = [0, 0, 0, 0];
      for (let k = 0; k < length; k++) {
        const factor = x[left + k] as number;
        sum0 += factor * (y[at0 + k] as number);
        sum1 += factor * (y[at1 + k] as number);
        sum2 += factor * (y[at2 + k] as number);
        sum3 += factor * (y[at3 + k] as number);
      }
      const out = row * columns + j;
      result[out] = sum0;
      if (j + 1 < columns) result[out + 1] = sum1;
      if (j + 2 < columns) result[out + 2] = sum2;
      if (j + 3 < columns) result[out + 3] = sum3;
    }
  }
  return result;
}

/** The same with integers, whose products and sums wrap around. */
function multiplyIntegers(lhs: Matrices, rhs: Matrices, batch: number): Float64Array {
  const { rows, length, values: x } = lhs;
  const { rows: columns, values: y } = rhs;
  const result = new Float64Array(batch * rows * columns);
  for (let out = 0; out < result.length; out++) {
    const row = Math.floor(out / columns);
    const left = row * length;
    const right = (Math.floor(row / rows) * columns + (out % columns)) * length;
    let sum = 0;
    for (let k = 0; k < length; k++) {
      sum = (sum + Math.imul(x[left + k] as number, y[right + k] as number)) | 0;
    }
    result[out] = sum;
  }
  return result;
}

/** Float operands and results compute in float64 and round once; integers to integers wrap around. */
function dotGeneral(
  x: HostTensor,
  y: HostTensor,
  params: OpParams["dotGeneral"],
  type: TensorType,
): HostTensor {
  const lhs = matrices(x, params.lhsBatch, params.lhsContract);
  const rhs = matrices(y, params.rhsBatch, params.rhsContract);
  const batch = sizeOf(params.lhsBatch.map((d) => at(x.type.shape, d)));
  if (isInteger(x.type.dtype) && isInteger(type.dtype))
    return encode(type, multiplyIntegers(lhs, rhs, batch));
  const exact = encode(tensorType("float64", type.shape), multiplyFloats(lhs, rhs, batch));
  return convert(exact, type);
}

/** The sizes of groups in which every row is counted at most once. */
function clippedSizes(sizes: ArrayLike<number>, rows: number): number[] {
  let left = rows;
  return Array.from(sizes, (size) => {
    const count = Math.min(Math.max(size, 0), left);
    left -= count;
    return count;
  });
}

/** One product for each group, of rows that are next to each other. */
function raggedDot(
  ins: readonly HostTensor[],
  { ragged }: OpParams["raggedDot"],
  type: TensorType,
): HostTensor {
  const [x, y, sizes] = [at(ins, 0), at(ins, 1), at(ins, 2)];
  const [isRows, isWrapping] = [ragged === "rows", isInteger(x.type.dtype) && isInteger(type.dtype)];
  const multiply = isWrapping ? multiplyIntegers : multiplyFloats;
  const rank = x.type.shape.length - 2;
  const [m, k] = entriesOf(x.type.shape.slice(rank), 2);
  const groups = at(sizes.type.shape, rank);
  const [last, secondLast] = [rank + (isRows ? 2 : 1), rank + (isRows ? 1 : 0)];
  const n = at(y.type.shape, last);
  // Every dot product reads two contiguous runs, so the summed dim comes last.
  const left = decode(isRows ? x : transposed(x, [...range(rank), rank + 1, rank]));
  const right = decode(transposed(y, [...range(secondLast), last, secondLast]));
  const result = new Float64Array(sizeOf(type.shape));
  const counts = decode(sizes);
  for (const b of range(sizeOf(x.type.shape.slice(0, rank)))) {
    let first = 0;
    clippedSizes(counts.subarray(b * groups, (b + 1) * groups), m).forEach((count, group) => {
      const part = (values: Float64Array, width: number): Float64Array => {
        const own = new Float64Array(width * count);
        for (let i = 0; i < width; i++) {
          const from = (b * width + i) * m + first;
          own.set(values.subarray(from, from + count), i * count);
        }
        return own;
      };
      const slot = b * groups + group;
      const [lhs, rhs] = isRows
        ? [
            {
              values: left.subarray((b * m + first) * k, (b * m + first + count) * k),
              rows: count,
              length: k,
            },
            { values: right.subarray(slot * n * k, (slot + 1) * n * k), rows: n, length: k },
          ]
        : [
            { values: part(left, k), rows: k, length: count },
            { values: part(right, n), rows: n, length: count },
          ];
      result.set(multiply(lhs, rhs, 1), isRows ? (b * m + first) * n : slot * k * n);
      first += count;
    });
  }
  if (isWrapping) return encode(type, result);
  return convert(encode(tensorType("float64", type.shape), result), type);
}

/** Evaluates an op by the program that expresses it in smaller ops. */
const byProgram =
  <K extends OpName>(
    programOf: (params: OpParams[K], types: readonly TensorType[]) => Program,
  ): EvalRule<K> =>
  (ins, params, _types, context) => {
    const types = ins.map((lanes) => at(lanes, 0).type);
    return context.run(programOf(params, types), ins, context);
  };

/** Reference rules of the ops that contract dims. */
export const contractionRules: { readonly [K in OpsOf<"contraction">]: EvalRule<K> } = {
  dotGeneral: onEveryLane((ins, params, types) => [dotGeneral(at(ins, 0), at(ins, 1), params, at(types, 0))]),
  raggedDot: onEveryLane((ins, params, types) => [raggedDot(ins, params, at(types, 0))]),
  attention: byProgram(attentionProgram),
  attentionBackward: byProgram(attentionBackwardProgram),
};
