"""Writes varying.json: gradients taken inside shard_map by JAX 0.10, with and without check_vma.

    python -m venv env && env/bin/pip install jax && env/bin/python test/jax/varying.py

Every case is a function of a block of x that is multiplied with w, which all devices share. It has the gradients of
each device's own loss and of the sum of all losses, and the derivative of their squares, by x and by w.
"""

import json
import os
import pathlib

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

devices = np.array(jax.devices()[:4])
line = Mesh(devices, ("i",))
square = Mesh(devices.reshape(2, 2), ("a", "b"))
x = jnp.sin(jnp.arange(48, dtype=jnp.float32)).reshape(16, 3)
w = jnp.cos(jnp.arange(12, dtype=jnp.float32)).reshape(4, 3)


@jax.custom_vjp
def doubled(v, u):
    return 2 * v * u


doubled.defvjp(lambda v, u: (2 * v * u, (v, u)), lambda kept, ct: (2 * ct * kept[1], 2 * ct * kept[0]))


def loop(check):
    mark = (lambda v: lax.pcast(v, "i", to="varying")) if check else (lambda v: v)
    return lambda v: lax.scan(lambda c, _: (jnp.sin(c) + mark(lax.psum(c, "i")) * 0.1, c), v, None, length=3)[0]


def choice(v):
    larger = jnp.sum(lax.psum(v, "i")) > 0
    return lax.cond(larger, lambda u: jnp.sin(u) * lax.psum(u, "i"), lambda u: u * 2.0, v)


up = [(0, 1), (1, 2), (2, 3), (3, 0)]
functions = {
    "nothing": lambda _: lambda v: v,
    "psum": lambda _: lambda v: lax.psum(v, "i"),
    "pmean": lambda _: lambda v: lax.pmean(v, "i"),
    "allGather": lambda _: lambda v: lax.all_gather(v, "i", axis=0, tiled=True),
    "psumScatter": lambda _: lambda v: lax.psum_scatter(v, "i", scatter_dimension=0, tiled=True),
    "ppermute": lambda _: lambda v: lax.ppermute(v, "i", up),
    "allToAll": lambda _: lambda v: lax.all_to_all(v, "i", 0, 1, tiled=True),
    "axisIndex": lambda _: lambda v: v * lax.axis_index("i"),
    "pmean, squared": lambda _: lambda v: (v - lax.pmean(v, "i")) ** 2,
    "scan": loop,
    "cond": lambda _: choice,
    "remat": lambda _: jax.checkpoint(lambda v: jnp.sin(lax.psum(jnp.sin(v), "i") * v)),
}


def losses(name, check):
    if name == "psum of what is shared":
        return lambda v, u: jnp.sum(jnp.sin(lax.psum(u, "i") * 0.1) * u) + jnp.sum(v * u)
    if name == "customVjp":
        return lambda v, u: jnp.sum(jnp.sin(doubled(v, lax.pcast(u, "i", to="varying") if check else u)))
    if name == "two axes":
        return lambda v, u: jnp.sum(jnp.sin(lax.psum(v * u, "a")) * lax.psum(lax.axis_index("b") * v, "b"))
    fn = functions[name](check)
    return lambda v, u: jnp.sum(jnp.sin(fn(v * u) * 0.5))


def gradients(name, check):
    axes = ("a", "b") if name == "two axes" else ("i",)
    loss = losses(name, check)
    total = lambda v, u: lax.psum(loss(v, u), axes)
    squares = lambda v, u: sum(jnp.sum(g * g) for g in jax.grad(loss, argnums=(0, 1))(v, u))

    def body(v, u):
        results = [g for fn in (loss, total, squares) for g in jax.grad(fn, argnums=(0, 1))(v, u)]
        if not check:
            return results
        return [lax.pcast(g, tuple(set(axes) - jax.typeof(g).manual_axis_type.varying), to="varying") for g in results]

    mesh = square if name == "two axes" else line
    inner = jax.shard_map(body, mesh=mesh, in_specs=(P(axes), P()), out_specs=P(axes), check_vma=check)
    return [[round(float(value), 5) for value in np.ravel(g)] for g in jax.jit(inner)(x, w)]


names = [*functions, "psum of what is shared", "customVjp", "two axes"]
cases = [
    {"name": name, "checked": check, "gradients": gradients(name, check)} for name in names for check in (True, False)
]
text = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
pathlib.Path(__file__).with_suffix(".json").write_text(f"[\n{text}\n]\n")
