/** JAX's `scipy.optimize`: minima of functions of a vector. */

import { integerFrom, need, oneOf } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { isFloat } from "../../ir/dtype.js";
import { DTypeError, ShapeError } from "../../ir/errors.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import { formatType } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { asTensor } from "../../numpy/operands.js";
import type { TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { whileLoop } from "../../transforms/control/whileLoop.js";
import { valueAndGrad } from "../../transforms/derivatives/grad.js";
import { searchLine } from "./lineSearch.js";

const minimizeOptions = schema({
  /** The algorithm: quasi-Newton steps with Broyden, Fletcher, Goldfarb and Shanno's estimate of the curvature. */
  method: required(oneOf("BFGS")),
  /** Maximum number of iterations; 200 for each element of the start by default. */
  maxiter: optional(integerFrom(0)),
  /** The order of the norm of the gradient that is compared with `gtol`; infinity by default, the largest element. */
  norm: Number.POSITIVE_INFINITY,
  /** The search ends when the norm of the gradient is smaller. */
  gtol: 1e-5,
  /** Maximum number of step lengths that are tried in one iteration, apart from those inside of a bracket. */
  lineSearchMaxiter: 10,
});

/** Options of {@link minimize}. */
export interface MinimizeOptions extends OptionsOf<typeof minimizeOptions> {}

/** What {@link minimize} found; all fields are tensors. */
export interface OptimizeResults {
  /** The last point. */
  readonly x: Tensor;
  /** Whether the gradient there is small enough. */
  readonly success: Tensor;
  /** 0: converged; 1: `maxiter` was reached; 3 and 5: no step was found, inside of a bracket or at all. */
  readonly status: Tensor;
  /** The value of the function there. */
  readonly fun: Tensor;
  /** Its gradient there. */
  readonly jac: Tensor;
  /** The estimate of the inverse of its second derivatives. */
  readonly hessInv: Tensor;
  /** How often the function was evaluated. */
  readonly nfev: Tensor;
  /** How often the gradient was evaluated. */
  readonly njev: Tensor;
  /** Number of iterations. */
  readonly nit: Tensor;
}

interface State {
  readonly x: Tensor;
  readonly value: Tensor;
  /** The value at the point before. */
  readonly before: Tensor;
  readonly gradient: Tensor;
  readonly inverse: Tensor;
  readonly converged: Tensor;
  /** 0, or why the last search along a line found nothing. */
  readonly failure: Tensor;
  readonly evaluations: Tensor;
  readonly iteration: Tensor;
}

const int = (value: number) => Tensor.scalar(value, "int32");

/** The estimate of the inverse curvature after a step that changed the gradient. */
function updatedInverse(inverse: Tensor, step: Tensor, change: Tensor): Tensor {
  const share = np.reciprocal(np.dot(change, step));
  const aside = np.subtract(
    np.eye(step.size, step.size, { dtype: step.dtype }),
    np.multiply(share, np.outer(step, change)),
  );
  const kept = np.matmul(np.matmul(aside, inverse), np.transpose(aside));
  return np.where(np.isfinite(share), np.add(kept, np.multiply(share, np.outer(step, step))), inverse);
}

/** The first point, a vector of floats. */
function startOf(x0: TensorLike, caller: string): Tensor {
  const start = asTensor(x0, caller);
  if (!isFloat(start.dtype)) {
    throw new DTypeError(`[${caller}] x0 must be a vector of floats, got ${describe(start)}`);
  }
  if (start.ndim !== 1) {
    throw new ShapeError(`[${caller}] x0 must be a vector, got ${formatType(start.type)}: ravel it`);
  }
  return start;
}

/**
 * The minimum of a function near a start, with the gradients that differentiation gives. The function takes a vector and
 * returns a number; it may be called inside of `jit` and `vmap`. Derivatives of the result itself are those of a loop
 * without a known length: `jvp` alone.
 *
 * @example
 * ```ts
 * const far = (x: Tensor) => np.sum(np.square(x.sub(np.array([1, 3]))));
 * scipy.optimize.minimize(far, np.array([0, 0]), { method: "BFGS" }).x; // [1, 3]
 * ```
 */
export function minimize(
  fun: (x: Tensor) => Tensor,
  x0: TensorLike,
  options: MinimizeOptions,
): OptimizeResults {
  const caller = "scipy.optimize.minimize";
  need("function", fun, "fun", caller);
  const { maxiter, norm, gtol, lineSearchMaxiter } = minimizeOptions.read(options, caller);
  const start = startOf(x0, caller);
  const most = maxiter ?? 200 * start.size;
  const isSmall = (gradient: Tensor) => np.less(np.linalg.norm(gradient, norm), gtol);
  const [value, gradient] = valueAndGrad(fun)(start);
  const first: State = {
    x: start,
    value,
    before: np.add(value, np.divide(np.linalg.norm(gradient), 2)),
    gradient,
    inverse: np.eye(start.size, start.size, { dtype: start.dtype }),
    converged: isSmall(gradient),
    failure: int(0),
    evaluations: int(1),
    iteration: int(0),
  };
  const last = whileLoop(
    ({ converged, failure, iteration }: State) =>
      np.logicalAnd(np.logicalAnd(converged.not(), failure.eq(0)), iteration.lt(most)),
    (state: State): State => {
      const direction = np.negative(np.matmul(state.inverse, state.gradient));
      const found = searchLine(fun, state, direction, lineSearchMaxiter);
      const step = np.multiply(found.length, direction);
      return {
        x: np.add(state.x, step),
        value: found.value,
        before: state.value,
        gradient: found.gradient,
        inverse: updatedInverse(state.inverse, step, np.subtract(found.gradient, state.gradient)),
        converged: isSmall(found.gradient),
        failure: found.failure,
        evaluations: np.add(state.evaluations, found.evaluations),
        iteration: np.add(state.iteration, 1),
      };
    },
    first,
  );
  const stopped = np.where(last.iteration.eq(most), int(1), np.add(last.failure, 2));
  return {
    x: last.x,
    success: np.logicalAnd(last.converged, last.failure.eq(0)),
    status: np.where(last.converged, int(0), stopped),
    fun: last.value,
    jac: last.gradient,
    hessInv: last.inverse,
    nfev: last.evaluations,
    njev: last.evaluations,
    nit: last.iteration,
  };
}
