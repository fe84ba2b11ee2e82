import { type AttentionKernel, isBackward } from "../../kernel/attentionKernel.js";
import type { AddressType } from "../../wasm/addresses.js";
import { BackwardCode } from "./x64Backward.js";
import { ForwardCode } from "./x64Forward.js";

/** The code of an attention, with the arguments of a kernel that threads share; see `writeKernel`. */
export function writeAttention(
  kernel: AttentionKernel,
  addressType: AddressType,
  listing?: string[],
): Uint8Array<ArrayBuffer> {
  const Code = isBackward(kernel) ? BackwardCode : ForwardCode;
  return new Code(kernel, addressType, listing).write();
}
