import type { Arguments } from "./arguments.js";

/** How a process ends; the meaning of the numbers is documented in `--help` and `docs/cli.md`. */
export const exitCodes = { ok: 0, failure: 1, usage: 2, interrupted: 130 } as const;

/** One of the {@link exitCodes}. */
export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes];

/** One option of a command. */
export interface CommandOption {
  /** Without dashes; a placeholder for its value may follow, as in `max-restarts N`. */
  readonly name: string;
  readonly help: string;
  /** Whether it takes no value. */
  readonly isSwitch?: true;
}

/** A command of the command line. */
export interface Command {
  readonly name: string;
  /** One line for the list of commands. */
  readonly summary: string;
  /** What comes after the name, such as `[config.json] [options]`. */
  readonly usage: string;
  readonly options: readonly CommandOption[];
  /** Whether every field of the configuration is an option too. */
  readonly takesFields: boolean;
  readonly examples: readonly string[];
  /** Maximum number of arguments besides options; 1 by default. */
  readonly maxArguments?: number;
  run(args: Arguments): Promise<ExitCode>;
}
