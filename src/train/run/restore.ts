/** The fourth stage of a run: its state, from a checkpoint or from its seed. */
import { logicalToMeshSharding } from "../../nn/modules/logicalPartitioning.js";
import { getPartitionSpec } from "../../nn/modules/partitioned.js";
import * as tree from "../../trace/tree.js";
import { modelConfig } from "../config/runConfig.js";
import { FileError } from "../files/disk/fileError.js";
import { restoreRun } from "../folder/savedRun.js";
import { languageModelRules } from "../models/names.js";
import { keepCompanions } from "../pretrained/initialize.js";
import { importPretrained, parameterTypes } from "../pretrained/loadPretrained.js";
import { readPretrainedConfig } from "../pretrained/pretrainedFolder.js";
import { firstBadLeaf, isFiniteState } from "../step/health.js";
import type { LanguageModelState } from "../step/state.js";
import type { BuiltRun } from "./build.js";
import { computeReference, restoreReference } from "./reference.js";

/** A run that is ready for its next step. */
export interface RestoredRun extends BuiltRun {
  readonly state: LanguageModelState;
  /** The number of completed steps. */
  readonly step: number;
}

/** The state of a checkpoint, or a new one; a checkpoint must be finite, or it would only be saved again. */
export async function restore(run: BuiltRun): Promise<RestoredRun> {
  const { config, life, from, training } = run;
  await life.phase(from ? `restoring step ${from.step}` : "initialising the model");
  if (!from) {
    const state = config.init === "" ? training.init(config.seed) : await pretrainedState(run);
    await computeReference(run, state);
    return { ...run, state, step: 0 };
  }
  await restoreReference(run.data, run.config.out);
  const state = await restoreRun(from, training);
  if (await isFiniteState(training, state)) return { ...run, state, step: from.step };
  const bad = await firstBadLeaf(state);
  const rule = `its tensors are not all finite${bad ? `; the first one is ${bad.path}` : ""}: remove this checkpoint to continue from the one before it, or start a new run`;
  throw new FileError("resume", from.folder, 0, rule);
}

/** The state of a run that starts from a pretrained model. */
async function pretrainedState({
  config,
  data,
  mesh,
  group,
  training,
}: BuiltRun): Promise<LanguageModelState> {
  const model = modelConfig(config, data.tokenizer.vocabSize);
  const pretrained = await readPretrainedConfig(config.init, config.ignoreFields.split(","));
  // Parameters that are not trained never need more precision than their files have.
  const types = parameterTypes(model, config.tune.kind === "none" ? "float32" : pretrained.storedDtype);
  const shardings = logicalToMeshSharding(
    getPartitionSpec(types),
    mesh,
    languageModelRules("sync", mesh.axisNames),
  );
  const params = await importPretrained(config.init, types, model, pretrained, { shardings });
  const state = training.initFrom(params, config.seed);
  tree.dispose(params, state);
  if (group.index === 0) await keepCompanions(config.init, config.out);
  return state;
}
