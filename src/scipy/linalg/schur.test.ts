import { grad, jit, lax, np, scipy, type Tensor, vmap } from "shardwise";
import { describe, expect, test } from "vitest";
import { a, b, expectClose } from "../../../test/support/complexMatrices.js";

const { linalg } = scipy;
const complex = lax.complex(a, np.transpose(b));
const adjoint = (x: Tensor) => np.conj(np.swapaxes(x, -1, -2));
const product = (...matrices: readonly Tensor[]) => matrices.reduce((x, y) => np.matmul(x, y));

describe("Schur's and Hessenberg's decompositions", () => {
  test("of real matrices give back the matrix, with blocks of at most two rows", async () => {
    for (const x of [
      a,
      b,
      np.array([
        [0, 1, 0],
        [0, 0, 1],
        [1, 0, 0],
      ]),
      np.array([
        [2, 1, 0],
        [0, 2, 1],
        [0, 0, 2],
      ]),
    ]) {
      const [t, z] = linalg.schur(x);
      await expectClose(product(z, t, adjoint(z)), x);
      await expectClose(product(z, adjoint(z)), np.eye(x.shape[0] ?? 0));
      await expectClose(np.tril(t, -2), np.zeros(x.shape));
    }
    const [t] = linalg.schur(b);
    const blocks = (await t.js()) as number[][];
    for (const k of [0, 2]) {
      expect(blocks[k]?.[k]).toBe(blocks[k + 1]?.[k + 1]);
      expect((blocks[k]?.[k + 1] ?? 0) * (blocks[k + 1]?.[k] ?? 0)).toBeLessThan(0);
    }
    expect(blocks[2]?.[1]).toBe(0);
  });

  test("become complex with rsf2csf, and of complex matrices are triangles", async () => {
    for (const [t, z] of [linalg.rsf2csf(...linalg.schur(b)), linalg.schur(b, { output: "complex" })]) {
      await expectClose(product(z, t, adjoint(z)), b.astype("complex64"));
      await expectClose(np.abs(np.tril(t, -1)), np.zeros([4, 4]));
    }
    const [t, z] = linalg.schur(complex);
    await expectClose(product(z, t, adjoint(z)), complex);
  });

  test("hessenberg has LAPACK's signs, which JAX has, also for complex numbers", async () => {
    const [h, q] = linalg.hessenberg(a, { calcQ: true });
    await expectClose(h, [
      [1, -5.077963, 1.1674771, 1.3606182],
      [-3.7416575, 5.785713, -3.612969, -1.824582],
      [0, -2.9923363, 2.4934874, -0.5771625],
      [0, 0, -0.04263989, -1.2792023],
    ]);
    await expectClose(product(q, h, adjoint(q)), a);
    const hz = linalg.hessenberg(complex);
    await expectClose(np.diag(hz, -1), np.array([-5.744563, -4.629129, 3.8259342]).astype("complex64"));
  });

  test("are mapped and compiled", async () => {
    const both = jit(vmap((x: Tensor) => linalg.schur(x)))(np.stack([a, b]));
    await expectClose(product(both[1], both[0], adjoint(both[1])), np.stack([a, b]));
    await expectClose(
      vmap((x: Tensor) => linalg.hessenberg(x))(np.stack([a, b])).get(0),
      linalg.hessenberg(a),
    );
  });
});

describe("functions of matrices", () => {
  test("funm applies a function to eigenvalues", async () => {
    const value = linalg.funm(
      np.array([
        [1, 2],
        [3, 4],
      ]),
      (x) => np.sin(x).add(np.cos(x).mul(2)),
    );
    await expectClose(np.real(value), [
      [1.2452652, -0.3701772],
      [-0.55526584, 0.6899995],
    ]);
    await expectClose(np.real(linalg.funm(b.mul(0.3), np.exp)), linalg.expm(b.mul(0.3)));
  });

  test("solveSylvester solves the equation, with derivatives by all three matrices", async () => {
    const [l, r, c] = [a.add(np.eye(4).mul(5)), b.add(np.eye(4).mul(6)), a];
    const x = linalg.solveSylvester(l, r, c);
    await expectClose(np.matmul(l, x).add(np.matmul(x, r)), c);
    const z = linalg.solveSylvester(complex, r, c);
    await expectClose(np.matmul(complex, z).add(np.matmul(z, r)), c.astype("complex64"), {
      rtol: 1e-3,
      atol: 1e-3,
    });
    const loss = (...args: [Tensor, Tensor, Tensor]) => np.sum(np.sin(linalg.solveSylvester(...args)));
    const found = jit(grad(loss, { argnums: [0, 1, 2] }))(l, r, c) as readonly Tensor[];
    // The derivative along a direction, by central differences in float64.
    const wide = jit(loss);
    const h = 1e-6;
    for (const [i, slope] of found.entries()) {
      const moved = (by: number) =>
        wide(
          ...([l, r, c].map((x, j) =>
            i === j ? x.astype("float64").add(b.mul(by)) : x.astype("float64"),
          ) as [Tensor, Tensor, Tensor]),
        );
      const along = moved(h)
        .sub(moved(-h))
        .div(2 * h);
      await expectClose(np.sum(slope.mul(b)), along.astype("float32"), { rtol: 1e-3, atol: 1e-4 });
    }
  });

  test("solveSylvester has no solution where eigenvalues cancel", async () => {
    const x = linalg.solveSylvester(np.eye(2), np.eye(2).neg(), np.ones([2, 2]));
    expect(await np.all(np.isnan(x)).js()).toBe(true);
    expect(() => linalg.solveSylvester(a, np.eye(3), a)).toThrow(
      "c needs the rows of a and the columns of b",
    );
  });

  test("eighTridiagonal gives the eigenvalues that are asked for", async () => {
    const [d, e] = [np.array([1, 2, 3, 4]), np.array([1, 1, 1])];
    const all = [0.2547188, 1.8227171, 3.1772828, 4.745281];
    await expectClose(linalg.eighTridiagonal(d, e, { eigvalsOnly: true }), all);
    const [values, vectors] = linalg.eighTridiagonal(d, e, { select: "i", selectRange: [1, 2] });
    await expectClose(values, all.slice(1, 3));
    const matrix = np.diag(d).add(np.diag(e, 1)).add(np.diag(e, -1));
    await expectClose(np.matmul(matrix, vectors), vectors.mul(values));
    expect(() => linalg.eighTridiagonal(d, e, { select: "i", selectRange: [2, 4] })).toThrow("last < 4");
    expect(() => linalg.eighTridiagonal(d, d)).toThrow("shorter by 1");
  });

  test("qrMultiply and fiedlerCompanion do what they say", async () => {
    const [q, r] = np.linalg.qr(a);
    const [left, own] = linalg.qrMultiply(a, b, { mode: "left" });
    await expectClose(left, np.matmul(q, b));
    await expectClose(own, r);
    await expectClose(
      linalg.qrMultiply(complex, b, { conjugate: true })[0],
      np.matmul(b, np.conj(np.linalg.qr(complex)[0])),
    );
    const roots = np.linalg.eigvals(linalg.fiedlerCompanion(np.array([1, -16, 86, -176, 105])));
    await expectClose(np.sort(np.real(roots)), [1, 3, 5, 7], { rtol: 1e-3, atol: 1e-3 });
  });
});
