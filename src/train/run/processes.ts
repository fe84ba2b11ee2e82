/** How processes that train together begin: with one configuration, in one folder. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { ShardwiseError } from "../../ir/errors.js";
import type { RunConfig } from "../config/runConfig.js";
import { FileError } from "../files/fileError.js";
import { type ProcessGroup, together } from "../files/processGroup.js";
import { lockFile, lockRun } from "../folder/lock.js";
import type { RunOptions } from "./runOptions.js";

const silent = { write: () => true };

/**
 * The options with which all processes train: those of each, which must have the same configuration but for the
 * folder, which is that of process 0. Only that process tells how the run goes.
 */
export async function agreedOptions(options: RunOptions, group: ProcessGroup): Promise<RunOptions> {
  if (group.count === 1) return options;
  const { out, ...rest } = options.config;
  const folders = await group.share(out);
  await agreeOn(group, "the configuration", JSON.stringify(rest));
  const config: RunConfig = { ...options.config, out: folders[0] ?? out };
  const stream = group.index === 0 ? options.stream : silent;
  return { ...options, config, ...(stream && { stream }) };
}

/** Throws in every process unless they all say the same; both sides are shown. */
export async function agreeOn(group: ProcessGroup, what: string, own: string): Promise<void> {
  if (group.count === 1) return;
  const texts = await group.share(own);
  const [first = ""] = texts;
  const other = texts.findIndex((text) => text !== first);
  if (other < 0) return;
  const [a, b] = firstDifference(first, texts[other] ?? "");
  throw new ShardwiseError(
    "config",
    `[train] the processes differ in ${what}: process 0 has ${a}, process ${other} has ${b}: start all of them with the same arguments, on files that they share`,
  );
}

/** The parts of two texts from a little before the place where they begin to differ. */
function firstDifference(a: string, b: string): [string, string] {
  let at = 0;
  while (at < a.length && a[at] === b[at]) at++;
  const begin = Math.max(0, a.lastIndexOf(",", at) + 1);
  const part = (text: string) => text.slice(begin, begin + 80);
  return [part(a), part(b)];
}

/** Takes a run's folder for all processes; each must see it. @returns gives it back */
export async function lockTogether(folder: string, group: ProcessGroup): Promise<() => void> {
  let release = () => {};
  await together(group, async () => {
    if (group.index === 0) release = lockRun(folder);
    return "";
  });
  await together(group, async () => {
    if (existsSync(join(folder, lockFile))) return "";
    const rule =
      "process 0 trains into this folder, but it is not here: runs of several hosts need a file system that they share";
    throw new FileError("train", folder, 0, rule);
  });
  return release;
}
