/** The first stage of a run: its options are checked, and its processes agree on them. */

import type { Mesh } from "../../spmd/mesh/mesh.js";
import type { RunConfig } from "../config/runConfig.js";
import { runMesh } from "../config/setup.js";
import { agreeOn, type ProcessGroup, processGroupOf } from "../files/checkpoints/processGroup.js";
import { type RunOptions, runOptions } from "./runOptions.js";

/** A run with its options, its mesh and its processes. */
export interface ConfiguredRun {
  /** What all processes agreed on. */
  readonly options: RunOptions;
  readonly config: RunConfig;
  readonly mesh: Mesh;
  /** The processes that train together; the first one writes and reports. */
  readonly group: ProcessGroup;
}

/** Checks the options of a run and makes its mesh; throws in every process if they differ. */
export async function configure(asked: RunOptions): Promise<ConfiguredRun> {
  const given = runOptions.read(asked, "trainRun");
  const mesh = runMesh(given.config, given.engine);
  const group = processGroupOf(mesh.engine);
  const options = await agreedOptions(given, group);
  return { options, config: options.config, mesh, group };
}

const silent = { write: () => true };

/**
 * The options of this process; all must have the same configuration except for the folder, which is that of process 0.
 */
async function agreedOptions(options: RunOptions, group: ProcessGroup): Promise<RunOptions> {
  if (group.count === 1) return options;
  const { out, ...rest } = options.config;
  const folders = await group.share(out);
  await agreeOn(group, "the configuration", JSON.stringify(rest));
  const config: RunConfig = { ...options.config, out: folders[0] ?? out };
  const stream = group.index === 0 ? options.stream : silent;
  return { ...options, config, ...(stream && { stream }) };
}
