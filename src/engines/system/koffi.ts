import { isMainThread } from "node:worker_threads";
import { requirePackage } from "#platform/modules";
import { lazily } from "../../ir/identity.js";

/** The package that calls native functions. */
export type Koffi = typeof import("koffi");

/**
 * Native code runs on stacks that koffi allocates, 128 KiB for calls on other threads, which XLA's compiler overflows.
 * The sizes apply to a whole thread and can only be set before its first library, so they are set here for all.
 */
const stacks = { sync_stack_size: 16 << 20, async_stack_size: 16 << 20, resident_async_pools: 2 };

/** The FFI; undefined if it is not installed or has no binary for this platform. */
export const loadKoffi = lazily((): Koffi | undefined => {
  try {
    const koffi = requirePackage("koffi") as Koffi | undefined;
    if (isMainThread) koffi?.config(stacks);
    return koffi;
  } catch {
    return undefined;
  }
});
