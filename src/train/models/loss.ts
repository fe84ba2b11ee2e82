import { at } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import * as ops from "../../trace/ops.js";
import { needTensor } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { checkpointName, checkpointPolicies, remat } from "../../transforms/derivatives/remat.js";

/** The parts of a language model's loss. */
export interface LossParts {
  /** What is differentiated: cross-entropy plus z-loss, a mean over tokens. */
  readonly loss: Tensor;
  /** The mean cross-entropy alone, in nats. */
  readonly crossEntropy: Tensor;
  /** What the routers of experts did, if there are any. */
  readonly router?: Tensor;
}

/** The parts of a loss as they are returned beside the value that is differentiated. */
export type StepAux = readonly [loss: Tensor, entropy: Tensor, ...router: Tensor[]];

/** The parts of a loss as an array, which all transforms average. */
export function auxOf({ loss, crossEntropy: entropy, router }: LossParts): StepAux {
  return router ? [loss, entropy, router] : [loss, entropy];
}

/** A loss with the losses of routers added. */
export function withRouters(
  parts: LossParts,
  routers: { readonly loss: Tensor; readonly statistics: Tensor } | undefined,
): LossParts {
  if (!routers) return parts;
  return { ...parts, loss: parts.loss.add(routers.loss), router: routers.statistics };
}

/** Keeps one number of each token for the backward pass, which would otherwise read all logits for it again. */
const kept = (x: Tensor): Tensor => checkpointName(x, "ofToken");
const policy = checkpointPolicies.saveOnlyTheseNames("ofToken");

/**
 * The parts of the loss of 16-bit logits, which keeps no logits in float32 for the backward pass: the whole vocabulary
 * for every token would be the largest tensor of a training step.
 */
const partsOfNarrow = remat(partsOf, { staticArgnums: 2, policy });

/**
 * The cross-entropy of the targets, and `zLoss` times the squared log of the softmax's normaliser, which keeps logits
 * small. A split vocabulary costs three small all-reduces, and only the gradient is stored besides the logits at their
 * size: comparing targets with all token ids is fused into the kernels that read the logits anyway, whereas a gather
 * would scatter its gradient into another tensor.
 *
 * @param logits [batch, length, vocabulary], any float type; computed in float32
 * @param targets int32 [batch, length]
 * @param weights the weights of tokens, float32 [batch, length]; 1 by default
 */
export function crossEntropy(logits: Tensor, targets: Tensor, zLoss = 0, weights?: Tensor): LossParts {
  const isNarrow = logits.dtype === "bfloat16" || logits.dtype === "float16";
  const parts = isNarrow ? partsOfNarrow : partsOf;
  const [loss, entropy] = weights ? parts(logits, targets, zLoss, weights) : parts(logits, targets, zLoss);
  return { loss, crossEntropy: entropy };
}

/** A mask along the vocabulary of the target of every token. */
function isTarget(targets: Tensor, vocabulary: number): Tensor {
  return np.equal(np.expandDims(targets, -1), np.arange(vocabulary));
}

/** The mean over tokens, some of which may weigh more than others. */
function meanOf(x: Tensor, weights: Tensor | undefined): Tensor {
  return np.mean(weights ? x.mul(weights) : x);
}

/** The log-probability of every target, and the log of the softmax's normaliser, [batch, length] each. */
function scored(logits: Tensor, targets: Tensor): { readonly picked: Tensor; readonly normalizer: Tensor } {
  const wide = logits.astype("float32");
  const largest = kept(ops.stopGradient(np.max(wide, -1, { keepdims: true })));
  const shifted = wide.sub(largest);
  const logSum = np.log(kept(np.sum(np.exp(shifted), -1)));
  const chosen = np.sum(np.where(isTarget(targets, at(logits.shape, 2)), shifted, 0), -1);
  return { picked: chosen.sub(logSum), normalizer: logSum.add(np.squeeze(largest, -1)) };
}

function partsOf(
  logits: Tensor,
  targets: Tensor,
  zLoss: number,
  weights?: Tensor,
): [loss: Tensor, entropy: Tensor] {
  const { picked, normalizer } = scored(logits, targets);
  const entropy = meanOf(np.negative(picked), weights);
  if (zLoss === 0) return [entropy, entropy];
  return [entropy.add(meanOf(normalizer.mul(normalizer), weights).mul(zLoss)), entropy];
}

/**
 * The log-probability that logits give each target, in float32.
 *
 * @param logits [batch, length, vocabulary]
 * @param targets int32 [batch, length]
 *
 * @example
 * ```ts
 * train.logProbabilities(np.zeros([1, 1, 2]), np.array([[1]], "int32")); // [[-0.6931]]
 * ```
 */
export function logProbabilities(logits: Tensor, targets: Tensor): Tensor {
  needTensor(logits, "logits", "logProbabilities");
  needTensor(targets, "targets", "logProbabilities");
  const isNarrow = logits.dtype === "bfloat16" || logits.dtype === "float16";
  return (isNarrow ? pickedOfNarrow : pickedOf)(logits, targets);
}

const pickedOf = (logits: Tensor, targets: Tensor): Tensor => scored(logits, targets).picked;
const pickedOfNarrow = remat(pickedOf, { policy });
