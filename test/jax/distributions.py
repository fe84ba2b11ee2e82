"""Writes distributions.json: what JAX draws, and special functions by JAX.

    python test/jax/distributions.py > test/jax/distributions.json
"""

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.scipy import special

from cases import ramp, write

key = random.key_data(random.key(7))
alphas = jnp.array([0.3, 1.0, 2.5, 40.0, 0.9, 7.0])
# Few enough for the methods that count; those for more values refuse by the last digits of logarithms.
rates = jnp.array([0.0, 0.5, 3.0, 9.9])
cov = jnp.array([[2.0, 0.5], [0.5, 1.0]])
# Away from 0, −1, −2 … and from where the functions vanish.
xs = jnp.array([0.1, 0.4, 0.7, 1.7, 3.2, 8.5, 40.0, 1000.0, -0.3, -1.6, -7.4])
odd = jnp.array([1.0, 1.1, -3.14159, 65504.0, 1e5, 1e-5, -1e-8, jnp.inf, 0.0, 1.0009765], jnp.float32)


def draw(fn, *params, **options):
    return (lambda k, *p: fn(random.wrap_key_data(k), *p, **options), (key, *params), False)


def smooth(fn, *params, **options):
    return (lambda k, *p: fn(random.wrap_key_data(k), *p, **options), (key, *params))


write({
    "gamma": smooth(random.gamma, alphas),
    "gamma shape": smooth(lambda k, a: random.gamma(k, a, (2, 3)), jnp.array([0.5, 1.5, 8.0])),
    "loggamma": smooth(random.loggamma, alphas),
    "beta": smooth(random.beta, alphas, alphas[::-1]),
    "dirichlet": smooth(lambda k, a: random.dirichlet(k, a, (2,)), alphas),
    "t": smooth(random.t, alphas),
    "chisquare": smooth(random.chisquare, alphas),
    "generalizedNormal": draw(lambda k: random.generalized_normal(k, 3.0, (5,))),
    "ball": draw(lambda k: random.ball(k, 3, 2, (4,))),
    "rademacher": draw(lambda k: random.rademacher(k, (9,))),
    "geometric": draw(random.geometric, jnp.array([0.1, 0.5, 0.9])),
    "poisson": draw(random.poisson, rates),
    "binomial": draw(random.binomial, jnp.array([3.0, 10.0, 20.0, 900.0, 12.0]), jnp.array([0.2, 0.9, 0.4, 0.01, 0.7])),
    "multinomial": draw(lambda k, p: random.multinomial(k, 12.0, p), jnp.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])),
    "cauchy": draw(lambda k: random.cauchy(k, (6,))),
    "lognormal": smooth(lambda k, s: random.lognormal(k, s, (4,)), jnp.array(0.5)),
    "pareto": smooth(random.pareto, jnp.array([1.5, 3.0])),
    "rayleigh": smooth(random.rayleigh, jnp.array([1.5, 3.0])),
    "weibullMin": smooth(lambda k, s, c: random.weibull_min(k, s, c, (3,)), jnp.array(2.0), jnp.array(1.5)),
    "maxwell": draw(lambda k: random.maxwell(k, (4,))),
    "multivariateNormal": smooth(lambda k, m, c: random.multivariate_normal(k, m, c, (3,)), jnp.array([1.0, -1.0]), cov),
    "f": smooth(random.f, alphas, alphas[::-1]),
    "wald": smooth(lambda k, m: random.wald(k, m, (2, 3)), jnp.array([0.5, 1.5, 8.0])),
    "triangular": smooth(lambda k, a, b, c: random.triangular(k, a, b, c, (5,)), jnp.array(-1.0), jnp.array(0.5), jnp.array(2.0)),
    "doubleSidedMaxwell": smooth(lambda k, a, b: random.double_sided_maxwell(k, a, b, (3,)), jnp.array([0.5, -1.0]), jnp.array(2.0)),
    "doubleSidedMaxwell repeated": smooth(lambda k, a, b: random.double_sided_maxwell(k, a, b), jnp.array([0.5, -1.0]), jnp.array(2.0)),
    "complex normal": draw(lambda k: random.normal(k, (5,), jnp.complex64)),
    "bfloat16": draw(lambda k: [random.cauchy(k, (6,), jnp.bfloat16), random.pareto(k, 2.0, (6,), jnp.bfloat16), random.maxwell(k, (4,), jnp.bfloat16)]),
    "float16": draw(lambda k: [random.cauchy(k, (6,), jnp.float16), random.rayleigh(k, 2.0, (6,), jnp.float16), random.triangular(k, 0.0, 1.0, 2.0, (6,), jnp.float16)]),
    "randomGammaGrad": (
        lax.random_gamma_grad,
        (jnp.array([0.01, 0.3, 1.0, 2.5, 2.5, 40.0, 40.0, 40.0, 1e-3, 2.0, 0.0, -1.0]), jnp.array([0.5, 0.01, 1.0, 20.0, 0.1, 10.0, 39.0, 70.0, 2.0, 0.0, 1.0, 1.0])),
        False,
    ),
    "igammaGradA": (lax.igamma_grad_a, (jnp.array([0.3, 1.0, 2.5, 40.0]), jnp.array([0.01, 1.0, 20.0, 39.0])), False),
    "zeta": (lambda q: special.zeta(jnp.array([1.5, 2.0, 3.0, 7.0]), q), (jnp.array([0.3, 1.0, 2.5, 40.0]),)),
    "lgamma": (lax.lgamma, (xs,)),
    "digamma": (lax.digamma, (xs,)),
    "digamma poles": (lambda x: (lax.digamma(x), lax.lgamma(x)), (jnp.array([0.0, -1.0, -2.0, jnp.inf]),), False),
    "reducePrecision bfloat16": (lambda x: lax.reduce_precision(x, 8, 7), (odd,), False),
    "reducePrecision float16": (lambda x: lax.reduce_precision(x, 5, 10), (odd,), False),
    "reducePrecision gradient": (lambda x: lax.reduce_precision(x, 5, 3), (ramp(6),)),
    "raggedDot": (lambda a, b, n: lax.ragged_dot(a, b, n), (ramp(7, 3), ramp(4, 3, 2, step=1.1), jnp.array([2, 0, 3, 1], jnp.int32))),
    "reduce": (lambda x: (lax.reduce(x, 0.0, lax.add, (0, 2)), lax.reduce(x, -jnp.inf, lax.max, (1,)), lax.reduce(x, 1.0, lax.mul, (2,))), (ramp(2, 3, 4),), False),
    "reduce tree": (
        lambda x, i: lax.reduce((x, i), (-jnp.inf, 0), lambda a, b: (lax.select(a[0] >= b[0], a[0], b[0]), lax.select(a[0] >= b[0], a[1], b[1])), (1,)),
        (ramp(2, 9), lax.broadcasted_iota(jnp.int32, (2, 9), 1)),
        False,
    ),
})
