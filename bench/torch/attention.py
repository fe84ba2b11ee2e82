"""Milliseconds of PyTorch's causal attention, forward and backward, on as many cores as the settings say."""

import json
import sys
import time

import torch

settings = json.loads(sys.argv[1])
torch.set_num_threads(settings["cores"])
shape = [settings[name] for name in ("batch", "heads", "length", "headDim")]
operands = [torch.randn(shape, requires_grad=True) for _ in range(3)]


def step():
    start = time.perf_counter()
    torch.nn.functional.scaled_dot_product_attention(*operands, is_causal=True).sum().backward()
    return time.perf_counter() - start


step()
end = time.perf_counter() + 2
times = [step() for _ in range(3)]
while time.perf_counter() < end:
    times.append(step())
print(min(times) * 1e3)
