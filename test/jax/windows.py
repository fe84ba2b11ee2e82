"""Writes windows.json: convolutions and reductions of windows by JAX.

    python test/jax/windows.py > test/jax/windows.json
"""

import jax.numpy as jnp
from jax import lax

from cases import ramp, write

image = ramp(2, 3, 6, 5)
nhwc = ramp(2, 6, 6, 4, step=0.9)
line = ramp(2, 3, 9)
ties = jnp.maximum(ramp(2, 6, 6, 3, step=1.3), 0.0)


def conv(strides, padding, **options):
    return lambda x, w: lax.conv_general_dilated(x, w, strides, padding, **options)


def window(init, fn, size, *rest, **options):
    return lambda x: lax.reduce_window(x, init, fn, size, *rest, **options)


layouts = ("NHWC", "HWIO", "NHWC")
write({
    "conv": (lambda x, w: lax.conv(x, w, (1, 1), "SAME"), (image, ramp(5, 3, 3, 2))),
    "conv valid strided": (lambda x, w: lax.conv(x, w, (2, 3), "VALID"), (image, ramp(5, 3, 3, 2))),
    "conv line": (lambda x, w: lax.conv(x, w, (2,), "SAME"), (line, ramp(4, 3, 4))),
    "conv no space": (conv((), []), (ramp(3, 4), ramp(5, 4))),
    "conv volume": (conv((1, 2, 1), "SAME_LOWER"), (ramp(1, 2, 3, 4, 3), ramp(2, 2, 2, 3, 2))),
    "conv layouts": (conv((1, 1), "SAME", dimension_numbers=layouts), (nhwc, ramp(3, 3, 4, 5))),
    "conv odd layouts": (conv((1, 2), "VALID", dimension_numbers=("CWNH", "WIHO", "HCNW")), (ramp(3, 6, 2, 7), ramp(3, 3, 2, 5))),
    "conv many features": (conv((2, 1), [(1, 1), (0, 2)], dimension_numbers=layouts), (ramp(1, 5, 4, 33), ramp(3, 2, 33, 2))),
    "conv negative padding": (conv((1, 1), [(-1, 2), (1, -2)]), (image, ramp(2, 3, 3, 2))),
    "conv window dilation": (conv((1, 1), [(2, 1), (0, 3)], rhs_dilation=(2, 3)), (image, ramp(2, 3, 3, 2))),
    "conv operand dilation": (conv((1, 2), [(2, 1), (1, 3)], lhs_dilation=(2, 3), rhs_dilation=(1, 2)), (image, ramp(2, 3, 3, 2))),
    "conv dilation negative padding": (conv((2, 1), [(-2, 1), (1, -3)], lhs_dilation=(3, 2)), (image, ramp(2, 3, 3, 2))),
    "conv groups": (conv((1, 1), "SAME", feature_group_count=2, dimension_numbers=layouts), (nhwc, ramp(3, 3, 2, 6))),
    "conv depthwise": (conv((2, 1), "SAME", feature_group_count=4, dimension_numbers=layouts), (nhwc, ramp(3, 3, 1, 8))),
    "conv groups many features": (conv((1,), "SAME", feature_group_count=2), (ramp(1, 66, 4), ramp(4, 33, 2))),
    "conv batch groups": (conv((1, 1), "VALID", batch_group_count=2), (ramp(4, 3, 5, 4), ramp(6, 3, 3, 2))),
    "conv tiles": (conv((2, 3), "VALID", dimension_numbers=layouts), (nhwc, ramp(2, 3, 4, 5))),
    "conv tiles in groups": (conv((2, 3), [(1, 0), (0, 1)], feature_group_count=2, dimension_numbers=layouts), (nhwc, ramp(2, 3, 2, 4))),
    "conv pointwise": (conv((1, 1), "VALID", dimension_numbers=layouts), (nhwc, ramp(1, 1, 4, 5))),
    "conv pointwise strided": (conv((2, 3), "VALID", dimension_numbers=layouts), (nhwc, ramp(1, 1, 4, 5))),
    "conv outside": (conv((1, 1), "VALID"), (ramp(1, 2, 2, 2), ramp(1, 2, 3, 2))),
    "convWithGeneralPadding": (lambda x, w: lax.conv_with_general_padding(x, w, (1, 2), [(1, 0), (2, 2)], (2, 1), (1, 2)), (image, ramp(2, 3, 3, 2))),
    "convTranspose same": (lambda x, w: lax.conv_transpose(x, w, (2, 3), "SAME"), (nhwc, ramp(3, 2, 4, 5))),
    "convTranspose valid": (lambda x, w: lax.conv_transpose(x, w, (2, 1), "VALID", rhs_dilation=(1, 2)), (nhwc, ramp(3, 2, 4, 5))),
    "convTranspose pairs": (lambda x, w: lax.conv_transpose(x, w, (2,), [(1, 2)]), (ramp(2, 5, 3), ramp(3, 3, 2))),
    "convTranspose consistent": (lambda x, w: lax.conv_transpose(x, w, (2,), [(1, 0)], use_consistent_padding=True), (ramp(2, 5, 3), ramp(3, 3, 2))),
    "convTranspose kernel": (lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME", transpose_kernel=True), (nhwc, ramp(3, 3, 2, 4))),
    "convGeneralDilatedPatches": (lambda x: lax.conv_general_dilated_patches(x, (3, 2), (2, 1), "SAME", rhs_dilation=(1, 2)), (image,)),
    "convGeneralDilatedPatches layouts": (lambda x: lax.conv_general_dilated_patches(x, (2, 3), (1, 1), "VALID", dimension_numbers=layouts), (nhwc,)),
    "convGeneralDilatedLocal": (lambda x, w: lax.conv_general_dilated_local(x, w, (2, 2), "VALID", (3, 2), dimension_numbers=layouts), (nhwc, ramp(2, 3, 24, 2))),
    "reduceWindow sum": (window(0.0, lax.add, (1, 2, 3, 1), (1, 2, 2, 1), "SAME"), (nhwc,)),
    "reduceWindow max": (window(-jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), (nhwc,)),
    "reduceWindow max ties": (window(-jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"), (ties,)),
    "reduceWindow min": (window(jnp.inf, lax.min, (1, 3, 2, 1), (1, 1, 2, 1), [(0, 0), (2, 1), (0, 1), (0, 0)]), (ties,)),
    "reduceWindow product": (window(1.0, lax.mul, (2, 3), (1, 2), "VALID"), (ramp(4, 7, start=1),), False),
    "reduceWindow dilated": (window(0.0, lax.add, (2, 3), (1, 2), [(1, 0), (2, 3)], (2, 3), (3, 2)), (ramp(5, 6),)),
    "reduceWindow max dilated": (window(-jnp.inf, lax.max, (2, 3), (1, 2), [(0, 0), (1, 0)], None, (3, 2)), (ramp(6, 9),), False),
    "reduceWindow long sum": (window(0.0, lax.add, (13,), (3,), [(5, 2)]), (ramp(31),)),
    "reduceWindow long max": (window(-jnp.inf, lax.max, (11,), (2,), "SAME"), (jnp.maximum(ramp(31), 0.3),)),
    "reduceWindow long dilated": (window(0.0, lax.add, (9,), (2,), [(0, 4)], None, (3,)), (ramp(31),)),
    "reduceWindow start": (window(2.0, lax.add, (2, 2), (1, 1), "VALID"), (ramp(3, 4),), False),
    "reduceWindow integers": (window(jnp.int32(-2147483648), lax.max, (2,), (1,), "SAME"), (jnp.array([3, -1, 4, 1, -5], jnp.int32),)),
    "reduceWindow function": (window(0.0, lambda a, b: a + b + a * b, (2, 3), (1, 1), "VALID"), (ramp(3, 5),), False),
    "reduceWindow tree": (
        lambda x, y: lax.reduce_window((x, y), (-jnp.inf, 0.0), lambda a, b: (lax.select(a[0] >= b[0], a[0], b[0]), lax.select(a[0] >= b[0], a[1], b[1])), (3,), (2,), "VALID"),
        (ramp(9), ramp(9, step=2.1)),
        False,
    ),
})
