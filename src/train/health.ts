import { ShardwiseError } from "../ir/errors.js";
import { addressableShards } from "../spmd/sharding.js";
import { Tensor } from "../trace/tensor.js";
import * as tree from "../trace/tree.js";
import type { LanguageModelState } from "./training.js";

/** A loss that is not a number or has run away; the process ends with code 1. */
export class DivergedError extends ShardwiseError {
  readonly step: number;

  constructor(step: number, message: string) {
    super("value", message);
    this.step = step;
  }
}

/** What a step told, as numbers. */
export interface StepValues {
  readonly loss: number;
  readonly crossEntropy: number;
  readonly gradientNorm: number;
  readonly gradientSquares: ArrayLike<number>;
  /** How many updates were made before the step. */
  readonly numUpdates: number;
  /** What the loss was multiplied by, where it is scaled. */
  readonly lossScale?: number;
}

/** The least loss scale: where gradients overflow without any scaling, skipping steps does not help. */
export const leastLossScale = 1;

/** Whether a step left everything but the loss scale as it was, because scaled gradients overflowed. */
export function isSkipped({ loss, gradientNorm, lossScale = 0 }: StepValues): boolean {
  return lossScale > leastLossScale && !(Number.isFinite(loss) && Number.isFinite(gradientNorm));
}

/** How many times the loss of a model that knows nothing counts as exploded. */
const explosion = 4;

/** What is wrong with a step; undefined when nothing is. @param vocabSize says what a fresh model's loss is */
export function problemOf(values: StepValues, vocabSize: number): string | undefined {
  const { loss, gradientNorm, lossScale } = values;
  if (isSkipped(values)) return undefined;
  const scaled =
    lossScale === undefined ? "" : ` at a loss scale of ${lossScale}, the least: bfloat16 has a wider range`;
  if (!Number.isFinite(loss)) return `the loss is ${loss}${scaled}`;
  if (!Number.isFinite(gradientNorm)) return `the norm of the gradients is ${gradientNorm}${scaled}`;
  const chance = Math.log(vocabSize);
  if (loss <= explosion * chance) return undefined;
  return `the loss exploded: ${loss.toPrecision(4)} is over ${explosion} x ${chance.toPrecision(3)}, the loss of guessing`;
}

/**
 * The error for a step that went wrong: which step, the first parameter with a gradient that is not finite, and
 * the first device that holds such values.
 *
 * @param state a state after the step
 * @param kept the last checkpoint from before it, if there is one
 */
export async function diverged(
  step: number,
  problem: string,
  values: StepValues,
  state: LanguageModelState,
  kept: string | undefined,
): Promise<DivergedError> {
  const params = tree.flattenWithPath(state.params);
  const bad = params.findIndex((_, i) => !Number.isFinite(values.gradientSquares[i] ?? 0));
  const found = params[bad];
  const tensor = found ? `; the first bad tensor is the gradient of ${found.path}` : "";
  const device = await firstBadDevice(found ? [found.leaf] : tree.leaves(state.params));
  const place = device === undefined ? "" : ` on device ${device}`;
  const keptText = kept ? `the last good checkpoint is ${kept}` : "there is no checkpoint from before it";
  return new DivergedError(
    step,
    `[train] step ${step}: ${problem}${tensor}${place}; ${keptText}: resume from it with a lower optimizer.learningRate in a new run, a longer warm-up, or a lower optimizer.clip`,
  );
}

/** The first device that holds a value that is not finite. */
async function firstBadDevice(leaves: readonly unknown[]): Promise<number | undefined> {
  for (const leaf of leaves) {
    if (!(leaf instanceof Tensor)) continue;
    for (const { device, data } of addressableShards(leaf)) {
      const values = await data.data();
      data.dispose();
      for (const value of values) if (!Number.isFinite(value)) return device.id;
    }
  }
  return undefined;
}
