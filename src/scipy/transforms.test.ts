import { grad, jit, lax, np, scipy, type Tensor, vmap } from "shardwise";
import { describe, expect, test } from "vitest";
import { a, b, expectClose } from "../../test/support/complexMatrices.js";

describe("scipy.fft", () => {
  test("gives float32 for floats of half width, as JAX does", async () => {
    const wanted = [0.03846118, -0.8476397, 0.92086303, 0.38831553];
    for (const dtype of ["float16", "bfloat16"] as const) {
      const x = np.array([1, -2, 0.5, 3], dtype);
      await expectClose(scipy.fft.idct(x), np.array(wanted));
      await expectClose(scipy.fft.dct(x), np.array([5, -5.6089354, 7.7781744, 3.088664]));
    }
  });

  test("dct is its sum of cosines, and idct its inverse", async () => {
    const x = np.array([1, -2, 3.5, 0.25, 4]);
    const wanted = [0, 1, 2, 3, 4].map((k) =>
      [1, -2, 3.5, 0.25, 4].reduce(
        (sum, v, i) => sum + 2 * v * Math.cos((Math.PI * k * (2 * i + 1)) / 10),
        0,
      ),
    );
    await expectClose(scipy.fft.dct(x), wanted);
    for (const norm of ["backward", "ortho"] as const) {
      await expectClose(scipy.fft.idct(scipy.fft.dct(x, { norm }), { norm }), x);
      await expectClose(scipy.fft.idctn(scipy.fft.dctn(a, { norm }), { norm }), a);
    }
    const z = lax.complex(a, b);
    await expectClose(scipy.fft.dct(z), lax.complex(scipy.fft.dct(a), scipy.fft.dct(b)));
  });

  test("cuts and fills dims, and is linear backward", async () => {
    await expectClose(scipy.fft.dct(a, { n: 2, dim: 0 }), scipy.fft.dct(a.get(np.s(0, 2)), { dim: 0 }));
    await expectClose(
      scipy.fft.dctn(a, { s: [6] }),
      scipy.fft.dct(
        np.pad(a, [
          [0, 0],
          [0, 2],
        ]),
      ),
    );
    const slope = grad((x: Tensor) => np.sum(scipy.fft.dct(x).mul(b)))(a);
    await expectClose(np.sum(slope.mul(a)), np.sum(scipy.fft.dct(a).mul(b)), { rtol: 1e-3, atol: 1e-3 });
    expect(() => scipy.fft.dctn(a, { s: [2], dims: [0, 1] })).toThrow("1 sizes for 2 dims");
  });
});

describe("scipy.cluster.vq and scipy.optimize", () => {
  test("vq finds the nearest codes", async () => {
    const book = np.array([
      [1, 2, 3],
      [2, 3, 4],
      [3, 4, 5],
      [4, 5, 6],
    ]);
    const [codes, distances] = scipy.cluster.vq.vq(
      np.array([
        [1.1, 2.1, 3.1],
        [5.9, 4.8, 6.2],
      ]),
      book,
    );
    expect(await codes.js()).toEqual([0, 3]);
    await expectClose(distances, [0.17320499, 1.9209373]);
    expect(await scipy.cluster.vq.vq(np.array([1, 9]), np.array([0, 10]))[0].js()).toEqual([0, 1]);
    expect(() => scipy.cluster.vq.vq(a, book)).toThrow("the same number of columns");
  });

  test("minimize finds minima, compiled and mapped", async () => {
    const himmelblau = (p: Tensor) => {
      const [x, y] = [p.get(0), p.get(1)];
      return np.square(x.mul(x).add(y).sub(11)).add(np.square(x.add(y.mul(y)).sub(7)));
    };
    const from = (x: Tensor) => scipy.optimize.minimize(himmelblau, x, { method: "BFGS" });
    const found = jit(vmap(from))(
      np.array([
        [1, 1],
        [-3, 2],
      ]),
    );
    await expectClose(found.x, [
      [3, 2],
      [-2.805118, 3.131312],
    ]);
    expect(await found.success.js()).toEqual([true, true]);
    expect(await found.status.js()).toEqual([0, 0]);
  });

  test("minimize crosses a valley in which JAX's line search gives up", async () => {
    const rosenbrock = (x: Tensor) =>
      np
        .square(x.get(1).sub(np.square(x.get(0))))
        .mul(100)
        .add(np.square(x.get(0).sub(1)));
    const { x, success } = scipy.optimize.minimize(rosenbrock, np.array([-1.2, 1]), { method: "BFGS" });
    expect(await success.js()).toBe(true);
    await expectClose(x, [1, 1], { rtol: 1e-3, atol: 1e-3 });
    const stopped = scipy.optimize.minimize(rosenbrock, np.array([-1.2, 1]), { method: "BFGS", maxiter: 2 });
    expect([await stopped.success.js(), await stopped.status.js(), await stopped.nit.js()]).toEqual([
      false,
      1,
      2,
    ]);
    expect(() => scipy.optimize.minimize(rosenbrock, a, { method: "BFGS" })).toThrow("ravel it");
  });
});
