import type * as node from "./v8Flags.js";

/** Browsers have relaxed SIMD or not; there is no flag to set. */
export const enableRelaxedSimd: typeof node.enableRelaxedSimd = () => {};

export const compileWasmModule: typeof node.compileWasmModule = (bytes) => new WebAssembly.Module(bytes);
