/** Advice to the operating system about the pages of shared memories. All of it is optional. */

import { loadKoffi } from "./koffi.js";
import { nativeAddress, releaseNativeAddress } from "./nativeAddress.js";

/** Linux's values of the advice for `madvise`. */
const ADVICE = { dontNeed: 4, hugePages: 14 } as const;

/**
 * Returns the physical memory of a shared memory to the system, now instead of when the last thread's garbage
 * collector finds it; nothing may read it afterwards.
 */
export function discardPages(memory: WebAssembly.Memory): void {
  advise(memory, "dontNeed");
}

/**
 * Asks for pages of 2 MiB: tensors are read from end to end, and with pages of 4 KiB the processor spends its time
 * on address translation.
 */
export function wantHugePages(memory: WebAssembly.Memory): void {
  advise(memory, "hugePages");
}

function advise(memory: WebAssembly.Memory, advice: keyof typeof ADVICE): void {
  if (process.platform !== "linux") return;
  const koffi = loadKoffi();
  if (koffi === undefined) return;
  try {
    const madvise = koffi.load(null).func("madvise", "int", ["uintptr_t", "size_t", "int"]);
    madvise(nativeAddress(memory), memory.buffer.byteLength, ADVICE[advice]);
  } catch {
    // The C library does not have it.
  } finally {
    releaseNativeAddress(memory);
  }
}
