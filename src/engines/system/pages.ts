/** What the system is told about the pages of shared memories, where it listens; without that all goes on, too. */

import { loadKoffi } from "./koffi.js";
import { nativeAddress, releaseNativeAddress } from "./nativeAddress.js";

/** Linux's numbers of what `madvise` is told. */
const ADVICE = { dontNeed: 4, hugePages: 14 } as const;

/**
 * Gives the real memory of a shared memory back to the system, now instead of when the last thread's garbage
 * collector has found it; nothing may read it any more.
 */
export function discardPages(memory: WebAssembly.Memory): void {
  advise(memory, "dontNeed");
}

/**
 * Asks for pages of 2 MiB: tensors are read from end to end, and with pages of 4 KiB the processor looks up one
 * address after the other.
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
    // A C library without it.
  } finally {
    releaseNativeAddress(memory);
  }
}
