"""Writes fft.json: Fourier transforms by JAX. Complex numbers go in and come out as their two parts.

    python test/jax/fft.py > test/jax/fft.json
"""

import jax.numpy as jnp

from cases import ramp, write

fft = jnp.fft


def parts(z):
    return (jnp.real(z), jnp.imag(z)) if jnp.iscomplexobj(z) else z


def ofReal(fn, **options):
    return lambda x: parts(fn(x, **options))


def ofPair(fn, **options):
    return lambda x, y: parts(fn(x + 1j * y, **options))


pair = (ramp(2, 6), ramp(2, 6, step=1.9))
grid = (ramp(3, 4), ramp(3, 4, step=1.9))
write({
    "fft": (ofReal(fft.fft), (ramp(3, 8),)),
    "fft of pairs": (ofPair(fft.fft), pair),
    "fft cut": (ofPair(fft.fft, n=4, axis=1), pair),
    "fft filled": (ofPair(fft.fft, n=5, axis=0, norm="ortho"), pair),
    "fft of factors": (ofReal(fft.fft), (ramp(60),)),
    "fft of a long prime": (ofReal(fft.fft), (ramp(37),)),
    "ifft": (ofPair(fft.ifft), pair),
    "ifft forward": (ofPair(fft.ifft, norm="forward"), pair),
    "rfft": (ofReal(fft.rfft), (ramp(2, 7),)),
    "rfft even": (ofReal(fft.rfft, axis=0, norm="forward"), (ramp(6, 2),)),
    "irfft": (ofPair(fft.irfft), pair),
    "irfft odd": (ofPair(fft.irfft, n=9), pair),
    "hfft": (ofPair(fft.hfft, n=8), pair),
    "ihfft": (ofReal(fft.ihfft), (ramp(8),)),
    "fft2": (ofPair(fft.fft2), grid),
    "ifft2": (ofPair(fft.ifft2), grid),
    "fftn": (ofReal(fft.fftn), (ramp(2, 3, 4),)),
    "fftn sizes": (ofPair(fft.fftn, s=(2, 5), axes=(1, 0)), grid),
    "ifftn": (ofPair(fft.ifftn, norm="ortho"), grid),
    "rfft2": (ofReal(fft.rfft2), (ramp(2, 3, 4),)),
    "rfftn": (ofReal(fft.rfftn), (ramp(2, 3, 4),)),
    "irfft2": (ofPair(fft.irfft2), grid),
    "irfftn": (ofPair(fft.irfftn, s=(3, 5)), grid),
    "fftfreq": (lambda x: (x[0] * fft.fftfreq(6), fft.fftfreq(5, 0.5), fft.rfftfreq(6, 2.0)), (ramp(1, start=1),), False),
    "fftshift": (lambda x: (fft.fftshift(x), fft.fftshift(x, 1), fft.ifftshift(x)), (ramp(3, 4),)),
    "angle": (lambda x, y: (jnp.angle(x + 1j * y), jnp.angle(x), *parts(jnp.conj(x + 1j * y))), pair),
})
