/** Optimisers as pure functions on trees, with optax's meaning. */
export { type MultiStepsState, microbatch, multiSteps } from "./accumulate.js";
export {
  type AdadeltaOptions,
  type AdadeltaState,
  type AdamaxOptions,
  type AdanOptions,
  type AdanState,
  type AmsgradState,
  type BeliefOptions,
  type MeansState,
  type RadamOptions,
  type RmsOptions,
  type RssOptions,
  type RssState,
  type SquaresState,
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
export * from "./aliases.js";
export { clipByGlobalNorm, globalNorm } from "./clipping.js";
export * from "./conditions.js";
export * from "./ctc.js";
export {
  type FactoredRmsOptions,
  type FactoredState,
  scaleByFactoredRms,
} from "./factored.js";
export * from "./guards.js";
export * from "./labels.js";
export * from "./lbfgs.js";
export * from "./lineSearch.js";
export * from "./losses.js";
export * from "./masks.js";
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
export * from "./polyak.js";
export * from "./precision.js";
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
export * from "./schedules.js";
export * from "./sizedOptimizers.js";
export {
  centralize,
  type NovogradOptions,
  type OptimisticState,
  type RpropOptions,
  type RpropState,
  scaleByNovograd,
  scaleByOptimisticGradient,
  scaleByParamBlockNorm,
  scaleByParamBlockRms,
  scaleByRprop,
  scaleBySign,
  scaleByTrustRatio,
  type TrustRatioOptions,
} from "./sizes.js";
export * from "./sm3.js";
export {
  applyUpdates,
  type ChainState,
  chain,
  type EmptyState,
  type ExtraArgs,
  type GradientTransformation,
  identity,
  stateless,
} from "./transformation.js";
export * from "./wrappers.js";
