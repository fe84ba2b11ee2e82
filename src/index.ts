import { hostEngine, sharedEngine } from "./engines/default.js";
import "./numpy/methods.js";
import { createRuntime } from "./spmd/execute.js";
import "./spmd/methods.js";
import { provideDefaultEngine } from "./spmd/mesh.js";
import { installRuntime } from "./trace/runtime.js";

installRuntime(createRuntime(hostEngine));
provideDefaultEngine(sharedEngine);

export { engineInfo } from "./engines/default.js";
export type { DType } from "./ir/dtype.js";
export {
  AxisError,
  DimError,
  DisposedError,
  DTypeError,
  type ErrorCode,
  GradientError,
  InternalError,
  ShapeError,
  ShardingError,
  ShardwiseError,
  TracerError,
  TreeError,
  ValueError,
} from "./ir/errors.js";
export { printProgram } from "./ir/print.js";
export type { Program } from "./ir/program.js";
export type { Shape, TensorType } from "./ir/shape.js";
export { verify } from "./ir/verify.js";
export * as lax from "./lax/index.js";
export * as np from "./numpy/index.js";
export * as random from "./random/index.js";
export { withMesh, withShardingConstraint } from "./spmd/constraint.js";
export { type CollectiveCost, type CostReport, costAnalysis } from "./spmd/cost.js";
export { explainSharding, type ShardingReport, type ValueSharding } from "./spmd/explain.js";
export { jit } from "./spmd/jit.js";
export { Mesh } from "./spmd/mesh.js";
export { findNonFinite, type NonFinite } from "./spmd/nonFinite.js";
export { P, PartitionSpec } from "./spmd/partitionSpec.js";
export { addressableShards, devicePut, NamedSharding, visualizeSharding } from "./spmd/sharding.js";
export { shardMap } from "./spmd/shardMap.js";
export { Tensor } from "./trace/tensor.js";
export * as tree from "./trace/tree.js";
export { customGradient, customVjp } from "./transforms/customVjp.js";
export { grad, jvp, valueAndGrad, vjp } from "./transforms/grad.js";
export { evalShape, makeProgram } from "./transforms/makeProgram.js";
export { checkpointName, checkpointPolicies, remat } from "./transforms/remat.js";
export { simplify } from "./transforms/simplify.js";
export { vmap } from "./transforms/vmap.js";
