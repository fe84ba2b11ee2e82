/** Losses of embeddings: how near those of the same class are, and how far from others. */

import { limits } from "../../ir/dtype.js";
import { type OptionsOf, schema } from "../../ir/schema.js";
import { concatenate } from "../../numpy/arrays/joining.js";
import { expandDims } from "../../numpy/arrays/shaping.js";
import { add, divide, maximum, multiply, power, subtract } from "../../numpy/elementwise/arithmetic.js";
import { astype, exp, log, negative, sqrt, square } from "../../numpy/elementwise/elementwise.js";
import { equal, logicalAnd, where } from "../../numpy/elementwise/logic.js";
import { eye } from "../../numpy/linalg/diagonals.js";
import { max, sum } from "../../numpy/reductions/reductions.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { asFloats, lossOptions } from "./lossOperands.js";

const cosineLossOptions = schema({
  ...lossOptions.fields,
  /** The least squared norm that vectors count with; 0 by default. */
  epsilon: 0,
});

/** Options of {@link cosineSimilarity} and {@link cosineDistance}. */
export interface CosineLossOptions extends OptionsOf<typeof cosineLossOptions> {}

/**
 * The cosine of the angle between vectors.
 *
 * @example
 * ```ts
 * optim.cosineSimilarity(np.array([1, 0]), np.array([1, 1])); // 0.7071
 * ```
 */
export function cosineSimilarity(
  predictions: TensorLike,
  targets: TensorLike,
  options?: CosineLossOptions,
): Tensor {
  const { epsilon, dim, where: mask } = cosineLossOptions.read(options, "cosineSimilarity");
  const unit = (x: Tensor) =>
    divide(x, sqrt(maximum(sum(square(x), dim, { keepdims: true, where: mask }), epsilon)));
  const given = asFloats(predictions, "cosineSimilarity");
  const wanted = asFloats(targets, "cosineSimilarity");
  return sum(multiply(unit(given), unit(wanted)), dim, { where: mask });
}

/**
 * One minus {@link cosineSimilarity}.
 *
 * @example
 * ```ts
 * optim.cosineDistance(np.array([1, 0]), np.array([0, 1])); // 1
 * ```
 */
export function cosineDistance(
  predictions: TensorLike,
  targets: TensorLike,
  options: CosineLossOptions = {},
): Tensor {
  const given = cosineLossOptions.read(options, "cosineDistance");
  return subtract(1, cosineSimilarity(predictions, targets, given));
}

const tripletOptions = schema({
  /** The dim of features; the last by default. */
  dim: -1,
  /** The degree of the norm; 2 by default. */
  normDegree: 2,
  /** By how much negatives shall be farther away; 1 by default. */
  margin: 1,
  /** Added to the sums before the root; 1e-6 by default. */
  eps: 1e-6,
});

/** Options of {@link tripletMarginLoss}. */
export interface TripletOptions extends OptionsOf<typeof tripletOptions> {}

/**
 * How much farther than `margin` less the negatives are from the anchors than the positives.
 *
 * @example
 * ```ts
 * const [anchor, positive, negative] = [np.array([0, 0]), np.array([3, 4]), np.array([0, 2])];
 * optim.tripletMarginLoss(anchor, positive, negative); // 4
 * ```
 */
export function tripletMarginLoss(
  anchors: TensorLike,
  positives: TensorLike,
  negatives: TensorLike,
  options?: TripletOptions,
): Tensor {
  const { dim, normDegree, margin, eps } = tripletOptions.read(options, "tripletMarginLoss");
  const start = asFloats(anchors, "tripletMarginLoss");
  const distance = (x: TensorLike) =>
    power(
      add(sum(power(subtract(start, asFloats(x, "tripletMarginLoss")), normDegree), dim), eps),
      1 / normDegree,
    );
  return maximum(add(subtract(distance(positives), distance(negatives)), margin), 0);
}

/**
 * The normalised, temperature-scaled cross-entropy of embeddings of which those with one label belong together.
 *
 * @example
 * ```ts
 * const embeddings = np.array([[1, 0], [1, 0], [0, 1], [0, 1]]);
 * optim.ntxent(embeddings, np.array([0, 0, 1, 1], "int32"), 1); // 0.5514
 * ```
 */
export function ntxent(embeddings: Tensor, labels: Tensor, temperature = 0.07): Tensor {
  const similarity = divide(
    cosineSimilarity(expandDims(embeddings, 0), expandDims(embeddings, 1), {
      epsilon: limits(embeddings.dtype).epsilon,
    }),
    temperature,
  );
  const same = equal(expandDims(labels, 1), expandDims(labels, 0));
  const matches = logicalAnd(same, equal(eye(labels.size), 0));
  const others = where(same, Number.NEGATIVE_INFINITY, similarity);
  const friends = where(matches, similarity, Number.NEGATIVE_INFINITY);
  const peak = ops.stopGradient(max(concatenate([others, friends], -1), 1, { keepdims: true }));
  const shifted = subtract(where(matches, similarity, peak), peak);
  const total = add(sum(exp(subtract(others, peak)), 1, { keepdims: true }), where(matches, exp(shifted), 0));
  const logProbs = subtract(shifted, log(where(matches, total, 1)));
  return negative(divide(sum(where(matches, logProbs, 0)), sum(astype(matches, embeddings.dtype))));
}
