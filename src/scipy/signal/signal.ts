/** JAX's `scipy.signal`. */
export * from "./filters.js";
export * from "./spectral.js";
