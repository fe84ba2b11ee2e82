/** Strict operands: numbers take the type of the tensors, nothing else is converted or broadcast. */

import { need } from "../ir/arguments.js";
import { describe } from "../ir/describe.js";
import { isComplex, isFloat, isUnsigned, limits } from "../ir/dtype.js";
import { DTypeError, ShapeError } from "../ir/errors.js";
import { at, formatType, normalizeDims, range, sameNumbers } from "../ir/shape.js";
import { Complex } from "../trace/complexNumber.js";
import * as ops from "../trace/ops.js";
import { operandType, type TensorLike } from "../trace/promote.js";
import { Tensor } from "../trace/tensor.js";

/** An operand that must be a tensor or a number, which is float32. */
export function operand(x: TensorLike, caller = "operand"): Tensor {
  if (x instanceof Tensor) return x;
  checkScalar(x, caller);
  return Tensor.scalar(x, operandType(x));
}

function checkScalar(x: unknown, caller: string): void {
  if (typeof x === "number" || typeof x === "boolean" || x instanceof Complex) return;
  throw new DTypeError(
    `[lax.${caller}] an operand must be a tensor or a number, got ${describe(x)}: convert it with np.array`,
  );
}

/** Operands of which the numbers take the data type of the first tensor. */
export function operandsOf<T extends readonly TensorLike[]>(
  values: T,
  caller: string,
): { [K in keyof T]: Tensor } {
  const tensor = values.find((value) => value instanceof Tensor);
  const tensors = values.map((value) => {
    if (value instanceof Tensor || tensor === undefined) return operand(value, caller);
    checkScalar(value, caller);
    const isExact = isFloat(tensor.dtype) || isComplex(tensor.dtype) || Number.isInteger(value);
    if (typeof value === "number" && !isExact) {
      throw new DTypeError(
        `[lax.${caller}] ${value} is not a valid ${tensor.dtype}: convert the tensor with convertElementType`,
      );
    }
    return Tensor.scalar(value, tensor.dtype);
  });
  return tensors as readonly Tensor[] as { [K in keyof T]: Tensor };
}

/** Floats of one type and shape; half-width ones are computed in float32. */
export function withFloats<T extends readonly TensorLike[]>(
  values: T,
  name: string,
  compute: (tensors: { [K in keyof T]: Tensor }) => Tensor,
): Tensor {
  const tensors: readonly Tensor[] = operandsOf(values, name);
  const given = tensors.find((x) => x.node.kind !== "literal") ?? at(tensors, 0);
  const { dtype, shape } = given;
  const whole = tensors.map((x) => (x.node.kind === "literal" ? ops.broadcastInDim(x, shape, []) : x));
  for (const x of whole) {
    if (!isFloat(x.dtype)) throw new DTypeError(`[lax.${name}] needs floats, got ${formatType(x.type)}`);
    if (x.dtype === dtype && sameNumbers(x.shape, shape)) continue;
    const all = whole.map(({ type }) => formatType(type)).join(" and ");
    throw new ShapeError(
      `[lax.${name}] ${all} must have the same type and shape: convert and broadcast them`,
    );
  }
  const wide = dtype === "float64" ? whole : whole.map((x) => ops.convert(x, "float32"));
  return ops.convert(compute(wide as readonly Tensor[] as { [K in keyof T]: Tensor }), dtype);
}

/** Integers as int32; unsigned ones beyond become the largest, which lies outside of every dim as they do. */
export function toInt32(indices: Tensor): Tensor {
  const largest = Tensor.scalar(limits("int32").max, "uint32");
  return ops.convert(indices.dtype === "uint32" ? ops.min(indices, largest) : indices, "int32");
}

/** An index into a dim of size n as int32 scalar; negative ones count from the end. */
export function toStart(index: TensorLike, n: number, caller: string): Tensor {
  if (index instanceof Tensor) {
    if (index.ndim !== 0 || isFloat(index.dtype) || isComplex(index.dtype) || index.dtype === "bool") {
      throw new DTypeError(`[lax.${caller}] a start must be an integer scalar, got ${index}`);
    }
    const start = toInt32(index);
    if (isUnsigned(index.dtype)) return start;
    return ops.select(ops.compare("lt", start, 0), ops.add(start, n), start);
  }
  need("integer", index, "a start", `lax.${caller}`);
  return Tensor.scalar(index < 0 ? index + n : index, "int32");
}

/** Repeats the scalars among tensors to the shape of the others. */
export function expandScalars(scalars: readonly Tensor[], others: readonly Tensor[]): Tensor[] {
  const shape = others.find((x) => x.ndim > 0)?.shape ?? [];
  return scalars.map((x) =>
    x.ndim === 0 && x.node.kind !== "literal" ? ops.broadcastInDim(x, shape, []) : x,
  );
}

/** A tensor with dims of size 1 at the given places of the result. */
export function insertDims(x: Tensor, dims: readonly number[], caller: string): Tensor {
  const rank = x.ndim + dims.length;
  const places = normalizeDims(dims, rank, caller);
  const sizes = [...x.shape];
  return ops.reshape(
    x,
    range(rank).map((d) => (places.includes(d) ? 1 : (sizes.shift() ?? 1))),
  );
}
