import { nativeGemmHere } from "#engines/products/available";
import { findBlas } from "#engines/products/blas";
import { environment } from "#platform/system";
import type { GemmStep } from "../../compiler/steps.js";
import type { WasmFeatures } from "../../compiler/wasm/features.js";
import { ConfigError } from "../../ir/errors.js";
import type { InstructionSet, ProductSets } from "../system/instructionSets.js";
import { settingOf } from "../system/setting.js";

/** Implementations of matrix products: our own machine code, a BLAS library of the system, or WebAssembly. */
export type GemmKind = "native" | "blas" | "wasm";

/** Which implementation multiplies the matrices of an engine. */
export type GemmChoice =
  | ({ readonly kind: "native" } & ProductSets)
  | { readonly kind: "blas"; readonly name: string; readonly path: string }
  | { readonly kind: "wasm" };

/** Values of `SHARDWISE_GEMM`: the implementation and, for machine code, its instructions. */
const SETTINGS: { readonly [setting: string]: { readonly kind: GemmKind; readonly set?: InstructionSet } } = {
  native: { kind: "native" },
  "native-avx512": { kind: "native", set: "AVX-512" },
  "native-avx2": { kind: "native", set: "AVX2" },
  "native-neon": { kind: "native", set: "NEON" },
  blas: { kind: "blas" },
  wasm: { kind: "wasm" },
};

/**
 * Chooses an implementation: the one that `asked` or `SHARDWISE_GEMM` names, else the BLAS that `SHARDWISE_BLAS`
 * names, else machine code if it can be loaded and passes its test, else a BLAS of the system, else WebAssembly.
 * Call it on the main thread, like `findBlas`.
 */
export function chooseGemm(asked: GemmKind | undefined): GemmChoice {
  const setting = asked ?? environment.SHARDWISE_GEMM;
  if (setting) return askedGemm(setting);
  const { SHARDWISE_BLAS } = environment;
  if (SHARDWISE_BLAS && SHARDWISE_BLAS !== "none") return blasGemm() ?? { kind: "wasm" };
  const native = nativeGemmHere();
  if ("set" in native) return { kind: "native", ...native };
  return blasGemm() ?? { kind: "wasm" };
}

/** Whether machine code computes a product; empty sums are too rare to have their own code. */
export function isInMachineCode(choice: GemmChoice, { k }: Pick<GemmStep, "k">): boolean {
  return choice.kind === "native" && k > 0;
}

/** Whether products take bfloat16 operands directly instead of converted to float32. */
export function takesBfloat16(choice: GemmChoice): boolean {
  return choice.kind === "native" && choice.bfloat16 !== undefined;
}

/** Whether one kernel of WebAssembly computes attention faster than these products and kernels between them. */
export function fusesAttention({ kind }: GemmChoice): boolean {
  return kind === "wasm";
}

/** Describes the implementation, for example `native AVX-512 (bfloat16: AMX)`. */
export function describeGemm(choice: GemmChoice, features: WasmFeatures): string {
  if (choice.kind === "native") {
    return `native ${choice.set}${choice.bfloat16 === undefined ? "" : ` (bfloat16: ${choice.bfloat16})`}`;
  }
  if (choice.kind === "blas") return `${choice.name} (${choice.path})`;
  return `WebAssembly SIMD${features.fma ? " with fused multiply-add" : ""}`;
}

function askedGemm(setting: string): GemmChoice {
  const wanted = settingOf("SHARDWISE_GEMM", setting, SETTINGS);
  if (wanted.kind === "wasm") return { kind: "wasm" };
  if (wanted.kind === "blas") {
    const blas = blasGemm();
    if (blas !== undefined) return blas;
    throw new ConfigError(
      `[createThreadsEngine] matrix products by "blas": no BLAS library was found; install one (on Debian libopenblas0-pthread), give its path as SHARDWISE_BLAS, or leave the choice out`,
    );
  }
  const native = nativeGemmHere(wanted.set);
  if ("set" in native) return { kind: "native", ...native };
  throw new ConfigError(
    `[createThreadsEngine] matrix products by "${setting}": ${native.unavailable}; use "blas" or "wasm", or leave the choice out`,
  );
}

function blasGemm(): GemmChoice | undefined {
  const blas = findBlas();
  return blas && { kind: "blas", name: blas.name, path: blas.path };
}
