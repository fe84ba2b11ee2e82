import { grad, jacfwd, jacrev, jit, jvp, lax, np, type Tensor, tree, vmap } from "shardwise";
import { describe, expect, test } from "vitest";
import { expectClose } from "../../test/support/goldens.js";

const near = { rtol: 1e-4, atol: 1e-5 };

describe("customRoot", () => {
  const squareRoot = (a: Tensor) =>
    lax.customRoot(
      (x: Tensor) => x.mul(x).sub(a),
      np.ones(a.shape),
      // A loop without derivatives.
      (f, x) =>
        lax.whileLoop(
          (y: Tensor) => np.any(np.abs(f(y)).gt(1e-4)),
          (y: Tensor) => y.sub(f(y).div(y.mul(2))),
          x,
        ),
      (g, y) => y.div(g(np.onesLike(y))),
    );

  test("finds a root, whose derivatives follow from the equation", async () => {
    const a = np.array([4, 9]);
    await expectClose(squareRoot(a), np.array([2, 3]), near);
    await expectClose(grad((x: Tensor) => np.sum(squareRoot(x)))(a), np.array([1 / 4, 1 / 6]), near);
    await expectClose(jit(vmap(grad(squareRoot)))(a), np.array([1 / 4, 1 / 6]), near);
  });

  test("is the root also where the slope of the equation is 0", async () => {
    const known = (a: Tensor) =>
      lax.customRoot(
        (x: Tensor) => x.mul(x).sub(a),
        np.ones([1]),
        () => np.sqrt(a),
        (g, y) => y.div(g(np.onesLike(y))),
      );
    await expectClose(known(np.array([0, 4])), np.array([0, 2]));
    const summed = (a: Tensor) => np.sum(known(a));
    const four = np.array([4]);
    await expectClose(jvp(summed, [four], [np.array([1])])[1] as Tensor, np.array(1 / 4), near);
  });
});

describe("derivatives of derivatives of customRoot", () => {
  type Of2 = (a: Tensor, b: Tensor) => Tensor;
  /** The root of x³ + ax − b by a loop without reverse-mode derivatives. */
  const cubic: Of2 = (a, b) =>
    lax.customRoot(
      (x: Tensor) => x.mul(x).mul(x).add(a.mul(x)).sub(b),
      np.onesLike(a),
      (f, guess) =>
        lax.whileLoop(
          ([, count]: readonly [Tensor, Tensor]) => count.lt(30),
          ([x, count]: readonly [Tensor, Tensor]): readonly [Tensor, Tensor] => [
            x.sub(f(x).div(x.mul(x).mul(3).add(a))),
            count.add(1),
          ],
          [guess, np.array(0, "int32")],
        )[0],
      (g, y) => y.div(g(np.onesLike(y))),
    );
  const fn: Of2 = (a, b) => np.sin(cubic(a, b));
  const by = (inner: Of2, argnums: 0 | 1): Of2 => grad(inner, { argnums });
  const along = (inner: Of2, place: 0 | 1): Of2 => {
    const direction: [Tensor, Tensor] = [np.array(1 - place), np.array(place)];
    return (a, b) => jvp(inner, [a, b], direction)[1];
  };
  const [a, b] = [np.array(2), np.array(5)];

  // Values from JAX 0.10.2.
  test.each([
    [0, 0, -0.02891164],
    [0, 1, 0.0262818],
    [1, 0, 0.0262818],
    [1, 1, -0.02318595],
  ] as const)("by arguments %i and %i are JAX's in both directions", async (i, j, wanted) => {
    for (const twice of [by(by(fn, i), j), along(by(fn, i), j), by(along(fn, i), j), along(along(fn, i), j)])
      await expectClose(twice(a, b), np.array(wanted), near);
    await expectClose(jit(by(by(fn, i), j))(a, b), np.array(wanted), near);
  });

  test("are JAX's in batches, and of the third order", async () => {
    const [as, bs] = [np.array([1, 2, 3]), np.array([4, 5, 6])];
    const mixed = np.array([0.03310115, 0.0262818, 0.0205266]);
    await expectClose(vmap(by(by(fn, 0), 1))(as, bs), mixed, near);
    await expectClose(jit(vmap(by(by(fn, 1), 0)))(as, bs), mixed, near);
    await expectClose(by(by(by(fn, 0), 0), 0)(a, b), np.array(0.01052098), near);
    await expectClose(along(along(along(fn, 0), 0), 0)(a, b), np.array(0.01052098), near);
  });
});

describe("customLinearSolve", () => {
  const a = np.array([
    [4, 1],
    [2, 5],
  ]);
  const b = np.array([1, 3]);
  /** Jacobi's iteration, until nothing changes: it has no derivative of its own. */
  const byLoop = (matrix: Tensor) => (_: unknown, right: Tensor) =>
    lax.whileLoop(
      ([, count]: readonly [Tensor, Tensor]) => count.lt(60),
      ([x, count]: readonly [Tensor, Tensor]): readonly [Tensor, Tensor] => [
        x.add(right.sub(np.matmul(matrix, x)).div(np.diag(matrix))),
        count.add(1),
      ],
      [np.zerosLike(right), np.array(0, "int32")],
    )[0];
  const solved = (matrix: Tensor, right: Tensor) =>
    lax.customLinearSolve((x: Tensor) => np.matmul(matrix, x), right, byLoop(matrix), {
      transposeSolve: byLoop(np.transpose(matrix)),
    });

  test("solves, with the derivatives of np.linalg.solve", async () => {
    await expectClose(solved(a, b), np.linalg.solve(a, b), near);
    const slopes = (solve: typeof solved) =>
      grad((m: Tensor, r: Tensor) => np.sum(np.sin(solve(m, r))), { argnums: [0, 1] })(
        a,
        b,
      ) as readonly Tensor[];
    const wanted = slopes((m, r) => np.linalg.solve(m, r));
    for (const [i, slope] of slopes(solved).entries()) await expectClose(slope, wanted[i] ?? b, near);
  });

  test("has the second derivatives of np.linalg.solve, in both directions and in batches", async () => {
    type Args = readonly [matrix: Tensor, right: Tensor];
    const loss =
      (solve: typeof solved) =>
      ([m, r]: Args) =>
        np.sum(np.sin(solve(m, r)));
    const matrices = (hessian: unknown) => tree.leaves(hessian) as Tensor[];
    const wanted = matrices(jacrev(grad(loss((m, r) => np.linalg.solve(m, r))))([a, b]));
    const slope = grad(loss(solved));
    const many = vmap(jacrev(slope))([np.stack([a, a]), np.stack([b, b])]);
    for (const [i, all] of wanted.entries()) {
      const close = (hessian: unknown) => expectClose(matrices(hessian)[i] ?? b, all, near);
      await close(jacrev(slope)([a, b]));
      await close(jit(jacfwd(slope))([a, b]));
      await expectClose((matrices(many)[i] ?? b).get(1), all, near);
    }
  });

  test("asks for the transposed solver where it is needed", () => {
    const plain = (right: Tensor) =>
      np.sum(lax.customLinearSolve((x: Tensor) => np.matmul(a, x), right, byLoop(a)));
    expect(() => plain(b)).not.toThrow();
    expect(() => grad(plain)(b)).toThrow("give it, or symmetric: true");
  });
});

test("mulhi gives the upper half of products, of JAX's values", async () => {
  const high = async (dtype: "int32" | "uint32" | "int8" | "uint16", x: number[], y: number[]) =>
    lax.mulhi(np.array(x, dtype), np.array(y, dtype)).js();
  const most = 2 ** 31;
  expect(await high("int32", [100000, -70000, most - 1, -most], [-30000, 90000, most - 1, -most])).toEqual([
    -1, -2, 1073741823, 1073741824,
  ]);
  expect(await high("uint32", [4e9, 7], [3e9, 9])).toEqual([2793967723, 0]);
  expect(await high("int8", [-100], [100])).toEqual([-40]);
  expect(await high("uint16", [60000], [50000])).toEqual([45776]);
  expect(() => lax.mulhi(np.array([1]), np.array([2]))).toThrow("multiplies integers");
});

test("broadcastLike, broadcastToRank and empty make tensors of the shapes that are asked for", async () => {
  expect(await lax.broadcastLike(np.array([[1], [2]]), np.zeros([3, 2, 2])).js()).toEqual([
    [
      [1, 1],
      [2, 2],
    ],
    [
      [1, 1],
      [2, 2],
    ],
    [
      [1, 1],
      [2, 2],
    ],
  ]);
  expect(lax.broadcastToRank(np.ones([2]), 3).shape).toEqual([1, 1, 2]);
  expect(lax.empty([2, 3], "bool").dtype).toBe("bool");
  expect(() => lax.broadcastLike(np.ones([3]), np.ones([2]))).toThrow("dims must be equal or 1");
  expect(() => lax.broadcastToRank(np.ones([2, 2]), 1)).toThrow("has 2 dims already");
});

test("raggedDotGeneral agrees with products of each group, with gradients", async () => {
  const [x, y] = [
    np.arange(12, "float32").reshape([4, 3]),
    np.arange(18, "float32").reshape([2, 3, 3]).mul(0.5),
  ];
  const sizes = np.array([1, 2], "int32");
  const free = { lhsContract: [1], rhsContract: [1], lhsRagged: 0, rhsGroup: 0 };
  const product = (a: Tensor, b: Tensor) => lax.raggedDotGeneral(a, b, sizes, free);
  await expectClose(product(x, y), lax.raggedDot(x, y, sizes), near);
  const slope = (fn: typeof product) => grad((b: Tensor) => np.sum(np.square(fn(x, b))))(y);
  await expectClose(
    slope(product),
    slope((a, b) => lax.raggedDot(a, b, sizes)),
    near,
  );
  const summed = lax.raggedDotGeneral(x, x, sizes, { lhsContract: [0], rhsContract: [0], lhsRagged: 0 });
  const rows = (from: number, to: number) => x.get(np.s(from, to));
  await expectClose(summed.get(1), np.matmul(np.transpose(rows(1, 3)), rows(1, 3)), near);
  const batch = { lhsContract: [1], rhsContract: [1], lhsBatch: [0], rhsBatch: [0], lhsRagged: 0 };
  await expectClose(lax.raggedDotGeneral(x, x, sizes, batch), np.sum(np.square(x), 1), near);
  expect(() => lax.raggedDotGeneral(x, y, sizes, { ...free, rhsGroup: undefined })).toThrow("give it");
});

test("raggedDot multiplies complex numbers", async () => {
  const z = lax.complex(
    np.array([
      [1, 3],
      [0, 1],
    ]),
    np.array([
      [2, -1],
      [2, 0],
    ]),
  );
  const w = np.matmul(z, z);
  const product = lax.raggedDot(z, np.stack([z, w]), np.array([1, 1], "int32"));
  await expectClose(np.abs(product.get(0).sub(np.matmul(z.get(0), z))), np.zeros([2]), near);
  await expectClose(np.abs(product.get(1).sub(np.matmul(z.get(1), w))), np.zeros([2]), near);
});

test("the slope of gamma samples has a forward derivative", async () => {
  const [a, x] = [np.array([1, 2, 0.5]), np.array([2, 0.3, 1])];
  const [, byA] = jvp((u: Tensor) => lax.randomGammaGrad(u, x), [a], [np.ones([3])]);
  const [, byX] = jvp((v: Tensor) => lax.randomGammaGrad(a, v), [x], [np.ones([3])]);
  // From JAX 0.10.2.
  await expectClose(byA, np.array([-0.9751087, -0.13006955, -2.6593087]), near);
  await expectClose(byX, np.array([0.3613291, 0.78869134, 0.85386145]), near);
});

test("functions of floats refuse integers, and orders complex numbers, as JAX's do", () => {
  const integers = np.array([1, 2], "int32");
  for (const fn of [
    lax.exp2,
    lax.tan,
    lax.asin,
    lax.acos,
    lax.atan,
    lax.cosh,
    lax.asinh,
    lax.acosh,
    lax.erfc,
  ]) {
    expect(() => fn(integers)).toThrow("i32[2]");
  }
  const z = lax.complex(np.array([1]), np.array([2]));
  for (const fn of [lax.lt, lax.le, lax.gt, lax.ge]) expect(() => fn(z, z)).toThrow("no order");
});

test("the slope of the incomplete gamma function by a is as precise as its type", async () => {
  // By central differences in float64.
  const a = np.array([0.6549802422523499, 0.4690755307674408, 1.0103371143341064, 2.844242572784424]);
  const x = np.array([1.79068124294281, 1.8423540592193604, 1.3427830934524536, 2.362098455429077]);
  const wide = (by: number) => lax.igamma(a.astype("float64").add(by), x.astype("float64"));
  const h = 1e-5;
  const slope = wide(h)
    .sub(wide(-h))
    .div(2 * h)
    .astype("float32");
  await expectClose(lax.igammaGradA(a, x), slope, { rtol: 5e-6, atol: 0 });
});
