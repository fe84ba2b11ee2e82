import { environment } from "#platform/system";
import { deepestFrame, foldStack } from "./frames.js";

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

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    const limit = Error.stackTraceLimit;
    Error.stackTraceLimit = Math.max(limit, deepestFrame);
    super(message, options);
    Error.stackTraceLimit = limit;
    this.code = code;
    this.name = new.target.name;
    // Internal errors are reported with all of their frames.
    if (code === "internal" || showsAllFrames || this.stack === undefined) return;
    this.stack = foldStack(this.stack).replace(/^Error\b/, this.name);
  }
}

const showsAllFrames = environment.SHARDWISE_STACKS === "all";

/** Operand shapes do not fit the operation. */
export class ShapeError extends ShardwiseError {
  static override readonly name: string = "ShapeError";
  constructor(message: string) {
    super("shape", message);
  }
}

/** Operand data types do not fit the operation. */
export class DTypeError extends ShardwiseError {
  static override readonly name: string = "DTypeError";
  constructor(message: string) {
    super("dtype", message);
  }
}

/** A tensor dimension is out of range or named twice. */
export class DimError extends ShardwiseError {
  static override readonly name: string = "DimError";
  constructor(message: string) {
    super("dim", message);
  }
}

/** A mesh axis or a mapped axis is unknown, used twice or of the wrong size. */
export class AxisError extends ShardwiseError {
  static override readonly name: string = "AxisError";
  constructor(message: string) {
    super("axis", message);
  }
}

/** Two trees that must agree do not, or a tree holds something that is not a leaf. */
export class TreeError extends ShardwiseError {
  static override readonly name: string = "TreeError";
  constructor(message: string) {
    super("tree", message);
  }
}

/** An argument has a value outside what the function accepts. */
export class ValueError extends ShardwiseError {
  static override readonly name: string = "ValueError";
  constructor(message: string) {
    super("value", message);
  }
}

/** A traced value was used where a concrete one is needed, or outside the function that made it. */
export class TracerError extends ShardwiseError {
  static override readonly name: string = "TracerError";
  constructor(code: "traced-value" | "leaked-tracer", message: string) {
    super(code, message);
  }
}

/** A value whose memory was released or donated was used again. */
export class DisposedError extends ShardwiseError {
  static override readonly name: string = "DisposedError";
  constructor(message: string) {
    super("disposed", message);
  }
}

/** A value was read although other processes hold parts of it. */
export class NotAddressableError extends ShardwiseError {
  static override readonly name: string = "NotAddressableError";
  constructor(message: string) {
    super("not-addressable", message);
  }
}

/** Something that has no derivative was differentiated. */
export class GradientError extends ShardwiseError {
  static override readonly name: string = "GradientError";
  constructor(message: string) {
    super("no-gradient", message);
  }
}

/** A check in a program failed. */
export class CheckError extends ShardwiseError {
  static override readonly name: string = "CheckError";
  constructor(message: string) {
    super("check", message);
  }
}

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
export class InternalError extends ShardwiseError {
  static override readonly name: string = "InternalError";
  constructor(message: string) {
    super("internal", message);
  }
}
