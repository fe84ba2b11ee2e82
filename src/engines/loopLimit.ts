import { ShardwiseError } from "../ir/errors.js";
import { DEFAULT_DEADLINE_MS, environmentSettings } from "./settings.js";

/** Most of the time between two readings of the clock that counts: a process may have been suspended in between. */
const MAX_INTERVAL_MS = 5000;

/** Starts watching a loop without a fixed end; the returned function is called in every iteration. */
export type LimitLoop = () => () => void;

/**
 * Ends loops on the calling thread that run longer than the deadline, since no other thread can: the deadline given,
 * that of `SHARDWISE_DEADLINE`, or two minutes.
 */
export function limitLoops(deadlineMs?: number): LimitLoop {
  return () => {
    const deadline = deadlineMs ?? environmentSettings().deadlineMs ?? DEFAULT_DEADLINE_MS;
    let last = performance.now();
    let ran = 0;
    return () => {
      const now = performance.now();
      ran += Math.min(now - last, MAX_INTERVAL_MS);
      last = now;
      if (ran < deadline) return;
      throw new ShardwiseError(
        "device-failed",
        `[whileLoop] it has not ended for ${deadline} ms on the calling thread: its condition stays true, or if it may take that long, raise deadlineMs or SHARDWISE_DEADLINE (in seconds)`,
      );
    };
  };
}
