/** The command line as a function: which command runs, and how errors and exit codes come out. */
import { ShardwiseError } from "../index.js";
import { nearest } from "../ir/nearest.js";
import { version } from "../ir/version.js";
import { systemCode } from "../train/files/disk/fileError.js";
import { type Command, type ExitCode, exitCodes } from "./command.js";
import { UsageError } from "./commandLine.js";
import { blame } from "./commands/blame.js";
import { compare } from "./commands/compare.js";
import { data } from "./commands/data.js";
import { evaluate } from "./commands/evaluate.js";
import { exportModel } from "./commands/export.js";
import { generate } from "./commands/generate.js";
import { inspect } from "./commands/inspect.js";
import { plan } from "./commands/plan.js";
import { serve } from "./commands/serve.js";
import { trace } from "./commands/trace.js";
import { train } from "./commands/train.js";
import { commandHelp, generalHelp } from "./help.js";
import { phase } from "./phase.js";
import { argumentsOf } from "./runArguments.js";

/** All commands, in the order of the help text. */
export const commands: readonly Command[] = [
  train,
  generate,
  serve,
  evaluate,
  exportModel,
  inspect,
  compare,
  data,
  plan,
  trace,
  blame,
];

function commandNamed(name: string): Command {
  const found = commands.find((command) => command.name === name);
  if (found) return found;
  const isOption = name.startsWith("-");
  const words = isOption ? ["--help", "--version"] : [...commands.map((command) => command.name), "help"];
  const near = nearest(name, words);
  throw new UsageError(
    `unknown ${isOption ? "option" : "command"} "${name}"${near ? `; did you mean ${near}?` : ""}\nsee shardwise --help for the list`,
  );
}

async function dispatch([name, ...rest]: readonly string[]): Promise<ExitCode> {
  const print = (text: string): ExitCode => {
    process.stdout.write(text);
    return exitCodes.ok;
  };
  if (name === undefined) {
    process.stderr.write(generalHelp(commands));
    return exitCodes.usage;
  }
  if (name === "--version") return print(`${version}\n`);
  if (name === "help" || name === "--help" || name === "-h") {
    const [of] = rest;
    return print(of === undefined ? generalHelp(commands) : commandHelp(commandNamed(of)));
  }
  const command = commandNamed(name);
  if (rest.some((argument) => argument === "--help" || argument === "-h")) return print(commandHelp(command));
  checkFolder();
  return command.run(argumentsOf(rest, command));
}

/** Throws if the working directory was removed: relative paths cannot be resolved then. */
function checkFolder(): void {
  try {
    process.cwd();
  } catch (cause) {
    const rule = "the working directory is gone: change to a folder that exists and try again";
    throw new ShardwiseError("file", rule, { cause });
  }
}

/** Runs the command line and returns the exit code; errors are written to standard error. */
export async function main(args: readonly string[]): Promise<ExitCode> {
  try {
    return await dispatch(args);
  } catch (error) {
    const known =
      error instanceof ShardwiseError
        ? error.code !== "internal"
        : /^E[A-Z\d]+$/.test(systemCode(error) ?? "");
    const text =
      error instanceof Error ? (known ? error.message : (error.stack ?? error.message)) : String(error);
    phase("");
    process.stderr.write(`shardwise: ${text}\n`);
    return error instanceof ShardwiseError && error.code === "config" ? exitCodes.usage : exitCodes.failure;
  }
}
