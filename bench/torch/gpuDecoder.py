"""One AdamW step of the decoder of bench/gpuDecoder.ts in PyTorch on a GPU, eager or compiled, from the same weights.

Activations are bfloat16 and parameters float32; nothing but what the compiler chooses is recomputed. Prints one line of
JSON: milliseconds of a step (median and best), of the first call, peak memory, and losses.
"""

import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from inputs import make_step, read_parameters, read_tokens

settings = json.loads(sys.argv[1])
width, layers, sequence, batch = (settings[name] for name in ("width", "layers", "sequence", "batch"))
head, rounds = settings["headSize"], settings["rounds"]
dtype = getattr(torch, settings["dtype"])
torch.set_default_device("cuda")

stacked = read_parameters(settings, "cuda")
tokens = read_tokens(settings, "cuda")


def parts_of(name, value):
    """A stack of layers as one parameter for each, which is how PyTorch has them."""
    if not name.startswith("layers/"):
        return {name: value.detach().clone().requires_grad_()}
    return {f"{name}/{i}": value[i].detach().clone().requires_grad_() for i in range(layers)}


parameters = {name: part for whole, value in stacked.items() for name, part in parts_of(whole, value).items()}
del stacked
positions = torch.arange(sequence)[:, None] * 10_000.0 ** (-2 * torch.arange(head // 2) / head)
cos, sin = positions.cos(), positions.sin()


def norm(x, scale):
    wide = x.float()
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6) * scale).to(dtype)


def rotary(x):
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(dtype)


def block(x, weight):
    normed = norm(x, weight("norm1"))
    query, key, value = (
        (normed @ weight(name).to(dtype)).view(batch, sequence, width // head, head).transpose(1, 2)
        for name in ("query", "key", "value")
    )
    mixed = F.scaled_dot_product_attention(rotary(query), rotary(key), value, is_causal=True)
    x = x + mixed.transpose(1, 2).reshape(batch, sequence, width) @ weight("out").to(dtype)
    inner = norm(x, weight("norm2"))
    gated = F.silu(inner @ weight("gate").to(dtype)) * (inner @ weight("up").to(dtype))
    return x + gated @ weight("down").to(dtype)


def loss_of(p):
    table = p["embed"].to(dtype)
    x = F.embedding(tokens[:, :-1], table)
    for i in range(layers):
        x = block(x, lambda name: p[f"layers/{name}/{i}"])
    logits = norm(x, p["norm"]) @ table.T
    return F.cross_entropy(logits.float().view(-1, settings["vocabulary"]), tokens[:, 1:].reshape(-1))


if settings["compiled"]:
    loss_of = torch.compile(loss_of)
step = make_step(parameters, loss_of)


begin = time.perf_counter()
losses = [step().item()]
first = time.perf_counter() - begin
losses += [step().item() for _ in range(2)]
times = []
for _ in range(rounds):
    begin = time.perf_counter()
    losses.append(step().item())
    torch.cuda.synchronize()
    times.append(1000 * (time.perf_counter() - begin))
begin = time.perf_counter()
for _ in range(rounds):
    step()
torch.cuda.synchronize()
pipelined = 1000 * (time.perf_counter() - begin) / rounds
print(
    json.dumps(
        {
            "median_ms": sorted(times)[rounds // 2],
            "best_ms": min(times),
            "pipelined_ms": pipelined,
            "first_ms": 1000 * first,
            "peak_bytes": torch.cuda.max_memory_allocated(),
            "losses": losses[:8],
        }
    )
)
sys.stdout.flush()
os._exit(0)  # The threads of compilers may outlive the result.
