/** JAX's `scipy.signal`. */
export {
  type ConvolveOptions,
  convolve,
  convolve2d,
  correlate,
  correlate2d,
  type DetrendOptions,
  detrend,
  type FftconvolveOptions,
  fftconvolve,
  type ModeOptions,
} from "./filters.js";
export {
  type CsdOptions,
  csd,
  type Detrend,
  type IstftOptions,
  istft,
  type StftOptions,
  stft,
  type Window,
  welch,
} from "./spectral.js";
