import { isInteger } from "../../ir/dtype.js";
import type { OpParams } from "../../ir/ops.js";
import { at, range, sizeOf, type TensorType, tensorType } from "../../ir/shape.js";
import { convert } from "./elementwise.js";
import { type EvalRule, onEveryLane } from "./rule.js";
import { transposed } from "./strided.js";
import { decode, encode, type HostTensor } from "./tensor.js";

/** A stack of matrices: `batch` times `rows` rows of `length` elements. */
interface Matrices {
  readonly values: Float64Array;
  readonly rows: number;
  readonly length: number;
}

/** The operand as `[batch, free, contracted]`, so that every dot product is of two neighbouring runs. */
function matrices(x: HostTensor, batch: readonly number[], contract: readonly number[]): Matrices {
  const { shape } = x.type;
  const free = range(shape.length).filter((d) => !batch.includes(d) && !contract.includes(d));
  return {
    values: decode(transposed(x, [...batch, ...free, ...contract])),
    rows: sizeOf(free.map((d) => at(shape, d))),
    length: sizeOf(contract.map((d) => at(shape, d))),
  };
}

/** Each element is a float64 sum of the products in row-major order of the contracted dims. */
function multiplyFloats(lhs: Matrices, rhs: Matrices, batch: number): Float64Array {
  const { rows, length, values: x } = lhs;
  const { rows: columns, values: y } = rhs;
  const result = new Float64Array(batch * rows * columns);
  for (let b = 0, out = 0; b < batch; b++) {
    for (let i = 0; i < rows; i++) {
      const left = (b * rows + i) * length;
      for (let j = 0; j < columns; j++) {
        const right = (b * columns + j) * length;
        let sum = 0;
        for (let k = 0; k < length; k++) sum += (x[left + k] as number) * (y[right + k] as number);
        result[out++] = sum;
      }
    }
  }
  return result;
}

/** The same with integers, where products and sums wrap around. */
function multiplyIntegers(lhs: Matrices, rhs: Matrices, batch: number): Float64Array {
  const { rows, length, values: x } = lhs;
  const { rows: columns, values: y } = rhs;
  const result = new Float64Array(batch * rows * columns);
  for (let b = 0, out = 0; b < batch; b++) {
    for (let i = 0; i < rows; i++) {
      const left = (b * rows + i) * length;
      for (let j = 0; j < columns; j++) {
        const right = (b * columns + j) * length;
        let sum = 0;
        for (let k = 0; k < length; k++) {
          sum = (sum + Math.imul(x[left + k] as number, y[right + k] as number)) | 0;
        }
        result[out++] = sum;
      }
    }
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

/** The meaning of `dotGeneral`. */
export const contractionRules: { readonly [K in "dotGeneral"]: EvalRule<K> } = {
  dotGeneral: onEveryLane((ins, params, types) => [dotGeneral(at(ins, 0), at(ins, 1), params, at(types, 0))]),
};
