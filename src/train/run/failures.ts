/** What is said of a run that failed: where to read what happened, and what is left of it. */
import { ShardwiseError } from "../../ir/errors.js";
import type { Checkpoints } from "../files/checkpoint.js";
import { FileError, reasonOf, systemCode } from "../files/fileError.js";

/** Whether devices were lost, so that nothing is wrong with the run itself and a restart may succeed. */
export function isDeviceLoss(cause: unknown): cause is ShardwiseError {
  return cause instanceof ShardwiseError && (cause.code === "device-failed" || cause.code === "desync");
}

/**
 * Adds to the loss of a device, and to a file that could not be written, what is left of the run.
 *
 * @param recording the file with what the devices did last, if there is one
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
    ? `the checkpoint of step ${newest.step} is complete: go on from it with --resume`
    : "no checkpoint was saved yet";
  if (!isDeviceLoss(cause)) {
    const rule = `a file of the run could not be written (${reasonOf(cause)}); ${kept}`;
    return new FileError("train", folder, 0, rule, { cause });
  }
  const seen = recording && `what every device did last is in ${recording}: see shardwise blame ${recording}`;
  return new ShardwiseError(cause.code, [cause.message, seen ?? [], kept].flat().join("; "), { cause });
}
