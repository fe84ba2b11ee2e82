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
} from "./functions/attention.js";
export * from "./functions/contextAttention.js";
export * from "./functions/float8DotGeneral.js";
export * from "./functions/functions.js";
export * from "./functions/sparseActivations.js";
export { unzigzag, zigzag } from "./functions/zigzag.js";
export * from "./layers/batchNorm.js";
export { Conv, type ConvConfig, type Padding } from "./layers/conv.js";
export * from "./layers/convLayers.js";
export * from "./layers/dropout.js";
export {
  Dense,
  type DenseConfig,
  DenseGeneral,
  type DenseGeneralConfig,
  type DotGeneral,
  Einsum,
  type EinsumConfig,
  Embed,
  type EmbedConfig,
  type LinearConfig,
} from "./layers/linear.js";
export { type AdaptableModule, type LoraModule, type LoraOptions, lora } from "./layers/lora.js";
export { MoE, type MoEConfig, type MoEResult, type RouterStatistics } from "./layers/moe.js";
export * from "./layers/multiHeadAttention.js";
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
} from "./layers/normalization.js";
export * from "./layers/pooling.js";
export * from "./layers/prelu.js";
export * from "./layers/recurrent.js";
export * from "./layers/recurrentCells.js";
export * from "./layers/sequential.js";
export * from "./layers/weightNorm.js";
export { type FoldRngsOptions, foldRngs } from "./lift/foldRngs.js";
export type { MethodsOption, ModuleTransform, NoModuleClass } from "./lift/lift.js";
export type { AfterModules } from "./lift/liftArguments.js";
export * from "./lift/liftControl.js";
export { switchCase as switch } from "./lift/liftControl.js";
export * from "./lift/liftDerivatives.js";
export * from "./lift/mapVariables.js";
export { type ModuleRematOptions, remat } from "./lift/remat.js";
export * from "./lift/rematScan.js";
export { type ModuleScanOptions, scan } from "./lift/scan.js";
export * from "./lift/vmap.js";
export { ModuleError, type ModuleErrorReason } from "./modules/errors.js";
export { type CollectionFilter, DenyList } from "./modules/filter.js";
export { type InterceptedCall, type Interceptor, interceptMethods } from "./modules/intercept.js";
export * from "./modules/logicalPartitioning.js";
export * from "./modules/metadata.js";
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
} from "./modules/module.js";
export type { LayerTypes } from "./modules/operands.js";
export {
  type DimNames,
  getPartitionSpec,
  getSharding,
  type ParamInitializer,
  Partitioned,
  type ShardingTree,
  withPartitioning,
} from "./modules/partitioned.js";
export {
  dequantizeKernels,
  type QuantizableModule,
  type QuantizedKernel,
  type QuantizeOptions,
  quantizeKernels,
} from "./modules/quantize.js";
export type { Rngs } from "./modules/rngs.js";
export type { CaptureFilter, Variables, VariableTree } from "./modules/scope.js";
export * from "./modules/tabulate.js";
export * from "./modules/variables.js";
