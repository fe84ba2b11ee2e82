/** Optimisers whose steps follow the norms of parameters, or the signs of gradients. */

import { dtypeKind } from "../../ir/dtype.js";
import { type OptionsOf, omit, optional, required, schema } from "../../ir/schema.js";
import { divide, multiply, power, subtract } from "../../numpy/elementwise/arithmetic.js";
import { tensorKind } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { adamOptions, novogradOptions, rpropOptions, stepOptions } from "../transformations/options.js";
import {
  type AdamOptions,
  addDecayedWeights,
  scale,
  scaleByAdam,
  scaleByLearningRate,
  trace,
} from "../transformations/scaling.js";
import {
  type NovogradOptions,
  type RpropOptions,
  scaleByNovograd,
  scaleByOptimisticGradient,
  scaleByRprop,
  scaleBySign,
  scaleByTrustRatio,
} from "../transformations/sizes.js";
import { chain } from "../transformations/transformation.js";
import { addNoise } from "../wrappers/guards.js";
import { type Mask, masked } from "../wrappers/masks.js";
import { ema } from "../wrappers/wrappers.js";
import type { StepOptions } from "./aliases.js";
import { decay, decayFrom, type WeightDecayOptions } from "./optimizers.js";

const lambSchema = schema({
  ...omit(adamOptions.fields, "nesterov"),
  eps: 1e-6,
  ...stepOptions.fields,
  ...decayFrom(0),
});

/**
 * LAMB: Adam with steps in proportion to each parameter; `eps` is 1e-6 by default.
 *
 * @example
 * ```ts
 * const optimizer = optim.lamb({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1581, 0.1581] }
 * ```
 */
export function lamb(given: Omit<AdamOptions, "nesterov"> & StepOptions & WeightDecayOptions) {
  const { learningRate, weightDecay, mask, ...options } = lambSchema.read(given, "lamb");
  return chain(
    scaleByAdam(options),
    decay(weightDecay, mask),
    scaleByTrustRatio(),
    scaleByLearningRate(learningRate),
  );
}

const larsOptions = schema({
  ...stepOptions.fields,
  ...decayFrom(0),
  /** The norm of a step over that of its parameter; 0.001 by default. */
  trustCoefficient: 0.001,
  /** Added to the norm of the update; 0 by default. */
  eps: 0,
  /** The parameters whose steps are in proportion to them; all by default. */
  trustRatioMask: optional<Mask>("any"),
  /** The share of the last direction that is kept; 0.9 by default. */
  momentum: 0.9,
  /** Whether momentum looks one step ahead. */
  nesterov: false,
});

/** Options of {@link lars}. */
export interface LarsOptions extends OptionsOf<typeof larsOptions> {}

/**
 * LARS: momentum with steps in proportion to each parameter.
 *
 * @example
 * ```ts
 * const optimizer = optim.lars({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.0001581, 0.0001581] }
 * ```
 */
export function lars(options: LarsOptions) {
  const { learningRate, weightDecay, mask, trustCoefficient, eps, trustRatioMask, momentum, nesterov } =
    larsOptions.read(options, "lars");
  const ratio = scaleByTrustRatio({ trustCoefficient, eps });
  return chain(
    decay(weightDecay, mask),
    trustRatioMask === undefined ? ratio : masked(ratio, trustRatioMask),
    scaleByLearningRate(learningRate),
    trace({ decay: momentum, nesterov }),
  );
}

const fromageOptions = schema({
  ...stepOptions.fields,
  /** The least norm that parameters and updates count with; 1e-6 by default. */
  minNorm: 1e-6,
});

/** Options of {@link fromage}. */
export interface FromageOptions extends OptionsOf<typeof fromageOptions> {}

/**
 * Fromage: steps in proportion to the norm of the parameters, which are then scaled back to the sphere.
 *
 * @example
 * ```ts
 * const optimizer = optim.fromage({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1623, 0.1474] }
 * ```
 */
export function fromage(options: FromageOptions) {
  const { learningRate, minNorm } = fromageOptions.read(options, "fromage");
  const ratio = scaleByTrustRatio({ minNorm });
  if (typeof learningRate === "number") {
    const shrink = 1 / Math.sqrt(1 + learningRate ** 2);
    return chain(ratio, scaleByLearningRate(learningRate * shrink), addDecayedWeights(shrink - 1));
  }
  const shrink = (count: Tensor | number) =>
    divide(1, power(multiply(learningRate(count), learningRate(count)).add(1), 0.5));
  return chain(
    ratio,
    scaleByLearningRate((count) => multiply(shrink(count as Tensor), learningRate(count))),
    addDecayedWeights((count) => subtract(shrink(count as Tensor), 1)),
  );
}

const novogradSchema = schema({ ...novogradOptions.fields, eps: 1e-6, ...stepOptions.fields });

/**
 * NovoGrad; `eps` is 1e-6 by default.
 *
 * @example
 * ```ts
 * const optimizer = optim.novograd({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.07071, 0.07071] }
 * ```
 */
export function novograd(given: NovogradOptions & StepOptions) {
  const { learningRate, ...options } = novogradSchema.read(given, "novograd");
  return chain(scaleByNovograd(options), scaleByLearningRate(learningRate));
}

const noisySgdOptions = schema({
  ...stepOptions.fields,
  /** The variance of the noise at the first step; 0.01 by default. */
  eta: 0.01,
  /** The power of the steps by which it falls; 0.55 by default. */
  gamma: 0.55,
  /** The key of the noise. */
  key: required(tensorKind),
});

/** Options of {@link noisySgd}. */
export interface NoisySgdOptions extends OptionsOf<typeof noisySgdOptions> {}

/**
 * Steps against the gradient with noise that falls with the steps.
 *
 * @example
 * ```ts
 * const optimizer = optim.noisySgd({ learningRate: 0.1, key: random.key(0) });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.102, 0.1077] }
 * ```
 */
export function noisySgd(options: NoisySgdOptions) {
  const { learningRate, eta, gamma, key } = noisySgdOptions.read(options, "noisySgd");
  return chain(addNoise(eta, gamma, key), scaleByLearningRate(learningRate));
}

/**
 * Steps of equal size against the sign of the gradient.
 *
 * @example
 * ```ts
 * const optimizer = optim.signSgd({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1, 0.1] }
 * ```
 */
export function signSgd(options: StepOptions) {
  const { learningRate } = stepOptions.read(options, "signSgd");
  return chain(scaleBySign(), scaleByLearningRate(learningRate));
}

const signumOptions = schema({
  ...stepOptions.fields,
  /** The decay of the mean of gradients; 0.9 by default. */
  beta: 0.9,
  /** The type in which the mean is kept; that of the gradients by default. */
  accumulatorDtype: optional(dtypeKind),
});

/** Options of {@link signum}. */
export interface SignumOptions extends OptionsOf<typeof signumOptions> {}

/**
 * Steps of equal size against the sign of the running mean of gradients.
 *
 * @example
 * ```ts
 * const optimizer = optim.signum({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1, 0.1] }
 * ```
 */
export function signum(options: SignumOptions) {
  const { learningRate, beta, accumulatorDtype } = signumOptions.read(options, "signum");
  return chain(
    ema(beta, { debias: false, accumulatorDtype }),
    scaleBySign(),
    scaleByLearningRate(learningRate),
  );
}

const optimisticOptions = schema({
  ...stepOptions.fields,
  /** The factor of the gradient; 1 by default. */
  alpha: 1,
  /** The factor of its change; 1 by default. */
  beta: 1,
});

/** Options of {@link optimisticGradientDescent}. */
export interface OptimisticOptions extends OptionsOf<typeof optimisticOptions> {}

/**
 * Steps against the gradient and its last change, for games.
 *
 * @example
 * ```ts
 * const optimizer = optim.optimisticGradientDescent({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1, 0.1] }
 * ```
 */
export function optimisticGradientDescent(options: OptimisticOptions) {
  const { learningRate, alpha, beta } = optimisticOptions.read(options, "optimisticGradientDescent");
  return chain(scaleByOptimisticGradient(alpha, beta), scaleByLearningRate(learningRate));
}

const optimisticAdamSchema = schema({ ...optimisticOptions.fields, ...adamOptions.fields, nesterov: true });

/**
 * {@link optimisticGradientDescent} on Adam's updates (with Nesterov's look ahead by default).
 *
 * @example
 * ```ts
 * const optimizer = optim.optimisticAdam({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1474, 0.1474] }
 * ```
 */
export function optimisticAdam(given: OptimisticOptions & AdamOptions) {
  const { learningRate, alpha, beta, ...options } = optimisticAdamSchema.read(given, "optimisticAdam");
  return chain(
    scaleByAdam(options),
    scaleByOptimisticGradient(alpha, beta),
    scaleByLearningRate(learningRate),
  );
}

/**
 * Rprop: steps whose sizes follow only the signs of the gradients, for whole batches.
 *
 * @example
 * ```ts
 * const optimizer = optim.rprop({ learningRate: 0.1 });
 * const [, state] = optimizer.update(np.array([2, -4]), optimizer.init(np.array([2, -4])));
 * optimizer.update(np.array([1, -1]), state)[0]; // [-0.1, 0.1]
 * ```
 */
export function rprop(options: RpropOptions) {
  return chain(scaleByRprop(rpropOptions.read(options, "rprop")), scale(-1));
}
