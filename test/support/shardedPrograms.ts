/**
 * Random programs over whole tensors with random annotations, and the check that a partitioned program gives
 * on every device the blocks of what the program gives as a whole.
 */
import fc from "fast-check";
import { expect } from "vitest";
import { type HostTensor, hostTensor, numbersOf } from "../../src/engines/reference/hostTensor.js";
import { interpretSpmd } from "../../src/engines/reference/interpret.js";
import { isFloat } from "../../src/ir/dtype.js";
import {
  axesSize,
  blockShape,
  type DimAxes,
  deviceGroups,
  type MeshAxis,
  type MeshShape,
  type Spec,
} from "../../src/ir/mesh.js";
import type { Program } from "../../src/ir/program.js";
import { at, range, type Shape, sizeOf, type TensorType } from "../../src/ir/shape.js";
import { verify } from "../../src/ir/verify.js";
import {
  type PartitionedProgram,
  type PartitionRequest,
  partition,
} from "../../src/spmd/partition/partition.js";
import { bind, traceFlat } from "../../src/trace/builder.js";
import * as ops from "../../src/trace/ops.js";
import { Tensor } from "../../src/trace/tensor.js";
import { vmap } from "../../src/transforms/batching/vmap.js";
import { cond } from "../../src/transforms/control/cond.js";
import { scan } from "../../src/transforms/control/scan.js";
import { foriLoop } from "../../src/transforms/control/whileLoop.js";
import { remat } from "../../src/transforms/derivatives/remat.js";
import { simplify } from "../../src/transforms/rewrite/simplify.js";
import { findDifference, oracleFor } from "./agreement.js";
import { blockOf } from "./blockOf.js";
import { randomNumbers } from "./vmapChecks.js";

/** Random values for the inputs of a program: floats around zero, small integers. */
export function randomInputs(types: readonly TensorType[], seed: number): HostTensor[] {
  const random = randomNumbers(seed + 1);
  return types.map(({ dtype, shape }) =>
    hostTensor(
      dtype,
      shape,
      range(sizeOf(shape)).map(() =>
        dtype === "bool"
          ? Number(random() < 0.5)
          : isFloat(dtype)
            ? random() * 2 - 1
            : Math.floor(random() * 10) - 1,
      ),
    ),
  );
}

/** Expects devices that hold the same block to hold the same bits: loops may end by them, and copies must not part. */
function expectEqualCopies(lanes: readonly HostTensor[], spec: Spec, mesh: MeshShape, what: string): void {
  const others = mesh.axes.map(({ name }) => name).filter((name) => !spec.flat().includes(name));
  for (const [first = 0, ...copies] of deviceGroups(mesh, others)) {
    const bits = numbersOf(at(lanes, first));
    for (const p of copies) {
      expect(numbersOf(at(lanes, p)), `${what} on device ${p} as on ${first}`).toEqual(bits);
    }
  }
}

/**
 * Partitions a program and expects every device to get its blocks of what the program gives on whole tensors,
 * as partitioned and after simplification.
 *
 * @returns the partitioned program, simplified
 */
export function expectSharded(
  program: Program,
  mesh: MeshShape,
  fixed: PartitionRequest = {},
  ins: readonly HostTensor[] = randomInputs(
    program.inputs.map(({ type }) => type),
    1,
  ),
): PartitionedProgram {
  const parts = partition(verify(program), mesh, fixed);
  const simple = verify(simplify(verify(parts.program, "partitioned")), "partitioned");
  const positions = range(axesSize(mesh.axes));
  const blocks = ins.map((x, i) => positions.map((p) => blockOf(x, at(parts.inSpecs, i), mesh, p)));
  const whole = oracleFor(
    program,
    { axes: [] },
    ins.map((x) => [x]),
  );
  for (const perDevice of [parts.program, simple]) {
    interpretSpmd(perDevice, mesh, blocks).forEach((lanes, i) => {
      lanes.forEach((lane, p) => {
        const own = (x: HostTensor) => blockOf(x, at(parts.outSpecs, i), mesh, p);
        const want = own(at(at(whole.expected, i), 0));
        const difference = findDifference(lane, want, () => whole.samples(i, 0).map(own));
        expect(difference, `output ${i} on device ${p}`).toBeUndefined();
      });
      expectEqualCopies(lanes, at(parts.outSpecs, i), mesh, `output ${i}`);
    });
  }
  for (const [name, specs, given] of [
    ["input", parts.inSpecs, fixed.inSpecs],
    ["output", parts.outSpecs, fixed.outSpecs],
  ] as const) {
    given?.forEach((spec, i) => {
      if (spec) expect(at(specs, i), `${name} ${i} must stay as it was fixed`).toEqual(spec);
    });
  }
  return { ...parts, program: simple };
}

/** The meshes that random programs are split over. */
export const meshes: readonly MeshShape[] = [
  { axes: [{ name: "a", size: 2 }] },
  { axes: [{ name: "a", size: 4 }] },
  {
    axes: [
      { name: "a", size: 2 },
      { name: "b", size: 2 },
    ],
  },
  {
    axes: [
      { name: "a", size: 2 },
      { name: "b", size: 1 },
      { name: "c", size: 3 },
    ],
  },
  {
    axes: [
      { name: "a", size: 2 },
      { name: "b", size: 2 },
      { name: "c", size: 2 },
    ],
  },
];

/** A spec that fits mesh and shape, chosen by random numbers from 0 to 1. */
export function randomSpec(shape: Shape, mesh: MeshShape, random: () => number): Spec {
  const free = [...mesh.axes];
  return shape.map((n) => {
    const axes: string[] = [];
    let rest = n;
    while (free.length > 0 && random() < 0.5) {
      const [axis] = free.splice(Math.floor(random() * free.length), 1);
      if (!axis || rest % axis.size !== 0) continue;
      axes.push(axis.name);
      rest /= axis.size;
    }
    return axes;
  });
}

/** What a step sees: two values, a source of choices, and the mesh that the program will be split over. */
interface StepContext {
  readonly x: Tensor;
  readonly y: Tensor;
  readonly pick: (n: number) => number;
  readonly mesh: MeshShape;
}

type RandomStep = (context: StepContext) => Tensor;

const allDims = (x: Tensor) => range(x.ndim);
const index = (i: number) => Tensor.scalar(i, "int32");
const half = (x: Tensor) => ops.mul(x, 0.5);

/** `y` in the shape of `x`: as it is, or reduced to a number and spread. */
function shapedLike(y: Tensor, x: Tensor): Tensor {
  if (y.shape.join() === x.shape.join()) return y;
  return ops.broadcastInDim(ops.mul(ops.reduceSum(y, allDims(y)), 0.1), x.shape, []);
}

function rollBy(x: Tensor, dim: number, by: number): Tensor {
  const n = at(x.shape, dim);
  if (by % n === 0) return x;
  return ops.concatenate([ops.sliceDim(x, dim, n - by, n), ops.sliceDim(x, dim, 0, n - by)], dim);
}

const ids = (n: number, count: number, by: number) =>
  ops.rem(ops.add(ops.mul(ops.iota("int32", [count], 0), by), 1), n + 1);

/** A shard map along one axis, which splits one dim of the argument or none; the other axes are free in its body. */
function mapped(
  x: Tensor,
  mesh: MeshShape,
  axis: MeshAxis,
  [dimIn, dimOut]: readonly [number | undefined, number | undefined],
  fn: (block: Tensor) => Tensor,
): Tensor {
  const specOf = (dim: number | undefined): Spec => x.shape.map((_, d) => (d === dim ? [axis.name] : []));
  const type = { dtype: x.dtype, shape: blockShape(x.shape, specOf(dimIn), mesh) };
  const { program: body } = traceFlat((blocks) => blocks.map(fn), [type]);
  const specs = { inSpecs: [specOf(dimIn)], outSpecs: [specOf(dimOut)] };
  return at(bind("shardMap", [x], { mesh, manual: [axis.name], checked: false, ...specs, body }), 0);
}

/** Steps of random programs over tensors of any shape with at least one dim. */
const steps: Readonly<Record<string, RandomStep>> = {
  tanh: ({ x }) => ops.tanh(x),
  add: ({ x, y }) => ops.add(x, shapedLike(y, x)),
  mul: ({ x, y }) => ops.mul(x, ops.tanh(shapedLike(y, x))),
  select: ({ x, y }) => ops.select(ops.compare("gt", x, shapedLike(y, x)), half(x), shapedLike(y, x)),
  iota: ({ x, pick }) => ops.add(x, half(ops.iota(x.dtype, x.shape, pick(x.ndim)))),
  transpose: ({ x, pick }) => ops.moveDim(x, pick(x.ndim), pick(x.ndim)),
  flatten: ({ x }) => ops.reshape(x, [sizeOf(x.shape)]),
  merge: ({ x, pick }) => {
    if (x.ndim < 2) return x;
    const d = pick(x.ndim - 1);
    const merged = at(x.shape, d) * at(x.shape, d + 1);
    return ops.reshape(x, [...x.shape.slice(0, d), merged, ...x.shape.slice(d + 2)]);
  },
  split: ({ x, pick }) => {
    const d = pick(x.ndim);
    const n = at(x.shape, d);
    const divisors = range(n).filter((k) => k > 0 && n % k === 0);
    const k = divisors[pick(divisors.length)] ?? 1;
    return ops.reshape(x, [...x.shape.slice(0, d), k, n / k, ...x.shape.slice(d + 1)]);
  },
  regroup: ({ x }) => {
    const size = sizeOf(x.shape);
    return size % 6 === 0 ? ops.reshape(x, [6, size / 6]) : x;
  },
  broadcast: ({ x, pick }) => {
    const n = [2, 4, 6][pick(3)] ?? 2;
    const d = pick(x.ndim + 1);
    const shape = [...x.shape.slice(0, d), n, ...x.shape.slice(d)];
    return ops.broadcastInDim(
      x,
      shape,
      allDims(x).map((i) => (i < d ? i : i + 1)),
    );
  },
  reverse: ({ x, pick }) => ops.reverse(x, [pick(x.ndim)]),
  roll: ({ x, pick }) => {
    const d = pick(x.ndim);
    return rollBy(x, d, pick(at(x.shape, d)));
  },
  shift: ({ x, pick }) => {
    const d = pick(x.ndim);
    const n = at(x.shape, d);
    const kept = ops.sliceDim(x, d, 0, n - 1);
    if (n === 1) return x;
    const on = (value: number) => x.shape.map((_, e) => (e === d ? value : 0));
    return ops.pad(kept, Tensor.scalar(0, x.dtype), { low: on(1), high: on(0), interior: on(0) });
  },
  prepend: ({ x, y, pick }) => {
    const d = pick(x.ndim);
    const n = at(x.shape, d);
    const count = pick(n);
    if (count === 0) return x;
    const shape = x.shape.map((size, e) => (e === d ? count : size));
    const rows = [
      ops.zeros({ dtype: x.dtype, shape }),
      ops.full(shape, 2, x.dtype),
      ops.broadcastInDim(ops.reduceSum(y, allDims(y)), shape, []),
      half(ops.sliceDim(x, d, 0, count)),
    ];
    return ops.concatenate([at(rows, pick(rows.length)), ops.sliceDim(x, d, 0, n - count)], d);
  },
  padding: ({ x, pick }) => {
    const d = pick(x.ndim);
    const on = (value: number) => x.shape.map((_, e) => (e === d ? value : 0));
    return ops.pad(x, Tensor.scalar(pick(2), x.dtype), {
      low: on(pick(3)),
      high: on(pick(3)),
      interior: on(pick(2)),
    });
  },
  slice: ({ x, pick }) => {
    const d = pick(x.ndim);
    const n = at(x.shape, d);
    const start = pick(n);
    return ops.sliceDim(x, d, start, start + 1 + pick(n - start), 1 + pick(2));
  },
  onlyPadding: ({ x, pick }) => {
    const d = pick(x.ndim);
    const n = at(x.shape, d);
    const on = (value: number) => x.shape.map((_, e) => (e === d ? value : 0));
    const padded = ops.pad(x, Tensor.scalar(0, x.dtype), { low: on(n), high: on(0), interior: on(0) });
    return ops.sliceDim(padded, d, 0, n);
  },
  windows: ({ x, pick }) => {
    const moving = allDims(x).filter(() => pick(3) > 0);
    const sizes = x.shape.map((_, d) => (moving.includes(d) ? 1 + pick(3) : 1));
    const strides = sizes.map((size) => (size > 1 ? 1 + pick(2) : 1));
    const low = sizes.map((size) => pick(size));
    const high = sizes.map((size, d) => size - 1 - at(low, d));
    const interior = sizes.map((size) => (size > 1 ? pick(2) : 0));
    const padded = ops.pad(x, Tensor.scalar(0, x.dtype), { low, high, interior });
    const counts = padded.shape.map((n, d) => Math.floor((n - at(sizes, d)) / at(strides, d)) + 1);
    const offsets = sizes.reduce<number[][]>(
      (list, n) => list.flatMap((head) => range(n).map((i) => [...head, i])),
      [[]],
    );
    return offsets
      .map((starts, i) => {
        const limits = starts.map((start, d) => start + (at(counts, d) - 1) * at(strides, d) + 1);
        return ops.mul(ops.slice(padded, starts, limits, strides), 1 / (i + 1));
      })
      .reduce(ops.add);
  },
  concatenate: ({ x, y, pick }) => ops.concatenate([x, shapedLike(y, x), half(x)], pick(x.ndim)),
  dynamicSlice: ({ x, pick }) => {
    const d = pick(x.ndim);
    const starts = allDims(x).map((e) => (e === d ? ops.sub(index(pick(9)), 1) : index(0)));
    const size = 1 + pick(Math.ceil(at(x.shape, d) / 2));
    return ops.dynamicSlice(
      x,
      starts,
      x.shape.map((n, e) => (e === d ? size : n)),
    );
  },
  dynamicUpdate: ({ x, pick }) => {
    const d = pick(x.ndim);
    const rows = half(ops.sliceDim(x, d, 0, 1 + pick(at(x.shape, d))));
    return ops.dynamicUpdateSlice(
      x,
      rows,
      allDims(x).map((e) => index(e === d ? pick(9) - 1 : 0)),
    );
  },
  gather: ({ x, pick }) => {
    const dim = pick(x.ndim);
    return ops.gather(x, ids(at(x.shape, dim), [2, 4, 6][pick(3)] ?? 2, 3), { dim, batchDims: 0 });
  },
  takeAlong: ({ x }) => {
    if (x.ndim < 2) return x;
    const indices = ops.rem(ops.iota("int32", x.shape.slice(0, 2), 1), at(x.shape, 1));
    return ops.gather(x, indices, { dim: 1, batchDims: 1 });
  },
  scatterAdd: ({ x, pick }) => {
    const dim = pick(x.ndim);
    const rows = ids(at(x.shape, dim), 4, 3);
    const updates = half(ops.gather(x, rows, { dim, batchDims: 0 }));
    return ops.scatter(x, rows, updates, { dim, batchDims: 0, combine: "add" });
  },
  scatterSet: ({ x, pick }) => {
    const dim = pick(x.ndim);
    const rows = ids(at(x.shape, dim), 4, 3);
    const updates = half(ops.gather(x, rows, { dim, batchDims: 0 }));
    return ops.scatter(x, rows, updates, { dim, batchDims: 0, combine: "set" });
  },
  reduce: ({ x, pick }) => (x.ndim < 2 ? x : ops.mul(ops.reduceSum(x, [pick(x.ndim)]), 0.25)),
  largest: ({ x, pick }) => (x.ndim < 2 ? x : ops.reduceMax(x, [pick(x.ndim)])),
  smallest: ({ x, pick }) => (x.ndim < 2 ? x : ops.reduceMin(x, [pick(x.ndim)])),
  argmax: ({ x, pick }) => {
    const found = ops.argmax(x, pick(x.ndim));
    return x.ndim < 2 ? x : half(ops.convert(found, x.dtype));
  },
  argmin: ({ x, pick }) => {
    const found = ops.argmin(x, pick(x.ndim));
    return x.ndim < 2 ? x : half(ops.convert(found, x.dtype));
  },
  cumsum: ({ x, pick }) => ops.mul(ops.cumsum(x, pick(x.ndim), pick(2) === 0), 0.25),
  sort: ({ x, pick }) => ops.sort([x], pick(x.ndim)).at(0) ?? x,
  matmul: ({ x, y, pick }) => {
    const left = pick(x.ndim);
    const right = y.shape.indexOf(at(x.shape, left));
    const [other, contract] = right < 0 ? [x, left] : [y, right];
    if (x.ndim + other.ndim - 2 < 1 || sizeOf(x.shape) * sizeOf(other.shape) > 4000) return x;
    return ops.mul(ops.dotGeneral(x, other, { lhsContract: [left], rhsContract: [contract] }), 0.2);
  },
  batchedMatmul: ({ x }) => {
    if (x.ndim < 2) return x;
    const [lhsContract, rhsContract] = [[x.ndim - 1], [x.ndim - 1]];
    return ops.mul(ops.dotGeneral(x, x, { lhsContract, rhsContract, lhsBatch: [0], rhsBatch: [0] }), 0.2);
  },
  scan: ({ x, y }) => {
    const [last, ys] = scan<Tensor, Tensor, Tensor>(
      (carry, row) => {
        const next = ops.tanh(ops.add(carry, shapedLike(row, carry)));
        return [next, half(row)];
      },
      shapedLike(y, x),
      x,
    );
    return ops.add(last, ys);
  },
  loop: ({ x, pick }) => {
    const d = pick(x.ndim);
    return foriLoop(
      0,
      2,
      (i, c: Tensor) => ops.add(rollBy(c, d, 1), shapedLike(ops.convert(i, c.dtype), c)),
      x,
    );
  },
  cond: ({ x, y }) => {
    const total = ops.reduceSum(y, allDims(y));
    return cond(
      ops.compare("gt", total, 0),
      (a: Tensor) => ops.tanh(a),
      (a: Tensor) => ops.reverse(a, [0]),
      x,
    );
  },
  mapBlocks: ({ x, pick, mesh }) => {
    const [d, axis] = [pick(x.ndim), at(mesh.axes, pick(mesh.axes.length))];
    if (at(x.shape, d) % axis.size !== 0) return x;
    const others = { axes: mesh.axes.filter(({ name }) => name !== axis.name) };
    const seed = pick(1000);
    return mapped(x, mesh, axis, [d, d], (block) => {
      const sum = ops.psum(ops.reduceSum(block, allDims(block)), [axis]);
      const spread = ops.add(ops.tanh(block), ops.broadcastInDim(half(sum), block.shape, []));
      return mesh.axes.length > 1 ? constrain(spread, { mesh, within: others }, randomNumbers(seed)) : spread;
    });
  },
  sumBlocks: ({ x, pick, mesh }) => {
    const [d, axis] = [pick(x.ndim), at(mesh.axes, pick(mesh.axes.length))];
    if (at(x.shape, d) % axis.size !== 0) return x;
    return mapped(x, mesh, axis, [d, undefined], (block) => ops.psum(block, [axis]));
  },
  copyBlocks: ({ x, pick, mesh }) => {
    const [d, axis] = [pick(x.ndim), at(mesh.axes, pick(mesh.axes.length))];
    return mapped(x, mesh, axis, [undefined, d], (block) => (pick(2) === 0 ? block : half(block)));
  },
  vmapped: ({ x, y }) => vmap((row: Tensor) => ops.add(ops.tanh(row), shapedLike(y, row)))(x),
  remat: ({ x }) => remat((a: Tensor) => ops.tanh(ops.mul(a, ops.tanh(a))))(x),
};

/** One step of a random program: what it does to which of the values so far, and how the result is split. */
export interface Step {
  readonly name: string;
  readonly left: number;
  readonly right: number;
  readonly seed: number;
  readonly constrained: boolean;
}

/** Random programs, printed by their steps. */
export const randomSteps: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.record({
    name: fc.constantFrom(...Object.keys(steps)),
    left: fc.nat({ max: 5 }),
    right: fc.nat({ max: 5 }),
    seed: fc.nat({ max: 10_000 }),
    constrained: fc.boolean(),
  }),
  { minLength: 1, maxLength: 7 },
);

/** The names of all steps, to try each alone. */
export const stepNames = Object.keys(steps);

/** The function of two tensors that steps describe, with sharding constraints on a mesh. */
export function stepsFunction(list: readonly Step[], mesh: MeshShape): (x: Tensor, y: Tensor) => Tensor[] {
  return (x, y) => {
    const values = [x, y];
    const read = (i: number) => values[i % values.length] ?? x;
    for (const { name, left, right, seed, constrained } of list) {
      const step = steps[name];
      if (!step) throw new Error(`there is no step ${name}`);
      const random = randomNumbers(seed + 7);
      const value = step({ x: read(left), y: read(right), pick: (n) => Math.floor(random() * n), mesh });
      const small = sizeOf(value.shape) <= 600 ? value : ops.reduceSum(value, range(value.ndim - 1));
      values.push(constrained ? constrain(small, { mesh, within: mesh }, random) : small);
    }
    return [read(values.length - 1), read(values.length - 2)];
  };
}

/** A random constraint on a mesh, with some of its axes. */
function constrain(
  x: Tensor,
  { mesh, within }: { readonly mesh: MeshShape; readonly within: MeshShape },
  random: () => number,
): Tensor {
  const spec = randomSpec(x.shape, within, random).map((axes): DimAxes | "unconstrained" =>
    random() < 0.3 ? "unconstrained" : axes,
  );
  return ops.shardingConstraint(x, { mesh, spec });
}
