import { createRequire } from "node:module";
import { isMainThread } from "node:worker_threads";
import { packagesFrom } from "#platform/modules";
import { lazily } from "../../ir/identity.js";

/** The package that calls native functions. */
export type Koffi = typeof import("koffi");

/**
 * Native code runs on stacks that koffi makes, 128 KiB for calls on other threads, where XLA's compiler ends the
 * process. The sizes hold for a whole thread and only before its first library, so they are set here for all.
 */
const stacks = { sync_stack_size: 16 << 20, async_stack_size: 16 << 20, resident_async_pools: 2 };

const name = "koffi";

/** The FFI, or nothing on platforms it has no binary for. */
export const loadKoffi = lazily((): Koffi | undefined => {
  try {
    const koffi = createRequire(packagesFrom(name) ?? "/")(name) as Koffi;
    if (isMainThread) koffi.config(stacks);
    return koffi;
  } catch {
    return undefined;
  }
});
