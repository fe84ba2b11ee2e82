/** Transformations that decide how large a step of each parameter is. */

import { needIfGiven } from "../../ir/arguments.js";
import { type OptionsOf, schema } from "../../ir/schema.js";
import { full, zeros, zerosLike } from "../../numpy/arrays/creation.js";
import { add, clip, divide, multiply, subtract } from "../../numpy/elementwise/arithmetic.js";
import { astype, sign, square } from "../../numpy/elementwise/elementwise.js";
import { equal, greater, less, where } from "../../numpy/elementwise/logic.js";
import { mean } from "../../numpy/reductions/reductions.js";
import type { Tensor } from "../../trace/tensor.js";
import { atLeast, mapWholes, type WholeParameter } from "./blocks.js";
import { blend, filled, keptIn, spreadOf, zeroCount, zerosOf } from "./moments.js";
import { novogradOptions, rpropOptions } from "./options.js";
import type { AdamState } from "./scaling.js";
import {
  type EmptyState,
  type GradientTransformation,
  mapTensors,
  requireParams,
  stateless,
  type TypedTransformation,
  typedTransformation,
} from "./transformation.js";

/** Options of {@link scaleByNovograd}. */
export interface NovogradOptions extends OptionsOf<typeof novogradOptions> {}

/**
 * Divides each parameter's gradient by its norm's running mean before it is averaged.
 *
 * @example
 * ```ts
 * const step = optim.scaleByNovograd();
 * const params = { w: np.array([1, 2]) };
 * step.update({ w: np.array([3, 4]) }, step.init(params), params)[0]; // { "w": [0.6, 0.8] }
 * ```
 */
export function scaleByNovograd(options?: NovogradOptions): TypedTransformation<AdamState> {
  const { b1, b2, eps, epsRoot, weightDecay, muDtype } = novogradOptions.read(options, "scaleByNovograd");
  return typedTransformation<AdamState>(
    "scaleByNovograd",
    { count: "tensor", mu: "tree", nu: "tree" },
    {
      init: (params) => ({
        count: zeroCount(),
        mu: zerosOf(params, muDtype),
        nu: mapTensors((p) => zeros([], p.dtype), params),
      }),
      update: <T>(grads: T, state: AdamState, params?: T): [T, AdamState] => {
        const count = state.count.add(1);
        const first = equal(count, 1);
        const nu = mapWholes(
          (whole, g, v) => {
            const squares = square(whole.norm(g));
            return where(first, squares, blend(squares, v, b2));
          },
          grads,
          state.nu,
        );
        const mu = mapTensors(
          (g, p, m, v) => {
            const step = add(divide(g, spreadOf(v, eps, epsRoot)), multiply(p, weightDecay));
            return where(first, step, add(multiply(m, b1), step));
          },
          grads,
          requireParams(params, "scaleByNovograd"),
          state.mu,
          nu,
        );
        return [mu, { count, mu: keptIn(mu, muDtype), nu }];
      },
    },
  );
}

/** Options of {@link scaleByRprop}. */
export interface RpropOptions extends OptionsOf<typeof rpropOptions> {}

/** The size of every step and the last one. */
export interface RpropState {
  readonly stepSizes: unknown;
  readonly last: unknown;
}

/**
 * Steps whose sizes follow only the signs of the gradients.
 *
 * @example
 * ```ts
 * const step = optim.scaleByRprop({ learningRate: 0.1 });
 * const [, state] = step.update(np.array([2, -4]), step.init(np.array([2, -4])));
 * step.update(np.array([1, -1]), state)[0]; // [0.1, -0.1]
 * ```
 */
export function scaleByRprop(options: RpropOptions): TypedTransformation<RpropState> {
  const { learningRate, etaMinus, etaPlus, minStepSize, maxStepSize } = rpropOptions.read(
    options,
    "scaleByRprop",
  );
  return typedTransformation<RpropState>(
    "scaleByRprop",
    { stepSizes: "tree", last: "tree" },
    {
      init: (params) => ({ stepSizes: filled(params, learningRate), last: zerosOf(params) }),
      update: (grads, state) => {
        const turns = mapTensors((g, l) => multiply(g, l), grads, state.last);
        const stepSizes = mapTensors(
          (t, s) => {
            const changed = multiply(s, where(greater(t, 0), etaPlus, etaMinus));
            return where(equal(t, 0), s, clip(changed, minStepSize, maxStepSize));
          },
          turns,
          state.stepSizes,
        );
        const last = mapTensors(
          (t, g, s) => where(less(t, 0), zerosLike(g), multiply(s, sign(g))),
          turns,
          grads,
          stepSizes,
        );
        // As in optax, a step is taken one call after its size was found.
        const updates = mapTensors((_, t, l) => where(less(t, 0), zerosLike(l), l), grads, turns, state.last);
        return [updates, { stepSizes, last }];
      },
    },
  );
}

/**
 * The sign of every gradient.
 *
 * @example
 * ```ts
 * const step = optim.scaleBySign();
 * const grads = { w: np.array([2, -4]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [1, -1] }
 * ```
 */
export function scaleBySign(): GradientTransformation<EmptyState> {
  return stateless((grads) => mapTensors(sign, grads));
}

const trustRatioOptions = schema({
  /** The least norm that parameters and updates count with; 0 by default. */
  minNorm: 0,
  /** The factor of the ratio; 1 by default. */
  trustCoefficient: 1,
  /** Added to the norm of the update; 0 by default. */
  eps: 0,
});

/** Options of {@link scaleByTrustRatio}. */
export interface TrustRatioOptions extends OptionsOf<typeof trustRatioOptions> {}

/** Multiplies updates by factors that depend on the whole parameters. */
function scaleByParams(
  caller: string,
  factor: (whole: WholeParameter, g: Tensor, p: Tensor) => Tensor,
): GradientTransformation<EmptyState> {
  const scaled = (whole: WholeParameter, g: Tensor, p: Tensor) => multiply(g, factor(whole, g, p));
  return stateless((grads, params) => mapWholes(scaled, grads, requireParams(params, caller)));
}

/**
 * Gives the update of each parameter a norm in proportion to the parameter's.
 *
 * @example
 * ```ts
 * const step = optim.scaleByTrustRatio();
 * const params = { w: np.array([3, 4]) };
 * step.update({ w: np.array([0, 2]) }, step.init(params), params)[0]; // { "w": [0, 5] }
 * ```
 */
export function scaleByTrustRatio(options?: TrustRatioOptions): GradientTransformation<EmptyState> {
  const { minNorm, trustCoefficient, eps } = trustRatioOptions.read(options, "scaleByTrustRatio");
  return scaleByParams("scaleByTrustRatio", (whole, g, p) => {
    const paramNorm = atLeast(minNorm, whole.norm, p);
    const gradNorm = atLeast(minNorm, whole.norm, g);
    const ratio = divide(multiply(paramNorm, trustCoefficient), add(gradNorm, eps));
    const none = equal(multiply(paramNorm, gradNorm), 0);
    return astype(where(none, 1, ratio), g.dtype);
  });
}

/**
 * Multiplies the update of each parameter by the parameter's norm, or by `minScale` if that is more.
 *
 * @example
 * ```ts
 * const step = optim.scaleByParamBlockNorm();
 * const params = { w: np.array([3, 4]) };
 * step.update({ w: np.array([1, 2]) }, step.init(params), params)[0]; // { "w": [5, 10] }
 * ```
 */
export function scaleByParamBlockNorm(minScale = 1e-3): GradientTransformation<EmptyState> {
  return scaleByParams("scaleByParamBlockNorm", (whole, _, p) => atLeast(minScale, whole.norm, p));
}

/**
 * Multiplies the update of each parameter by the root mean square of it, or by `minScale` if that is more.
 *
 * @example
 * ```ts
 * const step = optim.scaleByParamBlockRms();
 * const params = { w: np.array([2, 2]) };
 * step.update({ w: np.array([1, 3]) }, step.init(params), params)[0]; // { "w": [2, 6] }
 * ```
 */
export function scaleByParamBlockRms(minScale = 1e-3): GradientTransformation<EmptyState> {
  return scaleByParams("scaleByParamBlockRms", (whole, _, p) => atLeast(minScale, whole.rms, p));
}

/**
 * Subtracts the mean over all dims but the first from gradients of matrices and kernels.
 *
 * @example
 * ```ts
 * const step = optim.centralize();
 * const grads = { w: np.array([[1, 3], [2, 6]]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [[-1, 1], [-2, 2]] }
 * ```
 */
export function centralize(): GradientTransformation<EmptyState> {
  return stateless((grads) =>
    mapTensors((g) => {
      if (g.ndim < 2) return g;
      const inner = g.shape.slice(1).map((_, i) => i + 1);
      return subtract(g, mean(g, inner, { keepdims: true }));
    }, grads),
  );
}

/** The last gradient, and whether there was one. */
export interface OptimisticState {
  readonly first: Tensor;
  readonly last: unknown;
}

/**
 * (α + β) times the gradient less β times the one before.
 *
 * @example
 * ```ts
 * const step = optim.scaleByOptimisticGradient();
 * const grads = { w: np.array([1, 2]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [1, 2] }
 * ```
 */
export function scaleByOptimisticGradient(alpha = 1, beta = 1): TypedTransformation<OptimisticState> {
  needIfGiven("number", alpha, "alpha", "scaleByOptimisticGradient");
  needIfGiven("number", beta, "beta", "scaleByOptimisticGradient");
  return typedTransformation<OptimisticState>(
    "scaleByOptimisticGradient",
    { first: "tensor", last: "tree" },
    {
      init: (params) => ({ first: full([], true, "bool"), last: zerosOf(params) }),
      update: (grads, { first, last }) => {
        const updates = mapTensors(
          (g, l) => subtract(multiply(g, alpha + beta), multiply(where(first, g, l), beta)),
          grads,
          last,
        );
        return [updates, { first: full([], false, "bool"), last: grads }];
      },
    },
  );
}
