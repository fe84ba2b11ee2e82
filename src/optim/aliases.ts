/** Further well-known optimisers, each a chain of transformations. */

import { dtypeKind } from "../ir/dtype.js";
import { type OptionsOf, omit, optional, required, schema } from "../ir/schema.js";
import { divide, multiply, power, subtract } from "../numpy/arithmetic.js";
import type { Tensor } from "../trace/tensor.js";
import {
  type AdanOptions,
  adadeltaOptions,
  adamaxOptions,
  adanOptions,
  type BeliefOptions,
  beliefOptions,
  type RadamOptions,
  type RssOptions,
  radamOptions,
  rmsOptions,
  rssOptions,
  scaleByAdadelta,
  scaleByAdamax,
  scaleByAdan,
  scaleByAmsgrad,
  scaleByBelief,
  scaleByRadam,
  scaleByRms,
  scaleByRss,
  scaleByStddev,
  scaleByYogi,
  type YogiOptions,
  yogiOptions,
} from "./adaptive.js";
import { factoredRmsOptions, scaleByFactoredRms } from "./factored.js";
import { addNoise, clipByBlockRms } from "./guards.js";
import { type Mask, masked } from "./masks.js";
import {
  type AdamOptimizerOptions,
  type AdamwOptions,
  adam,
  adamOptimizerOptions,
  adamw,
  adamwOptions,
  decay,
  decayFrom,
  type WeightDecayOptions,
  weightDecayOptions,
} from "./optimizers.js";
import { rate, stepOptions } from "./options.js";
import {
  type AdamOptions,
  adamOptions,
  addDecayedWeights,
  scale,
  scaleByAdam,
  scaleByLearningRate,
  scaleBySchedule,
  trace,
} from "./scaling.js";
import type { LearningRate } from "./schedules.js";
import {
  type NovogradOptions,
  novogradOptions,
  type RpropOptions,
  rpropOptions,
  scaleByNovograd,
  scaleByOptimisticGradient,
  scaleByParamBlockRms,
  scaleByRprop,
  scaleBySign,
  scaleByTrustRatio,
} from "./sizes.js";
import { chain, identity } from "./transformation.js";
import { ema } from "./wrappers.js";

/** The size of an optimiser's steps. */
export interface StepOptions extends OptionsOf<typeof stepOptions> {}

const rmspropOptions = schema({
  ...rmsOptions.fields,
  ...stepOptions.fields,
  /** Whether gradients are divided by their standard deviation, not by their root mean square. */
  centered: false,
  /** The share of the last direction that is kept; none by default. */
  momentum: optional("number"),
  /** Whether momentum looks one step ahead. */
  nesterov: false,
});

/** Options of {@link rmsprop}. */
export interface RmspropOptions extends OptionsOf<typeof rmspropOptions> {}

/**
 * RMSProp: gradients over the root of the running mean of their squares.
 *
 * @example
 * ```ts
 * const optimizer = optim.rmsprop({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -2]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.3162, 0.3162] }
 * ```
 */
export function rmsprop(options: RmspropOptions) {
  const { learningRate, centered, momentum, nesterov, ...rest } = rmspropOptions.read(options, "rmsprop");
  return chain(
    centered ? scaleByStddev(rest) : scaleByRms(rest),
    scaleByLearningRate(learningRate),
    momentum === undefined ? identity() : trace({ decay: momentum, nesterov }),
  );
}

const adagradSchema = schema({ ...rssOptions.fields, ...stepOptions.fields });

/**
 * Adagrad: gradients over the root of the sum of all their squares.
 *
 * @example
 * ```ts
 * const optimizer = optim.adagrad({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -2]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.09535, 0.09877] }
 * ```
 */
export function adagrad(given: RssOptions & StepOptions) {
  const { learningRate, ...options } = adagradSchema.read(given, "adagrad");
  return chain(scaleByRss(options), scaleByLearningRate(learningRate));
}

const adadeltaOptimizerOptions = schema({
  ...adadeltaOptions.fields,
  ...decayFrom(0),
  /** A factor of the steps; 1 by default. */
  learningRate: optional(rate, 1),
});

/** Options of {@link adadelta}. */
export interface AdadeltaOptimizerOptions extends OptionsOf<typeof adadeltaOptimizerOptions> {}

/**
 * Adadelta: steps of the size of the steps before.
 *
 * @example
 * ```ts
 * const optimizer = optim.adadelta({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.0003162, 0.0003162] }
 * ```
 */
export function adadelta(options?: AdadeltaOptimizerOptions) {
  const { learningRate, weightDecay, mask, ...rest } = adadeltaOptimizerOptions.read(options, "adadelta");
  return chain(decay(weightDecay, mask), scaleByAdadelta(rest), scaleByLearningRate(learningRate));
}

const adafactorOptions = schema({
  ...factoredRmsOptions.fields,
  ...weightDecayOptions.fields,
  /** A factor of the steps; none by default, since they follow the size of the parameters. */
  learningRate: optional(rate),
  /** Whether steps follow the size of the parameters; true by default. */
  multiplyByParameterScale: true,
  /** The largest root mean square of an update; 1 by default, `null` for no bound. */
  clippingThreshold: optional<number | null>("any", 1),
  /** The decay of a running mean of the updates; none by default. */
  momentum: optional("number"),
  /** The type in which that mean is kept; float32 by default. */
  momentumDtype: optional(dtypeKind, "float32"),
});

/** Options of {@link adafactor}. */
export interface AdafactorOptions extends OptionsOf<typeof adafactorOptions> {}

/**
 * Adafactor: Adam in the memory of a row and a column for each matrix. Weights do not decay by default.
 *
 * @example
 * ```ts
 * const optimizer = optim.adafactor({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1581, 0.1581] }
 * ```
 */
export function adafactor(options?: AdafactorOptions) {
  const {
    learningRate,
    multiplyByParameterScale,
    clippingThreshold,
    momentum,
    momentumDtype,
    weightDecay,
    mask,
    ...rest
  } = adafactorOptions.read(options, "adafactor");
  return chain(
    scaleByFactoredRms(rest),
    clippingThreshold === null ? identity() : clipByBlockRms(clippingThreshold),
    learningRate === undefined ? identity() : scaleUp(learningRate),
    multiplyByParameterScale ? scaleByParamBlockRms() : identity(),
    momentum === undefined ? identity() : ema(momentum, { debias: false, accumulatorDtype: momentumDtype }),
    weightDecay === undefined ? identity() : decay(weightDecay, mask),
    scale(-1),
  );
}

/** A learning rate with its sign. */
function scaleUp(rate: LearningRate) {
  return typeof rate === "number" ? scale(rate) : scaleBySchedule(rate);
}

const amsgradSchema = schema(omit(adamOptimizerOptions.fields, "nesterov"));

/**
 * Adam that never forgets its largest mean of squares.
 *
 * @example
 * ```ts
 * const optimizer = optim.amsgrad({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1, 0.1] }
 * ```
 */
export function amsgrad(given: Omit<AdamOptimizerOptions, "nesterov">) {
  const { learningRate, ...options } = amsgradSchema.read(given, "amsgrad");
  return chain(scaleByAmsgrad(options), scaleByLearningRate(learningRate));
}

const adamaxOptimizerOptions = schema({
  ...adamaxOptions.fields,
  ...stepOptions.fields,
});

/** Options of {@link adamax}. */
export interface AdamaxOptimizerOptions extends OptionsOf<typeof adamaxOptimizerOptions> {}

/**
 * Adam with the decaying largest gradient instead of the mean of squares.
 *
 * @example
 * ```ts
 * const optimizer = optim.adamax({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1, 0.1] }
 * ```
 */
export function adamax(given: AdamaxOptimizerOptions) {
  const { learningRate, ...options } = adamaxOptimizerOptions.read(given, "adamax");
  return chain(scaleByAdamax(options), scaleByLearningRate(learningRate));
}

const adamaxwSchema = schema({ ...adamaxOptimizerOptions.fields, ...decayFrom(1e-4) });

/**
 * {@link adamax} with weight decay; 1e-4 by default.
 *
 * @example
 * ```ts
 * const optimizer = optim.adamaxw({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1, 0.09998] }
 * ```
 */
export function adamaxw(given: AdamaxOptimizerOptions & WeightDecayOptions) {
  const { learningRate, weightDecay, mask, ...options } = adamaxwSchema.read(given, "adamaxw");
  return chain(scaleByAdamax(options), decay(weightDecay, mask), scaleByLearningRate(learningRate));
}

/**
 * Adam that looks one step ahead, after Nesterov.
 *
 * @example
 * ```ts
 * const optimizer = optim.nadam({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1474, 0.1474] }
 * ```
 */
export function nadam(options: Omit<AdamOptimizerOptions, "nesterov">) {
  return adam({ ...amsgradSchema.read(options, "nadam"), nesterov: true });
}

const nadamwSchema = schema(omit(adamwOptions.fields, "nesterov"));

/**
 * AdamW that looks one step ahead, after Nesterov.
 *
 * @example
 * ```ts
 * const optimizer = optim.nadamw({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1474, 0.1473] }
 * ```
 */
export function nadamw(options: Omit<AdamwOptions, "nesterov">) {
  return adamw({ ...nadamwSchema.read(options, "nadamw"), nesterov: true });
}

const adabeliefSchema = schema({ ...beliefOptions.fields, ...stepOptions.fields });

/**
 * AdaBelief: Adam that divides by the deviation of gradients from their mean.
 *
 * @example
 * ```ts
 * const optimizer = optim.adabelief({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1111, 0.1111] }
 * ```
 */
export function adabelief(given: BeliefOptions & StepOptions) {
  const { learningRate, ...options } = adabeliefSchema.read(given, "adabelief");
  return chain(scaleByBelief(options), scaleByLearningRate(learningRate));
}

const radamSchema = schema({ ...radamOptions.fields, ...stepOptions.fields });

/**
 * Rectified Adam: momentum alone until the mean of squares can be trusted.
 *
 * @example
 * ```ts
 * const optimizer = optim.radam({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1, 0.1] }
 * ```
 */
export function radam(given: RadamOptions & StepOptions) {
  const { learningRate, ...options } = radamSchema.read(given, "radam");
  return chain(scaleByRadam(options), scaleByLearningRate(learningRate));
}

const yogiSchema = schema({ ...yogiOptions.fields, ...stepOptions.fields });

/**
 * Yogi: Adam whose mean of squares changes slowly.
 *
 * @example
 * ```ts
 * const optimizer = optim.yogi({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.09985, 0.09985] }
 * ```
 */
export function yogi(given: YogiOptions & StepOptions) {
  const { learningRate, ...options } = yogiSchema.read(given, "yogi");
  return chain(scaleByYogi(options), scaleByLearningRate(learningRate));
}

const adanSchema = schema({
  ...adanOptions.fields,
  epsRoot: 1e-8,
  ...stepOptions.fields,
  ...decayFrom(0),
});

/**
 * Adan: Adam with the change of the gradient as a second direction; `epsRoot` is 1e-8 by default.
 *
 * @example
 * ```ts
 * const optimizer = optim.adan({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1, 0.1] }
 * ```
 */
export function adan(given: AdanOptions & StepOptions & WeightDecayOptions) {
  const { learningRate, weightDecay, mask, ...options } = adanSchema.read(given, "adan");
  return chain(scaleByAdan(options), decay(weightDecay, mask), scaleByLearningRate(learningRate));
}

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
  key: required<Tensor>("any"),
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
