/** What commands make of a run's configuration before they do anything with it. */

import { join } from "node:path";
import { sharedEngine } from "../../engines/default.js";
import type { Engine } from "../../ir/engine.js";
import { Recent } from "../../ir/recent.js";
import { sizeOf } from "../../ir/shape.js";
import { Mesh } from "../../spmd/mesh/mesh.js";
import { byteTokenizer } from "../data/tokenizer.js";
import { namedLeaves } from "../files/treeFiles.js";
import { createTraining, type Training } from "../step/training.js";
import { runOptimizer } from "./optimizer.js";
import { engineSettings, modelConfig, needRunConfig, type RunConfig } from "./runConfig.js";

/** The folder of a run's checkpoints. */
export function checkpointFolder(run: string): string {
  return join(run, "checkpoints");
}

/** Makes the mesh of a run, on the process's shared engine unless another is given. */
export function runMesh(config: RunConfig, engine?: Engine): Mesh {
  needRunConfig(config, "trainRun");
  const { data, fsdp, pipe, model } = config.mesh;
  const settings = engineSettings(config);
  const given =
    engine ?? (isEmpty(settings) ? undefined : sharedEngine(data * fsdp * pipe * model, settings));
  return Mesh.create({ data, fsdp, pipe, model }, given ? { engine: given } : {});
}

const isEmpty = (settings: object): boolean => Object.keys(settings).length === 0;

/** What was made last for runs on an engine: one that is taken up again, or has another seed, needs the same. */
const trainings = new WeakMap<Engine, Recent<Training>>();

/** Maximum number that are kept; each keeps what it compiled on its devices. */
const mostTrainings = 4;

/** The compiled functions of a run: those of the last runs of this process with the same model, optimiser and mesh. */
export function runTrainingFunctions(config: RunConfig, vocabSize: number, mesh: Mesh): Training {
  const { optimizer, steps, pipeline, tensor } = config;
  const { paramDtype } = config.model;
  const model = modelConfig(config, vocabSize);
  const { engine, axes, deviceIds } = mesh;
  const recent = trainings.get(engine) ?? new Recent<Training>(mostTrainings);
  trainings.set(engine, recent);
  const key = JSON.stringify([model, optimizer, steps, paramDtype, pipeline, tensor, axes, deviceIds]);
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
    }),
  );
}

/** The axes of a mesh with more than one device, such as `data=2`. */
export function splittingAxes(shape: Readonly<Record<string, number>>): string[] {
  return Object.entries(shape).flatMap(([axis, size]) => (size > 1 ? [`${axis}=${size}`] : []));
}

/** The vocabulary is known only when the text is read; bytes have this many, a trained one what was asked for. */
export function expectedVocabulary({ data }: RunConfig): number {
  return data.tokenizer === "bytes" ? byteTokenizer().vocabSize : data.vocabSize;
}

/** The number of parameters of a state, given its types. */
export function numParameters({ params }: Pick<Training["types"], "params">): number {
  return namedLeaves(params, "numParameters").reduce((sum, { type }) => sum + sizeOf(type.shape), 0);
}
