"""Causal attention of jax.nn, forward and backward."""

import json
import sys
import time

import jax
import jax.numpy as jnp

settings = json.loads(sys.argv[1])
shape = [settings[name] for name in ("batch", "length", "heads", "headDim")]
operands = [jax.random.normal(jax.random.key(i), shape) for i in range(3)]


def loss(q, k, v):
    return jnp.sum(jax.nn.dot_product_attention(q, k, v, is_causal=True))


step = jax.jit(jax.grad(loss, (0, 1, 2)))


def run():
    start = time.perf_counter()
    jax.block_until_ready(step(*operands))
    return (time.perf_counter() - start) * 1e3


compile_ms = run()
end = time.perf_counter() + 2
times = [run() for _ in range(3)]
while time.perf_counter() < end:
    times.append(run())
print(json.dumps({"step_ms": min(times), "compile_ms": compile_ms}))
