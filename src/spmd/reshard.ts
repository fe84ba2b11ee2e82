import { type DimAxes, type MeshAxis, type MeshShape, type Spec, splitCount } from "../ir/mesh.js";
import { at } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import { Tensor } from "../trace/tensor.js";

function sameAxes(a: DimAxes, b: DimAxes): boolean {
  return a.length === b.length && a.every((name, i) => name === b[i]);
}

/** Inside a per-device program: turns the blocks of one spec into the blocks of another. */
export function reshard(block: Tensor, from: Spec, to: Spec, mesh: MeshShape): Tensor {
  const axesOf = (names: DimAxes) =>
    names.map((name) =>
      at(
        mesh.axes.filter((axis) => axis.name === name),
        0,
      ),
    );
  const changed = from.map((axes, d) => !sameAxes(axes, to[d] ?? []));
  let result = block;
  from.forEach((axes, d) => {
    if (changed[d] && axes.length > 0) result = ops.allGather(result, axesOf(axes), d);
  });
  to.forEach((axes, d) => {
    if (changed[d] && axes.length > 0) result = ownBlock(result, d, axesOf(axes), splitCount(mesh, axes));
  });
  return result;
}

/** This device's block of a dim that is whole. */
function ownBlock(x: Tensor, dim: number, axes: readonly MeshAxis[], parts: number): Tensor {
  const size = at(x.shape, dim) / parts;
  const start = ops.mul(ops.axisIndex(axes), size);
  const zero = Tensor.scalar(0, "int32");
  return ops.dynamicSlice(
    x,
    x.shape.map((_, d) => (d === dim ? start : zero)),
    x.shape.map((n, d) => (d === dim ? size : n)),
  );
}
