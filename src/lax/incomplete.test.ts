import { describe, expect, test } from "vitest";
import { expectClose } from "../../test/support/goldens.js";
import { GradientError, grad, jit, np, type Tensor, vmap } from "../index.js";
import { at } from "../ir/shape.js";
import * as lax from "./index.js";

/** What JAX 0.10.2 computes in float64. */
const jax = {
  igamma: [
    0.472910746,
    0.632120559,
    0.584119813,
    0.994373244,
    0.000154653077,
    0.283375741,
    0.930146339,
    0.182103916,
    1.0,
    9.99999497e-7,
    0.999999998,
    0.0,
    1.0,
    Number.NaN,
    Number.NaN,
    Number.NaN,
    Number.NaN,
    0.552896293,
  ],
  igammac: [
    0.527089254,
    0.367879441,
    0.415880187,
    0.00562675607,
    0.999845347,
    0.716624259,
    0.0698536607,
    0.817896084,
    5.06004607e-21,
    0.999999,
    2.06115362e-9,
    1.0,
    0.0,
    Number.NaN,
    Number.NaN,
    Number.NaN,
    Number.NaN,
    0.447103707,
  ],
  igammaDa: [
    -0.820161405, -0.431729711, -0.260844962, -0.565545912, -0.000551341589, -0.112605723, -0.0400807785,
    -0.0499548774, -1.31851378e-20, -1.4238288e-5, -7.46274984e-9,
  ],
  igammaDx: [
    1.03288308, 0.367879441, 0.244083043, 0.0121155662, 0.00452418722, 0.124076917, 0.0324071672,
    0.0544953422, 4.72851581e-21, 0.999999, 2.06115362e-9,
  ],
  betainc: [
    0.369010128,
    0.875,
    0.584312128,
    0.0195814412,
    0.697356779,
    0.757950937,
    0.507700234,
    0.0,
    1.0,
    0.999999996,
    Number.NaN,
    Number.NaN,
    Number.NaN,
    Number.NaN,
  ],
  betaincDx: [0.69460911, 0.75, 1.63372064, 0.412876818, 4.26162538, 0.236265921, 5.72792761],
  i0e: [
    1.0,
    0.907100924,
    0.64503527,
    0.465759608,
    0.243000354,
    0.14831583,
    0.143431782,
    0.131251261,
    0.124669669,
    0.0897803119,
    0.0565616266,
    0.0282271599,
    0.00398947267,
    0.0,
    Number.NaN,
  ],
  i1e: [
    0.0,
    0.0452984474,
    -0.156420803,
    0.207910415,
    0.196826713,
    -0.138041212,
    0.134142493,
    0.124138248,
    0.118575665,
    0.0875062222,
    -0.0559931239,
    0.0281565034,
    0.0039892732,
    0.0,
    Number.NaN,
  ],
  i0: [1.0, 1.00250156, 1.06348337, 1.26606588, 4.88079259, 268.161312, 427.564116, 1753.48099],
  i0eD: [
    0.0, -0.861802477, 0.488614467, -0.257849192, -0.0461736409, 0.0102746185, -0.00928928856, -0.00711301316,
    -0.00609400458, -0.0022740897, 0.000568502755, -7.06565543e-5,
  ],
  i1eD: [
    0.5, 0.40881801, 0.175772861, 0.0499387769, -0.0194352636, -0.00813087634, -0.0074785231, -0.0059541708,
    -0.00519891589, -0.00210122141, -0.000551359723, -7.01259627e-5,
  ],
  i0D: [0.0, 0.0500625268, -0.257894305, 0.565159104, 3.95337022, -249.584365, 399.873137, 1658.45308],
  zeta: [
    1.64493407,
    8.41439832,
    1.40377977,
    3.04137987e-5,
    0.0100501667,
    1.0,
    Infinity,
    Number.NaN,
    Infinity,
    9.37924664,
    Number.NaN,
  ],
  polygamma: [-1.96351003, 4.9348022, -0.828796644, 0.223905849, -0.000729931168, 101.433296, 0.0202013332],
  polygammaDx: [4.9348022, -16.8287966, 1.40909103, -0.313756, 0.000305945162, -2001.86137, -0.000408079989],
};

/** What is 1 minus something near 1 has only the digits that are left. */
const tolerance = { rtol: 2e-5, atol: 3e-7 };

/** The derivative of a function of single numbers by one of them, for each element. */
const slope = (fn: (...args: Tensor[]) => Tensor, argnum: number) =>
  vmap((...args: Tensor[]) => grad(fn, { argnums: argnum })(...args)) as (...args: Tensor[]) => Tensor;

/** The derivatives of a function of two numbers by both, for the first elements, one after the other. */
const slopes = (fn: (a: Tensor, x: Tensor) => Tensor) => (a: Tensor, x: Tensor) => {
  const both = (u: Tensor, v: Tensor) => grad(fn, { argnums: [0, 1] })(u, v);
  const [byA, byX] = vmap(both)(...ordinary(a, x));
  return np.concatenate([byA, byX]);
};

const ordinary = (a: Tensor, x: Tensor) => [a.get(np.s(0, 11)), x.get(np.s(0, 11))] as const;

/** Compares many functions of the same arguments at once, compiled. */
async function expectAll(
  args: readonly Tensor[],
  rows: readonly (readonly [fn: (...args: Tensor[]) => Tensor, wanted: readonly number[]])[],
): Promise<void> {
  const results = jit((...all: Tensor[]) => rows.map(([fn, { length }]) => fn(...head(all, length))))(
    ...args,
  );
  for (const [i, [, wanted]] of rows.entries()) await expectClose(at(results, i), [...wanted], tolerance);
}

const head = (tensors: readonly Tensor[], n: number) => tensors.map((x) => x.get(np.s(0, n)));

describe("the incomplete gamma function", () => {
  const a = np.array([
    0.5,
    1.0,
    2.5,
    0.01,
    3.0,
    10.0,
    10.0,
    30.0,
    5.0,
    1.0,
    1.0,
    2.0,
    2.0,
    -1.0,
    2.0,
    Infinity,
    2.0,
    100.0,
  ]);
  const x = np.array([
    0.2,
    1.0,
    2.5,
    0.5,
    0.1,
    8.0,
    15.0,
    25.0,
    60.0,
    1e-6,
    20.0,
    0.0,
    Infinity,
    1.0,
    -1.0,
    2.0,
    Number.NaN,
    101.0,
  ]);

  test("is JAX's, its ends and what is outside among them, and has JAX's derivatives by both arguments", async () => {
    await expectAll(
      [a, x],
      [
        [lax.igamma, jax.igamma],
        [lax.igammac, jax.igammac],
        [slopes(lax.igamma), [...jax.igammaDa, ...jax.igammaDx]],
        [slopes(lax.igammac), [...jax.igammaDa, ...jax.igammaDx].map((value) => -value)],
      ],
    );
  });

  test("takes numbers and half-width floats, and refuses what does not fit", async () => {
    const half = lax.igamma(np.array([2], "float16"), 1);
    expect(half.dtype).toBe("float16");
    expect(await half.js()).toEqual([0.26416015625]);
    expect(() => lax.igamma(np.array([1], "int32"), np.array([1], "int32"))).toThrow(
      /needs floats, got i32\[1\]/,
    );
    expect(() => lax.igamma(np.array([1, 2]), np.array([1]))).toThrow(/must have the same type and shape/);
  });
});

describe("the incomplete beta function", () => {
  const a = np.array([0.5, 1.0, 2.5, 5.0, 10.0, 0.1, 20.0, 2.0, 2.0, 2.0, -1.0, 2.0, 2.0, 2.0]);
  const b = np.array([0.5, 3.0, 1.5, 5.0, 2.0, 0.3, 30.0, 3.0, 3.0, 3.0, 2.0, -1.0, 2.0, 2.0]);
  const x = np.array([0.3, 0.5, 0.7, 0.2, 0.9, 0.5, 0.4, 0.0, 1.0, 0.999, 0.5, 0.5, -0.1, 1.5]);

  test("is JAX's, and has its derivative by x", async () => {
    await expectAll(
      [a, b, x],
      [
        [lax.betainc, jax.betainc],
        [slope(lax.betainc, 2), jax.betaincDx],
      ],
    );
  });

  test("has JAX's ends where parameters are 0 and infinite", async () => {
    const [inf, nan] = [Number.POSITIVE_INFINITY, Number.NaN];
    const ends = [
      np.array([0, 0, 1, 0, 0, 1, 1, inf, inf, 2, 2, inf, 0, -1]),
      np.array([0, 1, 0, 1, 1, 0, 0, 1, 1, inf, inf, inf, 0, 0]),
      np.array([0.4, 0.4, 0.4, 0, 1, 0, 1, 0.4, 1, 0.4, 0, 0.4, 0, 0.4]),
    ];
    await expectAll(ends, [[lax.betainc, [nan, 1, 0, 0, 1, 0, 1, 0, 1, 1, 0, nan, nan, nan]]]);
  });

  test("has no derivative by the others", () => {
    expect(() => grad(lax.betainc)(np.array(1), np.array(2), np.array(0.5))).toThrow(GradientError);
  });
});

describe("Bessel functions", () => {
  const x = np.array([
    0.0,
    0.1,
    -0.5,
    1.0,
    3.0,
    -7.5,
    8.0,
    9.5,
    10.5,
    20.0,
    -50.0,
    200.0,
    10000.0,
    Infinity,
    Number.NaN,
  ]);

  test("are JAX's, with its derivatives", async () => {
    await expectAll(
      [x],
      [
        [lax.besselI0e, jax.i0e],
        [lax.besselI1e, jax.i1e],
        [np.i0, jax.i0],
        [slope(lax.besselI0e, 0), jax.i0eD],
        [slope(lax.besselI1e, 0), jax.i1eD],
        [slope(np.i0, 0), jax.i0D],
      ],
    );
    await expectClose(np.i0(x), lax.besselI0e(x).mul(np.exp(np.abs(x))), tolerance);
  });
});

describe("zeta and polygamma", () => {
  const [s, q] = [
    np.array([2.0, 3.0, 1.5, 5.0, 2.0, 30.0, 1.0, 0.5, 2.0, 2.0, 3.0]),
    np.array([1.0, 0.5, 2.5, 10.0, 100.0, 1.0, 1.0, 1.0, 0.0, -1.5, -1.0]),
  ];
  const [m, x] = [
    np.array([0.0, 1.0, 2.0, 3.0, 4.0, 1.0, 1.0]),
    np.array([0.5, 0.5, 1.5, 2.5, 10.0, 0.1, 50.0]),
  ];

  test("are JAX's", async () => {
    await expectAll([s, q], [[lax.zeta, jax.zeta]]);
    await expectAll(
      [m, x],
      [
        [lax.polygamma, jax.polygamma],
        [slope(lax.polygamma, 1), jax.polygammaDx],
      ],
    );
  });

  test("have derivatives: zeta by both arguments, as differences of SciPy's say, polygamma by its second", async () => {
    await expectAll(
      [s, q],
      [
        [
          slope(lax.zeta, 0),
          [
            -0.93754826,
            5.27873513,
            -3.80801858,
            -7.6198477e-5,
            -0.05628265,
            -6.461498e-10,
            Number.NaN,
            Number.NaN,
            Number.NaN,
          ],
        ],
        [slope(lax.zeta, 1), [-2.40411381, -48.7045455, -0.341053524, -1.27477151e-5, -1.01005e-4, -30]],
      ],
    );
    expect(() => grad(lax.polygamma)(np.array(1), np.array(1))).toThrow(GradientError);
  });
});
