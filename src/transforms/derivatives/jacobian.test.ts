import { grad, hessian, jacfwd, jacrev, jit, linearize, np, type Tensor } from "shardwise";
import { describe, expect, test } from "vitest";

const x = np.array([0.3, -1.2, 0.7]);
const numbers = async (t: Tensor) => [...(await t.data())].map(Number);
const close = (got: readonly number[], want: readonly number[]) => {
  expect(got).toHaveLength(want.length);
  got.forEach((value, i) => {
    expect(value).toBeCloseTo(want[i] ?? Number.NaN, 5);
  });
};

/** sin(x_i) · x_j: derivatives cos(x_i) x_j [i = k] + sin(x_i) [j = k]. */
const table = (v: Tensor) => np.outer(np.sin(v), v);
const wanted = [0.3, -1.2, 0.7].flatMap((a, i, all) =>
  all.flatMap((b, j) => all.map((_, k) => (i === k ? Math.cos(a) * b : 0) + (j === k ? Math.sin(a) : 0))),
);

describe.each([
  ["jacrev", jacrev],
  ["jacfwd", jacfwd],
])("%s", (_, jacobian) => {
  test("has the derivatives of every result by every element", async () => {
    const result = jacobian(table)(x);
    expect(result.shape).toEqual([3, 3, 3]);
    close(await numbers(result), wanted);
    close(await numbers(jit((v: Tensor) => jacobian(table)(v))(x)), wanted);
  });

  test("goes through trees and chooses its argument", async () => {
    const fn = (scale: Tensor, p: { a: Tensor; b: Tensor }) => ({ y: p.a.mul(scale), z: np.sum(p.b) });
    const result = jacobian(fn, { argnums: 1 })(np.array(2), { a: x, b: np.ones([2, 2]) });
    close(await numbers(result.y.a), [2, 0, 0, 0, 2, 0, 0, 0, 2]);
    expect(result.y.b.shape).toEqual([3, 2, 2]);
    close(await numbers(result.z.b), [1, 1, 1, 1]);
    close(await numbers(result.z.a), [0, 0, 0]);
  });

  test("gives a list for a list of arguments, in its order", async () => {
    const fn = (a: Tensor, _: Tensor, b: { readonly w: Tensor }) => ({ y: np.outer(a, b.w) });
    const { y } = jacobian(fn, { argnums: [-1, 0] })(np.array([2, 3]), x, { w: np.array([5]) });
    close(await numbers(y[0].w), [2, 3]);
    expect(y[0].w.shape).toEqual([2, 1, 1]);
    close(await numbers(y[1]), [5, 0, 0, 5]);
    expect(y[1].shape).toEqual([2, 1, 2]);
    expect(() => jacobian(fn, { argnums: [0, 3] })(x, x, { w: x })).toThrow(/argnums 3 names no argument/);
  });
});

test("a hessian by several arguments is a list of lists", async () => {
  const loss = (a: Tensor, b: Tensor) => np.sum(a.mul(a).mul(b));
  const [[aa, ab], [ba, bb]] = hessian(loss, { argnums: [0, 1] })(np.array([2]), np.array([3]));
  for (const [got, want] of [
    [aa, 6],
    [ab, 4],
    [ba, 4],
    [bb, 0],
  ] as const)
    close(await numbers(got), [want]);
});

test("a hessian holds second derivatives", async () => {
  const loss = (v: Tensor) => np.sum(v.mul(v).mul(v)).add(np.prod(v));
  const [a, b, c] = [0.3, -1.2, 0.7];
  close(await numbers(hessian(loss)(x)), [6 * a, c, b, c, 6 * b, a, b, a, 6 * c]);
});

test("a hessian of a tree is a tree of trees", async () => {
  const loss = (scale: Tensor, p: { w: Tensor; b: Tensor }) =>
    np.sum(np.square(p.w).mul(p.b)).mul(scale).add(np.square(p.b));
  const [w, b] = [np.array([0.3, -1.2]), np.array(0.7)];
  const all = hessian(loss, { argnums: -1 })(np.array(3), { w, b });
  close(await numbers(all.w.w), [4.2, 0, 0, 4.2]);
  close(await numbers(all.w.b), [1.8, -7.2]);
  close(await numbers(all.b.w), [1.8, -7.2]);
  close(await numbers(all.b.b), [2]);
});

test("a linearised function maps directions", async () => {
  const loss = (v: Tensor) => np.sum(np.sin(v));
  const [value, push] = linearize(loss, [x]);
  const direction = np.array([1, 2, 3]);
  close(await numbers(value), await numbers(loss(x)));
  close(await numbers(push(direction)), await numbers(np.sum(grad(loss)(x).mul(direction))));
});

test("what is no tensor is refused", () => {
  expect(() => jacrev((_: Tensor) => "text")(x)).toThrow(/differentiates trees of tensors/);
});
