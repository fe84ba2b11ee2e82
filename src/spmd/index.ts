export * from "./collectives.js";
export { type JitOptions, jit } from "./jit.js";
export { type Device, defaultEngine, Mesh, type MeshOptions } from "./mesh.js";
export { P, PartitionSpec, type SpecEntry } from "./partitionSpec.js";
export {
  addressableShards,
  devicePut,
  NamedSharding,
  type Shard,
  shardingOf,
  visualizeSharding,
} from "./sharding.js";
export { type ShardMapOptions, shardMap } from "./shardMap.js";
