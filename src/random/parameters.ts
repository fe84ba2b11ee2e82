/** Parameters of distributions, and keys made of others. */
import { DTypeError } from "../ir/errors.js";
import type { Shape } from "../ir/shape.js";
import { broadcastShape, type DTypeOption, dtypeOf, expandTo, type ShapeLike } from "../numpy/operands.js";
import * as ops from "../trace/ops.js";
import { Tensor } from "../trace/tensor.js";
import { checkBroadcast, type FloatType, isFloatType } from "./floats.js";
import { checkKey, drawnShape } from "./keys.js";

/** A parameter of a distribution: a number, or a tensor with one for every sample. */
export type Parameter = number | Tensor;

/** Checks key, parameters and shape, and repeats the parameters to the shape. @param halves whether 16 bits will do */
export function parameters<P extends readonly Parameter[]>(
  key: Tensor,
  given: readonly [...P],
  shape: ShapeLike | undefined,
  option: DTypeOption | undefined,
  caller: string,
  halves = false,
): {
  readonly dtype: FloatType;
  readonly shape: Shape;
  readonly tensors: { [K in keyof P]: Tensor };
} {
  checkKey(key, caller);
  const dtype = dtypeOf(option, caller) ?? "float32";
  if (!isFloatType(dtype) || (!halves && (dtype === "bfloat16" || dtype === "float16"))) {
    const types = halves ? "floats" : "float32 and float64";
    throw new DTypeError(`[${caller}] draws ${types}, not ${dtype}: convert what it draws`);
  }
  const own = given.map((value) =>
    typeof value === "number" ? Tensor.scalar(value, dtype) : ops.convert(value, dtype),
  );
  const sizes =
    shape === undefined
      ? broadcastShape(
          own.map((x) => x.shape),
          caller,
        )
      : drawnShape(shape, caller);
  checkBroadcast(own, sizes, caller);
  const tensors = own.map((x) => expandTo(x, sizes)) as readonly Tensor[] as { [K in keyof P]: Tensor };
  return { dtype, shape: sizes, tensors };
}

/** One of several keys. */
export function keyOf(keys: Tensor, index: number): Tensor {
  return ops.reshape(ops.sliceDim(keys, 0, index, index + 1), [2]);
}
