import { nativeAddress, releaseNativeAddress } from "./blas.js";
import { loadKoffi } from "./koffi.js";

const DONT_NEED = 4;

/**
 * Gives the real memory of a shared memory back to the system, now instead of when the last thread's garbage
 * collector has found it; nothing may read it any more. Where that cannot be said to the system it happens then.
 */
export function discardPages(memory: WebAssembly.Memory): void {
  if (process.platform !== "linux") return;
  const koffi = loadKoffi();
  if (koffi === undefined) return;
  try {
    const advise = koffi.load(null).func("madvise", "int", ["uintptr_t", "size_t", "int"]);
    advise(nativeAddress(memory), memory.buffer.byteLength, DONT_NEED);
  } catch {
    // A C library without it: the garbage collector comes later.
  } finally {
    releaseNativeAddress(memory);
  }
}
