"""The DPO loss of TRL's definition (sigmoid, with label smoothing), its gradients, and log-probabilities, in JAX."""
import json, pathlib
import jax, jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
key = jax.random.key(0)
pairs, length, vocabulary = 6, 5, 7
k1, k2, k3, k4 = jax.random.split(key, 4)
logits = jax.random.normal(k1, (2 * pairs, length, vocabulary)) * 2
targets = jax.random.randint(k2, (2 * pairs, length), 0, vocabulary)
mask = (jax.random.uniform(k3, (2 * pairs, length)) < 0.7).astype(float)
reference = jax.random.normal(k4, (pairs, 2)) * 3 - 8

def scores(logits):
    each = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)[..., 0]
    return jnp.sum(each * mask, 1).reshape(pairs, 2)

def loss(logits, beta, smoothing):
    own = scores(logits)
    margin = (own[:, 0] - own[:, 1]) - (reference[:, 0] - reference[:, 1])
    return jnp.mean(-jax.nn.log_sigmoid(beta * margin) * (1 - smoothing) - jax.nn.log_sigmoid(-beta * margin) * smoothing)

cases = []
for beta, smoothing in [(0.1, 0.0), (0.5, 0.2), (2.0, 0.0)]:
    value, grad = jax.value_and_grad(loss)(logits, beta, smoothing)
    cases.append({"beta": beta, "labelSmoothing": smoothing, "loss": float(value), "gradient": grad.tolist()})
out = {"logits": logits.tolist(), "targets": targets.tolist(), "mask": mask.tolist(), "reference": reference.tolist(),
       "scores": scores(logits).tolist(), "cases": cases}
path = pathlib.Path(__file__).parent / "fixtures" / "dpo.json"
path.write_text(json.dumps(out))
