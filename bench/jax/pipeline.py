"""GPipe in JAX on the layers of bench/schedules.ts: loss and gradients, float32. Prints its times as JSON.

    python bench/jax/pipeline.py '{"stages": 2, "microbatches": 4, …}'

A loop inside a shard map hands activations from stage to stage; reverse-mode differentiation turns it around.
"""
import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P

size = json.loads(sys.argv[1])
STAGES, M, ROWS, T, D, L = (size[k] for k in ("stages", "microbatches", "rows", "length", "width", "layers"))
mesh = Mesh(np.array(jax.devices()), ("pipe",))
rng = np.random.default_rng(0)
normal = lambda *shape: (rng.normal(size=shape) * 0.02).astype(np.float32)
layers = dict(up=normal(STAGES, L // STAGES, D, 4 * D), down=normal(STAGES, L // STAGES, 4 * D, D))
specs = dict(layers={name: P("pipe") for name in layers}, offset=P())
weights = dict(layers=layers, offset=normal(D))
x = rng.normal(size=(M, ROWS, T, D)).astype(np.float32)


def stage(w, x):
    for i in range(L // STAGES):
        x = x + x @ w["up"][i] @ w["down"][i]
    return x


def local_loss(w, x):
    offset, w = w["offset"], jax.tree.map(lambda leaf: leaf[0], w["layers"])
    place = jax.lax.axis_index("pipe")

    def iteration(carry, t):
        arrived, loss = carry
        y = stage(w, jnp.where(place == 0, x[jnp.clip(t, 0, M - 1)] + offset, arrived))
        ends = (place == STAGES - 1) & (t >= STAGES - 1)
        loss = loss + jnp.where(ends, jnp.mean(y * y) / M, 0.0)
        return (jax.lax.ppermute(y, "pipe", [(i, (i + 1) % STAGES) for i in range(STAGES)]), loss), None

    (_, loss), _ = jax.lax.scan(iteration, (jnp.zeros_like(x[0]), 0.0), jnp.arange(M + STAGES - 1))
    return jax.lax.psum(loss, "pipe")


def loss(w, x):
    mapped = jax.shard_map(local_loss, mesh=mesh, in_specs=(specs, P()), out_specs=P(), check_vma=False)
    return mapped(w, x)


step = jax.jit(jax.value_and_grad(loss))
begin = time.perf_counter()
jax.block_until_ready(step(weights, x))
compiled = time.perf_counter() - begin
best = float("inf")
end = time.perf_counter() + 1
while time.perf_counter() < end:
    begin = time.perf_counter()
    jax.block_until_ready(step(weights, x))
    best = min(best, time.perf_counter() - begin)
print(json.dumps(dict(step_ms=1e3 * best, compile_ms=1e3 * compiled)))
