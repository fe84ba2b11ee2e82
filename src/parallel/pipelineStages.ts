import { type ModuleInstance, type Variables, vmap as vmapModule } from "../nn/index.js";
import * as random from "../random/index.js";
import { Tensor } from "../trace/tensor.js";
import { vmap } from "../transforms/batching/vmap.js";
import { checkpointName } from "../transforms/derivatives/remat.js";
import type { StageFunction } from "./pipelineConfig.js";
import { type LoopState, PipelineLoop } from "./pipelineLoop.js";
import type { SpecTree } from "./pipelineSpecs.js";

/** The layers of all stages at once: every tensor has the stages in dim 0. */
export type StagesFunction = (
  layers: ModuleInstance<StageFunction>,
  weights: Variables,
  stagesInputs: Tensor,
  stagesSegmentIds: Tensor | null,
  stagesPositions: Tensor | null,
  deterministic: boolean,
  modelMode: string,
  dropoutKey?: Tensor | null,
) => Tensor;

/** Makes the variables of all stages: every tensor has the stages in dim 0. */
export type InitFunction = (
  layers: ModuleInstance<StageFunction>,
  stagesInputs: Tensor,
  stagesSegmentIds: Tensor | null,
  stagesPositions: Tensor | null,
  deterministic: boolean,
  modelMode: string,
) => Tensor;

/** What an iteration needs besides the state of the loop. */
export interface IterationArguments {
  /**
   * The variables of the layers by collection, without boxes: tensors [repeats, stages, …], or [stages, …] for one
   * repeat.
   */
  readonly pipelineWeights: Variables;
  /** [microbatches, microbatch …] or null. */
  readonly positions?: Tensor | null;
  /** [microbatches, microbatch …] or null. */
  readonly segmentIds?: Tensor | null;
  readonly deterministic?: boolean;
  readonly modelMode?: string;
  readonly layers: ModuleInstance<StageFunction>;
  /** The names of the weights' dims without that of the repeats. */
  readonly logicalPartitionSpec?: SpecTree;
  /** The key from which every iteration and stage derives its own dropout key. */
  readonly dropoutKey?: Tensor | null;
}

/** The tensor in the result of a stage. */
export const firstOf = (result: Tensor | readonly [Tensor, ...unknown[]]): Tensor =>
  result instanceof Tensor ? result : result[0];

/** The default `mode` argument of layers. */
export const defaultMode = "train";

/** The collections of which every stage has its own part. */
const weightCollections = ["params", "_overwrite_with_gradient"];

/** Maps collections to 0, the dim along which they are stacked. */
export const stacked = (collections: readonly string[]): Record<string, number> =>
  Object.fromEntries(collections.map((name) => [name, 0]));

/** The parts of a circular pipeline: its schedule and buffers, and how stages run; each is usable on its own. */
export class CircularPipelineParts extends PipelineLoop {
  /**
   * A function that makes the variables of all stages, for use inside a module during `init`.
   *
   * @param collections those that the layers make; each stage has its own part of all of them
   */
  readonly getVmapFuncForInit = (collections: readonly string[] = weightCollections): InitFunction =>
    vmapModule(
      (layers: ModuleInstance<StageFunction>, ...args: Parameters<StageFunction>): Tensor =>
        firstOf(layers(...args)),
      {
        inAxes: [0, 0, 0, null, null],
        variableAxes: stacked(collections),
        splitRngs: { params: true, dropout: true },
        metadataParams: { partitionName: "layers" },
        ...this.spmdAxis(),
      },
    );

  /** The layers mapped over the stages, which are split over the stage axis. */
  readonly getMainVmapFuncForIterations =
    (): StagesFunction =>
    (layers, weights, inputs, segmentIds, positions, deterministic, modelMode, dropoutKey = null) => {
      const { numStages } = this.settings;
      const one = (
        own: Variables,
        x: Tensor,
        ids: Tensor | null,
        places: Tensor | null,
        key: Tensor | null,
      ) => {
        const rngs = key === null ? {} : { rngs: { dropout: key } };
        return firstOf(layers.with(rngs).apply(own, x, ids, places, deterministic, modelMode));
      };
      const keys = dropoutKey && random.split(dropoutKey, numStages);
      return vmap(one, { inAxes: 0, ...this.spmdAxis() })(weights, inputs, segmentIds, positions, keys);
    };

  /**
   * One iteration: every stage takes its weights and inputs, all run at once, and the results move to the next stages.
   */
  readonly runOneIteration = (loopState: LoopState, given: IterationArguments): LoopState => {
    const { pipelineWeights, logicalPartitionSpec = null } = given;
    const specs = this.physicalSpec(logicalPartitionSpec);
    const weights = this.getCurrentStageWeights(pipelineWeights, loopState.loopIteration, specs);
    const isWhole = this.settings.numRepeats > 1;
    return this.runWith(isWhole ? weights : this.gatherStageWeights(weights, specs), loopState, given);
  };

  /** {@link runOneIteration} with the weights that the stages use in it, [stages, …]. */
  runWith(weights: Variables, loopState: LoopState, given: IterationArguments): LoopState {
    const { positions = null, segmentIds = null, deterministic = true, modelMode = defaultMode } = given;
    const { loopIteration } = loopState;
    const [microbatchIds] = this.getMicrobatchAndRepeatIds(loopIteration);
    const inputs = checkpointName(
      this.getIterationInputs(loopIteration, loopState.stateIo, loopState.circStorage, loopState.shift),
      "iteration_input",
    );
    const output = this.getMainVmapFuncForIterations()(
      given.layers,
      weights,
      inputs,
      segmentIds && this.vmapGather(segmentIds, microbatchIds, 0),
      positions && this.vmapGather(positions, microbatchIds, 0),
      deterministic,
      modelMode,
      given.dropoutKey && random.foldIn(given.dropoutKey, loopIteration),
    );
    return this.getNewLoopState(this.perStage(output), loopState);
  }

  private spmdAxis(): { readonly spmdAxisName?: string } {
    const axis = this.stageEntry();
    return axis === null ? {} : { spmdAxisName: axis };
  }
}
