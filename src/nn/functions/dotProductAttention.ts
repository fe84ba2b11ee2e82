/** Scaled dot-product attention. */

import { isFloat } from "../../ir/dtype.js";
import { ShapeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { tracedAsOneCall } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { needTensor, tensorKind } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { attention, averagedIfHidden, needBool, type QueryKey } from "./attention.js";

const attentionOptions = schema({
  /** Added to the logits; broadcasts against [B, N, T, S]. */
  bias: optional(tensorKind),
  /** Which keys a query may see (true); broadcasts against [B, N, T, S]. */
  mask: optional(tensorKind),
  /** Whether position t sees only positions up to t. */
  isCausal: optional("flag"),
  /** The factor of the logits; 1 / √H by default. */
  scale: optional("number"),
  /** How many positions of each query are real, int32 [B]; the result of the others is 0. */
  querySeqLengths: optional(tensorKind),
  /** How many positions of each key and value are real, int32 [B]. */
  keyValueSeqLengths: optional(tensorKind),
  /** How many positions a query sees to the left and to the right. */
  localWindowSize: optional<number | readonly [left: number, right: number]>("integerOrIntegers"),
});

/** Options of {@link dotProductAttention}; T is the query's length, S that of key and value, N the heads. */
export interface AttentionOptions extends OptionsOf<typeof attentionOptions> {}

/**
 * softmax(q·kᵀ · scale + bias) · v for every head. Shapes are query [B, T, N, H], key and value [B, S, K, H],
 * where N is a multiple of K: each key head serves N / K query heads. The softmax is computed in float32. It is
 * {@link attention} with JAX's names; a query that sees no key gets the average of all values.
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
  checkShapes(query, key, value);
  return tracedAsOneCall(() => attend([query, key, value], given));
}

/** One op, in the types that products of these operands have. */
function attend(operands: readonly [Tensor, Tensor, Tensor], options: AttentionOptions): Tensor {
  const [query, key, value] = operands;
  const {
    bias,
    mask,
    isCausal = false,
    scale,
    localWindowSize,
    querySeqLengths,
    keyValueSeqLengths,
  } = options;
  if (mask) needBool(mask, "dotProductAttention");
  for (const [what, x] of [
    ["bias", bias],
    ["mask", mask],
  ] as const) {
    if (x && (x.ndim !== 4 || (x.shape[1] !== 1 && x.shape[1] !== query.shape[2]))) {
      throw new ShapeError(
        `[dotProductAttention] ${what} must have 4 dims [batch, heads, query, key] with 1 or ${query.shape[2]} heads, got ${formatType(x.type)}`,
      );
    }
  }
  const dtype = np.promoteTypes(key.dtype, value.dtype);
  const attended = attention(query, key, value, {
    causal: isCausal,
    bias,
    mask,
    scale,
    window: localWindowSize,
    segmentIds: realPositions(query, key, options),
  });
  const mayHide = mask !== undefined || localWindowSize !== undefined || keyValueSeqLengths !== undefined;
  const output = mayHide && key.size > 0 ? averagedIfHidden(attended, value) : attended.output;
  const rounded = ops.convert(output, isFloat(dtype) ? dtype : output.dtype);
  if (!querySeqLengths || !mayHide) return rounded;
  const isReal = np.less(
    ops.iota("int32", [1, query.shape[1] ?? 0, 1, 1], 1),
    querySeqLengths.reshape([-1, 1, 1, 1]),
  );
  return np.where(isReal, rounded, 0);
}

/** Segments that hold the real positions of queries and keys: 0; those of others are seen by none and see none. */
function realPositions(
  query: Tensor,
  key: Tensor,
  { querySeqLengths, keyValueSeqLengths }: AttentionOptions,
): QueryKey | undefined {
  if (!querySeqLengths && !keyValueSeqLengths) return undefined;
  const segments = (x: Tensor, lengths: Tensor | undefined, otherwise: number) => {
    const [batch = 0, length = 0] = x.shape;
    if (!lengths) return np.zeros([batch, length], "int32");
    const isReal = np.less(ops.iota("int32", [1, length], 1), np.reshape(lengths, [batch, 1]));
    return np.where(isReal, 0, otherwise);
  };
  return { query: segments(query, querySeqLengths, 1), key: segments(key, keyValueSeqLengths, 2) };
}

function checkShapes(query: Tensor, key: Tensor, value: Tensor): void {
  const [B, , N = 0, H] = query.shape;
  const [batch, , K = 0, width] = key.shape;
  const types = [query, key, value].map((x) => formatType(x.type)).join(", ");
  const refuse = (rule: string): never => {
    throw new ShapeError(`[dotProductAttention] ${rule}; query, key and value are (${types})`);
  };
  if ([query, key, value].some((x) => x.ndim !== 4)) refuse("all must have 4 dims, or all 3");
  if (key.shape.join() !== value.shape.join()) refuse("key and value must have the same shape");
  if (batch !== B || width !== H) refuse("batch and head size (dims 0 and 3) must agree");
  if (K === 0 || N % K !== 0) {
    refuse(`the ${N} query heads must be a multiple of the ${K} key heads (${N} / ${K} = ${N / K})`);
  }
}
