import { isMainThread } from "node:worker_threads";
import { requirePackage } from "#platform/modules";
import { lazily } from "../../ir/identity.js";

/** The package that calls native functions. */
export type Koffi = typeof import("koffi");

/**
 * Native code runs on stacks that koffi makes, 128 KiB for calls on other threads, where XLA's compiler ends the
 * process. The sizes hold for a whole thread and only before its first library, so they are set here for all.
 */
const stacks = { sync_stack_size: 16 << 20, async_stack_size: 16 << 20, resident_async_pools: 2 };

/** The FFI, or nothing where it is not installed and on platforms it has no binary for. */
export const loadKoffi = lazily((): Koffi | undefined => {
  try {
    const koffi = requirePackage("koffi") as Koffi | undefined;
    if (isMainThread) koffi?.config(stacks);
    return koffi;
  } catch {
    return undefined;
  }
});
