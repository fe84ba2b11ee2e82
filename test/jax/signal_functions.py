"""Writes signal.json: functions of scipy.signal and scipy.ndimage by SciPy, which JAX follows.

    python test/jax/signal_functions.py > test/jax/signal.json
"""

import json
import sys

import numpy as np
from scipy import ndimage, signal


def ramp(*shape, step=0.7, start=0.0):
    return np.sin(np.arange(int(np.prod(shape))) * step + start).reshape(shape).astype(np.float32).astype(np.float64)


def flat(value):
    parts = [np.real(value), np.imag(value)] if np.iscomplexobj(value) else [value]
    return [round(float(e), 9) for part in parts for e in np.ravel(part)]


x, y, long = ramp(9), ramp(4, start=1.0), ramp(40, step=0.37)
m, k = ramp(4, 5), ramp(2, 3, start=2.0)
z = x + 1j * ramp(9, start=3.0)
# What JAX calls wrap.
MODES = {"wrap": "grid-wrap"}
modes = ("full", "same", "valid")
places = np.stack([np.linspace(-3.2, 6.1, 12), np.linspace(7.27, -2.6, 12)])

results = {
    "convolve": [signal.convolve(x, y, mode) for mode in modes],
    "convolve swapped": [signal.convolve(y, x, mode, method="direct") for mode in ("full", "valid")],
    "convolve complex": [signal.convolve(z, y + 2j * y, mode, method="direct") for mode in modes],
    "correlate": [signal.correlate(x, y, mode, method="direct") for mode in modes],
    "correlate complex": [signal.correlate(z, y + 2j * y, mode, method="direct") for mode in modes],
    "convolve2d": [signal.convolve2d(m, k, mode) for mode in modes],
    "correlate2d": [signal.correlate2d(m, k, mode) for mode in modes],
    "fftconvolve": [signal.fftconvolve(m, m[:, :2], mode, axes=1) for mode in modes],
    "detrend": [signal.detrend(long), signal.detrend(long, bp=[7, 20]), signal.detrend(m, axis=0), signal.detrend(m, type="constant")],
    "stft": list(signal.stft(long, fs=2.0, nperseg=8)),
    "stft options": list(signal.stft(long, nperseg=7, noverlap=2, nfft=9, boundary="odd", detrend="constant", window="hamming")),
    "stft open": list(signal.stft(np.stack([long, -long], 1), nperseg=8, boundary=None, padded=False, axis=0, return_onesided=False)),
    "csd": list(signal.csd(long, ramp(40, step=0.9), fs=3.0, nperseg=8)),
    "csd median": list(signal.csd(long, ramp(40, step=0.9), nperseg=9, average="median", scaling="spectrum")),
    "welch": list(signal.welch(long, nperseg=16, detrend="linear", window="blackman")),
    "welch batch": list(signal.welch(np.stack([long, 2 * long]), nperseg=8, average="median")),
    **{f"map {mode}": [ndimage.map_coordinates(m, places, order=order, mode=MODES.get(mode, mode)) for order in (0, 1)] for mode in ("nearest", "wrap", "mirror", "reflect")},
}
json.dump({name: [flat(value) for value in values] for name, values in results.items()}, sys.stdout, separators=(",", ":"))
