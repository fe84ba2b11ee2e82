import { setFlagsFromString } from "node:v8";
import { detectFeatures } from "../../compiler/wasm/features.js";

/**
 * Enables relaxed SIMD for the whole process where it is still behind a flag (Node 20).
 *
 * A newer V8 has it without the flag, and prints unknown flags on stderr. Use `detectFeatures` to find out whether it
 * is there.
 */
export function enableRelaxedSimd(): void {
  if (!detectFeatures().fma && nodeMajor < 22) setFlag("--experimental-wasm-relaxed-simd");
}

const nodeMajor = Number(process.versions.node?.split(".")[0] ?? 0);

/** Flags that make V8 compile a whole module with the optimising compiler at once, and those that undo it. */
const atOnce = [
  ["--no-liftoff", "--liftoff"],
  ["--no-wasm-lazy-compilation", "--wasm-lazy-compilation"],
  // V8 14 expects call counts that only the baseline compiler collects, and aborts without them.
  ...(nodeMajor >= 25 ? [["--no-wasm-inlining", "--wasm-inlining"] as const] : []),
] as const;

/**
 * Compiles a module with the optimising compiler at once, so that the first call runs at full speed.
 *
 * The flags are V8's own and undocumented: where they are missing the module is compiled as usual.
 */
export function compileWasmModule(bytes: BufferSource): WebAssembly.Module {
  for (const [set] of atOnce) setFlag(set);
  try {
    return new WebAssembly.Module(bytes);
  } finally {
    for (const [, unset] of atOnce) setFlag(unset);
  }
}

function setFlag(flag: string): void {
  try {
    setFlagsFromString(flag);
  } catch {
    // A host without V8 flags (Bun, a frozen V8) compiles as usual.
  }
}
