import { need } from "../ir/arguments.js";
import { type OptionsOf, optional, required, schema } from "../ir/schema.js";
import { getPartitionSpec } from "../nn/index.js";
import { meshKind } from "../spmd/mesh/mesh.js";
import { P, type PartitionSpec } from "../spmd/mesh/partitionSpec.js";
import { jit, type Synchronous } from "../spmd/run/jit.js";
import { shardMap } from "../spmd/run/shardMap.js";
import type { Prefix } from "../trace/prefix.js";
import { evalShape } from "../transforms/makeProgram.js";

const initShardedOptions = schema({
  /** The mesh whose devices hold the result. */
  mesh: required(meshKind),
  inSpecs: optional("any"),
});

/** Options of {@link initSharded} for a function with the arguments `A`. */
export interface InitShardedOptions<A = unknown> extends OptionsOf<typeof initShardedOptions> {
  /** How the arguments are split, as for `shardMap`; whole on every device by default. */
  readonly inSpecs?: Prefix<A, PartitionSpec | null | undefined>;
}

/**
 * Runs a function on all devices of a mesh whose result determines its own sharding, such as `module.init` or the
 * creation of a `TrainState`: parameters in `Partitioned` boxes are split by their names, and everything else is
 * replicated.
 *
 * @example
 * ```ts
 * const kernelInit = nn.withPartitioning(random.initializers.ones, [null, "model"]);
 * const layer = nn.Dense({ features: 1, useBias: false, kernelInit });
 * const init = parallel.initSharded(layer.init, { mesh: Mesh.create({ model: 2 }) });
 * nn.unbox(init(random.key(0), np.ones([1, 1]))); // { "params": { "kernel": [[1, 1]] } }
 * ```
 */
export function initSharded<A extends readonly unknown[], R>(
  fn: ((...args: A) => R) & Synchronous<R>,
  given: InitShardedOptions<A>,
): (...args: A) => R {
  need("function", fn, "fn", "initSharded");
  initShardedOptions.read(given, "initSharded");
  const { mesh, inSpecs = P() } = given;
  const options = { mesh, inSpecs, checkReplication: false };
  return (...args) => {
    const types = evalShape(shardMap(fn, { ...options, outSpecs: P() }))(...args);
    // The tree of specs has the structure of the result, which TypeScript cannot express here.
    const specs: unknown = getPartitionSpec(types);
    const split = shardMap(fn, { ...options, outSpecs: specs as Prefix<R, PartitionSpec> });
    return jit(split as typeof split & Synchronous<R>)(...args);
  };
}
