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
  BatchNorm,
  type BatchNormCallOptions,
  type BatchNormConfig,
  InstanceNorm,
  type InstanceNormConfig,
} from "./batchNorm.js";
export { Conv, type ConvConfig, type Padding } from "./conv.js";
export {
  ConvLocal,
  type ConvLocalConfig,
  ConvTranspose,
  type ConvTransposeConfig,
} from "./convLayers.js";
export { Dropout, type DropoutCallOptions, type DropoutConfig } from "./dropout.js";
export { ModuleError, type ModuleErrorReason } from "./errors.js";
export { type CollectionFilter, DenyList } from "./filter.js";
export { type FoldRngsOptions, foldRngs } from "./foldRngs.js";
export {
  type AttentionOptions,
  celu,
  dotProductAttention,
  elu,
  gelu,
  glu,
  hardSigmoid,
  hardSilu,
  hardSwish,
  hardTanh,
  identity,
  layerNorm,
  leakyRelu,
  logSigmoid,
  logSoftmax,
  logsumexp,
  mish,
  type NormOptions,
  type OneHotOptions,
  oneHot,
  relu,
  relu6,
  rmsNorm,
  type SoftmaxOptions,
  type StandardizeOptions,
  selu,
  sigmoid,
  silu,
  softmax,
  softplus,
  softSign,
  squareplus,
  standardize,
  swish,
  tanh,
} from "./functions.js";
export { type InterceptedCall, type Interceptor, interceptMethods } from "./intercept.js";
export type { MethodsOption, NoModuleClass } from "./lift.js";
export type { AfterModules } from "./liftArguments.js";
export {
  cond,
  type ModuleWhileOptions,
  switchCase,
  switchCase as switch,
  whileLoop,
} from "./liftControl.js";
export {
  customVjp,
  grad,
  jit,
  jvp,
  type ModuleCustomRule,
  type ModuleJitOptions,
  type ModulePullback,
  type ModuleVjpOptions,
  valueAndGrad,
  vjp,
} from "./liftDerivatives.js";
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
export {
  getLogicalAxisRules,
  type LogicalConstraintOptions,
  LogicallyPartitioned,
  type LogicalRules,
  logicalAxisRules,
  logicalToMesh,
  logicalToMeshAxes,
  logicalToMeshSharding,
  type RulesFallback,
  withLogicalConstraint,
  withLogicalPartitioning,
} from "./logicalPartitioning.js";
export { type MapVariablesOptions, mapVariables } from "./mapVariables.js";
export {
  AxisMetadata,
  addAxis,
  isBoxed,
  type MetadataParams,
  mapBoxes,
  removeAxis,
  replaceBoxed,
  unbox,
} from "./metadata.js";
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
export {
  type AttentionFunction,
  type AttentionFunctionOptions,
  combineMasks,
  type MaskOptions,
  MultiHeadAttention,
  type MultiHeadAttentionArgs,
  type MultiHeadAttentionConfig,
  type MultiHeadAttentionOptions,
  MultiHeadDotProductAttention,
  makeAttentionMask,
  makeCausalMask,
  SelfAttention,
} from "./multiHeadAttention.js";
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
export { type AvgPoolOptions, avgPool, maxPool, minPool, type PoolOptions, pool } from "./pooling.js";
export { PReLU, type PReLUConfig } from "./prelu.js";
export {
  Bidirectional,
  type BidirectionalClass,
  type BidirectionalConfig,
  type DirectionOptions,
  type RecurrentOptions,
  RNN,
  type RNNCallOptions,
  type RNNClass,
  type RNNConfig,
  type RNNFunction,
  type RNNResult,
} from "./recurrent.js";
export {
  type CellConfig,
  type CellDefinition,
  type CellFunction,
  type CellMembers,
  ConvLSTMCell,
  type ConvLSTMCellConfig,
  GRUCell,
  LSTMCell,
  type LstmCarry,
  MGUCell,
  type MGUCellConfig,
  OptimizedLSTMCell,
  type RNNCell,
  type RNNCellClass,
  rnnCell,
  SimpleCell,
  type SimpleCellConfig,
} from "./recurrentCells.js";
export { type ModuleRematOptions, remat } from "./remat.js";
export { type RematScanOptions, rematScan } from "./rematScan.js";
export type { Rngs } from "./rngs.js";
export { type ModuleScanOptions, scan } from "./scan.js";
export type { CaptureFilter, Variables, VariableTree } from "./scope.js";
export {
  Sequential,
  type SequentialClass,
  type SequentialConfig,
  type SequentialFunction,
} from "./sequential.js";
export { log1mexp, logmeanexp, sparsePlus, sparseSigmoid } from "./sparse.js";
export { type TabulateOptions, tabulate } from "./tabulate.js";
export {
  getVariable,
  hasRng,
  hasVariable,
  isInitializing,
  isMutableCollection,
  makeRng,
  mapRngs,
  param,
  perturb,
  putVariable,
  sow,
  type Variable,
  variable,
} from "./variables.js";
export { type LiftedVmapOptions, type ModuleVmapOptions, vmap } from "./vmap.js";
export {
  type LayerWrapperConfig,
  SpectralNorm,
  type SpectralNormCallOptions,
  type SpectralNormClass,
  type SpectralNormConfig,
  WeightNorm,
  type WeightNormClass,
  type WeightNormConfig,
} from "./weightNorm.js";
