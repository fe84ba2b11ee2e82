import type * as node from "./system.js";

/** What stands for environment variables in a page: the strings of the global object `shardwiseEnvironment`. */
declare global {
  var shardwiseEnvironment: Readonly<Record<string, string | undefined>> | undefined;
}

export const environment: typeof node.environment = globalThis.shardwiseEnvironment ?? {};

/** Browsers name the processor in their user agent at best; what counts is how many vector registers it has. */
export const architecture: typeof node.architecture = /x86|x64|win64|wow64|amd64/i.test(navigator.userAgent)
  ? "x64"
  : "arm64";

export const describeRuntime: typeof node.describeRuntime = () => "this browser";

export const nodeMajor: typeof node.nodeMajor = Number.POSITIVE_INFINITY;

export const numCores: typeof node.numCores = () => navigator.hardwareConcurrency || 1;

export const whoAmI: typeof node.whoAmI = () => ({ host: globalThis.location?.host || "browser", pid: 0 });

export const mapsStacks: typeof node.mapsStacks = () => false;

/** The thread of a page may never block; workers may where memory can be shared. */
export const mayBlock: typeof node.mayBlock = () =>
  typeof document === "undefined" && typeof SharedArrayBuffer !== "undefined";

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
