import { setFlagsFromString } from "node:v8";
import { createContext, runInNewContext, Script } from "node:vm";
import type { Collector } from "../ir/reclaim.js";

/**
 * Node's garbage collector on demand.
 *
 * A weak reference keeps its target until the microtasks of the current task are done. A context with a queue of
 * microtasks of its own ends such a stretch whenever a script has run in it, in the middle of any task.
 */
export function createCollector(): Collector {
  const context = createContext({}, { microtaskMode: "afterEvaluate" });
  const nothing = new Script("0");
  let collect: (() => void) | undefined;
  return {
    letGo: () => {
      nothing.runInContext(context);
    },
    collect: () => {
      collect ??= exposedCollect();
      collect();
    },
  };
}

function exposedCollect(): () => void {
  if (typeof globalThis.gc === "function") return globalThis.gc;
  const bun: unknown = Reflect.get(globalThis, "Bun");
  if (isBun(bun)) return () => bun.gc(true);
  // The flag only adds a function to contexts made while it is set.
  setFlagsFromString("--expose-gc");
  try {
    const collect: unknown = runInNewContext("typeof gc === 'function' ? gc : undefined");
    return typeof collect === "function" ? () => void collect() : () => {};
  } finally {
    setFlagsFromString("--no-expose-gc");
  }
}

interface Bun {
  /** Collects at once when it is told to wait. */
  gc(waits: boolean): void;
}

function isBun(value: unknown): value is Bun {
  return typeof value === "object" && value !== null && "gc" in value && typeof value.gc === "function";
}
