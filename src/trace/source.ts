import type { SourceLocation } from "../ir/program.js";

/** The folder of the library's own modules, which are left out of source locations. */
const libraryRoot = new URL("../", import.meta.url).href.replace(/^file:\/\//, "");

class Captured implements SourceLocation {
  private readonly stack: Error;

  constructor() {
    const limit = Error.stackTraceLimit;
    Error.stackTraceLimit = 30;
    this.stack = new Error();
    Error.stackTraceLimit = limit;
  }

  get text(): string {
    const frames = (this.stack.stack ?? "").split("\n").slice(1);
    const frame = frames.find((line) => /:\d+:\d+/.test(line) && !isLibrary(line) && !line.includes("node:"));
    return frame?.replace(/^\s*at\s+/, "").replace("file://", "") ?? "unknown source";
  }
}

function isLibrary(frame: string): boolean {
  return frame.includes(libraryRoot) && !frame.includes(".test.");
}

/** Remembers where the user's code is now; formatting happens only when the text is asked for. */
export function captureSource(): SourceLocation {
  return new Captured();
}
