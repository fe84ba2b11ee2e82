/** JAX's `scipy`: special functions, distributions, linear algebra and signals. */
export * as integrate from "./integrate.js";
export * as linalg from "./linalg.js";
export * as ndimage from "./ndimage.js";
export * as signal from "./signal.js";
export * as special from "./special.js";
export * as stats from "./stats.js";
