import { need } from "../../ir/arguments.js";
import { ShardingError } from "../../ir/errors.js";
import { joinAxes, varyingAlong, varyingAxes } from "../../ir/infer/varying.js";
import { axisSizeIn, blockShape, formatMesh, globalShape, meshShape, type Spec } from "../../ir/mesh.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import { at, formatType, withShape } from "../../ir/shape.js";
import { withAxes } from "../../trace/axes.js";
import { bind } from "../../trace/builder.js";
import { commonTarget } from "../../trace/executionTarget.js";
import type { Prefix } from "../../trace/prefix.js";
import { flattenCall, type TracedTree, traceTree } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";
import { markOutputs } from "../../transforms/control/varyingTypes.js";
import { type Mesh, meshKind, unknownAxis } from "../mesh/mesh.js";
import {
  isSpec,
  PartitionSpec,
  replicatedSpec,
  resolveSpec,
  toPartitionSpec,
} from "../mesh/partitionSpec.js";
import { varyingOutputs } from "../partition/passes/replication.js";

const shardMapOptions = schema({
  /** The mesh whose devices each run the function on their own blocks. */
  mesh: required(meshKind),
  inSpecs: optional("any"),
  outSpecs: optional("any"),
  /** Whether to refuse results that are declared equal along an axis although they may differ; on by default. */
  checkReplication: true,
  /** The mesh axes that the function handles itself; all by default. The others stay with the partitioner. */
  axisNames: optional("strings"),
  /** Arguments that are not tensors but part of the function, whose specs do not count; booleans and strings are so anyway. */
  staticArgnums: optional("integerOrIntegers"),
});

/** Options of {@link shardMap} for a function with the arguments `A` and the result `R`. */
// biome-ignore lint/suspicious/noExplicitAny: as in Mesh
export interface ShardMapOptions<A = unknown, R = unknown, Axes extends string = any>
  extends OptionsOf<typeof shardMapOptions> {
  readonly mesh: Mesh<Axes>;
  /** How the arguments are split: a spec for all, or a list with a (prefix tree of) specs for each; `null` for whole. */
  readonly inSpecs: Prefix<A, PartitionSpec<NoInfer<Axes>> | null | undefined>;
  /** How the blocks that the function returns are put together: a prefix tree of specs. */
  readonly outSpecs: Prefix<R, PartitionSpec<NoInfer<Axes>> | null | undefined>;
  readonly axisNames?: readonly NoInfer<Axes>[];
}

/**
 * A function over whole tensors from one that sees a single device's blocks and may call collectives
 * (`lax.psum`, …) over the mesh's axes.
 *
 * ```ts
 * const mean = shardMap((x: Tensor) => lax.pmean(x, "data"), { mesh, inSpecs: P("data"), outSpecs: P() });
 * ```
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ data: 2 });
 * const total = shardMap((block: Tensor) => lax.psum(np.sum(block), "data"), {
 *   mesh,
 *   inSpecs: P("data"),
 *   outSpecs: P(),
 * });
 * total(np.array([1, 2, 3, 4])); // 10
 * ```
 */
export function shardMap<A extends readonly unknown[], R, const Axes extends string>(
  fn: (...args: A) => R,
  options: ShardMapOptions<A, R, Axes>,
): (...args: A) => R {
  need("function", fn, "fn", "shardMap");
  shardMapOptions.read(options, "shardMap");
  const { mesh, inSpecs, outSpecs, checkReplication = true, axisNames, staticArgnums } = options;
  const manual: readonly string[] = axisNames ?? mesh.axisNames;
  for (const name of manual) {
    if (!mesh.axes.some((axis) => axis.name === name)) throw unknownAxis(mesh, name, "shardMap");
  }
  return (...args) => {
    const flat = flattenCall(args, staticArgnums, "shardMap");
    const paths = flat.paths.map((path) => `argument ${path}`);
    const specs = readSpecs(inSpecs, flat.structure, "inSpecs").map((spec, i) => {
      const tensor = at(flat.tensors, i);
      const path = at(paths, i);
      return manualOnly(resolveSpec(spec, mesh, tensor.shape, "shardMap", path), manual, path);
    });
    const splitBy = (spec: Spec) =>
      mesh.axes.filter(({ name }) => checkReplication && spec.flat().includes(name));
    const types = flat.tensors.map(({ type }, i) => {
      const block = withShape(type, blockShape(type.shape, at(specs, i), mesh));
      return varyingAlong(block, joinAxes([varyingAxes(type), splitBy(at(specs, i))]));
    });
    const axes = mesh.axes
      .filter(({ name }) => manual.includes(name))
      .map((axis) => ({ ...axis, checked: checkReplication }));
    const traced = withAxes(axes, () => traceTree(fn, flat.structure, types, "shardMap"));
    const captured = traced.captures.map((tensor) => replicatedSpec(tensor.ndim));
    const allIn = [...captured, ...specs];
    const allOut = resolveOutputs(traced, outSpecs, mesh, manual);
    if (checkReplication) checkReplicated(traced, allIn, allOut, mesh);
    const params = {
      mesh: meshShape(mesh),
      manual,
      inSpecs: allIn,
      outSpecs: allOut,
      checked: checkReplication,
      // Copies that are laid side by side have cotangents of their own.
      body: markOutputs(traced.program, allOut.map(splitBy)),
    };
    const target = commonTarget([mesh.target, traced.target]);
    const results = bind("shardMap", [...traced.captures, ...flat.tensors], params, target);
    return tree.unflatten<R>(traced.outStructure, results);
  };
}

function readSpecs(specs: unknown, structure: tree.Structure, what: string): PartitionSpec[] {
  return tree.broadcastPrefix(specs, structure, `shardMap ${what}`, isSpec).map((spec) => {
    if (spec === null || spec === undefined) return new PartitionSpec([]);
    if (spec instanceof PartitionSpec) return spec;
    throw new ShardingError(
      `[shardMap] ${what} must hold PartitionSpecs made with P(…), found ${String(spec)}`,
    );
  });
}

function manualOnly(spec: Spec, manual: readonly string[], what: string): Spec {
  const other = spec.flat().filter((name) => !manual.includes(name));
  if (other.length > 0) {
    throw new ShardingError(
      `[shardMap] ${what}: the spec names axis "${other[0]}", which is not among axisNames [${manual.join(", ")}]`,
    );
  }
  return spec;
}

function resolveOutputs(
  traced: TracedTree,
  outSpecs: unknown,
  mesh: Mesh,
  manual: readonly string[],
): Spec[] {
  const specs = readSpecs(outSpecs, traced.outStructure, "outSpecs");
  return traced.program.outputs.map(({ type }, i) => {
    const spec = at(specs, i);
    const what = `result leaf ${i} (${formatType(type)} on each device)`;
    if (spec.entries.length > type.shape.length) {
      throw new ShardingError(
        `[shardMap] ${what}: ${spec} has ${spec.entries.length} entries for ${type.shape.length} dims`,
      );
    }
    const dims = spec.dims(type.shape.length).map((axes) => (axes === "unconstrained" ? [] : axes));
    const whole = globalShape(type.shape, dims, mesh);
    return manualOnly(resolveSpec(spec, mesh, whole, "shardMap", what), manual, what);
  });
}

function checkReplicated(
  traced: TracedTree,
  inSpecs: readonly Spec[],
  outSpecs: readonly Spec[],
  mesh: Mesh,
): void {
  const given = inSpecs.map((spec) => new Set(spec.flat()));
  const varying = varyingOutputs(traced.program, given);
  const wrong = varying.flatMap((axes, i) => {
    const spec = at(outSpecs, i);
    // Along the axis of a vmap around the shard map results may differ: it is no axis of the mesh.
    const hidden = [...axes].filter(
      (name) => !spec.flat().includes(name) && (axisSizeIn(mesh, name) ?? 1) > 1,
    );
    if (hidden.length === 0) return [];
    return [
      `  result leaf ${i} with ${toPartitionSpec(spec)} may differ along ${hidden.map((a) => `"${a}"`).join(", ")}`,
    ];
  });
  if (wrong.length > 0) {
    throw new ShardingError(
      `[shardMap] results that are not split over an axis must be equal along it on the mesh ${formatMesh(mesh)}:\n${wrong.join("\n")}\n` +
        "name the axis in outSpecs, reduce over it (lax.psum, lax.pmean, lax.allGather), or pass checkReplication: false",
      "replication",
    );
  }
}
