/**
 * Neural networks: modules with Flax linen's names and parameters, layers, lifted transforms, and JAX's
 * functions of neural networks.
 */

export type { ArgumentKind, Kind, Kinds } from "../ir/arguments.js";
export {
  type Fields,
  type Option,
  type OptionsOfFields,
  optional,
  type Presence,
  required,
  type Schema,
  schema,
  type ValueOf,
  type Values,
} from "../ir/schema.js";
export { initializers } from "../random/index.js";
export {
  type AttentionCallOptions,
  type AttentionResult,
  type AttentionWindow,
  attention,
  type QueryKey,
} from "./attention.js";
export * from "./batchNorm.js";
export * from "./contextAttention.js";
export { Conv, type ConvConfig, type Padding } from "./conv.js";
export * from "./convLayers.js";
export * from "./dropout.js";
export { ModuleError, type ModuleErrorReason } from "./errors.js";
export { type CollectionFilter, DenyList } from "./filter.js";
export { type FoldRngsOptions, foldRngs } from "./foldRngs.js";
export * from "./functions.js";
export { type InterceptedCall, type Interceptor, interceptMethods } from "./intercept.js";
export type { MethodsOption, ModuleTransform, NoModuleClass } from "./lift.js";
export type { AfterModules } from "./liftArguments.js";
export * from "./liftControl.js";
export { switchCase as switch } from "./liftControl.js";
export * from "./liftDerivatives.js";
export {
  Dense,
  type DenseConfig,
  DenseGeneral,
  type DenseGeneralConfig,
  Einsum,
  type EinsumConfig,
  Embed,
  type EmbedConfig,
  type LinearConfig,
} from "./linear.js";
export * from "./logicalPartitioning.js";
export { type AdaptableModule, type LoraModule, type LoraOptions, lora } from "./lora.js";
export * from "./mapVariables.js";
export * from "./metadata.js";
export {
  type AnyFunction,
  type ApplyResult,
  type ArgsOf,
  type CallOptions,
  type Configured,
  isModule,
  type ModuleClass,
  type ModuleInstance,
  type ModuleOptions,
  module,
  modulePath,
  type ResultOf,
} from "./module.js";
export { MoE, type MoEConfig, type MoEResult, type RouterStatistics } from "./moe.js";
export * from "./multiHeadAttention.js";
export {
  type BiasConfig,
  GroupNorm,
  type GroupNormConfig,
  LayerNorm,
  type LayerNormConfig,
  type NormalizationCallOptions,
  type NormalizationConfig,
  type NormalizedDims,
  RMSNorm,
  type RMSNormConfig,
} from "./normalization.js";
export type { LayerTypes } from "./operands.js";
export {
  type DimNames,
  getPartitionSpec,
  getSharding,
  type ParamInitializer,
  Partitioned,
  type ShardingTree,
  withPartitioning,
} from "./partitioned.js";
export * from "./pooling.js";
export * from "./prelu.js";
export {
  dequantizeKernels,
  type QuantizableModule,
  type QuantizedKernel,
  type QuantizeOptions,
  quantizeKernels,
} from "./quantize.js";
export * from "./recurrent.js";
export * from "./recurrentCells.js";
export { type ModuleRematOptions, remat } from "./remat.js";
export * from "./rematScan.js";
export type { Rngs } from "./rngs.js";
export { type ModuleScanOptions, scan } from "./scan.js";
export type { CaptureFilter, Variables, VariableTree } from "./scope.js";
export * from "./sequential.js";
export * from "./sparse.js";
export * from "./tabulate.js";
export * from "./variables.js";
export * from "./vmap.js";
export * from "./weightNorm.js";
export { unzigzag, zigzag } from "./zigzag.js";
