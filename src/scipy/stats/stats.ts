/** JAX's `scipy.stats`: distributions, and what samples tell. */
export * from "./continuous.js";
export * from "./discrete.js";
export type { Continuous, Discrete, Fixed } from "./families.js";
export * from "./multivariate.js";
export * from "./samples.js";
