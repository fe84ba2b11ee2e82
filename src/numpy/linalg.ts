/** Linear algebra; used as `np.linalg`. Matrices are the last two dims, all others are a batch. */
export { cross, matmul, outer, tensordot, vecdot } from "./contraction.js";
export {
  type CholeskyOptions,
  cholesky,
  type EighOptions,
  eig,
  eigh,
  eigvals,
  eigvalsh,
  matrixRank,
  pinv,
  type QrOptions,
  qr,
  type SvdOptions,
  svd,
  svdvals,
} from "./decompositions.js";
export { diagonal, trace } from "./diagonals.js";
export { expm, matrixPower, multiDot } from "./matrixProducts.js";
export { cond, matrixNorm, type NormOrder, norm, vectorNorm } from "./norms.js";
export { matrixTranspose } from "./shaping.js";
export {
  choSolve,
  det,
  inv,
  type LeastSquares,
  lstsq,
  type SolveTriangularOptions,
  slogdet,
  solve,
  solveTriangular,
  tensorinv,
  tensorsolve,
} from "./solving.js";
