/**
 * NumPy's functions with JAX's meaning, in camelCase: `import { np } from "shardwise"`.
 *
 * Operands may be JavaScript numbers, which take the type of the other operands. Functions over dims take
 * them as second argument (`np.sum(x, 0)`, `np.sum(x, [0, -1])`, nothing for all) and options last
 * (`{ keepdims: true }`).
 */
import "./methods.js";

export type { TensorLike } from "../trace/promote.js";
export { promoteTypes, resultType } from "../trace/promote.js";
export * from "./arithmetic.js";
export { atan2 as arctan2, divide as trueDivide, mod as remainder, power as pow } from "./arithmetic.js";
export * from "./at.js";
export * from "./bits.js";
export * from "./complex.js";
export { conj as conjugate } from "./complex.js";
export * from "./constants.js";
export {
  type CrossOptions,
  cross,
  dot,
  inner,
  kron,
  matmul,
  outer,
  type ProductOptions,
  tensordot,
  vdot,
  vecdot,
} from "./contraction.js";
export * from "./creation.js";
export { zeros as empty, zerosLike as emptyLike } from "./creation.js";
export * from "./diagonals.js";
export { deleteSlices as delete, insert } from "./editing.js";
export { einsum } from "./einsum.js";
export * from "./elementwise.js";
export {
  abs as absolute,
  acos as arccos,
  acosh as arccosh,
  asin as arcsin,
  asinh as arcsinh,
  atan as arctan,
  atanh as arctanh,
  bitwiseNot as bitwiseInvert,
  bitwiseNot as invert,
  deg2rad as radians,
  positive as copy,
  rad2deg as degrees,
  round as around,
  trunc as fix,
} from "./elementwise.js";
export * as fft from "./fft.js";
export * from "./grids.js";
export * from "./histograms.js";
export { type Index, index, Slice, s } from "./indexing.js";
export * from "./joining.js";
export { concatenate as concat } from "./joining.js";
export * as linalg from "./linalg.js";
export * from "./logic.js";
export { leftShift as bitwiseLeftShift, rightShift as bitwiseRightShift } from "./logic.js";
export * from "./mapping.js";
export * from "./nanReductions.js";
export * from "./neighbours.js";
export type { Dims, DTypeOption, ShapeLike, SizedOptions } from "./operands.js";
export * from "./pad.js";
export * from "./polynomials.js";
export * from "./quantiles.js";
export {
  all,
  any,
  argmax,
  argmin,
  countNonzero,
  type ExtremeOptions,
  type KeepdimsOptions,
  type LogsumexpOptions,
  logsumexp,
  type MaskedOptions,
  type MeanOptions,
  max,
  max as amax,
  mean,
  min,
  min as amin,
  prod,
  ptp,
  type SumOptions,
  std,
  sum,
  type VarianceOptions,
  variance as var,
} from "./reductions.js";
export * from "./selecting.js";
export * from "./sets.js";
export * from "./shaping.js";
export { transpose as permuteDims } from "./shaping.js";
export * from "./sorting.js";
export * from "./specialValues.js";
export * from "./statistics.js";
export * from "./take.js";
export * from "./types.js";
export * from "./windows.js";
