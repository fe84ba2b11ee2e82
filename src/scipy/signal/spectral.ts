/** Spectra of segments of signals, as SciPy scales them. */

import { either, integerFrom, type Kind, keyOf, oneOf } from "../../ir/arguments.js";
import { complexType, isComplex, partType } from "../../ir/dtype.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, normalizeDim, range } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import * as np from "../../numpy/index.js";
import { asInexact, cast, inexactType } from "../../numpy/operands.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike, tensorKind } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { detrend as withoutTrend } from "./filters.js";

/** The windows by name; each is periodic: one element longer, and cut. */
const windows = {
  hann: (n: number) => np.hanning(n + 1),
  hamming: (n: number) => np.hamming(n + 1),
  blackman: (n: number) => np.blackman(n + 1),
  bartlett: (n: number) => np.bartlett(n + 1),
  boxcar: (n: number) => np.ones([n + 1]),
} as const;

/** The name of a window, or its elements. */
export type Window = keyof typeof windows | Tensor | readonly number[];

const windowKind = either(keyOf(windows), tensorKind, "numbers") as Kind<Window>;

const segmentOptions = {
  /** Number of samples per second. */
  fs: 1,
  /** What segments are multiplied with: a name, or elements, whose number is then that of a segment. */
  window: optional(windowKind, "hann"),
  /** Number of samples of a segment; 256 by default, or all if there are fewer. */
  nperseg: optional(integerFrom(1)),
  /** By how many samples segments overlap; half a segment by default. */
  noverlap: optional(integerFrom(0)),
  /** Number of samples that are transformed, with zeros after those of the segment. */
  nfft: optional(integerFrom(1)),
} as const;

const analysisOptions = {
  ...segmentOptions,
  /** Whether spectra of real signals have only the frequencies from 0 up. */
  returnOnesided: true,
  /** The dim of time; the last one by default. */
  dim: -1,
} as const;

/** How long segments are and how far apart, and their window. */
interface Segments {
  readonly window: Tensor;
  readonly length: number;
  readonly step: number;
  readonly nfft: number;
}

interface SegmentValues {
  readonly window: Window;
  readonly nperseg: number | undefined;
  readonly noverlap: number | undefined;
  readonly nfft: number | undefined;
}

function segmentsOf(given: SegmentValues, most: number, dtype: Tensor["dtype"], caller: string): Segments {
  const { window, noverlap, nfft } = given;
  const isNamed = typeof window === "string";
  const elements = isNamed ? undefined : window instanceof Tensor ? window : np.array(window, dtype);
  if (elements && (elements.ndim !== 1 || elements.size !== (given.nperseg ?? elements.size))) {
    throw new ShapeError(
      `[${caller}] the window ${formatType(elements.type)} must be a vector of nperseg elements`,
    );
  }
  const length = elements?.size ?? Math.min(given.nperseg ?? 256, most);
  const overlap = noverlap ?? Math.floor(length / 2);
  if (overlap >= length)
    throw new ValueError(`[${caller}] noverlap ${overlap} must be less than nperseg ${length}`);
  if (nfft !== undefined && nfft < length)
    throw new ValueError(`[${caller}] nfft ${nfft} is less than nperseg ${length}`);
  const named = isNamed
    ? length === 1
      ? np.ones([1])
      : windows[window](length).get(np.s(0, length))
    : undefined;
  const values = elements ?? named ?? np.ones([length]);
  return { window: values.astype(dtype), length, step: length - overlap, nfft: nfft ?? length };
}

/** Windows of a signal along the last dim as a last dim but one: [..., segment, sample]. */
function cut(x: Tensor, { length, step }: Segments, caller: string): Tensor {
  const n = at(x.shape, x.ndim - 1);
  if (n < length) throw new ShapeError(`[${caller}] ${n} samples are fewer than the ${length} of a segment`);
  const starts = range(Math.floor((n - length) / step) + 1).map((i) => i * step);
  const places = starts.map((start) => range(length).map((k) => start + k));
  return np.take(x, np.array(places, "int32"), -1, { mode: "clip" });
}

/** What is taken out of each segment before it is transformed. */
export type Detrend = "constant" | "linear" | false;

const detrendKind: Kind<Detrend> = {
  says: '"constant", "linear" or false',
  is: (value) => value === "constant" || value === "linear" || value === false,
};

interface Spectra {
  readonly freqs: Tensor;
  readonly isOneSided: boolean;
  /** [..., segment, frequency] */
  readonly of: (x: Tensor) => Tensor;
}

function spectraOf(
  segments: Segments,
  isOneSided: boolean,
  fs: number,
  detrend: Detrend,
  caller: string,
): Spectra {
  const { window, nfft } = segments;
  const trendless = (x: Tensor) => (detrend === false ? x : withoutTrend(x, { type: detrend }));
  return {
    freqs: isOneSided ? np.fft.rfftfreq(nfft, 1 / fs) : np.fft.fftfreq(nfft, 1 / fs),
    isOneSided,
    of: (x) => {
      const shaped = np.multiply(trendless(cut(x, segments, caller)), window);
      return isOneSided ? np.fft.rfft(shaped, { n: nfft }) : np.fft.fft(shaped, { n: nfft });
    },
  };
}

const boundaries = { zeros: "constant", even: "reflect", constant: "edge", odd: "reflect" } as const;

const stftOptions = schema({
  ...analysisOptions,
  /** What is taken out of each segment: its mean (`"constant"`), a line (`"linear"`), or nothing, the default. */
  detrend: optional(detrendKind, false),
  /** How the signal is extended by half a segment at its ends: with zeros by default, or not at all (`null`). */
  boundary: optional(either(keyOf(boundaries), "null"), "zeros"),
  /** Whether zeros fill the last segment. */
  padded: true,
});

/** Options of {@link stft}. */
export interface StftOptions extends OptionsOf<typeof stftOptions> {}

/**
 * The spectra of overlapping segments of a signal: frequencies, times, and complex numbers [frequency, time].
 *
 * @example
 * ```ts
 * const [freqs, times, z] = scipy.signal.stft(np.array([1, 2, 3, 2, 1, 0, 1, 2]), { nperseg: 4 });
 * np.real(z).get(0); // [1, 2.5, 1, 1, 0.5]
 * ```
 */
export function stft(x: TensorLike, options?: StftOptions): [freqs: Tensor, times: Tensor, z: Tensor] {
  const caller = "scipy.signal.stft";
  const { fs, boundary, padded, detrend, dim, returnOnesided, ...rest } = stftOptions.read(options, caller);
  const signal = asInexact(x, caller);
  const d = normalizeDim(dim, signal.ndim, caller);
  const segments = segmentsOf(rest, at(signal.shape, d), partType(signal.dtype), caller);
  const { length, step, window } = segments;
  let time = np.moveaxis(signal, d, -1);
  const ends = (low: number, high: number) => [
    ...range(time.ndim - 1).map(() => [0, 0] as const),
    [low, high] as const,
  ];
  if (boundary !== null) {
    const mode = boundaries[boundary];
    const half = Math.floor(length / 2);
    const odd = boundary === "odd" ? ({ reflectType: "odd" } as const) : {};
    time = np.pad(time, ends(half, half), { mode, ...odd });
  }
  const given = at(time.shape, time.ndim - 1);
  if (padded) time = np.pad(time, ends(0, (((length - given) % step) + step) % step));
  const spectra = spectraOf(segments, returnOnesided && !isComplex(signal.dtype), fs, detrend, caller);
  const values = np.divide(
    spectra.of(time),
    ops.convert(np.sum(window), complexType(partType(signal.dtype))),
  );
  const first = boundary === null ? length / 2 : 0;
  const times = range(at(values.shape, values.ndim - 2)).map((i) => (first + i * step) / fs);
  return [spectra.freqs, np.array(times), np.moveaxis(values, -1, d)];
}

const csdOptions = schema({
  ...analysisOptions,
  /** What is taken out of each segment: its mean (the default), a line, or nothing (`false`). */
  detrend: optional(detrendKind, "constant"),
  /** Whether power is meant per frequency (`"density"`, the default) or of the whole spectrum. */
  scaling: optional(oneOf("density", "spectrum"), "density"),
  /** What of the segments is returned: their mean, the default, or their median without its bias. */
  average: optional(oneOf("mean", "median"), "mean"),
});

/** Options of {@link csd} and {@link welch}. */
export interface CsdOptions extends OptionsOf<typeof csdOptions> {}

/** By how much the median of a spectrum is larger than its mean. */
const medianBias = (n: number): number =>
  range(Math.floor((n - 1) / 2)).reduce((sum, i) => sum + 1 / (2 * i + 3) - 1 / (2 * i + 2), 1);

/** The middle of spectra along their last dim. */
function averaged(power: Tensor, average: "mean" | "median"): Tensor {
  if (average === "mean") return np.mean(power, -1);
  const bias = medianBias(at(power.shape, power.ndim - 1));
  const middle = (x: Tensor) => np.divide(np.median(x, -1), bias);
  return isComplex(power.dtype) ? lax.complex(middle(np.real(power)), middle(np.imag(power))) : middle(power);
}

/**
 * The cross power spectral density of two signals by Welch's method: frequencies, and complex numbers.
 *
 * @example
 * ```ts
 * const x = np.array([1, 2, 3, 2, 1, 0, 1, 2]);
 * const [freqs, power] = scipy.signal.csd(x, x, { nperseg: 4 });
 * np.real(power); // [0.4444, 1.444, 0.2222]
 * ```
 */
export function csd(x: TensorLike, y: TensorLike, options?: CsdOptions): [freqs: Tensor, power: Tensor] {
  return crossed(x, y, options, "scipy.signal.csd");
}

/**
 * The power spectral density of a signal by Welch's method: frequencies, and power.
 *
 * @example
 * ```ts
 * const [freqs, power] = scipy.signal.welch(np.array([1, 2, 3, 2, 1, 0, 1, 2]), { nperseg: 4 });
 * power; // [0.4444, 1.444, 0.2222]
 * ```
 */
export function welch(x: TensorLike, options?: CsdOptions): [freqs: Tensor, power: Tensor] {
  const [freqs, power] = crossed(x, undefined, options, "scipy.signal.welch");
  return [freqs, np.real(power)];
}

function crossed(
  x: TensorLike,
  y: TensorLike | undefined,
  options: CsdOptions | undefined,
  caller: string,
): [freqs: Tensor, power: Tensor] {
  const { fs, dim, detrend, scaling, average, returnOnesided, ...rest } = csdOptions.read(options, caller);
  const dtype = inexactType(y === undefined ? operandType(x) : operandType(x, y));
  const signals = [x, y].flatMap((one) => (one === undefined ? [] : [cast(asInexact(one, caller), dtype)]));
  const d = normalizeDim(dim, at(signals, 0).ndim, caller);
  const most = Math.max(...signals.map((one) => at(one.shape, d)));
  const [first, second] = signals.map((one) => {
    const time = np.moveaxis(one, d, -1);
    const missing = most - at(time.shape, time.ndim - 1);
    return np.pad(time, [...range(time.ndim - 1).map(() => [0, 0] as const), [0, missing]]);
  });
  const segments = segmentsOf(rest, most, partType(dtype), caller);
  const { window, nfft } = segments;
  const isOneSided = returnOnesided && !isComplex(dtype);
  const spectra = spectraOf(segments, isOneSided, fs, detrend, caller);
  const left = spectra.of(first ?? at(signals, 0));
  const product = np.multiply(np.conj(left), second ? spectra.of(second) : left);
  const total = np.sum(scaling === "density" ? np.multiply(window, window) : window);
  const scale = scaling === "density" ? np.multiply(total, fs) : np.multiply(total, total);
  // Of real signals each frequency but 0 and the highest stands for two.
  const numFreqs = at(product.shape, product.ndim - 1);
  const isDouble = (k: number) => isOneSided && k > 0 && (nfft % 2 === 1 || k < numFreqs - 1);
  const weights = np.divide(
    np.array(
      range(numFreqs).map((k) => (isDouble(k) ? 2 : 1)),
      partType(dtype),
    ),
    scale,
  );
  const power = np.multiply(product, ops.convert(weights, product.dtype));
  const shaped = np.moveaxis(second ? power : np.real(power), -1, d);
  return [spectra.freqs, averaged(shaped, average)];
}

const istftOptions = schema({
  ...segmentOptions,
  /** Whether the spectra have only the frequencies from 0 up. */
  inputOnesided: true,
  /** Whether the signal was continued beyond its ends before it was transformed. */
  boundary: true,
  /** The dim of time; the last one by default. */
  timeDim: -1,
  /** The dim of frequencies; the last but one by default. */
  freqDim: -2,
});

/** Options of {@link istft}. */
export interface IstftOptions extends OptionsOf<typeof istftOptions> {}

/** The sum of segments that begin a step after each other: [..., segment, sample] to [..., sample]. */
function overlapped(x: Tensor, step: number): Tensor {
  const [count, length] = [at(x.shape, x.ndim - 2), at(x.shape, x.ndim - 1)];
  const batch = x.shape.slice(0, -2);
  const places = range(count).flatMap((i) => range(length).map((k) => i * step + k));
  const start = np.zeros([...batch, step * (count - 1) + length], x.dtype);
  return start.at("...", np.array(places, "int32")).add(x.reshape([...batch, count * length]));
}

/**
 * The signal whose spectra {@link stft} gave: times, and samples.
 *
 * @example
 * ```ts
 * const [, , z] = scipy.signal.stft(np.array([1, 2, 3, 2, 1, 0, 1, 2]), { nperseg: 4 });
 * const [times, x] = scipy.signal.istft(z);
 * np.round(x, 3); // [1, 2, 3, 2, 1, 0, 1, 2]
 * ```
 */
export function istft(spectra: TensorLike, options?: IstftOptions): [times: Tensor, x: Tensor] {
  const caller = "scipy.signal.istft";
  const { fs, inputOnesided, boundary, timeDim, freqDim, ...rest } = istftOptions.read(options, caller);
  const given = asInexact(spectra, caller);
  if (given.ndim < 2)
    throw new ShapeError(`[${caller}] needs frequencies and times, got ${formatType(given.type)}`);
  const [t, f] = [normalizeDim(timeDim, given.ndim, caller), normalizeDim(freqDim, given.ndim, caller)];
  if (t === f) throw new ValueError(`[${caller}] timeDim and freqDim are both ${t}`);
  const outer = range(given.ndim).filter((d) => d !== t && d !== f);
  const z = np.transpose(given, [...outer, t, f]);
  const numFreqs = at(z.shape, z.ndim - 1);
  const whole = inputOnesided ? 2 * (numFreqs - 1) : numFreqs;
  const nperseg = rest.nperseg ?? whole;
  const isOdd = inputOnesided && nperseg === whole + 1;
  const nfft = rest.nfft ?? (isOdd ? whole + 1 : whole);
  const segments = segmentsOf({ ...rest, nperseg, nfft }, nperseg, partType(z.dtype), caller);
  const { window, length, step } = segments;
  const samples = inputOnesided ? np.fft.irfft(z, { n: nfft }) : np.fft.ifft(z, { n: nfft });
  const cutOff = ops.sliceDim(samples, samples.ndim - 1, 0, length);
  const scaled = np.multiply(cutOff, np.multiply(window, np.sum(window)));
  const squares = np.broadcastTo(np.multiply(window, window), [at(z.shape, z.ndim - 2), length]);
  const half = boundary ? Math.floor(length / 2) : 0;
  const inner = (x: Tensor) => {
    const n = at(x.shape, x.ndim - 1);
    return ops.sliceDim(x, x.ndim - 1, half, n - half);
  };
  const weights = inner(overlapped(squares, step));
  const x = np.divide(inner(overlapped(scaled, step)), np.where(weights.gt(1e-10), weights, 1));
  const times = np.divide(np.arange(at(x.shape, x.ndim - 1), "float32"), fs);
  const place = range(given.ndim)
    .filter((d) => d !== f)
    .indexOf(t);
  return [times, np.moveaxis(x, -1, place)];
}
