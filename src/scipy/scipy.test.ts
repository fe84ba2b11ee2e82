import { grad, lax, np, random, scipy, type Tensor } from "shardwise";
import { describe, expect, test } from "vitest";
import { expectClose } from "../../test/support/goldens.js";
import { type CaseFunction, describeJaxCases } from "../../test/support/jaxCases.js";

const { special, stats } = scipy;

/** Several methods of a distribution, or functions, of the same arguments. */
const row =
  (holder: object, names: string): CaseFunction =>
  (...args) =>
    names.split(" ").map((name) => Reflect.get(holder, name)(...args));
const tails = "logpdf pdf cdf logcdf sf logsf";
const floats = (...values: number[]) => np.array(values);
const [a, b] = [floats(0.5, 1.5, 2, 3.3, 8, 1), floats(2.5, 0.7, 1, 4, 3, 0.9)];
const scale = floats(1.5, 0.7, 2, 1, 0.5, 3);
const counts = np.array([1, 0, 3], "int32");

const cases: Readonly<Record<string, CaseFunction>> = {
  norm: row(stats.norm, tails),
  "norm tails": row(stats.norm, tails),
  "norm ppf": row(stats.norm, "ppf isf"),
  cauchy: row(stats.cauchy, tails),
  "cauchy ppf": row(stats.cauchy, "ppf isf"),
  expon: row(stats.expon, tails),
  "expon ends": row(stats.expon, tails),
  "expon ppf": row(stats.expon, "ppf"),
  laplace: row(stats.laplace, "logpdf pdf cdf"),
  logistic: row(stats.logistic, "logpdf pdf cdf sf"),
  "logistic ppf": row(stats.logistic, "ppf isf"),
  uniform: row(stats.uniform, "logpdf pdf cdf ppf"),
  "uniform ends": row(stats.uniform, "logpdf pdf cdf ppf"),
  gumbelL: (x, loc) => row(stats.gumbelL, tails)(x, loc, scale),
  gumbelR: (x, loc) => row(stats.gumbelR, tails)(x, loc, scale),
  "gumbel ppf": (q, loc, width) => [stats.gumbelL.ppf(q, loc, width), stats.gumbelR.ppf(q, loc, width)],
  t: row(stats.t, "logpdf pdf"),
  gamma: row(stats.gamma, tails),
  "gamma ends": row(stats.gamma, tails),
  chi2: row(stats.chi2, tails),
  beta: row(stats.beta, "logpdf pdf"),
  "beta cdf": (x) => row(stats.beta, tails)(x, a, b),
  "beta ends": row(stats.beta, "logpdf pdf cdf sf"),
  pareto: row(stats.pareto, tails),
  "pareto ends": row(stats.pareto, tails),
  "pareto ppf": row(stats.pareto, "ppf"),
  truncnorm: row(stats.truncnorm, tails),
  "truncnorm scaled": row(stats.truncnorm, tails),
  "truncnorm ends": row(stats.truncnorm, tails),
  gennorm: row(stats.gennorm, "logpdf pdf cdf"),
  vonmises: row(stats.vonmises, "logpdf pdf"),
  wrapcauchy: row(stats.wrapcauchy, "logpdf pdf"),
  bernoulli: row(stats.bernoulli, "logpmf pmf"),
  "bernoulli cdf": (k, p) => [stats.bernoulli.cdf(k, p), stats.bernoulli.ppf(np.abs(k).div(3), p)],
  binom: row(stats.binom, "logpmf pmf"),
  "binom ends": row(stats.binom, "logpmf pmf"),
  nbinom: row(stats.nbinom, "logpmf pmf"),
  geom: row(stats.geom, "logpmf pmf"),
  "geom ends": row(stats.geom, "logpmf pmf"),
  poisson: row(stats.poisson, "logpmf pmf cdf"),
  "poisson ends": row(stats.poisson, "logpmf pmf cdf"),
  "poisson entropy": (mu) => stats.poisson.entropy(mu),
  betabinom: row(stats.betabinom, "logpmf pmf"),
  "betabinom ends": row(stats.betabinom, "logpmf pmf"),
  multinomial: (p) => [stats.multinomial.logpmf(counts, 4, p), stats.multinomial.pmf(counts, 5, p)],
  dirichlet: row(stats.dirichlet, "logpdf pdf"),
  "dirichlet fewer": row(stats.dirichlet, "logpdf pdf"),
  "multivariateNormal simple": (y, m, v) => [
    stats.multivariateNormal.logpdf(y, m, v),
    stats.multivariateNormal.logpdf(y.get(0, 0), m.get(0), v),
  ],
  mode: (y) =>
    [stats.mode(y), stats.mode(y, null), stats.mode(y, 1, { keepdims: true })].flatMap((one) => [
      one.mode,
      one.count,
    ]),
  rankdata: (y) => [
    ...(["average", "min", "max", "dense", "ordinal"] as const).map((method) =>
      stats.rankdata(y, { method }),
    ),
    stats.rankdata(y, { dim: 1 }),
  ],
  sem: (y) => [stats.sem(y), stats.sem(y, 1, { ddof: 0 }), stats.sem(y, null, { keepdims: true })],
  "sem omit": (y) => stats.sem(y, 1, { nanPolicy: "omit" }),
  "gamma functions": row(special, "gammaln gamma digamma factorial"),
  "gamma functions ends": row(special, "gammasgn gamma loggamma factorial"),
  betaln: row(special, "betaln beta"),
  "betaln large": (y, z) => [special.betaln(y, z), special.betaln(z, y), special.betaln(y.mul(100), z)],
  "beta negative": row(special, "beta"),
  incomplete: row(special, "gammainc gammaincc"),
  betainc: (y) => special.betainc(a, b, y),
  "error functions": row(special, "erf erfc erfcx ndtr logNdtr dawsn"),
  "error functions far": row(special, "erfc erfcx ndtr logNdtr dawsn"),
  inverses: (p) => [special.ndtri(p), special.logit(p), special.erfinv(p.mul(2).sub(1))],
  "ndtri tails": special.ndtri,
  expit: row(special, "expit i0 i1 i0e i1e"),
  products: row(special, "xlogy relEntr klDiv boxcox"),
  "products of 1p": row(special, "xlog1py boxcox1p"),
  "products ends": row(special, "xlogy xlog1py relEntr klDiv"),
  "boxcox zero": row(special, "boxcox boxcox1p"),
  entr: row(special, "entr"),
  "entr ends": row(special, "entr"),
  comb: (n, k) => [special.comb(n, k), special.comb(n, k, { repetition: true })],
  poch: row(special, "poch"),
  multigammaln: (y) => [special.multigammaln(y.add(2), 3), special.multigammaln(y.add(1), 1)],
  zeta: (q) => [special.zeta(2.5, q), special.polygamma(2, q)],
  softmax: (y) => [special.logsumexp(y, 1), special.softmax(y, -1), special.logSoftmax(y, 0)],
  integers: (k) => [special.gammaln(k), stats.norm.cdf(k), stats.poisson.logpmf(k, 2.5)],
};

describeJaxCases("scipy.json", cases, {
  tolerance: 2e-5,
  // The derivatives of both are opposite and large: what is left of JAX's sum is rounding.
  tolerances: { "norm ppf": 1e-4 },
  everyday: [
    "norm",
    "norm ppf",
    "logistic",
    "t",
    "beta",
    "pareto",
    "truncnorm",
    "binom",
    "nbinom",
    "betabinom",
    "multivariateNormal simple",
    "sem",
    "betaln",
    "error functions",
    "inverses",
    "products",
    "poch",
  ],
});

const ramp = (shape: readonly number[], start = 0) =>
  np
    .sin(
      np
        .arange(
          shape.reduce((a, n) => a * n, 1),
          "float32",
        )
        .mul(0.7)
        .add(start),
    )
    .reshape(shape);

describe("estimated densities and normal vectors", () => {
  test("are SciPy's", async () => {
    const near = { rtol: 1e-5 };
    const [samples, points] = [ramp([2, 7]), ramp([2, 3], 1)];
    const weights = np.array([1, 2, 0.5, 1, 3, 1, 1]);
    const scott = stats.gaussianKde(samples);
    await expectClose(scott.pdf(points), [0.178939472, 0.123766458, 0.115125567], near);
    await expectClose(scott.logpdf(points), [-1.720707674, -2.089358891, -2.161731856], near);
    const silverman = stats.gaussianKde(samples, { bwMethod: "silverman", weights });
    await expectClose(silverman.pdf(points), [0.162339442, 0.121344177, 0.130915189], near);
    await expectClose(silverman.logpdf(points), [-1.818065815, -2.109124335, -2.033205581], near);
    const narrow = stats.gaussianKde(samples, { bwMethod: 0.4 });
    await expectClose(narrow.evaluate(points), [0.291275961, 0.151698643, 0.157022805], near);
    const line = stats.gaussianKde(ramp([7]));
    await expectClose(line.integrateBox1d(-0.5, 0.8), [0.553403033], near);
    await expectClose(line.integrateGaussian(0.2, 0.5), [0.369419363], near);
    await expectClose(line.integrateKde(stats.gaussianKde(ramp([5], 2))), [0.297700561], near);
    const matrix = np.eye(3).add(0.3);
    const logs = [-4.260937687, -3.08329567, -4.723730214, -4.249137855];
    await expectClose(stats.multivariateNormal.logpdf(ramp([4, 3]), ramp([3], 2), matrix), logs, near);
    const batch = np.broadcastTo(matrix, [4, 3, 3]);
    await expectClose(stats.multivariateNormal.logpdf(ramp([4, 3]), ramp([3], 2), batch), logs, near);
  });

  test("are drawn from, and have derivatives", async () => {
    const drawn = stats.gaussianKde(ramp([2, 7])).resample(random.key(0), [500]);
    expect(drawn.shape).toEqual([2, 500]);
    await expectClose(np.mean(drawn, 1), np.mean(ramp([2, 7]), 1), { atol: 0.15 });
    const at = (x: Tensor) =>
      stats
        .gaussianKde(ramp([7]))
        .logpdf(x.reshape([1]))
        .get(0);
    const [slope, step] = [await grad(at)(np.array(0.3)).item(), 1e-2];
    const values = await Promise.all([0.3 + step, 0.3 - step].map((x) => at(np.array(x)).item()));
    expect(slope).toBeCloseTo(((values[0] ?? 0) - (values[1] ?? 0)) / (2 * step), 3);
  });
});

describe("distributions", () => {
  test("have no slope by the scale where the density is 0, and one where terms underflow", async () => {
    const slope = (fn: (x: Tensor) => Tensor, at: number[]) =>
      grad((x: Tensor) => np.sum(fn(x)))(np.array(at));
    const near = { rtol: 1e-5, atol: 1e-6 };
    // By JAX 0.10.2.
    const byScale = slope((scale) => stats.uniform.logpdf(np.array([0.7, 9]), 0.5, scale), [2, 2]);
    await expectClose(byScale, np.array([-0.5, 0]), near);
    const byRate = slope(stats.poisson.entropy, [0.5, 2, 20]);
    await expectClose(byRate, np.array([1.0070169, 0.28485078, 0.02521992]), near);
  });

  test("on spheres do not depend on the sign of the colatitude", async () => {
    const both = special.sphHarmY([2, 2], [1, 1], np.array([-0.5, 0.5]), np.array([0.3, 0.3]));
    await expectClose(np.real(both), np.array([-0.31052117, -0.31052117]), { rtol: 1e-5, atol: 0 });
  });

  test("take numbers, broadcast, and name what does not fit", async () => {
    expect(await stats.norm.logpdf(0).item()).toBeCloseTo(-0.9189385, 6);
    expect(stats.gamma.pdf(np.ones([3, 1]), np.ones([4])).shape).toEqual([3, 4]);
    expect(() => stats.norm.cdf(np.ones([3]), np.ones([2]))).toThrow(
      /scipy.stats.norm.cdf.*do not broadcast/,
    );
    expect(() => stats.norm.cdf(lax.complex(1, 2))).toThrow(/scipy.stats.norm.cdf.*real numbers/);
    expect(() => stats.dirichlet.pdf(np.ones([4]), np.ones([2]))).toThrow(/the 2 entries of alpha/);
    expect(() => stats.multivariateNormal.pdf(1, np.ones([2]), np.eye(3))).toThrow(
      /does not fit a covariance/,
    );
    expect(() => stats.multinomial.pmf(np.ones([2]), 2, np.ones([2]))).toThrow(/must be integers/);
    const samples: Tensor = np.ones([2, 5]);
    expect(() => stats.gaussianKde(samples, { weights: np.ones([2]) })).toThrow(
      /5 samples need as many weights/,
    );
    expect(() => stats.gaussianKde(samples).pdf(np.ones([3, 2]))).toThrow(/need 2 rows/);
  });
});
