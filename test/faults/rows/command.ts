/** What rows about the whole command share: small runs in processes of their own. */
import type { ChildProcess } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Ended, ended, startShardwise } from "../../support/cliProcess.js";
import { writeText } from "../../support/runs.js";
import type { FaultContext } from "../row.js";

const settings = {
  model: { width: 8, numLayers: 2, numHeads: 2, numKvHeads: 2, mlpWidth: 8 },
  mesh: { data: 1 },
  pipeline: { microbatches: 2 },
  checkpointEvery: 3,
  evalEvery: 1000,
  sample: 0,
};

/** Writes a text and a configuration; the arguments of `shardwise` that train with it. */
export function prepare({ folder }: FaultContext): string[] {
  writeText(folder);
  writeFileSync(
    join(folder, "c.json"),
    JSON.stringify({ ...settings, data: { source: "text.txt", sequence: 8, batch: 4 } }),
  );
  return ["train", "c.json", "--out", "run"];
}

/** How a process ended and all that it said. */
export const describe = ({ code, signal, out, err }: Ended) => `exit ${code ?? signal}: ${err}${out}`;
/** Runs `shardwise` in a folder; how it ended. */
export const shardwise = async (folder: string, ...args: string[]) =>
  describe(await ended(startShardwise(folder, args)));
/** How many lines the metrics of the run in a folder have. */
export const steps = (folder: string) => {
  const file = join(folder, "run", "metrics.jsonl");
  return existsSync(file) ? readFileSync(file, "utf8").split("\n").length - 1 : 0;
};

/** Waits until something holds, or the process is over. */
export async function until(child: ChildProcess, holds: () => boolean): Promise<void> {
  while (child.exitCode === null && child.signalCode === null && !holds())
    await new Promise((resolve) => setTimeout(resolve, 5));
}

/** A run of six steps, with two checkpoints. */
export async function trained(context: FaultContext): Promise<string> {
  const seen = await shardwise(context.folder, ...prepare(context), "--steps", "6");
  if (!seen.startsWith("exit 0")) throw new Error(seen);
  return join(context.folder, "run");
}

/** The folder of the newest checkpoint of a run. */
export const newest = (run: string) =>
  join(run, "checkpoints", readdirSync(join(run, "checkpoints")).sort().at(-1) ?? "");
/** The tensors of the newest checkpoint of a run. */
export const tensors = (run: string) => join(newest(run), "tensors-00001-of-00001.safetensors");
/** Changes a bit of a file. @param at the byte, counted from the end where it is negative */
export const damage = (path: string, at: number) => {
  const bytes = readFileSync(path);
  const place = at < 0 ? bytes.length + at : at;
  bytes[place] = (bytes[place] ?? 0) ^ 1;
  writeFileSync(path, bytes);
};

/** The manifest of the newest checkpoint of a run. */
export const manifest = (run: string) => join(newest(run), "manifest.json");
