import type { RematPolicy } from "../ir/ops.js";
import { schema } from "../ir/schema.js";
import { at } from "../ir/shape.js";
import {
  getPartitionSpec,
  hasRng,
  isBoxed,
  isInitializing,
  type ModuleInstance,
  type ModuleOptions,
  makeRng,
  module,
  Partitioned,
  type Variables,
  vmap as vmapModule,
} from "../nn/index.js";
import { currentScope } from "../nn/modules/context.js";
import { moduleOptions } from "../nn/modules/module.js";
import * as np from "../numpy/index.js";
import * as random from "../random/index.js";
import type { Mesh } from "../spmd/mesh/mesh.js";
import { NamedSharding } from "../spmd/mesh/sharding.js";
import { withShardingConstraint } from "../spmd/run/constraint.js";
import { Tensor } from "../trace/tensor.js";
import * as tree from "../trace/tree.js";
import { evalShape } from "../transforms/makeProgram.js";
import { checkCall, checkSpecs, checkStage, checkWeights, requireSpecs } from "./pipelineChecks.js";
import { type CircularPipelineConfig, circularPipelineConfig, type StageFunction } from "./pipelineConfig.js";
import { runIterations } from "./pipelineIterations.js";
import { type SpecTree, specsOfBoxes, weightsWithoutBoxes } from "./pipelineSpecs.js";
import { CircularPipelineParts, defaultMode, firstOf, stacked } from "./pipelineStages.js";

export type { CircularPipelineConfig, StageFunction } from "./pipelineConfig.js";
export type { LoopState, PipelineBuffers } from "./pipelineLoop.js";
export type { SpecTree } from "./pipelineSpecs.js";
export {
  CircularPipelineParts,
  type InitFunction,
  type IterationArguments,
  type StagesFunction,
} from "./pipelineStages.js";

/** What {@link CircularPipeline} computes: the layers one after the other, on a whole batch. */
export type PipelineFunction = (
  inputs: Tensor,
  segmentIds?: Tensor | null,
  positions?: Tensor | null,
  deterministic?: boolean,
  modelMode?: string,
  logicalPartitionSpec?: SpecTree,
) => Tensor;

/** Makes the variables [repeats, stages, …], and a result of the right shape. */
function initialize(parts: CircularPipelineParts, microbatches: Parameters<StageFunction>): Tensor {
  const { numStages, numRepeats, numMicrobatches, config } = parts.settings;
  const [inputs, segmentIds, positions, deterministic, modelMode] = microbatches;
  const lead = numRepeats > 1 ? [numRepeats, numStages] : [numStages];
  const example = <T extends Tensor | null>(x: T) =>
    x && np.broadcastTo(first(x), [...lead, ...x.shape.slice(1)]);
  const collections = collectionsOf(config.layers, microbatches);
  const init = parts.getVmapFuncForInit(collections);
  const rounds =
    numRepeats > 1
      ? vmapModule(init, {
          inAxes: [0, 0, 0, null, null],
          variableAxes: stacked(collections),
          splitRngs: { params: true, dropout: true },
          metadataParams: { partitionName: "circular_repeats" },
        })
      : init;
  const [given, ids, places] = [example(inputs), example(segmentIds), example(positions)];
  const output = rounds(config.layers, given, ids, places, deterministic, modelMode);
  splitVariables(parts);
  const [, size = 0, ...rest] = inputs.shape;
  const one = first(np.reshape(output, [-1, size, ...rest]));
  const all = np.broadcastTo(one, [numMicrobatches, size, ...rest]);
  return np.reshape(all, [numMicrobatches * size, ...rest]);
}

/** The collections that layers make for one microbatch, whose result must be like it. */
function collectionsOf(
  layers: ModuleInstance<StageFunction>,
  [inputs, segmentIds, positions, deterministic, modelMode]: Parameters<StageFunction>,
): string[] {
  const keys = { params: random.key(0), dropout: random.key(0) };
  const one = evalShape((x: Tensor, ids: Tensor | null, places: Tensor | null): [Tensor, Variables] => {
    const [result, made] = layers.initWithOutput(
      keys,
      first(x),
      ids && first(ids),
      places && first(places),
      deterministic,
      modelMode,
    );
    return [firstOf(result), made];
  });
  const [result, made] = one(inputs, segmentIds, positions);
  checkStage(layers, { shape: inputs.shape.slice(1), dtype: inputs.dtype }, result);
  return Object.keys(made);
}

/** Splits new variables as their names and the rules say, those without names over the stages only. */
function splitVariables(parts: CircularPipelineParts): void {
  const { mesh, numRepeats } = parts.settings;
  if (!mesh) return;
  const scope = currentScope("CircularPipeline");
  for (const [collection, values] of Object.entries(layerVariables())) {
    const { leaves, structure } = tree.flatten(values, isBoxed);
    const split = leaves.map((leaf) => {
      if (leaf instanceof Partitioned && leaf.value instanceof Tensor) {
        const spec = parts.physicalSpec(leaf.getPartitionSpec());
        return leaf.replaceBoxed(withShardingConstraint(leaf.value, new NamedSharding(mesh, spec)));
      }
      return leaf instanceof Tensor ? parts.shardDimByStages(leaf, numRepeats > 1 ? 1 : 0, null) : leaf;
    });
    scope.put(collection, "layers", tree.unflatten(structure, split));
  }
}

const first = (x: Tensor) => np.reshape(np.take(x, np.array(0).astype("int32"), 0), x.shape.slice(1));

const Pipeline = module(
  "Pipeline",
  (config: CircularPipelineConfig): PipelineFunction =>
    (
      inputs,
      segmentIds = null,
      positions = null,
      deterministic = true,
      modelMode = defaultMode,
      logicalPartitionSpec = null,
    ) => {
      const parts = new CircularPipelineParts(config);
      const { layers, pipelineFsdpAgOnce, pipelineFsdpAgPerRepeat } = config;
      const { numMicrobatches } = parts.settings;
      checkCall(parts.settings, { inputs, segmentIds, positions });
      const split = (x: Tensor) =>
        np.reshape(x, [numMicrobatches, at(x.shape, 0) / numMicrobatches, ...x.shape.slice(1)]);
      const [microbatches, ids, places] = [
        split(inputs),
        segmentIds && split(segmentIds),
        positions && split(positions),
      ];
      if (isInitializing()) return initialize(parts, [microbatches, ids, places, deterministic, modelMode]);
      const stored = layerVariables();
      const logical = logicalPartitionSpec ?? specsOfBoxes(stored);
      const plain = weightsWithoutBoxes(stored);
      checkWeights(parts.settings, plain);
      checkSpecs(plain, logical);
      if (pipelineFsdpAgOnce || pipelineFsdpAgPerRepeat) requireSpecs(logical);
      const last = runIterations(parts, parts.initStates(microbatches), {
        pipelineWeights: pipelineFsdpAgOnce ? parts.allGatherOverFsdp(plain, logical) : plain,
        positions: places,
        segmentIds: ids,
        deterministic,
        modelMode,
        layers,
        logicalPartitionSpec: logical === null ? null : parts.getLogicalSpecRepeatsRemoved(logical),
        dropoutKey: !deterministic && hasRng("dropout") ? makeRng("dropout") : null,
      });
      return np.reshape(parts.permuteOutputMicroPerStageDim(last.stateIo), inputs.shape);
    },
);

/** The variables of `layers` by collection, as they are stored. */
function layerVariables(): Variables {
  const collections = Object.entries(currentScope("CircularPipeline").collections());
  const own = collections.flatMap(([name, values]) => {
    const of = values.layers;
    return typeof of === "object" && of !== null ? [[name, of] as const] : [];
  });
  return Object.fromEntries(own) as Variables;
}

/** A circular pipeline: a module, with its parts as methods. */
export type CircularPipelineInstance = ModuleInstance<PipelineFunction> &
  CircularPipelineParts & {
    /** The configuration of the pipeline. */
    readonly config: CircularPipelineConfig;
    /** The module that each stage runs. */
    readonly layers: ModuleInstance<StageFunction>;
    /** The devices. */
    readonly mesh: Mesh | undefined;
    /** What to keep of an iteration besides its inputs, for the backward pass. */
    readonly rematPolicy: RematPolicy | undefined;
    /** The name in the configuration; empty when there is none. */
    readonly name: string;
    /**
     * The names of the dims of all weights, starting with those of repeats and stages, as a tree of specs by
     * collection; nothing is computed. It takes the arguments of a call.
     */
    getWeightSharding(...args: Parameters<PipelineFunction>): SpecTree;
  };

const circularPipelineOptions = schema({ ...circularPipelineConfig.fields, ...moduleOptions.fields });

/**
 * Layers that are spread over stages: the batch is split into microbatches, and in every iteration each stage works on
 * another one and sends the result to the next stage, and from the last stage to the first again, until every
 * microbatch has passed through all stages `numPipelineRepeats` times. The weights are `[repeats, stages, …]`, and
 * layer `repeat · stages + stage` is on that stage in that repeat.
 *
 * It is written over whole tensors. When the dims of the stages are split over a mesh axis, each device holds its
 * stage's weights and share of the buffers, and every hop is one permutation.
 *
 * @example
 * ```ts
 * const layers = nn.Dense({ features: 2, useBias: false, kernelInit: random.initializers.ones, parent: null });
 * const mesh = Mesh.create({ stage: 2 });
 * const pipeline = parallel.CircularPipeline({ layers, mesh, numPipelineMicrobatches: 2, numPipelineRepeats: 1 });
 * const x = np.ones([2, 1, 2]);
 * pipeline.apply(pipeline.init(random.key(0), x), x); // [[[4, 4]], [[4, 4]]]
 * ```
 */
export function CircularPipeline(config: CircularPipelineConfig & ModuleOptions): CircularPipelineInstance {
  circularPipelineOptions.read(config, "CircularPipeline");
  const parts = new CircularPipelineParts(config);
  const pipeline = Pipeline(config);
  const getWeightSharding = (...args: Parameters<PipelineFunction>): SpecTree => {
    const keys = { params: random.key(0), dropout: random.key(0) };
    const variables = evalShape(() => pipeline.init(keys, ...args))();
    const specs = getPartitionSpec(variables);
    return Object.fromEntries(Object.entries(specs).map(([name, values]) => [name, values.layers]));
  };
  const { name = "", layers, mesh, rematPolicy } = config;
  const methods = {
    perStage: parts.perStage.bind(parts),
    physicalSpec: parts.physicalSpec.bind(parts),
    stageEntry: parts.stageEntry.bind(parts),
    gatherStageWeights: parts.gatherStageWeights.bind(parts),
    runWith: parts.runWith.bind(parts),
    microbatchesPerStage: parts.microbatchesPerStage,
    totalIterations: parts.totalIterations,
    getWeightSharding,
  };
  // A module is a function, whose own name cannot be assigned to.
  Object.defineProperty(pipeline, "name", { value: name });
  const fields = { config, layers, mesh, rematPolicy };
  return Object.assign(pipeline, parts, methods, fields);
}

CircularPipeline.getLogicalSpecRepeatsRemoved = CircularPipelineParts.getLogicalSpecRepeatsRemoved;
