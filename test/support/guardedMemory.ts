import { loadKoffi } from "../../src/engines/system/koffi.js";

/** Memory between two pages that nobody may touch. */
export interface GuardedMemory {
  /** The addresses of its first byte and behind its last. */
  readonly start: number;
  readonly end: number;
  /** All of it. */
  readonly bytes: ArrayBuffer;
  release(): void;
}

/** At least a page on every system. */
const PAGE = 65536;

/** Maps memory with forbidden pages on both sides; on Linux, where koffi loads. */
export function mapGuarded(bytes: number): GuardedMemory {
  const koffi = loadKoffi();
  if (koffi === undefined) throw new Error("guarded memory needs koffi");
  const libc = koffi.load(null);
  const mmap = libc.func("mmap", "uintptr_t", ["uintptr_t", "size_t", "int", "int", "int", "int64_t"]);
  const mprotect = libc.func("mprotect", "int", ["uintptr_t", "size_t", "int"]);
  const munmap = libc.func("munmap", "int", ["uintptr_t", "size_t"]);
  const size = Math.ceil(bytes / PAGE) * PAGE;
  // Private and anonymous, nothing allowed; then readable and writable between the guards.
  const at = Number(mmap(0, size + 2 * PAGE, 0, 0x22, -1, 0));
  if (mprotect(at + PAGE, size, 3) !== 0) throw new Error("mprotect failed");
  return {
    start: at + PAGE,
    end: at + PAGE + size,
    bytes: koffi.view(BigInt(at + PAGE), size),
    release: () => munmap(at, size + 2 * PAGE),
  };
}
