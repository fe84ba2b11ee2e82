import { setFlagsFromString } from "node:v8";
import { createContext, runInNewContext, Script } from "node:vm";
import type { Collector } from "../ir/reclaim.js";

/**
 * Node's garbage collector on demand.
 *
 * A weak reference keeps its target until the microtasks of the current task are done. A context with a queue of
 * microtasks of its own releases such targets whenever a script has run in it, even in the middle of a task.
 */
export function createCollector(): Collector {
  const context = createContext({}, { microtaskMode: "afterEvaluate" });
  const nothing = new Script("0");
  return {
    letGo: () => {
      nothing.runInContext(context);
    },
    collect: collectOnDemand(),
  };
}

/** What to collect: everything, or only young objects, which takes a fraction of a millisecond. */
export type CollectionExtent = "all" | "young";

/** Makes a collector, which finds unreachable objects of this thread and releases what they held. */
export function collectOnDemand(): (extent?: CollectionExtent) => void {
  let collect: ((extent: CollectionExtent) => void) | undefined;
  return (extent = "all") => {
    collect ??= exposedCollect();
    collect?.(extent);
  };
}

/** The runtime's `gc` function; undefined if there is none, or if another thread has just cleared the flag. */
function exposedCollect(): ((extent: CollectionExtent) => void) | undefined {
  const { gc } = globalThis;
  if (typeof gc === "function") return (extent) => void gc(...argumentsFor(extent));
  const bun: unknown = Reflect.get(globalThis, "Bun");
  if (isBun(bun)) return () => bun.gc(true);
  // The flag only adds a function to contexts made while it is set.
  setFlagsFromString("--expose-gc");
  try {
    const collect: unknown = runInNewContext("typeof gc === 'function' ? gc : undefined");
    return typeof collect === "function" ? (extent) => void collect(...argumentsFor(extent)) : undefined;
  } finally {
    setFlagsFromString("--no-expose-gc");
  }
}

// Without arguments all unreachable objects are found; `true` asks for a collection of young objects only.
const argumentsFor = (extent: CollectionExtent): [minor?: boolean] => (extent === "all" ? [] : [true]);

interface Bun {
  /** Collects at once when it is told to wait. */
  gc(waits: boolean): void;
}

function isBun(value: unknown): value is Bun {
  return typeof value === "object" && value !== null && "gc" in value && typeof value.gc === "function";
}
