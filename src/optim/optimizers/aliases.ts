/** Further well-known optimisers that divide by the history of gradients, each a chain of transformations. */

import { either } from "../../ir/arguments.js";
import { dtypeKind } from "../../ir/dtype.js";
import { type OptionsOf, omit, optional, schema } from "../../ir/schema.js";
import type { LearningRate } from "../schedules.js";
import {
  type AdanOptions,
  type BeliefOptions,
  type RadamOptions,
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
} from "../transformations/adaptive.js";
import { scaleByFactoredRms } from "../transformations/factored.js";
import {
  adadeltaOptions,
  adamaxOptions,
  adanOptions,
  beliefOptions,
  factoredRmsOptions,
  radamOptions,
  rate,
  rmsOptions,
  rssOptions,
  stepOptions,
  yogiOptions,
} from "../transformations/options.js";
import { scale, scaleByLearningRate, scaleBySchedule, trace } from "../transformations/scaling.js";
import { scaleByParamBlockRms } from "../transformations/sizes.js";
import { chain, identity } from "../transformations/transformation.js";
import { clipByBlockRms } from "../wrappers/guards.js";
import { ema } from "../wrappers/wrappers.js";
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
  clippingThreshold: optional(either("number", "null"), 1),
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
