/** The second stage of a run: the checkpoint to continue from, and the training text. */
import { standardError } from "#platform/system";
import { ConfigError, ShardwiseError } from "../../ir/errors.js";
import type { Checkpoint } from "../files/checkpoints/checkpoint.js";
import { newestSound } from "../files/checkpoints/newestSound.js";
import { agreeOn } from "../files/checkpoints/processGroup.js";
import { checkResumable } from "../folder/savedRun.js";
import type { LiveRun } from "./life.js";
import { openRunData, type RunData } from "./runData.js";

/** A run with its starting point and its data. */
export interface OpenRun extends LiveRun {
  /** The checkpoint to continue from; undefined for a new run. */
  readonly from: Checkpoint | undefined;
  readonly data: RunData;
}

/** Finds the checkpoint to continue from, and opens the data. */
export async function open(run: LiveRun): Promise<OpenRun> {
  const { config, group, life } = run;
  const from = await startingPoint(run);
  await agreeOn(group, "the step to continue from", String(from?.step ?? 0));
  const { source } = config.data;
  await life.phase(`reading ${source === "bundled" ? "the bundled text" : source}`);
  const progress = (text: string) => void life.phase(text);
  const data = await openRunData(config, config.out, { begun: from !== undefined, group, progress });
  life.atEnd(() => data.close());
  const { vocabSize } = config.model;
  if (vocabSize > 0 && data.tokenizer.vocabSize > vocabSize) {
    throw new ConfigError(
      `[train] the tokeniser has ${data.tokenizer.vocabSize} tokens, but model.vocabSize is ${vocabSize}: use the tokeniser of the model`,
    );
  }
  return { ...run, from, data };
}

/**
 * The newest intact checkpoint, or undefined for a new run. Throws rather than overwrite another run, or continue with
 * other settings.
 */
async function startingPoint({ config, options, life }: LiveRun): Promise<Checkpoint | undefined> {
  const { resume = false, stream = standardError() } = options;
  const { checkpoints } = life;
  if (!resume) {
    const [newest] = await checkpoints.list();
    if (!newest) return undefined;
    throw new ConfigError(
      `[train] ${config.out} holds a run already, at step ${newest.step}: continue it with --resume, or choose another folder with --out`,
    );
  }
  const { checkpoint, damaged } = await newestSound(checkpoints, (found) => checkResumable(config, found));
  const problems = damaged.map(({ folder, problem }) => `${folder}: ${problem}`);
  if (checkpoint) {
    for (const line of problems) stream.write(`skipped a damaged checkpoint: ${line}\n`);
    return checkpoint;
  }
  const list = problems.map((line) => `\n  ${line}`).join("");
  throw new ShardwiseError(
    "file",
    `[resume] there is no checkpoint in ${checkpoints.root}${list === "" ? "" : ` that can be loaded:${list}`}\nstart without --resume${list === "" ? "" : " in another folder"}, or name the run's folder with --out`,
  );
}
