/** Convolutions, correlations and trends of signals. */

import { oneOf } from "../../ir/arguments.js";
import { isComplex } from "../../ir/dtype.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, normalizeDim, normalizeDims, range } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import * as np from "../../numpy/index.js";
import { asInexact, asTensor, cast, inexactType } from "../../numpy/operands.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";

const modeOptions = schema({
  /** Every overlap (`"full"`, the default), the middle as large as the first operand, or only complete overlaps. */
  mode: optional(oneOf("full", "same", "valid"), "full"),
});

/** Options of {@link convolve2d} and {@link correlate2d}. */
export interface ModeOptions extends OptionsOf<typeof modeOptions> {}

type Mode = NonNullable<ModeOptions["mode"]>;

const methodOptions = schema({
  ...modeOptions.fields,
  /** Whether sums are computed directly (the default, `"auto"` too) or by Fourier transforms. */
  method: optional(oneOf("auto", "direct", "fft"), "auto"),
});

/** Options of {@link convolve} and {@link correlate}. */
export interface ConvolveOptions extends OptionsOf<typeof methodOptions> {}

/** Two tensors of floats or complex numbers of one type, with elements and as many dims. */
function operands(x: TensorLike, y: TensorLike, caller: string): [Tensor, Tensor] {
  const dtype = inexactType(operandType(x, y));
  const [a, b] = [cast(asTensor(x, caller), dtype), cast(asTensor(y, caller), dtype)];
  if (a.ndim === b.ndim && a.size > 0 && b.size > 0) return [a, b];
  throw new ShapeError(
    `[${caller}] takes tensors with elements and as many dims, got ${formatType(a.type)} and ${formatType(b.type)}`,
  );
}

/** The part of all overlaps along some dims that a mode asks for, from the middle. */
function middle(
  full: Tensor,
  a: Tensor,
  b: Tensor,
  mode: Mode,
  dims: readonly number[],
  caller: string,
): Tensor {
  if (mode === "full") return full;
  const isLarger = (x: Tensor, y: Tensor) => dims.every((d) => at(x.shape, d) >= at(y.shape, d));
  if (mode === "valid" && !isLarger(a, b) && !isLarger(b, a)) {
    throw new ValueError(
      `[${caller}] mode "valid" needs one operand that is larger along every dim, got ${formatType(a.type)} and ${formatType(b.type)}`,
    );
  }
  return dims.reduce((x, d) => {
    const [n, m] = [at(a.shape, d), at(b.shape, d)];
    const length = mode === "same" ? n : Math.abs(n - m) + 1;
    const start = Math.floor((n + m - 1 - length) / 2);
    return ops.sliceDim(x, d, start, start + length);
  }, full);
}

/** Every overlap of two tensors, by a convolution of one channel. */
function direct(a: Tensor, b: Tensor): Tensor {
  if (a.ndim === 0) return ops.mul(a, b);
  const [x, kernel] = a.size >= b.size ? [a, b] : [b, a];
  const padding = kernel.shape.map((n) => [n - 1, n - 1] as const);
  const channel = (y: Tensor) => ops.reshape(y, [1, 1, ...y.shape]);
  const run = (y: Tensor, k: Tensor) =>
    ops.reshape(
      lax.convGeneralDilated(
        channel(y),
        channel(np.flip(k)),
        range(a.ndim).map(() => 1),
        padding,
      ),
      a.shape.map((n, d) => n + at(b.shape, d) - 1),
    );
  if (!isComplex(a.dtype)) return run(x, kernel);
  const [re, im, kre, kim] = [np.real(x), np.imag(x), np.real(kernel), np.imag(kernel)];
  return lax.complex(ops.sub(run(re, kre), run(im, kim)), ops.add(run(re, kim), run(im, kre)));
}

/** Every overlap along some dims, by Fourier transforms. */
function spectral(a: Tensor, b: Tensor, dims: readonly number[]): Tensor {
  const s = dims.map((d) => at(a.shape, d) + at(b.shape, d) - 1);
  if (dims.length === 0) return np.multiply(a, b);
  const product = np.multiply(np.fft.fftn(a, { s, dims }), np.fft.fftn(b, { s, dims }));
  const result = np.fft.ifftn(product, { s, dims });
  return cast(isComplex(a.dtype) ? result : np.real(result), a.dtype);
}

const fftOptions = schema({
  ...modeOptions.fields,
  /** The dims that are convolved; all by default. Sizes along the others must be equal. */
  dims: optional("integerOrIntegers"),
});

/** Options of {@link fftconvolve}. */
export interface FftconvolveOptions extends OptionsOf<typeof fftOptions> {}

/**
 * The convolution of two tensors by Fourier transforms.
 *
 * @example
 * ```ts
 * scipy.signal.fftconvolve(np.array([1, 2, 3]), np.array([1, 1])); // [1, 3, 5, 3]
 * ```
 */
export function fftconvolve(x: TensorLike, y: TensorLike, options?: FftconvolveOptions): Tensor {
  const caller = "scipy.signal.fftconvolve";
  const { mode, dims } = fftOptions.read(options, caller);
  const [a, b] = operands(x, y, caller);
  const chosen = normalizeDims(dims, a.ndim, caller);
  const wrong = range(a.ndim).find((d) => !chosen.includes(d) && a.shape[d] !== b.shape[d]);
  if (wrong !== undefined) {
    throw new ShapeError(
      `[${caller}] dim ${wrong} is not convolved and has sizes ${a.shape[wrong]} and ${b.shape[wrong]}, which must be equal`,
    );
  }
  return middle(spectral(a, b, chosen), a, b, mode, chosen, caller);
}

function convolved(
  x: TensorLike,
  y: TensorLike,
  { mode = "full", method }: ConvolveOptions,
  caller: string,
): Tensor {
  const [a, b] = operands(x, y, caller);
  const dims = range(a.ndim);
  return middle(method === "fft" ? spectral(a, b, dims) : direct(a, b), a, b, mode, dims, caller);
}

/**
 * The convolution of two tensors.
 *
 * @example
 * ```ts
 * scipy.signal.convolve(np.array([1, 2, 3, 2, 1]), np.array([1, 1, 1]), { mode: "same" }); // [3, 6, 7, 6, 3]
 * ```
 */
export function convolve(x: TensorLike, y: TensorLike, options?: ConvolveOptions): Tensor {
  const caller = "scipy.signal.convolve";
  return convolved(x, y, methodOptions.read(options, caller), caller);
}

/**
 * The correlation of two tensors: the second, conjugated, slides along the first.
 *
 * @example
 * ```ts
 * scipy.signal.correlate(np.array([1, 2, 3, 2, 1]), np.array([4, 5, 6]), { mode: "valid" }); // [32, 35, 28]
 * ```
 */
export function correlate(x: TensorLike, y: TensorLike, options?: ConvolveOptions): Tensor {
  const caller = "scipy.signal.correlate";
  return convolved(x, np.flip(np.conj(y)), methodOptions.read(options, caller), caller);
}

function matrices(x: TensorLike, y: TensorLike, caller: string): [Tensor, Tensor] {
  const [a, b] = operands(x, y, caller);
  if (a.ndim === 2) return [a, b];
  throw new ShapeError(`[${caller}] takes matrices, got ${formatType(a.type)} and ${formatType(b.type)}`);
}

/**
 * The convolution of two matrices.
 *
 * @example
 * ```ts
 * scipy.signal.convolve2d(np.array([[1, 2], [3, 4]]), np.array([[1, 1]]), { mode: "valid" }); // [[3], [7]]
 * ```
 */
export function convolve2d(x: TensorLike, y: TensorLike, options?: ModeOptions): Tensor {
  const caller = "scipy.signal.convolve2d";
  const { mode } = modeOptions.read(options, caller);
  return convolved(...matrices(x, y, caller), { mode }, caller);
}

/**
 * The correlation of two matrices.
 *
 * @example
 * ```ts
 * scipy.signal.correlate2d(np.array([[2, 1, 3], [1, 3, 1], [4, 1, 2]]), np.array([[1, 3], [4, 2]]), { mode: "valid" }); // [[15, 24], [28, 14]]
 * ```
 */
export function correlate2d(x: TensorLike, y: TensorLike, options?: ModeOptions): Tensor {
  const caller = "scipy.signal.correlate2d";
  const { mode } = modeOptions.read(options, caller);
  const [a, b] = matrices(x, y, caller);
  // The middle is taken of the turned result, which differs from {@link correlate} by one where it is not exact.
  return np.flip(convolved(np.flip(a), np.conj(b), { mode }, caller));
}

const detrendOptions = schema({
  /** The last dim by default. */
  dim: -1,
  /** Whether a line is taken out (the default) or only the mean. */
  type: optional(oneOf("linear", "constant"), "linear"),
  /** Where one line ends and the next begins. */
  bp: optional<readonly number[]>("integers", []),
});

/** Options of {@link detrend}. */
export interface DetrendOptions extends OptionsOf<typeof detrendOptions> {}

/**
 * A signal without its linear trend, or without its mean.
 *
 * @example
 * ```ts
 * scipy.signal.detrend(np.array([1, 4, 8, 8, 9]), { type: "constant" }); // [-5, -2, 2, 2, 3]
 * ```
 */
export function detrend(data: TensorLike, options?: DetrendOptions): Tensor {
  const caller = "scipy.signal.detrend";
  const { dim, type, bp } = detrendOptions.read(options, caller);
  const x = asInexact(data, caller);
  const d = normalizeDim(dim, x.ndim, caller);
  if (type === "constant") return np.subtract(x, np.mean(x, d, { keepdims: true }));
  const n = at(x.shape, d);
  const ends = [...new Set([0, ...bp, n])].sort((one, other) => one - other);
  const outside = bp.find((place) => place < 0 || place > n);
  if (outside !== undefined) throw new ValueError(`[${caller}] bp ${outside} must lie between 0 and ${n}`);
  const parts = ends.slice(1).map((end, i) => {
    const start = at(ends, i);
    const part = ops.sliceDim(x, d, start, end);
    const shape = x.shape.map((_, other) => (other === d ? end - start : 1));
    // Places around 0 are orthogonal to the constant: the line is the mean and one product.
    const places = range(end - start).map((k) => k - (end - start - 1) / 2);
    const size = places.reduce((sum, place) => sum + place * place, 0);
    const line = np.array(places, x.dtype).reshape(shape);
    const sum = np.sum(np.multiply(part, line), d, { keepdims: true });
    const trend = size === 0 ? 0 : np.multiply(np.multiply(sum, 1 / size), line);
    return np.subtract(np.subtract(part, np.mean(part, d, { keepdims: true })), trend);
  });
  return np.concatenate(parts, d);
}
