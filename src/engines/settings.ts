import { environment } from "#platform/system";
import { oneOf } from "../ir/arguments.js";
import { ConfigError } from "../ir/errors.js";
import { type OptionsOf, optional, schema } from "../ir/schema.js";

/** The schema of {@link EngineSettings}. */
export const engineSettings = schema({
  /** Maximum memory of each device in bytes. */
  memoryBytes: optional("number"),
  /** How long a device may compute without starting a new step before it counts as failed. */
  deadlineMs: optional("number"),
  /** Precision of float32 products, on devices that can also compute them with fewer bits. */
  products: optional(oneOf("float32", "tf32")),
  /** Whether sums over several processes have the same bits as on worker threads, or are left to MPI. */
  reduction: optional(oneOf("exact", "fast")),
});

/** What the shared engine is opened with besides its devices; the engine chooses what is left out. */
export interface EngineSettings extends OptionsOf<typeof engineSettings> {}

/** How long a device may compute without starting a new step by default. */
export const DEFAULT_DEADLINE_MS = 120_000;

const units: Readonly<Record<string, number>> = {
  B: 1,
  KIB: 2 ** 10,
  MIB: 2 ** 20,
  GIB: 2 ** 30,
  TIB: 2 ** 40,
};

/** A short description of what {@link parseBytes} accepts. */
export const bytesAccepted = "a size such as 512MiB or 2GiB";

/** The number of bytes of a size: a plain number, or one with a unit of B, KiB, MiB, GiB or TiB. */
export function parseBytes(text: string): number | undefined {
  const [, digits, unit = "B"] = /^\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)?\s*$/.exec(text) ?? [];
  const factor = units[unit.toUpperCase()];
  const bytes = digits === undefined || factor === undefined ? 0 : Math.floor(Number(digits) * factor);
  return bytes > 0 ? bytes : undefined;
}

/** The settings in `SHARDWISE_MEMORY` (a size for each device) and `SHARDWISE_DEADLINE` (seconds). */
export function environmentSettings(
  variables: Readonly<Record<string, string | undefined>> = environment,
): EngineSettings {
  const { SHARDWISE_MEMORY: memory = "", SHARDWISE_DEADLINE: deadline = "" } = variables;
  return {
    ...(memory === ""
      ? {}
      : { memoryBytes: readSetting("SHARDWISE_MEMORY", memory, parseBytes, bytesAccepted) }),
    ...(deadline === ""
      ? {}
      : {
          deadlineMs: 1000 * readSetting("SHARDWISE_DEADLINE", deadline, parseSeconds, "a number of seconds"),
        }),
  };
}

function parseSeconds(text: string): number | undefined {
  const seconds = Number(text);
  return Number.isFinite(seconds) && seconds > 0 ? seconds : undefined;
}

function readSetting(
  name: string,
  text: string,
  parse: (text: string) => number | undefined,
  accepted: string,
): number {
  const value = parse(text);
  if (value !== undefined) return value;
  throw new ConfigError(`the environment variable ${name} is "${text}": use ${accepted}`);
}
