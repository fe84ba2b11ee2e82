"""Counts the matrix products in gradients of rematerialised functions, as JAX traces them.

Usage: python rematCounts.py

Prints, for each function of src/transforms/derivatives/remat.test.ts and each policy, the products of the whole gradient
program (every body counted once), which the test holds as literals.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.interpreters import partial_eval as pe

P = jax.checkpoint_policies
POLICIES = {
    "nothing": P.nothing_saveable,
    "everything": P.everything_saveable,
    "dots": P.dots_saveable,
    "dotsWithNoBatchDims": P.dots_with_no_batch_dims_saveable,
    "names": P.save_only_these_names("hidden"),
    "otherNames": P.save_only_these_names("other"),
    "exceptNames": P.save_any_names_but_these("hidden"),
}


def count(jaxpr):
    total = 0
    for eqn in jaxpr.eqns:
        total += eqn.primitive.name == "dot_general"
        for value in eqn.params.values():
            for inner in value if isinstance(value, (tuple, list)) else [value]:
                if isinstance(inner, ClosedJaxpr):
                    total += count(inner.jaxpr)
                elif isinstance(inner, Jaxpr):
                    total += count(inner)
    return total


def layer(w, c):
    hidden = jnp.sin(checkpoint_name(c @ w, "hidden"))
    blocks = hidden.reshape(2, 1, 2)
    scores = jnp.einsum("bij,bkj->bik", blocks, jnp.cos(blocks))
    result = checkpoint_name(hidden @ w, "result")
    return jnp.cos(result) * jnp.sin(jnp.sum(scores))


def loop(w, x):
    return lax.scan(lambda c, _: (layer(w, c), None), x, None, length=3)[0]


def stacked(w, x):
    ys = lax.scan(lambda c, row: (jnp.sin(c @ w), jnp.cos(row @ w)), x, jnp.stack([x, x]))[1]
    return jnp.sin(ys)


def invariant(w, x):
    return lax.scan(lambda c, _: (jnp.sin(c @ jnp.sin(w @ w)), None), x, None, length=3)[0]


def choice(w, x):
    index = (jnp.sum(x) > 0).astype(jnp.int32)
    return lax.switch(index, [lambda c: layer(w, c), lambda c: jnp.sin(c @ w)], x)


def loop_in_loop(w, x):
    return lax.scan(lambda c, _: (jnp.sin(loop(w, c) @ w), None), x, None, length=2)[0]


def choice_in_loop(w, x):
    return lax.scan(lambda c, _: (choice(w, c), None), x, None, length=2)[0]


def loop_in_choice(w, x):
    return lax.switch((jnp.sum(x) > 0).astype(jnp.int32), [lambda c: loop(w, c), lambda c: c * 2], x)


def remat_in_loop(w, x):
    inner = jax.checkpoint(layer, policy=P.nothing_saveable)
    return lax.scan(lambda c, _: (inner(w, c), None), x, None, length=3)[0]


def dots_in_loop(w, x):
    inner = jax.checkpoint(layer, policy=P.dots_saveable)
    return lax.scan(lambda c, _: (inner(w, c), None), x, None, length=3)[0]


@jax.custom_vjp
def ruled(w, x):
    return jnp.sin(x @ w)


def ruled_forward(w, x):
    hidden = checkpoint_name(x @ w, "hidden")
    return jnp.sin(hidden), (hidden, w, x)


def ruled_backward(residuals, ct):
    hidden, w, x = residuals
    inner = ct * jnp.cos(hidden)
    return x.T @ inner, inner @ w.T


ruled.defvjp(ruled_forward, ruled_backward)


def rule(w, x):
    return jnp.sin(ruled(w, x))


def rule_in_loop(w, x):
    return lax.scan(lambda c, _: (ruled(w, c), None), x, None, length=3)[0]


FUNCTIONS = {
    "layer": layer,
    "loop": loop,
    "stacked": stacked,
    "invariant": invariant,
    "choice": choice,
    "loopInLoop": loop_in_loop,
    "choiceInLoop": choice_in_loop,
    "loopInChoice": loop_in_choice,
    "rematInLoop": remat_in_loop,
    "dotsInLoop": dots_in_loop,
    "rule": rule,
    "ruleInLoop": rule_in_loop,
}

w = jnp.ones((2, 2))
for name, function in FUNCTIONS.items():
    counts = []
    for policy in POLICIES.values():
        kept = jax.checkpoint(function, policy=policy)
        gradient = jax.grad(lambda w, x: jnp.sum(jnp.sin(kept(w, x))), argnums=(0, 1))
        jaxpr = jax.make_jaxpr(gradient)(w, w).jaxpr
        counts.append(count(pe.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0]))
    print(f"{name}: {{ " + ", ".join(f"{p}: {n}" for p, n in zip(POLICIES, counts)) + " },")
