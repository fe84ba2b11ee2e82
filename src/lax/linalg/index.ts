/**
 * JAX's `lax.linalg`: decompositions of batches of matrices, with derivatives, on every engine. They are loops over
 * columns inside of blocks, and matrix products between them; eigenvalues and singular values are found by Jacobi's
 * method. Half-width floats are computed in float32.
 */
export { type CholeskyOptions, cholesky } from "./cholesky.js";
export { type EighOptions, eigh } from "./eigh.js";
export { type LuFactors, lu } from "./lu.js";
export { type QrOptions, qr } from "./qr.js";
export { type SvdOptions, singularValues, svd } from "./svd.js";
export { type TriangularSolveOptions, triangularSolve } from "./triangular.js";
