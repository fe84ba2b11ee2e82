"""Writes draws.json: digests of 10,000 draws of each distribution by JAX 0.10 on a CPU with fused multiply-add.

    python -m venv env && env/bin/pip install jax && env/bin/python test/jax/draws.py
"""

import hashlib
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

samplers = {
    "normal": lambda key, dtype: jax.random.normal(key, (10000,), dtype),
    "exponential": lambda key, dtype: jax.random.exponential(key, (10000,), dtype),
    "truncatedNormal -2 2": lambda key, dtype: jax.random.truncated_normal(key, -2, 2, (10000,), dtype),
    "truncatedNormal -0.3 0.7": lambda key, dtype: jax.random.truncated_normal(key, -0.3, 0.7, (10000,), dtype),
    "truncatedNormal 0.5 4": lambda key, dtype: jax.random.truncated_normal(key, 0.5, 4, (10000,), dtype),
}


def draw(name, seed, dtype):
    values = np.asarray(samplers[name](jax.random.key(seed), jnp.dtype(dtype)))
    return {"name": name, "seed": seed, "dtype": dtype, "sha256": hashlib.sha256(values.tobytes()).hexdigest()}


cases = [draw(n, s, d) for n in samplers for d in ("float32", "bfloat16", "float16") for s in (0, 1, 20, 12345)]
text = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
pathlib.Path(__file__).with_suffix(".json").write_text(f"[\n{text}\n]\n")
