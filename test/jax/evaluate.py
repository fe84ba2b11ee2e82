"""Evaluates the programs of a JSON file with JAX.

Usage: python evaluate.py PROGRAMS.json INPUTS.safetensors OUTPUTS.safetensors ERRORS.json

A program is a list of steps; each is an expression over `a`, `b`, `c` (earlier values, by index) and `p` (its
parameters). The results are `N/value`, and `N/grad/I` for every input that is differentiated: the gradient of the
sum of the value times `N/weight`.
"""

import json
import struct
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
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


def run(program, inputs):
    values = list(inputs)
    for step in program["steps"]:
        operands = dict(zip("abc", [values[i] for i in step["args"]]))
        scope = {"jax": jax, "jnp": jnp, "lax": lax, "axis": axis, "p": step["params"], **operands}
        values.append(eval(step["py"], scope))
    return values[-1]


def evaluate(program, inputs, weight):
    """The value of a program, and its gradients by the inputs that are differentiated."""
    wanted = program["wanted"]

    def loss(*chosen):
        values = list(inputs)
        for i, x in zip(wanted, chosen):
            values[i] = x
        value = run(program, values)
        return (jnp.sum(value * weight) if wanted else 0.0), value

    if not wanted:
        return loss()[1], ()
    argnums = tuple(range(len(wanted)))
    (_, value), grads = jax.value_and_grad(loss, argnums, has_aux=True)(*[inputs[i] for i in wanted])
    return value, grads


def main(programs_path, inputs_path, outputs_path, errors_path):
    with open(programs_path) as file:
        programs = json.load(file)
    arrays = read(inputs_path)
    outputs, errors = {}, {}
    for number, program in enumerate(programs):
        if number % 200 == 199:
            jax.clear_caches()
        inputs = [jnp.asarray(arrays[f"{number}/in/{i}"]) for i in range(program["numInputs"])]
        try:
            value, grads = jax.jit(lambda *xs: evaluate(program, xs, arrays.get(f"{number}/weight")))(*inputs)
            results = {f"{number}/value": np.asarray(value)}
            for i, g in zip(program["wanted"], grads):
                results[f"{number}/grad/{i}"] = np.asarray(g)
            outputs.update(results)
        except Exception as error:  # The comparison reports it with the program.
            errors[str(number)] = f"{type(error).__name__}: {error}"
    write(outputs_path, outputs)
    with open(errors_path, "w") as file:
        json.dump({"jax": jax.__version__, "errors": errors}, file)


main(*sys.argv[1:])
