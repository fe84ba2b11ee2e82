/** What a training step reads. */
import * as np from "../../numpy/index.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";

/** Tokens to train on, with what is known about the documents in their rows. */
export interface TokenBatch {
  /** int32 [batch, length + 1]: every token but the last is read, and every one but the first predicted. */
  readonly tokens: Tensor;
  /** The number of the document of each token that is read, int32 [batch, length]; documents do not see each other. */
  readonly segmentIds?: Tensor;
  /** The position of each of these tokens in its document, int32 [batch, length]; given with `segmentIds`. */
  readonly positions?: Tensor;
  /** Which predictions the loss counts, bool [batch, length]; all by default. */
  readonly lossMask?: Tensor;
  /**
   * For preferences: the log-probabilities of a reference model, float32 [pairs, 2]. All others are then [pairs, 2, …]: a
   * chosen answer and a rejected one.
   */
  readonly reference?: Tensor;
}

/** Tokens whose rows are one document each, or a batch of rows with documents. */
export type TokenInput = Tensor | TokenBatch;

/** A batch in which the weights of tokens stand for the mask: their mean over the batch is 1. */
export interface WeightedBatch extends Omit<TokenBatch, "lossMask"> {
  readonly weights?: Tensor;
}

/**
 * Weighs the predictions that count such that the mean of weighted losses is their mean, also where a batch is split into
 * equal parts whose means are averaged.
 */
export function weighted(input: TokenInput): WeightedBatch {
  if (input instanceof Tensor) return { tokens: input };
  const { lossMask, ...batch } = input;
  if (!lossMask) return batch;
  const counted = lossMask.astype("float32");
  return { ...batch, weights: counted.div(np.maximum(np.mean(counted), 1 / lossMask.size)) };
}

/** Pairs whose masks are weights of their own: sums over the tokens of an answer, not means. */
export function unweighted(input: TokenInput): WeightedBatch {
  if (input instanceof Tensor) return { tokens: input };
  const { lossMask, ...batch } = input;
  return { ...batch, ...(lossMask && { weights: lossMask.astype("float32") }) };
}

/** A batch of pairs as one of rows, [2 · pairs, …]. */
export function rowsOfPairs({ reference: _, ...pairs }: WeightedBatch): WeightedBatch {
  return tree.map((x: Tensor) => x.reshape([-1, ...x.shape.slice(2)]), pairs);
}

/** The tokens that a batch reads, and those that it predicts, [batch, length] each. */
export function inputsAndTargets(tokens: Tensor): [inputs: Tensor, targets: Tensor] {
  const length = (tokens.shape[1] ?? 1) - 1;
  return [ops.sliceDim(tokens, 1, 0, length), ops.sliceDim(tokens, 1, 1, length + 1)];
}
