import { environment } from "#platform/system";
import { nativeAttention } from "../../compiler/attention/attentionKernel.js";
import { type AttentionSteps, attentionAs } from "../../compiler/lower/lowerAttention.js";
import { ConfigError } from "../../ir/errors.js";
import { finder } from "../system/instructionSets.js";
import { settingOf } from "../system/setting.js";
import { computesRight, type KernelChoice } from "./kernelTest.js";

export type { KernelChoice } from "./kernelTest.js";

/** Attention as one kernel of machine code. */
export const attentionHere: AttentionSteps | undefined = attentionAs(nativeAttention);

/**
 * The best machine code for kernels whose results are those of WebAssembly, or the one asked for; found once.
 * Vectors no wider than WebAssembly's gain nothing, so there are no kernels for NEON.
 */
export const nativeKernelsHere = finder<KernelChoice>(
  [
    { set: "AVX-512", bits: 512 },
    { set: "AVX2", bits: 256 },
  ],
  computesRight,
  "AVX2",
);

/** Values of `SHARDWISE_KERNELS`: the implementation of fused kernels and, for machine code, its instructions. */
const SETTINGS: { readonly [setting: string]: KernelChoice["set"] | "best" | "none" } = {
  native: "best",
  "native-avx512": "AVX-512",
  "native-avx2": "AVX2",
  wasm: "none",
};

/**
 * Decides how fused kernels are computed: as `SHARDWISE_KERNELS` says, else in machine code if it can be loaded, has
 * wider vectors than WebAssembly and passes its test. Undefined means WebAssembly. Call it on the main thread.
 */
export function chooseKernels(): KernelChoice | undefined {
  const setting = environment.SHARDWISE_KERNELS;
  const wanted = setting ? settingOf("SHARDWISE_KERNELS", setting, SETTINGS) : "best";
  if (wanted === "none") return undefined;
  const found = nativeKernelsHere(wanted === "best" ? undefined : wanted);
  if (!("unavailable" in found)) return found;
  if (!setting) return undefined;
  throw new ConfigError(
    `[createThreadsEngine] kernels by "${setting}": ${found.unavailable}; use "wasm", or leave the choice out`,
  );
}
