import { module } from "../../nn/module.js";
import { CircularPipeline } from "../../parallel/circularPipeline.js";
import type { Mesh } from "../../spmd/mesh.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { checkpointPolicies } from "../../transforms/remat.js";
import type { LayerLayout } from "../canonical.js";
import { layerLoop, type RunLayers } from "./languageModel.js";

const policies = { dots: checkpointPolicies.dotsSaveable, full: checkpointPolicies.nothingSaveable };

/** Runs the blocks as stages of a pipeline along mesh axis `pipe`; with one repeat that is GPipe. */
export function pipelinedLayers(mesh: Mesh, numMicrobatches: number, layout: LayerLayout): RunLayers {
  const { layersPerStage, numRepeats, numStages } = layout;
  return (config, x) => {
    const Stage = module("Stage", (_: object) => (stream: Tensor): Tensor => {
      const Layers = layerLoop(config, layersPerStage);
      // Every sequence starts at its first token, so a stage knows the positions without being told.
      const positions = ops.iota("int32", [stream.shape[1] ?? 0], 0);
      const [out] = Layers({ ...config, name: "stack" })(stream, positions);
      return out;
    });
    return CircularPipeline({
      name: "layers",
      layers: Stage({ parent: null }),
      mesh,
      numStages,
      numPipelineMicrobatches: numMicrobatches,
      numPipelineRepeats: numRepeats,
      numLayersPerStage: layersPerStage,
      stageAxisName: "pipe",
      fsdpAxisNames: ["fsdp"],
      activationNames: ["batch", "length", "activationEmbed"],
      setRematPolicyOnPipelineIterations: config.remat !== "none",
      ...(config.remat === "none" ? {} : { rematPolicy: policies[config.remat] }),
    })(x);
  };
}
