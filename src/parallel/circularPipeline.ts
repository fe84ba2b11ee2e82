import { at, range } from "../ir/shape.js";
import { currentScope } from "../nn/context.js";
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
import * as np from "../numpy/index.js";
import * as random from "../random/index.js";
import { NamedSharding } from "../spmd/mesh/sharding.js";
import { withShardingConstraint } from "../spmd/run/constraint.js";
import { Tensor } from "../trace/tensor.js";
import * as tree from "../trace/tree.js";
import { evalShape } from "../transforms/makeProgram.js";
import { checkpointName, remat } from "../transforms/remat.js";
import { scan } from "../transforms/scan.js";
import { vmap } from "../transforms/vmap.js";
import { type CircularPipelineConfig, checkCall, type StageFunction } from "./pipelineConfig.js";
import {
  type LoopState,
  type PipelineBuffers,
  PipelineLoop,
  type SpecTree,
  specsOfBoxes,
  weightsWithoutBoxes,
} from "./pipelineLoop.js";

export type { CircularPipelineConfig, StageFunction } from "./pipelineConfig.js";
export type { LoopState, PipelineBuffers, SpecTree } from "./pipelineLoop.js";

/** What {@link CircularPipeline} computes: the layers one after the other, on a whole batch. */
export type PipelineFunction = (
  inputs: Tensor,
  segmentIds?: Tensor | null,
  positions?: Tensor | null,
  deterministic?: boolean,
  modelMode?: string,
  logicalPartitionSpec?: SpecTree,
) => Tensor;

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
  /** The variables of the layers by collection, without boxes: tensors [repeats, stages, …], or [stages, …] for one round. */
  readonly pipelineWeights: Variables;
  /** [microbatches, microbatch …] or null. */
  readonly positions?: Tensor | null;
  /** [microbatches, microbatch …] or null. */
  readonly segmentIds?: Tensor | null;
  readonly deterministic?: boolean;
  readonly modelMode?: string;
  readonly layers: ModuleInstance<StageFunction>;
  /** The names of the weights' dims without that of the rounds. */
  readonly logicalPartitionSpec?: SpecTree;
  /** The key that every iteration and stage draws its own dropout key from. */
  readonly dropoutKey?: Tensor | null;
}

const firstOf = (result: Tensor | readonly [Tensor, ...unknown[]]): Tensor =>
  result instanceof Tensor ? result : result[0];

const defaultMode = "train";

/** The parts of a circular pipeline: its schedule and buffers, and how stages run; each is usable on its own. */
export class CircularPipelineParts extends PipelineLoop {
  /** What makes the variables of all stages, inside a module whose `init` runs. */
  readonly getVmapFuncForInit = (): InitFunction =>
    vmapModule(
      (layers: ModuleInstance<StageFunction>, ...args: Parameters<StageFunction>): Tensor =>
        firstOf(layers(...args)),
      {
        inAxes: [0, 0, 0, null, null],
        variableAxes: { params: 0 },
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

  /** One iteration: every stage takes its weights and inputs, all run at once, and the results move on. */
  readonly runOneIteration = (loopState: LoopState, given: IterationArguments): LoopState => {
    const { positions = null, segmentIds = null, deterministic = true, modelMode = defaultMode } = given;
    const { loopIteration } = loopState;
    const [microbatchIds] = this.getMicrobatchAndRepeatIds(loopIteration);
    const inputs = checkpointName(
      this.getIterationInputs(loopIteration, loopState.stateIo, loopState.circStorage, loopState.shift),
      "iteration_input",
    );
    const weights = this.getCurrentStageWeights(
      given.pipelineWeights,
      loopIteration,
      this.physicalSpec(given.logicalPartitionSpec ?? null),
    );
    const stages = this.getMainVmapFuncForIterations();
    const output = stages(
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
  };

  private spmdAxis(): { readonly spmdAxisName?: string } {
    const axis = this.stageEntry();
    return axis === null ? {} : { spmdAxisName: axis };
  }
}

/** Runs all iterations, as a loop of the program or written out. */
function runIterations(parts: CircularPipelineParts, first: LoopState, given: IterationArguments): LoopState {
  const { scanPipelineIterations = true, setRematPolicyOnPipelineIterations = true } = parts.settings.config;
  const step = (buffers: PipelineBuffers, loopIteration: number | Tensor): PipelineBuffers => {
    const { loopIteration: _, ...next } = parts.runOneIteration({ ...buffers, loopIteration }, given);
    return next;
  };
  const { loopIteration: _, ...start } = first;
  const policy = parts.getPipelineRematPolicy();
  const iterations = parts.totalIterations;
  if (scanPipelineIterations) {
    const body = setRematPolicyOnPipelineIterations ? remat(step, { policy }) : step;
    const [buffers] = scan(
      (carry: PipelineBuffers, i: Tensor) => [body(carry, i), null] as const,
      start,
      np.arange(iterations).astype("int32"),
    );
    return { ...buffers, loopIteration: iterations };
  }
  const buffers = range(iterations).reduce((carry: PipelineBuffers, i) => {
    const fixed = (state: PipelineBuffers) => step(state, i);
    return setRematPolicyOnPipelineIterations ? remat(fixed, { policy })(carry) : fixed(carry);
  }, start);
  return { ...buffers, loopIteration: iterations };
}

/** Makes the variables [repeats, stages, …], and a result of the right shape. */
function initialize(
  parts: CircularPipelineParts,
  layers: ModuleInstance<StageFunction>,
  microbatches: readonly (Tensor | null)[],
  deterministic: boolean,
  modelMode: string,
): Tensor {
  const { numStages, numRepeats } = parts.settings;
  const lead = numRepeats > 1 ? [numRepeats, numStages] : [numStages];
  const examples = microbatches.map((x) => {
    if (!x) return null;
    const first = x.shape.slice(1);
    return np.broadcastTo(np.reshape(np.take(x, np.array(0).astype("int32"), 0), first), [...lead, ...first]);
  });
  const [inputs, segmentIds = null, positions = null] = examples;
  const init = parts.getVmapFuncForInit();
  const rounds =
    numRepeats > 1
      ? vmapModule(init, {
          inAxes: [0, 0, 0, null, null],
          variableAxes: { params: 0 },
          splitRngs: { params: true, dropout: true },
          metadataParams: { partitionName: "circular_repeats" },
        })
      : init;
  const output = rounds(layers, inputs as Tensor, segmentIds, positions, deterministic, modelMode);
  splitVariables(parts);
  const microbatch = output.shape.slice(lead.length);
  const one = np.reshape(output, [-1, ...microbatch]);
  const [size = 0, ...rest] = microbatch;
  const all = np.broadcastTo(at1(one), [parts.settings.numMicrobatches, ...microbatch]);
  return np.reshape(all, [parts.settings.numMicrobatches * size, ...rest]);
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

const at1 = (x: Tensor) => np.reshape(np.take(x, np.array(0).astype("int32"), 0), x.shape.slice(1));

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
      const { layers, pipelineFsdpAgOnce } = config;
      const { numMicrobatches } = parts.settings;
      checkCall(parts.settings, { inputs, segmentIds, positions });
      const split = (x: Tensor) =>
        np.reshape(x, [numMicrobatches, at(x.shape, 0) / numMicrobatches, ...x.shape.slice(1)]);
      const [microbatches, ids, places] = [
        split(inputs),
        segmentIds && split(segmentIds),
        positions && split(positions),
      ];
      if (isInitializing()) {
        return initialize(parts, layers, [microbatches, ids, places], deterministic, modelMode);
      }
      const stored = layerVariables();
      const logical = logicalPartitionSpec ?? specsOfBoxes(stored);
      const plain = weightsWithoutBoxes(stored);
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
    /**
     * The names of the dims of all weights, those of rounds and stages in front, as a tree of specs by collection;
     * nothing is computed. It takes the arguments of a call.
     */
    getWeightSharding(...args: Parameters<PipelineFunction>): SpecTree;
  };

/**
 * Layers that are spread over stages: the batch is split into microbatches, and in every iteration each stage
 * works on another one and sends the result to the next stage, from the last one to the first again until every
 * microbatch has gone round `numPipelineRepeats` times. The weights are `[repeats, stages, …]`, and layer
 * `repeat · stages + stage` is on that stage in that round.
 *
 * It is written over whole tensors. When the dims of the stages are split over a mesh axis, each device holds its
 * stage's weights and share of the buffers, and every hop is one permutation.
 *
 * ```ts
 * const pipeline = CircularPipeline({ layers: Block({ parent: null }), mesh, numPipelineMicrobatches: 8, numPipelineRepeats: 2 });
 * const variables = pipeline.init(random.key(0), x);
 * const y = jit((v: Variables, x: Tensor) => pipeline.apply(v, x), { mesh })(variables, x);
 * ```
 */
export function CircularPipeline(config: CircularPipelineConfig & ModuleOptions): CircularPipelineInstance {
  const parts = new CircularPipelineParts(config);
  const pipeline = Pipeline(config);
  const getWeightSharding = (...args: Parameters<PipelineFunction>): SpecTree => {
    const keys = { params: random.key(0), dropout: random.key(0) };
    const variables = evalShape(() => pipeline.init(keys, ...args))();
    const specs = getPartitionSpec<Record<string, Record<string, unknown>>>(variables);
    return Object.fromEntries(Object.entries(specs).map(([name, values]) => [name, values.layers]));
  };
  return Object.assign(pipeline, parts, {
    perStage: parts.perStage.bind(parts),
    physicalSpec: parts.physicalSpec.bind(parts),
    stageEntry: parts.stageEntry.bind(parts),
    microbatchesPerStage: parts.microbatchesPerStage,
    totalIterations: parts.totalIterations,
    getWeightSharding,
  }) as unknown as CircularPipelineInstance;
}
