"""Writes test/jax/moe.json: mixtures of experts as MaxText computes them, dense and with dropped tokens.

Every expert sees every token here, and masks decide what counts, so that nothing is sorted or sent.
"""
import json
import math
import os

import jax
import jax.numpy as jnp
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(7)
B, L, D, F, E = 3, 7, 6, 8, 4


def draw(*shape):
    return jnp.asarray(rng.normal(size=shape) / math.sqrt(shape[-2] if len(shape) > 1 else 1), jnp.float32)


weights = {
    "router": draw(D, E) * 2,
    "gate": draw(E, D, F),
    "up": draw(E, D, F),
    "down": draw(E, F, D),
    "balanceBias": jnp.asarray([0.3, -0.2, 0.0, 0.1], jnp.float32),
    "sharedGate": draw(D, 2 * F),
    "sharedUp": draw(D, 2 * F),
    "sharedDown": draw(2 * F, D),
}
x = draw(B, L, D) * 2


def moe(w, x, *, k, gate, scale, normalize, capacity, bias, shared):
    hi = jax.lax.Precision.HIGHEST
    logits = jnp.einsum("bld,de->ble", x, w["router"], precision=hi)
    scores = jax.nn.softmax(logits, -1) if gate == "softmax" else jax.nn.sigmoid(logits)
    ranked = scores + w["balanceBias"] if bias else logits
    _, index = jax.lax.top_k(ranked, k)
    chosen = jnp.take_along_axis(scores, index, -1)
    if normalize:
        chosen = chosen / chosen.sum(-1, keepdims=True)
    chosen = chosen * scale
    hot = jax.nn.one_hot(index, E)
    if capacity is not None:
        room = int(max(math.ceil(L * k / E) * capacity, capacity))
        place = jnp.cumsum(hot.reshape(B, L * k, E), 1).reshape(hot.shape)
        hot_kept = hot * (place <= room)
    else:
        hot_kept = hot
    combine = jnp.einsum("blk,blke->ble", chosen, hot_kept, precision=hi)
    hidden = jax.nn.silu(jnp.einsum("bld,edf->blef", x, w["gate"], precision=hi))
    hidden = hidden * jnp.einsum("bld,edf->blef", x, w["up"], precision=hi)
    y = jnp.einsum("blef,efd,ble->bld", hidden, w["down"], combine, precision=hi)
    if shared:
        inner = jax.nn.silu(jnp.matmul(x, w["sharedGate"], precision=hi))
        inner = inner * jnp.matmul(x, w["sharedUp"], precision=hi)
        y = y + jnp.matmul(inner, w["sharedDown"], precision=hi)
    probs = scores / scores.sum(-1, keepdims=True)
    density = hot.sum(2).mean(1)
    balance = (density * probs.mean(1)).mean(-1) * E**2
    z = (jax.nn.logsumexp(logits, -1) ** 2).mean(-1)
    dropped = 1 - hot_kept.sum((1, 2, 3)) / (L * k)
    return y, {"loadBalance": balance, "z": z, "dropped": dropped, "load": density / k}


def case(**options):
    def loss(w, x):
        y, router = moe(w, x, **options)
        return jnp.sin(y).sum() + router["loadBalance"].mean() + 0.1 * router["z"].mean()

    y, router = moe(weights, x, **options)
    grads = jax.grad(loss, (0, 1))(weights, x)
    return {"options": options, "output": y, "router": router, "grads": grads[0], "inputGrad": grads[1]}


cases = {
    "mixtral": case(k=2, gate="softmax", scale=1, normalize=True, capacity=None, bias=False, shared=False),
    "mixtral, dropping": case(k=2, gate="softmax", scale=1, normalize=True, capacity=1.0, bias=False, shared=False),
    "deepseek": case(k=3, gate="sigmoid", scale=2.5, normalize=True, capacity=None, bias=True, shared=True),
    "softmax of all": case(k=2, gate="softmax", scale=1, normalize=False, capacity=0.5, bias=False, shared=True),
    "switch": case(k=1, gate="softmax", scale=1, normalize=False, capacity=1.25, bias=False, shared=False),
}


def plain(tree):
    return jax.tree.map(
        lambda a: {"shape": list(a.shape), "data": [float(np.format_float_positional(v, unique=True)) for v in np.ravel(a)]}
        if hasattr(a, "shape")
        else a,
        tree,
    )


with open(os.path.join(here, "moe.json"), "w") as file:
    json.dump(plain({"weights": weights, "x": x, "cases": cases}), file)
