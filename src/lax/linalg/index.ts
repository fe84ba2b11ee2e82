/**
 * JAX's `lax.linalg`: decompositions of batches of matrices, with derivatives, on every engine. They are loops over
 * columns inside of blocks, and matrix products between them; singular values and eigenvalues of symmetric matrices are
 * found by Jacobi's method, other eigenvalues by shifted QR sweeps. Half-width floats are computed in float32.
 */
export { type CholeskyOptions, cholesky } from "./cholesky.js";
export { type Eigenpairs, eig, eigenvalues } from "./eig.js";
export { type EighOptions, eigh } from "./eigh.js";
export { type LuFactors, lu } from "./lu.js";
export { type QrOptions, qr } from "./qr.js";
export { type SvdOptions, singularValues, svd } from "./svd.js";
export { type TriangularSolveOptions, triangularSolve } from "./triangular.js";
