"""The benchmark's decoder in JAX: one AdamW step, data parallel by shard_map. Prints its times as JSON."""
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
D, L, S, B, V, H = (size[k] for k in ("width", "layers", "sequence", "batch", "vocabulary", "headSize"))
devices = size["devices"]
dtype = size.get("dtype", "float32")
if "processes" in size:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(size["coordinator"], size["processes"], size["process"])


def place(value, spec):
    """Puts a value that every process has onto the devices of all of them."""
    value = np.asarray(value)
    return jax.make_array_from_callback(value.shape, NamedSharding(mesh, spec), lambda index: value[index])


def init():
    rng = np.random.default_rng(0)
    weight = lambda *shape: jnp.asarray(rng.normal(size=shape) / math.sqrt(shape[0]), jnp.float32)
    layer = lambda: dict(norm1=jnp.ones(D), qkv=weight(D, 3 * D), out=weight(D, D), norm2=jnp.ones(D),
                         up=weight(D, 4 * D), down=weight(4 * D, D))
    return dict(embed=weight(V, D), layers=[layer() for _ in range(L)], norm=jnp.ones(D), head=weight(D, V))


def rms_norm(x, scale):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def multiply(x, weight):
    return x @ weight.astype(x.dtype)


def attention(x, layer):
    b, t, d = x.shape
    q, k, v = jnp.moveaxis(multiply(x, layer["qkv"]).reshape(b, t, 3, d // H, H), 2, 0)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) / math.sqrt(H)
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e30)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1).astype(v.dtype), v).reshape(b, t, d)
    return multiply(mixed, layer["out"])


def loss(params, tokens):
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    x = params["embed"][inputs].astype(dtype)
    for layer in params["layers"]:
        x = x + attention(rms_norm(x, layer["norm1"]), layer)
        x = x + multiply(jax.nn.gelu(multiply(rms_norm(x, layer["norm2"]), layer["up"])), layer["down"])
    logits = multiply(rms_norm(x, params["norm"]), params["head"]).astype(jnp.float32)
    return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, targets[..., None], -1)[..., 0])


def adamw(state, grads):
    step = state["step"] + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], grads)
    square = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, state["square"], grads)
    c1, c2 = 1 - 0.9**step, 1 - 0.95**step
    params = jax.tree.map(
        lambda p, m, v: p - 3e-4 * ((m / c1) / (jnp.sqrt(v / c2) + 1e-8) + 0.1 * p), state["params"], mean, square)
    return dict(params=params, mean=mean, square=square, step=step)


mesh = Mesh(np.array(jax.devices()[:devices]), ("data",))


@partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("data")), out_specs=P(), check_vma=False)
def step(state, tokens):
    grads = jax.grad(loss)(state["params"], tokens)
    return adamw(state, jax.lax.pmean(grads, "data"))


step = jax.jit(step, donate_argnums=0)
params = init()
zeros = lambda: jax.tree.map(jnp.zeros_like, params)
state = dict(params=params, mean=zeros(), square=zeros(), step=jnp.zeros(()))
state = jax.tree.map(lambda value: place(value, P()), state)
tokens = np.random.default_rng(1).integers(0, V, (B, S + 1)).astype(np.int32)
tokens = place(tokens, P("data"))
start = time.perf_counter()
state = jax.block_until_ready(step(state, tokens))
compile_ms = 1000 * (time.perf_counter() - start)
times = []
end = time.perf_counter() + 6
# Several processes must take as many steps.
while len(times) < (8 if "processes" in size else 5) or ("processes" not in size and time.perf_counter() < end):
    start = time.perf_counter()
    state = jax.block_until_ready(step(state, tokens))
    times.append(1000 * (time.perf_counter() - start))
print(json.dumps({"step_ms": min(times), "compile_ms": compile_ms}))
