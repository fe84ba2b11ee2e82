import { grad, jit, lax, np, scipy, type Tensor, vmap } from "shardwise";
import { describe, expect, test } from "vitest";
import { expectClose as expectNumbers } from "../../../test/support/goldens.js";

const { linalg } = scipy;
const a = np.array([
  [1, 2, 3],
  [4, 5, 6],
  [7, 8, 10],
]);
const positive = np.add(np.matmul(a, np.transpose(a)), np.eye(3));
const complex = lax.complex(a, np.transpose(a));
const b = np.array([1, 2, 3]);
type Nested = number | readonly Nested[];
const expectClose = (got: Tensor, want: Tensor | readonly Nested[], tolerance = {}) =>
  expectNumbers(got, "shape" in want ? want : np.array(want as number[]), tolerance);
const near = { rtol: 1e-4, atol: 1e-4 };

describe("solvers of scipy.linalg", () => {
  test.each(["N", "T", "C"] as const)("solve with LU factors, trans %s", async (trans) => {
    for (const matrix of [a, complex]) {
      const meant = { N: matrix, T: np.transpose(matrix), C: np.conj(np.transpose(matrix)) }[trans];
      const x = linalg.luSolve(linalg.luFactor(matrix), b, { trans });
      await expectClose(np.real(np.matmul(meant, x)), b, near);
      await expectClose(np.abs(np.imag(np.matmul(meant, x))), [0, 0, 0], near);
    }
  });

  test("solve batches, mapped and compiled", async () => {
    const batch = np.stack([a, positive]);
    const solveOne = (x: Tensor) => linalg.luSolve(linalg.luFactor(x), b);
    await expectClose(
      np.matmul(batch, linalg.luSolve(linalg.luFactor(batch), b.reshape([3, 1]))).get(1),
      [[1], [2], [3]],
      near,
    );
    await expectClose(jit(vmap(solveOne))(batch).get(0), np.linalg.solve(a, b), near);
  });

  test("solve with Cholesky's factor of either triangle, and with derivatives", async () => {
    for (const lower of [false, true]) {
      await expectClose(
        np.matmul(positive, linalg.choSolve(linalg.choFactor(positive, { lower }), b)),
        b,
        near,
      );
    }
    const slopeOf = (solve: (x: Tensor) => Tensor) => grad((x: Tensor) => np.sum(solve(x)))(positive);
    const symmetric = (x: Tensor) => np.add(x, np.transpose(x)).mul(0.5);
    const [byCholesky, byLu] = (["pos", "gen"] as const).map((assumeA) =>
      symmetric(slopeOf((x) => linalg.solve(symmetric(x), b, { assumeA }))),
    );
    if (byCholesky && byLu) await expectClose(byCholesky, byLu, { rtol: 1e-2, atol: 1e-3 });
  });

  test("read the triangle that is asked for", async () => {
    const uneven = np.array([
      [4, 99],
      [2, 5],
    ]);
    await expectClose(linalg.cholesky(uneven, { lower: true }), [
      [2, 0],
      [1, 2],
    ]);
    await expectClose(linalg.eigh(uneven, { eigvalsOnly: true }), [2.4384472, 6.5615528], near);
    await expectClose(
      linalg.solveTriangular(uneven, np.array([4, 5]), { trans: "T", lower: true }),
      [0.5, 1],
    );
  });
});

describe("decompositions of scipy.linalg", () => {
  test("lu gives factors whose product is the matrix", async () => {
    for (const matrix of [a, a.get(np.s(0, 2)), np.transpose(a.get(np.s(0, 2)))]) {
      const [p, l, u] = linalg.lu(matrix);
      await expectClose(np.matmul(p, np.matmul(l, u)), matrix, near);
      const [pl, u2] = linalg.lu(matrix, { permuteL: true });
      await expectClose(np.matmul(pl, u2), matrix, near);
    }
  });

  test("polar, qr, sqrtm and expmFrechet do what they say", async () => {
    const [u, p] = linalg.polar(
      np.array([
        [1, 2],
        [3, 4],
      ]),
    );
    await expectClose(
      u,
      [
        [-0.51449573, 0.857493],
        [0.8574929, 0.51449573],
      ],
      near,
    );
    await expectClose(
      p,
      [
        [2.057983, 2.4009802],
        [2.4009802, 3.7729688],
      ],
      near,
    );
    const [left, inner] = linalg.polar(a, { side: "left" });
    await expectClose(np.matmul(inner, left), a, near);
    const [r] = linalg.qr(a, { mode: "r" });
    await expectClose(np.matmul(np.transpose(r), r), np.matmul(np.transpose(a), a), near);
    for (const matrix of [positive, complex]) {
      const root = linalg.sqrtm(matrix);
      await expectClose(np.abs(np.subtract(np.matmul(root, root), matrix)), np.zeros([3, 3]), { atol: 2e-4 });
    }
    const [value, slope] = linalg.expmFrechet(np.eye(2), np.ones([2, 2]));
    await expectClose(
      value,
      [
        [Math.E, 0],
        [0, Math.E],
      ],
      near,
    );
    await expectClose(
      slope,
      [
        [Math.E, Math.E],
        [Math.E, Math.E],
      ],
      near,
    );
  });
});

/** Values of JAX and, where its float32 rounds them, of SciPy. */
const patterns: readonly (readonly [
  name: string,
  got: () => Tensor,
  want: readonly (readonly number[])[],
])[] = [
  [
    "toeplitz",
    () => linalg.toeplitz(np.array([1, 2, 3]), np.array([1, 5])),
    [
      [1, 5],
      [2, 1],
      [3, 2],
    ],
  ],
  [
    "hankel",
    () => linalg.hankel(np.array([1, 2, 3])),
    [
      [1, 2, 3],
      [2, 3, 0],
      [3, 0, 0],
    ],
  ],
  [
    "circulant",
    () => linalg.circulant(np.array([1, 2, 3])),
    [
      [1, 3, 2],
      [2, 1, 3],
      [3, 2, 1],
    ],
  ],
  [
    "blockDiag",
    () => linalg.blockDiag(np.ones([2, 1]), 3, np.array([1, 2])),
    [
      [1, 0, 0, 0],
      [1, 0, 0, 0],
      [0, 3, 0, 0],
      [0, 0, 1, 2],
    ],
  ],
  [
    "companion",
    () => linalg.companion(np.array([2, -3, 4])),
    [
      [1.5, -2],
      [1, 0],
    ],
  ],
  [
    "leslie",
    () => linalg.leslie(np.array([0.1, 2, 1]), np.array([0.2, 0.8])),
    [
      [0.1, 2, 1],
      [0.2, 0, 0],
      [0, 0.8, 0],
    ],
  ],
  [
    "fiedler",
    () => linalg.fiedler(np.array([1, 4, 9])),
    [
      [0, 3, 8],
      [3, 0, 5],
      [8, 5, 0],
    ],
  ],
  [
    "convolutionMatrix, same",
    () => linalg.convolutionMatrix(b, 4, "same"),
    [
      [2, 1, 0, 0],
      [3, 2, 1, 0],
      [0, 3, 2, 1],
      [0, 0, 3, 2],
    ],
  ],
  [
    "convolutionMatrix, short",
    () => linalg.convolutionMatrix(b, 2, "same"),
    [
      [1, 0],
      [2, 1],
      [3, 2],
    ],
  ],
  [
    "convolutionMatrix, valid",
    () => linalg.convolutionMatrix(b, 2, "valid"),
    [
      [2, 1],
      [3, 2],
    ],
  ],
  [
    "invhilbert",
    () => linalg.invhilbert(3),
    [
      [9, -36, 30],
      [-36, 192, -180],
      [30, -180, 180],
    ],
  ],
  [
    "hilbert",
    () => np.matmul(linalg.hilbert(3), linalg.invhilbert(3)),
    [
      [1, 0, 0],
      [0, 1, 0],
      [0, 0, 1],
    ],
  ],
  [
    "pascal",
    () => linalg.pascal(3),
    [
      [1, 1, 1],
      [1, 2, 3],
      [1, 3, 6],
    ],
  ],
  [
    "pascal, upper",
    () => linalg.pascal(3, "upper"),
    [
      [1, 1, 1],
      [0, 1, 2],
      [0, 0, 1],
    ],
  ],
  [
    "invpascal",
    () => linalg.invpascal(3),
    [
      [3, -3, 1],
      [-3, 5, -2],
      [1, -2, 1],
    ],
  ],
  [
    "invpascal, lower",
    () => linalg.invpascal(3, "lower"),
    [
      [1, 0, 0],
      [-1, 1, 0],
      [1, -2, 1],
    ],
  ],
  [
    "hadamard",
    () => linalg.hadamard(4, "float32"),
    [
      [1, 1, 1, 1],
      [1, -1, 1, -1],
      [1, 1, -1, -1],
      [1, -1, -1, 1],
    ],
  ],
  [
    "helmert",
    () => linalg.helmert(3, { full: true }),
    [
      [0.5773503, 0.5773503, 0.5773503],
      [Math.SQRT1_2, -Math.SQRT1_2, 0],
      [0.4082483, 0.4082483, -0.8164966],
    ],
  ],
  [
    "dft",
    () => np.imag(linalg.dft(3, { scale: "n" })),
    [
      [0, 0, 0],
      [0, -0.28867513, 0.28867513],
      [0, 0.28867513, -0.28867513],
    ],
  ],
];

describe("matrices with a pattern", () => {
  test.each(patterns)("%s", async (_, got, want) => {
    await expectClose(got(), np.array(want), { rtol: 1e-5, atol: 2e-5 });
  });

  test("keep types and batches, and name what does not fit", () => {
    expect(linalg.toeplitz(np.arange(3)).dtype).toBe("int32");
    expect(linalg.toeplitz(np.ones([2, 3])).shape).toEqual([2, 3, 3]);
    expect(linalg.blockDiag().shape).toEqual([1, 0]);
    expect(() => linalg.hadamard(3)).toThrow(/power of 2, got 3/);
    expect(() => linalg.leslie(b, b)).toThrow(/3 births need 2 shares/);
    expect(() => linalg.solveTriangular(a, np.ones([2]))).toThrow(/has 3 unknowns/);
  });
});
