"""The ops of bench/eager.ts in NumPy: prints the least milliseconds of each as JSON."""

import json
import time

import numpy as np


def best(run, seconds=0.5):
    run()
    fastest = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        fastest = min(fastest, time.perf_counter() - start)
    return 1000 * fastest


def main():
    rng = np.random.default_rng(0)
    times = {}
    for n in (64, 4096, 65536, 1 << 20):
        x = rng.standard_normal(n, dtype=np.float32)
        square = x.reshape(1 << (n.bit_length() // 2), -1)
        for name, run in {
            "add": lambda: x + x,
            "mul": lambda: x * x,
            "exp": lambda: np.exp(x),
            "tanh": lambda: np.tanh(x),
            "sum": lambda: np.sum(x),
            "transpose": lambda: np.ascontiguousarray(square.T),
            "random.normal": lambda: rng.standard_normal(n, dtype=np.float32),
        }.items():
            times[f"{name} {n}"] = best(run)
    for n in (256, 512):
        a = rng.standard_normal((n, n), dtype=np.float32)
        times[f"matmul {n}"] = best(lambda: a @ a)
    print(json.dumps(times))


main()
