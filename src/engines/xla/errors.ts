import { ShardwiseError } from "../../ir/errors.js";
import { printEqn } from "../../ir/print.js";
import type { Eqn } from "../../ir/program.js";
import { EngineLoadError, OutOfMemoryError } from "../errors.js";

/** The numbers that XLA gives to kinds of errors. */
const RESOURCE_EXHAUSTED = 8;

/** Something that XLA or its plug-in refused or could not do. */
export class XlaError extends ShardwiseError {
  /** XLA's number for the kind of error. */
  readonly status: number;
  /** What XLA said. */
  readonly reason: string;

  constructor(doing: string, status: number, reason: string, options?: ErrorOptions) {
    super("device-failed", `[xla] ${doing}: ${reason}`, options);
    this.status = status;
    this.reason = reason;
  }
}

/** There is no plug-in for XLA's devices, or none that can be used. */
export class XlaPluginError extends EngineLoadError {}

/** The error for what a plug-in reports: memory that is not there has a class of its own. */
export function errorOf(doing: string, status: number, message: string): ShardwiseError {
  const reason = withoutNoise(message);
  if (status === RESOURCE_EXHAUSTED) {
    return new OutOfMemoryError(
      `[xla] ${doing}: ${reason}: use a smaller batch, remat, or a mesh of more devices`,
    );
  }
  return new XlaError(doing, status, reason);
}

/** XLA repeats the name of its own parser under every error of a text. */
function withoutNoise(message: string): string {
  return message
    .split("\n")
    .filter((line) => !line.includes("Failed to parse using StableHLO"))
    .join("\n")
    .trim();
}

/**
 * The same error with the equation that XLA's place in the text belongs to.
 *
 * @param origins for every line of the text, counted from 0, its equation
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
