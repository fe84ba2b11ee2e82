import { need } from "../ir/arguments.js";
import { pathInLibrary } from "../ir/frames.js";
import type { SourceLocation } from "../ir/program.js";

/** Parts of the library that say how something is computed, but not what for. */
const plumbing = /^(ir|trace|transforms|spmd|lax|numpy|random|nn|optim|parallel)\//;

/** How many callers are looked at. */
const depth = 30;

let currentModule: string | undefined;

/** Runs `fn` so that equations recorded meanwhile carry the path of a module. */
export function inModule<T>(path: string, fn: () => T): T {
  const before = currentModule;
  currentModule = path === "" ? undefined : path;
  try {
    return fn();
  } finally {
    currentModule = before;
  }
}

let currentScopes: readonly string[] = [];

/**
 * Runs `fn` so that equations recorded meanwhile carry a name, before the paths of modules: in printed programs,
 * traces and errors.
 *
 * ```ts
 * const scores = namedScope("scores", () => np.matmul(q, k));
 * ```
 */
export function namedScope<T>(name: string, fn: () => T): T {
  need("text", name, "the name", "namedScope");
  need("function", fn, "fn", "namedScope");
  const before = currentScopes;
  currentScopes = [...before, name];
  try {
    return fn();
  } finally {
    currentScopes = before;
  }
}

/** The names around the code that runs now, those of scopes and of modules. */
function currentPath(): string | undefined {
  if (currentScopes.length === 0) return currentModule;
  return [...currentScopes, ...(currentModule === undefined ? [] : [currentModule])].join("/");
}

/**
 * Where the user's code is now. It is a text at once: an `Error` that is kept keeps the functions of its frames,
 * and with them everything they close over, for as long as the program lives.
 */
export function captureSource(): SourceLocation {
  return { text: userFrame(), module: currentPath() };
}

/** A caller: the file it is in, and whether it only awaits. */
interface Frame {
  readonly file: string;
  readonly awaits: boolean;
}

/** The caller that stands for the user: the library's own models and losses do where there is no other code. */
function chooseFrame<F extends Frame>(frames: readonly F[]): F | undefined {
  const places = frames.filter(({ file }) => file !== "" && !file.startsWith("node:"));
  return (
    places.find((frame) => !isLibrary(frame) && !frame.awaits) ??
    places.find((frame) => isLibrary(frame) && !isPlumbing(frame)) ??
    places.find((frame) => !isLibrary(frame))
  );
}

function isLibrary({ file }: Frame): boolean {
  return pathInLibrary(file) !== undefined;
}

function isPlumbing({ file }: Frame): boolean {
  return plumbing.test(pathInLibrary(file) ?? "");
}

function userFrame(): string {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = depth;
  try {
    // Only the runtime itself maps all frames back to the sources they were compiled from.
    const line = process.sourceMapsEnabled ? frameOfText() : frameOfCallSites();
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
  const lines = (new Error().stack ?? "").split("\n").slice(1);
  const frames = lines.map((line) => ({
    line,
    file: /:\d+:\d+/.test(line) && !line.includes("node:") ? line : "",
    awaits: /^\s*at async /.test(line),
  }));
  return chooseFrame(frames)?.line;
}

/** Where callers are written down; an error, because hooks of tools (and Bun's own) refuse other objects. */
const holder: { stack?: unknown } = new Error();

/** The user's frame from the callers as objects, of which only one is made a text. */
function frameOfCallSites(): string | undefined {
  const { prepareStackTrace } = Error;
  Error.prepareStackTrace = (error, sites) => {
    const frames = sites.map((site) => ({ site, file: fileOf(site), awaits: site.isAsync() }));
    const frame = chooseFrame(frames);
    if (frame === undefined) return undefined;
    if (prepareStackTrace === undefined) return String(frame.site);
    // Tools that compile sources as they are loaded tell lines of their own through this hook.
    return String(prepareStackTrace(error, [frame.site]))
      .split("\n")
      .at(-1);
  };
  try {
    Error.captureStackTrace(holder);
    return typeof holder.stack === "string" ? holder.stack : undefined;
  } finally {
    Error.prepareStackTrace = prepareStackTrace;
  }
}

function fileOf(site: NodeJS.CallSite): string {
  return site.getFileName() ?? "";
}
