import type { Config, Field } from "../train/config/configSchema.js";
import type { ParsedArguments } from "./commandLine.js";

/** Exit codes; their meaning is documented in `--help` and `docs/cli.md`. */
export const exitCodes = { ok: 0, failure: 1, usage: 2, interrupted: 130 } as const;

/** One of the {@link exitCodes}. */
export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes];

/** The options of a command by name. Flags are switches: they take no value. */
export type CommandOptions = Readonly<Record<string, Field<unknown>>>;

/** A command line with the values of the command's options. */
export interface CommandArguments<O extends CommandOptions = CommandOptions> extends ParsedArguments {
  readonly values: Config<O>;
}

/** A command of the command line. */
export interface Command<O extends CommandOptions = CommandOptions> {
  readonly name: string;
  /** One line for the list of commands. */
  readonly summary: string;
  /** What comes after the name, such as `[config.json] [options]`. */
  readonly usage: string;
  readonly options: O;
  /** Whether every field of the configuration is an option too. */
  readonly takesFields: boolean;
  readonly examples: readonly string[];
  /** Maximum number of arguments besides options; 1 by default. */
  readonly maxArguments?: number;
  run(args: CommandArguments<O>): Promise<ExitCode>;
}

/** Defines a command; the values that it gets have the types of its options. */
export const defineCommand = <const O extends CommandOptions>(command: Command<O>): Command<O> => command;
