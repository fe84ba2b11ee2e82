import { oneOf } from "../ir/arguments.js";
import { type DType, dtypeKind, isInteger, isNarrowInteger, isUnsigned, limits } from "../ir/dtype.js";
import { DTypeError, ShapeError, ValueError } from "../ir/errors.js";
import { type OptionsOf, optional, schema } from "../ir/schema.js";
import { at, formatType, normalizeDim, type Shape, sameNumbers, sizeOf } from "../ir/shape.js";
import type { ShapeLike } from "../numpy/operands.js";
import { searchsorted } from "../numpy/reductions/sorting.js";
import * as ops from "../trace/ops.js";
import { needTensor, tensorKind } from "../trace/promote.js";
import { Tensor } from "../trace/tensor.js";
import { checkBroadcast, type GumbelMode, gumbel, spread, uniform } from "./floats.js";
import { atOnce, checkKey, drawnShape, randomWords, split } from "./keys.js";

const randintOptions = schema({ dtype: optional(dtypeKind, "int32") });

/**
 * Integers from `minval` up to but not including `maxval`; where the range is empty, `minval`.
 *
 * @param minval an integer or an integer tensor that broadcasts to the shape
 *
 * @example
 * ```ts
 * random.randint(random.key(0), [4], 0, 10); // [9, 0, 2, 3]
 * ```
 */
export function randint(
  key: Tensor,
  shape: ShapeLike,
  minval: number | Tensor,
  maxval: number | Tensor,
  options?: OptionsOf<typeof randintOptions>,
): Tensor {
  const { dtype } = randintOptions.read(options, "random.randint");
  const caller = "random.randint";
  checkKey(key, caller);
  const sizes = drawnShape(shape, caller);
  if (!isInteger(dtype)) throw new DTypeError(`[${caller}] cannot draw ${dtype}`);
  if (!isNarrowInteger(dtype)) {
    return draw(key, sizes, minval, maxval, isUnsigned(dtype) ? "uint32" : "int32");
  }
  // Narrow integers are drawn with 32 bits, so that their remainders are closer to uniform.
  const { min, max } = limits(dtype);
  const whole = (value: number | Tensor) =>
    typeof value === "number" ? integer(value, "int32", caller) : ops.convert(value, "int32");
  const within = (value: number | Tensor, most: number) => ops.min(ops.max(whole(value), min), most);
  return ops.convert(draw(key, sizes, within(minval, max), within(maxval, max + 1), "int32"), dtype);
}

/** {@link randint} of 32 bits. */
function draw(
  key: Tensor,
  sizes: Shape,
  minval: number | Tensor,
  maxval: number | Tensor,
  dtype: "int32" | "uint32",
): Tensor {
  const caller = "random.randint";
  const bounds = [integer(minval, dtype, caller), integer(maxval, dtype, caller)] as const;
  checkBroadcast(bounds, sizes, caller);
  return atOnce([key, ...bounds], (words, min, max) => {
    const [low, high] = [spread(saturate(min, dtype), sizes), spread(saturate(max, dtype), sizes)];
    const last = ops.bitcast(ops.sub(high, low), "uint32");
    // A range that ends beyond the type's largest number is one longer than the type can represent. For all 2³²
    // numbers the length becomes 0, and a remainder by 0 changes nothing.
    const length = ops.add(last, spread(excess(max, maxval, dtype), sizes));
    const isEmpty = ops.compare("le", high, low);
    const span = ops.select(isEmpty, Tensor.scalar(1, "uint32"), length);
    const twoTo16 = ops.rem(Tensor.scalar(2 ** 16, "uint32"), span);
    const twoTo32 = ops.rem(ops.mul(twoTo16, twoTo16), span);
    const [divisor, factor] = [spread(span, sizes), spread(twoTo32, sizes)];
    const keys = split(words);
    const part = (i: number) => ops.rem(randomWords(keyAt(keys, i), sizes), divisor);
    const offset = ops.rem(ops.add(ops.mul(part(0), factor), part(1)), divisor);
    return ops.add(ops.bitcast(offset, dtype), spread(low, sizes));
  });
}

/** A bound as an integer tensor; numbers are cut off at the limits of the type. */
function integer(value: number | Tensor, dtype: DType, caller: string): Tensor {
  if (typeof value !== "number") return value.dtype === "uint32" ? value : ops.convert(value, "int32");
  if (Number.isNaN(value)) throw new ValueError(`[${caller}] a bound of the range is NaN`);
  const { min, max } = limits(dtype);
  return Tensor.scalar(Math.min(Math.max(Math.trunc(value), min), max), dtype);
}

/** 1 where a range ends beyond the largest number of the type, else 0. */
function excess(max: Tensor, given: number | Tensor, dtype: DType): Tensor {
  const { max: largest } = limits(dtype);
  if (typeof given === "number") return Tensor.scalar(Math.trunc(given) > largest ? 1 : 0, "uint32");
  if (max.dtype !== "uint32" || dtype === "uint32") return Tensor.scalar(0, "uint32");
  return ops.convert(ops.compare("gt", max, largest), "uint32");
}

/** Converts between int32 and uint32; numbers that do not fit are clamped. */
function saturate(x: Tensor, dtype: "int32" | "uint32"): Tensor {
  if (x.dtype === dtype) return x;
  return ops.bitcast(dtype === "uint32" ? ops.max(x, 0) : ops.min(x, limits("int32").max), dtype);
}

const categoricalOptions = schema({
  /** The dim of `logits` along which the categories lie; the last one by default. */
  dim: -1,
  /** The shape of the result, which ends in the other dims of `logits`; by default just those. */
  shape: optional<ShapeLike>("any"),
  /** Whether a category may be drawn more than once; true by default. */
  replace: true,
  /** How precise the Gumbel noise is that decides; `low` by default. */
  mode: optional(oneOf("low", "high"), "low"),
});

/** Options of {@link categorical}. */
export interface CategoricalOptions extends OptionsOf<typeof categoricalOptions> {}

/**
 * Numbers of categories, drawn with probabilities `softmax(logits)`. @returns int32
 *
 * @example
 * ```ts
 * random.categorical(random.key(0), np.array([0, 1, 2])); // 1
 * ```
 */
export function categorical(key: Tensor, logits: Tensor, options?: CategoricalOptions): Tensor {
  needTensor(logits, "logits", "random.categorical");
  const caller = "random.categorical";
  const { replace, mode, ...given } = categoricalOptions.read(options, caller);
  checkKey(key, caller);
  const dim = normalizeDim(given.dim, logits.ndim, caller);
  const batch = logits.shape.filter((_, d) => d !== dim);
  const shape = drawnShape(given.shape ?? batch, caller);
  const prefix = shape.slice(0, shape.length - batch.length);
  const suffix = shape.slice(prefix.length);
  if (shape.length < batch.length || batch.some((n, d) => n !== 1 && n !== suffix[d])) {
    throw new ShapeError(`[${caller}] shape [${shape}] does not end in [${batch}], the dims of the logits`);
  }
  const numCategories = at(logits.shape, dim);
  if (replace) {
    const noiseShape = [...prefix, ...suffix.slice(0, dim), numCategories, ...suffix.slice(dim)];
    return atOnce([key, logits], (words, scores) => {
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
  return atOnce([key, logits], (words, scores) => {
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

const permutationOptions = schema({
  /** The dim that is shuffled; the first one by default. */
  dim: 0,
  /** Whether every line along the dim gets an order of its own; false by default. */
  independent: false,
});

/** Options of {@link permutation}. */
export interface PermutationOptions extends OptionsOf<typeof permutationOptions> {}

/**
 * The numbers 0 … x − 1, or the slices of a tensor, in random order.
 *
 * @example
 * ```ts
 * random.permutation(random.key(0), 4); // [0, 1, 3, 2]
 * ```
 */
export function permutation(key: Tensor, x: number | Tensor, options?: PermutationOptions): Tensor {
  const given = permutationOptions.read(options, "random.permutation");
  const caller = "random.permutation";
  checkKey(key, caller);
  if (typeof x === "number") {
    const shape = drawnShape(x, caller);
    return atOnce([key], (words) => shuffle(words, ops.iota("int32", shape, 0), 0));
  }
  needTensor(x, "x", caller);
  const dim = normalizeDim(given.dim, x.ndim, caller);
  return atOnce([key, x], (words, items) => {
    if (items.ndim === 1 || given.independent) return shuffle(words, items, dim);
    const order = shuffle(words, ops.iota("int32", [at(items.shape, dim)], 0), 0);
    return ops.gather(items, order, { dim, batchDims: 0 });
  });
}

/**
 * Sorts by random keys, repeatedly with new ones until it is unlikely that two elements had equal keys in every
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

const choiceOptions = schema({
  /** Whether an element may be drawn more than once; true by default. */
  replace: true,
  /** The probability of each element; all the same by default. */
  p: optional(tensorKind),
  /** The dim of `a` from which slices are drawn; the first one by default. */
  dim: 0,
  /** How precise the Gumbel noise is that decides where `p` is given; `low` by default. */
  mode: optional(oneOf("low", "high"), "low"),
});

/** Options of {@link choice}. */
export interface ChoiceOptions extends OptionsOf<typeof choiceOptions> {}

/**
 * Random elements of 0 … a − 1, or random slices of a tensor.
 *
 * @param shape how many are drawn, and how they are arranged in the place of the dim they are drawn from
 *
 * @example
 * ```ts
 * random.choice(random.key(0), np.array([10, 20, 30]), [2]); // [20, 10]
 * ```
 */
export function choice(
  key: Tensor,
  a: number | Tensor,
  shape: ShapeLike = [],
  options?: ChoiceOptions,
): Tensor {
  const caller = "random.choice";
  const { replace, p, mode, ...given } = choiceOptions.read(options, caller);
  checkKey(key, caller);
  if (typeof a !== "number") needTensor(a, "a", caller);
  const sizes = drawnShape(shape, caller);
  const dim = typeof a === "number" ? 0 : normalizeDim(given.dim, a.ndim, caller);
  const count = typeof a === "number" ? a : at(a.shape, dim);
  const numDraws = sizeOf(sizes);
  drawnShape(count, caller);
  if (count === 0 && numDraws > 0) throw new ValueError(`[${caller}] there are no elements to choose from`);
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
  const ins = [key, ...(p ? [p] : []), ...(typeof a === "number" ? [] : [a])];
  return atOnce(ins, (words = key, ...rest) => {
    const chances = p && rest[0];
    const items = typeof a === "number" ? undefined : rest.at(-1);
    if (!chances && !replace) {
      const shuffled = permutation(words, items ?? count, { dim });
      const full = [...shuffled.shape.slice(0, dim), ...sizes, ...shuffled.shape.slice(dim + 1)];
      return ops.reshape(ops.sliceDim(shuffled, dim, 0, numDraws), full);
    }
    const drawn = chances
      ? drawWith(words, chances, sizes, replace, mode)
      : randint(words, sizes, 0, count, { dtype: "int32" });
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
  return searchsorted(sums, ops.mul(rest, spread(total, shape)));
}
