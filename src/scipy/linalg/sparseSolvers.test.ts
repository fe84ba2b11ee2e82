import { grad, jit, jvp, np, scipy, type Tensor } from "shardwise";
import { describe, expect, test } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";

const { bicgstab, cg } = scipy.sparse.linalg;
const base = np.sin(np.arange(16, "float32").mul(1.3)).reshape(4, 4);
const b = np.array([1, -2, 0.5, 3]);
const symmetric = np.matmul(base, base.transpose()).add(np.eye(4).mul(2));
const regular = base.add(np.eye(4).mul(4));
const M = np.diag(np.divide(1, np.diag(symmetric)));
const tolerance = { rtol: 2e-5, atol: 2e-6 };

/** Solutions by JAX: exact, after two steps, from ones to within 0.5, with an approximate inverse; and slopes. */
const wanted = {
  cg: {
    exact: [0.9074209, -0.5290542, 0.2838711, 1.060792],
    short: [0.9022824, -0.5686091, 0.2200359, 1.035505],
    rough: [0.8566704, -0.4481502, 0.2027851, 1.16917],
    prepared: [0.8952653, -0.5567338, 0.1931405, 1.046066],
    byMatrix: [
      -0.467454, 0.27254, -0.146235, -0.5464627, -0.2568554, 0.1497546, -0.08035284, -0.3002689, -0.2555073,
      0.1489686, -0.07993108, -0.2986929, -0.9471217, 0.5522009, -0.2962908, -1.107203,
    ],
    byVector: [0.5151458, 0.283061, 0.2815753, 1.043751],
  },
  bicgstab: {
    exact: [0.4473798, -0.4227743, -1.672795e-5, 0.5556293],
    short: [0.4501355, -0.4199189, -0.002505574, 0.5500624],
    rough: [0.470479, -0.4184069, -0.01324364, 0.5633653],
    prepared: [0.4501815, -0.4188435, -0.001948377, 0.5518553],
    byMatrix: [
      -0.07162511, 0.06768578, 2.67813e-6, -0.08895576, -0.1787135, 0.1688844, 6.682267e-6, -0.2219557,
      -0.1878393, 0.1775083, 7.023489e-6, -0.2332896, -0.2494862, 0.2357647, 9.328524e-6, -0.3098527,
    ],
    byVector: [0.1600991, 0.3994672, 0.4198655, 0.5576609],
  },
};

describe.each([
  ["cg", cg, symmetric, wanted.cg],
  ["bicgstab", bicgstab, regular, wanted.bicgstab],
] as const)("%s", (_, solve, matrix, want) => {
  test("takes JAX's steps", async () => {
    const [exact, short, rough, prepared] = jit((A: Tensor) => [
      solve(A, b, { tol: 1e-7 })[0],
      solve(A, b, { maxiter: 2 })[0],
      solve(A, b, { x0: np.ones([4]), atol: 0.5, tol: 0 })[0],
      solve((x: Tensor) => np.matmul(A, x), b, { M, maxiter: 2 })[0],
    ])(matrix);
    await expectClose(exact as Tensor, want.exact, tolerance);
    await expectClose(short as Tensor, want.short, tolerance);
    await expectClose(rough as Tensor, want.rough, tolerance);
    await expectClose(prepared as Tensor, want.prepared, tolerance);
  });

  test("has JAX's derivatives by the matrix and the right side", async () => {
    const loss = (A: Tensor, y: Tensor) => np.sum(solve(A, y, { tol: 1e-7 })[0].mul(np.arange(4)));
    const [byMatrix, byVector] = grad(loss, { argnums: [0, 1] })(matrix, b);
    await expectClose(byMatrix.reshape(16), want.byMatrix, tolerance);
    await expectClose(byVector, want.byVector, tolerance);
    const [, change] = jvp(loss, [matrix, b], [base, np.ones([4])]);
    const slopes = np.array(want.byMatrix).mul(base.reshape(16));
    await expectClose(change, np.sum(slopes).add(np.sum(np.array(want.byVector))), tolerance);
  });
});

test("solvers take functions of trees", async () => {
  const [x] = cg(
    ({ u, v }: { u: Tensor; v: Tensor }) => ({
      u: u.mul(3).add(np.sum(v)),
      v: v.mul(2).add(np.sum(u).mul(0.5)),
    }),
    { u: np.array([1, 2]), v: np.array([3]) },
    { maxiter: 3 },
  );
  await expectClose(x.u, [-0.2351683, 0.1398255], tolerance);
  await expectClose(x.v, [1.613552], tolerance);
});

test("solvers refuse what is no square matrix, and no tensor", () => {
  expect(() => cg(np.ones([2, 3]), np.ones([3]))).toThrow(
    "A must be a function or a square matrix, got f32[2,3]",
  );
  expect(() => bicgstab(regular, "b")).toThrow("b must be a tensor or a tree of tensors");
});
