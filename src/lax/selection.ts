/** Choosing between values, element by element. */

import { ValueError } from "../ir/errors.js";
import * as ops from "../trace/ops.js";
import { needTensor, type TensorLike } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { ge } from "./elementwise.js";
import { expandScalars, operandsOf } from "./operands.js";

/**
 * Takes each element from `onTrue` or `onFalse`; a scalar predicate chooses between the whole tensors.
 *
 * @example
 * ```ts
 * lax.select(np.array([true, false]), np.array([1, 2]), np.array([3, 4])); // [1, 4]
 * ```
 */
export function select(predicate: Tensor, onTrue: TensorLike, onFalse: TensorLike): Tensor {
  needTensor(predicate, "predicate", "lax.select");
  const [x, y] = operandsOf([onTrue, onFalse] as const, "select");
  const [p] = expandScalars([predicate], [x, y]);
  return ops.select(p ?? predicate, x, y);
}

/**
 * Takes each element from the case that `which` selects: two cases by a bool, or any number by an integer.
 *
 * @example
 * ```ts
 * lax.selectN(np.array([false, true]), np.array([1, 2]), np.array([10, 20])); // [1, 20]
 * ```
 */
export function selectN(which: Tensor, ...cases: readonly TensorLike[]): Tensor {
  needTensor(which, "which", "lax.selectN");
  const xs = operandsOf(cases, "selectN");
  const [first, second] = xs;
  if (first === undefined) throw new ValueError("[lax.selectN] needs at least one case");
  if (which.dtype === "bool") {
    if (second === undefined || xs.length > 2) {
      throw new ValueError(
        `[lax.selectN] a bool chooses between 2 cases, got ${xs.length}: use an int32 for more`,
      );
    }
    return select(which, second, first);
  }
  return xs.slice(1).reduce((chosen, x, i) => select(ge(which, i + 1), x, chosen), first);
}

/**
 * Limits each element to low … high, which may be scalars.
 *
 * @example
 * ```ts
 * lax.clamp(0, np.array([-1, 0.5, 2]), 1); // [0, 0.5, 1]
 * ```
 */
export function clamp(low: TensorLike, x: TensorLike, high: TensorLike): Tensor {
  const [middle, bottom, top] = operandsOf([x, low, high] as const, "clamp");
  const [from, to] = expandScalars([bottom, top], [middle]);
  return ops.clamp(from ?? bottom, middle, to ?? top);
}
