"""The trainer's language models in plain JAX, trained for 50 steps on one device, as reference values.

    JAX_PLATFORMS=cpu python bench/jax/languageModel.py test/goldens

Needs jax, optax and safetensors. Where mathematics offers a second way, this file takes it: the matrix memory
runs step by step, rotary positions turn complex numbers, key and value heads are repeated, not grouped.

With --rounding it writes nothing and prints how far each curve moves when the run is done in float64, and when
the float32 parameters are first moved by a random half unit of their last place: what rounding alone does.
"""
import json
import math
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.tree_util import DictKey, tree_map_with_path

STEPS, BATCH, LENGTH = 50, 8, 12
LLAMA = dict(kind="llama", vocabSize=16, width=16, numLayers=2, numHeads=4, numKvHeads=2, mlpWidth=32,
             tieEmbeddings=False, ropeBase=10_000, normEpsilon=1e-6, dtype="float32", remat="none")
MLSTM = dict(LLAMA, kind="mlstm")
# Rates at which rounding does not grow: with --rounding every loss moves by a few units of 1e-6 at most.
OPTIMIZER = dict(learningRate=1e-2, warmup=5, weightDecay=0.1, clip=1, zLoss=0)
SLOWER = dict(OPTIMIZER, learningRate=5e-3)
CASES = {
    "llama_grouped_heads_z_loss": dict(model=LLAMA, optimizer=dict(OPTIMIZER, zLoss=1e-2)),
    "llama_tied_embeddings": dict(model=dict(LLAMA, tieEmbeddings=True), optimizer=OPTIMIZER),
    "mlstm": dict(model=MLSTM, optimizer=SLOWER),
    "mlstm_tied_embeddings_z_loss": dict(model=dict(MLSTM, tieEmbeddings=True), optimizer=dict(SLOWER, zLoss=1e-2)),
}


# Parameters and data.

def spreads(model):
    """For every parameter its shape, mean and spread; layers are stacked along the first dim."""
    width, inner, heads, kv = (model[k] for k in ("width", "mlpWidth", "numHeads", "numKvHeads"))
    kernel = lambda *shape: (shape, 0, 1 / math.sqrt(shape[-2]))
    # Scales differ from one and biases from each other, so that one left out or put elsewhere is seen.
    scale = lambda *shape: (shape, 1, 0.1)
    if model["kind"] == "llama":
        size = width // heads
        block = dict(
            attentionNorm=dict(scale=scale(width)),
            attention=dict(query=dict(kernel=kernel(width, heads, size)), key=dict(kernel=kernel(width, kv, size)),
                           value=dict(kernel=kernel(width, kv, size)), out=dict(kernel=kernel(heads, size, width))),
            mlpNorm=dict(scale=scale(width)),
            mlp=dict(gate=dict(kernel=kernel(width, inner)), up=dict(kernel=kernel(width, inner)),
                     down=dict(kernel=kernel(inner, width))))
    else:
        size = inner // heads
        gate = lambda bias: dict(kernel=((heads, 3 * size, heads), 0, 0.02), bias=((heads,), bias, 0.5))
        block = dict(
            norm=dict(scale=scale(width)), up=dict(kernel=kernel(width, inner)), gate=dict(kernel=kernel(width, inner)),
            conv=dict(kernel=((4, inner), 0, 0.5), bias=((inner,), 0, 0.1)), query=kernel(heads, size, size), key=kernel(heads, size, size),
            value=kernel(heads, size, size), inputGate=gate(-5), forgetGate=gate(4), outNorm=scale(heads, size),
            skip=scale(inner), down=dict(kernel=kernel(inner, width)))
    stacked = jax.tree.map(lambda leaf: ((model["numLayers"], *leaf[0]), *leaf[1:]), block,
                           is_leaf=lambda node: isinstance(node, tuple))
    table = ((model["vocabSize"], width), 0, 1 / math.sqrt(width) if model["tieEmbeddings"] else 1)
    head = {} if model["tieEmbeddings"] else dict(head=dict(kernel=kernel(width, model["vocabSize"])))
    ends = dict(embed=dict(embedding=table), norm=dict(scale=scale(width)), **head)
    return dict(params=dict(ends, layers=dict(block=stacked)))


def init(model, rng):
    draw = lambda leaf: (leaf[1] + leaf[2] * rng.normal(size=leaf[0])).astype(np.float32)
    return jax.tree.map(draw, spreads(model), is_leaf=lambda node: isinstance(node, tuple))


def make_tokens(model, rng):
    """Sequences in which every token tells the next, t to 5 t + 3; but a tenth of them is noise."""
    size = model["vocabSize"]
    tokens = rng.integers(0, size, (STEPS, BATCH, LENGTH + 1))
    is_noise = rng.random(tokens.shape) < 0.1
    for i in range(LENGTH):
        tokens[..., i + 1] = np.where(is_noise[..., i + 1], tokens[..., i + 1], (5 * tokens[..., i] + 3) % size)
    return tokens.astype(np.int32)


# The models.

def rms_norm(model, x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + model["normEpsilon"]) * scale


def rotary(model, x):
    low, high = jnp.split(x, 2, -1)
    frequency = model["ropeBase"] ** (-jnp.arange(low.shape[-1], dtype=x.dtype) / low.shape[-1])
    angle = jnp.arange(x.shape[1], dtype=x.dtype)[:, None, None] * frequency
    turned = jax.lax.complex(low, high) * jax.lax.complex(jnp.cos(angle), jnp.sin(angle))
    return jnp.concatenate([turned.real, turned.imag], -1)


def llama_block(model, p, x):
    normed = rms_norm(model, x, p["attentionNorm"]["scale"])
    project = lambda name: jnp.einsum("btd,dhk->bthk", normed, p["attention"][name]["kernel"])
    per_group = lambda heads: jnp.repeat(heads, model["numHeads"] // model["numKvHeads"], axis=2)
    query, key = rotary(model, project("query")), per_group(rotary(model, project("key")))
    scores = jnp.einsum("bthk,bshk->bhts", query, key) / math.sqrt(query.shape[-1])
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    attention = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), -1)
    mixed = jnp.einsum("bhts,bshk->bthk", attention, per_group(project("value")))
    x = x + jnp.einsum("bthk,hkd->btd", mixed, p["attention"]["out"]["kernel"])
    normed = rms_norm(model, x, p["mlpNorm"]["scale"])
    inner = jax.nn.silu(normed @ p["mlp"]["gate"]["kernel"]) * (normed @ p["mlp"]["up"]["kernel"])
    return x + inner @ p["mlp"]["down"]["kernel"]


def matrix_memory(query, key, value, input_gate, forget_gate):
    """xLSTM's recurrence over positions: a matrix C, a normaliser n and a stabiliser m for every head."""
    b, _, h, size = query.shape
    log_forget = jax.nn.log_sigmoid(forget_gate)

    def step(carry, at):
        C, n, m = carry
        q, k, v, i, f = at
        largest = jnp.maximum(f + m, i)
        keep, add = jnp.exp(f + m - largest)[..., None], jnp.exp(i - largest)[..., None]
        C = keep[..., None] * C + (add * v)[..., :, None] * k[..., None, :]
        n = keep * n + add * k
        total = jnp.sum(n * q, -1)
        normalizer = jnp.maximum(jnp.abs(total), jnp.exp(-largest)) + 1e-6
        return (C, n, largest), jnp.einsum("bhij,bhj->bhi", C, q) / normalizer[..., None]

    empty = (jnp.zeros((b, h, size, size), query.dtype), jnp.zeros((b, h, size), query.dtype),
             jnp.full((b, h), -1e30, query.dtype))
    over_time = lambda x: jnp.moveaxis(x, 1, 0)
    inputs = (query / math.sqrt(size), key, value, input_gate, log_forget)
    _, out = jax.lax.scan(step, empty, jax.tree.map(over_time, inputs))
    return jnp.moveaxis(out, 0, 1)


def mlstm_block(model, p, x):
    b, t, _ = x.shape
    normed = rms_norm(model, x, p["norm"]["scale"])
    inner = normed @ p["up"]["kernel"]
    taps, features = p["conv"]["kernel"].shape
    # A depthwise convolution; jax.lax correlates, so the last tap is the position itself.
    convolved = jax.lax.conv_general_dilated(
        inner, p["conv"]["kernel"][:, None, :], (1,), [(taps - 1, 0)],
        dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=features)
    mixed = jax.nn.silu(convolved + p["conv"]["bias"])
    heads = lambda y: y.reshape(b, t, model["numHeads"], -1)
    project = lambda name, y: jnp.einsum("bthi,hio->btho", heads(y), p[name])
    query, key, value = project("query", mixed), project("key", mixed), project("value", inner)
    seen = jnp.concatenate([query, key, value], -1)
    gate = lambda name: jnp.einsum("bthi,hig->btg", seen, p[name]["kernel"]) + p[name]["bias"]
    memory = matrix_memory(query, key, value, gate("inputGate"), gate("forgetGate"))
    normalized = jax.nn.standardize(memory, axis=-1, epsilon=model["normEpsilon"]) * p["outNorm"]
    out = normalized.reshape(b, t, -1) + mixed * p["skip"]
    return x + (out * jax.nn.silu(normed @ p["gate"]["kernel"])) @ p["down"]["kernel"]


def losses(model, z_loss, variables, tokens):
    p = variables["params"]
    x = p["embed"]["embedding"][tokens[:, :-1]]
    block = llama_block if model["kind"] == "llama" else mlstm_block
    for i in range(model["numLayers"]):
        x = block(model, jax.tree.map(lambda leaf: leaf[i], p["layers"]["block"]), x)
    x = rms_norm(model, x, p["norm"]["scale"])
    logits = x @ (p["embed"]["embedding"].T if model["tieEmbeddings"] else p["head"]["kernel"])
    entropy = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()
    return entropy + z_loss * jnp.mean(jax.nn.logsumexp(logits, -1) ** 2), entropy


# Training.

def make_optimizer(settings):
    peak = settings["learningRate"]
    schedule = optax.warmup_cosine_decay_schedule(0, peak, settings["warmup"], STEPS, peak / 10)
    spared = {"scale", "bias", "outNorm"}
    decays = lambda params: tree_map_with_path(
        lambda path, _: not any(isinstance(k, DictKey) and k.key in spared for k in path), params)
    return optax.chain(optax.clip_by_global_norm(settings["clip"]),
                       optax.adamw(schedule, b2=0.95, weight_decay=settings["weightDecay"], mask=decays))


def train(case, variables, tokens):
    """All steps: the parameters after the last, and of every step loss, cross-entropy and gradient norm."""
    optimizer = make_optimizer(case["optimizer"])
    loss_of = partial(losses, case["model"], case["optimizer"]["zLoss"])

    @jax.jit
    def step(variables, remembered, batch):
        (loss, entropy), grads = jax.value_and_grad(loss_of, has_aux=True)(variables, batch)
        updates, remembered = optimizer.update(grads, remembered, variables)
        return optax.apply_updates(variables, updates), remembered, (loss, entropy, optax.global_norm(grads))

    remembered, curve = optimizer.init(variables), []
    for batch in tokens:
        variables, remembered, told = step(variables, remembered, batch)
        curve.append(told)
    return variables, dict(zip(("loss", "cross_entropy", "gradient_norm"), map(np.asarray, zip(*curve))))


def print_rounding(name, case, initial, tokens, curve):
    rng = np.random.default_rng(2)
    nudge = lambda p: (p * (1 + rng.uniform(-1, 1, p.shape) * 2.0**-24)).astype(np.float32)
    _, nudged = train(case, jax.tree.map(nudge, initial), tokens)
    with jax.enable_x64(True):
        _, wide = train(case, jax.tree.map(lambda p: jnp.asarray(p, jnp.float64), initial), tokens)
    off = lambda other, key: f"{np.max(np.abs(other[key] / curve[key] - 1)):.1e}"
    print(f"{name}: float64 {off(wide, 'loss')} (gradient norm {off(wide, 'gradient_norm')}), "
          f"nudged {off(nudged, 'loss')} (gradient norm {off(nudged, 'gradient_norm')})")


def main(folder):
    cases, tensors = [], {}

    def store(name, value):
        tensors[name] = np.ascontiguousarray(value)
        return name

    for number, (name, case) in enumerate(CASES.items()):
        rng = np.random.default_rng(number)
        initial, tokens = init(case["model"], rng), make_tokens(case["model"], rng)
        final, curve = train(case, initial, tokens)
        loss = curve["loss"]
        print(f"{name}: loss {loss[0]:.3f} {loss[STEPS // 2]:.3f} {loss[-1]:.3f}")
        if folder is None:
            print_rounding(name, case, initial, tokens, curve)
        named = lambda part, values: tree_map_with_path(
            lambda path, leaf: store("/".join([name, part, *(key.key for key in path)]), leaf), values)
        cases.append(dict(name=name, steps=STEPS, **case, tokens=store(f"{name}/tokens", tokens),
                          variables=named("variables", initial), final=named("final", final),
                          **{key: store(f"{name}/{key}", values) for key, values in curve.items()}))
    if folder is None:
        return
    from safetensors.numpy import save_file

    save_file(tensors, folder / "language_model.safetensors")
    content = dict(area="language_model", jax=jax.__version__, optax=optax.__version__, cases=cases)
    (folder / "language_model.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(None if sys.argv[1] == "--rounding" else Path(sys.argv[1]))
