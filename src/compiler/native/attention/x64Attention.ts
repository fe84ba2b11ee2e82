import type { AttentionKernel } from "../../attention/attentionKernel.js";
import type { KernelTarget } from "../kernels/x64Kernel.js";
import { X64Machine } from "./x64Machine.js";

/** The code of an attention, with the arguments of a kernel that threads share; see `writeKernel`. */
export function writeAttention(
  kernel: AttentionKernel,
  target: KernelTarget,
  listing?: string[],
): Uint8Array<ArrayBuffer> {
  return new X64Machine(kernel, target, listing).write();
}
