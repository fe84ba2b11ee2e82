/** JAX's `scipy.cluster`. */
export * as vq from "./vq.js";
