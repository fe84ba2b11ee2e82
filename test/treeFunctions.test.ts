import { grad, jit, lax, np, ravelPytree, type Tensor, tree } from "shardwise";
import { expect, test } from "vitest";

test("ravelPytree makes one vector of a tree and a tree of a vector", async () => {
  const params = {
    w: np.array([
      [1, 2],
      [3, 4],
    ]),
    b: [np.array(new Int32Array([5]))],
  };
  const [flat, unravel] = ravelPytree(params);
  expect(await flat.js()).toEqual([5, 1, 2, 3, 4]);
  const doubled = unravel(flat.mul(2));
  expect(await doubled.w.js()).toEqual([
    [2, 4],
    [6, 8],
  ]);
  expect(doubled.b[0]?.dtype).toBe("int32");
  expect(() => unravel(np.zeros([4]))).toThrow("the tree has 5 elements");
  const loss = (vector: Tensor) => np.sum(np.square(unravel(vector).w));
  expect(await jit(grad(loss))(flat).js()).toEqual([0, 2, 4, 6, 8]);
});

test("trees are reduced and turned inside out", () => {
  expect(tree.reduce((total: number, x: number) => total + x, { a: [1, 2], b: 3 }, 10)).toBe(16);
  expect([tree.all({ a: true, b: [1] }), tree.all([true, 0])]).toEqual([true, false]);
  const rows = [
    { x: 1, y: 2 },
    { x: 3, y: 4 },
  ];
  const [outer, inner] = [tree.structure([0, 0]), tree.structure({ x: 0, y: 0 })];
  expect(tree.transpose(outer, inner, rows)).toEqual({ x: [1, 3], y: [2, 4] });
  expect(() => tree.transpose(outer, inner, [rows[0]])).toThrow("tree.transpose");
});

test("lax splits, stacks, tiles and chooses strictly", async () => {
  const x = np.arange(6).reshape([2, 3]);
  const [a, b] = lax.split(x, [1, 2], 1);
  expect([await a?.js(), await b?.js()]).toEqual([
    [[0], [3]],
    [
      [1, 2],
      [4, 5],
    ],
  ]);
  expect(() => lax.split(x, [1, 1], 1)).toThrow("sizes [1,1] add up to 2");
  expect(await lax.stack(lax.unstack(x, 1), 1).js()).toEqual(await x.js());
  expect(await lax.tile(x, [1, 2]).js()).toEqual([
    [0, 1, 2, 0, 1, 2],
    [3, 4, 5, 3, 4, 5],
  ]);
  const which = np.array(new Int32Array([0, 2, 1]));
  const cases = [10, 20, 30].map((value) => np.array(new Int32Array([value, value + 1, value + 2])));
  expect(await lax.selectN(which, ...cases).js()).toEqual([10, 31, 22]);
  const [first, second, third] = cases;
  if (!first || !second || !third) throw new Error("three cases");
  expect(await lax.selectN(np.array([true, false, true]), first, second).js()).toEqual([20, 11, 22]);
  expect(() => lax.selectN(np.array([true]), first, second, third)).toThrow("between 2 cases, got 3");
});
