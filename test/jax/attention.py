"""Writes attention.json: jax.nn.dot_product_attention, its log-sum-exps and its gradients.

    python test/jax/attention.py > test/jax/attention.json
"""

import jax
import jax.numpy as jnp

from cases import ramp, write

attend = jax.nn.dot_product_attention


def operands(length, key_length, heads, key_heads, size, batch=2):
    query = ramp(batch, length, heads, size, scale=2.0)
    key = ramp(batch, key_length, key_heads, size, step=1.3, start=1.0)
    return query, key, ramp(batch, key_length, key_heads, size, step=2.1, start=2.0)


def with_sums(*args, **options):
    """The result and the log-sum-exp, from scores where JAX does not return it."""
    query, key, _ = args
    heads, key_heads = query.shape[2], key.shape[2]
    scores = jnp.einsum("bthd,bshd->bths", query, jnp.repeat(key, heads // key_heads, 2)) / jnp.sqrt(query.shape[3])
    return attend(*args, **options), jax.nn.logsumexp(scores, -1)


def sunk(query, key, value, sinks):
    """A further key without a value for every head."""
    scores = jnp.einsum("bthd,bshd->bhts", query, key) / jnp.sqrt(query.shape[3])
    column = jnp.broadcast_to(sinks[None, :, None, None], (*scores.shape[:3], 1))
    weights = jax.nn.softmax(jnp.concatenate([scores, column], -1), -1)[..., :-1]
    return jnp.einsum("bhts,bshd->bthd", weights, value)


def capped(query, key, value):
    scores = jnp.einsum("bthd,bshd->bhts", query, key) / jnp.sqrt(query.shape[3])
    weights = jax.nn.softmax(1.5 * jnp.tanh(scores / 1.5), -1)
    return jnp.einsum("bhts,bshd->bthd", weights, value)


def packed(query, key, value, segments):
    mask = segments[:, None, :, None] == segments[:, None, None, :]
    return attend(query, key, value, mask=mask, is_causal=True)


small = operands(3, 5, 4, 2, 3)
square = operands(5, 5, 2, 2, 3)
segments = jnp.asarray([[0, 0, 1, 1, 1], [3, 3, 3, 3, 4]], jnp.int32)
mask = ramp(2, 1, 3, 5, step=3.1) > -0.6
write({
    "all keys": (with_sums, small),
    "causal": (lambda q, k, v: attend(q, k, v, is_causal=True), square),
    "bias": (lambda q, k, v, b: attend(q, k, v, bias=b), (*small, ramp(1, 4, 3, 5, step=0.9))),
    "mask": (lambda q, k, v, m: attend(q, k, v, mask=m), (*small, mask)),
    "window": (lambda q, k, v: attend(q, k, v, local_window_size=(1, 2)), square),
    "scale": (lambda q, k, v: attend(q, k, v, scale=0.3), small),
    "query lengths": (lambda q, k, v, n: attend(q, k, v, query_seq_lengths=n), (*square, jnp.asarray([2, 5], jnp.int32))),
    "key lengths": (lambda q, k, v, n: attend(q, k, v, key_value_seq_lengths=n), (*square, jnp.asarray([4, 1], jnp.int32))),
    "sinks": (sunk, (*square, ramp(2, step=1.7))),
    "soft cap": (capped, square),
    "packed": (packed, (*square, segments)),
    "tiles": (lambda q, k, v: attend(q, k, v, is_causal=True), operands(100, 100, 2, 1, 2, batch=1)),
    "tiles in a window": (lambda q, k, v: attend(q, k, v, local_window_size=9), operands(97, 101, 1, 1, 2, batch=1)),
})
