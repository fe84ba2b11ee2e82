import { axisSizeIn, type DimAxes, type MeshAxis, type MeshShape, type Spec } from "../ir/mesh.js";
import { at } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import { Tensor } from "../trace/tensor.js";

/** The axes of a mesh with the given names, in that order. */
export function namedAxes(mesh: MeshShape, names: DimAxes): MeshAxis[] {
  return names.map((name) => ({ name, size: axisSizeIn(mesh, name) ?? 1 }));
}

/**
 * Inside a per-device program: turns the blocks of one spec into the blocks of another, with as little
 * communication as the change needs. New axes are cut out locally, an axis that only changes its dim moves by
 * an all-to-all, axes in another order by a permutation of devices, and what remains is gathered.
 */
export function reshard(block: Tensor, from: Spec, to: Spec, mesh: MeshShape): Tensor {
  const now = block.shape.map((_, d) => [...(from[d] ?? [])]);
  const goal = block.shape.map((_, d) => to[d] ?? []);
  let result = block;
  const used = () => new Set(now.flat());

  now.forEach((axes, d) => {
    const wanted = at(goal, d);
    if (axes.length > 1 && axes.join() !== wanted.join() && sameSet(axes, wanted)) {
      result = reorder(result, axes, wanted, mesh);
      now[d] = [...wanted];
    }
  });
  goal.forEach((wanted, d) => {
    const axes = at(now, d);
    for (let i = axes.length; isPrefix(axes, wanted) && i < wanted.length; i++) {
      const axis = at(wanted, i);
      if (used().has(axis)) break;
      result = ownBlock(result, d, namedAxes(mesh, [axis]));
      axes.push(axis);
    }
  });
  now.forEach((axes, d) => {
    for (;;) {
      const axis = axes.at(-1);
      if (axis === undefined || isPrefix(axes, at(goal, d))) break;
      const target = goal.findIndex((wanted, e) => e !== d && continues(at(now, e), wanted, axis));
      const size = axisSizeIn(mesh, axis) ?? 1;
      if (target < 0 || at(result.shape, target) % size !== 0) break;
      result = ops.allToAll(result, namedAxes(mesh, [axis]), target, d);
      axes.pop();
      at(now, target).push(axis);
    }
  });
  now.forEach((axes, d) => {
    let keep = 0;
    while (keep < axes.length && axes[keep] === at(goal, d)[keep]) keep++;
    const extra = axes.splice(keep);
    if (extra.length > 0) result = ops.allGather(result, namedAxes(mesh, extra), d);
  });
  goal.forEach((wanted, d) => {
    const missing = wanted.slice(at(now, d).length);
    if (missing.length > 0) result = ownBlock(result, d, namedAxes(mesh, missing));
  });
  return result;
}

function isPrefix(axes: DimAxes, of: DimAxes): boolean {
  return axes.length <= of.length && axes.every((axis, i) => axis === of[i]);
}

function continues(axes: DimAxes, wanted: DimAxes, axis: string): boolean {
  return isPrefix(axes, wanted) && wanted[axes.length] === axis;
}

function sameSet(a: DimAxes, b: DimAxes): boolean {
  return a.length === b.length && [...a].sort().join() === [...b].sort().join();
}

/** The same blocks on other devices, because the axes of a dim count in another order. */
function reorder(block: Tensor, from: DimAxes, to: DimAxes, mesh: MeshShape): Tensor {
  const axes = namedAxes(mesh, from);
  const size = axes.reduce((n, axis) => n * axis.size, 1);
  const permutation = Array.from({ length: size }, (_, position) => {
    const coordinates = new Map<string, number>();
    let rest = position;
    for (const axis of namedAxes(mesh, to).reverse()) {
      coordinates.set(axis.name, rest % axis.size);
      rest = Math.floor(rest / axis.size);
    }
    const target = axes.reduce((p, axis) => p * axis.size + (coordinates.get(axis.name) ?? 0), 0);
    return [position, target] as const;
  });
  return ops.ppermute(block, axes, permutation);
}

/** This device's block of a dim that is whole along the axes. */
export function ownBlock(x: Tensor, dim: number, axes: readonly MeshAxis[]): Tensor {
  const size = at(x.shape, dim) / axes.reduce((n, axis) => n * axis.size, 1);
  const zero = Tensor.scalar(0, "int32");
  const start = ops.mul(ops.axisIndex(axes), size);
  return ops.dynamicSlice(
    x,
    x.shape.map((_, d) => (d === dim ? start : zero)),
    x.shape.map((n, d) => (d === dim ? size : n)),
  );
}
