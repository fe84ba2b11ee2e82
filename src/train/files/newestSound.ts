import { ShardwiseError } from "../../ir/errors.js";
import { type Checkpoint, type Checkpoints, openCheckpoint } from "./checkpoint.js";
import { reasonOf } from "./fileError.js";

/** What a search for a checkpoint found. */
export interface FoundCheckpoint {
  readonly checkpoint: Checkpoint | undefined;
  /** The damaged ones that are newer, newest first. */
  readonly damaged: readonly { readonly folder: string; readonly problem: string }[];
}

/**
 * The newest checkpoint whose files are all sound.
 *
 * @param accept throws an error of the configuration when the checkpoint belongs to other settings
 */
export async function newestSound(
  checkpoints: Checkpoints,
  accept: (checkpoint: Checkpoint) => void = () => {},
): Promise<FoundCheckpoint> {
  const damaged: { folder: string; problem: string }[] = [];
  for (const { folder, problem } of await checkpoints.list()) {
    try {
      if (problem !== undefined) throw new Error(problem);
      const checkpoint = await openCheckpoint(folder);
      accept(checkpoint);
      await checkpoint.verify();
      return { checkpoint, damaged };
    } catch (error) {
      // Other settings are no damage: an older checkpoint would have them too.
      if (error instanceof ShardwiseError && error.code === "config") throw error;
      damaged.push({ folder, problem: reasonOf(error) });
    }
  }
  return { checkpoint: undefined, damaged };
}
