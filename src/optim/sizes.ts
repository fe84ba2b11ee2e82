/** Transformations that decide how large a step of each parameter is. */
import { needIfGiven } from "../ir/arguments.js";
import type { DType } from "../ir/dtype.js";
import { checkOptions, needOptions } from "../ir/options.js";
import { add, clip, divide, multiply, subtract } from "../numpy/arithmetic.js";
import { full, zeros, zerosLike } from "../numpy/creation.js";
import { astype, sign, sqrt, square } from "../numpy/elementwise.js";
import { equal, greater, less, where } from "../numpy/logic.js";
import { mean } from "../numpy/reductions.js";
import type { Tensor } from "../trace/tensor.js";
import { atLeast, mapWholes } from "./blocks.js";
import { blend, filled, keptIn, zeroCount, zerosOf } from "./moments.js";
import type { AdamState } from "./scaling.js";
import {
  type EmptyState,
  type GradientTransformation,
  mapTensors,
  requireParams,
  stateless,
  transformation,
} from "./transformation.js";

/** Options of {@link scaleByNovograd}. */
export interface NovogradOptions {
  /** The decay of the mean of gradients; 0.9 by default. */
  readonly b1?: number;
  /** The decay of the mean of squared norms; 0.25 by default. */
  readonly b2?: number;
  /** Added outside of the square root; 1e-8 by default. */
  readonly eps?: number;
  /** Added inside of the square root; 0 by default. */
  readonly epsRoot?: number;
  /** The share by which parameters shrink a step; 0 by default. */
  readonly weightDecay?: number;
  /** The type in which the mean is kept; that of the parameters by default. */
  readonly muDtype?: DType;
}

/** Divides each parameter's gradient by its norm's running mean before it is averaged. */
export function scaleByNovograd(options: NovogradOptions = {}): GradientTransformation<AdamState> {
  checkOptions<NovogradOptions>(
    options,
    { b1: true, b2: true, eps: true, epsRoot: true, weightDecay: true, muDtype: true },
    "scaleByNovograd",
  );
  const { b1 = 0.9, b2 = 0.25, eps = 1e-8, epsRoot = 0, weightDecay = 0, muDtype } = options;
  return transformation<AdamState>(
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
            const step = add(divide(g, add(sqrt(add(v, epsRoot)), eps)), multiply(p, weightDecay));
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
export interface RpropOptions {
  /** The size of the first steps. */
  readonly learningRate: number;
  /** What a step shrinks by where the gradient turned; 0.5 by default. */
  readonly etaMinus?: number;
  /** What a step grows by where it did not; 1.2 by default. */
  readonly etaPlus?: number;
  /** The smallest step; 1e-6 by default. */
  readonly minStepSize?: number;
  /** The largest step; 50 by default. */
  readonly maxStepSize?: number;
}

/** The size of every step and the last one. */
export interface RpropState {
  readonly stepSizes: unknown;
  readonly last: unknown;
}

/** Steps whose sizes follow only the signs of the gradients. */
export function scaleByRprop(options: RpropOptions): GradientTransformation<RpropState> {
  needOptions<RpropOptions>(
    options,
    { learningRate: true, etaMinus: true, etaPlus: true, minStepSize: true, maxStepSize: true },
    "scaleByRprop",
  );
  const { learningRate, etaMinus = 0.5, etaPlus = 1.2, minStepSize = 1e-6, maxStepSize = 50 } = options;
  return transformation<RpropState>(
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

/** The sign of every gradient. */
export function scaleBySign(): GradientTransformation<EmptyState> {
  return stateless((grads) => mapTensors(sign, grads));
}

/** Options of {@link scaleByTrustRatio}. */
export interface TrustRatioOptions {
  /** The least norm that parameters and updates count with; 0 by default. */
  readonly minNorm?: number;
  /** The factor of the ratio; 1 by default. */
  readonly trustCoefficient?: number;
  /** Added to the norm of the update; 0 by default. */
  readonly eps?: number;
}

/** Gives the update of each parameter a norm in proportion to the parameter's. */
export function scaleByTrustRatio(options: TrustRatioOptions = {}): GradientTransformation<EmptyState> {
  checkOptions<TrustRatioOptions>(
    options,
    { minNorm: true, trustCoefficient: true, eps: true },
    "scaleByTrustRatio",
  );
  const { minNorm = 0, trustCoefficient = 1, eps = 0 } = options;
  return stateless((grads, params) =>
    mapWholes(
      (whole, g, p) => {
        const paramNorm = atLeast(minNorm, whole.norm, p);
        const gradNorm = atLeast(minNorm, whole.norm, g);
        const ratio = divide(multiply(paramNorm, trustCoefficient), add(gradNorm, eps));
        const none = equal(multiply(paramNorm, gradNorm), 0);
        return multiply(g, astype(where(none, 1, ratio), g.dtype));
      },
      grads,
      requireParams(params, "scaleByTrustRatio"),
    ),
  );
}

/** Multiplies the update of each parameter by the parameter's norm, or by `minScale` if that is more. */
export function scaleByParamBlockNorm(minScale = 1e-3): GradientTransformation<EmptyState> {
  return stateless((grads, params) =>
    mapWholes(
      (whole, g, p) => multiply(g, atLeast(minScale, whole.norm, p)),
      grads,
      requireParams(params, "scaleByParamBlockNorm"),
    ),
  );
}

/** Multiplies the update of each parameter by the root mean square of it, or by `minScale` if that is more. */
export function scaleByParamBlockRms(minScale = 1e-3): GradientTransformation<EmptyState> {
  return stateless((grads, params) =>
    mapWholes(
      (whole, g, p) => multiply(g, atLeast(minScale, whole.rms, p)),
      grads,
      requireParams(params, "scaleByParamBlockRms"),
    ),
  );
}

/** Takes the mean over all dims but the first away from gradients of matrices and kernels. */
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

/** (α + β) times the gradient less β times the one before. */
export function scaleByOptimisticGradient(alpha = 1, beta = 1): GradientTransformation<OptimisticState> {
  needIfGiven("number", alpha, "alpha", "scaleByOptimisticGradient");
  needIfGiven("number", beta, "beta", "scaleByOptimisticGradient");
  return transformation<OptimisticState>(
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
