/** The gradients of a language model by a pipeline schedule: embedding, stages of blocks, and the loss as its functions. */
import { ValueError } from "../../ir/errors.js";
import {
  type LogicalRules,
  logicalAxisRules,
  logicalToMeshSharding,
} from "../../nn/modules/logicalPartitioning.js";
import { replaceBoxed, unbox } from "../../nn/modules/metadata.js";
import { module } from "../../nn/modules/module.js";
import { getPartitionSpec } from "../../nn/modules/partitioned.js";
import type { Variables } from "../../nn/modules/scope.js";
import * as np from "../../numpy/index.js";
import { makeSchedule, type ScheduleName } from "../../parallel/schedule/makers.js";
import type { PipelineSchedule } from "../../parallel/schedule/schedule.js";
import { pipelineTrainStep } from "../../parallel/schedule/trainStep.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import { axesOf } from "../../spmd/mesh/partitionSpec.js";
import { withShardingConstraint } from "../../spmd/run/constraint.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import type { ModelConfig } from "./config.js";
import { embeddingTable, embedTokens, layerLoop, outputLogits } from "./languageModel.js";
import type { LayerLayout } from "./layerOrder.js";
import { auxOf, crossEntropy, type StepAux, withRouters } from "./loss.js";
import { routerLosses, streamPositions } from "./moeDecoder.js";
import { placeTokens, sequencePositions } from "./sequence.js";

/**
 * The schedules that interleave forward and backward; the others are loops that reverse-mode differentiation reverses.
 */
export type InterleavedScheduleName = Exclude<ScheduleName, "gpipe" | "circular">;

/** Whether a schedule runs forward and backward at the same time. */
export function isInterleaved(name: ScheduleName): name is InterleavedScheduleName {
  return name !== "gpipe" && name !== "circular";
}

/** How many parts of the model a stage has under a schedule. @param repeats what the configuration asks for */
export function chunksOf(name: ScheduleName, repeats: number): number {
  return placementOf(name) === "v" ? 2 : repeats;
}

/** Whether a schedule places the parts of a model in a loop or in a V. */
export function placementOf(name: ScheduleName): "loop" | "v" {
  return name === "zb-v" || name === "dualpipev" ? "v" : "loop";
}

/** The table of a schedule for a layout of layers. */
export function scheduleFor(
  name: ScheduleName,
  layout: LayerLayout,
  numMicrobatches: number,
): PipelineSchedule {
  const { numStages, numRepeats } = layout;
  return makeSchedule(name, {
    numStages,
    numMicrobatches,
    ...(numRepeats > 1 ? { numChunks: numRepeats } : {}),
  });
}

/** The schedule of a run; undefined if it has no pipeline, or one that runs all of forward before all of backward. */
export function scheduleOfRun(
  { schedule, microbatches }: { readonly schedule: ScheduleName; readonly microbatches: number },
  layout: LayerLayout | undefined,
): PipelineSchedule | undefined {
  return layout && isInterleaved(schedule) ? scheduleFor(schedule, layout, microbatches) : undefined;
}

/** The batch of a step by a schedule. */
export interface ScheduledBatch {
  /** int32 [batch, length + 1] */
  readonly tokens: Tensor;
  readonly weights?: Tensor;
  readonly segmentIds?: Tensor;
}

/** Options of {@link scheduledGradients}. */
export interface ScheduledOptions {
  readonly model: ModelConfig;
  readonly mesh: Mesh;
  readonly rules: LogicalRules;
  readonly schedule: PipelineSchedule;
  readonly layout: LayerLayout;
  readonly zLoss: number;
}

/** The axes along which stages see blocks; the partitioner handles the others. */
const batchAxes = ["data", "fsdp"];

/** The rules without some axes. */
function withoutAxes(rules: LogicalRules, isTaken: (axis: string, name: string) => boolean): LogicalRules {
  return rules.flatMap(([name, axes]) => {
    const left = axesOf(axes).filter((axis) => !isTaken(axis, name));
    const [only] = left;
    return only === undefined ? [] : [[name, left.length === 1 ? only : left] as const];
  });
}

/**
 * The rules of weights that every action of a stage finds whole along `context`, and of their gradients: like those of
 * `data` these are added up where they are computed, and over the devices once, after the last action.
 */
const wholeAlongContext = (rules: LogicalRules): LogicalRules =>
  withoutAxes(rules, (axis, name) => axis === "context" && name === "embed");

/** The rules without the axes along which the functions of a stage see blocks already. */
const insideRules = (rules: LogicalRules): LogicalRules =>
  withoutAxes(wholeAlongContext(rules), (axis) => axis === "pipe" || batchAxes.includes(axis));

/**
 * Weights, or their gradients, whole along `context`: otherwise the partitioner would move a part of each in every
 * action.
 */
function keepWhole(variables: Variables, mesh: Mesh, rules: LogicalRules): <T>(values: T) => T {
  if ((mesh.shape.context ?? 1) === 1) return (values) => values;
  const shardings = logicalToMeshSharding(getPartitionSpec(variables), mesh, wholeAlongContext(rules));
  return (values) => withShardingConstraint(values, shardings as never);
}

/** The three functions of a pipeline, each a module with the parameters that it has in the whole model. */
function modulesOf(config: ModelConfig, layersPerStage: number) {
  const First = module("First", (_: object) => (tokens: Tensor) => {
    const positions = sequencePositions(config, tokens.shape[1] ?? 0);
    return embedTokens(config, embeddingTable(config), tokens, positions);
  });
  const Stage = module("Stage", (_: object) => (stream: Tensor): Tensor => {
    const Layers = layerLoop(config, layersPerStage);
    // Every sequence starts at its first token, so a stage can compute the positions itself.
    const positions = streamPositions(config, stream);
    const [out] = Layers({ ...config, name: "stack" })(stream, { positions });
    return out;
  });
  const Last = module(
    "Last",
    (_: object) => (stream: Tensor) => outputLogits(config, () => embeddingTable(config), stream),
  );
  return { first: First({}), stage: Stage({}), last: Last({}) };
}

/** A node of a tree of variables. */
type Node = Readonly<Record<string, unknown>>;

function child(node: unknown, name: string): Node {
  return (node as Node)[name] as Node;
}

/**
 * Losses and gradients of a batch by a schedule, in the form of `valueAndGrad` with `hasAux`.
 *
 * @param scale factor of the loss before it is differentiated
 */
export function scheduledGradients({ model, mesh, rules, schedule, layout, zLoss }: ScheduledOptions) {
  const { first, stage, last } = modulesOf(model, layout.layersPerStage);
  const inside = insideRules(rules);
  const here = <R>(fn: () => R): R => logicalAxisRules(inside, fn);
  return (
    variables: Variables,
    { tokens, weights, segmentIds }: ScheduledBatch,
    scale: (loss: Tensor) => Tensor,
  ): [value: readonly [Tensor, StepAux], grads: Variables] => {
    if (segmentIds) {
      throw new ValueError(
        `[train] the pipeline schedule ${schedule.name} does not keep the documents of a row apart: use pipeline.schedule circular, an axis other than pipe, or data.packing joined`,
      );
    }
    const step = pipelineTrainStep(
      schedule,
      {
        first: (w: Node, inputs: Tensor) => here(() => first.apply({ params: w }, inputs)),
        stage: (w: Node, stream: Tensor) => here(() => stage.apply({ params: w }, stream)),
        last: (w: Node, stream: Tensor, { targets, weights: own }: { targets: Tensor; weights?: Tensor }) =>
          here(() => {
            const entropy = crossEntropy(last.apply({ params: w }, stream), targets, zLoss, own);
            const parts = withRouters(entropy, routerLosses(model, stream));
            return [scale(parts.loss), auxOf(parts)] as const;
          }),
      },
      { mesh, batchAxes, hasAux: true },
    );
    const kept = keepWhole(variables, mesh, rules);
    const plain = kept(unbox<Node>(variables));
    const { embed, layers, ...ends } = child(plain, "params");
    const withRound = (leaf: Tensor) => (layout.numRepeats === 1 ? np.expandDims(leaf, 0) : leaf);
    const withoutRound = (leaf: Tensor) => (layout.numRepeats === 1 ? np.squeeze(leaf, 0) : leaf);
    const length = (tokens.shape[1] ?? 1) - 1;
    const { value, grads } = step(
      {
        first: { embed },
        stages: { stack: tree.map(withRound, child(child(layers, "layers"), "stack")) },
        last: model.tieEmbeddings ? { ...ends, embed } : ends,
      },
      placeTokens(model, ops.sliceDim(tokens, 1, 0, length)),
      {
        targets: placeTokens(model, ops.sliceDim(tokens, 1, 1, length + 1)),
        ...(weights && { weights: placeTokens(model, weights) }),
      },
    );
    const { embed: tied, ...ofEnds } = grads.last as Node;
    const looked = child(grads.first, "embed");
    const all = {
      params: {
        embed:
          tied === undefined ? looked : tree.map((a: Tensor, b: Tensor) => a.add(b), looked, tied as Node),
        layers: { layers: { stack: tree.map(withoutRound, child(grads.stages, "stack")) } },
        ...ofEnds,
      },
    };
    return [value, replaceBoxed(variables, kept(all))];
  };
}
