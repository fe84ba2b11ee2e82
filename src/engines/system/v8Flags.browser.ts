import type * as node from "./v8Flags.js";

/** Browsers have relaxed SIMD or have it not. */
export const enableRelaxedSimd: typeof node.enableRelaxedSimd = () => {};

export const compileWasmModule: typeof node.compileWasmModule = (bytes) => new WebAssembly.Module(bytes);
