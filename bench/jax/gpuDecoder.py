"""One AdamW step of the decoder of bench/gpuDecoder.ts in JAX on a GPU, with the attention that JAX does best.

    python bench/jax/gpuDecoder.py '{"width": 1024, "layers": 8, …}' ROUNDS ATTENTION

Prints one line of JSON: milliseconds of a step (median and best), of the first call, peak memory, and losses.
"""

import json
import sys
import time

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

size, rounds, attention = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
width, layers, sequence, batch = (size[name] for name in ("width", "layers", "sequence", "batch"))
vocabulary, mlp, head = size["vocabulary"], size["mlpWidth"], size["headSize"]


def narrow(x):
    return x.astype(size["dtype"])


def kept(x):
    return checkpoint_name(x, "kept")


def factor(x):
    return checkpoint_name(x, "factor")


def init():
    keys = iter(range(100))

    def weight(*shape):
        return jax.random.normal(jax.random.fold_in(jax.random.key(0), next(keys)), shape) / shape[-2] ** 0.5

    return {
        "embed": weight(vocabulary, width),
        "norm": jnp.ones(width),
        "layers": {
            "norm1": jnp.ones((layers, width)),
            "norm2": jnp.ones((layers, width)),
            "query": weight(layers, width, width),
            "key": weight(layers, width, width),
            "value": weight(layers, width, width),
            "out": weight(layers, width, width),
            "gate": weight(layers, width, mlp),
            "up": weight(layers, width, mlp),
            "down": weight(layers, mlp, width),
        },
    }


def norm(x, scale):
    wide = x.astype(jnp.float32)
    return narrow(wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6) * scale)


angles = (jnp.arange(sequence)[:, None] * 10_000.0 ** (-2 * jnp.arange(head // 2) / head))[:, None]
cos, sin = jnp.cos(angles), jnp.sin(angles)


def rotary(x):
    a, b = jnp.split(x.astype(jnp.float32), 2, -1)
    return narrow(jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1))


def block(x, layer):
    normed = factor(norm(x, layer["norm1"]))
    weights = {name: factor(narrow(value)) for name, value in layer.items() if value.ndim > 1}
    heads = (batch, sequence, width // head, head)
    query, key = (kept(normed @ weights[name]).reshape(heads) for name in ("query", "key"))
    value = (normed @ weights["value"]).reshape(heads)
    mixed = jax.nn.dot_product_attention(factor(rotary(query)), factor(rotary(key)), value, is_causal=True, implementation=attention)
    x = factor(x + kept(mixed).reshape(batch, sequence, width) @ weights["out"])
    inner = factor(norm(x, layer["norm2"]))
    gated = factor(jax.nn.silu(kept(inner @ weights["gate"])) * kept(inner @ weights["up"]))
    return x + gated @ weights["down"], None


if size["remat"] == "full":
    block = jax.checkpoint(block)
elif size["remat"] == "named":
    block = jax.checkpoint(block, policy=jax.checkpoint_policies.save_only_these_names("kept"))
elif size["remat"] == "dots":
    block = jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable)
elif size["remat"] == "factors":
    policies = jax.checkpoint_policies
    names = policies.save_only_these_names("factor")
    block = jax.checkpoint(block, policy=policies.save_from_both_policies(policies.dots_saveable, names))


def loss(params, tokens):
    table = narrow(params["embed"])
    x, _ = jax.lax.scan(block, table[tokens[:, :-1]], params["layers"])
    logits = (norm(x, params["norm"]) @ table.T).astype(jnp.float32)
    picked = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)


def step(state, tokens):
    value, grads = jax.value_and_grad(loss)(state["params"], tokens)
    n = state["step"] + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], grads)
    square = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, state["square"], grads)

    def update(p, m, v):
        change = m / (1 - 0.9**n) / (jnp.sqrt(v / (1 - 0.95**n)) + 1e-8)
        return p - 3e-4 * (change + 0.1 * p)

    params = jax.tree.map(update, state["params"], mean, square)
    return {"params": params, "mean": mean, "square": square, "step": n}, value


params = jax.jit(init)()
state = {
    "params": params,
    "mean": jax.tree.map(jnp.zeros_like, params),
    "square": jax.tree.map(jnp.zeros_like, params),
    "step": jnp.float32(0),
}
tokens = jax.random.randint(jax.random.key(1), (batch, sequence + 1), 0, vocabulary)
step = jax.jit(step, donate_argnums=0)
begin = time.perf_counter()
state, value = step(state, tokens)
losses = [float(value)]
first = time.perf_counter() - begin
since_begun = time.time() - size.get("begun", 0) / 1000
times = []
for _ in range(rounds):
    begin = time.perf_counter()
    state, value = step(state, tokens)
    losses.append(float(value))
    times.append(1000 * (time.perf_counter() - begin))
begin = time.perf_counter()
for _ in range(rounds):
    state, value = step(state, tokens)
value.block_until_ready()
pipelined = 1000 * (time.perf_counter() - begin) / rounds
tiny = jax.jit(lambda x: x + 1)


def measure_tiny(count, waits):
    x = jnp.zeros(8)
    tiny(x).block_until_ready()
    begin = time.perf_counter()
    for _ in range(count):
        x = tiny(x)
        if waits:
            x.block_until_ready()
    x.block_until_ready()
    return 1e6 * (time.perf_counter() - begin) / count


measure_tiny(2000, True)
tiny_us = [min(measure_tiny(1000, waits) for _ in range(5)) for waits in (True, False)]
stats = jax.local_devices()[0].memory_stats() or {}
print(
    json.dumps(
        {
            "median_ms": sorted(times)[rounds // 2],
            "best_ms": min(times),
            "pipelined_ms": pipelined,
            "first_ms": 1000 * first,
            "since_begun_ms": 1000 * since_begun,
            "peak_bytes": stats.get("peak_bytes_in_use"),
            "losses": losses[:8],
            "tiny_us": tiny_us,
        }
    )
)
