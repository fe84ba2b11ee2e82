"""Evaluates the programs of a JSON file with JAX.

Usage: python evaluate.py PROGRAMS.json INPUTS.safetensors OUTPUTS.safetensors ERRORS.json

A program is a list of steps; each is an expression over `a`, `b`, `c` (earlier values, by index) and `p` (its
parameters). The results are `N/value`; `N/grad/I` for every input that is differentiated, the gradient of the sum of the
value times `N/weight`; `N/jvp`, the derivative along `N/tangent/I`; and `N/vmap`, the values of two sets of inputs.
Of every float made of 16-bit floats, `N/wide/...` is the same computed in float32 and rounded once.
"""

import json
import struct
import sys

import jax
import jax.numpy as jnp
import jax.scipy.cluster.vq
import jax.scipy.fft
import jax.scipy.integrate
import jax.scipy.linalg
import jax.scipy.ndimage
import jax.scipy.optimize
import jax.scipy.signal
import jax.scipy.special
import jax.scipy.stats
import ml_dtypes
import numpy as np
import optax
from jax import lax

NAMES = {
    "C64": np.complex64,
    "F32": np.float32,
    "I8": np.int8,
    "I16": np.int16,
    "I32": np.int32,
    "U8": np.uint8,
    "U16": np.uint16,
    "U32": np.uint32,
    "BF16": ml_dtypes.bfloat16,
    "F16": np.float16,
    "BOOL": np.bool_,
}


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            flat = np.frombuffer(body[start:end], NAMES[entry["dtype"]])
            arrays[name] = flat.reshape(entry["shape"])
    return arrays


def write(path, arrays):
    codes = {np.dtype(dtype): code for code, dtype in NAMES.items()}
    header, chunks, offset = {}, [], 0
    for name, array in arrays.items():
        # Weakly typed results may come in any type; the file keeps what JAX made of them.
        data = np.ascontiguousarray(array).tobytes()
        span = [offset, offset + len(data)]
        header[name] = {"dtype": codes[array.dtype], "shape": list(array.shape), "data_offsets": span}
        chunks.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def axis(value):
    return tuple(value) if isinstance(value, list) else value


def array(values, dtype=None):
    """An array of JavaScript numbers, which are float32."""
    made = jnp.array(values, dtype)
    return made.astype(jnp.float32) if dtype is None and made.dtype == jnp.int32 else made


def train(optimizer, params, grads):
    """Three steps of an optimiser, with gradients that depend on the parameters."""
    current = {"w": params}
    state = optimizer.init(current)
    for step in range(1, 4):
        gradient = {"w": current["w"] * 0.3 + grads * step}
        updates, state = optimizer.update(gradient, state, current)
        current = optax.apply_updates(current, updates)
    return current["w"]


NAMES_IN_SCOPE = {"jax": jax, "jnp": jnp, "lax": lax, "optax": optax, "numpy": np, "axis": axis, "array": array, "train": train}


def run(program, inputs):
    values = list(inputs)
    for step in program["steps"]:
        operands = dict(zip("abc", [values[i] for i in step["args"]]))
        values.append(eval(step["py"], {**NAMES_IN_SCOPE, "p": step["params"], **operands}))
    return jnp.asarray(values[-1])


def transforms(program, inputs, weight, tangents):
    """What is computed of a program, by name: its value, its gradients, a derivative forwards, and a batch of two."""
    wanted = program["wanted"]
    argnums = tuple(range(len(wanted)))
    chosen = [inputs[i] for i in wanted]

    def function(*xs):
        values = list(inputs)
        for i, x in zip(wanted, xs):
            values[i] = x
        return run(program, values)

    def gradients():
        found = jax.grad(lambda *xs: jnp.sum(function(*xs) * weight), argnums)(*chosen)
        return {f"grad/{i}": g for i, g in zip(wanted, found)}

    def pair(x):
        return jnp.stack([x, jnp.flip(x)])

    parts = {"value": lambda: {"value": run(program, inputs)}}
    if wanted and program["transform"] == "grad":
        parts["grad"] = gradients
    if wanted and program["transform"] == "jvp":
        parts["jvp"] = lambda: {"jvp": jax.jvp(function, chosen, tangents)[1]}
    if program["transform"] == "vmap":
        parts["vmap"] = lambda: {"vmap": jax.vmap(lambda *xs: run(program, xs))(*[pair(x) for x in inputs])}
    return parts


HALVES = (jnp.bfloat16, jnp.float16)


def rounded_once(compute, inputs, results):
    """The results of 16-bit floats, computed in float32: JAX rounds after each of its ops."""
    floats = {key: value.dtype for key, value in results.items() if jnp.issubdtype(value.dtype, jnp.floating)}
    if not floats or not any(x.dtype in HALVES for x in inputs):
        return {}
    names = list(dict.fromkeys(key.split("/")[0] for key in floats))
    widened = [x.astype(jnp.float32) if x.dtype in HALVES else x for x in inputs]
    try:
        wide = jax.jit(lambda *xs: compute(names, xs))(*widened)
    except Exception:  # A function of 16-bit floats alone.
        return {}
    return {f"wide/{key}": wide[key].astype(dtype) for key, dtype in floats.items()}


def main(programs_path, inputs_path, outputs_path, errors_path):
    with open(programs_path) as file:
        programs = json.load(file)
    arrays = read(inputs_path)
    outputs, errors = {}, {}
    for number, program in enumerate(programs):
        if number % 200 == 199:
            jax.clear_caches()
        inputs = [jnp.asarray(arrays[f"{number}/in/{i}"]) for i in range(program["numInputs"])]
        weight = arrays.get(f"{number}/weight")
        tangents = [jnp.asarray(arrays[f"{number}/tangent/{i}"]) for i in program["wanted"]]

        def compute(names, xs):
            parts = transforms(program, xs, weight, tangents)
            return {key: value for name in names for key, value in parts[name]().items()}

        names = list(transforms(program, inputs, weight, tangents))
        try:
            results = jax.jit(lambda *xs: compute(names, xs))(*inputs)
        except Exception:
            results = {}
            for name in names:  # Which of them fails, the comparison reports with the program.
                try:
                    results.update(jax.jit(lambda *xs: compute([name], xs))(*inputs))
                except Exception as error:
                    errors[f"{number}/{name}"] = f"{type(error).__name__}: {error}"[:300]
        results.update(rounded_once(compute, inputs, results))
        # Derivatives of integers have no type that a file can hold.
        held = {key: value for key, value in results.items() if value.dtype != jax.dtypes.float0}
        outputs.update({f"{number}/{key}": np.asarray(value) for key, value in held.items()})
    write(outputs_path, outputs)
    with open(errors_path, "w") as file:
        json.dump({"jax": jax.__version__, "errors": errors}, file)


main(*sys.argv[1:])
