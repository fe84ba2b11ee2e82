/** Loss functions with optax's meaning: a value for each example (or element), of which users take the mean. */

import { need, needIfGiven } from "../../ir/arguments.js";
import { isInteger } from "../../ir/dtype.js";
import { DTypeError, ShapeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { formatType, normalizeDim, normalizeDims } from "../../ir/shape.js";
import { logSigmoid, logSoftmax, oneHot, softmax } from "../../nn/functions/functions.js";
import { stack } from "../../numpy/arrays/joining.js";
import { expandDims, reshape, squeeze, transpose } from "../../numpy/arrays/shaping.js";
import { add, logaddexp, maximum, minimum, multiply, subtract } from "../../numpy/elementwise/arithmetic.js";
import { abs, astype, exp, log, negative, square } from "../../numpy/elementwise/elementwise.js";
import { equal, logicalNot, where } from "../../numpy/elementwise/logic.js";
import { takeAlongAxis } from "../../numpy/indexing/take.js";
import type { Dims } from "../../numpy/operands.js";
import { any, logsumexp, max, sum } from "../../numpy/reductions/reductions.js";
import { needTensor, type TensorLike, toTensor } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { asFloats, asTensor, lossOptions } from "./lossOperands.js";

/** The difference of predictions and targets, which must have one shape; predictions are errors without targets. */
function errorsOf(predictions: TensorLike, targets: TensorLike | undefined, caller: string): Tensor {
  const given = asFloats(predictions, caller);
  if (targets === undefined) return given;
  const wanted = asTensor(targets, caller);
  if (given.shape.join() !== wanted.shape.join()) {
    throw new ShapeError(
      `[${caller}] predictions [${given.shape.join(", ")}] and targets [${wanted.shape.join(", ")}] differ in shape: reshape one of them`,
    );
  }
  return subtract(given, wanted);
}

/**
 * (prediction − target)².
 *
 * @example
 * ```ts
 * optim.squaredError(np.array([1, 3]), np.array([0, 1])); // [1, 4]
 * ```
 */
export function squaredError(predictions: TensorLike, targets?: TensorLike): Tensor {
  return square(errorsOf(predictions, targets, "squaredError"));
}

/**
 * Half of (prediction − target)², whose gradient is the error itself.
 *
 * @example
 * ```ts
 * optim.l2Loss(np.array([1, 2]), np.array([0, 0])); // [0.5, 2]
 * ```
 */
export function l2Loss(predictions: TensorLike, targets?: TensorLike): Tensor {
  return multiply(square(errorsOf(predictions, targets, "l2Loss")), 0.5);
}

const huberOptions = schema({
  /** The error from which on the loss grows only linearly; 1 by default. */
  delta: 1,
});

/** Options of {@link huberLoss}. */
export interface HuberOptions extends OptionsOf<typeof huberOptions> {}

/**
 * {@link l2Loss} for small errors, a straight line for large ones.
 *
 * @example
 * ```ts
 * optim.huberLoss(np.array([0.5, 3]), np.array([0, 0])); // [0.125, 2.5]
 * ```
 */
export function huberLoss(predictions: TensorLike, targets?: TensorLike, options?: HuberOptions): Tensor {
  const { delta } = huberOptions.read(options, "huberLoss");
  const size = abs(errorsOf(predictions, targets, "huberLoss"));
  const small = minimum(size, delta);
  return add(multiply(square(small), 0.5), multiply(subtract(size, small), delta));
}

/**
 * log(cosh(error)): like {@link l2Loss} near zero and like the absolute error far from it.
 *
 * @example
 * ```ts
 * optim.logCosh(np.array([1, 2]), np.array([0, 0])); // [0.4338, 1.325]
 * ```
 */
export function logCosh(predictions: TensorLike, targets?: TensorLike): Tensor {
  const errors = errorsOf(predictions, targets, "logCosh");
  return subtract(logaddexp(errors, negative(errors)), Math.LN2);
}

/** Over which dims a loss is taken and which elements count. */
export interface LossOptions extends OptionsOf<typeof lossOptions> {}

/**
 * The binary cross-entropy of each logit: labels are 0 or 1, or probabilities.
 *
 * @example
 * ```ts
 * optim.sigmoidBinaryCrossEntropy(np.array([0, 2]), np.array([1, 1])); // [0.6931, 0.1269]
 * ```
 */
export function sigmoidBinaryCrossEntropy(logits: TensorLike, labels: TensorLike): Tensor {
  const x = asFloats(logits, "sigmoidBinaryCrossEntropy");
  const y = astype(labels, x.dtype);
  return subtract(multiply(negative(y), logSigmoid(x)), multiply(subtract(1, y), logSigmoid(negative(x))));
}

const focalOptions = schema({
  /** The weight of positive examples; those of both kinds are 1 by default. */
  alpha: optional("number"),
  /** How strongly easy examples are played down; 2 by default. */
  gamma: 2,
});

/** Options of {@link sigmoidFocalLoss}. */
export interface FocalOptions extends OptionsOf<typeof focalOptions> {}

/**
 * {@link sigmoidBinaryCrossEntropy} with easy examples played down.
 *
 * @example
 * ```ts
 * optim.sigmoidFocalLoss(np.array([0, 2]), np.array([1, 1])); // [0.1733, 0.001804]
 * ```
 */
export function sigmoidFocalLoss(logits: TensorLike, labels: TensorLike, options?: FocalOptions): Tensor {
  const { alpha, gamma } = focalOptions.read(options, "sigmoidFocalLoss");
  const x = asFloats(logits, "sigmoidFocalLoss");
  const y = astype(labels, x.dtype);
  const wrong = logsumexp(stack([logSigmoid(x), logSigmoid(negative(x))], -1), -1, {
    b: stack([subtract(1, y), y], -1),
  });
  const loss = multiply(sigmoidBinaryCrossEntropy(x, y), exp(multiply(wrong, gamma)));
  if (alpha === undefined) return loss;
  return multiply(add(multiply(y, alpha), multiply(subtract(1, y), 1 - alpha)), loss);
}

/**
 * max(0, 1 − prediction · target) for targets of −1 and 1.
 *
 * @example
 * ```ts
 * optim.hingeLoss(np.array([0.5, 2]), np.array([1, 1])); // [0.5, 0]
 * ```
 */
export function hingeLoss(predictions: TensorLike, targets: TensorLike): Tensor {
  return maximum(subtract(1, multiply(predictions, targets)), 0);
}

/**
 * max(0, −prediction · target) for targets of −1 and 1.
 *
 * @example
 * ```ts
 * optim.perceptronLoss(np.array([0.5, -2]), np.array([1, 1])); // [0, 2]
 * ```
 */
export function perceptronLoss(predictions: TensorLike, targets: TensorLike): Tensor {
  return maximum(negative(multiply(predictions, targets)), 0);
}

/**
 * The score of the best other class plus one, less that of the right class.
 *
 * @example
 * ```ts
 * optim.multiclassHingeLoss(np.array([1, 3, 2]), 1); // 0
 * optim.multiclassHingeLoss(np.array([1, 3, 2]), 2); // 2
 * ```
 */
export function multiclassHingeLoss(scores: Tensor, labels: TensorLike): Tensor {
  needTensor(scores, "scores", "multiclassHingeLoss");
  const right = rightClasses(labels, scores);
  return subtract(max(subtract(add(scores, 1), right), -1), sum(multiply(scores, right), -1));
}

/** 1 for the right class and 0 for others, in float32 as in optax: losses of 16-bit scores are float32. */
const rightClasses = (labels: TensorLike, scores: Tensor) => oneHot(labels, scores.shape.at(-1) ?? 0);

/**
 * The score of the best class less that of the right one.
 *
 * @example
 * ```ts
 * optim.multiclassPerceptronLoss(np.array([1, 3, 2]), 2); // 1
 * ```
 */
export function multiclassPerceptronLoss(scores: Tensor, labels: TensorLike): Tensor {
  needTensor(scores, "scores", "multiclassPerceptronLoss");
  const right = rightClasses(labels, scores);
  return subtract(max(scores, -1), sum(multiply(scores, right), -1));
}

/** A mask for each example becomes one for each element. */
function spreadMask(mask: TensorLike | undefined, x: Tensor, dim: Dims): TensorLike | undefined {
  if (!(mask instanceof Tensor) || mask.ndim === x.ndim) return mask;
  return expandDims(mask, normalizeDims(dim, x.ndim, "where"));
}

/**
 * The cross-entropy of the softmax of logits with a distribution over the classes.
 *
 * @example
 * ```ts
 * optim.softmaxCrossEntropy(np.array([2, 0]), np.array([1, 0])); // 0.1269
 * ```
 */
export function softmaxCrossEntropy(logits: TensorLike, labels: TensorLike, options?: LossOptions): Tensor {
  const { dim, where: given } = lossOptions.read(options, "softmaxCrossEntropy");
  const x = asFloats(logits, "softmaxCrossEntropy");
  const mask = spreadMask(given, x, dim);
  const logProbs = logSoftmax(x, dim, { where: mask });
  return negative(sum(multiply(labels, logProbs), dim, { where: mask }));
}

/**
 * {@link softmaxCrossEntropy} that takes 0 · log 0 for 0 where a logit is −∞.
 *
 * @example
 * ```ts
 * optim.safeSoftmaxCrossEntropy(np.array([2, 0]), np.array([1, 0])); // 0.1269
 * ```
 */
export function safeSoftmaxCrossEntropy(logits: TensorLike, labels: TensorLike): Tensor {
  const x = asFloats(logits, "safeSoftmaxCrossEntropy");
  const logProbs = logSoftmax(x);
  const counts = logicalNot(equal(labels, 0));
  return negative(sum(where(counts, multiply(labels, where(counts, logProbs, 0)), 0), -1));
}

/**
 * The cross-entropy of the softmax of logits with the right classes, given by their numbers.
 *
 * ```ts
 * const loss = np.mean(softmaxCrossEntropyWithIntegerLabels(logits, tokens));
 * ```
 *
 * @example
 * ```ts
 * optim.softmaxCrossEntropyWithIntegerLabels(np.array([[2, 0]]), np.array([0], "int32")); // [0.1269]
 * ```
 */
export function softmaxCrossEntropyWithIntegerLabels(
  logits: TensorLike,
  labels: TensorLike,
  options?: LossOptions,
): Tensor {
  const { dim, where: given } = lossOptions.read(options, "softmaxCrossEntropyWithIntegerLabels");
  const x = asFloats(logits, "softmaxCrossEntropyWithIntegerLabels");
  const classes = labels instanceof Tensor ? labels : toTensor(labels, "int32", "labels");
  if (!isInteger(classes.dtype)) {
    throw new DTypeError(
      `[softmaxCrossEntropyWithIntegerLabels] labels are class numbers and must be integers, got ${classes.dtype}: use softmaxCrossEntropy for probabilities`,
    );
  }
  const mask = spreadMask(given, x, dim);
  const dims = normalizeDims(dim, x.ndim, "softmaxCrossEntropyWithIntegerLabels");
  const flat = dims.length === 1 ? x : flattenDims(x, dims);
  const flatMask = mask instanceof Tensor && dims.length > 1 ? flattenDims(mask, dims) : mask;
  const d = dims.length === 1 ? (dims[0] ?? 0) : flat.ndim - 1;
  checkLabels(classes, flat, d);
  const right = squeeze(takeAlongAxis(flat, expandDims(classes, d), d), d);
  const loss = subtract(logsumexp(flat, d, { where: flatMask }), right);
  return flatMask === undefined ? loss : where(any(flatMask, d), loss, 0);
}

/** Throws unless labels have, or spread to, a class number for each set of logits along a dim. */
function checkLabels(labels: Tensor, logits: Tensor, dim: number): void {
  const rows = logits.shape.filter((_, d) => d !== dim);
  const spreads = (size: number, d: number) => size === rows[d] || size === 1 || rows[d] === 1;
  if (labels.ndim === rows.length && labels.shape.every(spreads)) return;
  throw new ShapeError(
    `[softmaxCrossEntropyWithIntegerLabels] labels ${formatType(labels.type)} do not fit logits ${formatType(logits.type)}: use the shape [${rows}], a class number for each row`,
  );
}

/** The given dims as one dim at the end. */
function flattenDims(x: Tensor, dims: readonly number[]): Tensor {
  const batch = x.shape.map((_, d) => d).filter((d) => !dims.includes(d));
  return reshape(transpose(x, [...batch, ...dims]), [...batch.map((d) => x.shape[d] ?? 1), -1]);
}

const polyLossOptions = schema({
  ...lossOptions.fields,
  /** The weight of the further term; 2 by default. */
  epsilon: 2,
});

/** Options of {@link polyLossCrossEntropy}. */
export interface PolyLossOptions extends OptionsOf<typeof polyLossOptions> {}

/**
 * {@link softmaxCrossEntropy} plus `epsilon` times the probability of the wrong classes.
 *
 * @example
 * ```ts
 * optim.polyLossCrossEntropy(np.array([0, 0]), np.array([1, 0]), { epsilon: 2 }); // 1.693
 * ```
 */
export function polyLossCrossEntropy(
  logits: TensorLike,
  labels: TensorLike,
  given?: PolyLossOptions,
): Tensor {
  const { epsilon, ...options } = polyLossOptions.read(given, "polyLossCrossEntropy");
  const x = asFloats(logits, "polyLossCrossEntropy");
  const { dim, where: mask } = options;
  const wrong = sum(multiply(labels, subtract(1, softmax(x, dim, { where: mask }))), dim, { where: mask });
  return add(softmaxCrossEntropy(x, labels, options), multiply(wrong, epsilon));
}

/**
 * The Kullback–Leibler divergence of target probabilities from log predictions.
 *
 * @example
 * ```ts
 * optim.klDivergence(np.log(np.array([0.5, 0.5])), np.array([0.9, 0.1])); // 0.3681
 * ```
 */
export function klDivergence(logPredictions: TensorLike, targets: TensorLike, options?: LossOptions): Tensor {
  const { dim, where: mask } = lossOptions.read(options, "klDivergence");
  const [logits, p] = [asFloats(logPredictions, "klDivergence"), asFloats(targets, "klDivergence")];
  const none = equal(p, 0);
  const logs = where(none, 0, log(where(none, 1, p)));
  return sum(multiply(p, subtract(logs, logits)), dim, { where: mask });
}

/**
 * {@link klDivergence} for log targets.
 *
 * @example
 * ```ts
 * const [predicted, target] = [np.array([0.5, 0.5]), np.array([0.25, 0.75])];
 * optim.klDivergenceWithLogTargets(np.log(predicted), np.log(target)); // 0.1308
 * ```
 */
export function klDivergenceWithLogTargets(
  logPredictions: TensorLike,
  logTargets: TensorLike,
  options?: LossOptions,
): Tensor {
  const caller = "klDivergenceWithLogTargets";
  const { dim, where: mask } = lossOptions.read(options, caller);
  const [logits, logs] = [asFloats(logPredictions, caller), asFloats(logTargets, caller)];
  return sum(multiply(exp(logs), subtract(logs, logits)), dim, { where: mask });
}

/**
 * {@link klDivergence} of measures that do not add up to one; it is never negative.
 *
 * @example
 * ```ts
 * optim.generalizedKlDivergence(np.log(np.array([1, 2])), np.array([2, 2])); // 0.3863
 * ```
 */
export function generalizedKlDivergence(
  logPredictions: TensorLike,
  targets: TensorLike,
  options: LossOptions = {},
): Tensor {
  const { dim, where: mask } = lossOptions.read(options, "generalizedKlDivergence");
  const rest = sum(subtract(exp(logPredictions), targets), dim, { where: mask });
  return add(klDivergence(logPredictions, targets, options), rest);
}

/**
 * Labels of which a share `alpha` is spread over all classes.
 *
 * @example
 * ```ts
 * optim.smoothLabels(np.array([0, 1]), 0.1); // [0.05, 0.95]
 * ```
 */
export function smoothLabels(labels: Tensor, alpha: number, options: { readonly dim?: number } = {}): Tensor {
  needTensor(labels, "labels", "smoothLabels");
  asFloats(labels, "smoothLabels");
  need("number", alpha, "alpha", "smoothLabels");
  needIfGiven("object", options, "options", "smoothLabels");
  const { dim = -1 } = options;
  const classes = labels.shape[normalizeDim(dim, labels.ndim, "smoothLabels")] ?? 1;
  return add(multiply(labels, 1 - alpha), alpha / classes);
}
