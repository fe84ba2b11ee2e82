"""Writes linalg.json: linear algebra by JAX.

    python test/jax/linalg.py > test/jax/linalg.json
"""

import jax.numpy as jnp
import jax.scipy.linalg as scipy
import numpy as np
from jax import lax
from jax.lax import linalg as laxlinalg

from cases import ramp, write


def mixed(*shape):
    """Values of full rank: those of `ramp` make matrices of rank 2."""
    count = int(np.prod(shape))
    return jnp.asarray(np.sin(np.arange(count) ** 2 * 0.37 + 0.2).reshape(shape), jnp.float32)


square = ramp(2, 4, 4, step=1.3) + jnp.eye(4) * 0.5
odd = ramp(5, 5, step=2.3) + jnp.eye(5)
positive = jnp.einsum("bij,bkj->bik", square, square) + jnp.eye(4)
tall = mixed(6, 3)
wide = mixed(3, 5)
right = ramp(2, 4, 3, step=0.4)
symmetric = odd + odd.T
linalg = jnp.linalg


def solve(**options):
    return lambda a, b: laxlinalg.triangular_solve(a, b, **options)


def squares(*xs):
    """What does not depend on the signs of vectors."""
    return tuple(x * x for x in xs)


def svd(x, **options):
    u, s, v = linalg.svd(x, full_matrices=False, **options)
    return (s, *squares(u, v), u[:, :1] * v[:1])


write({
    "cholesky": (linalg.cholesky, (positive,)),
    "cholesky upper": (lambda x: linalg.cholesky(x, upper=True), (positive[0],)),
    "cholesky one triangle": (lambda x: laxlinalg.cholesky(x, symmetrize_input=False), (jnp.tril(positive),), False),
    "cholesky not positive": (linalg.cholesky, (jnp.array([[1.0, 2.0], [2.0, 1.0]]),), False),
    "triangularSolve": (solve(left_side=True, lower=True), (square + 2 * jnp.eye(4), right)),
    "triangularSolve upper": (solve(left_side=True, lower=False), (square + 2 * jnp.eye(4), right)),
    "triangularSolve transposed": (solve(left_side=True, lower=True, transpose_a=True), (square + 2 * jnp.eye(4), right)),
    "triangularSolve right": (solve(left_side=False, lower=True), (square + 2 * jnp.eye(4), jnp.swapaxes(right, 1, 2))),
    "triangularSolve right transposed": (solve(lower=False, transpose_a=True), (square + 2 * jnp.eye(4), jnp.swapaxes(right, 1, 2))),
    "triangularSolve unit": (solve(left_side=True, lower=True, unit_diagonal=True), (square, right)),
    "solveTriangular": (lambda a, b: scipy.solve_triangular(a, b, trans=1), (odd + 2 * jnp.eye(5), ramp(5))),
    "choSolve": (lambda a, b: scipy.cho_solve((a, True), b), (linalg.cholesky(positive[0]), ramp(4, 2))),
    "lu": (lambda x: laxlinalg.lu(x), (square,)),
    "lu tall": (lambda x: laxlinalg.lu(x), (tall,)),
    "lu wide": (lambda x: laxlinalg.lu(x), (wide,)),
    "qr": (lambda x: linalg.qr(x), (square,)),
    "qr tall": (lambda x: linalg.qr(x), (tall,)),
    "qr wide": (lambda x: linalg.qr(x), (wide,), False),
    "qr complete": (lambda x: linalg.qr(x, mode="complete")[1], (tall,), False),
    "eigh": (lambda x: (lambda r: (r[0], *squares(r[1])))(linalg.eigh(x)), (symmetric,)),
    "eigh batch": (lambda x: (lambda r: (r[0], *squares(r[1])))(linalg.eigh(x)), (positive,)),
    "eigh upper": (lambda x: linalg.eigh(x, UPLO="U", symmetrize_input=False)[0], (jnp.triu(symmetric),), False),
    "eigvalsh": (linalg.eigvalsh, (symmetric,)),
    "svd": (svd, (square[0],)),
    "svd tall": (svd, (tall,)),
    "svd wide": (svd, (wide,)),
    "svdvals": (linalg.svdvals, (square,)),
    "svd low rank": (linalg.svdvals, (jnp.outer(ramp(4), ramp(5)),), False),
    "solve": (linalg.solve, (square, right)),
    "solve vector": (linalg.solve, (odd, ramp(5))),
    "solve broadcast": (linalg.solve, (square, ramp(4, 2))),
    "inv": (linalg.inv, (square,)),
    "det": (linalg.det, (square,)),
    "det small": (lambda x: (linalg.det(x[:1, :1]), linalg.det(x[:2, :2]), linalg.det(x[:3, :3])), (odd,)),
    "slogdet": (lambda x: linalg.slogdet(x), (square,)),
    "slogdet singular": (lambda x: linalg.slogdet(x), (jnp.ones((3, 3)),), False),
    "pinv": (linalg.pinv, (tall,)),
    "pinv low rank": (linalg.pinv, (jnp.outer(ramp(4), ramp(5)),), False),
    "lstsq": (lambda a, b: linalg.lstsq(a, b), (tall, ramp(6, 2)), False),
    "lstsq vector": (lambda a, b: linalg.lstsq(a, b)[0], (tall, ramp(6))),
    "matrixRank": (lambda x, y: (linalg.matrix_rank(x), linalg.matrix_rank(y), linalg.matrix_rank(y, 1e3)), (jnp.outer(ramp(4), ramp(5)), square)),
    "cond": (lambda x: (linalg.cond(x), linalg.cond(x, -2), linalg.cond(x, 1), linalg.cond(x, "fro")), (odd,)),
    "norms": (lambda x: (linalg.norm(x, 2), linalg.norm(x, -2), linalg.norm(x, "nuc"), linalg.norm(x, "fro")), (tall,)),
    "matrixNorm": (lambda x: (linalg.matrix_norm(x), linalg.matrix_norm(x, ord="nuc", keepdims=True)), (square,)),
    "vectorNorm": (lambda x: (linalg.vector_norm(x), linalg.vector_norm(x, axis=(0, 2), ord=3), linalg.vector_norm(x, axis=1, keepdims=True, ord=1)), (square,)),
    "matrixPower": (lambda x: (linalg.matrix_power(x, 5), linalg.matrix_power(x, -2)), (odd,)),
    "multiDot": (lambda a, b, c: linalg.multi_dot([a, b, c]), (ramp(6), tall, wide)),
    "expm": (scipy.expm, (square,)),
    "expm large": (scipy.expm, (odd * 3,)),
    "tensorsolve": (linalg.tensorsolve, (mixed(2, 3, 6), ramp(2, 3))),
    "tensorinv": (lambda x: linalg.tensorinv(x, 2), (mixed(2, 3, 6),)),
}, within=1e-4, wide={
    # Of its eigenvalues two are 0.02 apart: float32 keeps three digits of the derivative there.
    "eigh batch",
}, by_precision={"matrixRank", "pinv low rank"})
