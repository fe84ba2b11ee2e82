/** Scaled dot-product attention. */

import { limits } from "../ir/dtype.js";
import { DTypeError, ShapeError } from "../ir/errors.js";
import { type OptionsOf, optional, schema } from "../ir/schema.js";
import { at, formatType } from "../ir/shape.js";
import * as np from "../numpy/index.js";
import { tracedAsOneCall } from "../trace/builder.js";
import * as ops from "../trace/ops.js";
import { needTensor } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";

const attentionOptions = schema({
  /** Added to the logits; broadcasts against [B, N, T, S]. */
  bias: optional<Tensor>("any"),
  /** Which keys a query may see (true); broadcasts against [B, N, T, S]. */
  mask: optional<Tensor>("any"),
  /** Whether position t sees only positions up to t. */
  isCausal: optional("flag"),
  /** The factor of the logits; 1 / √H by default. */
  scale: optional("number"),
  /** How many positions of each query are real, int32 [B]; the result of the others is 0. */
  querySeqLengths: optional<Tensor>("any"),
  /** How many positions of each key and value are real, int32 [B]. */
  keyValueSeqLengths: optional<Tensor>("any"),
  /** How many positions a query sees to the left and to the right. */
  localWindowSize: optional<number | readonly [left: number, right: number]>("any"),
});

/** Options of {@link dotProductAttention}; T is the query's length, S that of key and value, N the heads. */
export interface AttentionOptions extends OptionsOf<typeof attentionOptions> {}

/**
 * softmax(q·kᵀ · scale + bias) · v for every head. Shapes are query [B, T, N, H], key and value [B, S, K, H],
 * where N is a multiple of K: each key head serves N / K query heads. The softmax is computed in float32.
 *
 * ```ts
 * nn.dotProductAttention(q, k, v, { isCausal: true })
 * ```
 *
 * @example
 * ```ts
 * const x = np.ones([1, 3, 2, 4]);
 * nn.dotProductAttention(x, x, x).shape; // [1, 3, 2, 4]
 * ```
 */
export function dotProductAttention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  options?: AttentionOptions,
): Tensor {
  needTensor(query, "query", "nn.dotProductAttention");
  needTensor(key, "key", "nn.dotProductAttention");
  needTensor(value, "value", "nn.dotProductAttention");
  const given = attentionOptions.read(options, "nn.dotProductAttention");
  if (query.ndim === 3 && key.ndim === 3 && value.ndim === 3) {
    const batched = [query, key, value].map((x) => np.expandDims(x, 0));
    return np.squeeze(dotProductAttention(at(batched, 0), at(batched, 1), at(batched, 2), given), 0);
  }
  const sizes = checkShapes(query, key, value);
  const scale = given.scale ?? 1 / Math.sqrt(sizes.H);
  if (isOneOp([query, key, value], given)) {
    const causal = given.isCausal ?? false;
    return at(ops.attention([query, key, value], { scale, causal }), 0);
  }
  return tracedAsOneCall(() => inOps([query, key, value], sizes, { ...given, scale }));
}

/** Attention of several ops, its heads in groups that share keys and values. */
function inOps(
  [query, key, value]: readonly [Tensor, Tensor, Tensor],
  { B, T, S, N, K, H }: ReturnType<typeof checkShapes>,
  { scale, ...options }: AttentionOptions & { readonly scale: number },
): Tensor {
  const G = N / K;
  const grouped = np.reshape(query, [B, T, K, G, H]);
  const logitsType = np.promoteTypes(query.dtype, "float32");
  const products = np.einsum("BTKGH,BSKH->BKGTS", grouped, key, { preferredElementType: logitsType });
  let logits = np.multiply(products, scale);
  if (options.bias) {
    logits = np.astype(np.add(logits, perGroup(options.bias, { K, G }, "bias")), logitsType);
  }
  const masks = [...positionMasks(T, S, options)];
  if (options.mask) {
    if (options.mask.dtype !== "bool") {
      throw new DTypeError(
        `[dotProductAttention] the mask must be bool, got ${formatType(options.mask.type)}: use bias to add numbers`,
      );
    }
    masks.push(perGroup(options.mask, { K, G }, "mask"));
  }
  if (masks.length > 0) {
    const seen = masks.reduce((a, b) => np.logicalAnd(a, b));
    // Finite, so that a fully masked row gives no NaN.
    logits = np.where(seen, logits, -0.7 * limits(logitsType).max);
  }
  const weights = np.astype(softmaxLast(np.astype(logits, "float32")), key.dtype);
  const attended = np.reshape(np.einsum("BKGTS,BSKH->BTKGH", weights, value), [B, T, N, H]);
  const { querySeqLengths } = options;
  return querySeqLengths ? np.where(isReal(querySeqLengths, [1, T, 1, 1], 1), attended, 0) : attended;
}

/** 16-bit attention whose mask depends on positions alone is one op, for which devices may have a kernel. */
function isOneOp(operands: readonly Tensor[], options: AttentionOptions): boolean {
  const { bias, mask, querySeqLengths, keyValueSeqLengths, localWindowSize } = options;
  const [first] = operands;
  const isNarrow = first?.dtype === "bfloat16" || first?.dtype === "float16";
  const isSame = operands.every(({ dtype }) => dtype === first?.dtype);
  const more = [bias, mask, querySeqLengths, keyValueSeqLengths, localWindowSize];
  return isNarrow && isSame && operands.every(({ size }) => size > 0) && more.every((x) => x === undefined);
}

function softmaxLast(x: Tensor): Tensor {
  const peak = ops.stopGradient(np.max(x, -1, { keepdims: true }));
  const exps = np.exp(np.subtract(x, peak));
  return np.divide(exps, np.sum(exps, -1, { keepdims: true }));
}

function checkShapes(query: Tensor, key: Tensor, value: Tensor) {
  const [B, T, N, H] = query.shape;
  const [batch, S, K, width] = key.shape;
  const types = [query, key, value].map((x) => formatType(x.type)).join(", ");
  const refuse = (rule: string): never => {
    throw new ShapeError(`[dotProductAttention] ${rule}; query, key and value are (${types})`);
  };
  if ([query, key, value].some((x) => x.ndim !== 4)) refuse("all must have 4 dims, or all 3");
  if (B === undefined || T === undefined || N === undefined || H === undefined) return refuse("4 dims");
  if (S === undefined || K === undefined) return refuse("4 dims");
  if (key.shape.join() !== value.shape.join()) refuse("key and value must have the same shape");
  if (batch !== B || width !== H) refuse("batch and head size (dims 0 and 3) must agree");
  if (K === 0 || N % K !== 0) {
    refuse(`the ${N} query heads must be a multiple of the ${K} key heads (${N} / ${K} = ${N / K})`);
  }
  return { B, T, S, N, K, H };
}

/** A bias or mask [B, N, T, S] as [B, K, G, T, S]; sizes of 1 broadcast. */
function perGroup(x: Tensor, { K, G }: { readonly K: number; readonly G: number }, what: string): Tensor {
  const heads = x.shape[1];
  if (x.ndim !== 4 || (heads !== 1 && heads !== K * G)) {
    throw new ShapeError(
      `[dotProductAttention] ${what} must have 4 dims [batch, heads, query, key] with 1 or ${K * G} heads, got ${formatType(x.type)}`,
    );
  }
  const [batch = 1, , queries = 1, keys = 1] = x.shape;
  return np.reshape(x, heads === 1 ? [batch, 1, 1, queries, keys] : [batch, K, G, queries, keys]);
}

/** The masks that depend on positions alone, each broadcasting against [B, K, G, T, S]. */
function* positionMasks(T: number, S: number, options: AttentionOptions): Generator<Tensor> {
  const [rows, columns] = [ops.iota("int32", [T, S], 0), ops.iota("int32", [T, S], 1)];
  if (options.isCausal) yield np.greaterEqual(rows, columns);
  if (options.localWindowSize !== undefined) {
    const size = options.localWindowSize;
    const [left, right] = typeof size === "number" ? [size, size] : size;
    yield np.logicalAnd(
      np.greaterEqual(columns, np.subtract(rows, left)),
      np.lessEqual(columns, np.add(rows, right)),
    );
  }
  if (options.keyValueSeqLengths) yield isReal(options.keyValueSeqLengths, [1, 1, 1, 1, S], 4);
  if (options.querySeqLengths) yield isReal(options.querySeqLengths, [1, 1, 1, T, 1], 3);
}

/** Where a position along `dim` lies below the length of its batch element. */
function isReal(lengths: Tensor, shape: readonly number[], dim: number): Tensor {
  const perBatch = np.reshape(
    lengths,
    shape.map((_, d) => (d === 0 ? lengths.size : 1)),
  );
  return np.less(ops.iota("int32", shape, dim), np.astype(perBatch, "int32"));
}
