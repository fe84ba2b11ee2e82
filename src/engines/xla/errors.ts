import { ShardwiseError } from "../../ir/errors.js";
import type { Eqn } from "../../ir/program.js";
import { printEqn } from "../../ir/text/print.js";
import { EngineLoadError, OutOfMemoryError } from "../errors.js";

/** XLA's numeric error codes. */
const RESOURCE_EXHAUSTED = 8;

/** An operation that XLA or its plug-in rejected or failed to perform. */
export class XlaError extends ShardwiseError {
  static override readonly name: string = "XlaError";
  /** XLA's error code. */
  readonly status: number;
  /** XLA's message. */
  readonly reason: string;

  constructor(doing: string, status: number, reason: string, options?: ErrorOptions) {
    super("device-failed", `[xla] ${doing}: ${reason}`, options);
    this.status = status;
    this.reason = reason;
  }
}

/** No usable plug-in for XLA's devices was found. */
export class XlaPluginError extends EngineLoadError {
  static override readonly name: string = "XlaPluginError";
}

/** The error for a plug-in's report; running out of memory has its own class. */
export function errorOf(doing: string, status: number, message: string): ShardwiseError {
  const reason = withoutNoise(message);
  if (status === RESOURCE_EXHAUSTED) {
    return new OutOfMemoryError(
      `[xla] ${doing}: ${reason}: use a smaller batch, remat, or a mesh of more devices`,
    );
  }
  return new XlaError(doing, status, reason);
}

/** XLA repeats the name of its parser in every error about a module's text. */
function withoutNoise(message: string): string {
  return message
    .split("\n")
    .filter((line) => !line.includes("Failed to parse using StableHLO"))
    .join("\n")
    .trim();
}

/**
 * The same error with the equation to which the source location in XLA's message belongs.
 *
 * @param origins the equation of every line of the text, counted from 0
 */
export function locateError(error: unknown, name: string, origins: readonly (Eqn | undefined)[]): unknown {
  if (!(error instanceof XlaError)) return error;
  const place = /-:(\d+):\d+: error: /.exec(error.reason);
  const eqn = place ? origins[Number(place[1]) - 1] : undefined;
  if (eqn === undefined) return error;
  const source = eqn.source ? ` at ${eqn.source.text}` : "";
  return new XlaError(`compile ${name}`, error.status, `${error.reason}\nin ${printEqn(eqn)}${source}`, {
    cause: error,
  });
}
