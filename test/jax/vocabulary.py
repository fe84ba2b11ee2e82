"""Writes vocabulary.json: results of NumPy's further functions by JAX.

    python test/jax/vocabulary.py > test/jax/vocabulary.json
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

x = jnp.sin(jnp.arange(12, dtype=jnp.float32) * 0.7).reshape(3, 4) * 2
v = jnp.cos(jnp.arange(7, dtype=jnp.float32) * 1.1)
w = jnp.array([0.5, -1.0, 2.0])
holes = x.at[0, 1].set(jnp.nan).at[2, 3].set(jnp.nan)
ints = jnp.array([3, 1, 2, 3, 1, 7, 0, 3])
others = jnp.array([1, 7, 9])
evens = jnp.array([[0, 2], [1, 0], [4, 0]])

cases = {
    "flatnonzero": lambda: jnp.flatnonzero(evens, size=5, fill_value=-1),
    "nonzero": lambda: jnp.nonzero(evens, size=4, fill_value=9),
    "argwhere": lambda: jnp.argwhere(evens, size=4, fill_value=0),
    "unravelIndex": lambda: jnp.unravel_index(jnp.array([0, 5, 11]), (3, 4)),
    "ravelMultiIndex": lambda: jnp.ravel_multi_index((jnp.array([0, 1, 2]), jnp.array([3, 1, 0])), (3, 4), mode="clip"),
    "unique": lambda: jnp.unique(ints, return_index=True, return_inverse=True, return_counts=True, size=6),
    "unique cut": lambda: jnp.unique(ints, size=3),
    "isin": lambda: (jnp.isin(ints, others), jnp.isin(ints, others, invert=True)),
    "union1d": lambda: jnp.union1d(ints, others, size=7, fill_value=-1),
    "intersect1d": lambda: jnp.intersect1d(ints, others, size=3, fill_value=-1),
    "setdiff1d": lambda: jnp.setdiff1d(ints, others, size=4, fill_value=-1),
    "convolve full": lambda: jnp.convolve(v, w),
    "convolve same": lambda: jnp.convolve(v, w, mode="same"),
    "convolve valid": lambda: jnp.convolve(w, v, mode="valid"),
    "correlate": lambda: jnp.correlate(v, w),
    "correlate full": lambda: jnp.correlate(v, w, mode="full"),
    "correlate same": lambda: jnp.correlate(v, w, mode="same"),
    "correlate short": lambda: jnp.correlate(w, v, mode="full"),
    "interp": lambda: jnp.interp(jnp.array([-1.0, 0.5, 2.5, 9.0]), jnp.array([0.0, 1.0, 3.0]), w),
    "interp ends": lambda: jnp.interp(jnp.array([-1.0, 0.5, 9.0]), jnp.array([0.0, 1.0, 3.0]), w, left=5.0, right=6.0),
    "gradient": lambda: jnp.gradient(x, 0.5, axis=1),
    "gradient 0": lambda: jnp.gradient(x, axis=0),
    "trapezoid": lambda: jnp.trapezoid(x, dx=0.5),
    "trapezoid x": lambda: jnp.trapezoid(x, x=w, axis=0),
    "unwrap": lambda: jnp.unwrap(jnp.array([0.0, 3.0, 6.5, -3.0, 0.5, 4.0])),
    "ediff1d": lambda: jnp.ediff1d(x),
    "windows": lambda: (jnp.hanning(6), jnp.hamming(5), jnp.blackman(7), jnp.hanning(1)),
    "histogram": lambda: jnp.histogram(x, bins=4),
    "histogram range": lambda: jnp.histogram(x, bins=5, range=(-1.0, 1.0)),
    "histogram bounds": lambda: jnp.histogram(x, bins=jnp.array([-2.0, 0.0, 0.5, 2.0])),
    "polyval": lambda: jnp.polyval(w, x),
    "polyadd": lambda: (jnp.polyadd(w, v), jnp.polysub(w, v)),
    "polymul": lambda: jnp.polymul(w, v),
    "polyder": lambda: (jnp.polyder(v), jnp.polyder(v, 2)),
    "polyint": lambda: jnp.polyint(w, 2),
    "vander": lambda: (jnp.vander(w), jnp.vander(w, 4, increasing=True)),
    "trilIndices": lambda: jnp.tril_indices(3, 1),
    "triuIndices": lambda: jnp.triu_indices(3, -1, 4),
    "diagIndices": lambda: jnp.diag_indices(3, 2),
    "ix": lambda: jnp.ix_(jnp.array([0, 2]), jnp.array([1, 2, 3])),
    "fillDiagonal": lambda: jnp.fill_diagonal(x, 9.0, inplace=False),
    "unstack": lambda: jnp.unstack(x, axis=1),
    "block": lambda: jnp.block([[x, x * 2], [jnp.ones((1, 8))]]),
    "nanprod": lambda: jnp.nanprod(holes, axis=0),
    "nanvar": lambda: (jnp.nanvar(holes), jnp.nanvar(holes, axis=1, ddof=1)),
    "nanstd": lambda: jnp.nanstd(holes, axis=0),
    "nanargmax": lambda: (jnp.nanargmax(holes), jnp.nanargmin(holes, axis=1)),
    "nanquantile": lambda: jnp.nanquantile(holes, 0.3, axis=1),
    "nanmedian": lambda: jnp.nanmedian(holes),
    "nancumsum": lambda: (jnp.nancumsum(holes, axis=1), jnp.nancumprod(holes)),
    "cov": lambda: (jnp.cov(x), jnp.cov(x, rowvar=False), jnp.cov(v)),
    "corrcoef": lambda: jnp.corrcoef(x),
    "applyAlongAxis": lambda: jnp.apply_along_axis(lambda r: jnp.cumsum(r)[:2], 0, x),
    "vectorize": lambda: jnp.vectorize(lambda a, b: a * b + 1)(x, v[:4]),
    "piecewise": lambda: jnp.piecewise(x, [x < 0, x > 1], [lambda t: -t, 7.0, lambda t: t * 10]),
    "choose": lambda: jnp.choose(jnp.array([0, 1, 1]), [w, w * 10]),
    "lexsort": lambda: jnp.lexsort((ints[:6], jnp.array([1, 0, 1, 0, 1, 0]))),
    "putAlongAxis": lambda: jnp.put_along_axis(x, jnp.array([[1], [0], [3]]), 9.0, axis=1, inplace=False),
    "gcd": lambda: (jnp.gcd(jnp.array([12, -18, 0, 7]), jnp.array([18, 27, 5, 3])), jnp.lcm(jnp.array([4, 0, 6]), jnp.array([6, 3, -9]))),
    "modf": lambda: jnp.modf(x * 3),
    "ldexp": lambda: jnp.ldexp(w, jnp.array([1, -2, 3])),
    "matvec": lambda: (jnp.matvec(x, v[:4]), jnp.vecmat(w, x)),
}


def plain(values):
    leaf = lambda a: {"shape": list(np.shape(a)), "data": [None if np.isnan(e) else float(e) for e in np.ravel(np.asarray(a, np.float64))]}
    return [leaf(a) for a in jax.tree.leaves(values)]


json.dump({name: plain(fn()) for name, fn in cases.items()}, sys.stdout)
