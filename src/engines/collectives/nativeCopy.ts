import { InternalError } from "../../ir/errors.js";
import { at } from "../../ir/shape.js";
import { loadKoffi } from "../system/koffi.js";
import type { CopyBetween } from "./peers.js";

/**
 * Copies between the memories of devices by the C library: JavaScript copies memory that threads share word by word,
 * at half the speed. Undefined where the library cannot be called.
 */
export function nativeCopy(memories: readonly WebAssembly.Memory[]): CopyBetween | undefined {
  const koffi = loadKoffi();
  if (koffi === undefined || new Set(memories).size === 1) return undefined;
  try {
    const memcpy = koffi.load(null).func("memcpy", "void", ["uintptr_t", "uintptr_t", "size_t"]);
    // The function keeps the memories, which do not move, alive as long as it is alive itself.
    const places = memories.map((memory) => ({
      memory,
      base: Number(koffi.address(new Uint8Array(memory.buffer))),
      end: memory.buffer.byteLength,
    }));
    return (to, target, from, source, bytes) => {
      const [into, out] = [at(places, to), at(places, from)];
      if (target < 0 || source < 0 || target + bytes > into.end || source + bytes > out.end) {
        throw new InternalError(
          `[threads] ${bytes} bytes from ${source} of device ${from} to ${target} of device ${to} are outside of their memories of ${out.end} and ${into.end} bytes`,
        );
      }
      memcpy(into.base + target, out.base + source, bytes);
    };
  } catch {
    // The C library's functions cannot be looked up: JavaScript copies.
    return undefined;
  }
}
