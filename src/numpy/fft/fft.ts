/**
 * Fourier transforms; used as `np.fft`. Spectra are complex64, of float64 complex128. Tables are computed in float64,
 * transforms are matrix products.
 */

import { integerFrom, need, needIfGiven, oneOf } from "../../ir/arguments.js";
import { complexType } from "../../ir/dtype.js";
import { ShapeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, normalizeDim, normalizeDims, range, type Shape } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { array } from "../arrays/creation.js";
import { roll } from "../arrays/shaping.js";
import { conj } from "../elementwise/complex.js";
import { asFloat, asTensor, type Dims, partsOf, wideType } from "../operands.js";
import { type ComplexPair, transform } from "./dft.js";

/** Which direction is divided by the number of elements: backward, forward, or both by its root. */
export type FftNorm = "backward" | "ortho" | "forward";

const fftOptions = schema({
  /** The number of elements; the dim is cut, or filled with zeros. */
  n: optional(integerFrom(1)),
  /** The last dim by default. */
  dim: -1,
  /** Which direction is divided by the number of elements; `"backward"` by default. */
  norm: optional<FftNorm>(oneOf("backward", "ortho", "forward")),
});

/** Options of transforms along one dim. */
export interface FftOptions extends OptionsOf<typeof fftOptions> {}

const fftnOptions = schema({
  /** The number of elements along each of the dims. */
  s: optional<Shape>("integers"),
  /** All dims by default; of `…2` functions the last two. */
  dims: optional("integers"),
  /** Which direction is divided by the number of elements; `"backward"` by default. */
  norm: optional<FftNorm>(oneOf("backward", "ortho", "forward")),
});

/** Options of transforms along several dims. */
export interface FftnOptions extends OptionsOf<typeof fftnOptions> {}

const both = ([re, im]: ComplexPair, fn: (x: Tensor) => Tensor): ComplexPair => [fn(re), im && fn(im)];

function scaleOf(norm: FftNorm, n: number, isForward: boolean): number {
  if (norm === "ortho") return 1 / Math.sqrt(n);
  return (norm === "forward") === isForward ? 1 / n : 1;
}

/** Cuts a dim or fills it with zeros. */
function resized(x: Tensor, dim: number, n: number): Tensor {
  const size = at(x.shape, dim);
  if (n < size) return ops.sliceDim(x, dim, 0, n);
  const none = x.shape.map(() => 0);
  const high = x.shape.map((_, d) => (d === dim ? n - size : 0));
  return ops.pad(x, Tensor.scalar(0, x.dtype), { low: none, high, interior: none });
}

/** Transforms along one dim, without cutting. */
function along(parts: ComplexPair, dim: number, isForward: boolean, norm: FftNorm): ComplexPair {
  const n = at(parts[0].shape, dim);
  const last = parts[0].ndim - 1;
  const moved = both(parts, (x) => ops.moveDim(x, dim, last));
  const { shape } = moved[0];
  const flat = both(moved, (x) => ops.reshape(x, [x.size / n, n]));
  const scale = scaleOf(norm, n, isForward);
  return both(transform(flat, isForward ? -1 : 1), (x) =>
    ops.moveDim(ops.reshape(scale === 1 ? x : ops.mul(x, scale), shape), last, dim),
  );
}

/** Both parts of an operand in a type to compute in, and the dim and size of a transform. */
function prepare(
  value: TensorLike,
  options: FftOptions,
  caller: string,
): { parts: ComplexPair; dim: number; n: number | undefined } {
  const { n, dim } = fftOptions.read(options, caller);
  const [re, im] = partsOf(value, caller);
  if (re.ndim === 0) throw new ShapeError(`[${caller}] needs at least one dim to transform`);
  const wide = (x: Tensor) => ops.convert(x, wideType(x.dtype));
  return { parts: both([re, im], wide), dim: normalizeDim(dim, re.ndim, caller), n };
}

function checkElements(x: Tensor, dim: number, caller: string): void {
  if (at(x.shape, dim) === 0)
    throw new ShapeError(`[${caller}] dim ${dim} is empty: there is nothing to transform`);
}

const complexOf = ([re, im]: ComplexPair): Tensor => Tensor.complex(re, im ?? ops.zeros(re.type));

function oneDim(value: TensorLike, options: FftOptions, isForward: boolean, caller: string): Tensor {
  const { parts, dim, n } = prepare(value, options, caller);
  const sized = both(parts, (x) => resized(x, dim, n ?? at(x.shape, dim)));
  checkElements(sized[0], dim, caller);
  return complexOf(along(sized, dim, isForward, options.norm ?? "backward"));
}

/**
 * The discrete Fourier transform along a dim.
 *
 * @example
 * ```ts
 * np.real(np.fft.fft(np.array([1, 0, 2, 0]))); // [3, -1, 3, -1]
 * ```
 */
export function fft(x: TensorLike, options: FftOptions = {}): Tensor {
  return oneDim(x, options, true, "fft.fft");
}

/**
 * The inverse of {@link fft}.
 *
 * @example
 * ```ts
 * np.real(np.fft.ifft(np.array([10, -2, -2, -2]))); // [1, 3, 3, 3]
 * ```
 */
export function ifft(x: TensorLike, options: FftOptions = {}): Tensor {
  return oneDim(x, options, false, "fft.ifft");
}

/**
 * The half of {@link fft} of real numbers that determines all of it: n / 2 + 1 elements.
 *
 * @example
 * ```ts
 * np.real(np.fft.rfft(np.array([1, 0, 2, 0]))); // [3, -1, 3]
 * ```
 */
export function rfft(x: TensorLike, options: FftOptions = {}): Tensor {
  const whole = fft(asFloat(x, "fft.rfft"), options);
  const dim = normalizeDim(options.dim ?? -1, whole.ndim, "fft.rfft");
  return ops.sliceDim(whole, dim, 0, Math.floor(at(whole.shape, dim) / 2) + 1);
}

/**
 * The inverse of {@link rfft}.
 *
 * @param options `n` is the number of real elements; 2 (m − 1) by default
 *
 * @example
 * ```ts
 * np.fft.irfft(np.array([10, -2, -2])); // [1, 3, 3, 3]
 * ```
 */
export function irfft(value: TensorLike, options: FftOptions = {}): Tensor {
  const caller = "fft.irfft";
  const { parts, dim, n: given } = prepare(value, options, caller);
  const n = given ?? 2 * (at(parts[0].shape, dim) - 1);
  if (n < 1) throw new ShapeError(`[${caller}] dim ${dim} is too short for a spectrum: give { n }`);
  const half = both(parts, (x) => resized(x, dim, Math.floor(n / 2) + 1));
  // The other half mirrors the first one; of the mean, and of the middle of an even number, only the real part counts.
  const mirrored = (x: Tensor, sign: 1 | -1) => {
    const stop = Math.ceil(n / 2);
    const tail = ops.reverse(ops.sliceDim(x, dim, 1, stop), [dim]);
    const inner =
      sign === 1
        ? x
        : ops.mul(
            x,
            spreadAlong(
              x,
              dim,
              range(Math.floor(n / 2) + 1).map((k) => (k === 0 || 2 * k === n ? 0 : 1)),
            ),
          );
    return stop === 1 ? inner : ops.concatenate([inner, sign === 1 ? tail : ops.neg(tail)], dim);
  };
  const whole: ComplexPair = [mirrored(half[0], 1), half[1] && mirrored(half[1], -1)];
  return along(whole, dim, false, options.norm ?? "backward")[0];
}

function spreadAlong(x: Tensor, dim: number, values: readonly number[]): Tensor {
  return ops.broadcastInDim(array([...values], x.dtype), x.shape, [dim]);
}

/**
 * The real transform of a signal whose conjugate is mirrored.
 *
 * @example
 * ```ts
 * np.fft.hfft(np.array([1, 2, 3])); // [8, -2, 0, -2]
 * ```
 */
export function hfft(value: TensorLike, options?: FftOptions): Tensor {
  const given = fftOptions.read(options, "fft.hfft");
  return irfft(conj(value), { ...given, norm: swapped(given.norm) });
}

/**
 * The inverse of {@link hfft}.
 *
 * @example
 * ```ts
 * np.real(np.fft.ihfft(np.array([1, 2, 3, 2]))); // [2, -0.5, 0]
 * ```
 */
export function ihfft(x: TensorLike, options?: FftOptions): Tensor {
  const given = fftOptions.read(options, "ihfft");
  return conj(rfft(x, { ...given, norm: swapped(given.norm) }));
}

function swapped(norm: FftNorm = "backward"): FftNorm {
  if (norm === "ortho") return norm;
  return norm === "backward" ? "forward" : "backward";
}

/** The dims and sizes of a transform along several dims. */
function several(x: Tensor, options: FftnOptions, caller: string): { dim: number; n: number | undefined }[] {
  const { s, dims } = fftnOptions.read(options, caller);
  const chosen = dims ?? (s ? range(s.length).map((i) => i - s.length) : range(x.ndim));
  const list = normalizeDims(chosen, x.ndim, caller);
  if (s && s.length !== list.length) {
    throw new ShapeError(`[${caller}] s [${s}] needs one size for each of the dims [${list}]`);
  }
  return list.map((dim, i) => ({ dim, n: s?.[i] }));
}

function manyDims(value: TensorLike, options: FftnOptions, isForward: boolean, caller: string): Tensor {
  const x = asTensor(value, caller);
  return several(x, options, caller).reduce(
    (result, { dim, n }) => oneDim(result, { dim, n, norm: options.norm }, isForward, caller),
    ops.convert(x, complexType(x.dtype)),
  );
}

/**
 * The discrete Fourier transform along several dims.
 *
 * @example
 * ```ts
 * np.real(np.fft.fftn(np.array([[1, 2], [3, 5]]))); // [[11, -3], [-5, 1]]
 * ```
 */
export function fftn(x: TensorLike, options: FftnOptions = {}): Tensor {
  return manyDims(x, options, true, "fft.fftn");
}

/**
 * The inverse of {@link fftn}.
 *
 * @example
 * ```ts
 * np.real(np.fft.ifftn(np.array([[10, -2], [-4, 0]]))); // [[1, 2], [3, 4]]
 * ```
 */
export function ifftn(x: TensorLike, options: FftnOptions = {}): Tensor {
  return manyDims(x, options, false, "fft.ifftn");
}

/**
 * {@link rfft} along the last of several dims, and {@link fft} along the others.
 *
 * @example
 * ```ts
 * np.real(np.fft.rfftn(np.array([[1, 2], [3, 5]]))); // [[11, -3], [-5, 1]]
 * ```
 */
export function rfftn(value: TensorLike, options: FftnOptions = {}): Tensor {
  const caller = "fft.rfftn";
  const list = several(asTensor(value, caller), options, caller);
  const last = at(list, list.length - 1);
  let result = rfft(value, { ...last, norm: options.norm });
  for (const { dim, n } of list.slice(0, -1)) result = fft(result, { dim, n, norm: options.norm });
  return result;
}

/**
 * The inverse of {@link rfftn}.
 *
 * @example
 * ```ts
 * np.fft.irfftn(np.array([[10, -2], [-4, 0]])); // [[1, 2], [3, 4]]
 * ```
 */
export function irfftn(value: TensorLike, options: FftnOptions = {}): Tensor {
  const caller = "fft.irfftn";
  const list = several(asTensor(value, caller), options, caller);
  const last = at(list, list.length - 1);
  let result = value;
  for (const { dim, n } of list.slice(0, -1)) result = ifft(result, { dim, n, norm: options.norm });
  return irfft(result, { ...last, norm: options.norm });
}

/** Options are checked before they are spread, since spreading something else would silently give none. */
function lastTwo(options: FftnOptions, caller: string): FftnOptions {
  const given = fftnOptions.read(options, caller);
  return { ...given, dims: given.dims ?? [-2, -1] };
}

/**
 * {@link fftn} along the last two dims.
 *
 * @example
 * ```ts
 * np.real(np.fft.fft2(np.array([[1, 2], [3, 5]]))); // [[11, -3], [-5, 1]]
 * ```
 */
export const fft2 = (x: TensorLike, options: FftnOptions = {}): Tensor =>
  fftn(x, lastTwo(options, "fft.fft2"));
/**
 * {@link ifftn} along the last two dims.
 *
 * @example
 * ```ts
 * np.real(np.fft.ifft2(np.array([[10, -2], [-4, 0]]))); // [[1, 2], [3, 4]]
 * ```
 */
export const ifft2 = (x: TensorLike, options: FftnOptions = {}): Tensor =>
  ifftn(x, lastTwo(options, "fft.ifft2"));
/**
 * {@link rfftn} along the last two dims.
 *
 * @example
 * ```ts
 * np.real(np.fft.rfft2(np.array([[1, 2], [3, 5]]))); // [[11, -3], [-5, 1]]
 * ```
 */
export const rfft2 = (x: TensorLike, options: FftnOptions = {}): Tensor =>
  rfftn(x, lastTwo(options, "fft.rfft2"));
/**
 * {@link irfftn} along the last two dims.
 *
 * @example
 * ```ts
 * np.fft.irfft2(np.array([[10, -2], [-4, 0]])); // [[1, 2], [3, 4]]
 * ```
 */
export const irfft2 = (x: TensorLike, options: FftnOptions = {}): Tensor =>
  irfftn(x, lastTwo(options, "fft.irfft2"));

/**
 * The frequencies of the elements of {@link fft} of n samples.
 *
 * @param d the time between two samples
 *
 * @example
 * ```ts
 * np.fft.fftfreq(4); // [0, 0.25, -0.5, -0.25]
 * ```
 */
export function fftfreq(n: number, d = 1): Tensor {
  need("number", n, "n", "fftfreq");
  needIfGiven("number", d, "d", "fftfreq");
  const middle = Math.floor((n - 1) / 2);
  return array(
    range(n).map((k) => (k <= middle ? k : k - n) / (n * d)),
    "float32",
  );
}

/**
 * The frequencies of the elements of {@link rfft} of n samples.
 *
 * @example
 * ```ts
 * np.fft.rfftfreq(4); // [0, 0.25, 0.5]
 * ```
 */
export function rfftfreq(n: number, d = 1): Tensor {
  need("number", n, "n", "rfftfreq");
  needIfGiven("number", d, "d", "rfftfreq");
  return array(
    range(Math.floor(n / 2) + 1).map((k) => k / (n * d)),
    "float32",
  );
}

function shifted(
  value: TensorLike,
  dims: Dims | undefined,
  by: (n: number) => number,
  caller: string,
): Tensor {
  const x = asTensor(value, caller);
  const list = normalizeDims(dims, x.ndim, caller);
  return roll(
    x,
    list.map((d) => by(at(x.shape, d))),
    list,
  );
}

/**
 * Moves the frequency 0 into the middle of dims.
 *
 * @example
 * ```ts
 * np.fft.fftshift(np.fft.fftfreq(4)); // [-0.5, -0.25, 0, 0.25]
 * ```
 */
export function fftshift(x: TensorLike, dims?: Dims): Tensor {
  return shifted(x, dims, (n) => Math.floor(n / 2), "fft.fftshift");
}

/**
 * Undoes {@link fftshift}.
 *
 * @example
 * ```ts
 * np.fft.ifftshift(np.array([-0.5, -0.25, 0, 0.25])); // [0, 0.25, -0.5, -0.25]
 * ```
 */
export function ifftshift(x: TensorLike, dims?: Dims): Tensor {
  return shifted(x, dims, (n) => -Math.floor(n / 2), "fft.ifftshift");
}
