/** Arguments of functions of floats: promoted to one type and broadcast to one shape, as JAX does. */

import { complexType, type DType, partType } from "../ir/dtype.js";
import { broadcastShape, expandTo, floatType, refuseComplex, toType, wideType } from "../numpy/operands.js";
import * as ops from "../trace/ops.js";
import { resultType, type TensorLike } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";

/** A tensor for each value. */
export type Tensors<V extends readonly unknown[]> = { [K in keyof V]: Tensor };

/** Calls a function with floats of one type and shape. */
export function withFloats<V extends readonly TensorLike[], R = Tensor>(
  values: V,
  caller: string,
  compute: (...tensors: Tensors<V>) => R,
): R {
  for (const value of values) refuseComplex(value, caller);
  return ofType(values, floatType(resultType(...values)), caller, compute);
}

/** Calls a function with complex numbers of one type and shape. */
export function withComplex<V extends readonly TensorLike[]>(
  values: V,
  caller: string,
  compute: (...tensors: Tensors<V>) => Tensor,
): Tensor {
  return ofType(values, complexType(partType(resultType(...values))), caller, compute);
}

function ofType<V extends readonly TensorLike[], R>(
  values: V,
  dtype: DType,
  caller: string,
  compute: (...tensors: Tensors<V>) => R,
): R {
  const tensors = values.map((value) => toType(value, dtype, caller));
  const shape = broadcastShape(
    tensors.map((x) => x.shape),
    caller,
  );
  return compute(...(tensors.map((x) => expandTo(x, shape)) as readonly Tensor[] as Tensors<V>));
}

/** Calls a function with floats of one shape, which are float32 at least; its results have the promoted type. */
export function withWideFloats<V extends readonly TensorLike[]>(
  values: V,
  caller: string,
  compute: (...tensors: Tensors<V>) => readonly Tensor[],
): Tensor[] {
  return withFloats(values, caller, (...tensors: Tensors<V>) => {
    const dtype = tensors[0]?.dtype ?? "float32";
    const wide = tensors.map((x: Tensor) => ops.convert(x, wideType(dtype)));
    return compute(...(wide as readonly Tensor[] as Tensors<V>)).map((x) => ops.convert(x, dtype));
  });
}

/** A number everywhere in the shape and type of a tensor. */
export const like = (x: Tensor, value: number): Tensor => ops.full(x.shape, value, x.dtype);

/** Whether a comparison with a number holds. */
export const is = (x: Tensor, what: "lt" | "le" | "gt" | "ge" | "eq" | "ne", value: number): Tensor =>
  ops.compare(what, x, value);

/** One value where a condition holds, and another one elsewhere. */
export const pick = (condition: Tensor, yes: Tensor | number, no: Tensor): Tensor =>
  ops.select(condition, typeof yes === "number" ? like(no, yes) : yes, no);
