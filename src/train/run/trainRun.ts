/**
 * A training run from its configuration to its report, from top to bottom. Each stage is a module with one function,
 * which takes the result of the stage before and extends it: see their return types.
 */
import { withFolders } from "#platform/fs";
import { build } from "./build.js";
import { configure } from "./configure.js";
import { finish } from "./finish.js";
import { type LiveRun, withLife } from "./life.js";
import { loop } from "./loop.js";
import { open } from "./open.js";
import { restore } from "./restore.js";
import type { RunOptions, RunOutcome } from "./runOptions.js";

/** Trains a model as a configuration says; see `docs/guide.md` for what it writes and where. */
export async function trainRun(options: RunOptions): Promise<RunOutcome> {
  // The options are checked, and all processes agree on them.
  const configured = await configure(options);
  const { out, init } = configured.config;
  // The run locks its folder; however it ends, everything is closed and failures are explained.
  const locked = () => withLife(configured, stages);
  return withFolders([out, init].filter(Boolean), locked);
}

async function stages(run: LiveRun): Promise<RunOutcome> {
  // The checkpoint to continue from, and the text.
  const opened = await open(run);
  // The step functions, the batches, the journal and the saves.
  const built = await build(opened);
  // The state, from the checkpoint or new.
  const restored = await restore(built);
  // Steps, evaluations, metrics and checkpoints.
  const trained = await loop(restored);
  // The last checkpoint, a sample, the trace of a step and the report.
  return finish(trained);
}
