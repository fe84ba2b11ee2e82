/** What commands make of a run's configuration before they do anything with it. */

import { join } from "node:path";
import { sharedEngine } from "../../engines/default.js";
import type { Engine } from "../../ir/engine.js";
import type { MeshAxis } from "../../ir/mesh.js";
import { sizeOf } from "../../ir/shape.js";
import { Mesh } from "../../spmd/mesh/mesh.js";
import { byteTokenizer } from "../data/tokenizer.js";
import { namedLeaves } from "../files/treeFiles.js";
import { createTraining, type Training } from "../step/training.js";
import { engineSettings, modelConfig, needRunConfig, type RunConfig } from "./config.js";
import { runOptimizer } from "./optimizer.js";

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

/** Makes the compiled functions of a run. */
export function runTrainingFunctions(config: RunConfig, vocabSize: number, mesh: Mesh): Training {
  return createTraining({
    model: modelConfig(config, vocabSize),
    optimizer: runOptimizer(config),
    mesh,
    zLoss: config.optimizer.zLoss,
    accumulate: config.optimizer.accumulate,
    paramDtype: config.model.paramDtype,
    lossScale: { initial: config.optimizer.lossScale },
    pipeline: config.pipeline,
    tensor: config.tensor,
  });
}

/** The axes of a mesh with more than one device, such as `data=2`. */
export function splittingAxes(axes: readonly MeshAxis[]): string[] {
  return axes.filter(({ size }) => size > 1).map(({ name, size }) => `${name}=${size}`);
}

/** The vocabulary is known only when the text is read; bytes have this many, a trained one what was asked for. */
export function expectedVocabulary({ data }: RunConfig): number {
  return data.tokenizer === "bytes" ? byteTokenizer().vocabSize : data.vocabSize;
}

/** The number of parameters of a state, given its types. */
export function numParameters({ params }: Pick<Training["types"], "params">): number {
  return namedLeaves(params, "numParameters").reduce((sum, { type }) => sum + sizeOf(type.shape), 0);
}
