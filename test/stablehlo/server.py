"""Runs modules of StableHLO text on simulated CPU devices, as jaxEngine.ts asks for on standard input.

A message is four bytes with the length of a JSON header, the header, and as many bytes of elements as it says.
"""

import json
import os
import sys

# Programs run once, so compiling them quickly counts for more than running them quickly.
os.environ["XLA_FLAGS"] = (
    f"--xla_force_host_platform_device_count={sys.argv[1]} --xla_llvm_disable_expensive_passes=true"
    " --xla_backend_optimization_level=0"
)
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_ENABLE_X64"] = "1"

import jax
import ml_dtypes
import numpy as np
from jax._src import compiler, xla_bridge
from jaxlib import _jax

dtypes = {
    "float32": np.float32,
    "float64": np.float64,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "bool": np.bool_,
}
backend = xla_bridge.get_backend("cpu")
devices = backend.local_devices()
arrays, programs = {}, {}
source, target = sys.stdin.buffer, sys.stdout.buffer


def upload(request, elements):
    value = np.frombuffer(elements, dtypes[request["dtype"]]).reshape(request["shape"])
    arrays[request["array"]] = jax.device_put(value, devices[request["device"]])


def compile_module(request, _):
    chosen = request["devices"]
    options = compiler.get_compile_options(
        num_replicas=len(chosen), num_partitions=1, device_assignment=np.array(chosen).reshape(-1, 1)
    )
    places = _jax.DeviceList(tuple(devices[d] for d in chosen))
    mesh = jax.sharding.Mesh(np.array([devices[d] for d in chosen]), ("replica",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    programs[request["program"]] = backend.compile_and_load(request["text"], places, options), everywhere


def execute(request, _):
    replicas = request["inputs"]
    program, everywhere = programs[request["program"]]
    inputs = []
    for i in range(len(replicas[0])):
        # Every replica has its own block: for jax, copies of one array that happen to differ.
        blocks = [arrays[row[i]] for row in replicas]
        inputs.append(jax.make_array_from_single_device_arrays(blocks[0].shape, everywhere, blocks))
    results = program.execute_sharded(inputs)
    for o, row in enumerate(results.disassemble_into_single_device_arrays()):
        for position, array in enumerate(row):
            arrays[request["outputs"][position][o]] = array.block_until_ready()


def download(request, _):
    return np.ascontiguousarray(np.asarray(arrays[request["array"]])).tobytes()


def copy(request, _):
    arrays[request["to"]] = jax.device_put(arrays[request["array"]], devices[request["device"]])


def destroy(request, _):
    arrays.pop(request["array"], None)


def unload(request, _):
    programs.pop(request["program"], None)


commands = {
    "upload": upload,
    "compile": compile_module,
    "execute": execute,
    "download": download,
    "copy": copy,
    "destroy": destroy,
    "unload": unload,
}

while True:
    head = source.read(4)
    if len(head) < 4:
        break
    request = json.loads(source.read(int.from_bytes(head, "little")))
    elements = source.read(request.get("bytes", 0))
    answer, payload = {}, b""
    try:
        payload = commands[request["command"]](request, elements) or b""
        answer = {"bytes": len(payload)}
    except Exception as error:
        answer = {"bytes": 0, "error": f"{type(error).__name__}: {error}"}
    text = json.dumps(answer).encode()
    try:
        target.write(len(text).to_bytes(4, "little") + text + payload)
        target.flush()
    except BrokenPipeError:
        os._exit(0)  # the other side has ended
