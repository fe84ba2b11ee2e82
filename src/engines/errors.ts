import { errorClass, ShardwiseError } from "../ir/errors.js";

/** Where a device stood when it failed. */
export interface FailurePlace {
  readonly device: number;
  /** The program's name, if a program was running. */
  readonly program?: string | undefined;
  /** The index of the step in the program's step list. */
  readonly step?: number | undefined;
  /** What the step computes, such as `dotGeneral` or `psum`. */
  readonly op?: string | undefined;
  /** Where in the user's source the step comes from. */
  readonly source?: string | undefined;
}

/** The printed form of a place: `device 1, program "train", step 12 (dotGeneral) at model.ts:10:3`. */
export function formatPlace(place: FailurePlace): string {
  const parts = [`device ${place.device}`];
  if (place.program !== undefined) parts.push(`program ${JSON.stringify(place.program)}`);
  if (place.step !== undefined) {
    const op = place.op === undefined ? "" : ` (${place.op})`;
    const source = place.source === undefined ? "" : ` at ${place.source}`;
    parts.push(`step ${place.step}${op}${source}`);
  }
  return parts.join(", ");
}

/**
 * A device threw, exited or made no progress; everything that was running has ended with this error.
 *
 * The engine that it belonged to cannot run programs any more: close it and open another one.
 */
export class DeviceFailedError extends ShardwiseError {
  static override readonly name: string = "DeviceFailedError";
  readonly place: FailurePlace;
  /** What happened to the device. */
  readonly reason: string;

  constructor(place: FailurePlace, reason: string, options?: ErrorOptions) {
    super(
      "device-failed",
      `[engine] ${formatPlace(place)}: ${reason}; every run in flight has ended: close this engine and open another one`,
      options,
    );
    this.place = place;
    this.reason = reason;
  }
}

/** A device is out of memory; nothing was overwritten. */
export class OutOfMemoryError extends errorClass("OutOfMemoryError", "out-of-memory") {}

/** There is no engine of that name, or what was found under it is not an engine. */
export class EngineLoadError extends ShardwiseError {
  static override readonly name: string = "EngineLoadError";
  constructor(message: string, options?: ErrorOptions) {
    super("config", message, options);
  }
}

/** Where a device stood when the devices of a program diverged. */
export interface DevicePosition {
  readonly device: number;
  /** Which run of the program it is in. */
  readonly run: number;
  /** The ordinal of the collective it reached among those of its groups in this run. */
  readonly sequence: number;
  /** The collective, or whatever else the device was doing. */
  readonly what: string;
  /** The line of the user's source, if it is known. */
  readonly source?: string | undefined;
}

/** The printed form of positions: one line for each device, in columns. */
export function formatPositions(positions: readonly DevicePosition[]): string {
  const rows = positions.map(({ device, run, sequence, what, source }) => [
    `device ${device}`,
    `run ${run}`,
    `collective ${sequence}`,
    `${what}${source === undefined ? "" : ` at ${source}`}`,
  ]);
  const widths = [0, 1, 2].map((column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map((row) => `  ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ")}`)
    .join("\n");
}

const ADVICE =
  "a cond or whileLoop around a collective took different branches on some of them: let them decide alike, for example by " +
  "lax.pmax of the condition over the axis";

/**
 * Devices reached different collectives, or the same one a different number of times: what they would have
 * exchanged belongs to other places of the program. Everything that was running has ended with this error, on all
 * devices; what was exchanged before it is right.
 */
export class DesyncError extends ShardwiseError {
  static override readonly name: string = "DesyncError";
  readonly program: string;
  readonly positions: readonly DevicePosition[];

  /** @param advice why that happens and what to do, by default for devices of one process */
  constructor(program: string, positions: readonly DevicePosition[], advice = ADVICE) {
    super(
      "desync",
      `[engine] the devices of program ${JSON.stringify(program)} came to different collectives:\n${formatPositions(positions)}\n` +
        `${advice}; every run in flight has ended: close this engine and open another one`,
    );
    this.program = program;
    this.positions = positions;
  }
}

/** What all processes must agree on. */
export const PROCESS_RULE = "what depends on processIndex() may print and write files, not compute on meshes";

/** Processes that share devices run different programs where all must run the same one. */
export class ProgramsDifferError extends ShardwiseError {
  static override readonly name: string = "ProgramsDifferError";
  /** What each process has, one sentence for each. */
  readonly values: readonly string[];

  /** @param place which program it is: `program 3 of processes 0, 1` */
  constructor(place: string, values: readonly string[]) {
    super(
      "config",
      `[mpi] ${place} is not the same in all of them:\n${values.map((value) => `  ${value}`).join("\n")}\n` +
        `start all processes with the same script, arguments and data: ${PROCESS_RULE}`,
    );
    this.values = values;
  }
}
