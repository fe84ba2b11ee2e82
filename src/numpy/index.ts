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
export * from "./arrays/constants.js";
export * from "./arrays/creation.js";
export { zeros as empty, zerosLike as emptyLike } from "./arrays/creation.js";
export * from "./arrays/joining.js";
export { concatenate as concat } from "./arrays/joining.js";
export * from "./arrays/shaping.js";
export { transpose as permuteDims } from "./arrays/shaping.js";
export * from "./arrays/types.js";
export * from "./composed/bits.js";
export { deleteSlices as delete, insert } from "./composed/editing.js";
export * from "./composed/grids.js";
export * from "./composed/histograms.js";
export * from "./composed/mapping.js";
export * from "./composed/neighbours.js";
export * from "./composed/pad.js";
export * from "./composed/polynomials.js";
export * from "./composed/selecting.js";
export * from "./composed/windows.js";
export * from "./elementwise/arithmetic.js";
export {
  atan2 as arctan2,
  divide as trueDivide,
  mod as remainder,
  power as pow,
} from "./elementwise/arithmetic.js";
export * from "./elementwise/complex.js";
export { conj as conjugate } from "./elementwise/complex.js";
export * from "./elementwise/elementwise.js";
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
} from "./elementwise/elementwise.js";
export * from "./elementwise/logic.js";
export { leftShift as bitwiseLeftShift, rightShift as bitwiseRightShift } from "./elementwise/logic.js";
export * from "./elementwise/specialValues.js";
export * as fft from "./fft/fft.js";
export * from "./indexing/at.js";
export { type Index, index, Slice, s } from "./indexing/indexing.js";
export * from "./indexing/take.js";
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
} from "./linalg/contraction.js";
export * from "./linalg/diagonals.js";
export { einsum } from "./linalg/einsum.js";
export * as linalg from "./linalg/linalg.js";
export type { Dims, DTypeOption, ShapeLike, SizedOptions } from "./operands.js";
export * from "./reductions/nanReductions.js";
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
} from "./reductions/reductions.js";
export * from "./reductions/sorting.js";
export * from "./statistics/quantiles.js";
export * from "./statistics/sets.js";
export * from "./statistics/statistics.js";
