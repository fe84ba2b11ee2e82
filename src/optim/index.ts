/** Optimisers as pure functions on trees, with optax's meaning. */

export * from "./losses/ctc.js";
export * from "./losses/embeddingLosses.js";
export * from "./losses/losses.js";
export * from "./optimizers/aliases.js";
export * from "./optimizers/lbfgs.js";
export * from "./optimizers/lineSearch.js";
export * from "./optimizers/muon.js";
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
} from "./optimizers/optimizers.js";
export * from "./optimizers/polyak.js";
export * from "./optimizers/sizedOptimizers.js";
export * from "./schedules.js";
export * from "./transformations/adaptive.js";
export { clipByGlobalNorm, globalNorm } from "./transformations/clipping.js";
export * from "./transformations/distance.js";
export * from "./transformations/factored.js";
export * from "./transformations/scaling.js";
export * from "./transformations/sizes.js";
export * from "./transformations/sm3.js";
export {
  applyUpdates,
  type ChainState,
  chain,
  type EmptyState,
  type ExtraArgs,
  type GradientTransformation,
  identity,
  type Opaque,
  type PartOfParams,
  type StateOf,
  type StateOfPart,
  type StepState,
  stateless,
  type TypedTransformation,
} from "./transformations/transformation.js";
export {
  type MultiStepsOptions,
  type MultiStepsState,
  microbatch,
  multiSteps,
  type ShouldSkipUpdate,
} from "./wrappers/accumulate.js";
export * from "./wrappers/conditions.js";
export * from "./wrappers/guards.js";
export * from "./wrappers/labels.js";
export * from "./wrappers/masks.js";
export * from "./wrappers/monitoring.js";
export * from "./wrappers/perExample.js";
export * from "./wrappers/precision.js";
export * from "./wrappers/skipping.js";
export * from "./wrappers/wrappers.js";
