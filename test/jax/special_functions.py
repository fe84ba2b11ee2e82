"""Writes specialFunctions.json: functions of jax.scipy.special that JAX computes precisely in float64 alone.

    python test/jax/special_functions.py > test/jax/specialFunctions.json
"""

import jax
import jax.numpy as jnp
from jax.scipy import special

from cases import write_wide


def floats(*values):
    return jnp.array(values, jnp.float32)


x = floats(0.05, 0.4, 1.0, 1.6, 3.0, 17.5)
signed = floats(-7.5, -1.3, -0.2, 0.3, 2.2, 30.0)
a, b, c = floats(0.5, 1.5, 2.0, 3.3, 0.25, 1.0), floats(2.5, 0.7, 1.0, 4.0, 3.0, 0.9), floats(1.7, 2.6, 3.5, 8.4, 2.2, 2.4)
below = floats(-0.4, -0.1, 0.2, 0.45, 0.7, 0.85)
degrees, orders = jnp.array([0, 1, 2, 3, 5, 4]), jnp.array([0, -1, 2, 0, -3, 4])
angles, turns = floats(0.3, 1.1, 2.7, 0.9, 1.6, 2.2), floats(0.0, 1.5, 4.0, 6.0, 2.5, 3.3)


def harmonics(theta, phi):
    value = special.sph_harm_y(degrees, orders, theta, phi, n_max=5)
    return [jnp.real(value), jnp.imag(value)]


def parts(z):
    return [jnp.real(z), jnp.imag(z)]


cases = {
    "expn": (lambda y: [special.expn(float(n), y) for n in (1, 2, 3, 7)], [x]),
    "expn ends": (lambda y: [special.expn(float(n), y) for n in (0, 1, 2, 5)], [floats(0.5, 60.0, -1.0)], False),
    "exp1": (special.exp1, [x]),
    "expi": (special.expi, [signed]),
    "sici": (special.sici, [signed]),
    "fresnel": (special.fresnel, [floats(-4.5, -1.3, -0.2, 0.3, 1.7, 6.0)]),
    # JAX's derivative is NaN from 1.5 on.
    "spence": (special.spence, [floats(0.05, 0.4, 0.9, 1.7, 2.5, 40.0)], False),
    "owensT": (special.owens_t, [floats(-2.0, -0.5, 0.3, 1.2, 0.4, 3.0), floats(0.5, -1.5, 0.9, 4.0, -0.2, 0.7)]),
    "hyp1f1": (special.hyp1f1, [a, b, floats(0.3, 1.2, 2.5, 5.0, 8.0, 12.0)]),
    "hyp2f1": (special.hyp2f1, [a, b, c, below]),
    "hyp2f1 near one": (lambda y: special.hyp2f1(floats(0.5, 1.5, 2.0), floats(0.5, 0.25, 1.0), floats(1.0, 2.75, 5.0), y), [floats(0.93, 0.95, 0.97)]),
    "besselJn": (lambda z: special.bessel_jn(z, v=3), [floats(0.5, 1.2, 3.4, 8.0, 17.0, 25.0)]),
    "sphHarmY": (harmonics, [angles, turns]),
    "wofz": (lambda y, z: parts(special.wofz(y + 1j * z)), [floats(-2.5, -0.4, 0.0, 0.9, 3.0, 6.0), floats(0.3, 1.4, 0.0, -0.7, 2.0, 0.01)]),
}

write_wide({name: (jax.jit(fn), *rest) for name, (fn, *rest) in cases.items()})
