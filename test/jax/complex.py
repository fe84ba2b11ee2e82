"""Writes complex.json: complex numbers by JAX.

    python test/jax/complex.py > test/jax/complex.json
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cases import complex_ramp, ramp, write

z = complex_ramp(2, 3, scale=1.5)
w = complex_ramp(2, 3, start=2)
small = complex_ramp(2, 3, scale=0.01)
real = ramp(2, 3, start=1)
tall = complex_ramp(3, 4)
wide = complex_ramp(4, 2, start=3)
odd = jnp.asarray([0, 1, -1, 1j, -1j, -2 + 0j, 3 - 4j, 1e-20 + 1e-20j, 1e20 - 2e20j], jnp.complex64)
square = complex_ramp(4, 4) + 2 * jnp.eye(4)
# Matrices of waves of one length have few eigenvalues that are not 0.
rough = lambda *shape: jnp.asarray(np.sin(np.arange(np.prod(shape)) ** 2 * 0.37).reshape(shape), jnp.float32)
rough_complex = lambda *shape: rough(*shape) + 1j * rough(shape[0] + 1, *shape[1:])[1:]
definite = square @ square.conj().T + jnp.diag(jnp.arange(4.0))
one = lambda fn: (fn, (z,))
two = lambda fn: (fn, (z, w))


def body(total, x):
    total = total * x + 1
    return total, jnp.abs(total)


def together(w):
    """Sums of powers of eigenvalues, and of their sizes."""
    return jnp.sum(w, -1), jnp.sum(w**2, -1), jnp.sum(w**3, -1), jnp.sum(jnp.abs(w), -1), jnp.sum(jnp.exp(-w), -1)


def pairs(w, v):
    """What all eigenvectors are together, whatever their order and signs."""
    size = jnp.abs(v) ** 2
    return (size @ w, size @ jnp.abs(w), jnp.einsum("ij,kj,j->ik", v, v.conj(), w), jnp.sum(size, 0) @ jnp.ones(v.shape[-1]))


def eigh(a):
    """What does not depend on the directions of vectors."""
    w, v = jnp.linalg.eigh(a)
    return w, jnp.abs(v), jnp.einsum("ij,kj,j->ik", v, v.conj(), jnp.sin(w))


def svd(a):
    u, s, v = jnp.linalg.svd(a, full_matrices=False)
    return s, jnp.abs(u), jnp.abs(v), jnp.einsum("ij,j,jk->ik", u, jnp.sin(s), v)


def rule():
    """A derivative of its own, in JAX's convention."""

    @jax.custom_vjp
    def f(x):
        return x * x

    f.defvjp(lambda x: (x * x, x), lambda x, ct: (ct * x * (3 - 1j),))
    return f


write({
    "add": two(lambda x, y: (x + y, x - y, -x, x + 2, x * (1 - 2j))),
    "mul": two(lambda x, y: x * y),
    "div": two(lambda x, y: (x / y, x / 3, 2 / x)),
    "with reals": (lambda x, y: (x * y, y / x, jnp.where(y > 0, x, y)), (z, real)),
    "with integers": (lambda x, y: (x * y, y + 1j), (z, jnp.arange(6, dtype=jnp.int32).reshape(2, 3)), False),
    "abs": one(jnp.abs),
    "sign": one(jnp.sign),
    "parts": one(lambda x: (jnp.real(x), jnp.imag(x), jnp.conj(x), jnp.angle(x), lax.complex(jnp.imag(x), jnp.real(x)))),
    "exp": one(lambda x: (jnp.exp(x), jnp.exp2(x))),
    "log": one(lambda x: (jnp.log(x), jnp.log2(x), jnp.log10(x))),
    "near 0": (lambda x: (jnp.expm1(x), jnp.log1p(x), jnp.arcsinh(x), jnp.arctanh(x), jnp.sinh(x)), (small,)),
    "expm1": one(lambda x: (jnp.expm1(x), jnp.log1p(x))),
    "trigonometry": one(lambda x: (jnp.sin(x), jnp.cos(x), jnp.tan(x))),
    "hyperbolic": one(lambda x: (jnp.sinh(x), jnp.cosh(x), jnp.tanh(x))),
    "inverse": one(lambda x: (jnp.arcsin(x), jnp.arccos(x), jnp.arctan(x))),
    # Left of 0 JAX gives the derivative of arccosh the other sign than the function has.
    "inverse hyperbolic": one(lambda x: (jnp.arcsinh(x), jnp.arccosh(x + 2), jnp.arctanh(x))),
    "sqrt": one(lambda x: (jnp.sqrt(x), lax.rsqrt(x))),
    "pow": two(lambda x, y: (x**y, x**3, x**-2, x**0.5, 2.0**x)),
    "other functions": one(lambda x: (jnp.square(x), jnp.reciprocal(x), jnp.sinc(x), lax.logistic(x), jnp.positive(x))),
    "odd numbers": (
        lambda x: (jnp.abs(x), jnp.sign(x), jnp.sqrt(x), jnp.exp(x / 1e19), jnp.tanh(x), x / (1 + 1j), jnp.isfinite(x)),
        (odd,), False),
    "derivatives at odd numbers": (lambda x: (jnp.abs(x), x * jnp.conj(x)), (odd[:7],)),
    "division by odd numbers": (lambda x: ((1 + 2j) / x, 3j / x[1:]), (jnp.asarray([0, 1j, np.inf, 1e-30j], jnp.complex64),), False),
    "reductions": one(lambda x: (jnp.sum(x), jnp.sum(x, 0), jnp.mean(x, 1), jnp.prod(x, 1), jnp.var(x), jnp.std(x, 0))),
    "running": one(lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 1), jnp.diff(x))),
    "masked": one(lambda x: (jnp.sum(x, where=jnp.abs(x) > 1), jnp.mean(x, where=jnp.abs(x) > 1), jnp.var(x, where=jnp.abs(x) > 1))),
    "compare": (lambda x, y: (x == y, x != y, x == x, jnp.isnan(x), jnp.isinf(x), jnp.iscomplex(x + y), jnp.isreal(jnp.real(y) + 0j),
                              jnp.isclose(x, x * (1 + 1e-6)), jnp.any(x), jnp.all(x.astype(bool)), x < y, x >= y), (z, w), False),
    "order": (lambda x, y: (jnp.sort(x, 1), jnp.max(x), jnp.min(x, 0), jnp.maximum(x, y), jnp.minimum(x, y)), (z, w), False),
    "ties": (lambda x: (jnp.sort(x), jnp.max(x), jnp.min(x)), (jnp.asarray([1 + 2j, 1 + 1j, 0 + 5j, 0 - 1j], jnp.complex64),), False),
    "moving": two(lambda x, y: (x.T, x.reshape(3, 2), jnp.flip(x, 1), jnp.roll(x, 1), jnp.pad(x, 1), jnp.concatenate([x, y]), jnp.stack([x, y], 1), x[:, 1:])),
    "indexing": one(lambda x: (jnp.take(x, jnp.array([2, 0]), 1), x.at[0, 1].set(5j), x.at[:, 0].add(1 - 1j), x[jnp.array([1, 0])])),
    "rounding": (lambda x: (jnp.round(x, 1), jnp.rint(x), jnp.nan_to_num(x / 0)), (z,), False),
    "products": (lambda x, y: (x @ y, jnp.dot(x[0], y[:, 0]), jnp.vdot(x[0], y[:, 0]), jnp.einsum("ij,jk->k", x, y), jnp.outer(x[0], y[:, 1]),
                               jnp.tensordot(x, y, 1), jnp.vecdot(x[0], y[:, 0]), jnp.inner(x[0], y[:, 0]), jnp.kron(x, y)), (tall, wide)),
    "signals": (lambda x, y: (jnp.convolve(x, y), jnp.correlate(x, y, "full"), jnp.cov(x)), (complex_ramp(5), complex_ramp(3, start=1))),
    "norms": (lambda x: (jnp.linalg.norm(x), jnp.linalg.norm(x, 1), jnp.linalg.norm(x[0], 3), jnp.linalg.norm(x, jnp.inf), jnp.linalg.norm(x, axis=1)), (z,)),
    "solve": (lambda a, b: jnp.linalg.solve(a, b), (square, wide)),
    "inv": (lambda a: jnp.linalg.inv(a), (square,)),
    "det": (lambda a: (jnp.linalg.det(a), jnp.linalg.det(a[:2, :2]), jnp.linalg.det(a[:3, :3])), (square,)),
    "slogdet": (lambda a: jnp.linalg.slogdet(a), (square,)),
    # Eigenvalues stand in no order: sums of functions of them, which do not know it, are compared.
    "eigvals": (lambda a: together(jnp.linalg.eigvals(a)), (square,)),
    "eigvals of reals": (lambda a: together(jnp.linalg.eigvals(a)), (rough(2, 5, 5),)),
    "eig": (lambda a: pairs(*lax.linalg.eig(a, compute_left_eigenvectors=False, enable_eigvec_derivs=True)), (square,)),
    "eig of reals": (lambda a: pairs(*lax.linalg.eig(a, compute_left_eigenvectors=False, enable_eigvec_derivs=True)), (rough(5, 5),)),
    "cholesky": (lambda a: (jnp.linalg.cholesky(a), jnp.linalg.cholesky(a, upper=True)), (definite,)),
    "cholesky one triangle": (lambda a: lax.linalg.cholesky(a, symmetrize_input=False), (jnp.tril(definite),), False),
    "choSolve": (lambda a, b: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a), True), b), (definite, wide)),
    "qr": (lambda a: jnp.linalg.qr(a), (rough_complex(5, 3),)),
    "qr square": (lambda a: jnp.linalg.qr(a), (jnp.stack([square, rough_complex(4, 4) + 3 * jnp.eye(4)]),)),
    "qr wide": (lambda a: jnp.linalg.qr(a), (rough_complex(3, 5),), False),
    "qr complete": (lambda a: jnp.linalg.qr(a, mode="complete")[1], (rough_complex(5, 3),), False),
    "eigh": (eigh, (square,)),
    "eigh odd": (eigh, (rough_complex(5, 5),)),
    "eigh upper": (lambda a: jnp.linalg.eigh(a, UPLO="U", symmetrize_input=False)[0], (jnp.triu(square),), False),
    "eigvalsh": (jnp.linalg.eigvalsh, (jnp.stack([square, definite]),)),
    "svd": (svd, (rough_complex(4, 4),)),
    "svd tall": (svd, (rough_complex(5, 3),)),
    "svd wide": (svd, (rough_complex(3, 5),)),
    "svd low rank": (jnp.linalg.svdvals, (complex_ramp(4, 1) @ complex_ramp(1, 5),), False),
    "pinv": (jnp.linalg.pinv, (rough_complex(5, 3),)),
    "lstsq": (lambda a, b: jnp.linalg.lstsq(a, b)[:2], (rough_complex(5, 3), complex_ramp(5, 2)), False),
    "lstsq vector": (lambda a, b: jnp.linalg.lstsq(a, b)[0], (rough_complex(5, 3), complex_ramp(5))),
    "expm": (jax.scipy.linalg.expm, (jnp.stack([0.5 * square, -0.5 * square]),)),
    "of singular values": (lambda a: (jnp.linalg.matrix_rank(a), jnp.linalg.cond(a), jnp.linalg.norm(a, 2), jnp.linalg.norm(a, "nuc")), (square,)),
    "matrix power": (lambda a: (jnp.linalg.matrix_power(a, 3), jnp.trace(a), jnp.diagonal(a)), (square,)),
    "scan": (lambda x: lax.scan(body, jnp.complex64(1j), x), (complex_ramp(4),)),
    "cond": (lambda x: lax.cond(jnp.abs(x[0, 0]) > 0.1, lambda y: y * 1j, jnp.conj, x), (z,)),
    "own rule": (lambda x: rule()(x), (z,)),
    "remat": (jax.checkpoint(lambda x: jnp.sin(x) * jnp.conj(x)), (z,)),
    "inner grad": (lambda x: jax.grad(lambda y: jnp.sum(jnp.abs(y) ** 3 + jnp.real(y * y)))(x), (z,)),
    "holomorphic": (lambda x: (jax.grad(lambda y: jnp.sum(jnp.sin(y) * y), holomorphic=True)(x),
                               jax.jacfwd(lambda y: y * y * jnp.sum(y), holomorphic=True)(x[0]),
                               jax.jacrev(lambda y: y * y * jnp.sum(y), holomorphic=True)(x[0])), (z,)),
    "vjp": (lambda x, ct: jax.vjp(lambda y: y * jnp.conj(y) * 2j + jnp.abs(y), x)[1](ct), (z, w)),
    "jvp": (lambda x, t: jax.jvp(lambda y: (jnp.exp(y) * jnp.conj(y), jnp.abs(y)), (x,), (t,)), (z, w)),
    "fft": (lambda x: (jnp.fft.fft(x), jnp.fft.ifft(x, norm="ortho"), jnp.fft.fftn(x), jnp.fft.irfft(x), jnp.fft.fftshift(x)), (z,)),
    "making": (lambda x: (jnp.eye(2, dtype=jnp.complex64) * x[0, 0], jnp.full((2,), 1j) * x[0, 0], jnp.zeros_like(x) + x,
                          jnp.linspace(0, 1 + 1j, 3) * x[0], jnp.arange(3, dtype=jnp.complex64) * x[0], x.astype(jnp.complex64)), (z,)),
    "other types": (lambda x: (jnp.real(x).astype(jnp.complex64), x.astype(bool), jnp.real(x) + 1j), (z,), False),
})
