/** Programs whose results differ from JAX's for a reason that is not a mistake here. */
const known: readonly (readonly [name: RegExp, reason: string])[] = [
  [
    /lax\.linalg\.\w+\(.* of (int32|uint8|bool)$/,
    "lax.linalg takes floats only; np.linalg converts integers",
  ],
  [
    /^np\.linalg\.cond\(a\) of bool$/,
    "matrices of bools are often singular: both divide by a rounding error",
  ],
  [
    /^np\.linalg\.multiDot\(.* of bfloat16$/,
    "the product of two matrices is rounded to 8 bits before it is multiplied by the third",
  ],
  [
    /^np\.histogramBinEdges\(.* of complex64$/,
    "bins need an order; JAX divides the way from the least to the greatest by their real parts",
  ],
  [
    /^train\(optim\.(scaleByA|a)msgrad/,
    "the gradient through the running maximum: finite differences confirm the one here",
  ],
  [/^train\(.* of complex64$/, "optimisers are made for real parameters (docs/limits.md)"],
  [
    /^train\(.* of (int32|uint8|bool)$/,
    "steps of integers are fractions, which both round to integers as they please",
  ],
  [
    /^train\(.* of (float16|bfloat16)$/,
    "three steps of 16-bit floats: each side rounds other intermediate values",
  ],
  [
    /^train\(optim\.scaleByStddev\(/,
    "the variance is a difference of squares, which loses digits to rounding",
  ],
];

/** Why a program may differ from JAX, if it may. */
export function knownDifference(name: string): string | undefined {
  return known.find(([pattern]) => pattern.test(name))?.[1];
}
