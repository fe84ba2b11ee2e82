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
  pbroadcast,
  pcast,
  pmax,
  pmean,
  pmin,
  ppermute,
  pshift,
  pshuffle,
  psum,
  psumScatter,
  pswapaxes,
  pvary,
} from "../spmd/mesh/collectives.js";
export { raggedAllToAll } from "../spmd/mesh/raggedAllToAll.js";
export {
  concatenate,
  type DotDims,
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
export * from "../transforms/control/whileLoop.js";
export * from "./bessel.js";
export * from "./bits.js";
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
} from "./composed.js";
export * from "./contraction.js";
export * from "./convolution.js";
export * from "./dimensionNumbers.js";
export * from "./elementwise.js";
export { finite as isFinite } from "./elementwise.js";
export * from "./implicit.js";
export * from "./incomplete.js";
export * as linalg from "./linalg/index.js";
export * from "./ragged.js";
export * from "./reduceWindow.js";
export * from "./selection.js";
export * from "./shaping.js";
export * from "./slicing.js";
export { cumlogsumexp, cummax, cummin, cumprod, cumsum, sort, sortKeyVal, topK } from "./sorting.js";
export * from "./special.js";
export { type PaddingRule, padtypeToPads, type WindowPadding } from "./windows.js";
export * from "./zeta.js";
