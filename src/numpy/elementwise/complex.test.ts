import { inspect } from "node:util";
import {
  type Complex,
  complex,
  customVjp,
  devicePut,
  evalShape,
  grad,
  jacfwd,
  jacrev,
  jit,
  jvp,
  lax,
  Mesh,
  NamedSharding,
  np,
  P,
  random,
  remat,
  ShardwiseError,
  shardMap,
  type Tensor,
  tree,
  vjp,
} from "shardwise";
import { describe, expect, test } from "vitest";
import { type CaseFunction, describeJaxCases, one, two } from "../../../test/support/jaxCases.js";
import { expectNear } from "../../../test/support/near.js";

const sum3 = (x: Tensor) =>
  np.sum(
    np
      .abs(x)
      .pow(3)
      .add(np.real(x.mul(x))),
  );
const cubic = (y: Tensor) => y.mul(y).mul(np.sum(y));
const own = customVjp((x: Tensor) => x.mul(x), {
  forward: (x) => [x.mul(x), x],
  backward: (x, ct) => [ct.mul(x).mul(complex(3, -1))],
});
const row = (x: Tensor, i: number) => x.get(i);
const column = (x: Tensor, i: number) => x.get(":", i);

/** Sums of powers of eigenvalues, and of their sizes. */
const together = (w: Tensor) => [
  np.sum(w, -1),
  np.sum(w.pow(2), -1),
  np.sum(w.pow(3), -1),
  np.sum(np.abs(w), -1),
  np.sum(np.exp(w.neg()), -1),
];

/** What all eigenvectors are together, whatever their order and signs. */
const pairs = (w: Tensor, v: Tensor) => {
  const size = np.square(np.abs(v));
  return [
    np.matmul(size, w),
    np.matmul(size, np.abs(w)),
    np.einsum("ij,kj,j->ik", v, v.conj(), w),
    np.dot(np.sum(size, 0), np.ones([w.size])),
  ];
};

/** What does not depend on the directions of vectors. */
const eigh = (a: Tensor) => {
  const [w, v] = np.linalg.eigh(a);
  return [w, np.abs(v), np.einsum("ij,kj,j->ik", v, v.conj(), np.sin(w).astype(v.dtype))];
};
const svd = (a: Tensor) => {
  const [u, s, v] = np.linalg.svd(a, { fullMatrices: false });
  return [s, np.abs(u), np.abs(v), np.matmul(u.mul(np.sin(s)), v)];
};

const cases: Readonly<Record<string, CaseFunction>> = {
  add: two((x, y) => [x.add(y), x.sub(y), x.neg(), x.add(2), x.mul(complex(1, -2))]),
  mul: two((x, y) => x.mul(y)),
  div: two((x, y) => [x.div(y), x.div(3), np.divide(2, x)]),
  "with reals": two((x, y) => [x.mul(y), y.div(x), np.where(y.gt(0), x, y)]),
  "with integers": two((x, y) => [x.mul(y), y.add(complex(0, 1))]),
  abs: one(np.abs),
  sign: one(np.sign),
  parts: one((x) => [np.real(x), np.imag(x), np.conj(x), np.angle(x), lax.complex(x.imag, x.real)]),
  exp: one((x) => [np.exp(x), np.exp2(x)]),
  log: one((x) => [np.log(x), np.log2(x), np.log10(x)]),
  "near 0": one((x) => [np.expm1(x), np.log1p(x), np.asinh(x), np.atanh(x), np.sinh(x)]),
  expm1: one((x) => [np.expm1(x), np.log1p(x)]),
  trigonometry: one((x) => [np.sin(x), np.cos(x), np.tan(x)]),
  hyperbolic: one((x) => [np.sinh(x), np.cosh(x), np.tanh(x)]),
  inverse: one((x) => [np.asin(x), np.acos(x), np.atan(x)]),
  "inverse hyperbolic": one((x) => [np.asinh(x), np.acosh(x.add(2)), np.atanh(x)]),
  sqrt: one((x) => [np.sqrt(x), lax.rsqrt(x)]),
  pow: two((x, y) => [x.pow(y), x.pow(3), x.pow(-2), x.pow(0.5), np.power(2, x)]),
  "other functions": one((x) => [
    np.square(x),
    np.reciprocal(x),
    np.sinc(x),
    lax.logistic(x),
    np.positive(x),
  ]),
  "odd numbers": one((x) => [
    np.abs(x),
    np.sign(x),
    np.sqrt(x),
    np.exp(x.div(1e19)),
    np.tanh(x),
    x.div(complex(1, 1)),
    np.isfinite(x),
  ]),
  "derivatives at odd numbers": one((x) => [np.abs(x), x.mul(x.conj())]),
  "division by odd numbers": one((x) => [np.divide(complex(1, 2), x), np.divide(complex(0, 3), x.slice(1))]),
  reductions: one((x) => [np.sum(x), np.sum(x, 0), np.mean(x, 1), np.prod(x, 1), np.var(x), np.std(x, 0)]),
  running: one((x) => [np.cumsum(x, 1), np.cumprod(x, 1), np.diff(x)]),
  masked: one((x) => {
    const where = np.abs(x).gt(1);
    return [np.sum(x, null, { where }), np.mean(x, null, { where }), np.var(x, null, { where })];
  }),
  compare: two((x, y) => [
    x.eq(y),
    x.ne(y),
    x.eq(x),
    np.isnan(x),
    np.isinf(x),
    np.iscomplex(x.add(y)),
    np.isreal(y.real.add(complex(0, 0))),
    np.isclose(x, x.mul(1 + 1e-6)),
    np.any(x),
    np.all(x.astype("bool")),
    x.lt(y),
    x.ge(y),
  ]),
  order: two((x, y) => [np.sort(x, 1), np.max(x), np.min(x, 0), np.maximum(x, y), np.minimum(x, y)]),
  ties: one((x) => [np.sort(x), np.max(x), np.min(x)]),
  moving: two((x, y) => [
    x.T,
    x.reshape(3, 2),
    np.flip(x, 1),
    np.roll(x, 1),
    np.pad(x, 1),
    np.concatenate([x, y]),
    np.stack([x, y], 1),
    x.get(":", np.s(1)),
  ]),
  indexing: one((x) => [
    np.take(x, [2, 0], 1),
    x.at(0, 1).set(complex(0, 5)),
    x.at(":", 0).add(complex(1, -1)),
    x.get(np.array([1, 0], "int32")),
  ]),
  rounding: one((x) => [np.round(x, 1), np.rint(x), np.nanToNum(x.div(0))]),
  products: two((x, y) => [
    np.matmul(x, y),
    np.dot(row(x, 0), column(y, 0)),
    np.vdot(row(x, 0), column(y, 0)),
    np.einsum("ij,jk->k", x, y),
    np.outer(row(x, 0), column(y, 1)),
    np.tensordot(x, y, 1),
    np.vecdot(row(x, 0), column(y, 0)),
    np.inner(row(x, 0), column(y, 0)),
    np.kron(x, y),
  ]),
  signals: two((x, y) => [np.convolve(x, y), np.correlate(x, y, "full"), np.cov(x)]),
  norms: one((x) => [
    np.linalg.norm(x),
    np.linalg.norm(x, 1),
    np.linalg.norm(row(x, 0), 3),
    np.linalg.norm(x, Number.POSITIVE_INFINITY),
    np.linalg.norm(x, null, 1),
  ]),
  solve: two(np.linalg.solve),
  inv: one(np.linalg.inv),
  det: one((a) => [
    np.linalg.det(a),
    np.linalg.det(a.get(np.s(0, 2), np.s(0, 2))),
    np.linalg.det(a.get(np.s(0, 3), np.s(0, 3))),
  ]),
  slogdet: one(np.linalg.slogdet),
  eigvals: one((a) => together(np.linalg.eigvals(a))),
  "eigvals of reals": one((a) => together(np.linalg.eigvals(a))),
  eig: one((a) => pairs(...np.linalg.eig(a))),
  "eig of reals": one((a) => pairs(...np.linalg.eig(a))),
  cholesky: one((a) => [np.linalg.cholesky(a), np.linalg.cholesky(a, { upper: true })]),
  "cholesky one triangle": one((a) => lax.linalg.cholesky(a, { symmetrizeInput: false })),
  choSolve: two((a, b) => np.linalg.choSolve(np.linalg.cholesky(a), b)),
  qr: one((a) => np.linalg.qr(a)),
  "qr square": one((a) => np.linalg.qr(a)),
  "qr wide": one((a) => np.linalg.qr(a)),
  "qr complete": one((a) => np.linalg.qr(a, { mode: "complete" })[1]),
  eigh: one(eigh),
  "eigh odd": one(eigh),
  "eigh upper": one((a) => np.linalg.eigh(a, { uplo: "U", symmetrizeInput: false })[0]),
  eigvalsh: one((a) => np.linalg.eigvalsh(a)),
  svd: one(svd),
  "svd tall": one(svd),
  "svd wide": one(svd),
  "svd low rank": one(np.linalg.svdvals),
  pinv: one((a) => np.linalg.pinv(a)),
  lstsq: two((a, b) => np.linalg.lstsq(a, b).slice(0, 2)),
  "lstsq vector": two((a, b) => np.linalg.lstsq(a, b)[0]),
  expm: one(np.linalg.expm),
  "of singular values": one((a) => [
    np.linalg.matrixRank(a),
    np.linalg.cond(a),
    np.linalg.norm(a, 2, [0, 1]),
    np.linalg.norm(a, "nuc", [0, 1]),
  ]),
  "matrix power": one((a) => [np.linalg.matrixPower(a, 3), np.trace(a), np.diagonal(a)]),
  scan: one((x) =>
    lax.scan(
      (total: Tensor, value: Tensor) => {
        const next = total.mul(value).add(1);
        return [next, np.abs(next)] as const;
      },
      np.array(complex(0, 1)),
      x,
    ),
  ),
  cond: one((x) =>
    lax.cond(
      np.abs(x.get(0, 0)).gt(0.1),
      (y: Tensor) => y.mul(complex(0, 1)),
      (y: Tensor) => y.conj(),
      x,
    ),
  ),
  "own rule": one(own),
  remat: one(remat((x: Tensor) => np.sin(x).mul(x.conj()))),
  "inner grad": one(grad(sum3)),
  holomorphic: one((x) => [
    grad((y: Tensor) => np.sum(np.sin(y).mul(y)), { holomorphic: true })(x),
    jacfwd(cubic, { holomorphic: true })(row(x, 0)),
    jacrev(cubic, { holomorphic: true })(row(x, 0)),
  ]),
  vjp: two((x, ct) => vjp((y: Tensor) => y.mul(y.conj()).mul(complex(0, 2)).add(np.abs(y)), [x])[1](ct)[0]),
  jvp: two((x, t) => jvp((y: Tensor) => [np.exp(y).mul(y.conj()), np.abs(y)], [x], [t])),
  fft: one((x) => [
    np.fft.fft(x),
    np.fft.ifft(x, { norm: "ortho" }),
    np.fft.fftn(x),
    np.fft.irfft(x),
    np.fft.fftshift(x),
  ]),
  making: one((x) => [
    np.eye(2, 2, { dtype: "complex64" }).mul(x.get(0, 0)),
    np.full([2], complex(0, 1)).mul(x.get(0, 0)),
    np.zerosLike(x).add(x),
    np.linspace(0, complex(1, 1), 3).mul(row(x, 0)),
    np.arange(3, "complex64").mul(row(x, 0)),
    x.astype("complex64"),
  ]),
  "other types": one((x) => [x.real.astype("complex64"), x.astype("bool"), x.real.add(complex(0, 1))]),
};

describeJaxCases("complex.json", cases, {
  tolerance: 1e-5,
  // Inverses of eigenvectors that are nearly parallel lose digits.
  tolerances: { "eigvals of reals": 1e-4, "eig of reals": 2e-4, eig: 5e-5, eigvals: 5e-5 },
  everyday: ["div", "pow", "reductions", "products", "scan", "own rule", "vjp"],
  occasional: [
    "eigvals",
    "eigvals of reals",
    "eig",
    "cholesky one triangle",
    "choSolve",
    "qr",
    "qr wide",
    "qr complete",
    "eigh",
    "eigh odd",
    "eigh upper",
    "eigvalsh",
    "svd",
    "svd wide",
    "svd low rank",
    "pinv",
    "lstsq",
    "lstsq vector",
    "expm",
    "of singular values",
  ],
});

describe("eigenvalues", () => {
  test("of matrices that defeat plain sweeps, that are triangles already, and that are nothing", async () => {
    const circle = [
      [0, 0, 1],
      [1, 0, 0],
      [0, 1, 0],
    ];
    const triangle = [
      [2, 1, 0],
      [0, 3, 1],
      [0, 0, 5],
    ];
    const [values, vectors] = np.linalg.eig(np.array([circle, triangle, np.zeros([3, 3])]));
    const turn = Math.sqrt(3) / 2;
    const wanted = [-0.5, -turn, -0.5, turn, 1, 0, 2, 0, 3, 0, 5, 0, 0, 0, 0, 0, 0, 0];
    expectNear([...(await np.sort(np.round(values, 5)).data())], wanted, 1e-5);
    expect(await np.abs(vectors.get(2)).js()).toEqual(await np.eye(3).js());
    expect(np.linalg.eigvals(np.zeros([2, 0, 0])).shape).toEqual([2, 0]);
  });

  test("go with vectors of length 1 in batches, and are real where real matrices have real ones", async () => {
    const a = random.normal(random.key(2), [2, 7, 7]);
    const [w, v] = np.linalg.eig(a);
    const rest = np.matmul(a.astype("complex64"), v).sub(v.mul(np.expandDims(w, -2)));
    expect(await np.max(np.abs(rest)).item()).toBeLessThan(2e-6);
    expectNear([...(await np.linalg.norm(v, 2, -2).data())], new Array(14).fill(1), 1e-6);
    // Of seven eigenvalues one at least is real, and the others come in pairs.
    const numReal = [...(await np.sum(np.isreal(w), -1).data())];
    for (const count of numReal) expect(Number(count) % 2).toBe(1);
  });
});

describe("complex numbers", () => {
  const z = () => np.array([complex(1, 2), complex(0, -0.5)]);

  test("are made of numbers, read as pairs and printed as JAX prints them", async () => {
    expect(z().dtype).toBe("complex64");
    expect([...(await z().data())]).toEqual([1, 2, 0, -0.5]);
    expect(await z().js()).toEqual([complex(1, 2), complex(0, -0.5)]);
    expect(inspect(z())).toBe("Tensor c64[2] [1+2j, 0-0.5j]");
    expect(await np.array({ re: 3, im: -1 }).js()).toEqual(complex(3, -1));
    expect(await np.array([1, 2], "complex64").js()).toEqual([complex(1, 0), complex(2, 0)]);
    expect([...(await np.array(new Float64Array([0.1]), "complex128").data())]).toEqual([0.1, 0]);
    expect(String(complex(1.5, -0))).toBe("1.5+0j");
  });

  test("may be NaN, wherever they are shown", async () => {
    const unknown = z().mul(Number.NaN);
    expect(await unknown.js()).toEqual([complex(Number.NaN, Number.NaN), complex(Number.NaN, Number.NaN)]);
    expect(inspect(unknown)).toBe("Tensor c64[2] [NaN+NaNj, NaN+NaNj]");
    expect(JSON.parse(JSON.stringify(unknown.get(0)))).toEqual({ re: null, im: null });
    // Not positive definite: both parts, as in JAX.
    expect(inspect(np.linalg.cholesky(np.array([[complex(-1, 0)]])))).toBe("Tensor c64[1,1] [[NaN+NaNj]]");
  });

  test("take part in promotion as in JAX", () => {
    const dtypeOf = (x: Tensor) => x.dtype;
    expect(dtypeOf(np.ones([2], "int32").mul(complex(0, 1)))).toBe("complex64");
    expect(dtypeOf(np.ones([2], "bfloat16").add(z()))).toBe("complex64");
    expect(dtypeOf(np.ones([2], "float64").add(z()))).toBe("complex128");
    expect(dtypeOf(z().div(2))).toBe("complex64");
    expect(np.resultType(z(), np.ones([1], "float64"))).toBe("complex128");
    expect(dtypeOf(np.abs(z()))).toBe("float32");
  });

  test("are leaves of trees and arguments of compiled functions", async () => {
    expect(tree.leaves({ z: z() })).toHaveLength(1);
    const doubled = jit((values: { z: Tensor; x: Tensor }) =>
      tree.map((leaf: Tensor) => leaf.mul(2), values),
    );
    const { z: out, x } = doubled({ z: z(), x: np.ones([1]) });
    expect([out.dtype, x.dtype]).toEqual(["complex64", "float32"]);
    expect(await out.js()).toEqual([complex(2, 4), complex(0, -1)]);
    expect(evalShape((v: Tensor) => v.mul(v))(z())).toEqual({ dtype: "complex64", shape: [2] });
    expect(await jit((a: Complex) => np.add(a, 1))(complex(1, 1)).js()).toEqual(complex(2, 1));
  });

  test("cross devices in collectives", async () => {
    const mesh = Mesh.create({ d: 2 });
    const total = shardMap((x: Tensor) => lax.psum(x.mul(complex(0, 1)), "d"), {
      mesh,
      inSpecs: [P("d")],
      outSpecs: P(),
    });
    expect(await total(z()).js()).toEqual([complex(-1.5, 1)]);
    const placed = await devicePut(z(), new NamedSharding(mesh, P("d")));
    expect(placed.sharding?.spec).toEqual(P("d"));
    expect(await placed.js()).toEqual(await z().js());
  });

  test("have gradients only where it is said how", () => {
    const square = (x: Tensor) => np.sum(x.mul(x));
    expect(() => grad(square)(z())).toThrow(
      /returned c64\[\]: take its real part or np.abs, set \{ holomorphic/,
    );
    expect(() => grad(square, { holomorphic: true })(np.ones([2]))).toThrow(
      /takes complex numbers, argument 0/,
    );
    expect(() => grad((x: Tensor) => np.sum(np.abs(x)), { holomorphic: true })(z())).toThrow(
      /returned f32\[\]/,
    );
    expect(() => jacfwd((x: Tensor) => x)(z())).toThrow(/can change in two directions/);
    expect(() => jacrev((x: Tensor) => x)(z())).toThrow(/can change in two directions/);
  });

  test.each<[string, () => unknown, RegExp]>([
    ["floor", () => np.floor(z()), /computes with real numbers, got Tensor c64\[2\]/],
    ["argmax", () => np.argmax(z()), /is not defined for complex numbers/],
    ["clip", () => np.clip(z(), 0, 1), /computes with real numbers/],
    ["logaddexp", () => np.logaddexp(z(), z()), /complex64 has no order/],
    ["bits", () => np.bitwiseAnd(z(), z()), /works on integers and bool/],
    ["mixed operands", () => lax.add(z(), np.ones([2])), /needs all operands to be complex/],
    ["integers", () => np.array([complex(1, 1)], "int32"), /1\+1j is not a valid int32/],
    ["set", () => np.ones([2]).at(0).set(complex(0, 1)), /0\+1j is not a valid float32/],
  ])("refuse %s with a typed error", (_, call, message) => {
    expect(call).toThrow(message);
    expect(call).toThrow(ShardwiseError);
  });
});

test("correlations, angles and products with vectors of complex numbers are JAX's", async () => {
  const rows = (re: number[], im: number[]) =>
    lax.complex(np.array(re).reshape([2, 3]), np.array(im).reshape([2, 3]));
  const z = rows([1, -1, 3, 0, 2, 1], [2, 0.5, -1, 0.5, -2, 1]);
  const w = rows([2, 0, -2, 1, -1, 3], [-1, 1, 0, 0, -1, 2]);
  const near = async (x: Tensor, re: number[], im: number[]) => {
    expectNear(await np.real(x).data(), re, 1e-6);
    expectNear(await np.imag(x).data(), im, 1e-6);
  };
  // From JAX 0.10.2.
  await near(np.corrcoef(z).get(0), [1, -0.29054883], [0, -0.79240584]);
  const angles: [number[], number[]] = [
    [0, 1.5707964, 0.36890754],
    [0.54930615, 0.54930615, 0.06706603],
  ];
  await near(np.arctan2(z.get(1), w.get(1)), ...angles);
  await near(lax.atan2(z.get(1), w.get(1)), ...angles);
  await near(np.vecmat(z.get(1), np.transpose(w)), [-4.5, 5], [3, -5.5]);
});
