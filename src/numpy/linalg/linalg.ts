/** Linear algebra; used as `np.linalg`. Matrices are the last two dims, all others are a batch. */

export { matrixTranspose } from "../arrays/shaping.js";
export { cross, matmul, outer, tensordot, vecdot } from "./contraction.js";
export * from "./decompositions.js";
export { diagonal, trace } from "./diagonals.js";
export * from "./matrixProducts.js";
export * from "./norms.js";
export * from "./solving.js";
