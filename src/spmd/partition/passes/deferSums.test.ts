import { describe, expect, test } from "vitest";
import { costAnalysis, jit, lax, Mesh, np, P, random, type Tensor } from "../../../index.js";

const mesh = Mesh.create({ data: 2 });
const options = { mesh, inShardings: [P(null, null, "data"), P(null, "data")], outShardings: P() } as const;
/** Three layers of weights' gradients x · y for each of four microbatches: [microbatch, layer, row, feature]. */
const x = random.normal(random.key(0), [4, 3, 8, 2]);
const y = random.normal(random.key(1), [4, 8, 5]);

/** Collects what `gradient` gives for every layer and microbatch. */
const collect =
  (gradient: (x: Tensor, y: Tensor) => Tensor, dtype: "float32" | "bfloat16" = "float32") =>
  (xs: Tensor, ys: Tensor) =>
    lax.scan(
      (sum: Tensor, [layers, rows]: [Tensor, Tensor]) => {
        const [, stacked] = lax.scan(
          (_: null, layer: Tensor) => [null, gradient(layer.astype(dtype), rows.astype(dtype))],
          null,
          layers,
        );
        return [sum.add(stacked.astype("float32")), null];
      },
      np.zeros([3, 2, 5]),
      [xs, ys] as [Tensor, Tensor],
    )[0];

const product = (a: Tensor, b: Tensor) => np.matmul(np.swapaxes(a, 0, 1), b);
const cases: readonly (readonly [string, (a: Tensor, b: Tensor) => Tensor, number])[] = [
  ["products", product, 1],
  ["products in turns", (a, b) => np.negative(product(a, b)).reshape([5, 2]).reshape([2, 5]), 1],
  ["sums of products", (a, b) => product(a, b).add(np.negative(product(np.sin(a), b))), 1],
  // A sum of hyperbolic tangents is not the tangent of a sum.
  ["functions of products", (a, b) => np.tanh(product(a, b)), 12],
  // Every reader but the sum needs the whole value.
  ["products that are used twice", (a, b) => product(a, b).mul(np.max(product(a, b))), 12],
];

describe("what a loop collects over devices", () => {
  test.each(cases)("is right for %s, and summed as rarely as can be", async (_name, gradient, numSums) => {
    const fn = collect(gradient);
    const got = await jit(fn, options)(x, y).data();
    const want = await jit(fn)(x, y).data();
    got.forEach((value, i) => {
      expect(value).toBeCloseTo(Number(want[i]), 4);
    });
    const { collectives } = costAnalysis(fn, options)(x, y);
    const sums = collectives.filter(({ op }) => op === "psum");
    expect(sums.reduce((n, { count }) => n + count, 0)).toBe(numSums);
  });

  test("is summed once however deep the loop is in which it is stacked", async () => {
    const inGroups = (xs: Tensor, ys: Tensor) =>
      lax.scan(
        (sum: Tensor, [groups, rows]: [Tensor, Tensor]) => {
          const layers = (_: null, group: Tensor): [null, Tensor] =>
            lax.scan((none: null, layer: Tensor) => [none, product(layer, rows)], null, group);
          const [, stacked] = lax.scan(layers, null, groups);
          return [sum.add(stacked), null];
        },
        np.zeros([1, 3, 2, 5]),
        [np.expandDims(xs, 1), ys] as [Tensor, Tensor],
      )[0];
    const got = await jit(inGroups, options)(x, y).data();
    const want = await jit(inGroups)(x, y).data();
    got.forEach((value, i) => {
      expect(value).toBeCloseTo(Number(want[i]), 4);
    });
    const { collectives } = costAnalysis(inGroups, options)(x, y);
    expect(collectives.map(({ op, count }) => [op, count])).toEqual([["psum", 1]]);
  });

  test("is summed in the wide type where 16-bit values are collected in float32", () => {
    const { collectives } = costAnalysis(collect(product, "bfloat16"), options)(x, y);
    expect(collectives.map(({ op, count, bytes }) => [op, count, bytes])).toEqual([
      ["psum", 1, 4 * 3 * 2 * 5],
    ]);
  });

  type Action = (sum: Tensor, gradient: Tensor) => Tensor;
  const ofLayers = (layers: Tensor, rows: Tensor) => np.einsum("lij,ik->ljk", layers, rows);
  const addBlocks = (sum: Tensor, layers: Tensor, rows: Tensor) =>
    lax.scan(
      (s: Tensor, [layer, d]: [Tensor, Tensor]): [Tensor, null] => {
        const block = lax.dynamicIndexInDim(s, d, 0);
        const next = block.add(np.expandDims(product(layer, rows), 0));
        return [lax.dynamicUpdateIndexInDim(s, next, d, 0), null];
      },
      sum,
      [layers, np.arange(3)] as [Tensor, Tensor],
    )[0];
  const whole = (change: Action) => (sum: Tensor, layers: Tensor, rows: Tensor) =>
    change(sum, ofLayers(layers, rows));
  const branches: readonly (readonly [string, ReturnType<typeof whole>, (sum: Tensor) => Tensor, number])[] =
    [
      ["branches add to it", whole((sum, gradient) => sum.add(gradient)), (sum) => sum, 1],
      ["a loop in a branch adds to blocks of it", addBlocks, (sum) => sum, 1],
      ["a branch reads it", whole((sum, gradient) => sum.add(gradient.mul(np.max(sum)))), (sum) => sum, 4],
      ["a branch doubles it", whole((sum, gradient) => sum.add(gradient)), (sum) => sum.mul(2), 4],
      ["a branch adds what is no sum", whole((sum, gradient) => sum.add(gradient)), (sum) => sum.add(1), 4],
    ];

  test.each(branches)("is right where %s, and summed as rarely as can be", async (_, add, other, numSums) => {
    const fn = (xs: Tensor, ys: Tensor) =>
      lax.scan(
        (sum: Tensor, [layers, rows, i]: [Tensor, Tensor, Tensor]): [Tensor, null] => {
          const isEven = np.equal(np.remainder(i, 2), 0);
          return [lax.cond(isEven, (s: Tensor) => add(s, layers, rows), other, sum), null];
        },
        np.ones([3, 2, 5]),
        [xs, ys, np.arange(4)] as [Tensor, Tensor, Tensor],
      )[0];
    const got = await jit(fn, options)(x, y).data();
    const want = await jit(fn)(x, y).data();
    got.forEach((value, i) => {
      expect(value).toBeCloseTo(Number(want[i]), 3);
    });
    const { collectives } = costAnalysis(fn, options)(x, y);
    const sums = collectives.filter(({ op }) => op === "psum");
    expect(sums.reduce((n, { count }) => n + count, 0)).toBe(numSums);
  });
});
