"""What each of eight devices sends for the programs of test/support/communicationPrograms.ts when XLA partitions them.

Prints {name: bytes} as JSON: every collective of the compiled program by the usual rings, as often as it runs.
With a name as argument, that program's compiled text.
"""
import json
import math
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import layers

def mesh_of(**axes):
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


LINE, GRID, SQUARE = mesh_of(d=8), mesh_of(stage=2, fsdp=4), mesh_of(data=2, model=4)
f32 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
i32 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.int32)
D, SECOND, WHOLE = P("d"), P(None, "d"), P()
W = 64


def layer_of(*stack):
    return dict(norm1=f32(*stack, W), qkv=f32(*stack, W, 3 * W), out=f32(*stack, W, W), norm2=f32(*stack, W),
                up=f32(*stack, W, 4 * W), down=f32(*stack, 4 * W, W))


def layer_specs(spec):
    return {name: spec for name in layer_of()}


def rms_norm(x, scale):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def softmax(x):
    e = jnp.exp(x - jnp.max(x, -1, keepdims=True))
    return e / jnp.sum(e, -1, keepdims=True)


def attend(q, k, v):
    return jnp.einsum("bhqk,bkhd->bqhd", softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k)), v)


def attention(x, qkv, out):
    split = [a.reshape(*x.shape[:2], 4, x.shape[2] // 4) for a in jnp.split(x @ qkv, 3, -1)]
    return attend(*split).reshape(x.shape) @ out


def block(x, p):
    h = x + attention(rms_norm(x, p["norm1"]), p["qkv"], p["out"])
    return h + jnp.tanh(rms_norm(h, p["norm2"]) @ p["up"]) @ p["down"]


energy = lambda x: jnp.mean(jnp.square(x))
mlp_params = dict(up=f32(64, 256), upBias=f32(256), down=f32(256, 64), downBias=f32(64))
mlp = lambda p, x: jnp.tanh(x @ p["up"] + p["upBias"]) @ p["down"] + p["downBias"]
mlp_specs = lambda up, up_bias, down, down_bias: dict(up=up, upBias=up_bias, down=down, downBias=down_bias)
mlp_loss = jax.grad(lambda p, x: energy(mlp(p, x)))
scanned = lambda p, x: energy(lax.scan(lambda h, layer: (block(h, layer), None), x, p)[0])
one_layer = lambda w, x: jnp.tanh(x @ w)
three_layers = lambda w, x: lax.scan(lambda h, layer: (one_layer(layer, h), None), x, w)[0]


def pipeline(stage):
    def loss(w, x):
        stages = w.shape[0]
        steps = jnp.concatenate([x, jnp.zeros((stages - 1, *x.shape[1:]))])

        def step(state, new):
            first = lax.broadcasted_iota(jnp.int32, state.shape, 0) == 0
            inputs = lax.with_sharding_constraint(jnp.where(first, new[None], state),
                                                  NamedSharding(GRID, P("stage", "fsdp")))
            outputs = jax.vmap(stage)(w, inputs)
            return jnp.roll(outputs, 1, 0), outputs[stages - 1:]

        return energy(lax.scan(step, jnp.zeros((stages, *x.shape[1:])), steps)[1][stages - 1:])
    return loss


def convolve(x, kernel):
    return lax.conv_general_dilated(x, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))


def convolve_images(stride):
    return lambda x, kernel: lax.conv_general_dilated(x, kernel, (stride, stride), "SAME",
                                                      dimension_numbers=("NHWC", "HWIO", "NHWC"))


PLAIN, STRIDED = convolve_images(1), convolve_images(2)
by_input = lambda fn: jax.grad(lambda x, kernel: energy(fn(x, kernel)))
by_kernel = lambda fn: jax.grad(lambda kernel, x: energy(fn(x, kernel)))
filtered = lambda p, x: PLAIN(x, p["kernel"]) + p["bias"]
FILTER, TILES = f32(3, 3, 8, 8), P(None, "data", "model")
FILTER_PARAMS = dict(kernel=FILTER, bias=f32(8))


def cross_entropy(logits, labels):
    shifted = logits - lax.stop_gradient(jnp.max(logits, -1, keepdims=True))
    own = jnp.take_along_axis(shifted, labels[:, None], -1)[:, 0]
    return jnp.mean(jnp.log(jnp.sum(jnp.exp(shifted), -1)) - own)


def layer_norm(x, scale, bias):
    c = x - jnp.mean(x, -1, keepdims=True)
    return c * lax.rsqrt(jnp.mean(c * c, -1, keepdims=True) + 1e-6) * scale + bias


def adam(w, g, m, v):
    mean, square = m * 0.9 + g * 0.1, v * 0.99 + g * g * 0.01
    return w - mean / (jnp.sqrt(square) + 1e-8) * 0.01, mean, square


take = lambda table, ids: jnp.take(table, ids, 0)
X = f32(128, 64)
TABLE, IDS = f32(512, 64), i32(32)
HEADS = (f32(2, 16, 8, 8),) * 3
BIG = f32(256, 128)
TENSOR = mlp_specs(P(None, "model"), P("model"), P("model"), WHOLE)

PROGRAMS = {
    "product with a row of scales": (LINE, lambda x, g: x * g, (X, f32(64)), (D, D), D),
    "gradient of a product with a row of scales":
        (LINE, jax.grad(lambda g, x: energy(x * g)), (f32(64), X), (D, D), D),
    "MLP with biases, all parameters split":
        (LINE, mlp_loss, (mlp_params, f32(8192, 64)), (mlp_specs(D, D, D, D), D), mlp_specs(D, D, D, D)),
    "MLP with biases, one example a device":
        (LINE, mlp_loss, (mlp_params, f32(8, 64)), (mlp_specs(D, D, D, D), D), mlp_specs(D, D, D, D)),
    "MLP, data parallel": (LINE, mlp_loss, (mlp_params, f32(512, 64)), (WHOLE, D), WHOLE),
    "MLP, tensor parallel": (SQUARE, mlp, (mlp_params, f32(512, 64)), (TENSOR, P("data")), P("data")),
    "gradient of an MLP, tensor parallel":
        (SQUARE, mlp_loss, (mlp_params, f32(512, 64)), (TENSOR, P("data")), TENSOR),
    "scan of 4 FSDP layers, norms split":
        (LINE, jax.grad(scanned), (layer_of(4), f32(32, 16, W)), (layer_specs(SECOND), D), layer_specs(SECOND)),
    "decoder layer FSDP, norms split":
        (LINE, jax.grad(lambda p, x: energy(block(x, p))), (layer_of(), f32(32, 16, W)), (layer_specs(D), D),
         layer_specs(D)),
    "pipeline of 2 stages, fsdp 4":
        (GRID, jax.grad(pipeline(one_layer)), (f32(2, 128, 128), f32(8, 256, 128)),
         (P("stage", "fsdp"), P(None, "fsdp")), P("stage", "fsdp")),
    "pipeline of 2 stages, fsdp 4, small microbatches":
        (GRID, jax.grad(pipeline(one_layer)), (f32(2, 128, 128), f32(8, 64, 128)),
         (P("stage", "fsdp"), P(None, "fsdp")), P("stage", "fsdp")),
    "pipeline of 2 stages, fsdp 4, large microbatches":
        (GRID, jax.grad(pipeline(one_layer)), (f32(2, 128, 128), f32(8, 496, 128)),
         (P("stage", "fsdp"), P(None, "fsdp")), P("stage", "fsdp")),
    "pipeline of 2 stages of 3 scanned layers, fsdp 4, large microbatches":
        (GRID, jax.grad(pipeline(three_layers)), (f32(2, 3, 128, 128), f32(8, 832, 128)),
         (P("stage", None, "fsdp"), P(None, "fsdp")), P("stage", None, "fsdp")),
    "pipeline of 2 stages of 3 scanned layers, fsdp 4":
        (GRID, jax.grad(pipeline(three_layers)), (f32(2, 3, 128, 128), f32(8, 256, 128)),
         (P("stage", None, "fsdp"), P(None, "fsdp")), P("stage", None, "fsdp")),
    "shift by slice and concatenate":
        (LINE, lambda x: jnp.concatenate([jnp.zeros((1, 64)), x[:127]]), (X,), (D,), D),
    "shift of 1024 rows by slice and concatenate":
        (LINE, lambda x: jnp.concatenate([jnp.zeros((1, 256)), x[:1023]]), (f32(1024, 256),), (D,), D),
    "roll": (LINE, lambda x: jnp.roll(x, 1, 0), (X,), (D,), D),
    "shift by a row in front":
        (LINE, lambda x, row: jnp.concatenate([row, x[:127]]), (X, f32(1, 64)), (D, WHOLE), D),
    "differences of neighbours": (LINE, lambda x: x[1:] - x[:-1], (X,), (D,), WHOLE),
    "convolution split in space":
        (LINE, convolve, (f32(4, 64, 32), f32(3, 32, 32)), (SECOND, WHOLE), SECOND),
    "gradient of a convolution split in space":
        (LINE, jax.grad(lambda k, x: energy(convolve(x, k))), (f32(3, 32, 32), f32(4, 64, 32)), (WHOLE, SECOND),
         WHOLE),
    "convolution split over the batch": (LINE, convolve, (f32(16, 64, 32), f32(3, 32, 32)), (D, WHOLE), D),
    "convolution of images split in space":
        (LINE, filtered, (FILTER_PARAMS, f32(8, 64, 64, 8)), (WHOLE, SECOND), SECOND),
    "convolution of a small image split in space":
        (LINE, filtered, (FILTER_PARAMS, f32(1, 16, 8, 8)), (WHOLE, SECOND), SECOND),
    "gradient of a convolution of a small image split in space":
        (LINE, jax.grad(lambda p, x: energy(filtered(p, x))), (FILTER_PARAMS, f32(1, 16, 8, 8)), (WHOLE, SECOND), WHOLE),
    "convolution of five rows split in space":
        (LINE, convolve, (f32(4, 64, 32), f32(5, 32, 32)), (SECOND, WHOLE), SECOND),
    "gradient of a convolution split in space by its input":
        (LINE, by_input(convolve), (f32(4, 64, 32), f32(3, 32, 32)), (SECOND, WHOLE), SECOND),
    "gradient of a convolution of images split in space by its input":
        (LINE, by_input(PLAIN), (f32(1, 16, 8, 8), FILTER), (SECOND, WHOLE), SECOND),
    "strided convolution of images split in space":
        (LINE, STRIDED, (f32(1, 32, 8, 8), FILTER), (SECOND, WHOLE), SECOND),
    "gradient of a strided convolution of images split in space":
        (LINE, by_kernel(STRIDED), (FILTER, f32(1, 32, 8, 8)), (WHOLE, SECOND), WHOLE),
    "gradient of a strided convolution of images split in space by its input":
        (LINE, by_input(STRIDED), (f32(1, 32, 8, 8), FILTER), (SECOND, WHOLE), SECOND),
    "convolution of images split in two dims":
        (SQUARE, PLAIN, (f32(1, 16, 16, 8), FILTER), (TILES, WHOLE), TILES),
    "gradient of a convolution of images split in two dims":
        (SQUARE, by_kernel(PLAIN), (FILTER, f32(1, 16, 16, 8)), (WHOLE, TILES), WHOLE),
    "gradient of a convolution of images split in two dims by its input":
        (SQUARE, by_input(PLAIN), (f32(1, 16, 16, 8), FILTER), (TILES, WHOLE), TILES),
    "strided convolution of images split in two dims":
        (SQUARE, STRIDED, (f32(1, 16, 16, 8), FILTER), (TILES, WHOLE), TILES),
    "gradient of a strided convolution of images split in two dims by its input":
        (SQUARE, by_input(STRIDED), (f32(1, 16, 16, 8), FILTER), (TILES, WHOLE), TILES),
    "sort along the split dim": (LINE, lambda x: jnp.sort(x, 0), (BIG,), (D,), D),
    "sort along another dim": (LINE, lambda x: jnp.sort(x, 1), (BIG,), (D,), D),
    "argmax over a split dim": (LINE, lambda x: jnp.argmax(x, 1), (f32(128, 256),), (SECOND,), WHOLE),
    "argmin over a split dim": (LINE, lambda x: jnp.argmin(x, 1), (f32(128, 256),), (SECOND,), WHOLE),
    "write into a cache split along the sequence":
        (LINE, lambda c, x, i: lax.dynamic_update_slice(c, x, (0, i, 0)), (f32(4, 256, 128), f32(4, 1, 128), i32()),
         (SECOND, WHOLE, WHOLE), SECOND),
    "read a row of a cache split along the sequence":
        (LINE, lambda c, i: lax.dynamic_slice(c, (0, i, 0), (4, 1, 128)), (f32(4, 256, 128), i32()), (SECOND, WHOLE),
         WHOLE),
    "reverse along the split dim": (LINE, lambda x: jnp.flip(x, 0), (BIG,), (D,), D),
    "cumulative sum along the split dim": (LINE, lambda x: jnp.cumsum(x, 0), (BIG,), (D,), D),
    "cumulative sum along another dim": (LINE, lambda x: jnp.cumsum(x, 1), (BIG,), (D,), D),
    "transpose": (LINE, jnp.transpose, (BIG,), (D,), D),
    "reshape that keeps the split dim": (LINE, lambda x: x.reshape(16, 16, 128), (BIG,), (D,), D),
    "softmax over the split dim": (LINE, softmax, (f32(128, 256),), (SECOND,), SECOND),
    "layer norm over the split dim":
        (LINE, layer_norm, (f32(128, 256), f32(256), f32(256)), (SECOND, D, D), SECOND),
    "layer norm, scales split, batch split":
        (LINE, layer_norm, (f32(128, 256), f32(256), f32(256)), (D, D, D), D),
    "embedding, vocabulary split": (LINE, take, (TABLE, IDS), (D, WHOLE), WHOLE),
    "embedding, vocabulary split, ids split": (LINE, take, (TABLE, IDS), (D, D), D),
    "gradient of an embedding split by features":
        (LINE, jax.grad(lambda t, i: energy(take(t, i))), (TABLE, IDS), (SECOND, WHOLE), SECOND),
    "cross entropy over a split vocabulary":
        (LINE, cross_entropy, (f32(64, 512), i32(64)), (SECOND, WHOLE), WHOLE),
    "gradient of cross entropy over a split batch":
        (LINE, jax.grad(cross_entropy), (f32(64, 512), i32(64)), (D, D), D),
    "attention, heads split": (LINE, attend, HEADS, (P(None, None, "d"),) * 3, P(None, None, "d")),
    "attention, queries split": (LINE, attend, HEADS, (SECOND,) * 3, SECOND),
    "scatter of split updates":
        (LINE, lambda x, ids, u: x.at[ids].add(u), (f32(64, 32), IDS, f32(32, 32)), (WHOLE, D, D), WHOLE),
    "AdamW of split moments and whole gradients": (LINE, adam, (BIG,) * 4, (D, WHOLE, D, D), (D, D, D)),
    "mean over a split dim": (LINE, lambda x: jnp.mean(x, 0), (BIG,), (D,), D),
    "outer product of split vectors": (LINE, jnp.outer, (f32(1024), f32(64)), (D, D), D),
    **layers.programs(),
}


def compiled(mesh, fn, args, in_specs, out_specs):
    named = lambda specs: jax.tree.map(lambda s: NamedSharding(mesh, s), specs, is_leaf=lambda s: isinstance(s, P))
    return jax.jit(fn, in_shardings=named(in_specs), out_shardings=named(out_specs)).lower(*args).compile().as_text()


SIZES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "pred": 1, "s8": 1, "u8": 1}


def bytes_of(text):
    return sum(SIZES[t] * math.prod(int(n) for n in dims.split(",") if n)
               for t, dims in re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", text))


def group_size(line):
    tiled = re.search(r"replica_groups=\[(\d+),(\d+)\]", line)
    if tiled:
        return int(tiled[2])
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", line)
    return len(listed[1].split(",")) if listed else 8


def sent(op, result, line):
    """The bytes that a device sends, from the bytes of what it receives, as src/ir/opFacts.ts counts them."""
    n = group_size(line)
    if op == "all-reduce":
        return 2 * result * (n - 1) / n
    if op == "all-gather" or op == "all-to-all":
        return result * (n - 1) / n
    return result * (n - 1) if op == "reduce-scatter" else result


def bytes_sent(text):
    """Adds up the collectives of a compiled program; the bodies of loops count as often as they run."""
    bodies, name = {}, None
    for line in text.splitlines():
        head = re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if head:
            name = "ENTRY" if line.startswith("ENTRY") else head[1]
            bodies[name] = []
        elif name and line.startswith("  "):
            bodies[name].append(line)

    def total(name):
        bytes = 0
        for line in bodies.get(name, []):
            found = re.match(r"\s+(?:ROOT )?%?[\w.\-]+ = (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|"
                             r"collective-permute)(?:-start)?\(", line)
            if found:
                bytes += sent(found[2], bytes_of(found[1]), line)
            called = re.findall(r"(?:body|calls|to_apply)=%?([\w.\-]+)", line)
            times = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
            for other in called:
                bytes += total(other) * (int(times[1]) if times else 1)
        return bytes
    return total("ENTRY")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        text = compiled(*PROGRAMS[sys.argv[1]])
        print(text)
        print(bytes_sent(text))
    else:
        print(json.dumps({name: bytes_sent(compiled(*program)) for name, program in PROGRAMS.items()}))
