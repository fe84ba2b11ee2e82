/** JAX's `scipy`: special functions, distributions, linear algebra, signals, transforms and minima. */

export * as linalg from "./linalg/linalg.js";
export * as sparse from "./linalg/sparse.js";
export * as fft from "./signal/fft.js";
export * as ndimage from "./signal/ndimage.js";
export * as signal from "./signal/signal.js";
export * as cluster from "./solvers/cluster.js";
export * as integrate from "./solvers/integrate.js";
export * as interpolate from "./solvers/interpolate.js";
export * as optimize from "./solvers/optimize.js";
export * as special from "./special/special.js";
export * as stats from "./stats/stats.js";
