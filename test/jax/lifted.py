"""Writes lifted.json: variables and results of lifted modules, perturbations and masked convolutions by Flax.

    python test/jax/lifted.py > test/jax/lifted.json
"""

import json
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp

from cases import leaf, ramp

x = ramp(2, 3)
image = ramp(1, 5, 2)


class Folded(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.fold_rngs(nn.Dense)(3)(x))


class Deep(nn.Module):
    lengths: tuple

    @nn.compact
    def __call__(self, x):
        return nn.remat_scan(nn.Dense, lengths=self.lengths)(3)(x)


class Perturbed(nn.Module):
    @nn.compact
    def __call__(self, x):
        hidden = self.perturb("hidden", nn.Dense(3)(x))
        return jnp.sum(nn.Dense(2)(hidden) ** 2)


def record(module, x):
    result, variables = module.init_with_output(jax.random.key(0), x)
    gradients = jax.grad(lambda v: jnp.sum(module.apply(v, x) ** 2))(variables)
    return {name: [leaf(a) for a in jax.tree.leaves(tree)] for name, tree in [("variables", variables), ("results", result), ("gradients", gradients)]}


modules = {
    "foldRngs": (Folded(), x),
    "rematScan 2 3": (Deep((2, 3)), x),
    "rematScan 4": (Deep((4,)), x),
    "rematScan 2 2 2": (Deep((2, 2, 2)), x),
    "perturb": (Perturbed(), x),
    "Conv mask": (nn.Conv(4, (3,), mask=jnp.tril(jnp.ones((3, 2, 4)))), image),
    "ConvTranspose mask": (nn.ConvTranspose(4, (3,), mask=jnp.tril(jnp.ones((3, 2, 4)))), image),
    "ConvLocal mask": (nn.ConvLocal(4, (3,), mask=jnp.tril(jnp.ones((5, 6, 4)))), image),
}

json.dump({name: record(*case) for name, case in modules.items()}, sys.stdout, separators=(",", ":"))
