"""Writes scipy.json: jax.scipy.special and jax.scipy.stats by JAX.

    python test/jax/scipy_functions.py > test/jax/scipy.json
"""

import jax
import jax.numpy as jnp
from jax.scipy import special, stats

from cases import ramp, write

inf, nan = jnp.inf, jnp.nan


def floats(*values):
    return jnp.array(values, jnp.float32)


def row(module, names):
    return lambda *args: [getattr(module, name)(*args) for name in names.split()]


x = floats(-2.5, -1.2, -0.3, 0.4, 1.7, 3.1)
up = floats(0.05, 0.4, 0.9, 1.6, 3.0, 7.5)
share = floats(0.01, 0.2, 0.45, 0.6, 0.85, 0.99)
loc, scale = floats(0.5, -0.2, 0.1, 0.0, 0.3, -0.4), floats(1.5, 0.7, 2.0, 1.0, 0.5, 3.0)
a, b = floats(0.5, 1.5, 2.0, 3.3, 8.0, 1.0), floats(2.5, 0.7, 1.0, 4.0, 3.0, 0.9)
large = floats(0.3, 5.0, 9.0, 40.0, 1000.0, 12.0)
tails = "logpdf pdf cdf logcdf sf logsf"
ends = floats(-inf, -1.0, 0.0, 1.0, 2.0, inf)
counts = floats(0.0, 1.0, 2.0, 5.0, 3.0, 7.0)
many = floats(3.0, 1.0, 4.0, 9.0, 3.0, 12.0)

cases = {
    "norm": (row(stats.norm, tails), [x * 2, loc, scale]),
    "norm tails": (row(stats.norm, tails), [floats(-30, -12, -6, 5, 9, 14)], False),
    "norm ppf": (row(stats.norm, "ppf isf"), [share, loc, scale]),
    "cauchy": (row(stats.cauchy, tails), [x, loc, scale]),
    "cauchy ppf": (row(stats.cauchy, "ppf isf"), [share, loc, scale]),
    "expon": (row(stats.expon, tails), [up + loc, loc, scale]),
    "expon ends": (row(stats.expon, tails), [ends], False),
    "expon ppf": (row(stats.expon, "ppf"), [share, loc, scale]),
    "laplace": (row(stats.laplace, "logpdf pdf cdf"), [x, loc, scale]),
    "logistic": (row(stats.logistic, "logpdf pdf cdf sf"), [x * 3, loc, scale]),
    "logistic ppf": (row(stats.logistic, "ppf isf"), [share, loc, scale]),
    "uniform": (row(stats.uniform, "logpdf pdf cdf ppf"), [share * 0.9 * scale + loc, loc, scale], False),
    "uniform ends": (row(stats.uniform, "logpdf pdf cdf ppf"), [ends]),
    # JAX has no derivatives of these by the scale and the share: its constants there are integers.
    "gumbelL": (lambda y, m: row(stats.gumbel_l, tails)(y, m, scale), [x, loc]),
    "gumbelR": (lambda y, m: row(stats.gumbel_r, tails)(y, m, scale), [x, loc]),
    "gumbel ppf": (lambda *args: [stats.gumbel_l.ppf(*args), stats.gumbel_r.ppf(*args)], [share, loc, scale], False),
    "t": (row(stats.t, "logpdf pdf"), [x, a, loc, scale]),
    "gamma": (row(stats.gamma, tails), [up + loc, a, loc, scale]),
    "gamma ends": (row(stats.gamma, tails), [ends, a], False),
    "chi2": (row(stats.chi2, tails), [up + loc, a, loc, scale]),
    "beta": (row(stats.beta, "logpdf pdf"), [share * scale + loc, a, b, loc, scale]),
    "beta cdf": (lambda y: row(stats.beta, tails)(y, a, b), [share]),
    "beta ends": (row(stats.beta, "logpdf pdf cdf sf"), [ends, b, a], False),
    "pareto": (row(stats.pareto, tails), [(up + 1.1) * scale + loc, a, loc, scale]),
    "pareto ends": (row(stats.pareto, tails), [ends, a], False),
    "pareto ppf": (row(stats.pareto, "ppf"), [share, a, loc, scale]),
    "truncnorm": (row(stats.truncnorm, tails), [floats(-0.5, 0.3, 1.7, -2.0, 2.1, 0.2), floats(-1, 0.1, 1.5, -3, 2, -9), floats(2, 0.5, 3, -1, 2.5, 9)]),
    "truncnorm scaled": (row(stats.truncnorm, tails), [x * 0.1 + loc, -b - 0.7, a + 1, loc, scale]),
    "truncnorm ends": (row(stats.truncnorm, tails), [ends, floats(-1, -1, 0, 1, 3, 0), floats(1, 2, 1, 2, 1, 1)], False),
    "gennorm": (row(stats.gennorm, "logpdf pdf cdf"), [x, a + 0.5]),
    "vonmises": (row(stats.vonmises, "logpdf pdf"), [x, a]),
    "wrapcauchy": (row(stats.wrapcauchy, "logpdf pdf"), [up * 0.8, share]),
    "bernoulli": (row(stats.bernoulli, "logpmf pmf"), [floats(0, 1, 1, 0, 2, -1), share], False),
    "bernoulli cdf": (lambda k, p: [stats.bernoulli.cdf(k, p), stats.bernoulli.ppf(jnp.abs(k) / 3, p)], [floats(-0.5, 0, 0.5, 1, 2, 0), share], False),
    "binom": (row(stats.binom, "logpmf pmf"), [counts * 0.5 + 0.2, many, share]),
    "binom ends": (row(stats.binom, "logpmf pmf"), [floats(0, -1, 5, 9, 0, 12), many, floats(0, 0.5, 0.5, 1, 0.2, 0.4), floats(0, 0, 0, 0, 1, 1)], False),
    "nbinom": (row(stats.nbinom, "logpmf pmf"), [counts + 0.3, many, share]),
    "geom": (row(stats.geom, "logpmf pmf"), [counts + 1.5, share]),
    "geom ends": (row(stats.geom, "logpmf pmf"), [floats(0, 1, -1, 2, 3, 4), share, floats(0, 0, 0, 1, 3, 5)], False),
    "poisson": (row(stats.poisson, "logpmf pmf cdf"), [counts, up]),
    "poisson ends": (row(stats.poisson, "logpmf pmf cdf"), [floats(-1, 0.5, 3, 2, 4, 5), up, floats(0, 0, 1, 3, 0, 0)], False),
    "poisson entropy": (lambda m: stats.poisson.entropy(m), [floats(0.0, 0.5, 8.0, 30.0, 99.0, 400.0)], False),
    "betabinom": (row(stats.betabinom, "logpmf pmf"), [jnp.minimum(counts, many), many, a, b]),
    "betabinom ends": (row(stats.betabinom, "logpmf pmf"), [floats(-1, 5, 0, 2, 3, 1), floats(3, 4, 0, 5, -1, 6), a, floats(1, 1, 1, -1, 1, 1)], False),
    "multinomial": (lambda p: [stats.multinomial.logpmf(jnp.array([1, 0, 3]), 4, p), stats.multinomial.pmf(jnp.array([1, 0, 3]), 5, p)], [floats(0.2, 0.3, 0.5)]),
    "dirichlet": (row(stats.dirichlet, "logpdf pdf"), [floats(0.2, 0.3, 0.5), floats(1.5, 0.7, 3.0)]),
    "dirichlet fewer": (row(stats.dirichlet, "logpdf pdf"), [floats([0.2, 0.1, 0.9], [0.3, 0.8, 0.9]), floats(1.5, 0.7, 3.0)], False),
    "multivariateNormal simple": (lambda y, m, v: [stats.multivariate_normal.logpdf(y, m, v), stats.multivariate_normal.logpdf(y[0, 0], m[0], v)], [ramp(4, 3), ramp(3, start=2), floats(1.7)[0]]),
    "mode": (lambda y: list(stats.mode(y)) + list(stats.mode(y, axis=None)) + list(stats.mode(y, axis=1, keepdims=True)), [floats([1, 2, 2, 3], [1, 3, 2, 2], [5, 3, 2, 2])], False),
    "rankdata": (lambda y: [stats.rankdata(y, m) for m in ("average", "min", "max", "dense", "ordinal")] + [stats.rankdata(y, axis=1)], [floats([1, 2, 2, 3], [1, 3, 2, -2])], False),
    "sem": (lambda y: [stats.sem(y), stats.sem(y, axis=1, ddof=0), stats.sem(y, axis=None, keepdims=True)], [ramp(4, 3)]),
    "sem omit": (lambda y: stats.sem(y, axis=1, nan_policy="omit"), [ramp(3, 4).at[0, 1].set(nan)], False),
    # Functions.
    "gamma functions": (row(special, "gammaln gamma digamma factorial"), [floats(0.1, 0.7, 1.5, 3.2, 8.5, 20.0)]),
    "gamma functions ends": (row(special, "gammasgn gamma loggamma factorial"), [floats(-2.5, -1.5, -1.0, 0.0, -0.3, inf)], False),
    "betaln": (row(special, "betaln beta"), [a, b]),
    "betaln large": (lambda y, z: [special.betaln(y, z), special.betaln(z, y), special.betaln(y * 100, z)], [large, large[::-1]]),
    "beta negative": (row(special, "beta"), [floats(-0.5, -1.5, 2.5, -2.3, 0.5, 1.2), floats(1.3, 0.7, -0.4, -0.9, 2, 3)], False),
    "incomplete": (row(special, "gammainc gammaincc"), [a, up]),
    "betainc": (lambda y: special.betainc(a, b, y), [share]),
    "error functions": (row(special, "erf erfc erfcx ndtr log_ndtr dawsn"), [x]),
    "error functions far": (row(special, "erfc erfcx ndtr log_ndtr dawsn"), [floats(-20, -6, 5, 8, 20, 60)], False),
    "inverses": (lambda p: [special.ndtri(p), special.logit(p), special.erfinv(2 * p - 1)], [share]),
    "ndtri tails": (special.ndtri, [floats(0.0, 1e-30, 1e-6, 0.999, 1.0, 0.021)], False),
    "expit": (row(special, "expit i0 i1 i0e i1e"), [x]),
    "products": (row(special, "xlogy rel_entr kl_div boxcox"), [up, a]),
    "products of 1p": (row(special, "xlog1py boxcox1p"), [up, a]),
    "products ends": (row(special, "xlogy xlog1py rel_entr kl_div"), [floats(0, 0, 1, 2, 0, -1), floats(0, nan, 0, 3, -1, 1)], False),
    "boxcox zero": (row(special, "boxcox boxcox1p"), [up, floats(0, 0, 0, 1, 2, -1)]),
    "entr": (row(special, "entr"), [up]),
    "entr ends": (row(special, "entr"), [floats(0, -1, 1, inf)], False),
    "comb": (lambda n, k: [special.comb(n, k), special.comb(n, k, repetition=True)], [many, counts * 0.7]),
    "poch": (row(special, "poch"), [up, a]),
    "multigammaln": (lambda y: [special.multigammaln(y + 2, 3), special.multigammaln(y + 1, 1)], [up]),
    "zeta": (lambda q: [special.zeta(jnp.float32(2.5), q), special.polygamma(2, q)], [up]),
    "softmax": (lambda y: [special.logsumexp(y, axis=1), special.softmax(y, axis=-1), special.log_softmax(y, axis=0)], [ramp(3, 4)]),
    "integers": (lambda k: [special.gammaln(k), stats.norm.cdf(k), stats.poisson.logpmf(k, 2.5)], [jnp.array([1, 2, 5], jnp.int32)]),
}

write(cases)
