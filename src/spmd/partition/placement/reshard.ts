import { axisSizeIn, type DimAxes, type MeshAxis, type MeshShape, type Spec } from "../../../ir/mesh.js";
import { at, sameNumbers } from "../../../ir/shape.js";
import * as ops from "../../../trace/ops.js";
import { Tensor } from "../../../trace/tensor.js";

/** The axes of a mesh with the given names, in that order. */
export function namedAxes(mesh: MeshShape, names: DimAxes): MeshAxis[] {
  return names.map((name) => ({ name, size: axisSizeIn(mesh, name) ?? 1 }));
}

/** The mesh without axes of a single device, which split nothing. */
export function busyMesh(mesh: MeshShape): MeshShape {
  return { axes: mesh.axes.filter(({ size }) => size > 1) };
}

/** A spec without axes that the mesh does not have. */
export function specOn(mesh: MeshShape, spec: Spec): Spec {
  return spec.map((axes) => axes.filter((axis) => axisSizeIn(mesh, axis) !== undefined));
}

/**
 * Inside a per-device program: turns the blocks of one spec into the blocks of another, with as little communication as
 * the change needs. New axes are cut out locally, axes that change their order or replace each other need a
 * permutation of devices, an axis that only changes its dim needs an all-to-all, and the rest is gathered.
 *
 * @param onGather called for every gather
 */
export function reshard(
  block: Tensor,
  from: Spec,
  to: Spec,
  fullMesh: MeshShape,
  onGather: (gathered: Tensor) => void = () => undefined,
): Tensor {
  const mesh = busyMesh(fullMesh);
  const whole = (spec: Spec) => block.shape.map((_, d) => spec[d] ?? []);
  const dims = (spec: Spec) => specOn(mesh, whole(spec));
  const goal = dims(to);
  const now = dims(from).map((axes) => [...axes]);
  if (sameSizes(now, goal, mesh)) return rename(block, now, goal, mesh);
  let result = block;
  now.forEach((axes, d) => {
    const wanted = at(goal, d);
    if (isPrefix(wanted, axes) || !wanted.every((axis) => axes.includes(axis))) return;
    const ordered = [...wanted, ...axes.filter((axis) => !wanted.includes(axis))];
    result = reorder(result, axes, ordered, mesh);
    now[d] = ordered;
  });
  const isUsed = (axis: string) => now.some((axes) => axes.includes(axis));
  goal.forEach((wanted, d) => {
    const axes = at(now, d);
    for (let i = axes.length; isPrefix(axes, wanted) && i < wanted.length; i++) {
      const axis = at(wanted, i);
      if (isUsed(axis)) break;
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
    if (extra.length === 0) return;
    result = ops.allGather(result, namedAxes(mesh, extra), d);
    onGather(result);
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

/** Whether two specs split every dim over axes of the same sizes, so that blocks only have to change devices. */
function sameSizes(a: Spec, b: Spec, mesh: MeshShape): boolean {
  const sizes = (axes: DimAxes) => namedAxes(mesh, axes).map(({ size }) => size);
  return a.every((axes, d) => sameNumbers(sizes(axes), sizes(at(b, d))));
}

/** The same blocks on other devices, because every dim is split over other axes of the same sizes. */
function rename(block: Tensor, from: Spec, to: Spec, mesh: MeshShape): Tensor {
  if (from.every((axes, d) => isPrefix(axes, at(to, d)))) return block;
  const [before, after] = [from.flat(), to.flat()];
  const all = [...new Set([...before, ...after])];
  const sizeOf = (axis: string) => axisSizeIn(mesh, axis) ?? 1;
  // Axes along which the blocks repeat pair up too, so that every device sends to exactly one other.
  const idle = all.filter((axis) => !before.includes(axis));
  const pairs = new Map(before.map((axis, i) => [axis, at(after, i)]));
  for (const axis of all.filter((other) => !after.includes(other))) {
    const partner = idle.findIndex((other) => sizeOf(other) === sizeOf(axis));
    pairs.set(at(idle.splice(partner, 1), 0), axis);
  }
  const axes = namedAxes(mesh, all);
  return permuteDevices(block, axes, (coordinateOf) =>
    axes.map(({ name }) => coordinateOf(pairs.get(name) ?? name)),
  );
}

/** The same blocks on other devices, because the axes of a dim count in another order. */
function reorder(block: Tensor, from: DimAxes, to: DimAxes, mesh: MeshShape): Tensor {
  const axes = namedAxes(mesh, from);
  return permuteDevices(block, axes, (coordinateOf) => {
    let position = namedAxes(mesh, to).reduce((p, { name, size }) => p * size + coordinateOf(name), 0);
    return axes
      .toReversed()
      .map(({ size }) => {
        const coordinate = position % size;
        position = Math.floor(position / size);
        return coordinate;
      })
      .reverse();
  });
}

/** Sends every device the block of another one, whose coordinates `source` computes from its own. */
function permuteDevices(
  block: Tensor,
  axes: readonly MeshAxis[],
  source: (coordinateOf: (axis: string) => number) => number[],
): Tensor {
  const count = axes.reduce((n, { size }) => n * size, 1);
  const permutation = Array.from({ length: count }, (_, target) => {
    const own = new Map<string, number>();
    let rest = target;
    for (const { name, size } of axes.toReversed()) {
      own.set(name, rest % size);
      rest = Math.floor(rest / size);
    }
    const from = source((axis) => own.get(axis) ?? 0);
    return [from.reduce((p, coordinate, i) => p * at(axes, i).size + coordinate, 0), target] as const;
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
