"""The trainer's Llama in JAX: one AdamW step, float32, in a kind of parallelism. Prints its times as JSON.

    python bench/jax/parallel.py '{"kind": "fsdp", …}'

Split parameters (fsdp) and split heads and hidden units (tensor, async) are declared and left to XLA's partitioner;
pipelines (gpipe, circular) are a loop inside a shard map, in which activations go around a ring of stages.
"""
import json
import math
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

size = json.loads(sys.argv[1])
D, L, S, B, V, H, F = (size[k] for k in ("width", "layers", "sequence", "batch", "vocabulary", "headSize", "mlp"))
plan, kind = size["plan"], size["kind"]
AXES = ("data", "fsdp", "pipe", "model")
mesh = Mesh(np.array(jax.devices()).reshape([plan[axis] for axis in AXES]), AXES)
BATCH = P(("data", "fsdp"))


# The model.

def init():
    rng = np.random.default_rng(0)
    weight = lambda *shape: (rng.normal(size=shape) / math.sqrt(shape[-2])).astype(np.float32)
    heads = lambda: (rng.normal(size=(L, D, D // H, H)) / math.sqrt(D)).astype(np.float32)
    layers = dict(norm1=np.ones((L, D), np.float32), query=heads(), key=heads(), value=heads(),
                  out=weight(L, D, D).reshape(L, D // H, H, D), norm2=np.ones((L, D), np.float32),
                  gate=weight(L, D, F), up=weight(L, D, F), down=weight(L, F, D))
    return dict(embed=rng.normal(size=(V, D)).astype(np.float32), layers=layers, norm=np.ones(D, np.float32),
                head=weight(D, V))


def rms_norm(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def rotary(x):
    low, high = jnp.split(x, 2, -1)
    frequency = 10_000 ** (-jnp.arange(H // 2) / (H // 2))
    angle = (jnp.arange(x.shape[1])[:, None] * frequency)[:, None]
    return jnp.concatenate([low * jnp.cos(angle) - high * jnp.sin(angle),
                            high * jnp.cos(angle) + low * jnp.sin(angle)], -1)


def block(x, p):
    normed = rms_norm(x, p["norm1"])
    project = lambda name: jnp.einsum("btd,dhk->bthk", normed, p[name])
    scores = jnp.einsum("bthk,bshk->bhts", rotary(project("query")), rotary(project("key"))) / math.sqrt(H)
    scores = jnp.where(jnp.tril(jnp.ones((S, S), bool)), scores, -1e30)
    mixed = jnp.einsum("bhts,bshk->bthk", jax.nn.softmax(scores, -1), project("value"))
    x = x + jnp.einsum("bthk,hkd->btd", mixed, p["out"])
    normed = rms_norm(x, p["norm2"])
    return x + (jax.nn.silu(normed @ p["gate"]) * (normed @ p["up"])) @ p["down"]


def in_turn(x, layers):
    return jax.lax.scan(lambda x, p: (block(x, p), None), x, layers)[0]


# Pipelines.

STAGES, REPEATS, MICROBATCHES = plan["pipe"], plan["repeats"], plan["microbatches"]


def pipelined(x, layers):
    """Stage s runs layers s, s + STAGES, …; an item is a repeat of a microbatch, one iteration a stage of an item."""
    staged = jax.tree.map(lambda p: p.reshape(REPEATS, STAGES, -1, *p.shape[1:]), layers)
    specs = jax.tree.map(lambda _: P(None, "pipe"), staged)
    return jax.shard_map(go_around, mesh=mesh, in_specs=(specs, BATCH), out_specs=BATCH, check_vma=False)(staged, x)


def go_around(staged, x):
    stage = jax.lax.axis_index("pipe")
    waiting = x.reshape(MICROBATCHES, -1, *x.shape[1:])
    ring = [(s, (s + 1) % STAGES) for s in range(STAGES)]

    def iteration(carry, t):
        arrived, waiting = carry
        item = jnp.clip(t - stage, 0, MICROBATCHES * REPEATS - 1)
        x = jnp.where(stage == 0, waiting[item % MICROBATCHES], arrived)
        own = jax.tree.map(lambda p: p[item // MICROBATCHES, 0], staged)
        arrived = jax.lax.ppermute(in_turn(x, own), "pipe", ring)
        # What comes back to the first stage waits there for its next repeat, or is a result.
        back = t - (STAGES - 1)
        place = jnp.clip(back, 0) % MICROBATCHES
        kept = jnp.where(back >= 0, arrived, waiting[place])
        return (arrived, waiting.at[place].set(kept)), None

    steps = jnp.arange(MICROBATCHES * REPEATS + STAGES - 1)
    (_, results), _ = jax.lax.scan(iteration, (jnp.zeros_like(waiting[0]), waiting), steps)
    results = jnp.where(stage == 0, results, 0)
    return jax.lax.psum(results, "pipe").reshape(x.shape)


# Training.

def loss(params, tokens):
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    x = (pipelined if STAGES > 1 else in_turn)(params["embed"][inputs], params["layers"])
    logits = rms_norm(x, params["norm"]) @ params["head"]
    picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)


def step(state, tokens):
    value, grads = jax.value_and_grad(loss)(state["params"], tokens)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda g: g / jnp.maximum(norm, 1), grads)
    count = state["step"] + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], grads)
    square = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, state["square"], grads)
    c1, c2 = 1 - 0.9**count, 1 - 0.95**count
    params = jax.tree.map(
        lambda p, m, v: p - 3e-4 * ((m / c1) / (jnp.sqrt(v / c2) + 1e-8) + 0.1 * p), state["params"], mean, square)
    return dict(params=params, mean=mean, square=square, step=count), value


def spec_of(path, leaf):
    name = path[-1].key
    if kind == "fsdp":
        fits = [d for d in range(leaf.ndim) if leaf.shape[d] % plan["fsdp"] == 0]
        widest = max(fits, key=lambda d: leaf.shape[d], default=None)
        return P(*("fsdp" if d == widest else None for d in range(leaf.ndim)))
    if kind in ("tensor", "async"):
        split = dict(query=2, key=2, value=2, out=1, gate=2, up=2, down=1, head=1).get(name)
        return P(*("model" if d == split else None for d in range(leaf.ndim)))
    return P("pipe") if len(path) == 2 and REPEATS == 1 else P()


params = init()
shardings = jax.tree_util.tree_map_with_path(lambda path, leaf: NamedSharding(mesh, spec_of(path, leaf)), params)
everywhere = NamedSharding(mesh, P())
zeros = lambda: jax.tree.map(np.zeros_like, params)
placed = dict(params=shardings, mean=shardings, square=shardings, step=everywhere)
state = jax.device_put(dict(params=params, mean=zeros(), square=zeros(), step=np.zeros((), np.float32)), placed)
tokens = np.random.default_rng(1).integers(0, V, (B, S + 1)).astype(np.int32)
tokens = jax.device_put(tokens, NamedSharding(mesh, BATCH))
step = jax.jit(step, donate_argnums=0, in_shardings=(placed, NamedSharding(mesh, BATCH)), out_shardings=(placed, everywhere))
start = time.perf_counter()
state, value = jax.block_until_ready(step(state, tokens))
compile_ms = 1000 * (time.perf_counter() - start)
first, times = float(value), []
end = time.perf_counter() + size.get("seconds", 6)
while len(times) < 5 or time.perf_counter() < end:
    start = time.perf_counter()
    state, value = jax.block_until_ready(step(state, tokens))
    times.append(1000 * (time.perf_counter() - start))
print(json.dumps({"step_ms": min(times), "compile_ms": compile_ms, "first_loss": first, "last_loss": float(value)}))
