import { isFloat } from "../../ir/dtype.js";
import { ShardwiseError } from "../../ir/errors.js";
import { addressableShards } from "../../spmd/mesh/sharding.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import type { LanguageModelState } from "./state.js";
import { leastLossScale } from "./stepFunctions.js";
import type { TokenInput } from "./tokenBatch.js";
import type { Training } from "./training.js";

/** A loss that is not finite or has exploded; the process exits with code 1. */
export class DivergedError extends ShardwiseError {
  static override readonly name: string = "DivergedError";
  readonly step: number;

  constructor(step: number, message: string) {
    super("value", message);
    this.step = step;
  }
}

/** The metrics of a step, as numbers. */
export interface StepValues {
  readonly loss: number;
  readonly crossEntropy: number;
  /** What the routers of experts did, by the names of metrics. */
  readonly router?: Readonly<Record<string, number>>;
  readonly gradientNorm: number;
  readonly gradientSquares: ArrayLike<number>;
  /** The number of updates before the step. */
  readonly numUpdates: number;
  /** The loss scale, if the loss is scaled. */
  readonly lossScale?: number;
}

/**
 * Whether a step changed only the loss scale, because scaled gradients overflowed. The loss is reported without its
 * scale: if it overflows, a lower scale does not help.
 */
export function isSkipped({ loss, gradientNorm, lossScale = 0 }: StepValues): boolean {
  return lossScale > leastLossScale && Number.isFinite(loss) && !Number.isFinite(gradientNorm);
}

/** A loss above this multiple of that of a uniform guess counts as exploded. */
const explosion = 4;

/** What is wrong with a step; undefined if nothing is. @param vocabSize determines the loss of an untrained model */
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

/** Whether the metrics of a step are finite; otherwise the step did not change the state. */
export function isFiniteStep({ loss, gradientNorm }: StepValues): boolean {
  return Number.isFinite(loss) && Number.isFinite(gradientNorm);
}

/** What is known about a run that diverged. */
export interface Divergence {
  /** The step that diverged. */
  readonly step: number;
  readonly problem: string;
  /** The tensor in which it started, as a part of a sentence; undefined if it was not found. */
  readonly origin: string | undefined;
  /** The newest checkpoint from before the step, if there is one. */
  readonly kept: string | undefined;
  /** A checkpoint of the state right before the step, if one was saved because of it. */
  readonly rescued?: string | undefined;
}

/** The error for a step that diverged: which step, which tensor and where, and which checkpoint to continue from. */
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
 * The first tensor of a step that is not finite: its forward and backward pass are run again with checks.
 *
 * @param state the state before the step
 */
export async function originOfNonFinite(
  training: Training,
  state: LanguageModelState,
  tokens: TokenInput,
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
    // The divergence must be reported even if the second run fails.
    const reason = error instanceof Error ? error.message : String(error);
    return `${gradient ? `${gradient}; ` : ""}the tensor in which it started was not found: ${reason}`;
  }
}

/** The parameter with the largest gradient of a step whose loss exploded, and the device of its largest weight. */
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

/** The element of the largest magnitude and the first device that holds it; NaN counts as largest. */
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
