import { writeRecording } from "#engines/flight/file";
import { join } from "#platform/path";
import type { Engine } from "../../ir/engine.js";

/** The folder of a run in which the flight recordings of its processes are kept. */
export function flightFolder(run: string): string {
  return join(run, "flight");
}

/**
 * Writes the flight recording of this process's devices to the run's folder.
 *
 * @returns the file, or undefined if the engine keeps no recording or it cannot be written
 */
export function recordFlight(engine: Engine, run: string, reason: string): string | undefined {
  const recording = engine.flightRecording?.(reason);
  if (recording === undefined) return undefined;
  const path = join(flightFolder(run), `process-${engine.process.index}.json`);
  try {
    writeRecording(path, recording);
    return path;
  } catch {
    // The run is ending for another reason, which matters more.
    return undefined;
  }
}
