/** Optimisers as pure functions on trees, with optax's meaning. */
export {
  type MultiStepsOptions,
  type MultiStepsState,
  microbatch,
  multiSteps,
  type ShouldSkipUpdate,
} from "./accumulate.js";
export * from "./adaptive.js";
export * from "./aliases.js";
export { clipByGlobalNorm, globalNorm } from "./clipping.js";
export * from "./conditions.js";
export * from "./ctc.js";
export * from "./distance.js";
export * from "./embeddingLosses.js";
export * from "./factored.js";
export * from "./guards.js";
export * from "./labels.js";
export * from "./lbfgs.js";
export * from "./lineSearch.js";
export * from "./losses.js";
export * from "./masks.js";
export * from "./monitoring.js";
export * from "./muon.js";
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
export * from "./perExample.js";
export * from "./polyak.js";
export * from "./precision.js";
export * from "./scaling.js";
export * from "./schedules.js";
export * from "./sizedOptimizers.js";
export * from "./sizes.js";
export * from "./skipping.js";
export * from "./sm3.js";
export {
  applyUpdates,
  type ChainState,
  chain,
  type EmptyState,
  type ExtraArgs,
  type GradientTransformation,
  identity,
  type Opaque,
  type StateOf,
  type StepState,
  stateless,
  type TypedTransformation,
} from "./transformation.js";
export * from "./wrappers.js";
