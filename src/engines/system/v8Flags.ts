import { setFlagsFromString } from "node:v8";
import { detectFeatures } from "../../compiler/wasm/features.js";

/**
 * Switches relaxed SIMD on where it still hides behind a flag (Node 20), for the whole process.
 *
 * A newer V8 has it without the flag and complains on stderr about one that it does not know; what counts afterwards
 * is `detectFeatures`.
 */
export function enableRelaxedSimd(): void {
  if (!detectFeatures().fma && nodeMajor < 22) setFlag("--experimental-wasm-relaxed-simd");
}

const nodeMajor = Number(process.versions.node?.split(".")[0] ?? 0);

/** What makes V8 compile a whole module with the optimising compiler at once, and what undoes it. */
const atOnce = [
  ["--no-liftoff", "--liftoff"],
  ["--no-wasm-lazy-compilation", "--wasm-lazy-compilation"],
  // V8 14 looks for the counts of calls that only the other compiler would have made, and aborts without them.
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
    // A host without V8 flags (Bun, a frozen V8) compiles the usual way.
  }
}
