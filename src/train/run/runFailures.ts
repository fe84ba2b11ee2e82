/** Explains the failure of a run: where to find what happened, and which checkpoint is left. */
import { ShardwiseError } from "../../ir/errors.js";
import type { Checkpoints } from "../files/checkpoints/checkpoint.js";
import { FileError, reasonOf, systemCode } from "../files/disk/fileError.js";

/** Whether devices were lost, so that the run itself is not at fault and a restart may succeed. */
export function isDeviceLoss(cause: unknown): cause is ShardwiseError {
  return cause instanceof ShardwiseError && (cause.code === "device-failed" || cause.code === "desync");
}

/**
 * Adds the newest checkpoint to the error of a lost device or of a file that could not be written.
 *
 * @param recording the file with the flight recording, if there is one
 */
export async function explainFailure(
  cause: unknown,
  folder: string,
  checkpoints: Checkpoints,
  recording: string | undefined,
): Promise<unknown> {
  const isFile = !(cause instanceof ShardwiseError) && systemCode(cause) !== undefined;
  if (!isFile && !isDeviceLoss(cause)) return cause;
  const newest = await checkpoints.latest().catch(() => undefined);
  const kept = newest
    ? `the checkpoint of step ${newest.step} is complete: continue from it with --resume`
    : "no checkpoint was saved yet";
  if (!isDeviceLoss(cause)) {
    const rule = `a file of the run could not be written (${reasonOf(cause)}); ${kept}`;
    return new FileError("train", folder, 0, rule, { cause });
  }
  const seen = recording && `what every device did last is in ${recording}: see shardwise blame ${recording}`;
  return new ShardwiseError(cause.code, [cause.message, seen ?? [], kept].flat().join("; "), { cause });
}
