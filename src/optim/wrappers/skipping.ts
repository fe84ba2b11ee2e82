/** Which gradients `multiSteps` leaves out. */

import { need } from "../../ir/arguments.js";
import { greater, less, logicalNot } from "../../numpy/elementwise/logic.js";
import { isfinite } from "../../numpy/elementwise/specialValues.js";
import { squaredSize } from "../../numpy/operands.js";
import { sum } from "../../numpy/reductions/reductions.js";
import type { Tensor } from "../../trace/tensor.js";
import { sumOverTree } from "../transformations/clipping.js";
import type { ShouldSkipUpdate } from "./accumulate.js";

/** What {@link skipNotFinite} says. */
export interface SkipNotFiniteState {
  readonly shouldSkip: Tensor;
  /** How many elements are infinite or NaN. */
  readonly numNotFinite: Tensor;
}

/**
 * Leaves out gradients that have an infinite element or NaN.
 *
 * @example
 * ```ts
 * const step = optim.multiSteps(optim.sgd({ learningRate: 1 }), 1, { shouldSkipUpdateFn: optim.skipNotFinite });
 * step.update(np.array([1, Infinity]), step.init(np.array([1, 2])))[0]; // [0, 0]
 * ```
 */
export function skipNotFinite(grads: unknown): readonly [skip: Tensor, state: SkipNotFiniteState] {
  const numNotFinite = sumOverTree(grads, (g) => sum(logicalNot(isfinite(g)).astype("int32")));
  const shouldSkip = greater(numNotFinite, 0);
  return [shouldSkip, { shouldSkip, numNotFinite }];
}

/** What {@link skipLargeUpdates} says. */
export interface SkipLargeUpdatesState {
  readonly shouldSkip: Tensor;
  readonly normSquared: Tensor;
}

/**
 * Leaves out gradients whose squares add up to `maxSquaredNorm` or more, or to NaN.
 *
 * @example
 * ```ts
 * const shouldSkipUpdateFn = optim.skipLargeUpdates(20);
 * const step = optim.multiSteps(optim.sgd({ learningRate: 1 }), 1, { shouldSkipUpdateFn });
 * step.update(np.array([3, 4]), step.init(np.array([1, 2])))[0]; // [0, 0]
 * ```
 */
export function skipLargeUpdates(maxSquaredNorm: number): ShouldSkipUpdate {
  need("number", maxSquaredNorm, "maxSquaredNorm", "skipLargeUpdates");
  return (grads) => {
    const normSquared = sumOverTree(grads, (g) => sum(squaredSize(g)));
    const shouldSkip = logicalNot(less(normSquared, maxSquaredNorm));
    return [shouldSkip, { shouldSkip, normSquared }];
  };
}
