/** Attention that never holds more than a block of its scores. */

import { either, integerFrom, type Kind } from "../../ir/arguments.js";
import { isFloat } from "../../ir/dtype.js";
import { DTypeError, ShapeError, ValueError } from "../../ir/errors.js";
import { type Attention, type AttentionExtra, attentionExtras } from "../../ir/ops.js";
import { type OptionsOf, optional, schema, type Values } from "../../ir/schema.js";
import { at, formatType } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { split } from "../../random/index.js";
import { tracedAsOneCall } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { needTensor, tensorKind } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";

/** Values of the positions of queries and keys; one tensor stands for both. */
export type QueryKey = Tensor | { readonly query: Tensor; readonly key: Tensor };

/** How many positions a query sees before and after its own; null for all, a number for both sides. */
export type AttentionWindow = number | readonly [before: number | null, after: number | null];

const sideKind = either(integerFrom(0), "null");
const windowKind: Kind<AttentionWindow> = {
  says: "an integer of at least 0, or [before, after] of such integers or null",
  is: (value) =>
    integerFrom(0).is(value) || (Array.isArray(value) && value.length === 2 && [...value].every(sideKind.is)),
};

/** The schema of {@link AttentionCallOptions}. */
export const attentionCallOptions = schema({
  /** Whether position t sees only positions up to t. */
  causal: false,
  /** How many positions a query sees before and after its own. */
  window: optional(windowKind),
  /** Added to the scores: [batch, heads, length, key length], where any size may be 1. */
  bias: optional(tensorKind),
  /** Which keys a query may see (true): [batch, heads, length, key length], where any size may be 1. */
  mask: optional(tensorKind),
  /** Queries see keys of their own segment only: integers [batch, length]. */
  segmentIds: optional<QueryKey>("object"),
  /** What `causal` and `window` compare instead of indices: integers [batch, length]. */
  positions: optional<QueryKey>("object"),
  /** Scores x become softcap · tanh(x / softcap); not limited by default. */
  softcap: optional("number"),
  /** The factor of the scores; 1 / √headDim by default. */
  scale: optional("number"),
  /** The score of a further key of each head that has no value: [heads] or [batch, heads]. */
  sinks: optional(tensorKind),
  /** The probability with which a weight becomes 0; needs `dropoutKey`. */
  dropoutRate: 0,
  /** The random key for dropout. */
  dropoutKey: optional(tensorKind),
});

/** Options of {@link attention}. */
export interface AttentionCallOptions extends OptionsOf<typeof attentionCallOptions> {}

/** The results of {@link attention}. */
export interface AttentionResult {
  /** Like the query: [batch, length, heads, headDim]. */
  readonly output: Tensor;
  /** The logarithm of each softmax's sum of exponentials, sinks included: [batch, length, heads], at least float32. */
  readonly logSumExp: Tensor;
}

/**
 * softmax(q·kᵀ · scale + bias) · v for every head, computed in blocks so that memory grows linearly with the length,
 * also in the backward pass. Shapes are query [batch, length, heads, headDim], key and value [batch, key length, key
 * heads, headDim]; each key head serves heads / key heads query heads. Without a batch, all have 3 dims.
 *
 * Both results are differentiable, by query, key, value, bias and sinks: results over parts of the keys can be merged by
 * their log-sum-exps. A query that sees no key gets 0, and a log-sum-exp of −∞. Scores are scaled, then capped, then
 * biased, then masked; the softmax is computed in float32 or wider. Which weights are dropped depends on the key, the
 * batch element, the head and both positions, not on how the tensors are split over devices.
 *
 * ```ts
 * const { output } = nn.attention(q, k, v, { causal: true, segmentIds });
 * ```
 *
 * @example
 * ```ts
 * const x = np.ones([1, 3, 2, 4]);
 * const { output, logSumExp } = nn.attention(x, x, x, { causal: true, scale: 0.25 });
 * output.shape; // [1, 3, 2, 4]
 * logSumExp.shape; // [1, 3, 2]
 * ```
 */
export function attention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  options?: AttentionCallOptions,
): AttentionResult {
  const given = attentionCallOptions.read(options, "nn.attention");
  needTensor(query, "query", "nn.attention");
  needTensor(key, "key", "nn.attention");
  needTensor(value, "value", "nn.attention");
  return tracedAsOneCall(() => attend([query, key, value], given));
}

/** {@link attention} with the keys for dropout of every batch element and head, uint32 [batch, heads, 2]. */
export function attentionWithKeys(
  operands: readonly [query: Tensor, key: Tensor, value: Tensor],
  options: AttentionCallOptions,
  dropoutKeys: Tensor | undefined,
): AttentionResult {
  return attend(operands, { ...attentionCallOptions.read(options, "nn.attention"), dropoutKeys });
}

interface Given extends Values<typeof attentionCallOptions.fields> {
  readonly dropoutKeys?: Tensor | undefined;
}

function attend(operands: readonly [Tensor, Tensor, Tensor], given: Given): AttentionResult {
  const [query, key, value] = operands;
  const types = operands.map((x) => formatType(x.type)).join(", ");
  const dtype = operands.map((x) => x.dtype).reduce(np.promoteTypes);
  if (!isFloat(dtype)) throw new DTypeError(`[nn.attention] needs floats, got (${types})`);
  const ranks = new Set(operands.map(({ ndim }) => ndim));
  if (ranks.size > 1 || (query.ndim !== 3 && query.ndim !== 4)) {
    throw new ShapeError(
      `[nn.attention] query, key and value must all have 4 dims [batch, length, heads, headDim], or all 3; they are (${types})`,
    );
  }
  const isBatched = query.ndim === 4;
  const batched = (x: Tensor) => (isBatched ? x : np.expandDims(x, 0));
  const [q, k, v] = [query, key, value].map((x) => batched(ops.convert(x, dtype)));
  if (!q || !k || !v) throw new ShapeError("[nn.attention] needs query, key and value");
  const [batch = 0, , heads = 0, headDim = 1] = q.shape;
  const extras = extrasOf(given, { batch, heads, isBatched });
  const params: Attention = {
    scale: given.scale ?? 1 / Math.sqrt(headDim),
    causal: given.causal,
    ...(given.window !== undefined && { window: sidesOf(given.window) }),
    ...(given.softcap !== undefined && { softcap: given.softcap }),
    ...(given.dropoutRate > 0 && { dropoutRate: given.dropoutRate }),
    ...(extras.size > 0 && { extras: attentionExtras.filter((name) => extras.has(name)) }),
  };
  const more = attentionExtras.flatMap((name) => extras.get(name) ?? []);
  const [output, logSums] = k.shape[1] === 0 ? withoutKeys(q) : ops.attention([q, k, v, ...more], params);
  if (!output || !logSums) throw new ShapeError("[nn.attention] gave no result");
  const logSumExp = ops.transpose(logSums, [0, 2, 1]);
  return isBatched
    ? { output, logSumExp }
    : { output: np.squeeze(output, 0), logSumExp: np.squeeze(logSumExp, 0) };
}

/** What queries get that have no keys to see. */
function withoutKeys(query: Tensor): Tensor[] {
  const [batch = 0, length = 0, heads = 0] = query.shape;
  const sums = np.full(
    [batch, heads, length],
    Number.NEGATIVE_INFINITY,
    np.promoteTypes(query.dtype, "float32"),
  );
  return [np.zerosLike(query), sums];
}

/** A window as the op takes it: −1 for a side without a limit. */
export function sidesOf(window: AttentionWindow): [before: number, after: number] {
  const [before, after] = typeof window === "number" ? [window, window] : window;
  return [before ?? -1, after ?? -1];
}

interface Sizes {
  readonly batch: number;
  readonly heads: number;
  readonly isBatched: boolean;
}

/** Throws for a mask of numbers, such as `makeCausalMask` returns by default: adding them would hide nothing. */
export function needBool(mask: Tensor, caller: string): void {
  if (mask.dtype === "bool") return;
  throw new DTypeError(
    `[${caller}] the mask must be bool, got ${formatType(mask.type)}: convert it with astype("bool"), or pass numbers to add to the scores as bias`,
  );
}

/** The further operands of the op. */
function extrasOf(given: Given, { batch, heads, isBatched }: Sizes): ReadonlyMap<AttentionExtra, Tensor> {
  const extras = new Map<AttentionExtra, Tensor>();
  const batched = (x: Tensor) => (isBatched ? x : np.expandDims(x, 0));
  const { bias, mask, segmentIds, positions, sinks, dropoutRate, dropoutKey } = given;
  if (bias) extras.set("bias", isFloat(bias.dtype) ? batched(bias) : ops.convert(batched(bias), "float32"));
  if (mask) {
    needBool(mask, "nn.attention");
    extras.set("mask", batched(mask));
  }
  const both = (x: QueryKey | undefined, query: AttentionExtra, key: AttentionExtra) => {
    if (!x) return;
    const pair = x instanceof Tensor ? { query: x, key: x } : x;
    for (const [name, tensor] of [
      [query, pair.query],
      [key, pair.key],
    ] as const) {
      extras.set(name, repeated(ops.convert(batched(tensor), "int32"), batch));
    }
  };
  both(segmentIds, "querySegments", "keySegments");
  both(positions, "queryPositions", "keyPositions");
  if (sinks) extras.set("sinks", sinks.ndim === 1 ? np.expandDims(sinks, 0) : sinks);
  if (dropoutRate > 0) {
    const keys = given.dropoutKeys ?? (dropoutKey && split(dropoutKey, [batch, heads]));
    if (!keys) throw new ValueError("[nn.attention] dropoutRate needs a dropoutKey");
    extras.set("dropoutKeys", keys);
  }
  return extras;
}

/** Values of positions that are the same for the whole batch, for each of its elements. */
function repeated(x: Tensor, batch: number): Tensor {
  return x.shape[0] === 1 && batch !== 1 ? np.broadcastTo(x, [batch, at(x.shape, 1)]) : x;
}

/** The output, with the average of all values for queries that see no key, as JAX and Flax define it. */
export function averagedIfHidden({ output, logSumExp }: AttentionResult, value: Tensor): Tensor {
  const [batch = 0, , keyHeads = 0, headDim = 0] = value.shape;
  const [, length = 0, heads = 0] = output.shape;
  const wide = np.mean(ops.convert(value, logSumExp.dtype), 1);
  const grouped = np.reshape(wide, [batch, 1, keyHeads, 1, headDim]);
  const average = np.broadcastTo(grouped, [batch, length, keyHeads, heads / keyHeads, headDim]);
  const isHidden = np.equal(np.expandDims(logSumExp, -1), Number.NEGATIVE_INFINITY);
  return np.where(isHidden, ops.convert(np.reshape(average, output.shape), output.dtype), output);
}
