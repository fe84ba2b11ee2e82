import { type DType, isInteger, limits } from "../ir/dtype.js";
import { DTypeError, ShapeError, ValueError } from "../ir/errors.js";
import { at, formatType, normalizeDim, range, type Shape, sameNumbers, sizeOf } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import { Tensor } from "../trace/tensor.js";
import { checkBroadcast, type GumbelMode, gumbel, spread, uniform } from "./floats.js";
import { atOnce, checkKey, checkShape, randomWords, split } from "./keys.js";

/**
 * Whole numbers from `minval` up to but not including `maxval`; where the range is empty, `minval`.
 *
 * @param minval a whole number or an integer tensor that broadcasts to the shape
 */
export function randint(
  parent: Tensor,
  shape: Shape,
  minval: number | Tensor,
  maxval: number | Tensor,
  { dtype = "int32" }: { readonly dtype?: DType } = {},
): Tensor {
  const caller = "random.randint";
  checkKey(parent, caller);
  checkShape(shape, caller);
  if (dtype !== "int32" && dtype !== "uint32")
    throw new DTypeError(`[${caller}] draws integers, not ${dtype}`);
  const bounds = [integer(minval, dtype, caller), integer(maxval, dtype, caller)] as const;
  checkBroadcast(bounds, shape, caller);
  return atOnce([parent, ...bounds], (words, min, max) => {
    const [low, high] = [spread(saturate(min, dtype), shape), spread(saturate(max, dtype), shape)];
    const last = ops.bitcast(ops.sub(high, low), "uint32");
    // A range that ends beyond the type's largest number is one longer than the type can say. Of all 2³²
    // numbers the length becomes 0, and a remainder by 0 changes nothing.
    const beyond = spread(isBeyond(max, maxval, dtype), shape);
    const length = ops.add(last, ops.convert(beyond, "uint32"));
    const isEmpty = ops.compare("le", high, low);
    const span = ops.select(isEmpty, Tensor.scalar(1, "uint32"), length);
    const twoTo16 = ops.rem(Tensor.scalar(2 ** 16, "uint32"), span);
    const twoTo32 = ops.rem(ops.mul(twoTo16, twoTo16), span);
    const [divisor, factor] = [spread(span, shape), spread(twoTo32, shape)];
    const keys = split(words);
    const draw = (i: number) => ops.rem(randomWords(keyAt(keys, i), shape), divisor);
    const offset = ops.rem(ops.add(ops.mul(draw(0), factor), draw(1)), divisor);
    return ops.add(ops.bitcast(offset, dtype), spread(low, shape));
  });
}

/** A bound as an integer tensor; numbers are cut off at the limits of the type. */
function integer(value: number | Tensor, dtype: DType, caller: string): Tensor {
  if (typeof value !== "number") return isInteger(value.dtype) ? value : ops.convert(value, "int32");
  if (Number.isNaN(value)) throw new ValueError(`[${caller}] a bound of the range is NaN`);
  const { min, max } = limits(dtype);
  return Tensor.scalar(Math.min(Math.max(Math.trunc(value), min), max), dtype);
}

/** Whether a range ends beyond the largest number of the type. */
function isBeyond(max: Tensor, given: number | Tensor, dtype: DType): Tensor {
  const { max: largest } = limits(dtype);
  if (typeof given === "number") return Tensor.scalar(Math.trunc(given) > largest, "bool");
  return max.dtype === "uint32" && dtype === "int32"
    ? ops.compare("gt", max, largest)
    : Tensor.scalar(false, "bool");
}

/** Converts between int32 and uint32; what does not fit becomes the nearest number that does. */
function saturate(x: Tensor, dtype: "int32" | "uint32"): Tensor {
  if (x.dtype === dtype) return x;
  return ops.bitcast(dtype === "uint32" ? ops.max(x, 0) : ops.min(x, limits("int32").max), dtype);
}

/** Options of {@link categorical}. */
export interface CategoricalOptions {
  /** The dim of `logits` along which the categories lie; the last one unless it says otherwise. */
  readonly axis?: number;
  /** The shape of the result, which ends in the other dims of `logits`; by default just those. */
  readonly shape?: Shape;
  /** Whether a category may be drawn more than once; true unless it says otherwise. */
  readonly replace?: boolean;
  readonly mode?: GumbelMode;
}

/** Numbers of categories, drawn with probabilities `softmax(logits)`. @returns int32 */
export function categorical(parent: Tensor, logits: Tensor, options: CategoricalOptions = {}): Tensor {
  const caller = "random.categorical";
  const { replace = true, mode = "low" } = options;
  checkKey(parent, caller);
  const dim = normalizeDim(options.axis ?? -1, logits.ndim, caller);
  const batch = logits.shape.filter((_, d) => d !== dim);
  const shape = options.shape ?? batch;
  checkShape(shape, caller);
  const prefix = shape.slice(0, shape.length - batch.length);
  const suffix = shape.slice(prefix.length);
  if (shape.length < batch.length || batch.some((n, d) => n !== 1 && n !== suffix[d])) {
    throw new ShapeError(`[${caller}] shape [${shape}] does not end in [${batch}], the dims of the logits`);
  }
  const numCategories = at(logits.shape, dim);
  if (replace) {
    const noiseShape = [...prefix, ...suffix.slice(0, dim), numCategories, ...suffix.slice(dim)];
    return atOnce([parent, logits], (words, scores) => {
      const noise = gumbel(words, noiseShape, { dtype: scores.dtype, mode });
      return ops.argmax(ops.add(noise, spread(scores, noiseShape)), prefix.length + dim);
    });
  }
  const numDraws = sizeOf(prefix);
  if (numDraws > numCategories || !sameNumbers(suffix, batch)) {
    throw new ShapeError(
      `[${caller}] shape [${shape}] asks for ${numDraws} draws of each of [${batch}] without replacement, but there are ${numCategories} categories`,
    );
  }
  return atOnce([parent, logits], (words, scores) => {
    const noisy = ops.add(gumbel(words, scores.shape, { dtype: scores.dtype, mode }), scores);
    const drawn = largest(ops.moveDim(noisy, dim, 0), numDraws);
    return ops.reshape(drawn, shape);
  });
}

/** The indices of the largest elements along dim 0, the largest first. */
function largest(x: Tensor, count: number): Tensor {
  const [, order] = ops.sort([ops.neg(x), ops.iota("int32", x.shape, 0)], 0);
  return ops.sliceDim(order ?? x, 0, 0, count);
}

/** Options of {@link permutation}. */
export interface PermutationOptions {
  /** The dim that is shuffled; the first one unless it says otherwise. */
  readonly axis?: number;
  /** Whether every line along the dim gets an order of its own; false unless it says otherwise. */
  readonly independent?: boolean;
}

/** The numbers 0 … x − 1, or the slices of a tensor, in random order. */
export function permutation(parent: Tensor, x: number | Tensor, options: PermutationOptions = {}): Tensor {
  const caller = "random.permutation";
  checkKey(parent, caller);
  if (typeof x === "number") {
    checkShape([x], caller);
    return atOnce([parent], (words) => shuffle(words, ops.iota("int32", [x], 0), 0));
  }
  const dim = normalizeDim(options.axis ?? 0, x.ndim, caller);
  return atOnce([parent, x], (words, items) => {
    if (items.ndim === 1 || options.independent) return shuffle(words, items, dim);
    const order = shuffle(words, ops.iota("int32", [at(items.shape, dim)], 0), 0);
    return ops.gather(items, order, { dim, batchDims: 0 });
  });
}

/**
 * Sorts by random keys, again with new ones until it is unlikely that two elements had equal keys in every
 * round.
 */
function shuffle(words: Tensor, x: Tensor, dim: number): Tensor {
  const rounds = Math.ceil((3 * Math.log(Math.max(1, x.size))) / Math.log(2 ** 32 - 1));
  let [next, items] = [words, x];
  for (let round = 0; round < rounds; round++) {
    const keys = split(next);
    next = keyAt(keys, 0);
    const [, sorted] = ops.sort([randomWords(keyAt(keys, 1), x.shape), items], dim);
    items = sorted ?? items;
  }
  return items;
}

function keyAt(keys: Tensor, index: number): Tensor {
  return ops.reshape(ops.sliceDim(keys, 0, index, index + 1), [2]);
}

/** Options of {@link choice}. */
export interface ChoiceOptions {
  /** Whether an element may be drawn more than once; true unless it says otherwise. */
  readonly replace?: boolean;
  /** The probability of each element; all the same by default. */
  readonly p?: Tensor;
  /** The dim of `a` from which slices are drawn; the first one unless it says otherwise. */
  readonly axis?: number;
  readonly mode?: GumbelMode;
}

/**
 * Random elements of 0 … a − 1, or random slices of a tensor.
 *
 * @param shape how many are drawn, and how they are arranged in the place of the dim they are drawn from
 */
export function choice(
  parent: Tensor,
  a: number | Tensor,
  shape: Shape = [],
  options: ChoiceOptions = {},
): Tensor {
  const caller = "random.choice";
  checkKey(parent, caller);
  checkShape(shape, caller);
  const dim = typeof a === "number" ? 0 : normalizeDim(options.axis ?? 0, a.ndim, caller);
  const count = typeof a === "number" ? a : at(a.shape, dim);
  const numDraws = sizeOf(shape);
  const { replace = true, p, mode = "low" } = options;
  checkShape([count], caller);
  if (count === 0 && numDraws > 0) throw new ValueError(`[${caller}] there is nothing to choose from`);
  if (!replace && numDraws > count) {
    throw new ValueError(
      `[${caller}] ${numDraws} elements cannot be drawn from ${count} without replacement`,
    );
  }
  if (p && !(p.ndim === 1 && p.shape[0] === count)) {
    throw new ShapeError(
      `[${caller}] p is ${formatType(p.type)} but must have one probability for each of ${count} elements`,
    );
  }
  const ins = [parent, ...(p ? [p] : []), ...(typeof a === "number" ? [] : [a])];
  return atOnce(ins, (words = parent, ...rest) => {
    const chances = p && rest[0];
    const items = typeof a === "number" ? undefined : rest.at(-1);
    if (!chances && !replace) {
      const shuffled = permutation(words, items ?? count, { axis: dim });
      const full = [...shuffled.shape.slice(0, dim), ...shape, ...shuffled.shape.slice(dim + 1)];
      return ops.reshape(ops.sliceDim(shuffled, dim, 0, numDraws), full);
    }
    const drawn = chances
      ? drawWith(words, chances, shape, replace, mode)
      : randint(words, shape, 0, count, { dtype: "int32" });
    return items ? ops.gather(items, drawn, { dim, batchDims: 0 }) : drawn;
  });
}

function drawWith(words: Tensor, p: Tensor, shape: Shape, replace: boolean, mode: GumbelMode): Tensor {
  if (!replace) {
    const scores = ops.add(gumbel(words, p.shape, { dtype: p.dtype, mode }), ops.log(p));
    return ops.reshape(largest(scores, sizeOf(shape)), shape);
  }
  const sums = ops.cumsum(p, 0);
  const n = p.size;
  const total = ops.reshape(ops.sliceDim(sums, 0, n - 1, n), []);
  const rest = ops.sub(ops.full(shape, 1, p.dtype), uniform(words, shape, { dtype: p.dtype }));
  return searchSorted(sums, ops.mul(rest, spread(total, shape)));
}

/** How many of the sorted numbers are smaller than each of the values. */
function searchSorted(sorted: Tensor, values: Tensor): Tensor {
  let found = ops.full(values.shape, 0, "int32");
  for (const step of range(Math.floor(Math.log2(sorted.size)) + 1).reverse()) {
    const next = ops.add(found, 2 ** step);
    const before = ops.gather(sorted, ops.sub(next, 1), { dim: 0, batchDims: 0 });
    const isWithin = ops.compare("le", next, sorted.size);
    found = ops.select(ops.and(isWithin, ops.compare("lt", before, values)), next, found);
  }
  return found;
}
