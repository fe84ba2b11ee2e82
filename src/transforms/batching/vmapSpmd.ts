import { AxisError, ShardingError } from "../../ir/errors.js";
import {
  axesSize,
  axisSizeIn,
  type DimConstraint,
  formatMesh,
  formatSpec,
  type MeshAxis,
  type MeshShape,
  type Spec,
} from "../../ir/mesh.js";
import type { OpParams } from "../../ir/ops.js";
import { at } from "../../ir/shape.js";
import { bind, bind1 } from "../../trace/builder.js";
import {
  type BatchContext,
  type Batched,
  batched,
  batchProgram,
  flagsOf,
  programNamesAxis,
  tensorsOf,
  type VmapRule,
  withFlags,
} from "./vmapContext.js";

/** The axes of the mesh that `spmdAxisName` gives to the batch; each must exist and not be in use already. */
function spmdAxes(
  op: "shardMap" | "shardingConstraint",
  mesh: MeshShape,
  specs: readonly (readonly DimConstraint[])[],
  context: BatchContext,
): MeshAxis[] {
  return context.spmdAxes.map((name) => {
    const size = axisSizeIn(mesh, name);
    if (size === undefined) {
      throw new AxisError(
        `[vmap] spmdAxisName "${name}" is not an axis of the mesh ${formatMesh(mesh)} of a ${op} inside`,
      );
    }
    const taken = specs.find((spec) => spec.some((axes) => axes !== "unconstrained" && axes.includes(name)));
    if (taken) {
      throw new ShardingError(
        `[vmap] spmdAxisName "${name}" splits the mapped dim, but a ${op} inside uses that axis already in ${formatSpec(taken)}: map over another axis of ${formatMesh(mesh)}`,
      );
    }
    return { name, size };
  });
}

/** The number of elements of the batch that one device holds. */
function shareOf(axes: readonly MeshAxis[], { size }: BatchContext): number {
  const parts = axesSize(axes);
  if (size % parts !== 0) {
    throw new ShardingError(
      `[vmap] a mapped size of ${size} does not split over spmdAxisName ${axes.map(({ name }) => `"${name}"`).join(", ")} (${size} / ${parts} = ${size / parts}): use a multiple of ${parts}`,
    );
  }
  return size / parts;
}

/** Every device works on the whole batch, or on its share where the batch is split over `spmdAxisName`. */
function shardMap(ins: readonly Batched[], params: OpParams["shardMap"], context: BatchContext): Batched[] {
  const { mesh, manual, inSpecs, outSpecs, body } = params;
  const axes = spmdAxes("shardMap", mesh, [...inSpecs, ...outSpecs], context);
  const names = axes.map(({ name }) => name);
  const busy = names.find((name) => programNamesAxis(body, name));
  if (busy !== undefined) {
    throw new ShardingError(
      `[vmap] spmdAxisName "${busy}" splits the mapped dim, but the shardMap inside communicates over that axis, which would mix elements of the batch: map over another axis`,
    );
  }
  const inner: BatchContext = {
    ...context,
    // An axis of the mesh hides the mapped one where they have the same name.
    axisName:
      context.axisName !== undefined && manual.includes(context.axisName) ? undefined : context.axisName,
    size: shareOf(axes, context),
    spmdAxes: [],
    splitBy: [...context.splitBy, ...axes],
    varying: params.checked ? [...context.varying, ...axes] : context.varying,
  };
  const { program, batchedOutputs } = batchProgram(body, flagsOf(ins), inner);
  const withBatch = (specs: readonly Spec[], flags: readonly boolean[]) =>
    specs.map((spec, i) => (at(flags, i) ? [names, ...spec] : spec));
  const outs = bind("shardMap", tensorsOf(ins), {
    mesh,
    manual: [...manual, ...names.filter((name) => !manual.includes(name))],
    inSpecs: withBatch(inSpecs, flagsOf(ins)),
    outSpecs: withBatch(outSpecs, batchedOutputs),
    checked: params.checked,
    body: program,
  });
  return withFlags(outs, batchedOutputs);
}

/** How ops with shardings work on a batch. */
export const vmapSpmdRules: { readonly [K in "shardMap" | "shardingConstraint"]: VmapRule<K> } = {
  shardMap,
  shardingConstraint: (ins, { mesh, spec }, context, op) => {
    const names = spmdAxes(op, mesh, [spec], context).map(({ name }) => name);
    const own: DimConstraint = names.length > 0 ? names : "unconstrained";
    return [batched(bind1(op, [at(ins, 0).tensor], { mesh, spec: [own, ...spec] }))];
  },
};
