import { jit, lax, np, random, type Tensor } from "shardwise";
import { describe, expect, test } from "vitest";
import { type CaseFunction, describeJaxCases } from "../../test/support/jaxCases.js";

/** A sampler of a key and parameters. */
const draw =
  (fn: (key: Tensor, a: Tensor, b: Tensor) => unknown): CaseFunction =>
  (key, a, b) =>
    key && fn(key, a ?? key, b ?? key);
const one =
  (fn: (x: Tensor) => unknown): CaseFunction =>
  (x) =>
    x && fn(x);

const cases: Readonly<Record<string, CaseFunction>> = {
  gamma: draw((key, a) => random.gamma(key, a)),
  "gamma shape": draw((key, a) => random.gamma(key, a, [2, 3])),
  loggamma: draw((key, a) => random.loggamma(key, a)),
  beta: draw((key, a, b) => random.beta(key, a, b)),
  dirichlet: draw((key, a) => random.dirichlet(key, a, [2])),
  t: draw((key, a) => random.t(key, a)),
  chisquare: draw((key, a) => random.chisquare(key, a)),
  generalizedNormal: draw((key) => random.generalizedNormal(key, 3, [5])),
  ball: draw((key) => random.ball(key, 3, 2, [4])),
  rademacher: draw((key) => random.rademacher(key, [9])),
  geometric: draw((key, p) => random.geometric(key, p)),
  poisson: draw((key, rate) => random.poisson(key, rate)),
  binomial: draw((key, n, p) => random.binomial(key, n, p)),
  multinomial: draw((key, p) => random.multinomial(key, 12, p)),
  cauchy: draw((key) => random.cauchy(key, [6])),
  lognormal: draw((key, sigma) => random.lognormal(key, sigma, [4])),
  pareto: draw((key, b) => random.pareto(key, b)),
  rayleigh: draw((key, scale) => random.rayleigh(key, scale)),
  weibullMin: draw((key, scale, c) => random.weibullMin(key, scale, c, [3])),
  maxwell: draw((key) => random.maxwell(key, [4])),
  multivariateNormal: draw((key, mean, cov) => random.multivariateNormal(key, mean, cov, { shape: [3] })),
  f: draw((key, a, b) => random.f(key, a, b)),
  wald: draw((key, mean) => random.wald(key, mean, [2, 3])),
  triangular: (key, a, b, c) => random.triangular(key, a, b, c, [5]),
  doubleSidedMaxwell: draw((key, loc, scale) => random.doubleSidedMaxwell(key, loc, scale, [3])),
  "doubleSidedMaxwell repeated": draw((key, loc, scale) => random.doubleSidedMaxwell(key, loc, scale)),
  "complex normal": draw((key) => random.normal(key, [5], "complex64")),
  bfloat16: draw((key) => [
    random.cauchy(key, [6], "bfloat16"),
    random.pareto(key, 2, [6], "bfloat16"),
    random.maxwell(key, [4], "bfloat16"),
  ]),
  float16: draw((key) => [
    random.cauchy(key, [6], "float16"),
    random.rayleigh(key, 2, [6], "float16"),
    random.triangular(key, 0, 1, 2, [6], "float16"),
  ]),
  randomGammaGrad: (a, x) => lax.randomGammaGrad(a, x),
  igammaGradA: (a, x) => lax.igammaGradA(a, x),
  zeta: one((q) => lax.zeta(np.array([1.5, 2, 3, 7]), q)),
  lgamma: one(lax.lgamma),
  digamma: one(lax.digamma),
  "digamma poles": one((x) => [lax.digamma(x), lax.lgamma(x)]),
  "reducePrecision bfloat16": one((x) => lax.reducePrecision(x, 8, 7)),
  "reducePrecision float16": one((x) => lax.reducePrecision(x, 5, 10)),
  "reducePrecision gradient": one((x) => lax.reducePrecision(x, 5, 3)),
  raggedDot: (a, b, sizes) => a && b && sizes && lax.raggedDot(a, b, sizes),
  reduce: one((x) => [
    lax.reduce(x, 0, lax.add, [0, 2]),
    lax.reduce(x, Number.NEGATIVE_INFINITY, lax.max, [1]),
    lax.reduce(x, 1, lax.mul, [2]),
  ]),
  "reduce tree": (x, i) =>
    x &&
    i &&
    lax.reduce(
      [x, i] as const,
      [Number.NEGATIVE_INFINITY, 0] as const,
      (a, b) => {
        const first = np.greaterEqual(a[0], b[0]);
        return [np.where(first, a[0], b[0]), np.where(first, a[1], b[1])] as const;
      },
      [1],
    ),
};

describeJaxCases("distributions.json", cases, {
  tolerance: 2e-5,
  everyday: [
    "gamma",
    "loggamma",
    "beta",
    "dirichlet",
    "wald",
    "triangular",
    "zeta",
    "poisson",
    "multivariateNormal",
    "lgamma",
    "digamma",
    "reducePrecision gradient",
    "raggedDot",
  ],
});

describe("distributions", () => {
  test("have the mean and variance that they should", async () => {
    const n = 4000;
    const moments = jit((key: Tensor) => {
      const keys = random.split(key, 4);
      const draws = [
        random.gamma(keys.get(0), 2.5, [n]),
        random.poisson(keys.get(1), 25, [n]).astype("float32"),
        random.binomial(keys.get(2), 200, 0.3, [n]),
        random.beta(keys.get(3), 2, 3, [n]),
      ];
      return draws.map((x) => [np.mean(x), np.var(x)] as const);
    })(random.key(1));
    const wanted = [
      [2.5, 2.5],
      [25, 25],
      [60, 42],
      [0.4, 0.04],
    ] as const;
    for (const [i, [mean, variance]] of wanted.entries()) {
      const got = moments[i];
      if (!got) throw new Error("missing");
      expect(Math.abs((await got[0].item()) - mean)).toBeLessThan(5 * Math.sqrt(variance / n));
      expect(Math.abs((await got[1].item()) / variance - 1)).toBeLessThan(0.15);
    }
  });

  test("name what does not fit", () => {
    const key = random.key(0);
    expect(() => random.gamma(key, np.ones([3]), [2])).toThrow(/random.gamma.*does not broadcast/);
    expect(() => random.gamma(key, 1, [2], "int32")).toThrow(/draws float32 and float64, not int32/);
    expect(() => random.dirichlet(key, np.array(1))).toThrow(/concentrations along a dim/);
    expect(() => random.multivariateNormal(key, np.ones([2]), np.eye(3))).toThrow(
      /needs covariances \[2,2\]/,
    );
    expect(() => lax.reducePrecision(np.ones([2]), 0, 3)).toThrow(/at least 1 and 0/);
    expect(() => lax.raggedDot(np.ones([2, 3]), np.ones([2, 4, 5]), np.ones([2], "int32"))).toThrow(
      /f32\[2,3\], f32\[2,4,5\]/,
    );
  });
});
