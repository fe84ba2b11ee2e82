import { need } from "../../ir/arguments.js";
import { type DType, dtypeKind, limits } from "../../ir/dtype.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, pick, required, schema, type Values } from "../../ir/schema.js";
import { formatType, range, sameNumbers, sizeOf } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { bernoulli } from "../../random/index.js";
import * as ops from "../../trace/ops.js";
import { needTensor } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { averagedIfHidden, attention as blockAttention } from "../functions/attention.js";
import { softmax } from "../functions/functions.js";
import { module } from "../modules/module.js";
import { givenOnce, promote } from "../modules/operands.js";
import type { ParamInitializer } from "../modules/partitioned.js";
import { hasVariable, makeRng, sow, variable } from "../modules/variables.js";
import { DenseGeneral, linearConfig } from "./linear.js";
import { LayerNorm } from "./normalization.js";

/** What an attention function is told besides query, key and value, which are [batch…, length, heads, size]. */
export interface AttentionFunctionOptions {
  /** Which keys a query sees; broadcasts against [batch…, heads, query length, key length]. */
  readonly mask?: Tensor | undefined;
  readonly dropoutRng?: Tensor | undefined;
  readonly dropoutRate: number;
  /** Whether all batch elements and heads drop the same weights. */
  readonly broadcastDropout: boolean;
  readonly deterministic: boolean;
  readonly dtype?: DType | undefined;
  readonly forceFloat32Softmax: boolean;
  /** Whether the weights are kept among the `intermediates`. */
  readonly sowWeights: boolean;
}

/** Computes attention for several heads. */
export type AttentionFunction = (
  query: Tensor,
  key: Tensor,
  value: Tensor,
  options: AttentionFunctionOptions,
) => Tensor;

const multiHeadAttentionConfig = schema({
  ...linearConfig.fields,
  numHeads: required("number"),
  /** The features of all heads together; those of the query input by default. */
  qkvFeatures: optional("number"),
  /** The features of the result; those of the query input by default. */
  outFeatures: optional("number"),
  /** The probability with which an attention weight becomes 0. */
  dropoutRate: 0,
  /** Whether all batch elements and heads drop the same weights; true by default. */
  broadcastDropout: true,
  /** Whether nothing is dropped; given here or at the call. */
  deterministic: optional("flag"),
  /** Initialises the kernel of `out`; like the others by default. */
  outKernelInit: optional<ParamInitializer>("function"),
  /** Initialises the bias of `out`; like the others by default. */
  outBiasInit: optional<ParamInitializer>("function"),
  /** The function of query, key and value; softmax(q·kᵀ / √size)·v by default. */
  attentionFn: optional<AttentionFunction>("function"),
  /** Whether keys and values of earlier calls are kept in the collection `cache`, one position per call. */
  decode: false,
  /** Whether query and key are normalised (`query_ln`, `key_ln`). */
  normalizeQk: false,
  /** Whether the softmax is computed in float32 at least. */
  forceFloat32Softmax: false,
});

/** Configuration of {@link MultiHeadDotProductAttention}. */
export interface MultiHeadAttentionConfig extends OptionsOf<typeof multiHeadAttentionConfig> {}

/** Options of a call of {@link MultiHeadDotProductAttention}. */
export interface MultiHeadAttentionOptions {
  /** Which keys a query sees; broadcasts against [batch…, heads, query length, key length]. */
  readonly mask?: Tensor | undefined;
  readonly deterministic?: boolean;
  /** The key for dropout instead of one of the module's own. */
  readonly dropoutRng?: Tensor;
  /** Whether the weights are kept among the `intermediates`. */
  readonly sowWeights?: boolean;
}

/** Queries, then keys and values if they differ, then options. */
export type MultiHeadAttentionArgs =
  | readonly [inputsQ: Tensor, options?: MultiHeadAttentionOptions]
  | readonly [inputsQ: Tensor, inputsK: Tensor, options?: MultiHeadAttentionOptions]
  | readonly [inputsQ: Tensor, inputsK: Tensor, inputsV: Tensor, options?: MultiHeadAttentionOptions];

const attention = (config: Values<typeof multiHeadAttentionConfig.fields>) => {
  const { numHeads, useBias, dtype, paramDtype, dropoutRate, kernelInit, biasInit } = config;
  const shared = { dtype, paramDtype, useBias };
  return (...args: MultiHeadAttentionArgs): Tensor => {
    const inputs = args.filter((arg) => arg instanceof Tensor);
    const last = args.at(-1);
    const options: MultiHeadAttentionOptions = last instanceof Tensor || !last ? {} : last;
    const [inputsQ = args[0], inputsK = inputsQ, inputsV = inputsK] = inputs;
    const width = inputsQ.shape.at(-1) ?? 0;
    const qkvFeatures = config.qkvFeatures ?? width;
    if (qkvFeatures % numHeads !== 0) {
      throw new ShapeError(
        `[MultiHeadDotProductAttention] ${qkvFeatures} features do not split into ${numHeads} heads (${qkvFeatures} / ${numHeads} = ${qkvFeatures / numHeads})`,
      );
    }
    const features = [numHeads, qkvFeatures / numHeads];
    const project = (name: string, x: Tensor) =>
      DenseGeneral({ ...shared, features, kernelInit, biasInit, name })(x);
    let query = project("query", inputsQ);
    let key = project("key", inputsK);
    let value = project("value", inputsV);
    if (config.normalizeQk) {
      query = LayerNorm({ dtype, paramDtype, useBias: false, name: "query_ln" })(query);
      key = LayerNorm({ dtype, paramDtype, useBias: false, name: "key_ln" })(key);
    }
    let mask = options.mask;
    if (config.decode) ({ key, value, mask } = withCache(query, key, value, mask));
    const isOff =
      dropoutRate === 0 ||
      givenOnce("deterministic", config.deterministic, options.deterministic, "MultiHeadDotProductAttention");
    const attended = (config.attentionFn ?? attend)(query, key, value, {
      mask,
      dropoutRng: isOff ? undefined : (options.dropoutRng ?? makeRng("dropout")),
      dropoutRate,
      broadcastDropout: config.broadcastDropout,
      deterministic: isOff,
      dtype,
      forceFloat32Softmax: config.forceFloat32Softmax,
      sowWeights: options.sowWeights ?? false,
    });
    return DenseGeneral({
      ...shared,
      features: config.outFeatures ?? width,
      axis: [-2, -1],
      kernelInit: config.outKernelInit ?? kernelInit,
      biasInit: config.outBiasInit ?? biasInit,
      name: "out",
    })(attended);
  };
};

/**
 * Attention with several heads: projections `query`, `key` and `value`, softmax(q·kᵀ / √size)·v for every
 * head, and the projection `out`. Inputs are [batch…, length, features].
 *
 * ```ts
 * nn.MultiHeadDotProductAttention({ numHeads: 8 })(x, { mask: nn.makeCausalMask(tokens) })
 * ```
 *
 * @example
 * ```ts
 * const layer = nn.MultiHeadDotProductAttention({ numHeads: 2, qkvFeatures: 8 });
 * const x = np.ones([1, 3, 8]);
 * layer.apply(layer.init(random.key(0), x), x).shape; // [1, 3, 8]
 * ```
 */
export const MultiHeadDotProductAttention = module(
  { name: "MultiHeadDotProductAttention", options: multiHeadAttentionConfig },
  attention,
);

/**
 * {@link MultiHeadDotProductAttention} under a shorter name, which is also that of its variables.
 *
 * @example
 * ```ts
 * const layer = nn.MultiHeadAttention({ numHeads: 2 });
 * const x = np.ones([1, 3, 4]);
 * layer.apply(layer.init(random.key(0), x), x).shape; // [1, 3, 4]
 * ```
 */
export const MultiHeadAttention = module(
  { name: "MultiHeadAttention", options: multiHeadAttentionConfig },
  attention,
);

/**
 * {@link MultiHeadDotProductAttention} of one input with itself.
 *
 * @example
 * ```ts
 * const layer = nn.SelfAttention({ numHeads: 2 });
 * const x = np.ones([1, 3, 4]);
 * layer.apply(layer.init(random.key(0), x), x).shape; // [1, 3, 4]
 * ```
 */
export const SelfAttention = module(
  { name: "SelfAttention", options: multiHeadAttentionConfig },
  (config) =>
    (inputs: Tensor, options: MultiHeadAttentionOptions = {}) =>
      attention(config)(inputs, options),
);

/** softmax(q·kᵀ / √size)·v for every head. */
function attend(
  givenQuery: Tensor,
  givenKey: Tensor,
  givenValue: Tensor,
  options: AttentionFunctionOptions,
): Tensor {
  const [query, key, value] = promote([givenQuery, givenKey, givenValue], options.dtype, "attention");
  const { dtype } = query;
  const inBlocks = attendInBlocks([query, key, value], options);
  if (inBlocks) return inBlocks;
  const scaled = np.divide(query, Math.sqrt(query.shape.at(-1) ?? 1));
  let logits = np.einsum("...qhd,...khd->...hqk", scaled, key);
  if (options.mask) logits = np.where(options.mask, logits, limits(dtype).min);
  const wide = options.forceFloat32Softmax ? np.promoteTypes(dtype, "float32") : dtype;
  const weights = ops.convert(softmax(ops.convert(logits, wide)), dtype);
  if (options.sowWeights) sow("intermediates", "attention_weights", weights);
  return np.einsum("...hqk,...khd->...qhd", dropWeights(weights, options), value);
}

/** The same without ever holding all weights, unless they are asked for, dropped, or rounded to a narrow type. */
function attendInBlocks(
  operands: readonly [Tensor, Tensor, Tensor],
  { mask, sowWeights, deterministic, dropoutRate, forceFloat32Softmax }: AttentionFunctionOptions,
): Tensor | undefined {
  const [query, key] = operands;
  const { dtype, ndim, shape } = query;
  const isWide = dtype === "float32" || dtype === "float64" || forceFloat32Softmax;
  const drops = !deterministic && dropoutRate > 0;
  const heads = shape.slice(-2);
  const areAlike = sameNumbers(key.shape.slice(-2), heads) && (key.shape.at(-3) ?? 0) > 0;
  if (sowWeights || drops || !isWide || ndim < 3 || !areAlike) return undefined;
  const batch = shape.slice(0, -3);
  const flat = (x: Tensor) => np.reshape(x, [sizeOf(batch), ...x.shape.slice(-3)]);
  const [q, k, v] = operands.map(flat);
  let seen: Tensor | undefined;
  if (mask) {
    const own = mask.shape.slice(0, -3);
    const isShared = own.every((n) => n === 1);
    if (mask.ndim !== ndim || (!isShared && !sameNumbers(own, batch))) return undefined;
    seen = np.reshape(np.notEqual(mask, 0), [sizeOf(own), ...mask.shape.slice(-3)]);
  }
  if (!q || !k || !v) return undefined;
  const attended = blockAttention(q, k, v, seen && { mask: seen });
  return np.reshape(seen ? averagedIfHidden(attended, v) : attended.output, shape);
}

function dropWeights(weights: Tensor, options: AttentionFunctionOptions): Tensor {
  const { deterministic, dropoutRate, dropoutRng, broadcastDropout } = options;
  if (deterministic || dropoutRate === 0 || !dropoutRng) return weights;
  const shape = weights.shape.map((n, dim) => (broadcastDropout && dim < weights.ndim - 2 ? 1 : n));
  const keep = ops.convert(bernoulli(dropoutRng, 1 - dropoutRate, shape), weights.dtype);
  return np.multiply(weights, np.divide(keep, 1 - dropoutRate));
}

/** Adds one position to the cached keys and values and hides those that are not filled yet. */
function withCache(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | undefined) {
  const isFilled = hasVariable("cache", "cached_key");
  const keys = variable("cache", "cached_key", () => np.zeros(key.shape, key.dtype));
  const values = variable("cache", "cached_value", () => np.zeros(value.shape, value.dtype));
  const position = variable("cache", "cache_index", () => np.array(0, "int32"));
  if (!isFilled) return { key, value, mask };
  const batch = keys.value.shape.slice(0, -3);
  const [length = 0, ...head] = keys.value.shape.slice(-3);
  if (!sameNumbers(query.shape, [...batch, 1, ...head])) {
    throw new ShapeError(
      `[MultiHeadDotProductAttention] decoding takes one position a call, [${[...batch, 1, ...head]}] for query heads, got ${formatType(query.type)}`,
    );
  }
  const current = position.value;
  const zero = Tensor.scalar(0, "int32");
  const starts = [...batch.map(() => zero), current, zero, zero];
  keys.value = ops.dynamicUpdateSlice(keys.value, key, starts);
  values.value = ops.dynamicUpdateSlice(values.value, value, starts);
  position.value = np.add(current, 1);
  const seen = np.broadcastTo(np.lessEqual(ops.iota("int32", [length], 0), current), [
    ...batch,
    1,
    1,
    length,
  ]);
  return { key: keys.value, value: values.value, mask: combineMasks([mask, seen]) };
}

const maskOptions = schema({
  /** The type of the mask; float32 by default. */
  dtype: optional(dtypeKind, "float32"),
  /** How many dims of size 1 to put in front. */
  extraBatchDims: optional("integer", 0),
});

/** Options of the functions that make masks. */
export interface MaskOptions extends OptionsOf<typeof maskOptions> {}

const attentionMaskOptions = schema({
  ...maskOptions.fields,
  pairwise: optional<(query: Tensor, key: Tensor) => Tensor>("function", np.multiply),
});

/**
 * A mask [batch…, 1, query length, key length] from a value for every position of query and key.
 *
 * @param options `pairwise` is the function of both values, which is their product by default
 *
 * @example
 * ```ts
 * const present = np.array([[1, 1, 0]]);
 * nn.makeAttentionMask(present, present); // [[[[1, 1, 0], [1, 1, 0], [0, 0, 0]]]]
 * ```
 */
export function makeAttentionMask(
  queryInput: Tensor,
  keyInput: Tensor,
  options?: OptionsOf<typeof attentionMaskOptions>,
): Tensor {
  const { pairwise, extraBatchDims, dtype } = attentionMaskOptions.read(options, "nn.makeAttentionMask");
  needTensor(queryInput, "queryInput", "nn.makeAttentionMask");
  needTensor(keyInput, "keyInput", "nn.makeAttentionMask");
  const pairs = pairwise(np.expandDims(queryInput, -1), np.expandDims(keyInput, -2));
  const mask = np.expandDims(np.expandDims(pairs, -3), range(extraBatchDims));
  return ops.convert(mask, dtype);
}

/**
 * The mask [batch…, 1, length, length] with which a position of `x`, [batch…, length], sees no later ones.
 *
 * @example
 * ```ts
 * nn.makeCausalMask(np.ones([1, 2])); // [[[[1, 0], [1, 1]]]]
 * ```
 */
export function makeCausalMask(x: Tensor, options?: MaskOptions): Tensor {
  needTensor(x, "x", "nn.makeCausalMask");
  const positions = ops.iota("int32", x.shape, x.ndim - 1);
  return makeAttentionMask(positions, positions, {
    ...maskOptions.read(options, "nn.makeCausalMask"),
    pairwise: np.greaterEqual,
  });
}

const combineMasksSchema = schema(pick(maskOptions.fields, "dtype"));

/**
 * The mask that hides whatever any of the masks hides; missing ones are ignored.
 *
 * @example
 * ```ts
 * nn.combineMasks([np.array([true, true, false]), undefined, np.array([true, false, false])]); // [1, 0, 0]
 * ```
 */
export function combineMasks(
  masks: readonly (Tensor | null | undefined)[],
  options?: Pick<MaskOptions, "dtype">,
): Tensor | undefined {
  need("list", masks, "masks", "nn.combineMasks");
  const { dtype } = combineMasksSchema.read(options, "nn.combineMasks");
  const given = masks.filter((mask) => mask instanceof Tensor);
  const [first, ...rest] = given;
  if (!first) return undefined;
  if (rest.some((mask) => mask.ndim !== first.ndim)) {
    const types = given.map((mask) => formatType(mask.type)).join(", ");
    throw new ValueError(`[combineMasks] the masks must have the same number of dims, got ${types}`);
  }
  return ops.convert(
    rest.reduce((a, b) => np.logicalAnd(a, b), first),
    dtype,
  );
}
