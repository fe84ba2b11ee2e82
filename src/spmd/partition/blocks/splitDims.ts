import { type DimAxes, type MeshShape, type Spec, splitCount } from "../../../ir/mesh.js";
import type { Eqn } from "../../../ir/program.js";
import { at, range } from "../../../ir/shape.js";
import * as ops from "../../../trace/ops.js";
import { Tensor } from "../../../trace/tensor.js";
import { namedAxes } from "../placement/reshard.js";

/** How the operands of an equation are split. */
interface Split {
  readonly mesh: MeshShape;
  readonly operandSpecs: readonly Spec[];
}

const int32 = (value: number) => Tensor.scalar(value, "int32");

/** The first index of this device's block of a dim. */
export function offsetOf(axes: DimAxes, blockSize: number, mesh: MeshShape): Tensor {
  return ops.mul(ops.axisIndex(namedAxes(mesh, axes)), blockSize);
}

/** A number in every element of a tensor of the same shape as another. */
export function spread(scalar: Tensor, like: Tensor): Tensor {
  return ops.broadcastInDim(scalar, like.shape, []);
}

/** The operands of a product of groups of rows, with the part of each group that is among this device's rows. */
export function ownGroups(ins: readonly Tensor[], { mesh, operandSpecs }: Split): readonly Tensor[] {
  const [x, y, sizes] = [at(ins, 0), at(ins, 1), at(ins, 2)];
  const rowDim = x.ndim - 2;
  const axes = at(at(operandSpecs, 0), rowDim);
  if (splitCount(mesh, axes) === 1) return ins;
  const rows = at(x.shape, rowDim);
  const counts = ops.max(sizes, 0);
  const ends = ops.cumsum(counts, sizes.ndim - 1);
  const offset = spread(offsetOf(axes, rows, mesh), sizes);
  const inside = (edges: Tensor) => ops.clamp(int32(0), ops.sub(edges, offset), int32(rows));
  return [x, y, ops.sub(inside(ends), inside(ops.sub(ends, counts)))];
}

/** Reversing a split dim: every device reverses its block, and the blocks change places. */
export function reverseBlocks({ params }: Eqn<"reverse">, x: Tensor, { mesh, operandSpecs }: Split): Tensor {
  const spec = at(operandSpecs, 0);
  return params.dims.reduce(
    (block, dim) => {
      const axes = at(spec, dim);
      const n = splitCount(mesh, axes);
      if (n === 1) return block;
      const pairs = range(n).map((p) => [p, n - 1 - p] as const);
      return ops.ppermute(block, namedAxes(mesh, axes), pairs);
    },
    ops.reverse(x, params.dims),
  );
}

/** Running sums along a split dim: those of this device's rows, plus the totals of the devices before it. */
export function runningSums({ params }: Eqn<"cumsum">, x: Tensor, { mesh, operandSpecs }: Split): Tensor {
  const { dim, reverse } = params;
  const axes = at(at(operandSpecs, 0), dim);
  const own = ops.cumsum(x, dim, reverse);
  if (splitCount(mesh, axes) === 1) return own;
  const group = namedAxes(mesh, axes);
  const last = reverse ? 0 : at(x.shape, dim) - 1;
  const totals = ops.allGather(ops.sliceDim(own, dim, last, last + 1), group, dim);
  const position = ops.iota("int32", totals.shape, dim);
  const isBefore = ops.compare(reverse ? "gt" : "lt", position, spread(ops.axisIndex(group), position));
  const before = ops.reduceSum(ops.select(isBefore, totals, ops.zeros(totals.type)), [dim]);
  const others = range(x.ndim).filter((d) => d !== dim);
  return ops.add(own, ops.broadcastInDim(before, own.shape, others));
}

/**
 * The index of the extreme along a split dim: every device finds its own, the extreme of these is found over the
 * devices, and the first device that has it (or a NaN, which beats all) determines the index.
 */
export function extremeIndex(
  { op, params: { dim } }: Eqn<"argmax" | "argmin">,
  x: Tensor,
  { mesh, operandSpecs }: Split,
): Tensor {
  const axes = at(at(operandSpecs, 0), dim);
  const index = op === "argmax" ? ops.argmax(x, dim) : ops.argmin(x, dim);
  const n = splitCount(mesh, axes);
  if (n === 1) return index;
  const group = namedAxes(mesh, axes);
  const rows = at(x.shape, dim);
  const own = op === "argmax" ? ops.reduceMax(x, [dim]) : ops.reduceMin(x, [dim]);
  const best = op === "argmax" ? ops.pmax(own, group) : ops.pmin(own, group);
  const isBest = ops.or(ops.compare("eq", own, best), ops.compare("ne", own, own));
  const global = ops.add(index, spread(offsetOf(axes, rows, mesh), index));
  return ops.pmin(ops.select(isBest, global, spread(int32(n * rows), index)), group);
}

/** Where a window along a split dim lies in this device's rows. */
interface Overlap {
  /** The first row of the part of the block that holds all of the window that is here. */
  readonly start: Tensor;
  /** How many rows of the window come before that part; negative when the part begins before the window. */
  readonly skipped: Tensor;
}

/** The overlap of `window` rows from an index on with this device's rows, as a part of `part` rows. */
function overlap(
  first: Tensor,
  { window, part, rows }: { readonly window: number; readonly part: number; readonly rows: number },
  axes: DimAxes,
  mesh: MeshShape,
): Overlap {
  const whole = rows * splitCount(mesh, axes);
  const clamped = ops.clamp(int32(0), first, int32(whole - window));
  const local = ops.sub(clamped, offsetOf(axes, rows, mesh));
  const start = ops.clamp(int32(0), local, int32(rows - part));
  return { start, skipped: ops.sub(start, local) };
}

/** The rows of a tensor along a dim from an index on that may be negative or too large, and which of them exist. */
function shifted(x: Tensor, dim: number, by: Tensor, count: number): { rows: Tensor; exist: Tensor } {
  const n = at(x.shape, dim);
  const wanted = ops.iota("int32", [count], 0);
  const index = ops.add(wanted, spread(by, wanted));
  const rows = n === 1 && count === 1 ? x : ops.gather(x, index, { dim, batchDims: 0 });
  return { rows, exist: ops.and(ops.compare("ge", index, 0), ops.compare("lt", index, n)) };
}

/** The split dims along which a window is smaller than the tensor. */
function windowDims(shape: readonly number[], window: readonly number[], spec: Spec, mesh: MeshShape) {
  return range(shape.length).filter(
    (d) => at(window, d) !== at(shape, d) && splitCount(mesh, at(spec, d)) > 1,
  );
}

/** Reading a window of a split dim: every device contributes the rows that it has, and zeros for the others. */
export function readWindow(
  eqn: Eqn<"dynamicSlice">,
  ins: readonly Tensor[],
  { mesh, operandSpecs }: Split,
): Tensor {
  const [x, ...starts] = [at(ins, 0), ...ins.slice(1)];
  const { sizes } = eqn.params;
  const whole = at(eqn.ins, 0).type.shape;
  const spec = at(operandSpecs, 0);
  const split = windowDims(whole, sizes, spec, mesh);
  const local = x.shape.map((n, d) => (at(sizes, d) === at(whole, d) ? n : Math.min(n, at(sizes, d))));
  const overlaps = split.map((d) => {
    const rows = at(x.shape, d);
    const part = at(local, d);
    return { d, ...overlap(at(starts, d), { window: at(sizes, d), part, rows }, at(spec, d), mesh) };
  });
  const from = starts.map((start, d) => overlaps.find((found) => found.d === d)?.start ?? start);
  return overlaps.reduce(
    (part, { d, skipped }) => {
      const { rows, exist } = shifted(part, d, ops.neg(skipped), at(sizes, d));
      return ops.select(ops.broadcastInDim(exist, rows.shape, [d]), rows, ops.zeros(rows.type));
    },
    ops.dynamicSlice(x, from, local),
  );
}

/** Writing a window of a split dim: every device writes the rows of its block. */
export function writeWindow(
  eqn: Eqn<"dynamicUpdateSlice">,
  ins: readonly Tensor[],
  { mesh, operandSpecs }: Split,
): Tensor {
  const [x, update, ...starts] = [at(ins, 0), at(ins, 1), ...ins.slice(2)];
  const spec = at(operandSpecs, 0);
  const split = windowDims(at(eqn.ins, 0).type.shape, at(eqn.ins, 1).type.shape, spec, mesh);
  if (split.length === 0) return ops.dynamicUpdateSlice(x, update, starts);
  const local = x.shape.map((n, d) => Math.min(n, at(update.shape, d)));
  const overlaps = split.map((d) => {
    const sizes = { window: at(update.shape, d), part: at(local, d), rows: at(x.shape, d) };
    return { d, ...overlap(at(starts, d), sizes, at(spec, d), mesh) };
  });
  const from = starts.map((start, d) => overlaps.find((found) => found.d === d)?.start ?? start);
  let rows = update;
  const masks = overlaps.map(({ d, skipped }) => {
    const moved = shifted(rows, d, skipped, at(local, d));
    rows = moved.rows;
    return { d, exist: moved.exist };
  });
  const old = ops.dynamicSlice(x, from, local);
  const isNew = masks.map(({ d, exist }) => ops.broadcastInDim(exist, old.shape, [d])).reduce(ops.and);
  return ops.dynamicUpdateSlice(x, ops.select(isNew, rows, old), from);
}
