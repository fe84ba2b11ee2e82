/**
 * JAX's `lax` in camelCase: strict operations, without promotion and broadcasting, on which `np` is built.
 * JavaScript numbers take the type of the tensor they are combined with.
 */
export {
  type AllGatherOptions,
  type AllToAllOptions,
  allGather,
  allToAll,
  axisIndex,
  axisSize,
  type PcastOptions,
  type PsumScatterOptions,
  pcast,
  pmax,
  pmean,
  pmin,
  ppermute,
  pshift,
  psum,
  psumScatter,
  pvary,
} from "../spmd/mesh/collectives.js";
export {
  concatenate,
  type DotDims,
  dotGeneral,
  gather,
  optimizationBarrier,
  reshape,
  reverse as rev,
  scatter,
  slice,
  transpose,
} from "../trace/ops.js";
export { cond, switchCase, switchCase as switch } from "../transforms/control/cond.js";
export {
  type AssociativeScanOptions,
  associativeScan,
  map,
  type ScanOptions,
  scan,
} from "../transforms/control/scan.js";
export { foriLoop, whileLoop } from "../transforms/control/whileLoop.js";
export { besselI0e, besselI1e } from "./bessel.js";
export { bitcastConvertType, clz, nextafter, populationCount } from "./bits.js";
export {
  argmax,
  argmin,
  batchMatmul,
  dot,
  reduceAnd,
  reduceMax,
  reduceMin,
  reduceOr,
  reduceProd,
  reduceSum,
  reduceXor,
} from "./contraction.js";
export {
  type ConvOptions,
  type ConvTransposeOptions,
  conv,
  convGeneralDilated,
  convGeneralDilatedLocal,
  convGeneralDilatedPatches,
  convTranspose,
  convWithGeneralPadding,
  type PatchOptions,
} from "./convolution.js";
export { type ConvDimensionNumbers, type ConvLayouts, convDimensionNumbers } from "./dimensionNumbers.js";
export {
  abs,
  add,
  atan2,
  type Binary,
  bitwiseAnd,
  bitwiseNot,
  bitwiseOr,
  bitwiseXor,
  cbrt,
  ceil,
  clamp,
  complex,
  conj,
  convertElementType,
  cos,
  div,
  eq,
  erf,
  erfInv,
  exp,
  expm1,
  finite as isFinite,
  finite,
  floor,
  ge,
  gt,
  imag,
  le,
  log,
  log1p,
  logistic,
  lt,
  max,
  min,
  mul,
  ne,
  neg,
  pow,
  type RoundingMethod,
  real,
  rem,
  round,
  rsqrt,
  select,
  selectN,
  shiftLeft,
  shiftRightArithmetic,
  shiftRightLogical,
  sign,
  sin,
  sqrt,
  sub,
  tanh,
  type Unary,
} from "./elementwise.js";
export {
  acos,
  acosh,
  asin,
  asinh,
  atan,
  atanh,
  cosh,
  erfc,
  exp2,
  integerPow,
  reciprocal,
  sinh,
  square,
  tan,
} from "./functions.js";
export { betainc, igamma, igammac, igammaGradA, randomGammaGrad } from "./incomplete.js";
export * as linalg from "./linalg/index.js";
export { raggedDot, reduce } from "./ragged.js";
export { type ReduceWindowOptions, reduceWindow } from "./reduceWindow.js";
export {
  broadcast,
  broadcastedIota,
  broadcastInDim,
  collapse,
  expandDims,
  full,
  fullLike,
  iota,
  type PadConfig,
  pad,
  split,
  squeeze,
  stack,
  stopGradient,
  tile,
  unstack,
} from "./shaping.js";
export {
  dynamicIndexInDim,
  dynamicSlice,
  dynamicSliceInDim,
  dynamicUpdateIndexInDim,
  dynamicUpdateSlice,
  dynamicUpdateSliceInDim,
  indexInDim,
  sliceInDim,
} from "./slicing.js";
export { cumlogsumexp, cummax, cummin, cumprod, cumsum, sort, sortKeyVal, topK } from "./sorting.js";
export { digamma, lgamma, reducePrecision } from "./special.js";
export { type PaddingRule, padtypeToPads, type WindowPadding } from "./windows.js";
export { polygamma, zeta } from "./zeta.js";
