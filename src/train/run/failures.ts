/** What is said of a run that failed: where to read what happened, and what is left of it. */
import { ShardwiseError } from "../../ir/errors.js";
import type { Checkpoints } from "../files/checkpoint.js";
import { FileError, reasonOf, systemCode } from "../files/fileError.js";

/** Says of the loss of a device where to read what happened. */
export function withRecording(cause: unknown, path: string | undefined): unknown {
  if (path === undefined || !isLoss(cause)) return cause;
  const message = `${cause.message}; what every device did last is in ${path}: see shardwise blame ${path}`;
  return new ShardwiseError(cause.code, message, { cause });
}

/** Whether devices were lost, so that nothing is wrong with the run itself. */
function isLoss(cause: unknown): cause is ShardwiseError {
  return cause instanceof ShardwiseError && (cause.code === "device-failed" || cause.code === "desync");
}

/** Says of a file that could not be written where it is, and of that and of a lost device what is left. */
export async function explain(cause: unknown, folder: string, checkpoints: Checkpoints): Promise<unknown> {
  const isFile = !(cause instanceof ShardwiseError) && systemCode(cause) !== undefined;
  if (!isFile && !isLoss(cause)) return cause;
  const newest = await checkpoints.latest().catch(() => undefined);
  const kept = newest
    ? `the checkpoint of step ${newest.step} is complete: go on from it with --resume`
    : "no checkpoint was saved yet";
  if (isLoss(cause)) return new ShardwiseError(cause.code, `${cause.message}; ${kept}`, { cause });
  const rule = `a file of the run could not be written (${reasonOf(cause)}); ${kept}`;
  return new FileError("train", folder, 0, rule, { cause });
}
