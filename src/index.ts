import "./train/install.js";

export { engineInfo } from "./engines/default.js";
export type { ComplexDType, DType, RealDType } from "./ir/dtype.js";
export {
  AxisError,
  CheckError,
  DimError,
  DisposedError,
  DTypeError,
  type ErrorCode,
  GradientError,
  InternalError,
  NotAddressableError,
  ParseError,
  ShapeError,
  ShardingError,
  ShardwiseError,
  TracerError,
  TreeError,
  ValueError,
} from "./ir/errors.js";
export type { DimAxes, DimConstraint, Spec } from "./ir/mesh.js";
export type { CollectiveOp, Stage } from "./ir/opFacts.js";
export type { CallbackBatching, Precision, RematPolicy } from "./ir/ops.js";
export type { PassListener } from "./ir/passes.js";
export type { Program } from "./ir/program.js";
export type { OptionsOf } from "./ir/schema.js";
export type { Shape, TensorType } from "./ir/shape.js";
export { parseProgram } from "./ir/text/parse.js";
export { type PrintOptions, printProgram } from "./ir/text/print.js";
export { verify } from "./ir/verify.js";
export * as lax from "./lax/index.js";
export { ravelPytree } from "./numpy/arrays/ravelPytree.js";
export * as np from "./numpy/index.js";
export * as random from "./random/index.js";
export * as scipy from "./scipy/index.js";
export { type CollectiveCost, type CostReport, costAnalysis } from "./spmd/inspect/cost.js";
export { explainSharding, type ShardingReport, type ValueSharding } from "./spmd/inspect/explain.js";
export { type DeviceMemoryStats, deviceMemoryStats } from "./spmd/inspect/memoryStats.js";
export { findNonFinite, type NonFinite } from "./spmd/inspect/nonFinite.js";
export type { AxisNames, GroupOptions } from "./spmd/mesh/collectives.js";
export type { AxisIndexGroups } from "./spmd/mesh/groups.js";
export { type Device, type KnownAxes, Mesh, type MeshOptions } from "./spmd/mesh/mesh.js";
export { P, PartitionSpec, type SpecEntry } from "./spmd/mesh/partitionSpec.js";
export { ShapeDtypeStruct, type ShapeDtypeStructOptions } from "./spmd/mesh/shapeDtypeStruct.js";
export {
  addressableShards,
  devicePut,
  NamedSharding,
  type Shard,
  visualizeSharding,
} from "./spmd/mesh/sharding.js";
export type { Link } from "./spmd/mesh/topology.js";
export type { GatherNote } from "./spmd/partition/blocks/resharding.js";
export type { AnyJitOptions, ShardingLike, TensorArgs } from "./spmd/run/call.js";
export { ioCallback, type PureCallbackOptions, pureCallback } from "./spmd/run/callback.js";
export * as checkify from "./spmd/run/checkify.js";
export { withMesh, withShardingConstraint } from "./spmd/run/constraint.js";
export * as debug from "./spmd/run/debug.js";
export {
  disableJit,
  type JitOptions,
  type Jitted,
  jit,
  type Lowered,
  type Synchronous,
} from "./spmd/run/jit.js";
export { effectsBarrier } from "./spmd/run/pendingCallbacks.js";
export * from "./spmd/run/processInfo.js";
export { type ShardMapOptions, shardMap } from "./spmd/run/shardMap.js";
export { Complex, complex } from "./trace/complexNumber.js";
export type { ElementValue } from "./trace/format.js";
export type { FromHost, HostArray, HostLike, OnHost } from "./trace/hostArray.js";
export type { Prefix, Whole } from "./trace/prefix.js";
export { namedScope } from "./trace/source.js";
export { type Nested, Tensor, type TensorData } from "./trace/tensor.js";
export type { Argnums } from "./trace/trace.js";
export * as tree from "./trace/tree.js";
export { type VmapOptions, vmap } from "./transforms/batching/vmap.js";
export { customJvp, type JvpRule } from "./transforms/derivatives/customJvp.js";
export {
  type Cotangent,
  type CustomRule,
  customGradient,
  customVjp,
} from "./transforms/derivatives/customVjp.js";
export {
  type GradOptions,
  type GradsOf,
  grad,
  type Pullback,
  type VjpOptions,
  valueAndGrad,
  vjp,
} from "./transforms/derivatives/grad.js";
export {
  hessian,
  type JacobianOf,
  type JacobianOptions,
  jacfwd,
  jacrev,
  jacrev as jacobian,
} from "./transforms/derivatives/jacobian.js";
export { jvp, linearize } from "./transforms/derivatives/jvp.js";
export * from "./transforms/derivatives/remat.js";
export { evalShape, makeProgram } from "./transforms/makeProgram.js";
export { simplify } from "./transforms/rewrite/simplify.js";
