/** Further optimisers by the names they are known by, each a chain of the parts. */

import type { DType } from "../ir/dtype.js";
import { checkOptions, needOptions } from "../ir/options.js";
import { divide, multiply, power, subtract } from "../numpy/arithmetic.js";
import type { Tensor } from "../trace/tensor.js";
import {
  type AdadeltaOptions,
  type AdamaxOptions,
  type AdanOptions,
  type BeliefOptions,
  type RadamOptions,
  type RmsOptions,
  type RssOptions,
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
} from "./adaptive.js";
import { type FactoredRmsOptions, scaleByFactoredRms } from "./factored.js";
import { addNoise, clipByBlockRms } from "./guards.js";
import { type Mask, masked } from "./masks.js";
import {
  type AdamOptimizerOptions,
  type AdamwOptions,
  adam,
  adamw,
  decay,
  type WeightDecayOptions,
} from "./optimizers.js";
import {
  type AdamOptions,
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
  type RpropOptions,
  scaleByNovograd,
  scaleByOptimisticGradient,
  scaleByParamBlockRms,
  scaleByRprop,
  scaleBySign,
  scaleByTrustRatio,
} from "./sizes.js";
import { chain, identity } from "./transformation.js";
import { ema } from "./wrappers.js";

/** How far an optimiser goes in a step. */
export interface StepOptions {
  readonly learningRate: LearningRate;
}

/** Options of {@link rmsprop}. */
export interface RmspropOptions extends RmsOptions, StepOptions {
  /** Whether gradients are divided by their standard deviation, not by their root mean square. */
  readonly centered?: boolean;
  /** The share of the last direction that is kept; none by default. */
  readonly momentum?: number;
  /** Whether momentum looks one step ahead. */
  readonly nesterov?: boolean;
}

/** RMSProp: gradients over the root of the running mean of their squares. */
export function rmsprop(options: RmspropOptions) {
  needOptions<RmspropOptions>(
    options,
    {
      centered: true,
      momentum: true,
      nesterov: true,
      decay: true,
      eps: true,
      initialScale: true,
      epsInSqrt: true,
      biasCorrection: true,
      learningRate: true,
    },
    "rmsprop",
  );
  const { learningRate, centered = false, momentum, nesterov = false, ...rest } = options;
  return chain(
    centered ? scaleByStddev(rest) : scaleByRms(rest),
    scaleByLearningRate(learningRate),
    momentum === undefined ? identity() : trace({ decay: momentum, nesterov }),
  );
}

/** Adagrad: gradients over the root of the sum of all their squares. */
export function adagrad(given: RssOptions & StepOptions) {
  needOptions<RssOptions & StepOptions>(
    given,
    { initialAccumulatorValue: true, eps: true, learningRate: true },
    "adagrad",
  );
  const { learningRate, ...options } = given;
  return chain(scaleByRss(options), scaleByLearningRate(learningRate));
}

/** Options of {@link adadelta}. */
export interface AdadeltaOptimizerOptions extends AdadeltaOptions, WeightDecayOptions {
  /** A factor of the steps; 1 by default. */
  readonly learningRate?: LearningRate;
}

/** Adadelta: steps of the size of the steps before. */
export function adadelta(options: AdadeltaOptimizerOptions = {}) {
  checkOptions<AdadeltaOptimizerOptions>(
    options,
    { learningRate: true, rho: true, eps: true, weightDecay: true, mask: true },
    "adadelta",
  );
  const { learningRate = 1, weightDecay = 0, mask, ...rest } = options;
  return chain(decay(weightDecay, mask), scaleByAdadelta(rest), scaleByLearningRate(learningRate));
}

/** Options of {@link adafactor}. */
export interface AdafactorOptions extends FactoredRmsOptions, WeightDecayOptions {
  /** A factor of the steps; none by default, since they follow the size of the parameters. */
  readonly learningRate?: LearningRate;
  /** Whether steps follow the size of the parameters; true by default. */
  readonly multiplyByParameterScale?: boolean;
  /** The largest root mean square of an update; 1 by default, `null` for no bound. */
  readonly clippingThreshold?: number | null;
  /** The decay of a running mean of the updates; none by default. */
  readonly momentum?: number;
  /** The type in which that mean is kept; float32 by default. */
  readonly momentumDtype?: DType;
}

/** Adafactor: Adam in the memory of a row and a column for each matrix. Weights do not decay by default. */
export function adafactor(options: AdafactorOptions = {}) {
  checkOptions<AdafactorOptions>(
    options,
    {
      learningRate: true,
      multiplyByParameterScale: true,
      clippingThreshold: true,
      momentum: true,
      momentumDtype: true,
      factored: true,
      decayRate: true,
      decayOffset: true,
      minDimSizeToFactor: true,
      eps: true,
      weightDecay: true,
      mask: true,
    },
    "adafactor",
  );
  const {
    learningRate,
    multiplyByParameterScale = true,
    clippingThreshold = 1,
    momentum,
    momentumDtype = "float32",
    weightDecay,
    mask,
    ...rest
  } = options;
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

/** The options of Adam and its kin, but for `nesterov`. */
const plainAdamNames = {
  b1: true,
  b2: true,
  eps: true,
  epsRoot: true,
  muDtype: true,
  learningRate: true,
} as const;

/** The same with decay of weights. */
const decayedAdamNames = { ...plainAdamNames, weightDecay: true, mask: true } as const;

/** Adam that never forgets its largest mean of squares. */
export function amsgrad(given: Omit<AdamOptimizerOptions, "nesterov">) {
  needOptions<Omit<AdamOptimizerOptions, "nesterov">>(given, plainAdamNames, "amsgrad");
  const { learningRate, ...options } = given;
  return chain(scaleByAmsgrad(options), scaleByLearningRate(learningRate));
}

/** Options of {@link adamax}. */
export interface AdamaxOptimizerOptions extends AdamaxOptions, StepOptions {}

/** Adam with the decaying largest gradient in the place of the mean of squares. */
export function adamax(given: AdamaxOptimizerOptions) {
  needOptions<AdamaxOptimizerOptions>(given, { b1: true, b2: true, eps: true, learningRate: true }, "adamax");
  const { learningRate, ...options } = given;
  return chain(scaleByAdamax(options), scaleByLearningRate(learningRate));
}

/** {@link adamax} with weight decay; 1e-4 by default. */
export function adamaxw(given: AdamaxOptimizerOptions & WeightDecayOptions) {
  needOptions<AdamaxOptimizerOptions & WeightDecayOptions>(
    given,
    { b1: true, b2: true, eps: true, learningRate: true, weightDecay: true, mask: true },
    "adamaxw",
  );
  const { learningRate, weightDecay = 1e-4, mask, ...options } = given;
  return chain(scaleByAdamax(options), decay(weightDecay, mask), scaleByLearningRate(learningRate));
}

/** Adam that looks one step ahead, after Nesterov. */
export function nadam(options: Omit<AdamOptimizerOptions, "nesterov">) {
  needOptions<Omit<AdamOptimizerOptions, "nesterov">>(options, plainAdamNames, "nadam");
  return adam({ ...options, nesterov: true });
}

/** AdamW that looks one step ahead, after Nesterov. */
export function nadamw(options: Omit<AdamwOptions, "nesterov">) {
  needOptions<Omit<AdamwOptions, "nesterov">>(options, decayedAdamNames, "nadamw");
  return adamw({ ...options, nesterov: true });
}

/** AdaBelief: Adam that divides by how far gradients stray from their mean. */
export function adabelief(given: BeliefOptions & StepOptions) {
  needOptions<BeliefOptions & StepOptions>(
    given,
    { nesterov: true, b1: true, b2: true, eps: true, epsRoot: true, learningRate: true },
    "adabelief",
  );
  const { learningRate, ...options } = given;
  return chain(scaleByBelief(options), scaleByLearningRate(learningRate));
}

/** Rectified Adam: momentum alone until the mean of squares can be trusted. */
export function radam(given: RadamOptions & StepOptions) {
  needOptions<RadamOptions & StepOptions>(
    given,
    { threshold: true, nesterov: true, b1: true, b2: true, eps: true, epsRoot: true, learningRate: true },
    "radam",
  );
  const { learningRate, ...options } = given;
  return chain(scaleByRadam(options), scaleByLearningRate(learningRate));
}

/** Yogi: Adam whose mean of squares changes slowly. */
export function yogi(given: YogiOptions & StepOptions) {
  needOptions<YogiOptions & StepOptions>(
    given,
    { initialAccumulatorValue: true, b1: true, b2: true, eps: true, epsRoot: true, learningRate: true },
    "yogi",
  );
  const { learningRate, ...options } = given;
  return chain(scaleByYogi(options), scaleByLearningRate(learningRate));
}

/** Adan: Adam with the change of the gradient as a second direction; `epsRoot` is 1e-8 by default. */
export function adan(given: AdanOptions & StepOptions & WeightDecayOptions) {
  needOptions<AdanOptions & StepOptions & WeightDecayOptions>(
    given,
    {
      b1: true,
      b2: true,
      b3: true,
      eps: true,
      epsRoot: true,
      learningRate: true,
      weightDecay: true,
      mask: true,
    },
    "adan",
  );
  const { learningRate, weightDecay = 0, mask, ...options } = given;
  return chain(
    scaleByAdan({ epsRoot: 1e-8, ...options }),
    decay(weightDecay, mask),
    scaleByLearningRate(learningRate),
  );
}

/** LAMB: Adam with steps in proportion to each parameter; `eps` is 1e-6 by default. */
export function lamb(given: Omit<AdamOptions, "nesterov"> & StepOptions & WeightDecayOptions) {
  needOptions<Omit<AdamOptions, "nesterov"> & StepOptions & WeightDecayOptions>(
    given,
    decayedAdamNames,
    "lamb",
  );
  const { learningRate, weightDecay = 0, mask, ...options } = given;
  return chain(
    scaleByAdam({ eps: 1e-6, ...options }),
    decay(weightDecay, mask),
    scaleByTrustRatio(),
    scaleByLearningRate(learningRate),
  );
}

/** Options of {@link lars}. */
export interface LarsOptions extends StepOptions, WeightDecayOptions {
  /** The norm of a step over that of its parameter; 0.001 by default. */
  readonly trustCoefficient?: number;
  /** Added to the norm of the update; 0 by default. */
  readonly eps?: number;
  /** The parameters whose steps are in proportion to them; all by default. */
  readonly trustRatioMask?: Mask;
  /** The share of the last direction that is kept; 0.9 by default. */
  readonly momentum?: number;
  /** Whether momentum looks one step ahead. */
  readonly nesterov?: boolean;
}

/** LARS: momentum with steps in proportion to each parameter. */
export function lars(options: LarsOptions) {
  needOptions<LarsOptions>(
    options,
    {
      trustCoefficient: true,
      eps: true,
      trustRatioMask: true,
      momentum: true,
      nesterov: true,
      learningRate: true,
      weightDecay: true,
      mask: true,
    },
    "lars",
  );
  const { learningRate, weightDecay = 0, mask, trustCoefficient = 0.001, eps = 0 } = options;
  const { trustRatioMask, momentum = 0.9, nesterov = false } = options;
  const ratio = scaleByTrustRatio({ trustCoefficient, eps });
  return chain(
    decay(weightDecay, mask),
    trustRatioMask === undefined ? ratio : masked(ratio, trustRatioMask),
    scaleByLearningRate(learningRate),
    trace({ decay: momentum, nesterov }),
  );
}

/** Options of {@link fromage}. */
export interface FromageOptions extends StepOptions {
  /** The least norm that parameters and updates count with; 1e-6 by default. */
  readonly minNorm?: number;
}

/** Fromage: steps of the parameters' own norm, after which they are drawn back to the sphere. */
export function fromage(options: FromageOptions) {
  needOptions<FromageOptions>(options, { minNorm: true, learningRate: true }, "fromage");
  const { learningRate, minNorm = 1e-6 } = options;
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

/** NovoGrad; `eps` is 1e-6 by default. */
export function novograd(given: NovogradOptions & StepOptions) {
  needOptions<NovogradOptions & StepOptions>(
    given,
    { b1: true, b2: true, eps: true, epsRoot: true, weightDecay: true, muDtype: true, learningRate: true },
    "novograd",
  );
  const { learningRate, ...options } = given;
  return chain(scaleByNovograd({ eps: 1e-6, ...options }), scaleByLearningRate(learningRate));
}

/** Options of {@link noisySgd}. */
export interface NoisySgdOptions extends StepOptions {
  /** The variance of the noise at the first step; 0.01 by default. */
  readonly eta?: number;
  /** The power of the steps by which it falls; 0.55 by default. */
  readonly gamma?: number;
  /** The key of the noise. */
  readonly key: Tensor;
}

/** Steps against the gradient with noise that falls with the steps. */
export function noisySgd(options: NoisySgdOptions) {
  needOptions<NoisySgdOptions>(
    options,
    { eta: true, gamma: true, key: true, learningRate: true },
    "noisySgd",
  );
  const { learningRate, eta = 0.01, gamma = 0.55, key } = options;
  return chain(addNoise(eta, gamma, key), scaleByLearningRate(learningRate));
}

/** Steps of equal size against the sign of the gradient. */
export function signSgd(options: StepOptions) {
  needOptions<StepOptions>(options, { learningRate: true }, "signSgd");
  const { learningRate } = options;
  return chain(scaleBySign(), scaleByLearningRate(learningRate));
}

/** Options of {@link signum}. */
export interface SignumOptions extends StepOptions {
  /** The decay of the mean of gradients; 0.9 by default. */
  readonly beta?: number;
  /** The type in which the mean is kept; that of the gradients by default. */
  readonly accumulatorDtype?: DType;
}

/** Steps of equal size against the sign of the running mean of gradients. */
export function signum(options: SignumOptions) {
  needOptions<SignumOptions>(options, { beta: true, accumulatorDtype: true, learningRate: true }, "signum");
  const { learningRate, beta = 0.9, accumulatorDtype } = options;
  const kept = accumulatorDtype === undefined ? {} : { accumulatorDtype };
  return chain(ema(beta, { debias: false, ...kept }), scaleBySign(), scaleByLearningRate(learningRate));
}

/** Options of {@link optimisticGradientDescent}. */
export interface OptimisticOptions extends StepOptions {
  /** The factor of the gradient; 1 by default. */
  readonly alpha?: number;
  /** The factor of its change; 1 by default. */
  readonly beta?: number;
}

/** Steps against the gradient and its last change, for games. */
export function optimisticGradientDescent(options: OptimisticOptions) {
  needOptions<OptimisticOptions>(
    options,
    { alpha: true, beta: true, learningRate: true },
    "optimisticGradientDescent",
  );
  const { learningRate, alpha = 1, beta = 1 } = options;
  return chain(scaleByOptimisticGradient(alpha, beta), scaleByLearningRate(learningRate));
}

/** {@link optimisticGradientDescent} on Adam's updates (with Nesterov's look ahead by default). */
export function optimisticAdam(given: OptimisticOptions & AdamOptions) {
  needOptions<OptimisticOptions & AdamOptions>(
    given,
    {
      alpha: true,
      beta: true,
      learningRate: true,
      b1: true,
      b2: true,
      eps: true,
      epsRoot: true,
      muDtype: true,
      nesterov: true,
    },
    "optimisticAdam",
  );
  const { learningRate, alpha = 1, beta = 1, ...options } = given;
  return chain(
    scaleByAdam({ nesterov: true, ...options }),
    scaleByOptimisticGradient(alpha, beta),
    scaleByLearningRate(learningRate),
  );
}

/** Rprop: steps whose sizes follow only the signs of the gradients, for whole batches. */
export function rprop(options: RpropOptions) {
  needOptions<RpropOptions>(
    options,
    { learningRate: true, etaMinus: true, etaPlus: true, minStepSize: true, maxStepSize: true },
    "rprop",
  );
  return chain(scaleByRprop(options), scale(-1));
}
