import { isFloat, sumType } from "../../ir/dtype.js";
import type { Eqn } from "../../ir/program.js";
import { at, bytesOf, tensorType } from "../../ir/shape.js";

/** Sizes below which a strip would be mostly empty. */
const FEWEST = 16;
const MAX_FEATURES = 256;
/** On a GPU rows have to fit registers and shared memory. */
const MAX_ON_GPU = 128;
/** Distances between heads and batch elements fit the operands of instructions. */
const MAX_BYTES = 2 ** 31;

/**
 * Whether a kernel computes an equation in one piece once its operands are float32: attention of floats of at most 32
 * bits whose scores depend on products and places only.
 */
export function isOneKernel(
  { ins, params }: Eqn<"attention"> | Eqn<"attentionBackward">,
  gpu = false,
): boolean {
  const { softcap, dropoutRate, extras = [] } = params;
  const [, length = 0, , headSize = 0] = at(ins, 0).type.shape;
  const [, keyLength = 0] = at(ins, 1).type.shape;
  return (
    Math.min(length, keyLength) >= FEWEST &&
    headSize > 0 &&
    headSize <= (gpu ? MAX_ON_GPU : MAX_FEATURES) &&
    !softcap &&
    !dropoutRate &&
    extras.every((name) => name === "logSumsCotangent") &&
    ins.every(
      ({ type: { dtype, shape } }) =>
        isFloat(dtype) && sumType(dtype) === "float32" && bytesOf(tensorType("float32", shape)) < MAX_BYTES,
    )
  );
}
