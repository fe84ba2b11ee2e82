/** A small model that schedules of pipelines train, and the same without a pipeline. */
import { lax, type Mesh, np, type Tensor, valueAndGrad } from "../../src/index.js";
import { range } from "../../src/ir/shape.js";
import type { ScheduleName } from "../../src/parallel/schedule/makers.js";
import type { PipelineSchedule } from "../../src/parallel/schedule/schedule.js";
import {
  type PipelineTrainStepOptions,
  partsInOrder,
  pipelineTrainStep,
  placeParts,
} from "../../src/parallel/schedule/trainStep.js";
import { normal } from "./parallelChecks.js";

/** The sizes of the model, and how many rows a microbatch has on a device. */
export const modelSizes = { width: 4, hidden: 6, rows: 2 } as const;

const { width, hidden, rows } = modelSizes;

/** Two layers a part in a loop, an embedding in front and a head behind. */
export const model = {
  first: (w: { embed: Tensor }, x: Tensor) => np.matmul(x, w.embed),
  stage: (w: { up: Tensor; down: Tensor }, x: Tensor) =>
    lax.scan(
      (h: Tensor, own: { up: Tensor; down: Tensor }): [Tensor, null] => [
        h.add(np.matmul(np.tanh(np.matmul(h, own.up)), own.down)),
        null,
      ],
      x,
      w,
    )[0],
  last: (w: { head: Tensor }, h: Tensor, y: Tensor) => np.mean(np.square(np.matmul(h, w.head).sub(y))),
};

function weightsOf(numParts: number) {
  return {
    first: { embed: normal(0, 3, width) },
    stages: {
      up: normal(1, numParts, 2, width, hidden).mul(0.5),
      down: normal(2, numParts, 2, hidden, width).mul(0.5),
    },
    last: { head: normal(3, width, 2) },
  };
}

type Weights = ReturnType<typeof weightsOf>;

/** The arguments of a step by a schedule: weights in the order of the model, inputs and targets of `ways` devices. */
export function stepArguments(
  schedule: PipelineSchedule,
  ways = 1,
): [weights: Weights, x: Tensor, y: Tensor] {
  const batch = schedule.numMicrobatches * rows * ways;
  return [weightsOf(schedule.stages.length * schedule.numChunks), normal(4, batch, 3), normal(5, batch, 2)];
}

/** Loss and gradients without a pipeline. */
export function inTurn(weights: Weights, x: Tensor, y: Tensor) {
  return valueAndGrad((w: Weights) => {
    let h = model.first(w.first, x);
    const numParts = w.stages.up.shape[0] ?? 0;
    for (const i of range(numParts)) {
      const own = {
        up: lax.indexInDim(w.stages.up, i, 0, false),
        down: lax.indexInDim(w.stages.down, i, 0, false),
      };
      h = model.stage(own, h);
    }
    return model.last(w.last, h, y);
  })(weights);
}

/** How a step differs from the plain one. */
export interface StepCase {
  readonly functions?: typeof model;
  readonly options?: Omit<PipelineTrainStepOptions, "mesh">;
}

/** Loss and gradients by a schedule, of weights in the order of the model. */
export function stepOf(
  schedule: PipelineSchedule,
  mesh: Mesh,
  { functions = model, options = {} }: StepCase = {},
) {
  const step = pipelineTrainStep(schedule, functions, { mesh, ...options });
  return (weights: Weights, x: Tensor, y: Tensor) => {
    const { value, grads } = step({ ...weights, stages: placeParts(schedule, weights.stages) }, x, y);
    return [value, { ...grads, stages: partsInOrder(schedule, grads.stages) }];
  };
}

/** The option for schedules that have a choice of chunks. */
export function chunksOf(name: ScheduleName, numChunks: number): { readonly numChunks?: number } {
  return ["circular", "interleaved", "breadth-first"].includes(name) ? { numChunks } : {};
}
