/** JAX's `scipy.sparse`. */
export * as linalg from "./sparseSolvers.js";
