"""Writes names.json: the public names of JAX's and optax's modules, which docs/jax.md compares with ours.

    python scripts/coverage/names.py > scripts/coverage/names.json
"""

import importlib
import json
import sys
import types

# True for functions alone, where a module also shows classes, primitives and modules.
MODULES = {
    "jax.numpy": False,
    "jax.numpy.linalg": True,
    "jax.numpy.fft": True,
    "jax.lax": True,
    "jax.lax.linalg": True,
    "jax.random": True,
    "jax.tree": True,
    "jax.nn": True,
    "jax.nn.initializers": True,
    "jax.scipy.special": True,
    "jax.scipy.stats": True,
    "jax.scipy.linalg": True,
    "jax.scipy.signal": True,
    "jax.scipy.integrate": True,
    "jax.scipy.ndimage": True,
    "jax.scipy.cluster.vq": True,
    "jax.scipy.fft": True,
    "jax.scipy.interpolate": False,
    "jax.scipy.optimize": True,
    "jax.scipy.sparse.linalg": True,
    "jax.scipy.spatial.transform": False,
    "flax.linen": False,
    "optax": True,
}


# Classes that programs call as functions.
CLASSES = {"gaussian_kde", "MultiSteps", "PRNGKey"}


def names(module, functions):
    """The public names of a module, of its modules (distributions have one each) those of the functions."""
    for name in sorted(dir(module), key=str.lower):
        value = getattr(module, name)
        if name.startswith("_") or name.endswith("_p"):
            continue
        if isinstance(value, types.ModuleType):
            if module.__name__ == "jax.scipy.stats":
                yield from (f"{name}.{method}" for method in dir(value) if not method.startswith("_"))
        elif not functions or name in CLASSES or (callable(value) and not isinstance(value, type) and name[0].islower()):
            yield name


load = importlib.import_module
versions = {name: load(name).__version__ for name in ("flax", "jax", "optax")}
lists = {name: " ".join(names(load(name), functions)) for name, functions in MODULES.items()}
json.dump({"versions": versions, "names": lists}, sys.stdout, indent=2)
sys.stdout.write("\n")
