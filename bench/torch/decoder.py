"""AdamW steps of the benchmarks' decoder in PyTorch, eager or compiled, on the cores this process may use.

Prints one line of JSON when it is ready, and a line after each step, which it takes for each line that it reads.
"""

import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from inputs import make_step, read_parameters, read_tokens

settings = json.loads(sys.argv[1])
torch.set_num_threads(settings["cores"])
width, sequence, head_size = settings["width"], settings["sequence"], settings["headSize"]


parameters = read_parameters(settings)
tokens = read_tokens(settings)


def norm(x, scale):
    return F.rms_norm(x, (width,), scale, 1e-6)


def attention(x, qkv, out):
    batch, length, _ = x.shape
    parts = (x @ qkv).reshape(batch, length, 3, width // head_size, head_size).permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
    return mixed.transpose(1, 2).reshape(batch, length, width) @ out


def loss_of(p):
    with torch.autocast("cpu", torch.bfloat16, enabled=settings.get("dtype") == "bfloat16"):
        logits = logits_of(p)
    return F.cross_entropy(logits.float().reshape(-1, settings["vocabulary"]), tokens[:, 1:].reshape(-1))


def logits_of(p):
    x = F.embedding(tokens[:, :-1], p["embed"])
    for i in range(settings["layers"]):
        layer = {name: p[f"layers/{i}/{name}"] for name in ("norm1", "qkv", "out", "norm2", "up", "down")}
        x = x + attention(norm(x, layer["norm1"]), layer["qkv"], layer["out"])
        x = x + F.gelu(norm(x, layer["norm2"]) @ layer["up"], approximate="tanh") @ layer["down"]
    return norm(x, p["norm"]) @ p["head"]


if settings["compiled"]:
    loss_of = torch.compile(loss_of)
step = make_step(parameters, loss_of)


def keep_to_first_cores():
    """All threads of this process, once the compiler has used every core."""
    cores = sorted(os.sched_getaffinity(0))[: settings["cores"]]
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)


start = time.perf_counter()
losses = [step().item()]
compile_ms = (time.perf_counter() - start) * 1e3
losses.append(step().item())
print(json.dumps({"compile_ms": compile_ms, "losses": losses}), flush=True)
for number, _ in enumerate(sys.stdin):
    if number == 0 and settings["compiled"] and sys.platform == "linux":
        keep_to_first_cores()
    step()
    print("done", flush=True)
os._exit(0)  # The threads of compilers may outlive the last step.
