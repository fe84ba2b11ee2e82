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
  return {
    letGo: () => {
      nothing.runInContext(context);
    },
    collect: collectOnDemand(),
  };
}

/** What to look at: everything, or only what was made lately, which takes a fraction of a millisecond. */
export type Extent = "all" | "young";

/** Makes what finds unreachable objects of this thread, and gives back what they held. */
export function collectOnDemand(): (extent?: Extent) => void {
  let collect: ((extent: Extent) => void) | undefined;
  return (extent = "all") => {
    collect ??= exposedCollect();
    collect?.(extent);
  };
}

/** The runtime's own function; nothing where there is none, or when another thread has just taken the flag back. */
function exposedCollect(): ((extent: Extent) => void) | undefined {
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

// Only without arguments is everything unreachable found; a true one asks for the young.
const argumentsFor = (extent: Extent): [minor?: boolean] => (extent === "all" ? [] : [true]);

interface Bun {
  /** Collects at once when it is told to wait. */
  gc(waits: boolean): void;
}

function isBun(value: unknown): value is Bun {
  return typeof value === "object" && value !== null && "gc" in value && typeof value.gc === "function";
}
