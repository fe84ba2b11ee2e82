import { architecture } from "#platform/system";
import { ModuleBuilder } from "./assembler.js";

/** What the host's WebAssembly can do beyond fixed-width SIMD, which is required. */
export interface WasmFeatures {
  /** Whether relaxed SIMD is supported *and* its multiply-add rounds once. */
  readonly fma: boolean;
  /** Whether the processor has 16 registers for vectors, as x86 has, instead of 32. */
  readonly fewRegisters?: boolean;
  /**
   * Whether the target is a GPU instead, which has no float64, no host to call, and memory but no scratch rows: what
   * WebAssembly computes in float64 is a function of the target there, values are recomputed instead of kept, and
   * kernels add nothing up over their rows, which run side by side.
   */
  readonly gpu?: true;
}

/** The features every engine that runs fixed-width SIMD has. */
export const BASELINE_FEATURES: WasmFeatures = { fma: false };

/** GPUs, whose functions fuse products with sums by name: WGSL's `fma` rounds once wherever the GPU can. */
export const GPU_FEATURES: WasmFeatures = { fma: true, gpu: true };

/**
 * Detects what the host supports by compiling and running small modules.
 *
 * The specification allows relaxed SIMD not to fuse, so the answer rests on a computed value.
 */
export function detectFeatures(): WasmFeatures {
  const fewRegisters = ["x64", "ia32"].includes(architecture);
  return { fma: multiplyAddIsFused("f32x4.relaxed_madd"), fewRegisters };
}

function multiplyAddIsFused(op: "f32x4.relaxed_madd"): boolean {
  const builder = new ModuleBuilder();
  builder.function(
    { params: ["f32", "f32", "f32"], results: ["f32"] },
    (code) => {
      for (const index of [0, 1, 2]) code.get(code.param(index)).vector("f32x4.splat");
      code.vector(op).lane("f32x4.extract_lane", 0);
    },
    "multiplyAdd",
  );
  const bytes = builder.toBytes();
  if (!WebAssembly.validate(bytes)) return false;
  const { multiplyAdd } = new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports;
  if (typeof multiplyAdd !== "function") return false;
  const step = 2 ** -23;
  return multiplyAdd(1 + step, 1 - step, -1) === -(2 ** -46);
}
