import { AxisError } from "../../ir/errors.js";
import {
  axesSize,
  axisSizeIn,
  blockShape,
  formatMesh,
  type MeshShape,
  positionAlong,
  type Spec,
} from "../../ir/mesh.js";
import type { OpParams } from "../../ir/ops.js";
import { at, range, type Shape, type TensorType } from "../../ir/shape.js";
import { type HostTensor, zeros } from "./hostTensor.js";
import type { Context, EvalRule, Lanes } from "./rule.js";
import { readBlock, windowAt, writeWindow } from "./strided.js";

/** Where a device's block begins in the global tensor. */
function blockStarts(block: Shape, spec: Spec, mesh: MeshShape, device: number): number[] {
  return block.map((size, d) => size * positionAlong(mesh, device, spec[d] ?? []));
}

function blockOf(x: HostTensor, spec: Spec, mesh: MeshShape, device: number): HostTensor {
  const shape = blockShape(x.type.shape, spec, mesh);
  return readBlock(x, blockStarts(shape, spec, mesh, device), shape);
}

/** The global tensor of all devices' blocks; along axes the spec does not name, the first device's count. */
function assemble(blocks: Lanes, spec: Spec, mesh: MeshShape, type: TensorType): HostTensor {
  const named = spec.flat();
  const unnamed = mesh.axes.map((axis) => axis.name).filter((name) => !named.includes(name));
  const result = zeros(type);
  blocks.forEach((block, device) => {
    if (positionAlong(mesh, device, unnamed) !== 0) return;
    const starts = blockStarts(block.type.shape, spec, mesh, device);
    writeWindow(result.data, windowAt(type.shape, starts), block);
  });
  return result;
}

/** The mesh of the manual axes only: the others split nothing, so one device stands for all along them. */
function manualMesh({ mesh, manual }: OpParams["shardMap"], context: Context): MeshShape {
  const bound = manual.find((name) => axisSizeIn(context.mesh, name) !== undefined);
  if (bound !== undefined) {
    throw new AxisError(
      `[shardMap] axis "${bound}" is already mapped by a surrounding shard map over ${formatMesh(context.mesh)}`,
    );
  }
  return { axes: mesh.axes.filter((axis) => manual.includes(axis.name)) };
}

/**
 * Every lane splits its operands among the devices of the inner mesh. The body runs on all of them in lock
 * step over a mesh of both, outer axes first, so that its collectives may name outer axes as well.
 */
function shardMap(
  ins: readonly Lanes[],
  params: OpParams["shardMap"],
  types: readonly TensorType[],
  context: Context,
): Lanes[] {
  const inner = manualMesh(params, context);
  const numInner = axesSize(inner.axes);
  const positions = range(numInner);
  const blocks = ins.map((lanes, i) =>
    lanes.flatMap((x) => positions.map((device) => blockOf(x, at(params.inSpecs, i), inner, device))),
  );
  const outs = context.run(params.body, blocks, {
    ...context,
    mesh: { axes: [...context.mesh.axes, ...inner.axes] },
    devices: context.devices.flatMap((outer) => positions.map((device) => outer * numInner + device)),
  });
  return outs.map((lanes, i) =>
    context.devices.map((_, lane) => {
      const own = lanes.slice(lane * numInner, (lane + 1) * numInner);
      return assemble(own, at(params.outSpecs, i), inner, at(types, i));
    }),
  );
}

/** Reference rules of the ops on global tensors; a sharding constraint changes no value. */
export const spmdRules: { readonly [K in "shardMap" | "shardingConstraint"]: EvalRule<K> } = {
  shardMap,
  shardingConstraint: (ins) => [...ins],
};
