import type { LibraryPlan } from "../kernel/kernelLibrary.js";
import { writeAttention } from "./attention/x64Attention.js";
import { type KernelTarget, writeKernel } from "./kernels/x64Kernel.js";

/** The machine code of a kernel of a program, or undefined if it stays WebAssembly. */
export function writeKernelCode(
  plan: LibraryPlan,
  isDivided: boolean,
  target: KernelTarget,
): Uint8Array<ArrayBuffer> | undefined {
  return "kind" in plan ? writeAttention(plan, target) : writeKernel(plan, isDivided, target);
}
