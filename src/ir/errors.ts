import { environment } from "#platform/system";
import { deepestFrame, foldStack, nameCalled } from "./frames.js";

/** The stable codes of errors a user can cause; each names the kind of rule that was broken. */
export type ErrorCode =
  | "shape"
  | "dtype"
  | "dim"
  | "axis"
  | "tree"
  | "value"
  | "traced-value"
  | "leaked-tracer"
  | "disposed"
  | "not-addressable"
  | "no-gradient"
  | "check"
  | "replication"
  | "sharding"
  | "module"
  | "config"
  | "device-failed"
  | "desync"
  | "out-of-memory"
  | "file"
  | "parse"
  | "internal";

/**
 * An error a user can act on: `code` is stable, `message` names the function, the values and what to do.
 *
 * ```ts
 * try { np.matmul(a, b) } catch (e) { if (e instanceof ShardwiseError && e.code === "shape") … }
 * ```
 */
export class ShardwiseError extends Error {
  /** The name in messages, which minifiers must not change. */
  static override readonly name: string = "ShardwiseError";
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions, name?: string) {
    const limit = Error.stackTraceLimit;
    Error.stackTraceLimit = Math.max(limit, deepestFrame);
    super(message, options);
    Error.stackTraceLimit = limit;
    this.code = code;
    this.name = name ?? new.target.name;
    // Internal errors are reported as they are, with all of their frames.
    if (code === "internal" || this.stack === undefined) return;
    this.message = nameCalled(message, this.stack);
    const stack = this.stack.replace(message, () => this.message);
    this.stack = showsAllFrames ? stack : foldStack(stack).replace(/^Error\b/, this.name);
  }
}

/** A class of errors that all have one code. @param name in messages, which minifiers must not change */
/* @__NO_SIDE_EFFECTS__ */
export function errorClass(name: string, code: ErrorCode): new (message: string) => ShardwiseError {
  return class extends ShardwiseError {
    constructor(message: string) {
      super(code, message, undefined, name);
    }
  };
}

const showsAllFrames = environment.SHARDWISE_STACKS === "all";

/** Operand shapes do not fit the operation. */
export class ShapeError extends errorClass("ShapeError", "shape") {}

/** Operand data types do not fit the operation. */
export class DTypeError extends errorClass("DTypeError", "dtype") {}

/** A tensor dimension is out of range or named twice. */
export class DimError extends errorClass("DimError", "dim") {}

/** A mesh axis or a mapped axis is unknown, used twice or of the wrong size. */
export class AxisError extends errorClass("AxisError", "axis") {}

/** Two trees that must agree do not, or a tree holds something that is not a leaf. */
export class TreeError extends errorClass("TreeError", "tree") {}

/** An argument has a value outside what the function accepts. */
export class ValueError extends errorClass("ValueError", "value") {}

/** A configuration, setting or option of a command that cannot be used; the command line exits with code 2. */
export class ConfigError extends errorClass("ConfigError", "config") {}

/** A traced value was used where a concrete one is needed, or outside the function that made it. */
export class TracerError extends ShardwiseError {
  static override readonly name: string = "TracerError";
  constructor(code: "traced-value" | "leaked-tracer", message: string) {
    super(code, message);
  }
}

/** A value whose memory was released or donated was used again. */
export class DisposedError extends errorClass("DisposedError", "disposed") {}

/** A value was read although other processes hold parts of it. */
export class NotAddressableError extends errorClass("NotAddressableError", "not-addressable") {}

/** Something that has no derivative was differentiated. */
export class GradientError extends errorClass("GradientError", "no-gradient") {}

/** A check in a program failed. */
export class CheckError extends errorClass("CheckError", "check") {}

/** A sharding does not fit the tensor, the mesh, or what the program computes. */
export class ShardingError extends ShardwiseError {
  static override readonly name: string = "ShardingError";
  constructor(message: string, code: "sharding" | "replication" = "sharding") {
    super(code, message);
  }
}

/** A text does not follow its grammar, or describes something invalid. */
export class ParseError extends ShardwiseError {
  static override readonly name: string = "ParseError";
  /** The line of the text, counted from 1. */
  readonly line: number;
  /** The column, counted from 1. */
  readonly column: number;

  constructor(caller: string, line: number, column: number, message: string) {
    super("parse", `[${caller}] line ${line}, column ${column}: ${message}`);
    this.line = line;
    this.column = column;
  }
}

/** An invariant of the library was violated: a bug in shardwise, not in the user's program. */
export class InternalError extends errorClass("InternalError", "internal") {}

/** The result of `work`. @param problem makes the error that replaces what it throws */
export function attempt<T>(work: () => T, problem: (reason: string, cause: unknown) => Error): T {
  try {
    return work();
  } catch (cause) {
    throw problem(reasonOf(cause), cause);
  }
}

/** The message of anything that was thrown. */
export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
