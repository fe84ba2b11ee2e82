import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import type { AbortSignalLike } from "../../platform/hostTypes.js";
import { type WorkersInfo, workersOptions } from "../workers/workersOptions.js";

/** The schema of {@link ThreadsEngineOptions}. */
export const threadsEngineOptions = schema({
  ...workersOptions.fields,
  /** The number of devices, each a worker thread. */
  numDevices: required("number"),
  /** Closes the engine when it is aborted: runs and workers end, and what waits for values gets a `DisposedError`. */
  signal: optional<AbortSignalLike>("object"),
});

/** Options of a threads engine. */
export interface ThreadsEngineOptions extends OptionsOf<typeof threadsEngineOptions> {}

/** What a threads engine runs on. */
export interface ThreadsEngineInfo extends WorkersInfo {
  readonly engine: "threads";
}
