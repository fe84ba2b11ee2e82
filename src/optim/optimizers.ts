import type { DType } from "../ir/dtype.js";
import { needOptions } from "../ir/options.js";
import { type Mask, masked } from "./masks.js";
import {
  type AdamOptions,
  adamNames,
  addDecayedWeights,
  type LionOptions,
  lionNames,
  scaleByAdam,
  scaleByLearningRate,
  scaleByLion,
  trace,
} from "./scaling.js";
import type { LearningRate } from "./schedules.js";
import { chain, identity } from "./transformation.js";

/** Options of {@link sgd}. */
export interface SgdOptions {
  readonly learningRate: LearningRate;
  /** The share of the last direction that is kept; none by default. */
  readonly momentum?: number;
  /** Whether momentum looks one step ahead. */
  readonly nesterov?: boolean;
  /** The type in which momentum is kept; that of the parameters by default. */
  readonly accumulatorDtype?: DType;
}

const sgdNames = { learningRate: true, momentum: true, nesterov: true, accumulatorDtype: true } as const;

/** Steps against the gradient, with momentum if wanted. */
export function sgd(options: SgdOptions) {
  needOptions<SgdOptions>(options, sgdNames, "sgd");
  const { learningRate, momentum, nesterov = false, accumulatorDtype } = options;
  const extra = accumulatorDtype === undefined ? {} : { dtype: accumulatorDtype };
  return chain(
    momentum === undefined ? identity() : trace({ decay: momentum, nesterov, ...extra }),
    scaleByLearningRate(learningRate),
  );
}

/** Options of {@link momentum}. */
export interface MomentumOptions extends SgdOptions {
  /** The share of the last direction that is kept; 0.9 by default. */
  readonly momentum?: number;
}

/** {@link sgd} with momentum. */
export function momentum(options: MomentumOptions) {
  needOptions<MomentumOptions>(options, sgdNames, "momentum");
  return sgd({ momentum: 0.9, ...options });
}

/** Options of {@link adam}. */
export interface AdamOptimizerOptions extends AdamOptions {
  readonly learningRate: LearningRate;
}

/** Adam. */
export function adam(options: AdamOptimizerOptions) {
  needOptions<AdamOptimizerOptions>(options, { ...adamNames, learningRate: true }, "adam");
  const { learningRate, ...moments } = options;
  return chain(scaleByAdam(moments), scaleByLearningRate(learningRate));
}

/** How strongly weights decay and which. */
export interface WeightDecayOptions {
  /** The share by which parameters shrink a step, times the learning rate. */
  readonly weightDecay?: LearningRate;
  /** The parameters that decay; all by default. `decayMask` leaves out norms and biases. */
  readonly mask?: Mask;
}

const decayNames = { weightDecay: true, mask: true } as const;

/** Weight decay of the parameters that a mask names. */
export function decay(weightDecay: LearningRate, mask: Mask | undefined) {
  const all = addDecayedWeights(weightDecay);
  return mask === undefined ? all : masked(all, mask);
}

/** Options of {@link adamw}. */
export interface AdamwOptions extends AdamOptimizerOptions, WeightDecayOptions {}

/** Adam with weight decay beside the moments; `weightDecay` is 1e-4 by default. */
export function adamw(options: AdamwOptions) {
  needOptions<AdamwOptions>(options, { ...adamNames, ...decayNames, learningRate: true }, "adamw");
  const { learningRate, weightDecay = 1e-4, mask, ...moments } = options;
  return chain(scaleByAdam(moments), decay(weightDecay, mask), scaleByLearningRate(learningRate));
}

/** Options of {@link lion}. */
export interface LionOptimizerOptions extends LionOptions, WeightDecayOptions {
  readonly learningRate: LearningRate;
}

/** Lion; `weightDecay` is 1e-3 by default. */
export function lion(options: LionOptimizerOptions) {
  const names = { ...lionNames, ...decayNames, learningRate: true } as const;
  needOptions<LionOptimizerOptions>(options, names, "lion");
  const { learningRate, weightDecay = 1e-3, mask, ...moments } = options;
  return chain(scaleByLion(moments), decay(weightDecay, mask), scaleByLearningRate(learningRate));
}
