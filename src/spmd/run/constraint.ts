import { Ambient } from "../../ir/ambient.js";
import { need } from "../../ir/arguments.js";
import { ShardingError } from "../../ir/errors.js";
import { meshShape } from "../../ir/mesh.js";
import { targetKey } from "../../trace/executionTarget.js";
import * as ops from "../../trace/ops.js";
import type { Prefix } from "../../trace/prefix.js";
import type { Tensor } from "../../trace/tensor.js";
import { leafTensor } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";
import { isMesh, type Mesh } from "../mesh/mesh.js";
import { PartitionSpec, resolveConstraint } from "../mesh/partitionSpec.js";
import { NamedSharding } from "../mesh/sharding.js";

const surrounding = new Ambient<Mesh | undefined>({
  name: "mesh",
  initial: undefined,
  setBy: "withMesh",
  dependence: { key: (mesh) => (mesh ? targetKey(mesh.target) : "") },
});

/**
 * Runs `fn` with a mesh that {@link withShardingConstraint} uses where it is given a bare spec.
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ data: 2 });
 * const double = withMesh(mesh, () => jit((x: Tensor) => x.mul(2))(np.array([1, 2])));
 * double; // [2, 4]
 * ```
 */
export function withMesh<T>(mesh: Mesh, fn: () => T): T {
  need("object", mesh, "mesh", "withMesh");
  need("function", fn, "fn", "withMesh");
  return surrounding.within(mesh, fn);
}

/** The mesh of the surrounding {@link withMesh}, if any. */
export function currentMesh(): Mesh | undefined {
  return surrounding.get();
}

const isSharding = (node: unknown) =>
  node instanceof PartitionSpec || node instanceof NamedSharding || isMesh(node);

/**
 * The same values, which the partitioner must split as given. Dims marked `P.UNCONSTRAINED` are left to it.
 *
 * @param shardings a spec or sharding for all tensors of the tree, or a prefix tree of them; bare specs need a
 * surrounding {@link withMesh}
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ data: 2 });
 * const sharding = new NamedSharding(mesh, P("data"));
 * const double = jit((x: Tensor) => withShardingConstraint(x.mul(2), sharding), { mesh });
 * double(np.array([1, 2])); // [2, 4]
 * ```
 */
export function withShardingConstraint<T>(
  values: T,
  shardings: Prefix<T, PartitionSpec | NamedSharding | null | undefined>,
): T {
  const entries = tree.flattenWithPath(values);
  const { structure } = tree.flatten(values);
  const leaves = tree.broadcastPrefix(shardings, structure, "withShardingConstraint", isSharding);
  const constrained = entries.map(({ path, leaf }, i): Tensor => {
    const x = leafTensor(leaf, "withShardingConstraint", path);
    const sharding = leaves[i];
    if (sharding === null || sharding === undefined) return x;
    const mesh = sharding instanceof NamedSharding ? sharding.mesh : currentMesh();
    const spec = sharding instanceof NamedSharding ? sharding.spec : sharding;
    if (!(spec instanceof PartitionSpec)) {
      throw new ShardingError("[withShardingConstraint] expects PartitionSpecs or NamedShardings");
    }
    if (!mesh) {
      throw new ShardingError(
        `[withShardingConstraint] ${spec} names axes but no mesh is known: pass a NamedSharding or call it inside withMesh(mesh, …)`,
      );
    }
    const dims = resolveConstraint(spec, mesh, x.shape, "withShardingConstraint", path || "the tensor");
    return ops.shardingConstraint(x, { mesh: meshShape(mesh), spec: dims }, mesh.target);
  });
  return tree.unflatten<T>(structure, constrained);
}
