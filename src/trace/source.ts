import { mapsStacks } from "#platform/system";
import { Ambient } from "../ir/ambient.js";
import { need } from "../ir/arguments.js";
import { bundleFile, pathInLibrary } from "../ir/frames.js";
import type { SourceLocation } from "../ir/program.js";
import { at } from "../ir/shape.js";

/** Parts of the library whose frames say how something is computed, but not what for. */
const plumbing = /^(ir|trace|transforms|spmd|lax|numpy|random|nn|optim|parallel)\//;

/** Maximum number of frames to examine. */
const deepest = 30;

/**
 * Number of frames to examine first: all of them take three times as long, and the user's is usually at the same depth
 * as before.
 */
let usual = 8;
const reserve = 4;

/** Names of equations say where they come from, not what they compute. */
const unkeyed = "it only names equations; those of a kept trace have the names under which they were traced";

const currentModule = new Ambient<string | undefined>({
  name: "module path",
  initial: undefined,
  setBy: "a module",
  dependence: { unkeyed },
});

/** Runs `fn` so that equations recorded meanwhile carry the path of a module. */
export function inModule<T>(path: string, fn: () => T): T {
  return currentModule.within(path === "" ? undefined : path, fn);
}

const currentScopes = new Ambient<readonly string[]>({
  name: "scope name",
  initial: [],
  setBy: "namedScope",
  dependence: { unkeyed },
});

/**
 * Runs `fn` so that equations recorded meanwhile carry a name, before the paths of modules: in printed programs,
 * traces and errors.
 *
 * ```ts
 * const scores = namedScope("scores", () => np.matmul(q, k));
 * ```
 *
 * @example
 * ```ts
 * namedScope("double", () => np.array([1, 2]).mul(2)); // [2, 4]
 * ```
 */
export function namedScope<T>(name: string, fn: () => T): T {
  need("string", name, "the name", "namedScope");
  need("function", fn, "fn", "namedScope");
  return currentScopes.within([...currentScopes.get(), name], fn);
}

/** The names of the scopes and modules around the current code. */
function currentPath(): string | undefined {
  const [scopes, module] = [currentScopes.get(), currentModule.get()];
  if (scopes.length === 0) return module;
  return [...scopes, ...(module === undefined ? [] : [module])].join("/");
}

/**
 * The current location in user code. It is formatted immediately: a retained `Error` would keep the functions of its
 * frames, and everything they close over, alive as long as the program.
 */
export function captureSource(): SourceLocation {
  return { text: userFrame(), module: currentPath() };
}

/** Whose code a frame is; `nobody` stands for the runtime, for code outside of files and for bundles with the library. */
type Owner = "user" | "model" | "plumbing" | "nobody";

/** The chosen frame. */
interface Chosen<T> {
  readonly caller: T | undefined;
  /** Its depth, if it is user code: no outer frame would be chosen instead. */
  readonly foundAt?: number;
}

/** The frame to report as the user's; the library's own models and losses count where there is no other code. */
function chooseCaller<T>(
  callers: readonly T[],
  fileOf: (caller: T) => string,
  awaits: (caller: T) => boolean,
): Chosen<T> {
  let model: T | undefined;
  let awaiting: T | undefined;
  for (let foundAt = 0; foundAt < callers.length; foundAt++) {
    const caller = at(callers, foundAt);
    const owner = ownerOf(fileOf(caller));
    if (owner === "user" && !awaits(caller)) return { caller, foundAt };
    if (owner === "user") awaiting ??= caller;
    if (owner === "model") model ??= caller;
  }
  return { caller: model ?? awaiting };
}

const ownerOf = remembered((file: string): Owner => {
  if (file === "" || file.startsWith("node:")) return "nobody";
  if (bundleFile !== undefined && file.includes(bundleFile)) return "nobody";
  const path = pathInLibrary(file);
  if (path === undefined) return "user";
  return plumbing.test(path) ? "plumbing" : "model";
});

/** Maximum number of files and lines to cache; programs have fewer, unless they generate code. */
const maxRemembered = 8192;

/** Memoises a function of strings: every equation asks for the same few again. */
function remembered<T, Rest extends readonly unknown[]>(fn: (text: string, ...rest: Rest) => T) {
  const known = new Map<string, T>();
  return (text: string, ...rest: Rest): T => {
    const before = known.get(text);
    if (before !== undefined) return before;
    if (known.size === maxRemembered) known.clear();
    const value = fn(text, ...rest);
    known.set(text, value);
    return value;
  };
}

/** How many stacks in a row had no frame outside of the bundle; after so many its user's code is in it, too. */
let misses = 0;
const maxMisses = 16;

function userFrame(): string {
  if (misses === maxMisses) return "unknown source";
  const limit = Error.stackTraceLimit;
  try {
    // Only the runtime itself maps all frames back to their sources.
    const line = mapsStacks() ? frameOfText() : frameOfCallSites();
    misses = bundleFile !== undefined && line === undefined ? misses + 1 : 0;
    return (
      line
        ?.trim()
        .replace(/^at\s+/, "")
        .replace("file://", "") ?? "unknown source"
    );
  } finally {
    Error.stackTraceLimit = limit;
  }
}

/** The user's frame from the formatted stack. */
function frameOfText(): string | undefined {
  Error.stackTraceLimit = deepest;
  const lines = (new Error().stack ?? "").split("\n").slice(1);
  const isPlace = (line: string) => /:\d+:\d+/.test(line) && !line.includes("node:");
  return chooseCaller(
    lines,
    (line) => (isPlace(line) ? line : ""),
    (line) => /^\s*at async /.test(line),
  ).caller;
}

/** The user's frame from structured call sites, only one of which is formatted. */
function frameOfCallSites(): string | undefined {
  let found = frameAmong(usual);
  if (found.foundAt === undefined && usual < deepest) found = frameAmong(deepest);
  usual = Math.min(deepest, (found.foundAt ?? deepest) + reserve);
  return found.caller;
}

/** The object that receives the stack; an Error, because hooks of tools (and Bun's own) refuse other objects. */
const holder: { stack?: unknown } = new Error();

function frameAmong(numCallers: number): Chosen<string> {
  const { prepareStackTrace } = Error;
  let foundAt: number | undefined;
  Error.stackTraceLimit = numCallers;
  Error.prepareStackTrace = (error, sites) => {
    const chosen = chooseCaller(
      sites,
      // Code without a file, such as that of a page's editor, may say what it is called.
      (caller) => caller.getScriptNameOrSourceURL() ?? "",
      (caller) => caller.isAsync(),
    );
    const { caller: site } = chosen;
    foundAt = chosen.foundAt;
    if (site === undefined || (foundAt === undefined && numCallers < deepest)) return undefined;
    return prepareStackTrace ? toldBy(prepareStackTrace)(String(site), error, site) : String(site);
  };
  try {
    Error.captureStackTrace(holder);
    const caller = typeof holder.stack === "string" ? holder.stack : undefined;
    return foundAt === undefined ? { caller } : { caller, foundAt };
  } finally {
    Error.prepareStackTrace = prepareStackTrace;
  }
}

type Hook = NonNullable<typeof Error.prepareStackTrace>;
type Telling = (text: string, error: Error, site: NodeJS.CallSite) => string;

const tellings = new WeakMap<Hook, Telling>();

/** Tools that compile sources on load report mapped lines through a hook, which is slow. */
function toldBy(hook: Hook): Telling {
  const known = tellings.get(hook);
  if (known) return known;
  const telling: Telling = remembered((_, error, site: NodeJS.CallSite) => {
    const lines = String(hook(error, [site])).split("\n");
    return lines.at(-1) ?? "";
  });
  tellings.set(hook, telling);
  return telling;
}
