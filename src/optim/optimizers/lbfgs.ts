/** Steps along the curvature that the last gradients show: L-BFGS. */

import { either, integerFrom } from "../../ir/arguments.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { arange, zeros } from "../../numpy/arrays/creation.js";
import { add, divide, minimum, mod, multiply, subtract } from "../../numpy/elementwise/arithmetic.js";
import { sqrt } from "../../numpy/elementwise/elementwise.js";
import { equal, greater, where } from "../../numpy/elementwise/logic.js";
import { take } from "../../numpy/indexing/take.js";
import type { Tensor } from "../../trace/tensor.js";
import { scan } from "../../transforms/control/scan.js";
import { zeroCount, zerosOf } from "../transformations/moments.js";
import { rate } from "../transformations/options.js";
import { type CountState, scale, scaleByLearningRate } from "../transformations/scaling.js";
import {
  addScaled,
  chain,
  type EmptyState,
  type GradientTransformation,
  identity,
  inner,
  mapTensors,
  requireParams,
  transformation,
} from "../transformations/transformation.js";
import { scaleByZoomLinesearch, type ZoomLinesearchState } from "./lineSearch.js";

const lbfgsOptions = schema({
  /** How many of the last steps are remembered; 10 by default. */
  memorySize: optional(integerFrom(1), 10),
  /** Whether the curvature of the last step scales the first guess; true by default. */
  scaleInitPrecond: true,
});

/** Options of {@link scaleByLbfgs}. */
export interface LbfgsOptions extends OptionsOf<typeof lbfgsOptions> {}

/** The last parameters and gradients, and the differences of the steps before. */
export interface LbfgsState extends CountState {
  readonly params: unknown;
  readonly grads: unknown;
  readonly paramSteps: unknown;
  readonly gradSteps: unknown;
  readonly weights: Tensor;
}

/**
 * Multiplies gradients by the inverse of the curvature that the remembered steps show.
 *
 * @example
 * ```ts
 * const step = optim.scaleByLbfgs();
 * const w = np.array([1, 2]);
 * step.update(np.array([3, 4]), step.init(w), w)[0]; // [0.6, 0.8]
 * ```
 */
export function scaleByLbfgs(options?: LbfgsOptions): GradientTransformation<LbfgsState> {
  const { memorySize, scaleInitPrecond } = lbfgsOptions.read(options, "scaleByLbfgs");
  const stacked = (params: unknown) => mapTensors((p) => zeros([memorySize, ...p.shape], p.dtype), params);
  return transformation<LbfgsState>(
    "scaleByLbfgs",
    {
      params: "tree",
      grads: "tree",
      paramSteps: "tree",
      gradSteps: "tree",
      weights: "tensor",
      count: "tensor",
    },
    {
      init: (params) => ({
        count: zeroCount(),
        params: zerosOf(params),
        grads: zerosOf(params),
        paramSteps: stacked(params),
        gradSteps: stacked(params),
        weights: zeros([memorySize]),
      }),
      update: <T>(grads: T, state: LbfgsState, params?: T): [T, LbfgsState] => {
        const given = requireParams(params, "scaleByLbfgs");
        const begun = greater(state.count, 0);
        const since = (x: unknown, y: unknown) => mapTensors((a, b) => where(begun, subtract(a, b), 0), x, y);
        const paramStep = since(given, state.params);
        const gradStep = since(grads, state.grads);
        const curvature = inner(gradStep, paramStep);
        const place = mod(state.count.sub(1), memorySize);
        const remember = (memory: unknown, value: unknown) =>
          mapTensors((m, v) => m.at(place).set(v), memory, value);
        const next: LbfgsState = {
          count: state.count.add(1),
          params: given,
          grads,
          paramSteps: remember(state.paramSteps, paramStep),
          gradSteps: remember(state.gradSteps, gradStep),
          weights: state.weights.at(place).set(where(equal(curvature, 0), 0, divide(1, curvature))),
        };
        const first = scaleInitPrecond ? firstScale(grads, gradStep, curvature, begun) : undefined;
        return [precondition(grads, next, mod(state.count, memorySize), memorySize, first), next];
      },
    },
  );
}

/** The scale of the first guess: the last step's curvature, or at most a unit step at the start. */
function firstScale(grads: unknown, gradStep: unknown, curvature: Tensor, begun: Tensor): Tensor {
  const squares = inner(gradStep, gradStep);
  const known = where(greater(squares, 0), divide(curvature, squares), 1);
  return where(begun, known, minimum(divide(1, sqrt(inner(grads, grads))), 1));
}

/** The two loops of L-BFGS over the remembered steps, oldest last and then oldest first. */
function precondition<T>(
  grads: T,
  memory: LbfgsState,
  oldest: Tensor,
  size: number,
  first: Tensor | undefined,
): T {
  const order = mod(add(arange(size, "int32"), oldest), size);
  const stepsAt = (i: Tensor) => ({
    paramStep: mapTensors((m) => take(m, i, 0), memory.paramSteps),
    gradStep: mapTensors((m) => take(m, i, 0), memory.gradSteps),
    weight: take(memory.weights, i, 0),
  });
  const [back, alphas] = scan(
    (direction: unknown, i: Tensor): [unknown, Tensor] => {
      const { paramStep, gradStep, weight } = stepsAt(i);
      const alpha = multiply(weight, inner(paramStep, direction));
      return [addScaled(direction, alpha.neg(), gradStep), alpha];
    },
    grads as unknown,
    order,
    { reverse: true },
  );
  const scaled = first ? mapTensors((x) => multiply(x, first), back) : back;
  const [forth] = scan(
    (direction: unknown, { i, alpha }: { i: Tensor; alpha: Tensor }): [unknown, null] => {
      const { paramStep, gradStep, weight } = stepsAt(i);
      const beta = multiply(weight, inner(gradStep, direction));
      return [addScaled(direction, subtract(alpha, beta), paramStep), null];
    },
    scaled,
    { i: order, alpha: alphas },
  );
  return forth as T;
}

const lbfgsOptimizerOptions = schema({
  ...lbfgsOptions.fields,
  /** The length of a step along the direction; 1 by default. */
  learningRate: optional(rate),
  linesearch: optional(either("object", "null")),
});

/** Options of {@link lbfgs}. */
export interface LbfgsOptimizerOptions<L = GradientTransformation<ZoomLinesearchState>>
  extends Omit<OptionsOf<typeof lbfgsOptimizerOptions>, "linesearch"> {
  /** What chooses the length of a step, or `null`; {@link scaleByZoomLinesearch} with up to 20 tries by default. */
  readonly linesearch?: L | undefined;
}

/** The state of a line search, which may be left out. */
type SearchState<L> = L extends GradientTransformation<infer S> ? S : EmptyState;

/**
 * L-BFGS with a line search, for which `update` needs the loss:
 *
 * @example
 * ```ts
 * const loss = (w: Tensor) => np.sum(np.square(w.sub(3)));
 * const [optimizer, w] = [optim.lbfgs(), np.array([1])];
 * const state = optimizer.init(w);
 * const [value, slope] = optim.valueAndGradFromState(loss)(w, state);
 * const [updates] = optimizer.update(slope, state, w, { value, grad: slope, valueFn: loss });
 * optim.applyUpdates(w, updates); // [2]
 * ```
 */
export function lbfgs<L extends GradientTransformation | null = GradientTransformation<ZoomLinesearchState>>(
  given: LbfgsOptimizerOptions<L> = {},
): GradientTransformation<readonly [LbfgsState, CountState | EmptyState, SearchState<L>]> {
  const { learningRate, linesearch: _, ...options } = lbfgsOptimizerOptions.read(given, "lbfgs");
  const { linesearch } = given;
  const search =
    linesearch === undefined
      ? scaleByZoomLinesearch({ maxLinesearchSteps: 20, initialGuessStrategy: "one" })
      : (linesearch ?? identity());
  return chain(
    scaleByLbfgs(options),
    learningRate === undefined ? scale(-1) : scaleByLearningRate(learningRate),
    search as GradientTransformation<SearchState<L>>,
  );
}
