/** Optimisers as pure functions on trees, with optax's meaning. */
export { type MultiStepsState, microbatch, multiSteps } from "./accumulate.js";
export { clipByGlobalNorm, globalNorm } from "./clipping.js";
export { decayMask, type Mask, maskByPath, masked } from "./masks.js";
export {
  type AdamOptimizerOptions,
  type AdamwOptions,
  adam,
  adamw,
  type LionOptimizerOptions,
  lion,
  type MomentumOptions,
  momentum,
  type SgdOptions,
  sgd,
  type WeightDecayOptions,
} from "./optimizers.js";
export {
  allFinite,
  applyIfFinite,
  castFloats,
  computeIn,
  dynamicLossScale,
  type LossScale,
  type LossScaleOptions,
  type LossScaleState,
  type MasterState,
  masterWeights,
  roundedMaster,
} from "./precision.js";
export {
  type AdamOptions,
  type AdamState,
  addDecayedWeights,
  type CountState,
  type LionOptions,
  type LionState,
  scale,
  scaleByAdam,
  scaleByLearningRate,
  scaleByLion,
  scaleBySchedule,
  type TraceOptions,
  type TraceState,
  trace,
} from "./scaling.js";
export {
  type CosineOptions,
  constant,
  cosine,
  join,
  type LearningRate,
  type LinearOptions,
  linear,
  type Schedule,
  type WarmupCosineOptions,
  type WsdOptions,
  warmupCosine,
  wsd,
} from "./schedules.js";
export {
  applyUpdates,
  type ChainState,
  chain,
  type EmptyState,
  type GradientTransformation,
  identity,
} from "./transformation.js";
