import type * as node from "./kernelChoice.js";

/** Kernels are WebAssembly. */
export const chooseKernels: typeof node.chooseKernels = () => undefined;
