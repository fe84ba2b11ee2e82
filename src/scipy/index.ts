/** JAX's `scipy`: special functions, distributions and linear algebra. */
export * as linalg from "./linalg.js";
export * as special from "./special.js";
export * as stats from "./stats.js";
