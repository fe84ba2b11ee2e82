/** Runs that start from a pretrained model (`--init`). */
import { copyFile, existsSync, mkdir } from "#platform/fs";
import { join } from "#platform/path";
import { readPretrainedConfig } from "./pretrainedFolder.js";
import { companionFiles } from "./savePretrained.js";

/** The folder in a run's that keeps the small files of the model it started from. */
export const companionFolder = (run: string): string => join(run, "pretrained");

/** Copies the configuration and the tokeniser files of a model to the run that starts from it. */
export async function keepCompanions(folder: string, run: string): Promise<void> {
  const to = companionFolder(run);
  await mkdir(to, { recursive: true });
  for (const name of ["config.json", ...companionFiles]) {
    if (existsSync(join(folder, name))) await copyFile(join(folder, name), join(to, name));
  }
}

/** The settings of a run that follow from a pretrained model: its sizes, its decoder and its tokeniser. */
export async function initialSettings(
  folder: string,
  ignored: readonly string[],
): Promise<Readonly<Record<string, unknown>>> {
  const { model } = await readPretrainedConfig(folder, ignored);
  const tokenizer = join(folder, "tokenizer.json");
  return { init: folder, model, ...(existsSync(tokenizer) ? { data: { tokenizer } } : {}) };
}
