/** Runs a training step by a schedule: one program for all stages, in which each looks up its actions in a table. */

import { need } from "../../ir/arguments.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { axisSizeIn, formatMesh } from "../../ir/mesh.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import * as np from "../../numpy/index.js";
import { type Mesh, meshKind } from "../../spmd/mesh/mesh.js";
import { P } from "../../spmd/mesh/partitionSpec.js";
import { shardMap } from "../../spmd/run/shardMap.js";
import type { Tensor } from "../../trace/tensor.js";
import { leafTensor } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";
import { checkSchedule } from "./check.js";
import { type LocalStep, localTrainStep } from "./localStep.js";
import { needSchedule, type PipelineSchedule } from "./schedule.js";
import { slotTable } from "./slots.js";

/** The functions of a pipelined model; all see one microbatch. */
export interface PipelineFunctions<A, S, C, X, H, Y, L> {
  /** Computes the stream of the first stage from the inputs, as an embedding does. */
  readonly first: (weights: A, inputs: X) => H;
  /** What every part of the model computes, with its own weights; the result has the type of the stream. */
  readonly stage: (weights: S, stream: H) => H;
  /** The loss of a microbatch, a mean over its rows, and with `hasAux` `[loss, aux]`. */
  readonly last: (weights: C, stream: H, targets: Y) => L;
}

const pipelineTrainStepOptions = schema({
  /** The mesh of the stages. */
  mesh: required(meshKind),
  /** The mesh axis of the stages; `pipe` by default. */
  axisName: optional("string", "pipe"),
  /** The mesh axes that split the rows of inputs and targets; gradients are averaged over them once, at the end. */
  batchAxes: optional("strings", []),
  /**
   * Whether messages travel while the next action is computed. They arrive one slot later, so the bubble is larger:
   * for stages that are far apart.
   */
  overlapSends: false,
  /** Whether `last` returns `[loss, aux]`; `aux` is averaged over the microbatches. */
  hasAux: false,
});

/** Options of {@link pipelineTrainStep}. */
export interface PipelineTrainStepOptions extends OptionsOf<typeof pipelineTrainStepOptions> {}

/** The weights of a pipelined model. */
export interface PipelineWeights<A, S, C> {
  readonly first: A;
  /** Every leaf `[chunks, stages, …]`, as {@link placeParts} makes it of `[parts, …]`. */
  readonly stages: S;
  readonly last: C;
}

/** The result of a step: the loss (with `hasAux` a pair), and gradients in the structure of the weights. */
export interface PipelineGradients<A, S, C, L> {
  readonly value: L;
  readonly grads: PipelineWeights<A, S, C>;
}

/**
 * Loss and gradients of a batch by a schedule, the same as those of the model without a pipeline: `first`, then `stage`
 * once with the weights of each part, then `last`, averaged over the microbatches.
 *
 * The functions are written over whole tensors: the partitioner handles mesh axes other than the pipeline's and
 * `batchAxes`, as everywhere in the global view.
 *
 * @example
 * ```ts
 * const schedule = parallel.zeroBubbleH1({ numStages: 2, numMicrobatches: 2 });
 * const first = (_: unknown, x: Tensor) => x;
 * const stage = (w: Tensor, x: Tensor) => x.mul(w);
 * const last = (_: unknown, y: Tensor, targets: Tensor) => np.mean(np.square(y.sub(targets)));
 * const step = parallel.pipelineTrainStep(schedule, { first, stage, last }, { mesh: Mesh.create({ pipe: 2 }) });
 * const stages = parallel.placeParts(schedule, np.array([2, 3]));
 * jit(step)({ first: {}, stages, last: {} }, np.ones([2, 1]), np.ones([2, 1])).value; // 25
 * ```
 */
export function pipelineTrainStep<A, S, C, X, H, Y, L>(
  schedule: PipelineSchedule,
  functions: PipelineFunctions<A, S, C, X, H, Y, L>,
  options: PipelineTrainStepOptions,
): (weights: PipelineWeights<A, S, C>, inputs: X, targets: Y) => PipelineGradients<A, S, C, L> {
  needSchedule(schedule, "pipelineTrainStep");
  need("object", functions, "functions", "pipelineTrainStep");
  const { mesh, axisName, batchAxes, overlapSends, hasAux } = pipelineTrainStepOptions.read(
    options,
    "pipelineTrainStep",
  );
  checkSchedule(schedule);
  checkMesh(schedule, mesh, axisName, batchAxes);
  const settings: LocalStep = {
    table: slotTable(schedule, overlapSends),
    schedule,
    axisName,
    batchAxes,
    overlapSends,
    hasAux,
  };
  const rows = batchAxes.length > 0 ? P([...batchAxes]) : P();
  const placed = P(null, axisName);
  const specs = { first: P(), stages: placed, last: P() };
  const mapped = shardMap(localTrainStep(functions, settings), {
    mesh,
    inSpecs: [specs, rows, rows],
    outSpecs: [P(), specs],
    checkReplication: false,
    axisNames: [axisName, ...batchAxes],
  });
  return (weights, inputs, targets) => {
    checkWeights(schedule, weights.stages);
    checkRows(schedule, mesh, batchAxes, { inputs, targets });
    const [value, grads] = mapped(weights, inputs, targets);
    return { value: value as L, grads: grads as PipelineWeights<A, S, C> };
  };
}

/**
 * Weights of all parts in the order of the model, every leaf `[parts, …]`, as the stages hold them: `[chunks, stages,
 * …]`, with dim 1 split over the pipeline's axis.
 *
 * @example
 * ```ts
 * const schedule = parallel.interleaved({ numStages: 2, numMicrobatches: 2, numChunks: 2 });
 * parallel.placeParts(schedule, np.arange(4)); // [[0, 1], [2, 3]]
 * ```
 */
export function placeParts<T>(schedule: PipelineSchedule, weights: T): T {
  needSchedule(schedule, "placeParts");
  const numStages = schedule.stages.length;
  return tree.map((leaf: Tensor) => {
    const placed = leaf.reshape([schedule.numChunks, numStages, ...leaf.shape.slice(1)]);
    return turned(schedule, placed);
  }, weights);
}

/**
 * The inverse of {@link placeParts}.
 *
 * @example
 * ```ts
 * const schedule = parallel.interleaved({ numStages: 2, numMicrobatches: 2, numChunks: 2 });
 * parallel.partsInOrder(schedule, parallel.placeParts(schedule, np.arange(4))); // [0, 1, 2, 3]
 * ```
 */
export function partsInOrder<T>(schedule: PipelineSchedule, weights: T): T {
  needSchedule(schedule, "partsInOrder");
  return tree.map((leaf: Tensor) => {
    const [chunks = 1, stages = 1, ...rest] = leaf.shape;
    return turned(schedule, leaf).reshape([chunks * stages, ...rest]);
  }, weights);
}

/** Every other chunk of a V runs backward along the stages; turning twice changes nothing. */
function turned({ placement, numChunks }: PipelineSchedule, placed: Tensor): Tensor {
  if (placement === "loop") return placed;
  const chunks = np.split(placed, numChunks, 0);
  return np.concatenate(chunks.map((chunk, i) => (i % 2 === 1 ? np.flip(chunk, 1) : chunk)));
}

function checkMesh(
  { name, stages }: PipelineSchedule,
  mesh: Mesh,
  axisName: string,
  batchAxes: readonly string[],
): void {
  const size = axisSizeIn(mesh, axisName);
  if (size !== stages.length) {
    throw new ValueError(
      `[pipelineTrainStep] the schedule "${name}" has ${stages.length} stages, the mesh ${formatMesh(mesh)} has ${size ?? "no"} devices along "${axisName}": make the schedule with numStages ${size ?? 1}`,
    );
  }
  const unknown = batchAxes.find((axis) => axis === axisName || axisSizeIn(mesh, axis) === undefined);
  if (unknown === undefined) return;
  throw new ValueError(
    `[pipelineTrainStep] batchAxes names "${unknown}", which is ${unknown === axisName ? "the axis of the stages" : `no axis of the mesh ${formatMesh(mesh)}`}`,
  );
}

function checkWeights({ numChunks, stages, name }: PipelineSchedule, weights: unknown): void {
  for (const { path, leaf } of tree.flattenWithPath(weights)) {
    const { shape } = leafTensor(leaf, "pipelineTrainStep", path);
    if (shape[0] === numChunks && shape[1] === stages.length) continue;
    throw new ShapeError(
      `[pipelineTrainStep] the weights of the stages${path && ` at "${path}"`} are [${shape}], but "${name}" has ${numChunks} chunks on ${stages.length} stages: give [${numChunks},${stages.length},…], as placeParts makes it of [${numChunks * stages.length},…]`,
    );
  }
}

function checkRows(
  { numMicrobatches }: PipelineSchedule,
  mesh: Mesh,
  batchAxes: readonly string[],
  batch: Readonly<Record<"inputs" | "targets", unknown>>,
): void {
  const ways = numMicrobatches * batchAxes.reduce((n, axis) => n * (axisSizeIn(mesh, axis) ?? 1), 1);
  const why =
    batchAxes.length > 0 ? ` on ${ways / numMicrobatches} devices along ${batchAxes.join(", ")}` : "";
  for (const [what, values] of Object.entries(batch)) {
    for (const { path, leaf } of tree.flattenWithPath(values)) {
      const { shape } = leafTensor(leaf, "pipelineTrainStep", path);
      const rows = shape[0] ?? 0;
      if (shape.length > 0 && rows % ways === 0) continue;
      throw new ShapeError(
        `[pipelineTrainStep] the ${rows} rows of the ${what}${path && ` at "${path}"`} do not split into ${numMicrobatches} microbatches${why} (${rows} / ${ways} = ${(rows / ways).toFixed(2)}): use a multiple of ${ways}`,
      );
    }
  }
}
