/** Activations that are exactly zero or linear outside −1 … 1, and logarithms of expressions of exponentials. */

import { withDerivative } from "../../lax/composed.js";
import * as np from "../../numpy/index.js";
import { asFloat, widened } from "../../numpy/operands.js";
import { logsumexp, maskedOptions } from "../../numpy/reductions/reductions.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";

/**
 * 0 up to −1, x from 1 on, and (x + 1)² / 4 between them: a softplus that is exactly 0.
 *
 * @example
 * ```ts
 * nn.sparsePlus(np.array([-2, 0, 2])); // [0, 0.25, 2]
 * ```
 */
export function sparsePlus(x: TensorLike): Tensor {
  const tensor = asFloat(x, "sparsePlus");
  const parabola = np.divide(np.square(np.add(tensor, 1)), 4);
  return np.where(np.lessEqual(tensor, -1), 0, np.where(np.greaterEqual(tensor, 1), tensor, parabola));
}

/**
 * (x + 1) / 2 limited to 0 … 1, the derivative of {@link sparsePlus}.
 *
 * @example
 * ```ts
 * nn.sparseSigmoid(np.array([-2, 0, 2])); // [0, 0.5, 1]
 * ```
 */
export function sparseSigmoid(x: TensorLike): Tensor {
  return np.multiply(np.clip(np.add(asFloat(x, "sparseSigmoid"), 1), 0, 2), 0.5);
}

const realLog1mexp = withDerivative(
  (x) => {
    const isNear = ops.compare("lt", x, Math.LN2);
    const near = ops.log(ops.neg(ops.expm1(ops.neg(x))));
    return ops.select(isNear, near, ops.log1p(ops.neg(ops.exp(ops.neg(x)))));
  },
  (x) => ops.div(ops.full(x.shape, 1, x.dtype), ops.expm1(x)),
);

/**
 * log(1 − exp(−x)) for positive x, precise for small and for large ones.
 *
 * @example
 * ```ts
 * nn.log1mexp(np.array([1, 2])); // [-0.4587, -0.1454]
 * ```
 */
export function log1mexp(x: TensorLike): Tensor {
  return widened(realLog1mexp)(asFloat(x, "log1mexp"));
}

/**
 * log of the mean of exp(x) over dims, without overflow.
 *
 * @example
 * ```ts
 * nn.logmeanexp(np.array([0, 1])); // 0.6201
 * ```
 */
export function logmeanexp(x: TensorLike, dim?: np.Dims, options?: np.MaskedOptions): Tensor {
  const given = maskedOptions.read(options, "nn.logmeanexp");
  const tensor = asFloat(x, "logmeanexp");
  const ones = np.onesLike(tensor);
  return np.subtract(logsumexp(tensor, dim, given), np.log(np.sum(ones, dim, given)));
}
