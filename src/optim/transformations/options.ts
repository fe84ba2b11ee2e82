/** The options of transformations, which the optimisers made of them have too. */

import type { Kind } from "../../ir/arguments.js";
import { dtypeKind } from "../../ir/dtype.js";
import { optional, pick, required, schema } from "../../ir/schema.js";
import type { LearningRate } from "../schedules.js";

/** The kind of options that are a `LearningRate`. */
export const rate: Kind<LearningRate> = {
  says: "a finite number or a schedule",
  is: (value) => typeof value === "function" || Number.isFinite(value),
};

/** The schema of `StepOptions`. */
export const stepOptions = schema({
  /** The step size: a number, or a schedule of the step's number. */
  learningRate: required(rate),
});

/** The schema of `AdamOptions`. */
export const adamOptions = schema({
  /** The decay of the mean of gradients; 0.9 by default. */
  b1: 0.9,
  /** The decay of the mean of squared gradients; 0.999 by default. */
  b2: 0.999,
  /** Added outside of the square root; 1e-8 by default. */
  eps: 1e-8,
  /** Added inside of the square root; 0 by default. */
  epsRoot: 0,
  /** The type in which the mean is kept; that of the parameters by default. */
  muDtype: optional(dtypeKind),
  /** Whether to look one step ahead. */
  nesterov: false,
});

/** The schema of `LionOptions`. */
export const lionOptions = schema({
  /** The share of the momentum in the direction of a step; 0.9 by default. */
  b1: 0.9,
  /** The decay of the momentum; 0.99 by default. */
  b2: 0.99,
  /** The type in which the momentum is kept; that of the parameters by default. */
  muDtype: optional(dtypeKind),
});

/** The schema of `RmsOptions`. */
export const rmsOptions = schema({
  /** The decay of the running means; 0.9 by default. */
  decay: 0.9,
  /** Avoids division by zero; 1e-8 by default. */
  eps: 1e-8,
  /** Initial value of the mean of squares; 0 by default. */
  initialScale: 0,
  /** Whether `eps` is added inside of the square root; true by default. */
  epsInSqrt: true,
  /** Whether the means are corrected for their initial value of zero. */
  biasCorrection: false,
});

/** The schema of `RssOptions`. */
export const rssOptions = schema({
  /** Initial value of the sum; 0.1 by default. */
  initialAccumulatorValue: 0.1,
  /** Avoids division by zero; 1e-7 by default. */
  eps: 1e-7,
});

/** The schema of `AdamaxOptions`. */
export const adamaxOptions = schema(pick(adamOptions.fields, "b1", "b2", "eps"));

/** The schema of `BeliefOptions`. */
export const beliefOptions = schema({
  ...pick(adamOptions.fields, "b1", "b2", "nesterov"),
  /** Added outside of the square root; 1e-16 by default. */
  eps: 1e-16,
  /** Added inside of the square root; 1e-16 by default. */
  epsRoot: 1e-16,
});

/** The schema of `YogiOptions`. */
export const yogiOptions = schema({
  ...pick(adamOptions.fields, "b1", "b2", "epsRoot"),
  /** Added outside of the square root; 1e-3 by default. */
  eps: 1e-3,
  /** Initial value of both moments; 1e-6 by default. */
  initialAccumulatorValue: 1e-6,
});

/** The schema of `RadamOptions`. */
export const radamOptions = schema({
  ...pick(adamOptions.fields, "b1", "b2", "eps", "epsRoot", "nesterov"),
  /** From which length of the averaging window on gradients are divided by their spread; 5 by default. */
  threshold: 5,
});

/** The schema of `AdadeltaOptions`. */
export const adadeltaOptions = schema({
  /** The decay of both running means; 0.9 by default. */
  rho: 0.9,
  /** Added inside of the square roots; 1e-6 by default. */
  eps: 1e-6,
});

/** The schema of `AdanOptions`. */
export const adanOptions = schema({
  /** The decay of the mean of gradients; 0.98 by default. */
  b1: 0.98,
  /** The decay of the mean of their differences; 0.92 by default. */
  b2: 0.92,
  /** The decay of the mean of squares; 0.99 by default. */
  b3: 0.99,
  /** Added outside of the square root; 1e-8 by default. */
  eps: 1e-8,
  /** Added inside of the square root; 0 by default. */
  epsRoot: 0,
});

/** The schema of `NovogradOptions`. */
export const novogradOptions = schema({
  /** The decay of the mean of gradients; 0.9 by default. */
  b1: 0.9,
  /** The decay of the mean of squared norms; 0.25 by default. */
  b2: 0.25,
  /** Added outside of the square root; 1e-8 by default. */
  eps: 1e-8,
  /** Added inside of the square root; 0 by default. */
  epsRoot: 0,
  /** The share by which parameters shrink per step; 0 by default. */
  weightDecay: 0,
  /** The type in which the mean is kept; that of the parameters by default. */
  muDtype: optional(dtypeKind),
});

/** The schema of `RpropOptions`. */
export const rpropOptions = schema({
  /** The size of the first steps. */
  learningRate: required("number"),
  /** What a step shrinks by where the gradient turned; 0.5 by default. */
  etaMinus: 0.5,
  /** What a step grows by where it did not; 1.2 by default. */
  etaPlus: 1.2,
  /** The smallest step; 1e-6 by default. */
  minStepSize: 1e-6,
  /** The largest step; 50 by default. */
  maxStepSize: 50,
});

/** The schema of `FactoredRmsOptions`. */
export const factoredRmsOptions = schema({
  /** Whether matrices are kept as a row and a column; true by default. */
  factored: true,
  /** How fast the means forget: at step t the decay is 1 − t^−rate; 0.8 by default. */
  decayRate: 0.8,
  /** Steps that were done before, for fine-tuning; 0 by default. */
  decayOffset: 0,
  /** The size from which on the second largest dim is kept apart; 128 by default. */
  minDimSizeToFactor: 128,
  /** Added to squared gradients; 1e-30 by default. */
  eps: 1e-30,
});
