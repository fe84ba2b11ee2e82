/** JAX's `scipy.linalg`. */
export * from "./decompositions.js";
export * from "./matrices.js";
export * from "./schur.js";
