import { isFloat } from "../../ir/dtype.js";
import { ShardwiseError } from "../../ir/errors.js";
import { addressableShards } from "../../spmd/mesh/sharding.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import type { LanguageModelState } from "./state.js";
import { leastLossScale } from "./stepFunctions.js";
import type { Training } from "./training.js";

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

/**
 * Whether a step left everything but the loss scale as it was, because scaled gradients overflowed. The loss is
 * reported without its scale: when it overflows, a lower one does not help.
 */
export function isSkipped({ loss, gradientNorm, lossScale = 0 }: StepValues): boolean {
  return lossScale > leastLossScale && Number.isFinite(loss) && !Number.isFinite(gradientNorm);
}

/** How many times the loss of a model that knows nothing counts as exploded. */
const explosion = 4;

/** What is wrong with a step; undefined when nothing is. @param vocabSize says what a fresh model's loss is */
export function problemOf(values: StepValues, vocabSize: number): string | undefined {
  const { loss, gradientNorm, lossScale } = values;
  if (isSkipped(values)) return undefined;
  const inHalf = (why: string) =>
    lossScale === undefined ? "" : `, ${why}: bfloat16 has a wider range than float16`;
  if (!Number.isFinite(loss)) return `the loss is ${loss}${inHalf("with which no loss scale helps")}`;
  if (!Number.isFinite(gradientNorm))
    return `the norm of the gradients is ${gradientNorm}${inHalf(`at a loss scale of ${lossScale}, the least`)}`;
  const chance = Math.log(vocabSize);
  if (loss <= explosion * chance) return undefined;
  return `the loss exploded: ${loss.toPrecision(4)} is over ${explosion} x ${chance.toPrecision(3)}, the loss of guessing`;
}

/** Whether a step's numbers are finite; the state is not changed by a step whose are not. */
export function isFiniteStep({ loss, gradientNorm }: StepValues): boolean {
  return Number.isFinite(loss) && Number.isFinite(gradientNorm);
}

/** What is known of a run that went wrong. */
export interface Divergence {
  /** The step that went wrong. */
  readonly step: number;
  readonly problem: string;
  /** The tensor it began with, as a part of a sentence; undefined when it was not found. */
  readonly origin: string | undefined;
  /** The newest checkpoint from before the step, if there is one. */
  readonly kept: string | undefined;
  /** A checkpoint of the state right before the step, if one was saved because of it. */
  readonly rescued?: string | undefined;
}

/** The error for a step that went wrong: which step, which tensor and where, and what is left to go on from. */
export function diverged({ step, problem, origin, kept, rescued }: Divergence): DivergedError {
  const before = kept === undefined ? "" : `, the one before it ${kept}`;
  const left =
    rescued !== undefined
      ? `the state before this step is finite and was saved: the last good checkpoint is ${rescued}${before}`
      : kept !== undefined
        ? `the last good checkpoint is ${kept}`
        : "there is no checkpoint from before it";
  const advice = `${(rescued ?? kept) ? "resume from it" : "start again"} with a lower optimizer.learningRate, a longer optimizer.warmup, or a lower optimizer.clip`;
  const parts = [problem, ...(origin === undefined ? [] : [origin]), left];
  return new DivergedError(step, `[train] step ${step}: ${parts.join("; ")}: ${advice}`);
}

/**
 * The tensor with which a step whose numbers are not finite went wrong: its forward and backward pass are run again
 * with checks.
 *
 * @param state the state before the step
 */
export async function originOfNonFinite(
  training: Training,
  state: LanguageModelState,
  tokens: Tensor,
  values: StepValues,
): Promise<string | undefined> {
  const bad = tree
    .flattenWithPath(state.params)
    .find((_, i) => !Number.isFinite(values.gradientSquares[i] ?? 0));
  const gradient = bad && `the first gradient that is not finite is that of ${bad.path}`;
  try {
    const found = await training.findNonFinite(state, tokens);
    return found ? `the first tensor that is not finite is ${found}` : gradient;
  } catch (error) {
    // The step is what has to be reported, with what is known without another run.
    const reason = error instanceof Error ? error.message : String(error);
    return `${gradient ? `${gradient}; ` : ""}the tensor it began with was not found: ${reason}`;
  }
}

/** The parameter with the largest gradient of a step whose loss ran away, and the device of its largest weight. */
export async function originOfExplosion(
  state: LanguageModelState,
  { gradientSquares, gradientNorm }: StepValues,
): Promise<string | undefined> {
  const params = tree.flattenWithPath(state.params);
  const norms = params.map((_, i) => Math.sqrt(gradientSquares[i] ?? 0));
  const largest = params[norms.indexOf(Math.max(...norms))];
  if (!(largest?.leaf instanceof Tensor)) return undefined;
  const norm = Math.max(...norms).toPrecision(3);
  const { device, value } = await extremeElement(largest.leaf);
  return `the largest gradient is that of ${largest.path}, with norm ${norm} of ${gradientNorm.toPrecision(3)}; the largest of its weights, ${value.toPrecision(3)}, is on device ${device}`;
}

/** Whether all tensors of a state are finite. */
export async function isFiniteState(training: Training, state: LanguageModelState): Promise<boolean> {
  const verdict = training.isFinite(state);
  const isGood = (await verdict.item()) !== 0;
  verdict.dispose();
  return isGood;
}

/** The first leaf of a state that holds numbers that are not finite, with the device that holds them. */
export async function firstBadLeaf(
  state: LanguageModelState,
): Promise<{ readonly path: string; readonly device: number } | undefined> {
  for (const { path, leaf } of tree.flattenWithPath(state)) {
    if (!(leaf instanceof Tensor) || !isFloat(leaf.dtype)) continue;
    const { device, value } = await extremeElement(leaf);
    if (!Number.isFinite(value)) return { path, device };
  }
  return undefined;
}

/** The element farthest from zero and the first device that holds it; what is not a number is farthest. */
async function extremeElement(tensor: Tensor): Promise<{ readonly device: number; readonly value: number }> {
  let found = { device: 0, value: 0, size: -1 };
  for (const { device, data } of addressableShards(tensor)) {
    const values = await data.data();
    data.dispose();
    for (const value of values) {
      const size = Number.isNaN(value) ? Number.POSITIVE_INFINITY : Math.abs(value);
      if (size > found.size) found = { device: device.id, value, size };
    }
  }
  return found;
}
