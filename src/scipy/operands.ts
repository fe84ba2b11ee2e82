/** Arguments of functions of floats: promoted to one type and broadcast to one shape, as JAX does. */

import { complexType, type DType, partType } from "../ir/dtype.js";
import { at } from "../ir/shape.js";
import { broadcastShape, expandTo, floatType, refuseComplex, toType, wideType } from "../numpy/operands.js";
import * as ops from "../trace/ops.js";
import { operandType, type TensorLike } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";

/** A tensor for each value. */
export type Tensors<V extends readonly unknown[]> = { [K in keyof V]: Tensor };

/**
 * Calls a function with floats of one type and shape. Those of 16 bits are computed in float32 and rounded once, where
 * every step of a formula would add an error of its own.
 */
export function withFloats<V extends readonly TensorLike[]>(
  values: V,
  caller: string,
  compute: (...tensors: Tensors<V>) => Tensor,
): Tensor {
  return at(
    resultsOfFloats(values, caller, (...tensors) => [compute(...tensors)]),
    0,
  );
}

/** {@link withFloats} for a function with several results. */
export function resultsOfFloats<V extends readonly TensorLike[]>(
  values: V,
  caller: string,
  compute: (...tensors: Tensors<V>) => readonly Tensor[],
): Tensor[] {
  for (const value of values) refuseComplex(value, caller);
  const dtype = floatType(operandType(...values));
  const results = compute(...ofType(values, wideType(dtype), caller));
  return results.map((x) => ops.convert(x, dtype));
}

/** Calls a function with complex numbers of one type and shape. */
export function withComplex<V extends readonly TensorLike[]>(
  values: V,
  caller: string,
  compute: (...tensors: Tensors<V>) => Tensor,
): Tensor {
  return compute(...ofType(values, complexType(partType(operandType(...values))), caller));
}

function ofType<V extends readonly TensorLike[]>(values: V, dtype: DType, caller: string): Tensors<V> {
  const tensors = values.map((value) => toType(value, dtype, caller));
  const shape = broadcastShape(
    tensors.map((x) => x.shape),
    caller,
  );
  return tensors.map((x) => expandTo(x, shape)) as readonly Tensor[] as Tensors<V>;
}

/** A number everywhere in the shape and type of a tensor. */
export const like = (x: Tensor, value: number): Tensor => ops.full(x.shape, value, x.dtype);

/** Whether a comparison with a number holds. */
export const is = (x: Tensor, what: "lt" | "le" | "gt" | "ge" | "eq" | "ne", value: number): Tensor =>
  ops.compare(what, x, value);

/** One value where a condition holds, and another one elsewhere. */
export const pick = (condition: Tensor, yes: Tensor | number, no: Tensor): Tensor =>
  ops.select(condition, typeof yes === "number" ? like(no, yes) : yes, no);
