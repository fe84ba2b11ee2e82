"""Writes arrayOptions.json: results and gradients of options of array functions by JAX.

    python test/jax/array_options.py > test/jax/arrayOptions.json
"""

import jax
import jax.numpy as jnp

from cases import complex_ramp, ramp, write

inf, nan = jnp.inf, jnp.nan


def floats(*values, dtype=jnp.float32):
    return jnp.array(values, dtype)


def ints(*values, dtype=jnp.int32):
    return jnp.array(values, dtype)


x = ramp(3, 4, scale=2)
v = ramp(5, step=1.1, start=1.6)
whole = ints([3, 1, 4, 1], [5, 9, 2, 6])
holes = x.at[0, 1].set(nan).at[2, 3].set(nan).at[1].set(nan)
mask = jnp.array([[True, False, True, True], [False, True, False, True], [True, True, True, False]])
rows = jnp.array([True, False, True])
methods = ["linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf"]
parts = [0.0, 0.3, 0.5, 0.77, 1.0]

pads = {
    **{f"pad {mode}": (lambda a, mode=mode: [jnp.pad(a, 1, mode=mode), jnp.pad(a, [(2, 0), (1, 3)], mode=mode)], [x]) for mode in ("maximum", "minimum", "mean", "median", "empty")},
    **{f"pad {mode} of integers": (lambda a, mode=mode: jnp.pad(a, [(1, 2), (0, 3)], mode=mode, stat_length=((1, 2), (3, 2))), [whole]) for mode in ("maximum", "minimum", "mean", "median")},
    "pad statLength": (lambda a: [jnp.pad(a, 2, mode="mean", stat_length=2), jnp.pad(a, 2, mode="maximum", stat_length=((9, 1), (2, 3)))], [x]),
    "pad linear_ramp": (lambda a: [jnp.pad(a, 2, mode="linear_ramp"), jnp.pad(a, [(1, 3), (2, 0)], mode="linear_ramp", end_values=((1, -2), (3, 4)))], [x]),
    "pad linear_ramp of integers": (lambda a: jnp.pad(a, 2, mode="linear_ramp", end_values=(0, 10)), [whole]),
    "pad constants": (lambda a: [jnp.pad(a, 1, constant_values=(5, 6)), jnp.pad(a, [(1, 2), (2, 1)], constant_values=((1, 2), (3, 4)))], [x]),
    "pad reflect odd": (lambda a: [jnp.pad(a, n, mode="reflect", reflect_type="odd") for n in (1, 3, 11)], [v]),
    "pad symmetric odd": (lambda a: [jnp.pad(a, n, mode="symmetric", reflect_type="odd") for n in (1, 3, 11)], [v]),
    "pad reflect": (lambda a: [jnp.pad(a, n, mode=mode) for n in (1, 3, 11) for mode in ("reflect", "symmetric")], [v]),
    "pad reflect one": (lambda a: [jnp.pad(a[:1], 2, mode=mode, reflect_type=kind) for mode in ("reflect", "symmetric") for kind in ("even", "odd")], [v]),
    "pad reflect matrix": (lambda a: jnp.pad(a, [(4, 1), (2, 6)], mode="reflect", reflect_type="odd"), [x]),
}

quantiles = {
    **{f"quantile {m}": (lambda a, m=m: jnp.quantile(a, floats(*parts), axis=1, method=m), [x]) for m in methods},
    **{f"nanquantile {m}": (lambda a, m=m: jnp.nanquantile(a, floats(*parts), axis=0, method=m), [x.at[0, 1].set(nan).at[2, 3].set(nan)], False) for m in methods},
    "percentile method": (lambda a: [jnp.percentile(a, 30, method="lower"), jnp.nanpercentile(a, 60, axis=1, method="higher", keepdims=True)], [x]),
}

reductions = {
    "nansum where": (lambda a: [jnp.nansum(a, axis=1, where=mask), jnp.nansum(a, initial=2.0), jnp.nansum(a, axis=0, dtype=jnp.float16, keepdims=True)], [holes]),
    "nanprod where": (lambda a: [jnp.nanprod(a, axis=1, where=mask), jnp.nanprod(a, axis=0, initial=2.0)], [holes]),
    "nanmean where": (lambda a: [jnp.nanmean(a, axis=0, where=mask), jnp.nanmean(a, axis=1)], [x.at[0, 1].set(nan).at[2, 3].set(nan)]),
    "nanmean dtype": (lambda a: jnp.nanmean(a + 3, dtype=jnp.float16), [x.at[0, 1].set(nan)], False),
    "nanmax where": (lambda a: [jnp.nanmax(a, axis=0, where=mask, initial=-1.0), jnp.nanmin(a, axis=0, initial=-0.5), jnp.nanmax(a, axis=1)], [x.at[0, 1].set(nan).at[2, 3].set(nan)]),
    "nanmax none": (lambda a: [jnp.nanmax(a, axis=1), jnp.nanmin(a, axis=1, initial=0.0)], [holes], False),
    "nanvar where": (lambda a: [jnp.nanvar(a, axis=0, where=mask), jnp.nanstd(a, where=mask, ddof=1), jnp.nanvar(a, axis=1, dtype=jnp.float16)], [x.at[0, 1].set(nan)], False),
    "nanmax complex": (lambda a: [jnp.nanmax(a, axis=0), jnp.nanmin(a)], [complex_ramp(3, 4).at[0, 1].set(nan)], False),
    "nanvar complex": (lambda a: jnp.nanvar(a, axis=1), [complex_ramp(3, 4).at[0, 1].set(nan)], False),
    "deg2rad complex": (lambda a: [jnp.deg2rad(a), jnp.rad2deg(a)], [complex_ramp(3)], False),
    "trace dtype": (lambda a: [jnp.trace(a, dtype=jnp.float32), jnp.trace(a, offset=1, dtype=jnp.int16)], [whole]),
}

heavy = jnp.abs(ramp(3, 4, start=1))
weighed = {
    "quantile weights": (
        lambda a, w: [jnp.quantile(a, jnp.array([0.0, 0.3, 0.8, 1.0]), axis=1, weights=w, method="inverted_cdf"), jnp.quantile(a, 0.4, weights=w, method="inverted_cdf", keepdims=True)],
        [x, heavy],
    ),
    "quantile weights of dims": (
        lambda a, w: [jnp.percentile(a, 60.0, axis=1, weights=w, method="inverted_cdf"), jnp.nanquantile(a, 0.25, axis=-1, weights=w, method="inverted_cdf", keepdims=True)],
        [x, floats(0.5, 0.0, 2.0, 1.0)],
    ),
    "quantile weights nan": (
        lambda a, w: [f(a, 0.7, axis=1, weights=w, method="inverted_cdf") for f in (jnp.quantile, jnp.nanquantile)],
        [holes, heavy],
        False,
    ),
    "quantile weights negative": (lambda a, w: jnp.nanpercentile(a, 50.0, axis=0, weights=w, method="inverted_cdf"), [x, ramp(3, 4, start=1)], False),
    "unravelIndex types": (
        lambda *a: [i for one in a for i in jnp.unravel_index(one, (2, 3))],
        [jnp.array([5, 2, 100, 2**32 - 1], jnp.uint32), jnp.array([5, 2, 100], jnp.uint8), jnp.array([5, 2, -100, -1], jnp.int8)],
    ),
}


def ends(vector, width, axis, kwargs):
    """Sums before, products of the dim after."""
    n = vector.shape[0]
    own = vector[width[0] : n - width[1]]
    return jnp.concatenate([jnp.full(width[0], jnp.sum(own)), own, jnp.full(width[1], own[-1] * (axis + kwargs["shift"]))])


weighed["pad function"] = (lambda a: [jnp.pad(a, [(1, 2), (0, 3)], ends, shift=2.0), jnp.pad(a, 1, ends, shift=0.5)], [x])

others = {
    "cross 2": (lambda a, b: jnp.cross(a, b), [ramp(3, 2), ramp(3, 2, start=2)]),
    "cross 2 and 3": (lambda a, b: [jnp.cross(a, b), jnp.cross(b, a)], [ramp(4, 2), ramp(4, 3, start=2)]),
    "cross axis": (lambda a, b: [jnp.cross(a, b, axis=0), jnp.cross(a.T, b, axisa=1, axisb=0, axisc=1)], [ramp(3, 5), ramp(3, 5, start=2)]),
    "cross axis 2": (lambda a, b: jnp.cross(a, b, axis=0), [ramp(2, 5), ramp(2, 5, start=2)]),
    "interp period": (lambda a, b, c: jnp.interp(a, b, c, period=3.0), [ramp(8, scale=7), floats(2.5, 0.5, 1.25, 7.0), floats(1, -2, 3, 0.5)]),
    "interp extrapolate": (
        lambda a, b, c: [jnp.interp(a, b, c, left="extrapolate"), jnp.interp(a, b, c, right="extrapolate"), jnp.interp(a, b, c, left="extrapolate", right="extrapolate")],
        [ramp(8, scale=7), floats(-1, 0.5, 2), floats(1, -2, 3)],
    ),
    "at mask": (lambda a: [a.at[mask].set(2.0), a.at[mask].add(1.5), a.at[mask].multiply(3.0), a.at[mask].max(0.2), a.at[mask].divide(4.0)], [x]),
    "at mask rows": (lambda a, b: [a.at[rows].set(b), a.at[rows].add(b), a.at[rows].min(0.1), a.at[rows].subtract(b)], [x, ramp(4, start=3)]),
    "at mask power": (lambda a: a.at[a > 0].power(2.5), [x]),
}

activations = {
    "sparsePlus": (lambda a: [jax.nn.sparse_plus(a), jax.nn.sparse_sigmoid(a)], [floats(-3, -1.5, -0.9, 0, 0.3, 0.99, 1.7, 4)]),
    "log1mexp": (lambda a: jax.nn.log1mexp(a), [floats(1e-6, 0.01, 0.5, 0.7, 1.5, 20)]),
    "logmeanexp": (lambda a: [jax.nn.logmeanexp(a), jax.nn.logmeanexp(a, axis=1, where=mask), jax.nn.logmeanexp(a, axis=0, keepdims=True)], [x * 40]),
}

write(pads | quantiles | weighed | reductions | others | activations)
