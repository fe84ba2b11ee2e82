import { expect, test } from "vitest";
import * as lax from "../lax/index.js";
import { Tensor } from "../trace/tensor.js";
import * as np from "./index.js";

/** The names of `np`. */
const npNames = `
  IndexUpdate Slice abs absolute acos acosh add all allclose amax amin any append applyAlongAxis
  arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argpartition argsort
  argwhere around array arrayEqual arraySplit asarray asin asinh astype atan atan2 atanh atleast1d
  atleast2d atleast3d average bfloat16 bincount bitwiseAnd bitwiseInvert bitwiseLeftShift bitwiseNot
  bitwiseOr bitwiseRightShift bitwiseXor blackman block bool broadcastArrays broadcastShapes
  broadcastTo cbrt ceil choose clip columnStack concat concatenate convolve copy copysign corrcoef
  correlate cos cosh countNonzero cov cross cumprod cumsum cumulativeProd cumulativeSum deg2rad
  degrees diag diagIndices diagflat diagonal diff digitize divide divmod dot dstack e ediff1d einsum
  empty emptyLike equal exp exp2 expandDims expm1 eye fabs fillDiagonal finfo fix flatnonzero flip
  fliplr flipud float16 float32 float64 floatPower floor floorDivide fmax fmin fmod fromfunction full
  fullLike gcd geomspace gradient greater greaterEqual hamming hanning heaviside histogram
  histogramBinEdges hsplit hstack hypot identity iinfo index indices inf inner int32 interp
  intersect1d invert isclose isfinite isin isinf isnan isneginf isposinf ix kron lcm ldexp leftShift
  less lessEqual lexsort linalg linspace log log10 log1p log2 logaddexp logaddexp2 logicalAnd
  logicalNot logicalOr logicalXor logspace logsumexp matmul matrixTranspose matvec max maximum mean
  median meshgrid min minimum mod modf moveaxis multiply nan nanToNum nanargmax nanargmin nancumprod
  nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar
  negative newaxis nonzero notEqual ones onesLike outer pad partition percentile permuteDims pi
  piecewise polyadd polyder polyint polymul polysub polyval positive pow power prod promoteTypes ptp
  putAlongAxis quantile rad2deg radians ravel ravelMultiIndex reciprocal remainder repeat reshape
  resultType rightShift rint roll rot90 round s searchsorted select setdiff1d sign signbit sin sinc
  sinh sort split sqrt square squeeze stack std subtract sum swapaxes take takeAlongAxis tan tanh
  tensordot tile trace transpose trapezoid tri tril trilIndices triu triuIndices trueDivide trunc
  uint32 union1d unique uniqueAll unravelIndex unstack unwrap vander var vdot vecdot vecmat vectorize
  vsplit vstack where zeros zerosLike
`;

/** The names of `lax`. */
const laxNames = `
  abs acos acosh add allGather allToAll argmax argmin asin asinh associativeScan atan atan2 atanh
  axisIndex axisSize batchMatmul bitcastConvertType bitwiseAnd bitwiseNot bitwiseOr bitwiseXor broadcast
  broadcastInDim broadcastedIota cbrt ceil clamp collapse concatenate cond convertElementType cos cosh
  cummax cummin cumprod cumsum div dot dotGeneral dynamicIndexInDim dynamicSlice dynamicSliceInDim
  dynamicUpdateIndexInDim dynamicUpdateSlice dynamicUpdateSliceInDim eq erf erfInv erfc exp exp2
  expandDims expm1 finite floor foriLoop full fullLike gather ge gt indexInDim integerPow iota isFinite le
  log log1p logistic lt map max min mul ne neg optimizationBarrier pad pcast pmax pmean pmin pow ppermute pshift
  psum psumScatter pvary reciprocal reduceAnd reduceMax reduceMin reduceOr reduceProd reduceSum rem reshape rev
  round rsqrt scan scatter select shiftLeft shiftRightArithmetic shiftRightLogical sign sin sinh slice
  sliceInDim sort sortKeyVal sqrt square squeeze stopGradient sub switch switchCase tan tanh topK
  transpose whileLoop
`;

/** The fields and methods of a tensor. */
const tensorNames = `
  T abs add all and any argmax argmin argsort astype at broadcastTo ceil clip cos cumprod cumsum data
  diagonal dispose div dot dtype eq exp expandDims expm1 flatten floor floorDiv ge get gt item js le log
  log1p lt mT matmul max maximum mean min minimum mod mul ndim ne neg not or pow prod ravel ready
  reciprocal repeat reshape round shape sign sin size slice sort sqrt square squeeze std storage sub sum
  swapaxes take tanh toString trace transpose var xor
`;

const words = (text: string) => text.trim().split(/\s+/);

test("np offers these names", () => {
  expect(Object.keys(np).sort()).toEqual(words(npNames));
});

test("lax offers these names", () => {
  expect(Object.keys(lax).sort()).toEqual(words(laxNames));
});

test("tensors have these fields and methods", () => {
  const names = Object.getOwnPropertyNames(Tensor.prototype).filter((name) => name !== "constructor");
  expect(names.sort()).toEqual(words(tensorNames));
});
