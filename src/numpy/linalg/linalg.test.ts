import { grad, jit, lax, np, random, type Tensor, vmap } from "shardwise";
import { describe, expect, test } from "vitest";
import { type CaseFunction, describeJaxCases, one, two } from "../../../test/support/jaxCases.js";
import { expectNear } from "../../../test/support/near.js";

const { linalg } = np;

const solve = (options: lax.linalg.TriangularSolveOptions) =>
  two((a, b) => lax.linalg.triangularSolve(a, b, options));
const eigh = (x: Tensor) => {
  const [values, vectors] = linalg.eigh(x);
  return [values, np.square(vectors)];
};
const svd = (x: Tensor) => {
  const [u, s, v] = linalg.svd(x, { fullMatrices: false });
  return [s, np.square(u), np.square(v), np.matmul(u.get("...", np.s(0, 1)), v.get(np.s(0, 1)))];
};

const cases: Readonly<Record<string, CaseFunction>> = {
  cholesky: one(linalg.cholesky),
  "cholesky upper": one((x) => linalg.cholesky(x, { upper: true })),
  "cholesky one triangle": one((x) => lax.linalg.cholesky(x, { symmetrizeInput: false })),
  "cholesky not positive": one(linalg.cholesky),
  triangularSolve: solve({ leftSide: true, lower: true }),
  "triangularSolve upper": solve({ leftSide: true }),
  "triangularSolve transposed": solve({ leftSide: true, lower: true, transposeA: true }),
  "triangularSolve right": solve({ lower: true }),
  "triangularSolve right transposed": solve({ transposeA: true }),
  "triangularSolve unit": solve({ leftSide: true, lower: true, unitDiagonal: true }),
  solveTriangular: two((a, b) => linalg.solveTriangular(a, b, { trans: true })),
  choSolve: two(linalg.choSolve),
  lu: one(lax.linalg.lu),
  "lu tall": one(lax.linalg.lu),
  "lu wide": one(lax.linalg.lu),
  qr: one((x) => linalg.qr(x)),
  "qr tall": one((x) => linalg.qr(x)),
  "qr wide": one((x) => linalg.qr(x)),
  "qr complete": one((x) => linalg.qr(x, { mode: "complete" })[1]),
  eigh: one(eigh),
  "eigh batch": one(eigh),
  "eigh upper": one((x) => linalg.eigh(x, { uplo: "U", symmetrizeInput: false })[0]),
  eigvalsh: one((x) => linalg.eigvalsh(x)),
  svd: one(svd),
  "svd tall": one(svd),
  "svd wide": one(svd),
  svdvals: one(linalg.svdvals),
  "svd low rank": one(linalg.svdvals),
  solve: two(linalg.solve),
  "solve vector": two(linalg.solve),
  "solve broadcast": two(linalg.solve),
  inv: one(linalg.inv),
  det: one(linalg.det),
  "det small": one((x) => [1, 2, 3].map((n) => linalg.det(x.get(np.s(0, n), np.s(0, n))))),
  slogdet: one(linalg.slogdet),
  "slogdet singular": one(linalg.slogdet),
  pinv: one((x) => linalg.pinv(x)),
  "pinv low rank": one((x) => linalg.pinv(x)),
  lstsq: two((a, b) => linalg.lstsq(a, b)),
  "lstsq vector": two((a, b) => linalg.lstsq(a, b)[0]),
  matrixRank: two((x, y) => [linalg.matrixRank(x), linalg.matrixRank(y), linalg.matrixRank(y, 1e3)]),
  cond: one((x) => [linalg.cond(x), linalg.cond(x, -2), linalg.cond(x, 1), linalg.cond(x, "fro")]),
  norms: one((x) => ([2, -2, "nuc", "fro"] as const).map((order) => linalg.norm(x, order, [0, 1]))),
  matrixNorm: one((x) => [linalg.matrixNorm(x), linalg.matrixNorm(x, "nuc", { keepdims: true })]),
  vectorNorm: one((x) => [
    linalg.vectorNorm(x),
    linalg.vectorNorm(x, 3, [0, 2]),
    linalg.vectorNorm(x, 1, 1, { keepdims: true }),
  ]),
  matrixPower: one((x) => [linalg.matrixPower(x, 5), linalg.matrixPower(x, -2)]),
  multiDot: (a, b, c) => a && b && c && linalg.multiDot([a, b, c]),
  expm: one(linalg.expm),
  "expm large": one(linalg.expm),
  tensorsolve: two(linalg.tensorsolve),
  tensorinv: one((x) => linalg.tensorinv(x)),
};

describeJaxCases("linalg.json", cases, {
  tolerance: 2e-4,
  everyday: ["cholesky", "triangularSolve right", "lu", "qr tall", "eigh", "svd", "solve vector"],
  occasional: [
    "cholesky upper",
    "cholesky one triangle",
    "triangularSolve upper",
    "triangularSolve transposed",
    "triangularSolve right transposed",
    "lu wide",
    "eigh batch",
    "eigh upper",
    "svd wide",
    "svd low rank",
    "solve broadcast",
    "det small",
    "slogdet singular",
    "pinv low rank",
    "lstsq vector",
    "matrixNorm",
    "expm large",
    "tensorinv",
  ],
});

const transposed = np.matrixTranspose;

describe("larger matrices", () => {
  const n = 72;
  const a = random.normal(random.key(1), [n, n]);
  const identity = np.eye(n);
  const near = async (x: Tensor, y: Tensor, tolerance: number) =>
    expectNear(await x.data(), await y.data(), tolerance);

  test("are decomposed in blocks", async () => {
    const spd = np.matmul(a, transposed(a)).add(identity.mul(n));
    const [l, [both, , order]] = jit(
      (x: Tensor, y: Tensor) => [lax.linalg.cholesky(x), lax.linalg.lu(y)] as const,
    )(spd, a);
    await near(np.matmul(l, transposed(l)), spd, 1e-5);
    const product = np.matmul(np.tril(both, -1).add(identity), np.triu(both));
    await near(product, np.take(a, order, 0), 1e-5);
    expect(await np.max(np.abs(np.tril(both, -1))).item()).toBeLessThanOrEqual(1);
    await near(np.matmul(spd, jit(linalg.solve)(spd, a)), a, 1e-5);
  });

  test("have orthonormal vectors to the last digits", async () => {
    const small = a.get(np.s(0, 40), np.s(0, 40));
    const symmetric = small.add(transposed(small));
    const [values, vectors] = jit((x: Tensor) => linalg.eigh(x))(symmetric);
    await near(np.matmul(transposed(vectors), vectors), np.eye(40), 2e-6);
    await near(np.matmul(vectors.mul(values), transposed(vectors)), symmetric, 2e-5);
    const [u, s, v] = jit((x: Tensor) => linalg.svd(x))(a.get(np.s(0, n), np.s(0, 9)));
    expect(u.shape).toEqual([n, n]);
    await near(np.matmul(transposed(u), u), identity, 2e-6);
    await near(np.matmul(u.get("...", np.s(0, 9)).mul(s), v), a.get(np.s(0, n), np.s(0, 9)), 5e-6);
  });
});

describe("derivatives", () => {
  const x = random.normal(random.key(3), [4, 4]).add(np.eye(4).mul(3));

  test("of second order agree with differences", async () => {
    const f = (t: Tensor) => np.sum(np.sin(linalg.inv(linalg.cholesky(np.matmul(t, transposed(t))))));
    const along = random.normal(random.key(4), [4, 4]);
    const slope = jit((t: Tensor) => np.sum(grad(f)(t).mul(along)));
    const second = await np.sum(grad((t: Tensor) => slope(t))(x).mul(along)).item();
    const h = 1e-2;
    const [plus, minus] = [await slope(x.add(along.mul(h))).item(), await slope(x.sub(along.mul(h))).item()];
    expect(Math.abs((plus - minus) / (2 * h) - second)).toBeLessThan(2e-2 * Math.max(1, Math.abs(second)));
  });

  test("of a wide QR decomposition go through its first columns", async () => {
    const wide = random.normal(random.key(5), [3, 5]);
    const f = (t: Tensor) => {
      const [q, r] = linalg.qr(t);
      return np.sum(np.sin(r)).add(np.sum(q.mul(np.arange(9, "float32").reshape([3, 3]))));
    };
    const gradient = [...(await jit(grad(f))(wide).data())];
    for (const i of [0, 4, 8, 13]) {
      const moved = (by: number) => jit(f)(wide.reshape([15]).at(i).add(by).reshape([3, 5])).item();
      const difference = ((await moved(1e-2)) - (await moved(-1e-2))) / 2e-2;
      expect(Math.abs(difference - Number(gradient[i]))).toBeLessThan(3e-2);
    }
  });
});

describe("errors", () => {
  test("name the shapes", () => {
    expect(() => linalg.inv(np.ones([2, 3]))).toThrow(
      /square matrices, got f32\[2,3\] of 2 rows and 3 columns/,
    );
    expect(() => linalg.solve(np.eye(3), np.ones([2]))).toThrow(
      /3 unknowns, but the right side f32\[2\] has 2/,
    );
    expect(() => linalg.cholesky(np.ones([3]))).toThrow(/needs matrices/);
    expect(() => lax.linalg.qr(np.ones([2, 2], "int32"))).toThrow(/floats/);
    expect(() => linalg.multiDot([np.ones([2, 3]), np.ones([4, 2])])).toThrow(/matrices whose shapes fit/);
    expect(() => linalg.norm(np.ones([2, 3]), 3, [0, 1])).toThrow(/no norm of matrices of order 3/);
  });
});

test("half-width floats are computed in float32", async () => {
  const x = np.array(
    [
      [4, 2],
      [2, 3],
    ],
    "bfloat16",
  );
  const l = vmap((t: Tensor) => linalg.cholesky(t))(np.stack([x, x]));
  expect(l.dtype).toBe("bfloat16");
  expectNear(await l.get(1).data(), [2, 0, 1, Math.SQRT2], 4e-3);
});
