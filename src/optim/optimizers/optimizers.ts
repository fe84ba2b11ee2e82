import { dtypeKind } from "../../ir/dtype.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import type { LearningRate } from "../schedules.js";
import { adamOptions, lionOptions, rate, stepOptions } from "../transformations/options.js";
import {
  addDecayedWeights,
  scaleByAdam,
  scaleByLearningRate,
  scaleByLion,
  trace,
} from "../transformations/scaling.js";
import { chain, identity } from "../transformations/transformation.js";
import { type Mask, masked } from "../wrappers/masks.js";

const sgdOptions = schema({
  ...stepOptions.fields,
  /** The share of the last direction that is kept; none by default. */
  momentum: optional("number"),
  /** Whether momentum looks one step ahead. */
  nesterov: false,
  /** The type in which momentum is kept; that of the parameters by default. */
  accumulatorDtype: optional(dtypeKind),
});

/** Options of {@link sgd}. */
export interface SgdOptions extends OptionsOf<typeof sgdOptions> {}

/**
 * Steps against the gradient, with momentum if wanted.
 *
 * @example
 * ```ts
 * const optimizer = optim.sgd({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, 1]) }, optimizer.init(params), params);
 * optim.applyUpdates(params, updates); // { "w": [0.9, 1.9] }
 * ```
 */
export function sgd(options: SgdOptions) {
  const { learningRate, momentum, nesterov, accumulatorDtype } = sgdOptions.read(options, "sgd");
  return chain(
    momentum === undefined ? identity() : trace({ decay: momentum, nesterov, dtype: accumulatorDtype }),
    scaleByLearningRate(learningRate),
  );
}

const momentumOptions = schema({
  ...sgdOptions.fields,
  /** The share of the last direction that is kept; 0.9 by default. */
  momentum: 0.9,
});

/** Options of {@link momentum}. */
export interface MomentumOptions extends OptionsOf<typeof momentumOptions> {}

/**
 * {@link sgd} with momentum.
 *
 * @example
 * ```ts
 * const optimizer = optim.momentum({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, 1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1, -0.1] }
 * ```
 */
export function momentum(options: MomentumOptions) {
  return sgd(momentumOptions.read(options, "momentum"));
}

/** The schema of {@link AdamOptimizerOptions}. */
export const adamOptimizerOptions = schema({
  ...adamOptions.fields,
  ...stepOptions.fields,
});

/** Options of {@link adam}. */
export interface AdamOptimizerOptions extends OptionsOf<typeof adamOptimizerOptions> {}

/**
 * Adam.
 *
 * @example
 * ```ts
 * const optimizer = optim.adam({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * optim.applyUpdates(params, updates); // { "w": [0.9, 2.1] }
 * ```
 */
export function adam(options: AdamOptimizerOptions) {
  const { learningRate, ...moments } = adamOptimizerOptions.read(options, "adam");
  return chain(scaleByAdam(moments), scaleByLearningRate(learningRate));
}

/** The schema of {@link WeightDecayOptions}. */
export const weightDecayOptions = schema({
  /** The share by which parameters shrink per step, times the learning rate. */
  weightDecay: optional(rate),
  /** The parameters that decay; all by default. `decayMask` leaves out norms and biases. */
  mask: optional<Mask>("any"),
});

/** How strongly weights decay and which. */
export interface WeightDecayOptions extends OptionsOf<typeof weightDecayOptions> {}

/** {@link weightDecayOptions} with a default. */
export const decayFrom = (value: number) => ({
  ...weightDecayOptions.fields,
  /** The share by which parameters shrink a step, times the learning rate. */
  weightDecay: optional(rate, value),
});

/** Weight decay of the parameters that a mask names. */
export function decay(weightDecay: LearningRate, mask: Mask | undefined) {
  const all = addDecayedWeights(weightDecay);
  return mask === undefined ? all : masked(all, mask);
}

/** The schema of {@link AdamwOptions}. */
export const adamwOptions = schema({
  ...adamOptimizerOptions.fields,
  ...decayFrom(1e-4),
});

/** Options of {@link adamw}. */
export interface AdamwOptions extends OptionsOf<typeof adamwOptions> {}

/**
 * Adam with decoupled weight decay; `weightDecay` is 1e-4 by default.
 *
 * @example
 * ```ts
 * const optimizer = optim.adamw({ learningRate: 0.1, weightDecay: 0.01 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * optim.applyUpdates(params, updates); // { "w": [0.899, 2.098] }
 * ```
 */
export function adamw(options: AdamwOptions) {
  const { learningRate, weightDecay, mask, ...moments } = adamwOptions.read(options, "adamw");
  return chain(scaleByAdam(moments), decay(weightDecay, mask), scaleByLearningRate(learningRate));
}

const lionOptimizerOptions = schema({
  ...lionOptions.fields,
  ...decayFrom(1e-3),
  ...stepOptions.fields,
});

/** Options of {@link lion}. */
export interface LionOptimizerOptions extends OptionsOf<typeof lionOptimizerOptions> {}

/**
 * Lion; `weightDecay` is 1e-3 by default.
 *
 * @example
 * ```ts
 * const optimizer = optim.lion({ learningRate: 0.1 });
 * const params = { w: np.array([1, 2]) };
 * const [updates] = optimizer.update({ w: np.array([1, -1]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.1001, 0.0998] }
 * ```
 */
export function lion(options: LionOptimizerOptions) {
  const { learningRate, weightDecay, mask, ...moments } = lionOptimizerOptions.read(options, "lion");
  return chain(scaleByLion(moments), decay(weightDecay, mask), scaleByLearningRate(learningRate));
}
