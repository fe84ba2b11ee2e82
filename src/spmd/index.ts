export * from "./mesh/collectives.js";
export { type Device, defaultEngine, Mesh, type MeshOptions } from "./mesh/mesh.js";
export { P, PartitionSpec, type SpecEntry } from "./mesh/partitionSpec.js";
export {
  addressableShards,
  devicePut,
  NamedSharding,
  type Shard,
  shardingOf,
  visualizeSharding,
} from "./mesh/sharding.js";
export { type JitOptions, jit } from "./run/jit.js";
export { type ShardMapOptions, shardMap } from "./run/shardMap.js";
