import { setFlagsFromString } from "node:v8";

/**
 * Switches relaxed SIMD on where it still hides behind a flag (Node 20), for the whole process.
 *
 * V8 ignores flags it does not know, so what counts afterwards is `detectFeatures`.
 */
export function enableRelaxedSimd(): void {
  setFlag("--experimental-wasm-relaxed-simd");
}

/**
 * Compiles a module with the optimising compiler at once, so that the first call runs at full speed.
 *
 * The flags are V8's own and undocumented: where they are missing the module is compiled as usual.
 */
export function compileWasmModule(bytes: BufferSource): WebAssembly.Module {
  setFlag("--no-liftoff");
  setFlag("--no-wasm-lazy-compilation");
  try {
    return new WebAssembly.Module(bytes);
  } finally {
    setFlag("--liftoff");
    setFlag("--wasm-lazy-compilation");
  }
}

function setFlag(flag: string): void {
  try {
    setFlagsFromString(flag);
  } catch {
    // A host without V8 flags (Bun, a frozen V8) compiles the usual way.
  }
}
