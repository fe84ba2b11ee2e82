/** What commands derive from a run's configuration before they start: its mesh and its compiled functions. */

import { join } from "#platform/path";
import { sharedEngine } from "../../engines/default.js";
import type { Engine } from "../../ir/engine.js";
import { Recent } from "../../ir/recent.js";
import { sizeOf } from "../../ir/shape.js";
import { Mesh } from "../../spmd/mesh/mesh.js";
import { byteTokenizer } from "../data/tokenizers/tokenizer.js";
import { namedLeaves } from "../files/safetensors/treeFiles.js";
import { createTraining, type Training } from "../step/training.js";
import { runOptimizer } from "./optimizer.js";
import { engineSettings, modelConfig, needRunConfig, type RunConfig, tuneConfig } from "./runConfig.js";

/** The folder of a run's checkpoints. */
export function checkpointFolder(run: string): string {
  return join(run, "checkpoints");
}

/** Makes the mesh of a run, on the shared engine of the process unless another is given. */
export function runMesh(config: RunConfig, engine?: Engine): Mesh {
  needRunConfig(config, "trainRun");
  const { data, fsdp, expert, pipe, context, model } = config.mesh;
  const settings = engineSettings(config);
  const numDevices = data * fsdp * expert * pipe * context * model;
  const given = engine ?? (isEmpty(settings) ? undefined : sharedEngine(numDevices, settings));
  const some = (axis: string, size: number) => (size > 1 ? { [axis]: size } : {});
  const axes = { data, fsdp, ...some("expert", expert), pipe, ...some("context", context), model };
  return Mesh.create(axes, given ? { engine: given } : {});
}

const isEmpty = (settings: object): boolean => Object.keys(settings).length === 0;

/** Recently compiled functions by engine: a run that is resumed or has another seed needs the same ones. */
const trainings = new WeakMap<Engine, Recent<Training>>();

/** Maximum number of entries to cache; each keeps its compiled programs on its devices. */
const maxTrainings = 4;

/** The compiled functions of a run: reused from recent runs of this process with the same model, optimiser and mesh. */
export function runTrainingFunctions(config: RunConfig, vocabSize: number, mesh: Mesh): Training {
  const { optimizer, steps, pipeline, tensor, context, dpo } = config;
  const tune = tuneConfig(config);
  const { paramDtype } = config.model;
  const model = modelConfig(config, vocabSize);
  const { engine, axes, deviceIds } = mesh;
  const recent = trainings.get(engine) ?? new Recent<Training>(maxTrainings);
  trainings.set(engine, recent);
  const key = JSON.stringify([
    model,
    optimizer,
    steps,
    paramDtype,
    pipeline,
    tensor,
    context,
    dpo,
    tune,
    axes,
    deviceIds,
  ]);
  return recent.get(key, () =>
    createTraining({
      model,
      optimizer: runOptimizer(config),
      mesh,
      zLoss: optimizer.zLoss,
      accumulate: optimizer.accumulate,
      paramDtype,
      lossScale: { initial: optimizer.lossScale },
      pipeline,
      tensor,
      context,
      ...(dpo.beta > 0 && { dpo }),
      ...(tune && { tune }),
    }),
  );
}

/** The axes of a mesh with more than one device, such as `data=2`. */
export function splittingAxes(shape: Readonly<Record<string, number>>): string[] {
  return Object.entries(shape).flatMap(([axis, size]) => (size > 1 ? [`${axis}=${size}`] : []));
}

/**
 * The vocabulary size to expect before the text is read: that of bytes, or the requested one of a trained tokeniser.
 */
export function expectedVocabulary({ data }: RunConfig): number {
  return data.tokenizer === "bytes" ? byteTokenizer().vocabSize : data.vocabSize;
}

/** The number of trained parameters of a state, from its types. */
export function numParameters({ params }: Pick<Training["types"], "params">): number {
  return namedLeaves(params, "numParameters").reduce((sum, { type }) => sum + sizeOf(type.shape), 0);
}
