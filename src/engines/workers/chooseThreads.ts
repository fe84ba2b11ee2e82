import { allowedCores } from "#engines/system/pinning";
import { environment, numCores } from "#platform/system";
import { receivesWhileRunning } from "#platform/threads";
import { ValueError } from "../../ir/errors.js";
import type { GemmChoice } from "../products/gemmChoice.js";
import { MAX_THREADS } from "../protocol/crew.js";

/** What determines how many threads an engine has and where they run. */
export interface ThreadChoices {
  readonly numDevices: number;
  readonly threadsPerDevice?: number | undefined;
  readonly pinned?: boolean | undefined;
}

/** How many threads compute for a device, its own included. */
export function chooseThreads(
  { numDevices, threadsPerDevice }: ThreadChoices,
  gemm: GemmChoice,
  cores = numCores(),
): number {
  if (threadsPerDevice === undefined) {
    if (gemm.kind !== "native") return 1;
    return Math.min(MAX_THREADS, Math.max(1, Math.floor(cores / numDevices)));
  }
  if (!Number.isInteger(threadsPerDevice) || threadsPerDevice < 1 || threadsPerDevice > MAX_THREADS) {
    throw new ValueError(
      `[createThreadsEngine] threadsPerDevice must be an integer from 1 to ${MAX_THREADS}, not ${threadsPerDevice}`,
    );
  }
  if (threadsPerDevice > 1 && !receivesWhileRunning) {
    throw new ValueError(
      `[createThreadsEngine] threadsPerDevice is ${threadsPerDevice}, but devices in a browser have one thread each: use a mesh of more devices`,
    );
  }
  return threadsPerDevice;
}

/** A processor for every thread, or none for any. */
export function chooseCores(
  { pinned = environment.SHARDWISE_PIN === "1" }: ThreadChoices,
  count: number,
): number[] {
  const cores = pinned ? allowedCores() : [];
  return cores.length >= count ? cores.slice(0, count) : [];
}
