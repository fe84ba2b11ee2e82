import { createReferenceEngine } from "./engines/reference/engine.js";
import { createRuntime } from "./spmd/execute.js";
import { provideDefaultEngine } from "./spmd/mesh.js";
import { installRuntime } from "./trace/runtime.js";

const referenceEngine = createReferenceEngine();
installRuntime(createRuntime(referenceEngine));
provideDefaultEngine(() => referenceEngine);

export type { DType } from "./ir/dtype.js";
export * from "./ir/errors.js";
export { printProgram } from "./ir/print.js";
export type { Program } from "./ir/program.js";
export type { Shape, TensorType } from "./ir/shape.js";
export { verify } from "./ir/verify.js";
export { jit } from "./spmd/jit.js";
export { Mesh } from "./spmd/mesh.js";
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
