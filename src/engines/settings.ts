import { environment } from "#platform/system";
import { oneOf } from "../ir/arguments.js";
import { ShardwiseError } from "../ir/errors.js";
import { type OptionsOf, optional, schema } from "../ir/schema.js";

/** The schema of {@link EngineSettings}. */
export const engineSettings = schema({
  /** The most memory of each device in bytes. */
  memoryBytes: optional("number"),
  /** For how long a device may compute without beginning a new step before it counts as failed. */
  deadlineMs: optional("number"),
  /** How float32 is multiplied, on devices that can do it in fewer bits too. */
  products: optional(oneOf("float32", "tf32")),
  /** Whether sums over several processes have the bits that worker threads give, or are left to MPI. */
  reduction: optional(oneOf("exact", "fast")),
});

/** What the shared engine is opened with besides its devices; what is left out is the engine's own choice. */
export interface EngineSettings extends OptionsOf<typeof engineSettings> {}

/** For how long a device may compute without a new step unless somebody says otherwise. */
export const DEFAULT_DEADLINE_MS = 120_000;

const units: Readonly<Record<string, number>> = {
  B: 1,
  KIB: 2 ** 10,
  MIB: 2 ** 20,
  GIB: 2 ** 30,
  TIB: 2 ** 40,
};

/** What {@link parseBytes} reads, in a few words. */
export const bytesAccepted = "a size such as 512MiB or 2GiB";

/** The bytes of a size: a number of bytes, or one with a unit of B, KiB, MiB, GiB or TiB. */
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
  throw new ShardwiseError("config", `the environment variable ${name} is "${text}": use ${accepted}`);
}
