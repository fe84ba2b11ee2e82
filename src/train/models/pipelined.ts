import { module } from "../../nn/modules/module.js";
import * as np from "../../numpy/index.js";
import { CircularPipeline } from "../../parallel/circularPipeline.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import type { Tensor } from "../../trace/tensor.js";
import { layerLoop, type RunLayers, rematPolicies } from "./languageModel.js";
import type { LayerLayout } from "./layerOrder.js";
import { streamPositions } from "./moeDecoder.js";

/** Runs the blocks as stages of a pipeline along mesh axis `pipe`; with one repeat that is GPipe. */
export function pipelinedLayers(mesh: Mesh, numMicrobatches: number, layout: LayerLayout): RunLayers {
  const { layersPerStage, numRepeats, numStages } = layout;
  return (config, x, reading) => {
    const Stage = module(
      "Stage",
      (_: object) =>
        (stream: Tensor, segmentIds?: Tensor | null, given?: Tensor | null): Tensor => {
          const Layers = layerLoop(config, layersPerStage);
          // Without documents, every sequence starts at its first token, so a stage can compute the positions itself.
          const positions = given ?? streamPositions(config, stream);
          const [out] = Layers({ ...config, name: "stack" })(stream, {
            positions,
            ...(segmentIds && { segmentIds }),
          });
          return out;
        },
    );
    const pipeline = CircularPipeline({
      name: "layers",
      layers: Stage({ parent: null }),
      mesh,
      numStages,
      numPipelineMicrobatches: numMicrobatches,
      numPipelineRepeats: numRepeats,
      numLayersPerStage: layersPerStage,
      stageAxisName: "pipe",
      fsdpAxisNames: ["fsdp"],
      activationNames: ["batch", "streamLength", "activationEmbed"],
      setRematPolicyOnPipelineIterations: config.remat !== "none",
      ...(config.remat === "none" ? {} : { rematPolicy: rematPolicies[config.remat] }),
    });
    // Every microbatch takes rows of every device's part of the batch, so that no row moves to another device.
    const [batch = 0, ...row] = x.shape;
    const perMicrobatch = batch / numMicrobatches;
    const dealt = (rows: Tensor) =>
      np
        .swapaxes(rows.reshape([perMicrobatch, numMicrobatches, ...rows.shape.slice(1)]), 0, 1)
        .reshape(rows.shape);
    const { segmentIds, positions } = reading;
    const documents = segmentIds ? [dealt(segmentIds), dealt(positions)] : [];
    const result = pipeline(dealt(x), ...documents).reshape([numMicrobatches, perMicrobatch, ...row]);
    return np.swapaxes(result, 0, 1).reshape(x.shape);
  };
}
