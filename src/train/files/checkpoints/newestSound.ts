import { ShardwiseError } from "../../../ir/errors.js";
import { reasonOf } from "../disk/fileError.js";
import { type Checkpoint, type Checkpoints, openCheckpoint } from "./checkpoint.js";

/** The result of a search for a checkpoint. */
export interface FoundCheckpoint {
  readonly checkpoint: Checkpoint | undefined;
  /** Newer checkpoints that are damaged, newest first. */
  readonly damaged: readonly { readonly folder: string; readonly problem: string }[];
}

/**
 * The newest checkpoint whose files are all intact.
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
      // Other settings are not damage: older checkpoints would have them, too.
      if (error instanceof ShardwiseError && error.code === "config") throw error;
      damaged.push({ folder, problem: reasonOf(error) });
    }
  }
  return { checkpoint: undefined, damaged };
}
