import { type OptionsOf, required, schema } from "../../ir/schema.js";
import { type WorkersInfo, workersOptions } from "../workers/workersEngine.js";

/** The schema of {@link ThreadsEngineOptions}. */
export const threadsEngineOptions = schema({
  ...workersOptions.fields,
  /** The number of devices, each a worker thread. */
  numDevices: required("number"),
});

/** Options of a threads engine. */
export interface ThreadsEngineOptions extends OptionsOf<typeof threadsEngineOptions> {}

/** What a threads engine runs on. */
export interface ThreadsEngineInfo extends WorkersInfo {
  readonly engine: "threads";
}
