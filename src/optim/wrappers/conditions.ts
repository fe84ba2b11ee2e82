/** Transformations that work at some steps only. */

import { need } from "../../ir/arguments.js";
import { zerosLike } from "../../numpy/arrays/creation.js";
import { add, divide, multiply } from "../../numpy/elementwise/arithmetic.js";
import { astype } from "../../numpy/elementwise/elementwise.js";
import type { Tensor } from "../../trace/tensor.js";
import { globalNorm } from "../transformations/clipping.js";
import { zeroCount } from "../transformations/moments.js";
import {
  type EmptyState,
  type ExtraArgs,
  type GradientTransformation,
  mapTensors,
  needTransformation,
  type StepState,
  stateless,
  type TypedTransformation,
  typedTransformation,
} from "../transformations/transformation.js";
import { select } from "./accumulate.js";

/** The state of {@link conditionallyTransform} and {@link conditionallyMask}. */
export interface ConditionalState<S> {
  /** Number of calls so far. */
  readonly step: Tensor;
  readonly inner: S;
}

/** Applies a transformation at the steps that a condition chooses; at others its state stays. */
function conditionally<G extends GradientTransformation>(
  caller: string,
  inner: G,
  condition: (step: Tensor) => Tensor,
  otherwise: (grad: Tensor) => Tensor,
): TypedTransformation<ConditionalState<StepState<G>>> {
  needTransformation(inner, caller);
  need("function", condition, "the condition", caller);
  return typedTransformation<ConditionalState<unknown>, ConditionalState<StepState<G>>>(
    caller,
    { step: "tensor", inner: "tree" },
    {
      init: (params) => ({ step: zeroCount(), inner: inner.init(params) }),
      update: <T>(
        grads: T,
        state: ConditionalState<unknown>,
        params?: T,
        extra?: ExtraArgs<T>,
      ): [T, ConditionalState<unknown>] => {
        const [updates, next] = inner.update(grads, state.inner, params, extra);
        const chosen = condition(state.step);
        return [
          select(chosen, updates, mapTensors(otherwise, grads)),
          { step: state.step.add(1), inner: select(chosen, next, state.inner) },
        ];
      },
    },
  );
}

/**
 * A transformation at the steps that a condition chooses; at the others gradients pass unchanged.
 *
 * @param condition from the number of calls before, an int32 scalar, to a bool
 *
 * @example
 * ```ts
 * const step = optim.conditionallyTransform(optim.scale(10), (count) => count.ge(1));
 * const [first, state] = step.update(np.array([1, 2]), step.init(np.array([1, 2]))); // first is [1, 2]
 * step.update(np.array([1, 2]), state)[0]; // [10, 20]
 * ```
 */
export function conditionallyTransform<G extends GradientTransformation>(
  inner: G,
  condition: (step: Tensor) => Tensor,
): TypedTransformation<ConditionalState<StepState<G>>> {
  return conditionally("conditionallyTransform", inner, condition, (grad) => grad);
}

/**
 * A transformation at the steps that a condition chooses; at the others updates are zero.
 *
 * @param condition from the number of calls before, an int32 scalar, to a bool
 *
 * @example
 * ```ts
 * const step = optim.conditionallyMask(optim.scale(10), (count) => count.ge(1));
 * const [first, state] = step.update(np.array([1, 2]), step.init(np.array([1, 2]))); // first is [0, 0]
 * step.update(np.array([1, 2]), state)[0]; // [10, 20]
 * ```
 */
export function conditionallyMask<G extends GradientTransformation>(
  inner: G,
  condition: (step: Tensor) => Tensor,
): TypedTransformation<ConditionalState<StepState<G>>> {
  return conditionally("conditionallyMask", inner, condition, zerosLike);
}

/**
 * Updates of a given length: each is divided by the norm of all.
 *
 * @example
 * ```ts
 * const step = optim.normalizeByUpdateNorm(-1);
 * step.update({ w: np.array([3, 4]) }, [])[0]; // { "w": [-0.6, -0.8] }
 * ```
 */
export function normalizeByUpdateNorm(scaleFactor = 1, eps = 1e-6): GradientTransformation<EmptyState> {
  need("number", scaleFactor, "scaleFactor", "normalizeByUpdateNorm");
  need("number", eps, "eps", "normalizeByUpdateNorm");
  return stateless((grads) => {
    const size = multiply(add(globalNorm(grads), eps), 1 / scaleFactor);
    return mapTensors((grad) => divide(grad, astype(size, grad.dtype)), grads);
  });
}
