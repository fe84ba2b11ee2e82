import { grad, lax, np, scipy, type Tensor } from "shardwise";
import { describe, expect, test } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";
import { type CaseFunction, describeJaxCases } from "../../../test/support/jaxCases.js";

const { special } = scipy;
const floats = (...values: number[]) => np.array(values);
const parts = (z: Tensor) => [np.real(z), np.imag(z)];

const cases: Readonly<Record<string, CaseFunction>> = {
  expn: (y) => [1, 2, 3, 7].map((n) => special.expn(n, y)),
  "expn ends": (y) => [0, 1, 2, 5].map((n) => special.expn(n, y)),
  exp1: (y) => special.exp1(y),
  expi: (y) => special.expi(y),
  sici: (y) => special.sici(y),
  fresnel: (y) => special.fresnel(y),
  spence: (y) => special.spence(y),
  owensT: (h, a) => special.owensT(h, a),
  hyp1f1: (a, b, x) => special.hyp1f1(a, b, x),
  hyp2f1: (a, b, c, x) => special.hyp2f1(a, b, c, x),
  "hyp2f1 near one": (y) => special.hyp2f1(floats(0.5, 1.5, 2), floats(0.5, 0.25, 1), floats(1, 2.75, 5), y),
  besselJn: (z) => special.besselJn(z, { v: 3 }),
  sphHarmY: (theta, phi) => parts(special.sphHarmY([0, 1, 2, 3, 5, 4], [0, -1, 2, 0, -3, 4], theta, phi)),
  wofz: (y, z) => parts(special.wofz(lax.complex(y, z))),
};

describeJaxCases("specialFunctions.json", cases, {
  tolerance: 1e-5,
  least: 1e-3,
  // Far from 0, its derivative is a difference of nearly equal numbers.
  tolerances: { wofz: 3e-5 },
  everyday: ["expn", "expi", "sici", "fresnel", "spence", "owensT", "besselJn", "sphHarmY", "wofz"],
});

/** SciPy's float64 values. */
const known: readonly (readonly [name: string, got: () => Tensor, want: readonly number[]])[] = [
  ["expn of many orders", () => special.expn(60, floats(0.5, 44.838333)), [0.010192329, 3.2269862e-22]],
  ["expn of a fraction", () => special.expn(1.5, floats(0.5, 2.5)), [0.41768183, 0.022098499]],
  ["expi where exp overflows", () => special.expi(floats(0, 89.5)), [-Infinity, 8.365070896e36]],
  ["expi of infinities", () => special.expi(floats(-Infinity, Infinity)), [0, Infinity]],
  ["Si of large numbers", () => special.sici(floats(-1e5, Infinity, 0))[0], [-1.5708063, Math.PI / 2, 0]],
  ["Ci at its ends", () => special.sici(floats(0, Infinity, -Infinity))[1], [-Infinity, 0, Number.NaN]],
  ["fresnel of 1000", () => special.fresnel(floats(1000, Infinity))[0], [0.49968169, 0.5]],
  [
    "spence at its ends",
    () => special.spence(floats(0, Infinity, -1)),
    [Math.PI ** 2 / 6, -Infinity, Number.NaN],
  ],
  ["owensT at its ends", () => special.owensT(floats(0, 8), floats(0.5, 30)), [0.073791809, 3.1104803e-16]],
  [
    "hyp1f1 of large negative x",
    () => special.hyp1f1(1.5, 2.5, floats(-20, -300)),
    [0.014862477, 2.5583168e-4],
  ],
  ["hyp1f1 at poles", () => special.hyp1f1(floats(1, -1, 0), floats(-2, -2, 0), 3), [Infinity, 2.5, 1]],
  ["hyp2f1 far below", () => special.hyp2f1(0.5, 0.5, 1.5, floats(-3, -400)), [0.760346, 0.18447519]],
  ["hyp2f1 that ends", () => special.hyp2f1(-2, 1.5, 2.5, floats(3, -8)), [1.2571429, 38.028571]],
  ["hyp2f1 at 1", () => special.hyp2f1(0.5, floats(0.5, 1.5), 2, 1), [4 / Math.PI, Infinity]],
  [
    "besselJn of small z",
    () => special.besselJn(floats(0, 1e-20, 0.01), { v: 1 }).get(1),
    [0, 5e-21, 0.0049999375],
  ],
  ["bernoulli", () => special.bernoulli(8), [1, -0.5, 1 / 6, 0, -1 / 30, 0, 1 / 42, 0, -1 / 30]],
];

describe("special functions", () => {
  test.each(known)("%s", async (_, got, want) => {
    await expectClose(got(), want, { rtol: 2e-5 });
  });

  test("have derivatives where JAX has none", async () => {
    const slope = (x: number) => grad((y: Tensor) => special.spence(y))(np.array(x));
    await expectClose(slope(1), [-1]);
    await expectClose(slope(2.5), [Math.log(2.5) / -1.5], { rtol: 1e-6 });
    await expectClose(special.expn(floats(2, 5), 0), [1, 0.25]);
    await expectClose(grad((x: Tensor) => special.expn(0, x))(np.array(1)), [-2 / Math.E], { rtol: 1e-6 });
  });

  test("are computed in float32 for halves, and keep their type", async () => {
    const x = np.array([0.5, 3], "bfloat16");
    for (const fn of [special.exp1, special.expi, special.spence]) {
      const wide = fn(x.astype("float32")).astype("bfloat16");
      expect(fn(x).dtype).toBe("bfloat16");
      await expectClose(fn(x), wide);
    }
    expect(special.wofz(x).dtype).toBe("complex64");
  });

  test("and distributions round halves once, not at every step of a formula", async () => {
    const { beta, cauchy, chi2 } = scipy.stats;
    const x = np.linspace(0.1, 0.9, 40);
    for (const dtype of ["bfloat16", "float16"] as const) {
      const half = x.astype(dtype);
      const functions: readonly ((x: Tensor) => Tensor)[] = [
        (z) => special.beta(np.multiply(z, 4), np.flip(z)),
        cauchy.logsf,
        (z) => chi2.pdf(z, np.flip(z)),
        (z) => beta.pdf(z, 2, 3),
      ];
      for (const fn of functions) await expectClose(fn(half), fn(half.astype("float32")).astype(dtype));
    }
  });

  test("name what does not fit", () => {
    expect(() => special.bernoulli(-1)).toThrow(/scipy.special.bernoulli.*integer of at least 0/);
    expect(() => special.sphHarmY(np.array([1], "int32"), 0, 1, 1)).toThrow(/needs nMax/);
    expect(() => special.sphHarmY(1, np.array([0.5]), 1, 1)).toThrow(/m must be integers/);
    expect(() => special.expi(lax.complex(1, 2))).toThrow(/scipy.special.expi.*real numbers/);
  });
});
