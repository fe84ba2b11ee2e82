"""Writes optimizers.json: parameters after steps of optax's optimisers, values of its schedules, and its losses with
their gradients.

    python test/jax/optimizers.py > test/jax/optimizers.json
"""

import functools
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

NUM_STEPS = 6


def wave(shape, phase):
    return jnp.sin(jnp.arange(int(np.prod(shape)), dtype=jnp.float32) * 0.7 + phase).reshape(shape)


def start():
    return {"bias": wave((4,), 0.3), "w": wave((3, 4), 1.0)}


def grads_of(i):
    return {"bias": wave((4,), i * 1.3) / (i + 1), "w": wave((3, 4), i * 0.9) * (-1) ** i}


def numbers(values):
    return [float(x) for leaf in jax.tree.leaves(values) for x in np.asarray(leaf, np.float32).ravel()]


def train(optimizer, lookahead=False):
    params = start()
    if lookahead:
        params = optax.LookaheadParams(fast=params, slow=params)
    state = optimizer.init(params)
    for i in range(NUM_STEPS):
        updates, state = optimizer.update(grads_of(i), state, params)
        params = optax.apply_updates(params, updates)
    return numbers(params)


def rising(count):
    return 0.01 * (count + 1)


labels = {"bias": "b", "w": "w"}
optimizers = {
    "rmsprop": optax.rmsprop(0.05),
    "rmsprop centered": optax.rmsprop(0.05, decay=0.8, eps=1e-3, centered=True, momentum=0.9, nesterov=True, initial_scale=1.0),
    "rmsprop corrected": optax.rmsprop(0.05, eps_in_sqrt=False, bias_correction=True, momentum=0.5),
    "adagrad": optax.adagrad(0.1),
    "adadelta": optax.adadelta(0.5, rho=0.8, weight_decay=0.01),
    "adafactor": optax.adafactor(0.1, min_dim_size_to_factor=2),
    "adafactor whole": optax.adafactor(0.1, momentum=0.9, weight_decay_rate=1e-3, clipping_threshold=None),
    "amsgrad": optax.amsgrad(0.05),
    "adamax": optax.adamax(0.05),
    "adamaxw": optax.adamaxw(0.05, weight_decay=0.1),
    "nadam": optax.nadam(0.05),
    "nadamw": optax.nadamw(0.05, weight_decay=0.1),
    "adabelief": optax.adabelief(0.05),
    "radam": optax.radam(0.05),
    "radam early": optax.radam(0.05, b2=0.9, threshold=4.5),
    "yogi": optax.yogi(0.05),
    "adan": optax.adan(0.05, weight_decay=0.1),
    "lamb": optax.lamb(0.05, weight_decay=0.1),
    "lars": optax.lars(0.5, weight_decay=0.1, trust_coefficient=0.01),
    "fromage": optax.fromage(0.05),
    "fromage rising": optax.fromage(rising),
    "novograd": optax.novograd(0.05, weight_decay=0.1),
    "sign sgd": optax.sign_sgd(0.05),
    "signum": optax.signum(0.05),
    "noisy sgd": optax.noisy_sgd(0.05, key=jax.random.key(3)),
    "optimistic": optax.optimistic_gradient_descent(0.05, 1.0, 0.5),
    "optimistic adam": optax.optimistic_adam_v2(0.05),
    "rprop": optax.rprop(0.05),
    "muon": optax.contrib.muon(0.05, weight_decay=0.1),
    "muon rms": optax.contrib.muon(0.05, consistent_rms=0.2, adaptive=True, nesterov=False),
    "lbfgs": optax.lbfgs(0.1, memory_size=3, linesearch=None),
    "sm3": optax.sm3(0.05),
    "sm3 decaying": optax.chain(optax.scale_by_sm3(0.8, 0.9, 1e-3), optax.scale(-0.05)),
    "ema": optax.chain(optax.ema(0.9), optax.scale(-0.1)),
    "centralize": optax.chain(optax.centralize(), optax.sgd(0.1)),
    "clip": optax.chain(optax.clip(0.5), optax.sgd(0.1)),
    "clip by block rms": optax.chain(optax.clip_by_block_rms(0.3), optax.sgd(0.1)),
    "adaptive clip": optax.chain(optax.adaptive_grad_clip(0.1), optax.sgd(0.1)),
    "block norm": optax.chain(optax.scale_by_param_block_norm(), optax.sgd(0.1)),
    "nonnegative": optax.chain(optax.sgd(0.5), optax.keep_params_nonnegative()),
    "apply every": optax.chain(optax.apply_every(2), optax.sgd(0.1)),
    "partition": optax.partition({"b": optax.set_to_zero(), "w": optax.adam(0.05)}, labels),
    "inject": optax.inject_hyperparams(optax.adamw)(learning_rate=rising, weight_decay=0.1),
    "distance over gradients": optax.chain(optax.scale_by_distance_over_gradients(0.1), optax.scale(-1.0)),
    "distance options": optax.scale_by_distance_over_gradients(0.01, 1e-3, jnp.bfloat16, -1.0),
    "selective": optax.selective_transform(optax.adam(0.05), freeze_mask={"bias": True, "w": False}),
    "skip large": optax.MultiSteps(
        optax.sgd(0.1), 2, should_skip_update_fn=functools.partial(optax.skip_large_updates, max_squared_norm=6.9)
    ),
    "decay by schedule": optax.chain(optax.add_decayed_weights(rising), optax.sgd(0.1)),
}

schedules = {
    "polynomial": optax.polynomial_schedule(1.0, 0.1, 2, 6, 2),
    "exponential": optax.exponential_decay(1.0, 3, 0.5, 1, False, 0.2),
    "staircase": optax.exponential_decay(1.0, 3, 0.5, staircase=True),
    "piecewise constant": optax.piecewise_constant_schedule(1.0, {2: 0.5, 5: 0.1}),
    "piecewise linear": optax.piecewise_interpolate_schedule("linear", 1.0, {2: 0.5, 6: 3.0}),
    "piecewise cosine": optax.piecewise_interpolate_schedule("cosine", 1.0, {2: 0.5, 6: 3.0}),
    "linear one cycle": optax.linear_onecycle_schedule(10, 2.0),
    "cosine one cycle": optax.cosine_onecycle_schedule(10, 2.0),
    "warm-up cosine": optax.warmup_cosine_decay_schedule(0.1, 1.0, 3, 9, 0.2, exponent=2.0),
    "warm-up exponential": optax.warmup_exponential_decay_schedule(0.0, 1.0, 3, 2, 0.7),
    "sgdr": optax.sgdr_schedule(
        [
            dict(init_value=0.0, peak_value=1.0, warmup_steps=1, decay_steps=4),
            dict(init_value=0.1, peak_value=0.5, warmup_steps=2, decay_steps=6, end_value=0.05),
        ]
    ),
}

x = wave((3, 4), 0.2) * 2
y = wave((3, 4), 1.7)
classes = jnp.array([1, 3, 0])
probs = jax.nn.softmax(y)
bits = (y > 0).astype(jnp.float32)
mask = wave((3, 4), 0.9) > -0.6
signs = jnp.sign(y)
ctc_paddings = jnp.array([[0, 0, 0, 0, 0], [0, 0, 0, 0, 1.0]])
ctc_labels = jnp.array([[1, 1, 2], [2, 3, 0]])
ctc_label_paddings = jnp.array([[0, 0, 0.0], [0, 0, 1.0]])
ctc_logits = lambda v: jnp.concatenate([v, v[:2] * 0.5 + 0.1, v[:1], v, v[1:2] * 1.5]).reshape(2, 5, 4)
# Logarithms of what is impossible have the size of log_epsilon, and few digits.
reachable = lambda logs: jnp.where(logs > -1e4, logs, 0)
losses = {
    "squaredError": lambda v: optax.squared_error(v, y),
    "l2Loss": lambda v: optax.l2_loss(v, y),
    "huberLoss": lambda v: optax.huber_loss(v, y, delta=0.7),
    "logCosh": lambda v: optax.log_cosh(v, y),
    "cosineSimilarity": lambda v: optax.cosine_similarity(v, y),
    "cosineDistance": lambda v: optax.cosine_distance(v, y, epsilon=1e-3, axis=0),
    "sigmoidBinaryCrossEntropy": lambda v: optax.sigmoid_binary_cross_entropy(v, bits),
    "sigmoidFocalLoss": lambda v: optax.sigmoid_focal_loss(v, bits, alpha=0.3),
    "hingeLoss": lambda v: optax.hinge_loss(v, signs),
    "perceptronLoss": lambda v: optax.losses.perceptron_loss(v, signs),
    "multiclassHingeLoss": lambda v: optax.losses.multiclass_hinge_loss(v, classes),
    "multiclassPerceptronLoss": lambda v: optax.losses.multiclass_perceptron_loss(v, classes),
    "softmaxCrossEntropy": lambda v: optax.softmax_cross_entropy(v, probs),
    "softmaxCrossEntropy where": lambda v: optax.softmax_cross_entropy(v, probs, where=mask),
    "safeSoftmaxCrossEntropy": lambda v: optax.safe_softmax_cross_entropy(v, probs * (probs > 0.2)),
    "integerLabels": lambda v: optax.softmax_cross_entropy_with_integer_labels(v, classes),
    "integerLabels dim 0": lambda v: optax.softmax_cross_entropy_with_integer_labels(v, jnp.array([0, 2, 1, 1]), axis=0),
    "integerLabels two dims": lambda v: optax.softmax_cross_entropy_with_integer_labels(
        v.reshape(2, 3, 2), jnp.array([4, 1]), axis=(1, 2)
    ),
    "polyLossCrossEntropy": lambda v: optax.losses.poly_loss_cross_entropy(v, probs, epsilon=1.5),
    "klDivergence": lambda v: optax.kl_divergence(v, probs * (probs > 0.2)),
    "klDivergenceWithLogTargets": lambda v: optax.losses.kl_divergence_with_log_targets(v, y),
    "generalizedKlDivergence": lambda v: optax.losses.generalized_kl_divergence(v, probs),
    "smoothLabels": lambda v: optax.smooth_labels(v, 0.1),
    "tripletMarginLoss": lambda v: optax.losses.triplet_margin_loss(v, y, y * 0.5 + 0.1),
    "ntxent": lambda v: optax.losses.ntxent(v, jnp.array([0, 1, 0]), 0.5),
    "ctcLoss": lambda v: optax.ctc_loss(ctc_logits(v), ctc_paddings, ctc_labels, ctc_label_paddings),
    "ctcLossWithForwardProbs phi": lambda v: reachable(optax.ctc_loss_with_forward_probs(ctc_logits(v), ctc_paddings, ctc_labels, ctc_label_paddings)[1]),
    "ctcLossWithForwardProbs emit": lambda v: reachable(optax.ctc_loss_with_forward_probs(ctc_logits(v), ctc_paddings, ctc_labels, ctc_label_paddings)[2]),
    "perExampleGlobalNormClip": lambda v: optax.per_example_global_norm_clip([v, y], 1.5)[0][0],
    "perExampleLayerNormClip": lambda v: optax.per_example_layer_norm_clip([v, y[:, :1]], 1.5)[0][0],
    "perExampleLayerNormClip by size": lambda v: optax.per_example_layer_norm_clip([v, y[:, :1]], 1.5, uniform=False)[0][0],
    "scaleGradient": lambda v: optax.scale_gradient(v, -0.3) ** 2,
}


def loss_case(fn):
    weights = lambda v: jnp.cos(jnp.arange(v.size, dtype=jnp.float32)).reshape(v.shape)
    value = fn(x)
    return {"value": numbers(value), "gradient": numbers(jax.grad(lambda v: jnp.sum(fn(v) * weights(fn(v))))(x))}


def valley(params):
    """A smooth loss with its smallest value above 0."""
    bias, w = params["bias"], params["w"]
    return jnp.sum(jnp.cosh(w - 0.3)) + jnp.sum((bias - 1) ** 4) + jnp.sum(bias) ** 2 / 2


def search(optimizer, from_state=False):
    """The loss before each step, and the parameters after the last."""
    params, state, values = start(), None, []
    state = optimizer.init(params)
    for _ in range(NUM_STEPS):
        if from_state:
            value, grad = optax.value_and_grad_from_state(valley)(params, state=state)
        else:
            value, grad = jax.value_and_grad(valley)(params)
        updates, state = optimizer.update(grad, state, params, value=value, grad=grad, value_fn=valley)
        params = optax.apply_updates(params, updates)
        values.append(float(value))
    return values + numbers(params)


backtracking, zoom = optax.scale_by_backtracking_linesearch, optax.scale_by_zoom_linesearch
searches = {
    "backtracking": search(optax.chain(optax.sgd(1.0), backtracking(15))),
    "backtracking options": search(
        optax.chain(optax.sgd(2.0), backtracking(15, slope_rtol=0.3, decrease_factor=0.5, increase_factor=3.0, max_learning_rate=2.0, atol=1e-3, rtol=1e-3, store_grad=True)),
        from_state=True,
    ),
    "backtracking too short": search(optax.chain(optax.sgd(100.0), backtracking(3))),
    "zoom": search(optax.chain(optax.sgd(0.02), zoom(20)), from_state=True),
    "zoom options": search(optax.chain(optax.sgd(3.0), zoom(15, max_learning_rate=0.5, tol=1e-3, increase_factor=1.5, slope_rtol=1e-2, curv_rtol=0.1, approx_dec_rtol=None, initial_guess_strategy="one"))),
    "zoom too short": search(optax.chain(optax.sgd(1000.0), zoom(3, curv_rtol=1e-3))),
    "zoom cubic": search(optax.chain(optax.sgd(1.0), zoom(20, curv_rtol=1e-2))),
    "lbfgs": search(optax.lbfgs(), from_state=True),
    "lbfgs backtracking": search(optax.lbfgs(memory_size=2, linesearch=backtracking(10))),
    "polyakSgd": search(optax.polyak_sgd()),
    "polyakSgd options": search(optax.polyak_sgd(max_learning_rate=0.3, scaling=0.5, f_min=20.0, eps=0.1, variant="sps+")),
    "polyakSgd backwards": search(optax.polyak_sgd(max_learning_rate=0.3, f_min=20.0)),
}

def measure(optimizer):
    """What is measured at each step."""
    params, measured = start(), []
    state = optimizer.init(params)
    for i in range(NUM_STEPS):
        _, state = optimizer.update(grads_of(i), state, params)
        measured.append(numbers(state[0]))
    return measured


golden = {
    "optax": optax.__version__,
    "optimizers": {name: train(optimizer) for name, optimizer in optimizers.items()},
    "searches": searches,
    "lookahead": train(optax.lookahead(optax.adam(0.05), 2, 0.5, reset_state=True), lookahead=True),
    "measurements": measure(optax.monitor({"norm": optax.tree.norm, "mean": optax.measure_with_ema(optax.tree.norm, 0.8)})),
    "schedules": {name: [float(s(i)) for i in range(12)] for name, s in schedules.items()},
    "losses": {name: loss_case(fn) for name, fn in losses.items()},
}
json.dump(golden, sys.stdout, indent=1)
