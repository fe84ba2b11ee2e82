/** JAX's `scipy`: special functions and distributions. */
export * as special from "./special.js";
export * as stats from "./stats.js";
