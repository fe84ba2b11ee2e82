/** What the layers share. */

import { type DType, dtypeKind, isFloat } from "../../ir/dtype.js";
import { DTypeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import * as ops from "../../trace/ops.js";
import { promoteTypes } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { ModuleError } from "./errors.js";

/** The schema of {@link LayerTypes}. */
export const layerTypes = schema({
  /** The type of the computation and the result; by default that of input and parameters together. */
  dtype: optional(dtypeKind),
  /** The type in which parameters are made; float32 by default. */
  paramDtype: optional(dtypeKind, "float32"),
});

/** The data types of a layer. */
export interface LayerTypes extends OptionsOf<typeof layerTypes> {}

/** The type to compute in: the given one, or the common float type of the operands. */
export function computeType(
  operands: readonly (Tensor | undefined)[],
  dtype: DType | undefined,
  caller: string,
): DType {
  if (dtype !== undefined) {
    if (!isFloat(dtype)) throw new DTypeError(`[${caller}] computes in floats, dtype is ${dtype}`);
    return dtype;
  }
  const types = operands.flatMap((x) => (x ? [x.dtype] : []));
  const common = types.reduce(promoteTypes);
  return isFloat(common) ? common : "float32";
}

/** The operands brought to the type to compute in. */
export function promote<T extends readonly (Tensor | undefined)[]>(
  operands: readonly [...T],
  dtype: DType | undefined,
  caller: string,
): T {
  const common = computeType(operands, dtype, caller);
  const promoted: readonly (Tensor | undefined)[] = operands.map((x) => x && ops.convert(x, common));
  return promoted as T;
}

/** A setting that is given once, in the configuration or at the call. */
export function givenOnce<T>(
  name: string,
  inConfig: T | undefined,
  atCall: T | undefined,
  caller: string,
): T {
  if (inConfig !== undefined && atCall !== undefined) {
    throw new ModuleError(
      "argument",
      `[${caller}] ${name} was given in the configuration and at the call: give it once`,
    );
  }
  const value = inConfig ?? atCall;
  if (value === undefined) {
    throw new ModuleError("argument", `[${caller}] needs ${name}, in the configuration or at the call`);
  }
  return value;
}
