/** JAX's `scipy`: special functions, distributions, linear algebra, signals, transforms and minima. */
export * as cluster from "./cluster.js";
export * as fft from "./fft.js";
export * as integrate from "./integrate.js";
export * as interpolate from "./interpolate.js";
export * as linalg from "./linalg.js";
export * as ndimage from "./ndimage.js";
export * as optimize from "./optimize.js";
export * as signal from "./signal.js";
export * as sparse from "./sparse.js";
export * as special from "./special.js";
export * as stats from "./stats.js";
