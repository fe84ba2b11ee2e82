import type { SourceLocation } from "../ir/program.js";

/** The folder of the library's own modules, which are left out of source locations. */
const libraryRoot = new URL("../", import.meta.url).href.replace(/^file:\/\//, "");

/** Parts of the library that say how something is computed, but not what for. */
const plumbing = /^(ir|trace|transforms|spmd|lax|numpy|random|nn|optim|parallel)\//;

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

class Captured implements SourceLocation {
  readonly module = currentModule;
  private readonly stack: Error;

  constructor() {
    const limit = Error.stackTraceLimit;
    Error.stackTraceLimit = 30;
    this.stack = new Error();
    Error.stackTraceLimit = limit;
  }

  get text(): string {
    const frames = (this.stack.stack ?? "").split("\n").slice(1);
    const places = frames.filter((line) => /:\d+:\d+/.test(line) && !line.includes("node:"));
    // The library's own models and losses stand for the user's code where there is none; a caller that awaits comes last.
    const frame =
      places.find((line) => !isLibrary(line) && !isAwaiting(line)) ??
      places.find((line) => isLibrary(line) && !isPlumbing(line)) ??
      places.find((line) => !isLibrary(line));
    return frame?.replace(/^\s*at\s+/, "").replace("file://", "") ?? "unknown source";
  }
}

function isLibrary(frame: string): boolean {
  return frame.includes(libraryRoot) && !frame.includes(".test.");
}

function isPlumbing(frame: string): boolean {
  return plumbing.test(frame.slice(frame.indexOf(libraryRoot) + libraryRoot.length));
}

function isAwaiting(frame: string): boolean {
  return /^\s*at async /.test(frame);
}

/** Remembers where the user's code is now; formatting happens only when the text is asked for. */
export function captureSource(): SourceLocation {
  return new Captured();
}
