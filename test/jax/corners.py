"""Writes corners.json: results and gradients by JAX where functions are easily wrong: ends of ranges, ties, NaN,
infinities, masks, indices out of range.

    python test/jax/corners.py > test/jax/corners.json
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special

from cases import write

inf, nan = jnp.inf, jnp.nan


def floats(*values):
    return jnp.array(values, jnp.float32)


def ints(*values, dtype=jnp.int32):
    return jnp.array(values, dtype)


def affine(x, y):
    """x, and then y."""
    return [y[0] * x[0], y[0] * x[1] + y[1]]


x = floats([0.5, -1.5, 2.0, 0.25], [1.0, 3.0, -0.75, -2.0])
mask = jnp.array([[True, False, True, True], [False, True, False, True]])
holes = floats([0.5, nan, 2.0, 0.25], [1.0, 3.0, -0.75, nan])
ends = floats(-inf, -3.0, 0.0, 1.5, inf, nan)
some = floats(-2.0, -0.5, 0.0, 0.5, 3.0, nan)
bits = ints([12, 10, 14], [7, -1, 6])

cases = {
    "associativeScan": (lambda a, b: lax.associative_scan(affine, [a, b]), [floats(0.5, 2, 3, 4), floats(1, -1, 2, 5)]),
    "associativeScan reverse": (
        lambda a, b: lax.associative_scan(affine, [a, b], reverse=True),
        [floats(0.5, 2, 3, 4), floats(1, -1, 2, 5)],
    ),
    "associativeScan reverse 5": (
        lambda a, b: lax.associative_scan(affine, [a, b], reverse=True),
        [floats(0.5, 2, 3, 4, -1), floats(1, -1, 2, 5, 3)],
    ),
    "reduceAnd": (lambda a: [lax.reduce_and(a, [d]) for d in (0, 1)], [bits]),
    "reduceOr": (lambda a: [lax.reduce_or(a, [d]) for d in (0, 1)], [bits]),
    "reduceAnd both": (lambda a: [lax.reduce_and(a, [0, 1]), lax.reduce_or(a, [0, 1])], [bits.astype(jnp.uint8)]),
    "reduceAnd bool": (lambda a: [lax.reduce_and(a, [0]), lax.reduce_or(a, [0])], [mask]),
    "round": (lambda a: lax.round(a), [floats(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 8388609.0, inf)]),
    "round to even": (lambda a: lax.round(a, lax.RoundingMethod.TO_NEAREST_EVEN), [floats(-2.5, -0.5, 0.5, 1.5, 2.5)]),
    "dynamicSlice unsigned": (lambda a, i: lax.dynamic_slice(a, (i,), (2,)), [floats(1, 2, 3, 4, 5), jnp.uint32(2**31 + 5)]),
    "dynamicSlice negative": (lambda a, i: lax.dynamic_slice(a, (i,), (2,)), [floats(1, 2, 3, 4, 5), jnp.int32(-2)]),
    "dynamicUpdateSlice unsigned": (
        lambda a, b, i: lax.dynamic_update_slice(a, b, (i,)),
        [floats(1, 2, 3, 4, 5), floats(8, 9), jnp.uint32(2**32 - 1)],
    ),
    # Masks: what is left out neither counts nor gets a gradient.
    "softmax where": (lambda a: jax.nn.softmax(a, where=mask), [x]),
    "logSoftmax where": (lambda a: jax.nn.log_softmax(a, where=mask), [x]),
    "logsumexp where": (lambda a: special.logsumexp(a, axis=1, where=mask), [x]),
    "standardize where": (lambda a: jax.nn.standardize(a, where=mask), [x]),
    "sum where": (lambda a: jnp.sum(a, axis=1, where=mask), [x]),
    "prod where": (lambda a: jnp.prod(a, axis=1, where=mask), [x]),
    "mean where": (lambda a: jnp.mean(a, axis=1, where=mask), [x]),
    "var where": (lambda a: jnp.var(a, axis=1, where=mask, ddof=1), [x]),
    "std where": (lambda a: jnp.std(a, axis=1, where=mask), [x]),
    "max where": (lambda a: [jnp.max(a, axis=1, where=mask, initial=-9.0), jnp.min(a, axis=1, where=mask, initial=9.0)], [x]),
    "mean where nan": (lambda a: jnp.mean(a, axis=1, where=~jnp.isnan(a)), [holes]),
    "logsumexp where nan": (lambda a: special.logsumexp(a, axis=1, where=~jnp.isnan(a)), [holes]),
    "softmax where nan": (lambda a: jax.nn.softmax(a, where=~jnp.isnan(a)), [holes]),
    "logSoftmax where nan": (lambda a: jax.nn.log_softmax(a, where=~jnp.isnan(a)), [holes]),
    "nanvar": (lambda a: jnp.nanvar(a, axis=1), [holes]),
    "nanvar ddof": (lambda a: jnp.nanvar(a, axis=1, ddof=1), [holes]),
    "nanstd": (lambda a: jnp.nanstd(a), [holes]),
    "nanmean": (lambda a: jnp.nanmean(a, axis=1), [holes]),
    "nansum": (lambda a: jnp.nansum(a, axis=1), [holes]),
    "nanprod": (lambda a: jnp.nanprod(a, axis=1), [holes]),
    "nanmax": (lambda a: [jnp.nanmax(a, axis=1), jnp.nanmin(a, axis=1)], [holes]),
    "nanmedian infinite": (lambda a: jnp.nanmedian(a, axis=1), [floats([-inf, nan, 1, inf], [inf, inf, 1, nan], [nan, nan, nan, nan])], False),
    "nanquantile infinite": (
        lambda a: [jnp.nanquantile(a, q, axis=1) for q in (0.25, 0.75)],
        [floats([-inf, nan, 1, inf], [inf, inf, 1, nan], [1, 2, nan, 4])],
        False,
    ),
    "quantile infinite": (
        lambda a: [jnp.quantile(a, q, axis=1) for q in (0.25, 0.5)],
        [floats([-inf, 0, 1, inf], [inf, inf, 1, 3], [-inf, -inf, 2, inf])],
        False,
    ),
    "nanquantile": (lambda a: jnp.nanquantile(a, 0.3, axis=1), [holes]),
    # Indices.
    "takeAlongAxis clip": (lambda a, i: jnp.take_along_axis(a, i, 1, mode="clip"), [x, ints([-1, 5, 0, -9], [3, -4, -5, 4])]),
    "takeAlongAxis fill": (lambda a, i: jnp.take_along_axis(a, i, 1), [x, ints([-1, 5, 0, -9], [3, -4, -5, 4])]),
    "take clip": (lambda a, i: jnp.take(a, i, 1, mode="clip"), [x, ints(-1, 5, 0, -9)]),
    "take wrap": (lambda a, i: jnp.take(a, i, 1, mode="wrap"), [x, ints(-1, 5, 0, -9)]),
    "take fill": (lambda a, i: jnp.take(a, i, 1), [x, ints(-1, 5, 0, -9)]),
    "index": (lambda a, i: a[i], [floats(1, 2, 3), ints(0, -1, 3, -4, 7)]),
    "index two": (lambda a, i, j: a[i, j], [x, ints(0, 2, -1, -3), ints(-5, 1, 4, 2)]),
    "index scalar": (lambda a, i: a[i], [x, jnp.int32(5)]),
    "index scalar two": (lambda a, i: a[0, i], [x, jnp.int32(-7)]),
    "index ellipsis": (lambda a, i, j: [a[i, ..., j], a[i, j], a[..., i, j]], [floats([[1, 2], [3, 4]], [[5, 6], [7, 8]]), ints(0, 1, 1), ints(1, 0, 1)]),
    "index empty ellipsis": (lambda a, i, j: [a[i, ..., :, j], a[:, i, ..., j], a[i, :, ..., j]], [floats([[1, 2], [3, 4]], [[5, 6], [7, 8]]), ints(0, 1, 1), ints(1, 0, 1)]),
    "at add outside": (lambda a, i, u: a.at[i].add(u), [floats(1, 2, 3), ints(0, 3, -4, -1), floats(1, 10, 100, 1000)]),
    "at set outside": (lambda a, i, u: a.at[i].set(u), [floats(1, 2, 3), ints(0, 3, -4, -1), floats(1, 10, 100, 1000)]),
    "digitize": (
        lambda a, b: [jnp.digitize(a, b, right=r) for r in (False, True)],
        [floats(-1, 0, 0.5, 1, 2, 2.5, 3, 4, nan), floats(0, 1, 2, 3)],
    ),
    "digitize falling": (
        lambda a, b: [jnp.digitize(a, b, right=r) for r in (False, True)],
        [floats(-1, 0, 0.5, 1, 2, 2.5, 3, 4), floats(3, 2, 1, 0)],
    ),
    "cov one row": (lambda a: [jnp.cov(a), jnp.cov(a[0]), jnp.cov(a.T, rowvar=False)], [floats([1.0, 2.5, -1.0, 4.0])]),
    "corrcoef one row": (lambda a: [jnp.corrcoef(a), jnp.corrcoef(a[0])], [floats([1.0, 2.5, -1.0, 4.0])], False),
    "fillDiagonal": (
        lambda a, v: [jnp.fill_diagonal(a, v[:n], inplace=False) for n in (1, 2, 3)],
        [jnp.arange(20, dtype=jnp.float32).reshape(5, 4), floats(-1, -2, -3)],
    ),
    "unravelIndex": (lambda i: jnp.unravel_index(i, (3, 4)), [ints(-1, -12, -13, 0, 11, 12, 100)]),
    "bincount": (lambda i: jnp.bincount(i, length=4), [ints(-1, 0, 2, -7, 3, 4, 2)]),
    "bincount weights": (lambda i, w: jnp.bincount(i, weights=w, length=4), [ints(-1, 0, 2, -7, 3, 4, 2), floats(1, 2, 3, 4, 5, 6, 7)]),
    "setdiff1d": (lambda a, b: [jnp.setdiff1d(a, b, size=n) for n in (1, 2, 3, 5)], [ints(5, 1, 3, 1, 7), ints(1, 9)]),
    "setdiff1d fill": (lambda a, b: [jnp.setdiff1d(a, b, size=5, fill_value=-1)], [ints(5, 1, 3, 1, 7), ints(1, 9)]),
    "setdiff1d nothing": (lambda a, b: [jnp.setdiff1d(a, b, size=3)], [ints(5, 1, 3, 1, 7), ints(1, 3, 5, 7)]),
    "intersect1d": (lambda a, b: [jnp.intersect1d(a, b, size=n) for n in (1, 2, 4)], [ints(5, 1, 3, 1, 7), ints(1, 9, 7)]),
    "intersect1d nothing": (lambda a, b: [jnp.intersect1d(a, b, size=2)], [ints(5, 1, 3, 1, 7), ints(0, 9)]),
    "union1d": (lambda a, b: [jnp.union1d(a, b, size=n) for n in (2, 5, 7)], [ints(5, 1, 3, 1, 7), ints(1, 9)]),
    "uniqueAll": (
        lambda a: [jnp.unique_all(a, size=n) for n in (1, 2, 4, 6)],
        [ints(5, 1, 3, 1, 7, 5)],
    ),
    "uniqueAll fill": (
        lambda a: jnp.unique_all(a, size=6, fill_value=-1),
        [ints(5, 1, 3, 1, 7, 5)],
    ),
    "uniqueAll nan": (
        lambda a: [jnp.unique_all(a, size=n) for n in (2, 4, 6)],
        [floats(nan, 1, 3, nan, 1, nan)],
        False,
    ),
    # Slopes where formulas overflow, cancel or hide NaN.
    "power -3": (lambda a: jnp.power(a, -3), [floats(1e-9, 1e20, 0.0, -2.0, 3.0)]),
    "power -1": (lambda a: jnp.power(a, -1), [floats(1e-9, 1e20, 0.0, -2.0, 3.0)]),
    "power 3": (lambda a: jnp.power(a, 3), [floats(1e-9, 1e12, 0.0, -2.0, 3.0, nan, inf)]),
    "power 7": (lambda a: jnp.power(a, 7), [floats(1e-5, 1e5, 0.0, -2.0, 3.0, nan, inf)]),
    "power 0": (lambda a: jnp.power(a, 0), [floats(1e-9, 1e20, 0.0, -2.0, nan, inf)]),
    "power 1": (lambda a: jnp.power(a, 1), [floats(1e-9, 1e20, 0.0, -2.0, nan, inf)]),
    "power 2": (lambda a: jnp.power(a, 2), [floats(1e-9, 1e18, 0.0, -2.0, nan, inf)]),
    "power": (lambda a, b: jnp.power(a, b), [floats(1e-9, 1e20, 0.0, 2.0, 0.0, 0.0), floats(-3, -3, -3, 0.5, 2, 1)]),
    "cosh": (lambda a: jnp.cosh(a), [floats(1e-6, -1e-6, 1e-3, 0.0, 1.0, -2.0, 20.0, 88.8, -89.0, nan, inf)]),
    "sinh": (lambda a: jnp.sinh(a), [floats(1e-6, -1e-6, 1e-3, 0.0, 1.0, -2.0, 20.0, 88.8, -89.0, nan, inf)]),
    "asinh": (lambda a: jnp.arcsinh(a), [floats(1e-6, -1e-6, -0.0, 0.0, 1.0, -2.0, 20.0, 1e10, nan)]),
    "erfc": (lambda a: special.erfc(a), [floats(-30, -10, -5, -1, -0.1, 0, 0.1, 0.9, 1, 1.5, 2, 3, 5, 7.0711, 9, 11, inf, -inf, nan)]),
    "gelu exact": (lambda a: jax.nn.gelu(a, approximate=False), [floats(-13, -10, -5, -3, -1, -0.01, 0, 0.01, 1, 3, 5, 10, nan)]),
    "gelu": (lambda a: jax.nn.gelu(a), [floats(-10, -3, -1, 0, 1, 5, 10, nan)]),
    "softplus": (lambda a: jax.nn.softplus(a), [floats(-inf, -100, -20, 0, 20, 100, nan)]),
    "logSigmoid": (lambda a: jax.nn.log_sigmoid(a), [floats(-100, -20, 0, 20, 100, inf, nan)]),
    "logaddexp": (lambda a, b: jnp.logaddexp(a, b), [floats(nan, 1, 2, 2, 100, -inf, 3), floats(1, nan, 2, 5, -100, 2, -inf)]),
    "logaddexp infinite": (lambda a, b: jnp.logaddexp(a, b), [floats(-inf, inf, inf), floats(-inf, inf, -inf)]),
    "logaddexp2": (lambda a, b: jnp.logaddexp2(a, b), [floats(nan, 1, 2, 2, 100, -inf, 3), floats(1, nan, 2, 5, -100, 2, -inf)]),
    "celu": (lambda a: jax.nn.celu(a, 0.7), [floats(-100, -2, 0, 2, 100, nan)]),
    "elu": (lambda a: jax.nn.elu(a, 0.7), [floats(-100, -2, 0, 2, 100, nan)]),
    "selu": (lambda a: jax.nn.selu(a), [floats(-100, -2, 0, 2, 100, nan)]),
    "relu": (lambda a: jax.nn.relu(a), [some]),
    "relu6": (lambda a: jax.nn.relu6(a), [floats(-1, 0, 3, 6, 7, nan)]),
    "leakyRelu": (lambda a: jax.nn.leaky_relu(a), [some]),
    "hardTanh": (lambda a: jax.nn.hard_tanh(a), [floats(-2, -1, 0, 1, 2, nan)]),
    "hardSigmoid": (lambda a: jax.nn.hard_sigmoid(a), [floats(-4, -3, 0, 3, 4, nan)]),
    "hardSilu": (lambda a: jax.nn.hard_silu(a), [floats(-4, -3, 0, 3, 4, nan)]),
    "mish": (lambda a: jax.nn.mish(a), [floats(-100, -2, 0, 2, 100, nan)]),
    "silu": (lambda a: jax.nn.silu(a), [floats(-100, -2, 0, 2, 100, nan)]),
    "sigmoid": (lambda a: jax.nn.sigmoid(a), [floats(-100, -2, 0, 2, 100, nan)]),
    "softSign": (lambda a: jax.nn.soft_sign(a), [floats(-2, 0, 2, nan)]),
    "squareplus": (lambda a: jax.nn.squareplus(a), [floats(-2, 0, 2, 100, nan)]),
    "at power": (lambda a, v: a.at[1:3].power(v), [floats(-2, 3, 0.5, -2), floats(2.5, -1.5)]),
    "igamma": (
        lambda a, b: lax.igamma(a, b),
        [floats(0, 0, 0, 1, 1, 2, 2, inf, inf, -1, nan, 0.5), floats(0, 1, inf, 0, inf, inf, 1, 1, inf, 1, 1, nan)],
        False,
    ),
    "igammac": (
        lambda a, b: lax.igammac(a, b),
        [floats(0, 0, 0, 1, 1, 2, 2, inf, inf, -1, nan, 0.5), floats(0, 1, inf, 0, inf, inf, 1, 1, inf, 1, 1, nan)],
        False,
    ),
    "igamma slope": (lambda a, b: lax.igamma(a, b), [floats(1, 2, 2, 0.5, 3), floats(0.5, 1, 5, 0.1, 2)]),
    "besselI0e": (lambda a: lax.bessel_i0e(a), [floats(0, 1, -1, 20, 1e10, 1e38, -3e38, inf, nan)], False),
    "besselI1e": (lambda a: lax.bessel_i1e(a), [floats(0, 1, -1, 20, 1e10, 1e38, -3e38, inf, nan)], False),
    "zeta": (
        lambda a, b: lax.zeta(a, b),
        [floats(2, 2, 2, 3, 3, 4, 1, 1, 0.5, 2.5, 2.5, nan, 2, inf, 3, 2), floats(0, -1, -0.5, 0, -1, -2, 2, -1, 2, -1, -1.5, 1, nan, 2, -0.5, inf)],
        False,
    ),
    "floorDivide": (lambda a, b: jnp.floor_divide(a, b), [floats(1, -1, 0, 5, -7, 0), floats(0, 0, 0, 2, 2, 3)]),
    "mod": (lambda a, b: jnp.mod(a, b), [floats(5, -7, 0, 2), floats(2, 2, 3, -3)]),
    "remainder": (lambda a, b: jnp.fmod(a, b), [floats(5, -7, 0, 2), floats(2, 2, 3, -3)]),
    "fmax": (lambda a, b: [jnp.fmax(a, b), jnp.fmin(a, b)], [floats(1, 2, nan, 3, nan, 0.0), floats(1, 3, 2, nan, nan, -0.0)]),
    "maximum": (lambda a, b: [jnp.maximum(a, b), jnp.minimum(a, b)], [floats(1, 2, nan, 3, nan), floats(1, 3, 2, nan, nan)]),
    "clamp": (lambda a, b, c: lax.clamp(a, b, c), [floats(3, 3, 3, 0, 0, 0, 0, nan, 0, 0), floats(0, 2, 5, 0, 1, 0.5, 2, 1, nan, 1), floats(1, 1, 1, 1, 1, 1, 1, 2, 1, nan)]),
    "clip": (lambda a, b, c: jnp.clip(b, a, c), [floats(3, 3, 3, 0, 0, 0, 0, nan, 0, 0), floats(0, 2, 5, 0, 1, 0.5, 2, 1, nan, 1), floats(1, 1, 1, 1, 1, 1, 1, 2, 1, nan)]),
    "abs": (lambda a: jnp.abs(a), [floats(-1, -0.0, 0.0, 2, nan)]),
    # Types.
    "convolve integers": (lambda a, b: jnp.convolve(a, b), [ints(1, 2, 3), ints(1, -1)]),
    "convolve mixed": (lambda a, b: jnp.convolve(a, b), [ints(1, 2, 3), floats(1, -1)]),
    "convolve uint8": (lambda a, b: jnp.convolve(a, b), [ints(1, 2, 255, dtype=jnp.uint8), ints(1, 3, dtype=jnp.uint8)]),
    "correlate integers": (lambda a, b: jnp.correlate(a, b, mode="full"), [ints(1, 2, 3), ints(1, -1)]),
    "correlate int8": (lambda a, b: jnp.correlate(a, b, mode="same"), [ints(1, 2, 127, dtype=jnp.int8), ints(1, -1, dtype=jnp.int8)]),
    "relu6 integers": (lambda a: [jax.nn.relu6(a), jax.nn.relu(a), jax.nn.hard_tanh(a), jax.nn.hard_sigmoid(a), jax.nn.hard_silu(a)], [ints(-1, 3, 7)]),
    "ldexp half": (lambda a, i: [jnp.ldexp(a.astype(t), i) for t in (jnp.bfloat16, jnp.float16)], [floats(0.5, -1.5, 3.0), ints(3, -2, 1)]),
    "ldexp": (lambda a, i: jnp.ldexp(a, i), [floats(0.5, -1.5, 3.0, 1e-30, nan), ints(3, -2, 1, 60, 2)]),
}

if __name__ == "__main__":
    write(cases)
