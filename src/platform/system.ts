/** What the library asks of the system it runs on: this file for Node, Deno and Bun, `system.browser.ts` for browsers. */
import { availableParallelism, homedir, hostname } from "node:os";
import { join } from "node:path";

/** The environment variables. Those that Deno does not permit this program to read count as not set. */
export const environment: Readonly<Record<string, string | undefined>> =
  process.versions.deno === undefined ? process.env : new Proxy({}, { get: readPermitted });

function readPermitted(_: object, name: string): string | undefined {
  try {
    return process.env[name];
  } catch {
    return undefined;
  }
}

/** The user's folder for what can be computed again; an empty string where there is none. */
export function userCache(variables: Readonly<Record<string, string | undefined>> = environment): string {
  return join(variables.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "shardwise");
}

/** The architecture of the processor as Node names it: `x64`, `arm64` … */
export const architecture: string = process.arch;

/** The runtime and its version, for messages: "Node 20.19.0". */
export function describeRuntime(): string {
  const { node, ...others } = process.versions;
  const other = ["bun", "deno"].find((name) => others[name] !== undefined);
  return other === undefined ? `Node ${node}` : `${other} ${others[other]}`;
}

/** The major version of Node, or what the runtime says it is compatible with. */
export const nodeMajor = Number(process.versions.node?.split(".")[0] ?? 0);

// Package managers only warn, and what fails first would be some missing method.
if (nodeMajor < 20) throw new Error(`shardwise needs Node 20.19 or newer; this is ${describeRuntime()}`);

/** How many threads can compute at the same time. */
export const numCores: () => number = availableParallelism;

/** The name of this machine, and the number of this process on it. */
export function whoAmI(): { readonly host: string; readonly pid: number } {
  return { host: hostname(), pid: process.pid };
}

/** Whether the runtime maps the frames of stacks back to the sources that code was compiled from. */
export function mapsStacks(): boolean {
  return process.sourceMapsEnabled;
}

/** Whether threads can share memory. */
export const sharesMemory = (): boolean => typeof SharedArrayBuffer !== "undefined";

/** Why they cannot, where they cannot. */
export const whyNotShared: string = "this runtime has no SharedArrayBuffer";

/** What to do about it. */
export const howToShare: string =
  "use Node 20.19 or newer, or SHARDWISE_ENGINE=reference, which needs neither";

/** Whether this thread may block (`Atomics.wait`). */
export const mayBlock = (): boolean => true;

/** Where progress is shown unless something else is said. */
export function standardError(): {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
} {
  return process.stderr;
}

/** Gives everything that waits a turn. */
export const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Prints a warning. */
export function warn(text: string): void {
  process.emitWarning(text, "ShardwiseWarning");
}

const leaving = new Set<() => void>();

function leaveAll(): void {
  for (const leave of leaving) leave();
}

/** Calls a function when the program ends, before exit handlers that exist already; returns what removes it. */
export function beforeExit(leave: () => void): () => void {
  // One listener for all: Node warns of many.
  if (leaving.size === 0) process.prependListener("exit", leaveAll);
  leaving.add(leave);
  return () => {
    leaving.delete(leave);
    if (leaving.size === 0) process.off("exit", leaveAll);
  };
}

/** Calls a function after some milliseconds, if the program still runs then; returns what stops it. */
export function backgroundTimer(action: () => void, ms: number): () => void {
  const timer = setTimeout(action, ms).unref();
  return () => clearTimeout(timer);
}

/** Calls a function every `ms` milliseconds, as long as the program runs; returns what stops it. */
export function backgroundInterval(action: () => void, ms: number): () => void {
  const timer = setInterval(action, ms).unref();
  return () => clearInterval(timer);
}
