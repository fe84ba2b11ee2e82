import { ShardwiseError } from "../../ir/errors.js";
import type { RunConfig } from "../config/runConfig.js";
import { type Checkpoint, type Checkpoints, openCheckpoint } from "../files/checkpoint.js";
import { reasonOf } from "../files/fileError.js";
import { checkResumable } from "../folder/savedRun.js";

/**
 * The checkpoint that a run goes on from: the newest one whose files are all sound, or none for a new run. Throws
 * rather than begin a run over another one, or go on with other settings.
 *
 * @param note told about every damaged checkpoint that is passed over
 */
export async function startingPoint(
  checkpoints: Checkpoints,
  config: RunConfig,
  resume: boolean,
  note: (text: string) => void,
): Promise<Checkpoint | undefined> {
  const entries = await checkpoints.list();
  const [newest] = entries;
  if (!resume) {
    if (!newest) return undefined;
    throw new ShardwiseError(
      "config",
      `[train] ${config.out} holds a run already, at step ${newest.step}: continue it with --resume, or choose another folder with --out`,
    );
  }
  const problems: string[] = [];
  for (const { folder, problem } of entries) {
    try {
      if (problem !== undefined) throw new Error(problem);
      const checkpoint = await openCheckpoint(folder);
      checkResumable(config, checkpoint);
      await checkpoint.verify();
      for (const line of problems) note(`passed over a damaged checkpoint: ${line}`);
      return checkpoint;
    } catch (error) {
      // Other settings are no damage: an older checkpoint would have them too.
      if (error instanceof ShardwiseError && error.code === "config") throw error;
      problems.push(`${folder}: ${reasonOf(error)}`);
    }
  }
  const list = problems.map((line) => `\n  ${line}`).join("");
  throw new ShardwiseError(
    "file",
    `[resume] there is no checkpoint in ${checkpoints.root}${list === "" ? "" : ` that can be loaded:${list}`}\nstart without --resume${list === "" ? "" : " in another folder"}, or name the run's folder with --out`,
  );
}
