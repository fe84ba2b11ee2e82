import { runCircularPipeline } from "./areas/circularPipeline.js";
import { runCollectives } from "./areas/collectives.js";
import { runDataParallel } from "./areas/dataParallel.js";
import { runLanguageModel } from "./areas/languageModel.js";
import { runModules } from "./areas/modules.js";
import { runPipelineParallel } from "./areas/pipelineParallel.js";
import { runRandom } from "./areas/random.js";
import { runTensorParallel } from "./areas/tensorParallel.js";
import type { AreaRunner } from "./check.js";

/** What computes the cases of each area, by the name of its files. */
export const areas: ReadonlyMap<string, AreaRunner> = new Map([
  ["random", runRandom],
  ["modules", runModules],
  ["collectives", runCollectives],
  ["data_parallel", runDataParallel],
  ["tensor_parallel", runTensorParallel],
  ["pipeline_parallel", runPipelineParallel],
  ["circular_pipeline", runCircularPipeline],
  ["language_model", runLanguageModel],
]);
