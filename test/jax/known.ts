/** A reason for which results may differ from JAX's that is not a mistake here. */
interface Known {
  /** The programs, by their names. */
  readonly name: RegExp;
  /** What of them may differ: the value, derivatives, batches; everything if nothing is said. */
  readonly of?: RegExp;
  readonly reason: string;
}

const known: readonly Known[] = [
  {
    name: /^np\.sort\(lax\.linalg\.eigh\(.* of (int32|uint8|bool)$/,
    reason:
      "lax.linalg takes floats only; JAX's eigh alone converts integers, because it halves them to symmetrise",
  },
  {
    name: /\b(nn|scipy\.special)\.(softmax|logSoftmax)\(.* of uint8$/,
    reason: "JAX subtracts the largest element in the unsigned type, which wraps around",
  },
  {
    name: /^np\.linalg\.cond\(a\) of bool$/,
    reason: "matrices of bools are often singular: both divide by a rounding error",
  },
  {
    name: /^np\.sort\(np\.abs\(np\.linalg\.eigvals\(a\)\)\) of (int32|bool)$/,
    reason:
      "matrices of small integers often have 0 twice with one eigenvector: a rounding ε moves it by √ε, and it has 64 bits here",
  },
  {
    name: /^scipy\.linalg\.fiedlerCompanion\(.* of bool$/,
    reason:
      "0/0 of converted booleans is 0 when JAX compiles it; without jit, and of floats, it is NaN there",
  },
  {
    name: /^np\.abs\(scipy\.linalg\.eighTridiagonal\(.*\[1\]\)$/,
    of: /^(grad|jvp)/,
    reason:
      "JAX differentiates its search for eigenvectors; differences of SciPy's confirm the derivative here",
  },
  {
    name: /^np\.real\(scipy\.linalg\.funm\(.* of complex64$/,
    reason: "JAX divides by differences of eigenvalues in 32 bits, here they have 64",
  },
  {
    name: /^scipy\.linalg\.expm\(.* of complex64$/,
    of: /^(value|vmap)/,
    reason: "both round; against SciPy in 64 bits, JAX's error is three times the one here",
  },
  {
    name: /^scipy\.special\.besselJn\(.*\)$/,
    of: /^(grad|jvp)/,
    reason: "JAX's recurrence has wrong derivatives, or NaN; SciPy's jvp confirms those here",
  },
  {
    name: /^scipy\.special\.besselJn\(.* of float16$/,
    reason: "JAX's recurrence is NaN in float16, as it is in float32 for arguments near the order",
  },
  {
    name: /^scipy\.special\.spence\(.*\)$/,
    of: /^(grad|jvp)/,
    reason: "JAX's derivative is NaN from 1 on (docs/jax.md)",
  },
  {
    name: /^scipy\.special\.(expi|expn)\(.* of (int32|uint8|bool)$/,
    reason: "JAX's recurrences give NaN or other numbers for small arguments and 0 (docs/jax.md)",
  },
  {
    name: /^scipy\.special\.owensT\(.* of float16$/,
    reason: "JAX returns float32 for float16, against its documentation",
  },
  {
    name: /^scipy\.stats\..* of complex64$/,
    of: /^(value|vmap)/,
    reason: "distributions have real arguments; JAX uses the formulas for those",
  },
  {
    name: /^scipy\.stats\.poisson\.entropy\(.*\)$/,
    of: /^(grad|jvp)/,
    reason:
      "JAX's derivative is NaN for rates whose terms underflow; where it is a number, it is the one here",
  },
  {
    name: /^scipy\.stats\.chi2\.(log)?pdf\(.* of (int32|uint8|bool)$/,
    reason: "the density at 0 with 2 degrees of freedom is 1/2; JAX multiplies 0 by an infinite logarithm",
  },
  {
    name: /^scipy\.stats\.(chi2|gamma)\.(log)?cdf\(.* of bool$/,
    reason: "igamma(0, x) is 1, as in SciPy; JAX has that from x = 1 on, and NaN below",
  },
  {
    name: /^scipy\.stats\.beta\.logpdf\(nn\.sigmoid.* of float16$/,
    reason:
      "JAX rounds the sigmoid and each term, which are larger than their sum; here only function values are rounded, to the float16 nearest to those of SciPy",
  },
  {
    name: /^np\.histogram(BinEdges|dd|2d)?\(.* of complex64$/,
    reason:
      "bins need an order; JAX divides the way from the least to the greatest and compares by real parts first",
  },
  {
    name: /^train\(optim\.adan\(.* of float16$/,
    reason:
      "eps, 1e-8, is 0 in float16; optax without jit has the values here to the bit, XLA keeps more digits than the type has",
  },
  {
    name: /^train\(optim\.(scaleByA|a)msgrad/,
    of: /^(grad|jvp)/,
    reason: "the gradient through the running maximum: finite differences confirm the one here",
  },
  {
    name: /^train\(optim\.(adam|adamw|nadam|nadamw|optimisticAdam|scaleByAdam|scaleByRss)\(.* of (int32|uint8)$/,
    reason:
      "optax keeps moments and sums of squares of integers as integers, and so divides by 0 and eps; here they are floats",
  },
];

/** Why a result of a program may differ from JAX's, if it may. @param what as in `value` or `grad/1` */
export function knownDifference(name: string, what: string): string | undefined {
  return known.find((entry) => entry.name.test(name) && (entry.of?.test(what) ?? true))?.reason;
}
