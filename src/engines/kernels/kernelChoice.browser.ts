import type * as node from "./kernelChoice.js";

/** In browsers all kernels are WebAssembly. */
export const chooseKernels: typeof node.chooseKernels = () => undefined;

/** So is attention. */
export const attentionHere: typeof node.attentionHere = undefined;
