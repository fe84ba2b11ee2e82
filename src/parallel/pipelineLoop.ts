import type { RematPolicy } from "../ir/ops.js";
import { at, range, type Shape } from "../ir/shape.js";
import * as lax from "../lax/index.js";
import { logicalToMesh, withLogicalConstraint } from "../nn/index.js";
import * as np from "../numpy/index.js";
import { mapSpecs, P, PartitionSpec, type SpecEntry } from "../spmd/mesh/partitionSpec.js";
import { NamedSharding } from "../spmd/mesh/sharding.js";
import { withShardingConstraint } from "../spmd/run/constraint.js";
import * as ops from "../trace/ops.js";
import { Tensor } from "../trace/tensor.js";
import { vmap } from "../transforms/batching/vmap.js";
import { checkpointPolicies } from "../transforms/derivatives/remat.js";
import { checkSpecs, requireSpecs } from "./pipelineChecks.js";
import { type CircularPipelineConfig, type PipelineSettings, readConfig, rulesOf } from "./pipelineConfig.js";
import { eachWeight, type SpecTree, weightsWithoutBoxes, withoutAxes } from "./pipelineSpecs.js";

/** The buffers carried between iterations, each with the stages in dim 0. */
export interface PipelineBuffers {
  /** `[stages, microbatches / stages, microbatch …]`: first the inputs, in the end the outputs. */
  readonly stateIo: Tensor;
  /** `[stages, microbatch …]`: what every stage received from the one before. */
  readonly shift: Tensor;
  /**
   * `[stages, microbatches, microbatch …]`: results of the last stage that wait for their next repeat, on the first
   * stage.
   */
  readonly circStorage: Tensor | null;
  /** `[stages, microbatch …]`: the last results, on their way to `circStorage`. */
  readonly circStorageMover: Tensor | null;
  /** `[stages, microbatch …]`: results that wait an iteration because forwarding is delayed. */
  readonly prevOutputs: Tensor | null;
}

/** The state of the loop: its buffers and the number of the next iteration. */
export interface LoopState extends PipelineBuffers {
  readonly loopIteration: number | Tensor;
}

/**
 * The schedule and the buffers of a circular pipeline, as functions of whole tensors. When dim 0 of the buffers is
 * split over the stage axis, every rotation is one hop from device to device.
 *
 * In iteration i stage s works on microbatch `(i − delay · s) mod microbatches` in repeat `(i − delay · s) div
 * microbatches`.
 */
export class PipelineLoop {
  readonly settings: PipelineSettings;

  constructor(config: CircularPipelineConfig) {
    this.settings = readConfig(config);
  }

  /** The number of microbatches in every stage's part of `stateIo`. */
  get microbatchesPerStage(): number {
    return this.settings.numMicrobatches / this.settings.numStages;
  }

  /** The number of iterations until all microbatches have completed all repeats. */
  get totalIterations(): number {
    const { numMicrobatches, numRepeats } = this.settings;
    return numMicrobatches * numRepeats + this.iterationsToCompleteFirstMicrobatchOneRepeat();
  }

  /** Whether results of the last stage have to wait for the first one, which is busy with other microbatches. */
  readonly needCircStorage = (): boolean => {
    const { numRepeats, numMicrobatches, numStages, forwardingDelay } = this.settings;
    return numRepeats > 1 && numMicrobatches > numStages * forwardingDelay;
  };

  /** The iteration in which microbatch 0 is on the last stage in its first repeat. */
  readonly iterationsToCompleteFirstMicrobatchOneRepeat = (): number =>
    this.settings.forwardingDelay * (this.settings.numStages - 1);

  /** The iteration in which microbatch 0 is on the last stage in its last repeat. */
  readonly iterationsToCompleteFirstMicrobatch = (): number => {
    const { numMicrobatches, numRepeats } = this.settings;
    return numMicrobatches * (numRepeats - 1) + this.iterationsToCompleteFirstMicrobatchOneRepeat();
  };

  /**
   * The buffers before the first iteration.
   *
   * @param inputs [microbatches, microbatch …]
   */
  readonly initStates = (inputs: Tensor): LoopState => {
    const { numStages, config } = this.settings;
    const [numMicrobatches = 0, ...microbatch] = inputs.shape;
    const zeros = (...lead: number[]) => np.zeros([...lead, ...microbatch], inputs.dtype);
    const shift = this.perStage(zeros(numStages));
    const stateIo = np.reshape(inputs, [numStages, this.microbatchesPerStage, ...microbatch]);
    const stored = this.needCircStorage();
    return {
      stateIo: this.perStage(stateIo, 1),
      shift,
      circStorage: stored ? this.perStage(zeros(numStages, numMicrobatches), 1) : null,
      circStorageMover: stored ? shift : null,
      loopIteration: 0,
      prevOutputs: config.pipelineDelayActivationForwarding ? this.perStage(zeros(numStages)) : null,
    };
  };

  /**
   * What the stages work on in an iteration, [stages, microbatch …]: what they got from the stage before; the first
   * stage takes a new microbatch, or one that starts its next repeat.
   */
  readonly getIterationInputs = (
    loopIteration: number | Tensor,
    stateIo: Tensor,
    circStorage: Tensor | null,
    shift: Tensor,
  ): Tensor => {
    const { numMicrobatches } = this.settings;
    const received = this.perStage(shift);
    const fresh = takeAlong1(stateIo, wrapped(loopIteration, this.microbatchesPerStage));
    const again =
      circStorage === null ? received : takeAlong1(circStorage, wrapped(loopIteration, numMicrobatches));
    const first =
      typeof loopIteration === "number"
        ? loopIteration < numMicrobatches
          ? fresh
          : again
        : np.where(np.less(loopIteration, numMicrobatches), fresh, again);
    const isFirst = np.equal(lax.broadcastedIota("int32", shift.shape, 0), 0);
    return this.perStage(np.where(isFirst, this.perStage(first), received));
  };

  /**
   * Splits a dim over the stage axis, in addition to how a spec splits the others; it is gathered along the fsdp axes.
   *
   * @param physicalPartitionSpec the mesh axes of the stage's weight without its dim for the repeats, or null to leave
   * the other dims open
   * @param isStageWeight whether x is the weight of one repeat; else dim 0 is that of the repeats, which stays open
   */
  readonly shardDimByStages = (
    x: Tensor,
    dim: number,
    physicalPartitionSpec: PartitionSpec | null,
    isStageWeight = false,
  ): Tensor =>
    this.splitOverStages(
      x,
      dim,
      physicalPartitionSpec && withoutAxes(physicalPartitionSpec, this.settings.fsdpAxisNames),
      isStageWeight,
    );

  /** The microbatch and the repeat of every stage in an iteration, both i32[stages]; 0 for stages that wait. */
  readonly getMicrobatchAndRepeatIds = (
    loopIteration: number | Tensor,
  ): [microbatchIds: Tensor, repeatIds: Tensor] => {
    const { numStages, numMicrobatches, forwardingDelay } = this.settings;
    const behind = np.multiply(lax.iota("int32", numStages), forwardingDelay);
    const processed = np.maximum(np.subtract(loopIteration, behind), 0).astype("int32");
    return [np.remainder(processed, numMicrobatches), np.floorDivide(processed, numMicrobatches)];
  };

  /**
   * Every stage takes one slice of its own weights, those of its repeat.
   *
   * @param repeatIds i32[stages]
   * @returns the weights without the dim for the repeats, with the stages in dim 0
   */
  readonly vmapParallelGather = (
    weights: Tensor,
    physicalPartitionSpec: PartitionSpec | null,
    repeatIds: Tensor,
    repeatDimInWeights: number,
    stagesDimInWeights: number,
  ): Tensor => {
    const inStage = repeatDimInWeights - (repeatDimInWeights > stagesDimInWeights ? 1 : 0);
    const gatherOne = (own: Tensor, id: Tensor) => lax.dynamicIndexInDim(own, id, inStage, false);
    const ids = this.shardDimByStages(repeatIds, 0, null);
    // Only the slice of a repeat is gathered along the fsdp axes, so weights stay split until it is taken.
    const { pipelineFsdpAgOnce, pipelineFsdpAgPerRepeat } = this.settings.config;
    const all =
      pipelineFsdpAgOnce || pipelineFsdpAgPerRepeat
        ? this.shardDimByStages(weights, stagesDimInWeights, physicalPartitionSpec)
        : this.splitOverStages(weights, stagesDimInWeights, physicalPartitionSpec, false);
    const taken = vmap(gatherOne, { inAxes: [stagesDimInWeights, 0] })(all, ids);
    return this.shardDimByStages(taken, 0, physicalPartitionSpec, true);
  };

  /**
   * Every stage takes one slice of a tensor that they share.
   *
   * @param ids i32[stages]
   * @returns the slices, with the stages in place of `idsDim`
   */
  readonly vmapGather = (xs: Tensor, ids: Tensor, idsDim: number): Tensor => {
    const gatherOne = (x: Tensor, id: Tensor) => lax.dynamicIndexInDim(x, id, idsDim, false);
    const own = this.shardDimByStages(ids, 0, null);
    const taken = vmap(gatherOne, { inAxes: [null, 0], outAxes: idsDim })(xs, own);
    return this.shardDimByStages(taken, idsDim, null);
  };

  /**
   * The buffers after an iteration. Results move to the next stage (a hop right); `stateIo` moves to the stage
   * before (a hop left), where the first stage takes its inputs from, and the last stage leaves its result there;
   * the result of the iteration before moves from the last stage to `circStorage` on the first (a hop right).
   */
  readonly getNewLoopState = (output: Tensor, state: LoopState): LoopState => {
    const { numStages, numMicrobatches, numRepeats, config } = this.settings;
    const { loopIteration, circStorage, circStorageMover, prevOutputs, stateIo } = state;
    const delayed = config.pipelineDelayActivationForwarding === true;
    const sent = delayed ? (prevOutputs ?? output) : output;
    const returns = numRepeats > 1 && !this.needCircStorage();
    const index = wrapped(loopIteration, this.microbatchesPerStage);
    const moved = np.roll(takeAlong1(stateIo, index), -1, 0);
    const isLast = np.equal(lax.broadcastedIota("int32", output.shape, 0), numStages - 1);
    const next = {
      stateIo: putAlong1(stateIo, np.where(isLast, output, moved), index),
      shift: returns ? np.roll(sent, 1, 0) : shiftRight(sent),
      prevOutputs: delayed ? output : null,
      loopIteration: typeof loopIteration === "number" ? loopIteration + 1 : np.add(loopIteration, 1),
    };
    if (circStorage === null || circStorageMover === null) {
      return { ...next, circStorage: null, circStorageMover: null };
    }
    const late = this.iterationsToCompleteFirstMicrobatchOneRepeat() + 1;
    const place =
      typeof loopIteration === "number"
        ? wrapped(loopIteration - late, numMicrobatches)
        : wrapped(np.subtract(loopIteration, late), numMicrobatches);
    return {
      ...next,
      circStorage: putAlong1(circStorage, np.roll(circStorageMover, 1, 0), place),
      circStorageMover: output,
    };
  };

  /**
   * `stateIo` after the last iteration with the outputs in the order of the inputs; microbatch 0 may be at any position
   * before.
   */
  readonly permuteOutputMicroPerStageDim = (output: Tensor): Tensor => {
    const first = this.iterationsToCompleteFirstMicrobatch() % this.microbatchesPerStage;
    return np.roll(output, -first, 1);
  };

  /**
   * The weights that the stages use in an iteration, a tree of tensors [stages, …]: all of them for one repeat, else
   * those of each stage's repeat.
   */
  readonly getCurrentStageWeights = <T>(
    pipelineWeights: T,
    loopIteration: number | Tensor,
    physicalPartitionSpec: SpecTree = null,
  ): T =>
    this.settings.numRepeats > 1
      ? this.getCurrentRepeatFromStages(pipelineWeights, loopIteration, physicalPartitionSpec)
      : pipelineWeights;

  /** From weights [repeats, stages, …] every stage takes those of its repeat: a tree of tensors [stages, …]. */
  readonly getCurrentRepeatFromStages = <T>(
    weights: T,
    loopIteration: number | Tensor,
    physicalPartitionSpec: SpecTree = null,
  ): T => {
    const [, repeatIds] = this.getMicrobatchAndRepeatIds(loopIteration);
    return eachWeight(weights, physicalPartitionSpec, (w, spec) =>
      this.vmapParallelGather(w, spec, repeatIds, 0, 1),
    );
  };

  /** What the backward pass keeps of an iteration: its inputs and those of layers, and what the configuration says. */
  readonly getPipelineRematPolicy = (): RematPolicy => {
    const { rematPolicy, customRematPolicy } = this.settings.config;
    const inputs = checkpointPolicies.saveOnlyTheseNames("iteration_input", "decoder_layer_input");
    if (rematPolicy === undefined) return inputs;
    return customRematPolicy ? rematPolicy : checkpointPolicies.saveFromBothPolicies(rematPolicy, inputs);
  };

  /** Specs without the dim of the repeats. */
  static getLogicalSpecRepeatsRemoved<T>(fullLogical: T): T {
    return mapSpecs(
      fullLogical,
      ({ entries }) => new PartitionSpec(entries.filter((name) => name !== "circular_repeats")),
    );
  }

  /** The static function as a method of the instance. */
  readonly getLogicalSpecRepeatsRemoved = PipelineLoop.getLogicalSpecRepeatsRemoved;

  /** The weights, gathered along the fsdp axes and split as before along the others. */
  readonly allGatherOverFsdp = <T>(variables: T, logicalPartitionSpec: SpecTree): T => {
    const { mesh, fsdpAxisNames } = this.settings;
    requireSpecs(logicalPartitionSpec);
    const plain = weightsWithoutBoxes(variables);
    checkSpecs(plain, logicalPartitionSpec);
    if (!mesh) return plain;
    return eachWeight(plain, this.physicalSpec(logicalPartitionSpec), (w, spec) =>
      spec ? withShardingConstraint(w, new NamedSharding(mesh, withoutAxes(spec, fsdpAxisNames))) : w,
    );
  };

  /** The weights of one repeat, [stages, …], gathered along the fsdp axes. */
  gatherStageWeights<T>(weights: T, physicalPartitionSpec: SpecTree): T {
    return eachWeight(weights, physicalPartitionSpec, (w, spec) => this.shardDimByStages(w, 0, spec, true));
  }

  /** Specs of logical names as specs of mesh axes, by the pipeline's rules. */
  physicalSpec<T>(logical: T): T {
    return logical === null || logical === undefined
      ? logical
      : logicalToMesh(logical, rulesOf(this.settings));
  }

  /**
   * A buffer, split over the stage axis and as the rules say for activations.
   *
   * @param extra the number of dims between that of the stages and the microbatch
   */
  perStage(x: Tensor, extra = 0): Tensor {
    const { mesh, activationNames } = this.settings;
    const rank = x.ndim - 1 - extra;
    const names = range(rank).map((d) => activationNames[d] ?? null);
    const between = range(extra).map(() => null);
    return withLogicalConstraint(x, ["activation_stage", ...between, ...names], {
      mesh,
      rules: rulesOf(this.settings),
    });
  }

  /** The axis of the stages, or null without a mesh. */
  stageEntry(): string | null {
    return this.settings.mesh ? this.settings.stageAxisName : null;
  }

  /** Splits a dim over the stage axis and the others as a spec says; leading dims stay open. */
  private splitOverStages(
    x: Tensor,
    dim: number,
    spec: PartitionSpec | null,
    isStageWeight: boolean,
  ): Tensor {
    const { mesh } = this.settings;
    if (!mesh) return x;
    const entries = x.shape.map((_, d): SpecEntry => {
      if (d === dim) return this.stageEntry();
      if (!spec || (!isStageWeight && d < dim)) return P.UNCONSTRAINED;
      return spec.entries[isStageWeight ? d : d - 1] ?? null;
    });
    return withShardingConstraint(x, new NamedSharding(mesh, new PartitionSpec(entries)));
  }
}

/** The non-negative remainder of i / n. */
function wrapped(i: number | Tensor, n: number): number | Tensor {
  return typeof i === "number" ? ((i % n) + n) % n : np.remainder(i, n);
}

/** The slice of x at a position of dim 1. */
function takeAlong1(x: Tensor, index: number | Tensor): Tensor {
  if (typeof index === "number") return lax.indexInDim(x, index, 1, false);
  return lax.dynamicIndexInDim(x, index, 1, false);
}

/** x with another slice at a position of dim 1. */
function putAlong1(x: Tensor, slice: Tensor, index: number | Tensor): Tensor {
  return lax.dynamicUpdateIndexInDim(x, slice, index, 1);
}

/** Moves the value of every stage to the next one; the first gets zeros. */
function shiftRight(x: Tensor): Tensor {
  const numStages = at(x.shape, 0);
  if (numStages === 1) return np.zerosLike(x);
  const front = (n: number): Shape => x.shape.map((_, d) => (d === 0 ? n : 0));
  const kept = ops.sliceDim(x, 0, 0, numStages - 1);
  return ops.pad(kept, Tensor.scalar(0, x.dtype), { low: front(1), high: front(0), interior: front(0) });
}
