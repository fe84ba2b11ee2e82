import { at } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { remat } from "../../transforms/derivatives/remat.js";

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

/**
 * The parts of the loss of 16-bit logits, which keeps nothing in float32 for the backward pass: the whole vocabulary
 * for every token would be the largest tensor of a training step.
 */
const partsOfNarrow = remat(partsOf, { staticArgnums: 2 });

/**
 * The cross-entropy of the targets, and `zLoss` times the squared log of the softmax's normaliser, which keeps logits
 * small. A split vocabulary costs three small all-reduces, and only the gradient is stored besides the logits at their
 * size: comparing targets with all token ids is fused into the kernels that read the logits anyway, whereas a gather
 * would scatter its gradient into another tensor.
 *
 * @param logits [batch, length, vocabulary], any float type; computed in float32
 * @param targets int32 [batch, length]
 * @param counted which tokens the mean is taken over, bool [batch, length]; all by default
 */
export function crossEntropy(logits: Tensor, targets: Tensor, zLoss = 0, counted?: Tensor): LossParts {
  const isNarrow = logits.dtype === "bfloat16" || logits.dtype === "float16";
  const parts = isNarrow ? partsOfNarrow : partsOf;
  const [loss, entropy] = counted ? parts(logits, targets, zLoss, counted) : parts(logits, targets, zLoss);
  return { loss, crossEntropy: entropy };
}

/** A mask along the vocabulary of the target of every token. */
function isTarget(targets: Tensor, vocabulary: number): Tensor {
  return np.equal(np.expandDims(targets, -1), np.arange(vocabulary));
}

/** The mean over the tokens that count. */
function meanOf(x: Tensor, counted: Tensor | undefined): Tensor {
  if (!counted) return np.mean(x);
  return np.sum(np.where(counted, x, 0)).div(np.maximum(np.sum(counted.astype("float32")), 1));
}

function partsOf(
  logits: Tensor,
  targets: Tensor,
  zLoss: number,
  counted?: Tensor,
): [loss: Tensor, entropy: Tensor] {
  const wide = logits.astype("float32");
  const largest = ops.stopGradient(np.max(wide, -1, { keepdims: true }));
  const shifted = wide.sub(largest);
  const logSum = np.log(np.sum(np.exp(shifted), -1));
  const picked = np.sum(np.where(isTarget(targets, at(logits.shape, 2)), shifted, 0), -1);
  const entropy = meanOf(logSum.sub(picked), counted);
  if (zLoss === 0) return [entropy, entropy];
  const normalizer = logSum.add(np.squeeze(largest, -1));
  return [entropy.add(meanOf(normalizer.mul(normalizer), counted).mul(zLoss)), entropy];
}
