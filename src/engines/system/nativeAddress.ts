import { loadKoffi } from "./koffi.js";

const roots = new Set<WebAssembly.Memory>();

/**
 * The native address of a shared memory's first byte, for adding to offsets.
 *
 * A number keeps nothing alive, so the memory itself is kept until `releaseNativeAddress`. Only shared
 * memories are taken: they never move when they grow.
 */
export function nativeAddress(memory: WebAssembly.Memory): number {
  if (!(memory.buffer instanceof SharedArrayBuffer)) {
    throw new TypeError(
      "[nativeAddress] the memory is not shared, so growing would move it: create it with shared: true",
    );
  }
  const koffi = loadKoffi();
  if (koffi === undefined) throw new Error("[nativeAddress] needs the package koffi, which does not load");
  roots.add(memory);
  return Number(koffi.address(new Uint8Array(memory.buffer)));
}

/** Releases a memory whose native address is no longer used. */
export function releaseNativeAddress(memory: WebAssembly.Memory): void {
  roots.delete(memory);
}
