"""Writes arrayFunctions.json: results and gradients of array functions and their options by JAX.

    python test/jax/array_functions.py > test/jax/arrayFunctions.json
"""

import jax
import jax.numpy as jnp
from jax import lax

from cases import complex_ramp, ramp, write

inf, nan = jnp.inf, jnp.nan


def floats(*values, dtype=jnp.float32):
    return jnp.array(values, dtype)


def ints(*values, dtype=jnp.int32):
    return jnp.array(values, dtype)


x = ramp(3, 4, scale=2)
v = ramp(7, step=1.1, start=1.6)
w = floats(0.5, -1, 2)
numbers = ints(3, 1, 2, 3, 1, 7, 0, 3)
others = ints(1, 7, 9)
steps = floats(1, -1, 1.5, 0, -0.0, inf, -inf, nan, 65504, 1e-38)
goals = floats(2, 2, 1.5, -1, 1, 0, 0, 1, inf, 0)
parts = floats(1, -3.5, 1e-30, 3e38, 0.49999997, 6.1e-5, -0.75, 1024)
words = ints(0, 1, 2, 255, -1, 2**31 - 1, -(2**31), 12345)
points = ramp(9, 2, scale=1.5)

bits = {
    "nextafter": (lambda a, b: jnp.nextafter(a, b), [steps, goals], False),
    "nextafter bits": (
        lambda a, b: lax.bitcast_convert_type(lax.nextafter(a, b), jnp.int32),
        [floats(0, -0.0, 1, 1e-45, -2, 3.4028235e38, inf, 2), floats(1, -1, 0, 0, -3, inf, 0, 2)],
        False,
    ),
    "nextafter bfloat16": (lambda a, b: jnp.nextafter(a, b), [steps.astype(jnp.bfloat16), goals.astype(jnp.bfloat16)], False),
    "nextafter float16": (lambda a, b: jnp.nextafter(a, b), [steps.astype(jnp.float16), goals.astype(jnp.float16)], False),
    "spacing": (lambda a: jnp.spacing(a), [floats(1, -1, 1.5, 1024, -0.1, 3e38)], False),
    "spacing float16": (lambda a: jnp.spacing(a), [floats(1, -1, 1.5, 1024, -0.1, dtype=jnp.float16)], False),
    "frexp": (lambda a: jnp.frexp(a), [parts]),
    "frexp ends": (lambda a: jnp.frexp(a), [floats(0, inf, -inf, nan)], False),
    "frexp half": (lambda a: jnp.frexp(a), [floats(1, -3.5, 6.1e-5, 60000, dtype=jnp.float16)], False),
    "bitwiseCount": (lambda a: jnp.bitwise_count(a), [ints(0, 1, 255, -1, 12345, 2**31 - 1)]),
    "bitwiseCount int8": (lambda a: jnp.bitwise_count(a), [ints(0, 1, -127, -1, 100, dtype=jnp.int8)]),
    "packbits": (lambda a: [jnp.packbits(a), jnp.packbits(a, bitorder="little")], [ints(1, 0, 5, 1, 0, 0, 0, 1, 1, 0, 1)]),
    "packbits dim": (lambda a: [jnp.packbits(a, axis=0), jnp.packbits(a, axis=-1)], [x > 0]),
    "unpackbits": (
        lambda a: [jnp.unpackbits(a), jnp.unpackbits(a, bitorder="little"), jnp.unpackbits(a, count=11), jnp.unpackbits(a, count=-3), jnp.unpackbits(a, count=20)],
        [ints(27, 200, dtype=jnp.uint8)],
    ),
    "unpackbits dim": (lambda a: [jnp.unpackbits(a, axis=0), jnp.unpackbits(a, axis=1, count=5)], [ints([1, 2], [128, 255], dtype=jnp.uint8)]),
    "clz": (lambda a: [lax.clz(a), lax.population_count(a)], [words]),
    "clz uint32": (lambda a: [lax.clz(a), lax.population_count(a)], [words.astype(jnp.uint32)]),
    "clz int8": (lambda a: [lax.clz(a), lax.population_count(a)], [ints(0, 1, 127, -1, -128, 64, dtype=jnp.int8)]),
    "clz uint16": (lambda a: [lax.clz(a), lax.population_count(a)], [ints(0, 1, 65535, 256, dtype=jnp.uint16)]),
    "reduceXor": (lambda a: [lax.reduce_xor(a, [0]), lax.reduce_xor(a, [0, 1])], [ints([12, 10, 14], [7, -1, 6])]),
    "reduceXor bool": (lambda a: [lax.reduce_xor(a, [0]), lax.reduce_xor(a, [1])], [x > 0]),
    "bitcast narrower": (
        lambda a: [lax.bitcast_convert_type(a, t) for t in (jnp.uint8, jnp.int16, jnp.bfloat16, jnp.int8)],
        [floats(1, -2.5, 1e-20)],
        False,
    ),
    "bitcast wider": (
        lambda a: [lax.bitcast_convert_type(a, jnp.float32), lax.bitcast_convert_type(a[:, :2], jnp.uint16)],
        [ints([0, 0, 128, 63], [1, 2, 250, 190], dtype=jnp.uint8)],
        False,
    ),
    "cumlogsumexp": (lambda a: [lax.cumlogsumexp(a, 0), lax.cumlogsumexp(a, 1, reverse=True)], [x * 20]),
    "cumlogsumexp ends": (lambda a: lax.cumlogsumexp(a, 0), [floats(-inf, -inf, 1, 90, inf, 2, nan)], False),
}

windows = {
    "windows": (
        lambda a: [a * jnp.bartlett(6), a * jnp.bartlett(1), jnp.hanning(5) * a, jnp.hanning(1) * a, jnp.hamming(1) * a, a * jnp.blackman(4)],
        [floats(2)],
    ),
    "kaiser": (lambda b: [jnp.kaiser(7, b), jnp.kaiser(1, b), jnp.kaiser(4, b)], [jnp.float32(5.5)]),
    "histogram density": (lambda a: jnp.histogram(a, bins=4, density=True), [x]),
    "histogram density weights": (lambda a, b: jnp.histogram(a, bins=floats(-2, -0.5, 0, 2), weights=b, density=True), [x, ramp(3, 4, start=2) + 1.5], False),
    "histogram2d": (lambda a, b: jnp.histogram2d(a, b, bins=[3, 2]), [points[:, 0], points[:, 1]], False),
    "histogram2d bounds": (
        lambda a, b: jnp.histogram2d(a, b, bins=floats(-2, -0.5, 0.5, 2), weights=a + 2, density=True),
        [points[:, 0], points[:, 1]],
        False,
    ),
    "histogramdd": (lambda a: jnp.histogramdd(a, bins=3, range=[(-1, 1), None]), [points], False),
}

choices = {
    "setxor1d": (lambda a, b: [jnp.setxor1d(a, b, size=6, fill_value=-1), jnp.setxor1d(a, b, size=5), jnp.setxor1d(a, b, size=2)], [numbers, others]),
    "uniqueCounts": (lambda a: [*jnp.unique_counts(a, size=6), *jnp.unique_inverse(a, size=6), jnp.unique_values(a, size=6)], [numbers]),
    "compress": (
        lambda a, c: [jnp.compress(c, a, axis=0, size=3), jnp.compress(c, a.T, axis=1, size=2, fill_value=7), jnp.compress(c, a, size=2)],
        [x, jnp.array([True, False, True])],
    ),
    "extract": (lambda a: jnp.extract(a > 0, a, size=8, fill_value=-1), [x]),
    "place": (lambda a, b: jnp.place(a, a > 0, b, inplace=False), [x, w]),
    "put": (
        lambda a, b: [jnp.put(a, jnp.array([0, 5, 20, -1]), b, inplace=False), jnp.put(a, jnp.array([13, 6]), b, mode="wrap", inplace=False), jnp.put(a, jnp.array([30, 2]), b, mode="clip", inplace=False)],
        [x, w],
    ),
    "sortComplex": (lambda a, b: [jnp.sort_complex(a), jnp.sort_complex(b)], [complex_ramp(2, 4), v], False),
    "resize": (lambda a: [jnp.resize(a, (2, 9)), jnp.resize(a, (5,))], [x]),
    "rollaxis": (lambda a: [jnp.rollaxis(a, 2), jnp.rollaxis(a, 0, 3), jnp.rollaxis(a, 1, -1)], [ramp(2, 3, 4)]),
    "dsplit": (lambda a: jnp.dsplit(a, 2), [ramp(2, 3, 4)]),
    "applyOverAxes": (lambda a: jnp.apply_over_axes(jnp.sum, a, [0, 2]), [ramp(2, 3, 4)]),
    "arrayEquiv": (lambda a: [jnp.array_equiv(a, jnp.stack([a, a])), jnp.array_equiv(a, a + 1)], [v]),
    "indicesFrom": (lambda a: [jnp.tril_indices_from(a), jnp.triu_indices_from(a, 1), jnp.diag_indices_from(a[:, :3])], [x], False),
    "maskIndices": (lambda a: [a * jnp.mask_indices(3, jnp.triu, 1)[0], a * jnp.mask_indices(3, jnp.triu, 1)[1]], [ints(2)]),
    "mgrid": (lambda a: [a * jnp.mgrid[0:3, 1:2:0.25], a * jnp.mgrid[2:5]], [floats(2)]),
    "ogrid": (lambda a: [a * g for g in jnp.ogrid[0:3, 1:6:2]], [ints(2)]),
    "poly": (lambda a: jnp.poly(a), [w]),
    "poly matrix": (lambda a: jnp.real(jnp.poly(a)), [ramp(3, 3, scale=2)], False),
    "polydiv": (lambda a, b: [*jnp.polydiv(a, b), *jnp.polydiv(b, a)], [v, w]),
    "roots": (lambda a: jnp.sort(jnp.roots(a, strip_zeros=False)), [floats(1, -2.5, -4, 7)], False),
    "roots zeros": (lambda a: jnp.sort(jnp.roots(a, strip_zeros=False)), [floats(0, 0, 2, -2, -4, 0)], False),
}

write(bits | windows | choices)
