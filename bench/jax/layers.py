"""Training steps like those of test/support/layerPrograms.ts, as communication.py has programs: layers that call their
collectives themselves do so here too, in a shard_map; the circular pipeline is whole tensors, which XLA partitions."""
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P

WIDTH, HIDDEN, DEVICES = 16, 64, 8
energy = lambda x: jnp.mean(jnp.square(x))
f32 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)


def mesh_of(**axes):
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def dense(p, x):
    return x @ p["kernel"] + p["bias"]


def dense_params(n, m, *stack):
    return dict(kernel=f32(*stack, n, m), bias=f32(*stack, m))


MLP = dict(up=dense_params(WIDTH, HIDDEN), down=dense_params(HIDDEN, WIDTH))
mlp = lambda p, x: dense(p["down"], jax.nn.gelu(dense(p["up"], x)))
X = f32(32, WIDTH)
TENSOR = dict(up=dict(kernel=P(None, "model"), bias=P("model")), down=dict(kernel=P("model"), bias=P("model")))
FSDP = dict(up=dict(kernel=P(None, "fsdp"), bias=P()), down=dict(kernel=P("fsdp"), bias=P()))


def tensor_parallel(mesh):
    """Gathers the features, then sums and scatters them."""
    def loss(p, x):
        whole = lax.all_gather(x, "model", axis=1, tiled=True)
        h = jax.nn.gelu(dense(p["up"], whole))
        y = lax.psum_scatter(h @ p["down"]["kernel"], "model", scatter_dimension=1, tiled=True) + p["down"]["bias"]
        return energy(x + y)
    return jax.shard_map(jax.grad(loss), mesh=mesh, in_specs=(TENSOR, P(None, "model")), out_specs=TENSOR, check_vma=False)


def fully_sharded(mesh):
    """Gathers each kernel before its use; the way back sums and scatters its gradient, and sums those of biases."""
    def loss(p, x):
        up = dict(p["up"], kernel=lax.all_gather(p["up"]["kernel"], "fsdp", axis=1, tiled=True))
        down = dict(p["down"], kernel=lax.all_gather(p["down"]["kernel"], "fsdp", axis=0, tiled=True))
        return energy(mlp(dict(up=up, down=down), x))

    def step(p, x):
        grads = jax.grad(loss)(p, x)
        return {name: dict(g, bias=lax.pmean(g["bias"], "fsdp")) for name, g in grads.items()}
    return jax.shard_map(step, mesh=mesh, in_specs=(FSDP, P("fsdp")), out_specs=FSDP, check_vma=False)


def stage_params(*stack):
    return dict(norm=f32(*stack, WIDTH), up=dense_params(WIDTH, HIDDEN, *stack), down=dense_params(HIDDEN, WIDTH, *stack))


def stage(p, x):
    scaled = x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * p["norm"]
    return x + dense(p["down"], jax.nn.silu(dense(p["up"], scaled)))


def gpipe(mesh):
    """Microbatches go from device to device; only the last one's outputs count."""
    def loss(p, x):
        own = jax.tree.map(lambda a: a[0], p)
        here = lax.axis_index("pipe")
        parts = jnp.concatenate([x.reshape(8, 4, WIDTH), jnp.zeros((DEVICES - 1, 4, WIDTH))])

        def step(before, new):
            y = stage(own, jnp.where(here == 0, new, before))
            return lax.ppermute(y, "pipe", [(i, (i + 1) % DEVICES) for i in range(DEVICES)]), y

        ys = lax.scan(step, jnp.zeros((4, WIDTH)), parts)[1][DEVICES - 1:]
        return lax.psum(jnp.where(here == DEVICES - 1, energy(ys), 0), "pipe")
    return jax.shard_map(jax.grad(loss), mesh=mesh, in_specs=(P("pipe"), P()), out_specs=P("pipe"), check_vma=False)


def circular(mesh, stages=4, repeats=2, micro=8):
    """All stages at once on shifted microbatches, each repeat with weights of its own."""
    sharding = jax.sharding.NamedSharding(mesh, P("stage", "data"))

    def loss(p, x):
        parts = x.reshape(micro, -1, *x.shape[1:])
        laps = jnp.zeros((micro, *parts.shape[1:]))

        def step(carry, i):
            state, store, outs = carry
            ids = jnp.maximum(i - jnp.arange(stages), 0)
            fresh = jnp.where(i < micro, parts[i % micro], store[i % micro])
            first = lax.broadcasted_iota(jnp.int32, state.shape, 0) == 0
            inputs = lax.with_sharding_constraint(jnp.where(first, fresh[None], state), sharding)
            lap = jnp.minimum(ids // micro, repeats - 1)
            weights = jax.tree.map(
                lambda a: jax.vmap(lambda own, r: lax.dynamic_index_in_dim(own, r, 0, False), (1, 0))(a, lap), p)
            ys = lax.with_sharding_constraint(jax.vmap(stage)(weights, inputs), sharding)
            done = (i - stages + 1) % micro
            store = lax.dynamic_update_index_in_dim(store, ys[-1], done, 0)
            outs = lax.dynamic_update_index_in_dim(outs, ys[-1], done, 0)
            return (jnp.roll(ys, 1, 0), store, outs), None

        state = jnp.zeros((stages, *parts.shape[1:]))
        (_, _, outs), _ = lax.scan(step, (state, laps, laps), jnp.arange(micro * repeats + stages - 1))
        return energy(outs)
    return jax.grad(loss)


def programs():
    model, fsdp, pipe = mesh_of(model=8), mesh_of(fsdp=8), mesh_of(pipe=8)
    circle = mesh_of(data=2, stage=4)
    tensor = (model, tensor_parallel(model), (MLP, X), (TENSOR, P(None, "model")), TENSOR)
    staged = lambda spec, *stack: jax.tree.map(lambda _: spec, stage_params(*stack))
    return {
        "TPDense, gather and scatter": tensor,
        "TPAsyncDense, gather and scatter": tensor,
        "FSDP of an MLP": (fsdp, fully_sharded(fsdp), (MLP, X), (FSDP, P("fsdp")), FSDP),
        "FSDP of an MLP, whole tensors":
            (fsdp, jax.grad(lambda p, x: energy(mlp(p, x))), (MLP, X), (FSDP, P("fsdp")), FSDP),
        "GPipe of 8 stages": (pipe, gpipe(pipe), (stage_params(8), X), (staged(P("pipe"), 8), P()), staged(P("pipe"), 8)),
        "CircularPipeline, 4 stages twice, data 2":
            (circle, circular(circle), (stage_params(2, 4), f32(16, 4, WIDTH)), (staged(P(None, "stage"), 2, 4), P()),
             staged(P(None, "stage"), 2, 4)),
    }
