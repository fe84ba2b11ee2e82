import { existsSync, readFileSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { chooseEngine, givenDevices } from "../engines/default.js";
import { engineNames } from "../engines/table.js";
import { attempt } from "../ir/errors.js";
import { parseJson } from "../ir/jsonReaders.js";
import { fieldsOf, optionalText, readConfig } from "../train/config/configSchema.js";
import { type RunConfig, readRunConfig, runSchema } from "../train/config/runConfig.js";
import { checkpointFolder } from "../train/config/setup.js";
import { type Checkpoint, openCheckpoint, openCheckpoints } from "../train/files/checkpoints/checkpoint.js";
import { newestSound } from "../train/files/checkpoints/newestSound.js";
import { isObject } from "../train/files/disk/json.js";
import type { Command, CommandArguments, CommandOptions } from "./command.js";
import { type ParsedArguments, parseArguments, UsageError } from "./commandLine.js";

/** Parses the arguments of a command; all errors are reported at once. */
export function argumentsOf<O extends CommandOptions>(
  args: readonly string[],
  { name: command, options, takesFields, maxArguments = 1 }: Command<O>,
): CommandArguments<O> {
  const names = (isSwitch: boolean) =>
    Object.keys(options).filter((name) => (typeof options[name]?.default === "boolean") === isSwitch);
  const parsed = parseArguments(args, {
    values: names(false),
    switches: names(true),
    fields: takesFields ? [...fieldsOf(runSchema).keys()] : [],
  });
  const given = [...parsed.options].map(([path, value]) => ({ path, value }));
  const { config: values, violations } = readConfig(options, {}, given);
  const problems = [...parsed.problems, ...violations.map((problem) => `--${problem}`)];
  if (problems.length > 0) {
    const { violations: others } = readConfig(runSchema, {}, parsed.settings);
    throw new UsageError([...problems, ...others].join("\n"));
  }
  const extra = parsed.positional.slice(maxArguments);
  if (extra.length === 0) return { ...parsed, values };
  throw new UsageError(
    `${command}: unexpected ${extra.length === 1 ? "argument" : "arguments"} ${extra.map((text) => `"${text}"`).join(", ")}; see shardwise ${command} --help`,
  );
}

/** The option that selects the engine of a command. */
export const engineOption = {
  engine: optionalText(
    `the engine: ${engineNames.join(", ")}, or the package or path of an engine; threads by default`,
  ),
};

/** Makes this process use the engine that `--engine` names, or else `SHARDWISE_ENGINE`. */
export async function useEngine({ values }: CommandArguments<typeof engineOption>): Promise<void> {
  await chooseEngine(values.engine);
}

/** The first of `name.ending`, `name-2.ending` … that does not exist. */
export function freeName(name: string, ending: string): string {
  for (let i = 1; ; i++) {
    const file = `${name}${i === 1 ? "" : `-${i}`}${ending}`;
    if (!existsSync(file)) return file;
  }
}

/** Reads a configuration file. */
export function readConfigFile(path: string): unknown {
  const fail = (what: string) => (reason: string) =>
    new UsageError(`the configuration ${path} ${what} (${reason})`);
  const text = attempt(() => {
    if (statSync(path).isDirectory()) throw new Error("it is a folder without checkpoints");
    return readFileSync(path, "utf8");
  }, fail("cannot be read"));
  return parseJson(text, fail("is not JSON"));
}

/** The configuration of a run; all violations are reported at once. */
export function configOf(json: unknown, args: ParsedArguments): RunConfig {
  const { config, violations } = readRunConfig(json, args.settings, givenDevices());
  if (violations.length === 0) return config;
  const count = violations.length === 1 ? "1 problem" : `${violations.length} problems`;
  throw new UsageError(
    `the configuration has ${count}:\n${violations.map((line) => `  ${line}`).join("\n")}`,
  );
}

/** The settings of one tree, overridden by those of another. */
export function mergeConfigs(base: unknown, over: unknown): unknown {
  if (!isObject(base) || !isObject(over)) return over === undefined ? base : over;
  const keys = new Set([...Object.keys(base), ...Object.keys(over)]);
  return Object.fromEntries([...keys].map((key) => [key, mergeConfigs(base[key], over[key])]));
}

/** A checkpoint and the folder of its run. */
export interface RunCheckpoint {
  readonly checkpoint: Checkpoint;
  readonly run: string;
}

/** Whether a folder is a run, also one that has just begun, or a checkpoint. */
export function isRunFolder(folder: string): boolean {
  const isMiddle = basename(folder) === "checkpoints" && existsSync(folder);
  const files = [join(folder, "manifest.json"), join(folder, "metrics.jsonl"), checkpointFolder(folder)];
  return isMiddle || files.some((file) => existsSync(file));
}

/** Finds a checkpoint: a checkpoint's own folder, or the newest one of a run's folder. */
export async function findCheckpoint(folder: string | undefined, command: string): Promise<RunCheckpoint> {
  if (folder === undefined) {
    throw new UsageError(`${command} needs the folder of a run or of a checkpoint, such as runs/default`);
  }
  if (existsSync(join(folder, "manifest.json"))) {
    const parent = dirname(folder);
    const run = basename(parent) === "checkpoints" ? dirname(parent) : folder;
    return { checkpoint: await openCheckpoint(folder), run };
  }
  const found = statSync(folder, { throwIfNoEntry: false });
  if (found && !found.isDirectory()) {
    throw new UsageError(
      `${folder} is a file: ${command} needs the folder of a run, such as runs/default, or of one of its checkpoints`,
    );
  }
  // The folder between a run's and those of its checkpoints counts as the run's.
  const isMiddle = basename(folder) === "checkpoints" && !existsSync(checkpointFolder(folder));
  const run = isMiddle ? dirname(folder) : folder;
  const { checkpoint, damaged } = await newestSound(openCheckpoints(checkpointFolder(run)));
  const problems = damaged.map(
    (one) => `${command}: the checkpoint ${one.folder} is damaged: ${one.problem}`,
  );
  if (checkpoint) {
    if (problems.length > 0)
      process.stderr.write(`${problems.join("\n")}\n${command}: using ${checkpoint.folder} instead\n`);
    return { checkpoint, run };
  }
  const broken = problems.map((line) => `\n  ${line}`);
  throw new UsageError(
    existsSync(folder)
      ? `${folder} holds no checkpoint that can be loaded${broken.join("") || ": wait for the first, or give another folder"}`
      : `there is no folder ${folder}: give the folder of a run, such as runs/default, or of one of its checkpoints`,
  );
}
