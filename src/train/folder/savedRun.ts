/** Converts between the state of a run on its mesh and checkpoints, which hold layers in canonical order. */
import { ConfigError } from "../../ir/errors.js";
import type { Variables } from "../../nn/modules/scope.js";
import { devicePut } from "../../spmd/mesh/sharding.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { fieldsOf, valueAt } from "../config/configSchema.js";
import { modelConfig, type RunConfig, readRunConfig, runSchema, tuneConfig } from "../config/runConfig.js";
import type { Checkpoint, Checkpoints, PendingSave } from "../files/checkpoints/checkpoint.js";
import type { Json } from "../files/checkpoints/checkpointManifest.js";
import { wholeOf } from "../files/safetensors/treeFiles.js";
import { fromCanonical, toCanonical } from "../models/layerOrder.js";
import { mergedParams } from "../models/tune.js";
import type { LanguageModelState } from "../step/state.js";
import type { Training } from "../step/training.js";

/** Saves a run; returns once the values are copied, so that training can continue. */
export async function saveRun(
  checkpoints: Checkpoints,
  training: Training,
  state: LanguageModelState,
  progress: { readonly step: number; readonly config: RunConfig; readonly position: Json },
): Promise<PendingSave> {
  const { step, config, position } = progress;
  const extras = { config, data: position, rng: { seed: config.seed } };
  if (!training.layout) return checkpoints.save(step, state, extras);
  return checkpoints.save(step, toCanonical(await onHost(state), training.layout), extras);
}

/** A copy of a tree's tensors in host memory. */
export async function onHost<T>(values: T): Promise<T> {
  const { leaves, structure } = tree.flatten(values);
  const copies = leaves.map(async (leaf) => {
    if (!(leaf instanceof Tensor)) return leaf;
    return Tensor.fromHost(leaf.type, await wholeOf(leaf, "onHost"));
  });
  return tree.unflatten<T>(structure, await Promise.all(copies));
}

/** The state that a checkpoint holds, on the mesh of a training. */
export async function restoreRun(checkpoint: Checkpoint, training: Training): Promise<LanguageModelState> {
  const { types, layout, shardings } = training;
  if (!layout) return checkpoint.restore(types, { shardings });
  const whole = await checkpoint.restore(toCanonical(types, layout));
  return devicePut(fromCanonical(whole, layout), shardings);
}

/** What a checkpoint holds of a model: its parameters, or adapters and the frozen parameters beside them. */
export interface StoredModel {
  readonly params: Variables;
  readonly base?: Variables;
}

/** The parameters of a checkpoint's model; adapters are merged. @param vocabSize that of the tokeniser */
export async function storedParams(checkpoint: Checkpoint, vocabSize: number): Promise<Variables> {
  const config = storedConfig(checkpoint);
  const stored = await checkpoint.restoreTree<StoredModel>();
  return mergedParams(stored, modelConfig(config, vocabSize), tuneConfig(config));
}

/** The configuration that a checkpoint was saved with. */
export function storedConfig(checkpoint: Checkpoint): RunConfig {
  const { config, violations } = readRunConfig(checkpoint.manifest.config);
  if (violations.length === 0) return config;
  const list = violations.map((line) => `\n  ${line}`).join("");
  throw new ConfigError(
    `the configuration in ${checkpoint.folder} cannot be used; another release may have written it:${list}`,
  );
}

/**
 * Fields in which a resumed run may differ from the checkpoint: where it runs, what it reports, and its learning rate,
 * which one lowers when the loss has diverged.
 */
const free: readonly (
  | keyof RunConfig
  | `model.${keyof RunConfig["model"]}`
  | `optimizer.${keyof RunConfig["optimizer"]}`
)[] = [
  "mesh",
  "pipeline",
  "tensor",
  "steps",
  "out",
  "checkpointEvery",
  "checkpoint",
  "keep",
  "evalEvery",
  "sample",
  "sampleEvery",
  "engine",
  "model.remat",
  "optimizer.accumulate",
  "optimizer.learningRate",
  "optimizer.schedule",
  "optimizer.warmup",
];

function isFree(path: string, before: RunConfig, config: RunConfig): boolean {
  // The optimiser's state has an entry for clipping only if gradients are clipped.
  if (path === "optimizer.clip") return before.optimizer.clip > 0 && config.optimizer.clip > 0;
  return free.some((name) => path === name || path.startsWith(`${name}.`));
}

/** Throws unless a run can resume from a checkpoint; all fields that differ are listed. */
export function checkResumable(config: RunConfig, checkpoint: Checkpoint): void {
  const before = storedConfig(checkpoint);
  const differing = [...fieldsOf(runSchema).keys()]
    .filter((path) => !isFree(path, before, config))
    .filter((path) => JSON.stringify(valueAt(config, path)) !== JSON.stringify(valueAt(before, path)));
  if (differing.length === 0) return;
  const list = differing.map(
    (path) =>
      `\n  ${path} was ${JSON.stringify(valueAt(before, path))} and is ${JSON.stringify(valueAt(config, path))}`,
  );
  throw new ConfigError(
    `[resume] ${checkpoint.folder} belongs to another configuration:${list.join("")}\nuse the values it was saved with, or start a new run without --resume`,
  );
}
