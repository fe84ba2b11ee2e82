/** What losses have in common: their operands and options. */

import { isFloat } from "../../ir/dtype.js";
import { DTypeError } from "../../ir/errors.js";
import { optional, schema } from "../../ir/schema.js";
import { formatType } from "../../ir/shape.js";
import { dimsKind } from "../../numpy/operands.js";
import { type TensorLike, tensorLikeKind, toTensor } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";

export const asTensor = (x: TensorLike, caller: string): Tensor =>
  x instanceof Tensor ? x : toTensor(x, "float32", caller);

/** An operand of floats, as optax asks for: losses of integers would wrap around and round. */
export function asFloats(x: TensorLike, caller: string): Tensor {
  const tensor = asTensor(x, caller);
  if (isFloat(tensor.dtype)) return tensor;
  throw new DTypeError(
    `[${caller}] takes floats, got ${formatType(tensor.type)}: convert them with astype("float32")`,
  );
}

export const lossOptions = schema({
  /** The dims of classes or features; the last by default. */
  dim: optional(dimsKind, -1),
  /** The elements that count; all by default. */
  where: optional(tensorLikeKind),
});
