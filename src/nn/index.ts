/**
 * Neural networks: modules with Flax linen's names and parameters, layers, lifted transforms, and JAX's
 * functions of neural networks.
 */
export { initializers } from "../random/index.js";
export { ModuleError, type ModuleErrorReason } from "./errors.js";
export { type CollectionFilter, DenyList } from "./filter.js";
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
  type CallOptions,
  type Configured,
  isModule,
  type ModuleClass,
  type ModuleInstance,
  type ModuleOptions,
  module,
  modulePath,
} from "./module.js";
export type { LayerTypes } from "./operands.js";
export {
  type DimNames,
  getPartitionSpec,
  getSharding,
  type ParamInitializer,
  Partitioned,
  withPartitioning,
} from "./partitioned.js";
export type { Rngs } from "./rngs.js";
export type { CaptureFilter, Variables, VariableTree } from "./scope.js";
export {
  getVariable,
  hasRng,
  hasVariable,
  isInitializing,
  isMutableCollection,
  makeRng,
  mapRngs,
  param,
  putVariable,
  sow,
  type Variable,
  variable,
} from "./variables.js";
