/**
 * Random functions of tensors under random transforms: `randomBody` describes what a function computes,
 * `randomLayers` what is put around it, each layer beside a plain way to say the same.
 */
import fc from "fast-check";
import { Mesh, P, shardMap, Tensor } from "../../src/index.js";
import { range } from "../../src/ir/shape.js";
import { jit } from "../../src/spmd/run/jit.js";
import { lookUpAxes } from "../../src/trace/axes.js";
import * as ops from "../../src/trace/ops.js";
import { vmap } from "../../src/transforms/batching/vmap.js";
import { cond } from "../../src/transforms/control/cond.js";
import { scan } from "../../src/transforms/control/scan.js";
import { foriLoop } from "../../src/transforms/control/whileLoop.js";
import { customGradient, customVjp } from "../../src/transforms/derivatives/customVjp.js";
import { grad, vjp } from "../../src/transforms/derivatives/grad.js";
import { checkpointName, checkpointPolicies, remat } from "../../src/transforms/derivatives/remat.js";

/** The shape of all values that random functions take and give. */
export const shape = [4];

/** A function of two tensors of {@link shape} that gives a third. */
export type Fn = (x: Tensor, y: Tensor) => Tensor;

const sum = (x: Tensor) => ops.reduceSum(x, range(x.ndim));
const spread = (x: Tensor) => ops.broadcastInDim(x, shape, []);
const onePlusSquare = (x: Tensor) => ops.add(ops.mul(x, x), 1);
const square = (x: Tensor) => ops.reshape(x, [2, 2]);
const flat = (x: Tensor) => ops.reshape(x, shape);
const index = (i: number) => Tensor.scalar(i, "int32");
const scalarOf = (value: number, like: Tensor) => Tensor.scalar(value, like.dtype);

/** Steps of random functions: smooth almost everywhere, with values that stay small. */
const steps: Readonly<Record<string, Fn>> = {
  sin: (x) => ops.sin(x),
  cos: (x) => ops.cos(x),
  tanh: (x) => ops.tanh(x),
  logistic: (x) => ops.logistic(x),
  erf: (x) => ops.erf(x),
  exp: (x) => ops.exp(ops.neg(ops.mul(x, x))),
  expm1: (x) => ops.expm1(ops.tanh(x)),
  log: (x) => ops.log(onePlusSquare(x)),
  log1p: (x) => ops.log1p(ops.mul(x, x)),
  sqrt: (x) => ops.sqrt(onePlusSquare(x)),
  rsqrt: (x) => ops.rsqrt(onePlusSquare(x)),
  cbrt: (x) => ops.cbrt(onePlusSquare(x)),
  neg: (x) => ops.neg(x),
  scale: (x) => ops.mul(x, 0.75),
  shift: (x) => ops.sub(x, 0.25),
  add: (x, y) => ops.add(x, y),
  sub: (x, y) => ops.sub(x, y),
  mul: (x, y) => ops.mul(x, ops.tanh(y)),
  div: (x, y) => ops.div(x, onePlusSquare(y)),
  pow: (x, y) => ops.pow(onePlusSquare(ops.sin(x)), ops.tanh(y)),
  atan2: (x, y) => ops.atan2(x, onePlusSquare(y)),
  max: (x, y) => ops.max(x, y),
  min: (x, y) => ops.min(x, y),
  select: (x, y) => ops.select(ops.compare("gt", x, y), ops.sin(x), y),
  clamp: (x) => ops.clamp(scalarOf(-0.6, x), x, scalarOf(0.7, x)),
  reverse: (x) => ops.reverse(x, [0]),
  cumsum: (x) => ops.mul(ops.cumsum(x, 0), 0.25),
  roll: (x) => ops.concatenate([ops.sliceDim(x, 0, 1, 4), ops.sliceDim(x, 0, 0, 1)], 0),
  transpose: (x) => flat(ops.transpose(square(x), [1, 0])),
  pad: (x) => ops.slice(ops.pad(x, scalarOf(0.5, x), { low: [1], high: [0], interior: [1] }), [1], [8], [2]),
  total: (x) => spread(ops.mul(sum(x), 0.25)),
  largest: (x) => spread(ops.reduceMax(x, [0])),
  dot: (x, y) => spread(ops.mul(ops.dotGeneral(x, y, { lhsContract: [0], rhsContract: [0] }), 0.2)),
  matmul: (x, y) =>
    ops.mul(flat(ops.dotGeneral(square(x), square(y), { lhsContract: [1], rhsContract: [0] })), 0.5),
  batchedDot: (x, y) =>
    spread(
      sum(
        ops.dotGeneral(square(x), square(y), {
          lhsContract: [1],
          rhsContract: [1],
          lhsBatch: [0],
          rhsBatch: [0],
        }),
      ),
    ),
  sort: (x) => ops.sort([x], 0).at(0) ?? x,
  sortBy: (x, y) => ops.sort([x, y], 0).at(1) ?? x,
  gather: (x) => ops.gather(x, ops.rem(ops.mul(ops.iota("int32", shape, 0), 3), 4), { dim: 0, batchDims: 0 }),
  gatherTwice: (x) => ops.gather(x, ops.div(ops.iota("int32", shape, 0), 2), { dim: 0, batchDims: 0 }),
  scatterAdd: (x, y) =>
    ops.scatter(x, ops.div(ops.iota("int32", shape, 0), 2), ops.mul(y, 0.5), {
      dim: 0,
      batchDims: 0,
      combine: "add",
    }),
  scatterSet: (x, y) =>
    ops.scatter(x, ops.div(ops.iota("int32", shape, 0), 2), y, { dim: 0, batchDims: 0, combine: "set" }),
  window: (x, y) => ops.dynamicUpdateSlice(x, ops.dynamicSlice(y, [index(1)], [2]), [index(2)]),
  argmax: (x, y) => spread(ops.reshape(ops.dynamicSlice(y, [ops.argmax(x, 0)], [1]), [])),
  named: (x) => checkpointName(ops.sin(x), "kept"),
  barrier: (x, y) => ops.optimizationBarrier([x, y]).at(0) ?? x,
};

/** One step of a body: what it does to which of the values so far. */
interface Step {
  readonly name: string;
  readonly left: number;
  readonly right: number;
}

/** What a random function computes. */
export type Body = readonly Step[];

/** Random bodies, printed by their steps. */
export const randomBody: fc.Arbitrary<Body> = fc.array(
  fc.record({
    name: fc.constantFrom(...Object.keys(steps)),
    left: fc.nat({ max: 7 }),
    right: fc.nat({ max: 7 }),
  }),
  { minLength: 1, maxLength: 6 },
);

/** The function that a body describes; every step may read all values before it. */
export function bodyFunction(body: Body): Fn {
  return (x, y) => {
    const values = [x, y];
    const read = (i: number) => values[i % values.length] ?? x;
    for (const { name, left, right } of body) {
      const step = steps[name];
      if (!step) throw new Error(`there is no step ${name}`);
      values.push(step(read(left), read(right)));
    }
    return ops.tanh(ops.add(read(values.length - 1), ops.mul(read(values.length - 2), 0.5)));
  };
}

/** A transform around a function, and a plain function with the same values. */
interface Layer {
  readonly around: (f: Fn) => Fn;
  readonly plain: (f: Fn) => Fn;
}

const same = (f: Fn): Fn => f;
const half = (x: Tensor) => ops.mul(x, 0.5);
const stack = (xs: readonly Tensor[]) =>
  ops.concatenate(
    xs.map((x) => ops.reshape(x, [1, ...x.shape])),
    0,
  );
const row = (x: Tensor, i: number) => ops.reshape(ops.sliceDim(x, 0, i, i + 1), x.shape.slice(1));

const rematLayer = (options: Parameters<typeof remat>[1]): Layer => ({
  around: (f) => remat(f, options),
  plain: same,
});

/** What can be put around a function. */
export const layers: Readonly<Record<string, Layer>> = {
  jit: { around: (f) => jit(f), plain: same },
  remat: rematLayer({}),
  rematEverything: rematLayer({ policy: checkpointPolicies.everythingSaveable }),
  rematDots: rematLayer({ policy: checkpointPolicies.dotsSaveable }),
  rematNames: rematLayer({ policy: checkpointPolicies.saveOnlyTheseNames("kept") }),
  rematBoth: rematLayer({
    policy: checkpointPolicies.saveFromBothPolicies(
      checkpointPolicies.dotsWithNoBatchDimsSaveable,
      checkpointPolicies.saveAnyNamesButThese("other"),
    ),
  }),
  customVjp: {
    around: (f) =>
      customVjp(f, {
        forward: (x, y): [Tensor, [Tensor, Tensor]] => [f(x, y), [x, y]],
        backward: ([x, y], ct) => vjp(f, [x, y])[1](ct),
      }),
    plain: same,
  },
  customGradient: { around: (f) => customGradient((x, y) => vjp(f, [x, y])), plain: same },
  vmap: {
    around: (f) => (x, y) => ops.reduceSum(vmap(f)(stack([x, y]), stack([y, half(x)])), [0]),
    plain: (f) => (x, y) => ops.add(f(x, y), f(y, half(x))),
  },
  vmapShared: {
    around: (f) => (x, y) => ops.reduceSum(vmap(f, { inAxes: [0, null] })(stack([x, half(x)]), y), [0]),
    plain: (f) => (x, y) => ops.add(f(x, y), f(half(x), y)),
  },
  vmapLast: {
    around: (f) => (x, y) => {
      const xs = ops.transpose(stack([x, y, half(y)]), [1, 0]);
      return half(ops.reduceSum(vmap(f, { inAxes: [1, null], outAxes: 1 })(xs, x), [1]));
    },
    plain: (f) => (x, y) => half(ops.add(ops.add(f(x, x), f(y, x)), f(half(y), x))),
  },
  vmapSum: {
    around: (f) => (x, y) => {
      const mapped = vmap(
        (a: Tensor, b: Tensor) => ops.mul(ops.psum(f(a, b), lookUpAxes("rows", "psum")), a),
        { axisName: "rows" },
      );
      return ops.reduceSum(mapped(stack([x, y]), stack([y, x])), [0]);
    },
    plain: (f) => (x, y) => ops.mul(ops.add(f(x, y), f(y, x)), ops.add(x, y)),
  },
  scan: {
    around: (f) => (x, y) => {
      const [last, ys] = scan<Tensor, null, Tensor>((c) => [f(c, y), half(c)], x, null, { length: 3 });
      return ops.add(last, row(ys, 2));
    },
    plain: (f) => (x, y) => {
      const second = f(f(x, y), y);
      return ops.add(f(second, y), half(second));
    },
  },
  scanOver: {
    around: (f) => (x, y) => {
      const body = (c: Tensor, z: Tensor): [Tensor, Tensor] => [f(c, z), f(z, y)];
      const [last, ys] = scan(body, x, stack([y, half(x)]), { reverse: true });
      return ops.add(last, ops.reduceSum(ys, [0]));
    },
    plain: (f) => (x, y) => {
      const first = f(x, half(x));
      return ops.add(f(first, y), ops.add(f(y, y), f(half(x), y)));
    },
  },
  foriLoop: {
    around: (f) => (x, y) => foriLoop(0, 2, (i, c: Tensor) => ops.add(f(c, y), spread(convertTo(i, c))), x),
    plain: (f) => (x, y) => ops.add(f(f(x, y), y), 1),
  },
  cond: {
    around: (f) => (x, y) =>
      cond(ops.compare("gt", sum(x), sum(y)), f, (a: Tensor, b: Tensor) => f(b, a), x, y),
    plain: (f) => (x, y) => {
      const chosen = ops.broadcastInDim(ops.compare("gt", sum(x), sum(y)), shape, []);
      return ops.select(chosen, f(x, y), f(y, x));
    },
  },
  shardMap: {
    around: (f) => (x, y) => {
      const mesh = Mesh.create({ i: 2 });
      const mapped = shardMap(f, { mesh, inSpecs: [P("i"), P()], outSpecs: P("i") });
      const both = mapped(ops.concatenate([x, y], 0), y);
      return ops.add(ops.sliceDim(both, 0, 0, 4), ops.sliceDim(both, 0, 4, 8));
    },
    plain: (f) => (x, y) => ops.add(f(x, y), f(y, y)),
  },
  shardMapSum: {
    around: (f) => (x, y) => {
      const mesh = Mesh.create({ i: 2 });
      const mapped = shardMap((a: Tensor, b: Tensor) => ops.psum(f(a, b), lookUpAxes("i", "psum")), {
        mesh,
        inSpecs: [P("i"), P()],
        outSpecs: P(),
      });
      return mapped(ops.concatenate([x, half(y)], 0), y);
    },
    plain: (f) => (x, y) => ops.add(f(x, y), f(half(y), y)),
  },
  grad: {
    around: (f) => grad((x: Tensor, y: Tensor) => half(sum(f(x, y)))),
    plain: (f) => grad((x: Tensor, y: Tensor) => half(sum(f(x, y)))),
  },
};

const convertTo = (i: Tensor, like: Tensor) => ops.convert(i, like.dtype);

/** Random layers, innermost first; at most two of them differentiate. */
export const randomLayers: fc.Arbitrary<readonly string[]> = fc
  .array(fc.constantFrom(...Object.keys(layers)), { minLength: 1, maxLength: 4 })
  .filter((names) => names.filter((name) => name === "grad").length <= 2)
  .filter((names) => names.filter((name) => name.startsWith("shardMap")).length <= 1)
  .filter((names) => names.filter((name) => name === "vmapSum").length <= 1);

/** The function with layers around it. */
export function around(f: Fn, names: readonly string[]): Fn {
  return names.reduce((inner, name) => layers[name]?.around(inner) ?? inner, f);
}

/** A plain function with the same values. */
export function plainly(f: Fn, names: readonly string[]): Fn {
  return names.reduce((inner, name) => layers[name]?.plain(inner) ?? inner, f);
}
