import type * as node from "./system.js";

/** What stands for environment variables in a page: the strings of the global object `shardwiseEnvironment`. */
declare global {
  var shardwiseEnvironment: Readonly<Record<string, string | undefined>> | undefined;
}

export const environment: typeof node.environment = globalThis.shardwiseEnvironment ?? {};

export const userCache: typeof node.userCache = () => "";

/** Browsers do not tell the processor, but the NaN that x86 makes itself has its sign set, and that of ARM has not. */
export const architecture: typeof node.architecture = (() => {
  const number = new Float32Array([Number.POSITIVE_INFINITY]);
  number[0] = (number[0] ?? 0) - (number[0] ?? 0);
  return (new Int32Array(number.buffer)[0] ?? 0) < 0 ? "x64" : "arm64";
})();

export const describeRuntime: typeof node.describeRuntime = () => "this browser";

export const nodeMajor: typeof node.nodeMajor = Number.POSITIVE_INFINITY;

export const numCores: typeof node.numCores = () => navigator.hardwareConcurrency || 1;

export const whoAmI: typeof node.whoAmI = () => ({ host: globalThis.location?.host || "browser", pid: 0 });

export const mapsStacks: typeof node.mapsStacks = () => false;

const isIsolated = globalThis.crossOriginIsolated === true;

/** WebKit for GTK may have pages that are isolated and no shared memory all the same. */
export const sharesMemory: typeof node.sharesMemory = () =>
  isIsolated && typeof SharedArrayBuffer !== "undefined";

export const whyNotShared: typeof node.whyNotShared = isIsolated
  ? "this browser has no SharedArrayBuffer"
  : "this page is not cross-origin isolated";

export const howToShare: typeof node.howToShare = isIsolated
  ? "use a browser that has it"
  : "serve the page with the headers Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp";

/** The thread of a page may never block; workers may where memory can be shared. */
export const mayBlock: typeof node.mayBlock = () =>
  typeof document === "undefined" && typeof SharedArrayBuffer !== "undefined";

/** A page shows progress itself. */
export const standardError: typeof node.standardError = () => ({ write: () => true });

export const nextTurn: typeof node.nextTurn = () => new Promise((resolve) => setTimeout(resolve));

export const warn: typeof node.warn = (text) => console.warn(text);

/** A page that is only put away to come back (`persisted`) has not ended. */
export const beforeExit: typeof node.beforeExit = (leave) => {
  const listener = (event: PageTransitionEvent): void => {
    if (!event.persisted) leave();
  };
  globalThis.addEventListener?.("pagehide", listener);
  return () => globalThis.removeEventListener?.("pagehide", listener);
};

export const backgroundTimer: typeof node.backgroundTimer = (action, ms) => {
  const timer = setTimeout(action, ms);
  return () => clearTimeout(timer);
};

export const backgroundInterval: typeof node.backgroundInterval = (action, ms) => {
  const timer = setInterval(action, ms);
  return () => clearInterval(timer);
};
