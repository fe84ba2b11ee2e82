import { getPartitionSpec } from "../nn/index.js";
import type { Mesh } from "../spmd/mesh/mesh.js";
import { P } from "../spmd/mesh/partitionSpec.js";
import { jit } from "../spmd/run/jit.js";
import { shardMap } from "../spmd/run/shardMap.js";
import { evalShape } from "../transforms/makeProgram.js";

/** Options of {@link initSharded}. */
export interface InitShardedOptions {
  readonly mesh: Mesh;
  /** How the arguments are split, as for `shardMap`; whole on every device by default. */
  readonly inSpecs?: unknown;
}

/**
 * Runs a function on all devices of a mesh whose result says itself how it is split, such as `module.init` or
 * the making of a `TrainState`: parameters in `Partitioned` boxes lie on the devices as their names say, all
 * else is whole on every device.
 *
 * ```ts
 * const variables = initSharded(model.init, { mesh, inSpecs: [P(), P("data")] })(random.key(0), x);
 * const specs = nn.getPartitionSpec(variables);
 * ```
 */
export function initSharded<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  { mesh, inSpecs = P() }: InitShardedOptions,
): (...args: A) => R {
  const options = { mesh, inSpecs, checkReplication: false };
  return (...args) => {
    const types = evalShape(shardMap(fn, { ...options, outSpecs: P() }))(...args);
    return jit(shardMap(fn, { ...options, outSpecs: getPartitionSpec(types) }))(...args);
  };
}
