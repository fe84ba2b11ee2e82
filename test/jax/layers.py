"""Writes layers.json: variables, results, updates and gradients of Flax's layers and lifted transforms.

    python test/jax/layers.py > test/jax/layers.json
"""

import json
import sys

import flax.linen as nn
from flax.linen import pooling
import jax
import jax.numpy as jnp
import numpy as np

rows = jnp.sin(jnp.arange(12, dtype=jnp.float32) * 0.7).reshape(4, 3) * 2
images = jnp.sin(jnp.arange(2 * 5 * 4 * 3, dtype=jnp.float32) * 0.37).reshape(2, 5, 4, 3)
sequences = jnp.cos(jnp.arange(2 * 5 * 3, dtype=jnp.float32) * 0.53).reshape(2, 5, 3)
films = jnp.cos(jnp.arange(2 * 3 * 4 * 2, dtype=jnp.float32) * 0.71).reshape(2, 3, 4, 2)
lengths = jnp.array([3, 5])
mask = jnp.array([[True], [True], [False], [True]])
random = nn.initializers.normal(1.0)
norm = {"bias_init": random, "scale_init": random}


class Inside(nn.Module):
    wrap: object

    @nn.compact
    def __call__(self, x, **options):
        x = nn.Dense(3)(x)
        return self.wrap()(x, **options)


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.RNN(nn.LSTMCell(4))(x)
        return nn.RNN(nn.GRUCell(2), reverse=True, name="back")(x)


class Chosen(nn.Module):
    @nn.compact
    def __call__(self, x):
        one, two = nn.Dense(3, name="one"), nn.Dense(3, name="two")
        if self.is_initializing():
            one(x), two(x)
        y = nn.cond(jnp.sum(x) > 0, lambda mdl, x: one(x), lambda mdl, x: two(x), self, x)
        return nn.switch(jnp.int32(2), [lambda mdl, x: x, lambda mdl, x: one(x), lambda mdl, x: two(x) * 2], self, y)


class Looped(nn.Module):
    @nn.compact
    def __call__(self, x):
        layer = nn.Dense(3)
        count = self.variable("state", "count", lambda: jnp.zeros(()))
        if self.is_initializing():
            layer(x)

        def body(mdl, c):
            mdl.put_variable("state", "count", mdl.get_variable("state", "count") + 1)
            i, x = c
            return i + 1, jnp.tanh(layer(x))

        return nn.while_loop(lambda mdl, c: c[0] < 3, body, self, (jnp.int32(0), x), carry_variables="state")[1]


class Derived(nn.Module):
    @nn.compact
    def __call__(self, x):
        layer = nn.Dense(1)
        energy = lambda mdl, x: jnp.sum(jnp.sin(mdl(x)))
        value, grads = nn.value_and_grad(energy, layer, x)
        y, pullback = nn.vjp(lambda mdl, x: jnp.tanh(mdl(x)), layer, x)
        variables, dx = pullback(jnp.ones_like(y) * 2)
        tangents = {"params": jax.tree.map(jnp.ones_like, layer.variables["params"])}
        out, tangent = nn.jvp(lambda mdl, x: jnp.tanh(mdl(x)), layer, (x,), (x * 0.5,), variable_tangents=tangents)
        return value, grads, variables["params"]["kernel"], dx, out, tangent


class OwnRule(nn.Module):
    @nn.compact
    def __call__(self, x):
        layer = nn.Dense(2)

        def forward(mdl, x):
            return nn.vjp(lambda mdl, x: mdl(x), mdl, x)

        def backward(pullback, ct):
            params, dx = pullback(ct)
            return jax.tree.map(jnp.sign, params), dx * 3

        return nn.custom_vjp(lambda mdl, x: mdl(x), forward_fn=forward, backward_fn=backward)(layer, x)


class Pair(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(3)(x)
        return nn.Dense(2)(x) + self.param("shift", random, (2,))


class Compiled(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.jit(nn.Dense)(4)(x)
        x = nn.Dense(3)(x) * self.param("first", random, (3,))
        pair = nn.jit(Pair)()
        x = pair(jnp.tanh(pair(x).sum(-1, keepdims=True) + x))
        return x * self.param("second", random, (2,))


class Pool(nn.Module):
    fn: object

    @nn.compact
    def __call__(self, x):
        return self.fn(x)


gru = lambda n: nn.RNN(nn.GRUCell(n))
stats = ["batch_stats"]
train = {"use_running_average": False}
# name: model, inputs, keyword arguments, mutable collections, keyword arguments of init
cases = {
    "BatchNorm": (nn.BatchNorm(momentum=0.9, **norm), rows, train, stats),
    "BatchNorm axis": (nn.BatchNorm(axis=(1, -1), use_fast_variance=False, **norm), images, train, stats),
    "BatchNorm mask": (nn.BatchNorm(use_scale=False), rows, {**train, "mask": mask}, stats),
    "BatchNorm evaluated": (nn.BatchNorm(use_running_average=True, **norm), rows, {}, False),
    "InstanceNorm": (nn.InstanceNorm(**norm), images, {}, False),
    "PReLU": (nn.PReLU(negative_slope_init=0.3), rows, {}, False),
    "WeightNorm": (nn.WeightNorm(nn.Dense(4), scale_init=random), rows, {}, False),
    "WeightNorm inside": (Inside(lambda: nn.WeightNorm(nn.Dense(4), variable_filter=None, feature_axes=None)), rows, {}, False),
    "SpectralNorm": (nn.SpectralNorm(nn.Dense(4)), rows, {"update_stats": True}, stats),
    "SpectralNorm inside": (Inside(lambda: nn.SpectralNorm(nn.Dense(4), n_steps=3)), rows, {"update_stats": False}, stats),
    "LSTMCell": (nn.RNN(nn.LSTMCell(4), return_carry=True), sequences, {}, False),
    "OptimizedLSTMCell": (nn.RNN(nn.OptimizedLSTMCell(4)), sequences, {}, False),
    "GRUCell": (nn.RNN(nn.GRUCell(4)), sequences, {}, False),
    "MGUCell": (nn.RNN(nn.MGUCell(4)), sequences, {}, False),
    "MGUCell plain": (nn.RNN(nn.MGUCell(4, reset_gate=False)), sequences, {}, False),
    "SimpleCell": (nn.RNN(nn.SimpleCell(4, residual=True)), sequences, {}, False),
    "ConvLSTMCell": (nn.RNN(nn.ConvLSTMCell(3, kernel_size=(3,))), films, {}, False),
    "RNN lengths": (nn.RNN(nn.LSTMCell(2), return_carry=True, reverse=True), sequences, {"seq_lengths": lengths}, False),
    "RNN kept order": (nn.RNN(nn.GRUCell(2), reverse=True, keep_order=True), sequences, {"seq_lengths": lengths}, False),
    "RNN time major": (nn.RNN(nn.SimpleCell(2), time_major=True), sequences, {}, False),
    "RNN carry": (gru(2), sequences, {"initial_carry": jnp.ones((2, 2))}, False),
    "RNN inside": (Recurrent(), sequences, {}, False),
    "Bidirectional": (nn.Bidirectional(gru(2), gru(3)), sequences, {"seq_lengths": lengths}, False),
    "Bidirectional carry": (nn.Bidirectional(gru(2), gru(2), return_carry=True, merge_fn=lambda a, b: a * b), sequences, {}, False),
    "ConvTranspose": (nn.ConvTranspose(4, (3, 2), strides=(2, 3)), images, {}, False),
    "ConvTranspose VALID": (nn.ConvTranspose(2, (3, 3), strides=(2, 1), padding="VALID", kernel_dilation=(2, 1), transpose_kernel=True), images, {}, False),
    "ConvTranspose CIRCULAR": (nn.ConvTranspose(2, (4, 3), strides=(2, 2), padding="CIRCULAR"), images, {}, False),
    "ConvTranspose pairs": (nn.ConvTranspose(2, (3,), strides=(2,), padding=[(1, 2)]), films, {}, False),
    "ConvLocal": (nn.ConvLocal(2, (2, 3), strides=(2, 1), bias_init=random), images, {}, False),
    "ConvLocal CAUSAL": (nn.ConvLocal(2, 2, padding="CAUSAL"), sequences, {}, False),
    "maxPool": (Pool(lambda x: nn.max_pool(x, (2, 2), strides=(2, 2))), images, {}, False),
    "maxPool SAME": (Pool(lambda x: nn.max_pool(x, (3, 2), padding="SAME")), images, {}, False),
    "minPool": (Pool(lambda x: pooling.min_pool(x, (2, 3), strides=(1, 2), padding=((1, 0), (0, 2)))), images, {}, False),
    "avgPool": (Pool(lambda x: nn.avg_pool(x, (2, 2), strides=(2, 2), padding="SAME")), images, {}, False),
    "avgPool inside": (Pool(lambda x: nn.avg_pool(x, (3, 3), strides=(2, 1), padding="SAME", count_include_pad=False)), images, {}, False),
    "pool": (Pool(lambda x: nn.pool(x[0], 1.0, jax.lax.mul, (2, 2), (1, 2), "VALID")), images, {}, False),
    "cond and switch": (Chosen(), rows, {}, False),
    "while": (Looped(), rows, {}, ["state"]),
    "derivatives": (Derived(), rows, {}, False),
    "customVjp": (OwnRule(), rows, {}, False),
    "jit": (nn.jit(nn.Dense)(4), rows, {}, False),
    "jit inside": (Compiled(), rows, {}, False),
    "DenseGeneral": (nn.DenseGeneral(4, axis=(2, 1), bias_init=random), sequences, {}, False),
    "DenseGeneral batch": (nn.DenseGeneral((2, 3), axis=(-1, 2), batch_dims=(1, 0)), images, {}, False),
    "WeightNorm no filter": (nn.WeightNorm(nn.Dense(4), variable_filter=[], feature_axes=-1), rows, {}, False),
    "WeightNorm axes": (nn.WeightNorm(nn.Dense(4), scale_init=random, feature_axes=(1, 0)), rows, {}, False),
}


def leaf(a):
    return {"shape": list(np.shape(a)), "data": [float(f"{e:.7g}") for e in np.ravel(np.asarray(a, np.float64))]}


def paths(tree, prefix=""):
    if isinstance(tree, dict):
        return {k: v for name in sorted(tree) for k, v in paths(tree[name], f"{prefix}{name}/").items()}
    return {prefix[:-1]: leaf(tree)}


def record(model, x, options, mutable):
    variables = model.init(jax.random.key(1), x, **options)
    params = variables.get("params", {})
    others = {k: v for k, v in variables.items() if k != "params"}

    def run(params, x):
        out = model.apply({"params": params, **others}, x, mutable=mutable, **options)
        return out if mutable else (out, {})

    y, updates = run(params, x)

    def loss(params, x):
        leaves = jax.tree.leaves(run(params, x)[0])
        return sum(jnp.sum(y * jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape)) for y in leaves)

    try:
        grads = jax.grad(loss, argnums=(0, 1))(params, x)
    except ValueError as error:
        # While loops, and windows reduced by any function, have no reverse derivative in JAX.
        if not any(text in str(error) for text in ("Reverse-mode differentiation", "Linearization failed")):
            raise
        grads = None
    return {
        "variables": paths(variables),
        "results": [leaf(a) for a in jax.tree.leaves(y)],
        "updates": paths(updates),
        "grads": None if grads is None else {**paths(grads[0]), "x": leaf(grads[1])},
    }


json.dump({name: record(*case) for name, case in cases.items()}, sys.stdout, separators=(",", ":"))
