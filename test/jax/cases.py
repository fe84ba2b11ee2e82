"""Writes cases for TypeScript tests: arguments, results and gradients by JAX."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np


def ramp(*shape, scale=1.0, step=0.7, start=0.0):
    """Values without a pattern, the same on every machine."""
    count = int(np.prod(shape))
    return jnp.asarray(np.sin(np.arange(count) * step + start).reshape(shape) * scale, jnp.float32)


def complex_ramp(*shape, scale=1.0, start=0.0):
    """Complex numbers without a pattern."""
    return ramp(*shape, scale=scale, start=start) + 1j * ramp(*shape, scale=scale, step=1.9, start=start + 1)


def is_complex(x):
    return jnp.issubdtype(x.dtype, jnp.complexfloating)


def leaf(x):
    """The elements in order, of complex numbers both parts in turn."""
    parts = np.stack([np.real(x), np.imag(x)], -1) if is_complex(x) else x
    data = np.ravel(np.asarray(parts, np.float64))
    number = (lambda e: float(str(np.float32(e)))) if is_float(x) else float
    text = lambda e: None if np.isnan(e) else ("inf" if e > 0 else "-inf") if np.isinf(e) else number(e)
    return {"dtype": str(x.dtype), "shape": list(np.shape(x)), "data": [text(e) for e in data]}


def is_float(x):
    return jnp.issubdtype(x.dtype, jnp.inexact)


def loss(fn, *args):
    """A sum of all results, each element weighed differently."""
    total = jnp.float32(0)
    for x in jax.tree.leaves(fn(*args)):
        if is_complex(x):
            turns = jnp.arange(x.size, dtype=jnp.float32).reshape(x.shape)
            total += jnp.sum(jnp.real(x) * jnp.cos(turns) + jnp.imag(x) * jnp.sin(turns + 1))
        elif is_float(x):
            total += jnp.sum(x.astype(jnp.float32) * jnp.cos(jnp.arange(x.size, dtype=jnp.float32)).reshape(x.shape))
    return total


def record(fn, args, differentiable=True):
    floats = [i for i, a in enumerate(args) if is_float(a)]
    results = jax.tree.leaves(fn(*args))
    grads = jax.grad(lambda *a: loss(fn, *a), floats)(*args) if differentiable and floats else []
    return {"args": [leaf(a) for a in args], "results": [leaf(r) for r in results], "gradients": [leaf(g) for g in grads]}


def record_wide(narrow, fn, args, differentiable=True):
    """The numbers of a record computed in float64, under the types that they have there."""
    with jax.enable_x64(True):
        widths = {jnp.dtype(jnp.float32): jnp.float64, jnp.dtype(jnp.complex64): jnp.complex128}
        wide = record(fn, [a.astype(widths.get(a.dtype, a.dtype)) for a in args], differentiable)
    named = lambda one, other: [{**w, "dtype": n["dtype"]} for n, w in zip(one, other, strict=True)]
    return {"args": narrow["args"], **{part: named(narrow[part], wide[part]) for part in ("results", "gradients")}}


def distance(one, other):
    """How far two records are apart, relative to the larger of 1 and an element."""
    largest = 0.0
    for part in ("results", "gradients"):
        for x, y in zip(one[part], other[part], strict=True):
            for a, b in zip(x["data"], y["data"], strict=True):
                if isinstance(a, float) and isinstance(b, float):
                    largest = max(largest, abs(a - b) / max(1.0, abs(b)))
                elif a != b:
                    return float("inf")
    return largest


def write(cases, within=None, wide=(), by_precision=()):
    """cases: name -> (fn, args) or (fn, args, False) where there is no gradient.

    within: how far JAX's float32 may be from its float64, which tells cases that lose digits by themselves.
    wide: the cases that do, which are written in float64.
    by_precision: cases whose meaning depends on the precision of their type.
    """
    records = {name: record(*case) for name, case in cases.items()}
    if within is not None:
        exact = {name: record_wide(records[name], *case) for name, case in cases.items() if name not in by_precision}
        far = {name for name in exact if distance(records[name], exact[name]) > within}
        if far != set(wide):
            apart = {name: distance(records[name], exact[name]) for name in far ^ set(wide)}
            raise SystemExit(f"float32 and float64 are apart by {apart}: only these belong into wide that are further than {within}")
        records |= {name: exact[name] for name in wide}
    json.dump(records, sys.stdout, separators=(",", ":"))


def write_wide(cases):
    """The cases computed in float64, for functions that lose digits in JAX's float32."""
    records = {name: record_wide(record(*case), *case) for name, case in cases.items()}
    json.dump(records, sys.stdout, separators=(",", ":"))
