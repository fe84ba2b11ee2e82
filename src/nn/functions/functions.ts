/** Activations and normalisations as plain functions; JAX's `nn` in camelCase. */

import { integerFrom, need } from "../../ir/arguments.js";
import { dtypeKind } from "../../ir/dtype.js";
import { ShapeError } from "../../ir/errors.js";
import { type OptionsOf, omit, optional, schema } from "../../ir/schema.js";
import { at, formatType, normalizeDim, normalizeDims } from "../../ir/shape.js";
import { erfc } from "../../lax/composed.js";
import * as np from "../../numpy/index.js";
import { asFloat, asInexact, dimsKind, expandTo } from "../../numpy/operands.js";
import { tracedAsOneCall } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike, tensorLikeKind } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";

export { tanh } from "../../numpy/elementwise/elementwise.js";
export { logsumexp } from "../../numpy/reductions/reductions.js";
export { type AttentionOptions, dotProductAttention } from "./dotProductAttention.js";

/**
 * x itself.
 *
 * @example
 * ```ts
 * nn.identity(np.array([1, 2])); // [1, 2]
 * ```
 */
export function identity(x: TensorLike): Tensor {
  return np.positive(x);
}

/**
 * x where it is positive, else 0; its gradient at 0 is 0, as it is where x is NaN.
 *
 * @example
 * ```ts
 * nn.relu(np.array([-1, 2])); // [0, 2]
 * ```
 */
export function relu(x: TensorLike): Tensor {
  const tensor = np.positive(x);
  return tracedAsOneCall(() =>
    np.where(np.greater(tensor, 0), tensor, np.maximum(ops.stopGradient(tensor), 0)),
  );
}

/**
 * x limited to 0 … 6, as a float; its gradient at both ends is 0.
 *
 * @example
 * ```ts
 * nn.relu6(np.array([-1, 2, 8])); // [0, 2, 6]
 * ```
 */
export function relu6(x: TensorLike): Tensor {
  const tensor = relu(asInexact(x, "relu6"));
  return np.where(np.greaterEqual(tensor, 6), 6, tensor);
}

/**
 * x where it is positive, else `negativeSlope` · x.
 *
 * @example
 * ```ts
 * nn.leakyRelu(np.array([-1, 2])); // [-0.01, 2]
 * ```
 */
export function leakyRelu(x: TensorLike, negativeSlope = 0.01): Tensor {
  const tensor = asFloat(x, "leakyRelu");
  return np.where(np.greaterEqual(tensor, 0), tensor, np.multiply(tensor, negativeSlope));
}

/**
 * x where it is positive, else alpha · (exp(x) − 1).
 *
 * @example
 * ```ts
 * nn.elu(np.array([-1, 2])); // [-0.6321, 2]
 * ```
 */
export function elu(x: TensorLike, alpha = 1): Tensor {
  return exponentialUnit(asFloat(x, "elu"), alpha, 1);
}

/**
 * {@link elu} that is smooth for every alpha: alpha · (exp(x / alpha) − 1) below 0.
 *
 * @example
 * ```ts
 * nn.celu(np.array([-1, 2])); // [-0.6321, 2]
 * ```
 */
export function celu(x: TensorLike, alpha = 1): Tensor {
  return exponentialUnit(asFloat(x, "celu"), alpha, alpha);
}

/**
 * The self-normalising {@link elu}.
 *
 * @example
 * ```ts
 * nn.selu(np.array([-1, 2])); // [-1.111, 2.101]
 * ```
 */
export function selu(x: TensorLike): Tensor {
  return np.multiply(elu(x, 1.6732632423543772), 1.0507009873554805);
}

/** x where it is positive, else alpha · (exp(x / width) − 1). */
function exponentialUnit(x: Tensor, alpha: number, width: number): Tensor {
  const isPositive = np.greater(x, 0);
  // The exponential must not overflow where it is not used, or its gradient would be NaN.
  const below = np.where(isPositive, 0, x);
  return np.where(isPositive, x, np.multiply(np.expm1(width === 1 ? below : np.divide(below, width)), alpha));
}

const geluOptions = schema({ approximate: true });

/**
 * x · Φ(x) with Φ the normal distribution function.
 *
 * @param options `approximate` says whether to use the tanh form (the default, as in JAX) or the error function, which
 * is precise in the tail too
 *
 * @example
 * ```ts
 * nn.gelu(np.array([-1, 2])); // [-0.1588, 1.955]
 * ```
 */
export function gelu(x: TensorLike, options?: OptionsOf<typeof geluOptions>): Tensor {
  const { approximate } = geluOptions.read(options, "nn.gelu");
  return tracedAsOneCall(() => {
    const tensor = asFloat(x, "gelu");
    if (approximate) {
      const cubic = np.add(tensor, np.multiply(np.power(tensor, 3), 0.044715));
      const tanh = np.tanh(np.multiply(cubic, Math.sqrt(2 / Math.PI)));
      return np.multiply(tensor, np.multiply(np.add(tanh, 1), 0.5));
    }
    return np.multiply(np.multiply(tensor, 0.5), erfc(np.multiply(tensor, -Math.SQRT1_2)));
  });
}

/**
 * 1 / (1 + exp(−x)).
 *
 * @example
 * ```ts
 * nn.sigmoid(np.array([0, 2])); // [0.5, 0.8808]
 * ```
 */
export function sigmoid(x: TensorLike): Tensor {
  return ops.logistic(asInexact(x, "sigmoid"));
}

/**
 * log(sigmoid(x)).
 *
 * @example
 * ```ts
 * nn.logSigmoid(np.array([-1, 2])); // [-1.313, -0.1269]
 * ```
 */
export function logSigmoid(x: TensorLike): Tensor {
  return np.negative(softplus(np.negative(asFloat(x, "logSigmoid"))));
}

/**
 * x · sigmoid(x), also called swish.
 *
 * @example
 * ```ts
 * nn.silu(np.array([-1, 2])); // [-0.2689, 1.762]
 * ```
 */
export function silu(x: TensorLike): Tensor {
  return tracedAsOneCall(() => {
    const tensor = asFloat(x, "silu");
    return np.multiply(tensor, sigmoid(tensor));
  });
}

export { silu as swish };

/**
 * log(1 + exp(x)) without overflow.
 *
 * @example
 * ```ts
 * nn.softplus(np.array([0, 2])); // [0.6931, 2.127]
 * ```
 */
export function softplus(x: TensorLike): Tensor {
  return np.logaddexp(x, 0);
}

/**
 * x / (1 + |x|).
 *
 * @example
 * ```ts
 * nn.softSign(np.array([-1, 3])); // [-0.5, 0.75]
 * ```
 */
export function softSign(x: TensorLike): Tensor {
  const tensor = asFloat(x, "softSign");
  return np.divide(tensor, np.add(np.abs(tensor), 1));
}

/**
 * x · tanh(softplus(x)).
 *
 * @example
 * ```ts
 * nn.mish(np.array([-1, 2])); // [-0.3034, 1.944]
 * ```
 */
export function mish(x: TensorLike): Tensor {
  const tensor = asFloat(x, "mish");
  return np.multiply(tensor, np.tanh(softplus(tensor)));
}

/**
 * x limited to −1 … 1.
 *
 * @example
 * ```ts
 * nn.hardTanh(np.array([-4, 0.5, 4])); // [-1, 0.5, 1]
 * ```
 */
export function hardTanh(x: TensorLike): Tensor {
  const tensor = np.positive(x);
  return np.where(np.greater(tensor, 1), 1, np.where(np.less(tensor, -1), -1, tensor));
}

/**
 * The piecewise linear sigmoid relu6(x + 3) / 6.
 *
 * @example
 * ```ts
 * nn.hardSigmoid(np.array([-4, 0, 4])); // [0, 0.5, 1]
 * ```
 */
export function hardSigmoid(x: TensorLike): Tensor {
  return np.divide(relu6(np.add(x, 3)), 6);
}

/**
 * x · hardSigmoid(x).
 *
 * @example
 * ```ts
 * nn.hardSilu(np.array([-4, 1, 4])); // [0, 0.6667, 4]
 * ```
 */
export function hardSilu(x: TensorLike): Tensor {
  return np.multiply(x, hardSigmoid(x));
}

export { hardSilu as hardSwish };

/**
 * (x + √(x² + b)) / 2, a smooth relu.
 *
 * @example
 * ```ts
 * nn.squareplus(np.array([0, 2])); // [1, 2.414]
 * ```
 */
export function squareplus(x: TensorLike, b = 4): Tensor {
  const tensor = asFloat(x, "squareplus");
  return np.multiply(np.add(tensor, np.sqrt(np.add(np.square(tensor), b))), 0.5);
}

/**
 * One half of a dim times the sigmoid of the other.
 *
 * @example
 * ```ts
 * nn.glu(np.array([1, 2, 0, 0])); // [0.5, 1]
 * ```
 */
export function glu(x: TensorLike, dim = -1): Tensor {
  const tensor = asFloat(x, "glu");
  const d = normalizeDim(dim, tensor.ndim, "glu");
  const n = at(tensor.shape, d);
  if (n % 2 !== 0) {
    throw new ShapeError(
      `[glu] dim ${d} of ${formatType(tensor.type)} has size ${n}: it must be even to be halved`,
    );
  }
  const [values, gates] = np.split(tensor, 2, d);
  return np.multiply(values ?? tensor, sigmoid(gates ?? tensor));
}

const softmaxOptions = schema({
  /** Which elements take part; the others get probability 0. */
  where: optional(tensorLikeKind),
});

/** Options of {@link softmax} and {@link logSoftmax}. */
export interface SoftmaxOptions extends OptionsOf<typeof softmaxOptions> {}

/** −∞ in place of the elements that a mask leaves out. */
function leftOut(x: Tensor, mask: TensorLike | undefined): Tensor {
  return mask === undefined ? x : np.where(mask, x, Number.NEGATIVE_INFINITY);
}

/** The elements minus their largest, of complex numbers the largest real part, which is a constant to differentiation; left-out elements are −∞. */
function shifted(x: Tensor, dims: readonly number[], mask: TensorLike | undefined): Tensor {
  const initial = mask === undefined && x.size > 0 ? undefined : Number.NEGATIVE_INFINITY;
  const peak = ops.stopGradient(np.max(np.real(x), dims, { keepdims: true, where: mask, initial }));
  return leftOut(np.subtract(x, peak), mask);
}

/**
 * exp(x) / Σ exp(x) over a dim or several.
 *
 * @example
 * ```ts
 * nn.softmax(np.array([1, 2, 3])); // [0.09003, 0.2447, 0.6652]
 * ```
 */
export function softmax(x: TensorLike, dim: np.Dims = -1, options?: SoftmaxOptions): Tensor {
  const { where: mask } = softmaxOptions.read(options, "nn.softmax");
  const tensor = asInexact(x, "softmax");
  const dims = normalizeDims(dim, tensor.ndim, "softmax");
  const exps = np.exp(shifted(tensor, dims, mask));
  return np.divide(exps, np.sum(exps, dims, { keepdims: true }));
}

/**
 * log(softmax(x)), precise for small probabilities.
 *
 * @example
 * ```ts
 * nn.logSoftmax(np.array([1, 2])); // [-1.313, -0.3133]
 * ```
 */
export function logSoftmax(x: TensorLike, dim: np.Dims = -1, options?: SoftmaxOptions): Tensor {
  const { where: mask } = softmaxOptions.read(options, "nn.logSoftmax");
  const tensor = asInexact(x, "logSoftmax");
  const dims = normalizeDims(dim, tensor.ndim, "logSoftmax");
  const moved = shifted(tensor, dims, mask);
  const logs = np.subtract(moved, np.log(np.sum(np.exp(moved), dims, { keepdims: true })));
  // Masked again: the gradient of left-out elements must not reach the sum.
  return leftOut(logs, mask);
}

const oneHotOptions = schema({
  /** The data type of the result; float32 by default. */
  dtype: optional(dtypeKind, "float32"),
  /** Where the new dim goes. */
  dim: -1,
});

/** Options of {@link oneHot}. */
export interface OneHotOptions extends OptionsOf<typeof oneHotOptions> {}

/**
 * Vectors that are 1 at the given index and 0 elsewhere; an index out of range gives only zeros.
 *
 * @example
 * ```ts
 * nn.oneHot(np.array([0, 2], "int32"), 3); // [[1, 0, 0], [0, 0, 1]]
 * ```
 */
export function oneHot(x: TensorLike, numClasses: number, options?: OneHotOptions): Tensor {
  need(integerFrom(0), numClasses, "numClasses", "nn.oneHot");
  const { dtype, dim } = oneHotOptions.read(options, "nn.oneHot");
  const indices = typeof x === "number" ? Tensor.scalar(x, "int32") : np.positive(x);
  const rank = indices.ndim + 1;
  const d = normalizeDim(dim, rank, "oneHot");
  const shape = [...indices.shape.slice(0, d), numClasses, ...indices.shape.slice(d)];
  const type = indices.dtype === "bool" ? "int32" : indices.dtype;
  const classes = ops.iota(type, shape, d);
  const spread = expandTo(np.expandDims(np.astype(indices, type), d), shape);
  return np.astype(ops.compare("eq", spread, classes), dtype);
}

const standardizeOptions = schema({
  /** The mean to subtract; that of `x` over the dims by default. */
  mean: optional(tensorLikeKind),
  /** The variance to divide by; that of `x` over the dims by default. */
  variance: optional(tensorLikeKind),
  /** What is added to the variance so that nothing is divided by 0; 1e-5 by default. */
  epsilon: 1e-5,
  /** Which elements count in the mean and the variance; all by default. */
  where: optional(tensorLikeKind),
});

/** Options of {@link standardize}. */
export interface StandardizeOptions extends OptionsOf<typeof standardizeOptions> {}

/**
 * (x − mean) / √(variance + epsilon) over dims.
 *
 * @example
 * ```ts
 * nn.standardize(np.array([1, 3])); // [-1, 1]
 * ```
 */
export function standardize(x: TensorLike, dim: np.Dims = -1, options?: StandardizeOptions): Tensor {
  const { epsilon, where: mask, ...given } = standardizeOptions.read(options, "nn.standardize");
  const tensor = asFloat(x, "standardize");
  const over = { keepdims: true, where: mask };
  const mean = given.mean ?? np.mean(tensor, dim, over);
  const variance = given.variance ?? np.subtract(np.mean(np.square(tensor), dim, over), np.square(mean));
  return np.multiply(np.subtract(tensor, mean), ops.rsqrt(asFloat(np.add(variance, epsilon), "standardize")));
}

const normOptions = schema({
  /** Factors of the normalised elements. */
  scale: optional(tensorLikeKind),
  /** Added after scaling; {@link layerNorm} only. */
  bias: optional(tensorLikeKind),
  /** What is added to the variance (mean square) so that nothing is divided by 0; 1e-6 by default. */
  epsilon: 1e-6,
  /** The dims to normalise over. */
  dim: optional(dimsKind, -1),
});

/** Options of {@link layerNorm} and {@link rmsNorm}. */
export interface NormOptions extends OptionsOf<typeof normOptions> {}

/**
 * Normalises to mean 0 and variance 1 over dims, then scales and shifts. Mean and variance are computed in
 * float32 at least, as in Flax.
 *
 * @example
 * ```ts
 * nn.layerNorm(np.array([1, 3])); // [-1, 1]
 * ```
 */
export function layerNorm(x: TensorLike, options?: NormOptions): Tensor {
  const { scale, bias, epsilon, dim } = normOptions.read(options, "nn.layerNorm");
  const tensor = asFloat(x, "layerNorm");
  const wide = widen(tensor);
  const mean = np.mean(wide, dim, { keepdims: true });
  const squares = np.mean(np.square(wide), dim, { keepdims: true });
  // A tiny variance may come out negative by cancellation.
  const variance = np.maximum(np.subtract(squares, np.square(mean)), 0);
  return scaled(np.subtract(wide, mean), variance, epsilon, tensor, scale, bias);
}

const rmsNormSchema = schema(omit(normOptions.fields, "bias"));

/**
 * Divides by the root of the mean square over dims, then scales; computed in float32 at least, as in Flax.
 *
 * @example
 * ```ts
 * nn.rmsNorm(np.array([3, 4])); // [0.8485, 1.131]
 * ```
 */
export function rmsNorm(x: TensorLike, options?: Omit<NormOptions, "bias">): Tensor {
  const { scale, epsilon, dim } = rmsNormSchema.read(options, "nn.rmsNorm");
  const tensor = asFloat(x, "rmsNorm");
  const wide = widen(tensor);
  const squares = np.mean(np.square(wide), dim, { keepdims: true });
  return scaled(wide, squares, epsilon, tensor, scale, undefined);
}

function widen(x: Tensor): Tensor {
  return np.astype(x, np.promoteTypes(x.dtype, "float32"));
}

function scaled(
  centered: Tensor,
  variance: Tensor,
  epsilon: number,
  x: Tensor,
  scale: TensorLike | undefined,
  bias: TensorLike | undefined,
): Tensor {
  const factor = ops.rsqrt(np.add(variance, epsilon));
  const normal = np.multiply(centered, scale === undefined ? factor : np.multiply(factor, scale));
  const result = bias === undefined ? normal : np.add(normal, bias);
  const present = [x, scale, bias].filter((value) => value !== undefined);
  return np.astype(result, operandType(...present));
}
