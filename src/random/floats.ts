import { either, oneOf } from "../ir/arguments.js";
import { type DType, dtypeKind, isComplex, isFloat, limits } from "../ir/dtype.js";
import { DTypeError, ShapeError, ValueError } from "../ir/errors.js";
import { type OptionsOf, optional, schema } from "../ir/schema.js";
import { formatType, type Shape } from "../ir/shape.js";
import { broadcastShape, type DTypeOption, dtypeOf, expandTo, type ShapeLike } from "../numpy/operands.js";
import * as ops from "../trace/ops.js";
import { tensorKind } from "../trace/promote.js";
import { Tensor } from "../trace/tensor.js";
import { atOnce, checkKey, drawnShape, hash, randomWords, split } from "./keys.js";

const uniformOptions = schema({
  /** float32 by default. */
  dtype: optional(dtypeKind),
  /** The smallest value, 0 by default; a tensor is broadcast to the shape. */
  minval: optional(either("number", tensorKind), 0),
  /** The end of the range, which is not reached; 1 by default. */
  maxval: optional(either("number", tensorKind), 1),
});

/** Options of {@link uniform}. */
export interface UniformOptions extends OptionsOf<typeof uniformOptions> {}

/** Options of {@link gumbel}. */
export interface GumbelOptions {
  /** float32 by default. */
  readonly dtype?: DType | undefined;
  /** How precise the values are; `low` by default. */
  readonly mode?: GumbelMode | undefined;
}

const bernoulliOptions = schema({
  /** `high` draws twice the bits, for probabilities below 10⁻⁷. */
  mode: optional(oneOf("low", "high"), "low"),
});

/** Options of {@link bernoulli}. */
export interface BernoulliOptions extends OptionsOf<typeof bernoulliOptions> {}

/** How many bits the Gumbel sampler uses: `high` reaches twice as far into the tail, at twice the cost. */
export type GumbelMode = "low" | "high";

/** A type of floats that can be drawn. */
export type FloatType = "float32" | "bfloat16" | "float16" | "float64";

interface FloatLayout {
  readonly mantissaBits: number;
  /** How many random bits a sample takes. */
  readonly randomBits: number;
  readonly smallestNormal: number;
}

/** The layout of every type of floats. */
export const layouts: { readonly [F in FloatType]: FloatLayout } = {
  float32: { mantissaBits: 23, randomBits: 32, smallestNormal: 2 ** -126 },
  bfloat16: { mantissaBits: 7, randomBits: 8, smallestNormal: 2 ** -126 },
  float16: { mantissaBits: 10, randomBits: 16, smallestNormal: 2 ** -14 },
  float64: { mantissaBits: 52, randomBits: 64, smallestNormal: 2 ** -1022 },
};

/** Whether a type is one of floats. */
export function isFloatType(dtype: DType): dtype is FloatType {
  return isFloat(dtype);
}

/** Checks the arguments that all samplers of floats have in common. */
function check(
  key: Tensor,
  shape: ShapeLike,
  option: DTypeOption | undefined,
  caller: string,
): [shape: Shape, dtype: FloatType] {
  checkKey(key, caller);
  const dtype = dtypeOf(option, caller) ?? "float32";
  if (!isFloatType(dtype)) throw new DTypeError(`[${caller}] draws floats, not ${dtype}`);
  return [drawnShape(shape, caller), dtype];
}

/** A sampler that needs nothing but the key, the shape and the type. */
function sampler(
  name: string,
  draw: (words: Tensor, shape: Shape, dtype: FloatType) => Tensor,
): (key: Tensor, shape?: ShapeLike, dtype?: DTypeOption) => Tensor {
  return (key, shape = [], dtype) => {
    const [sizes, type] = check(key, shape, dtype, `random.${name}`);
    return atOnce([key], (words) => draw(words, sizes, type), `random.${name} ${type}[${sizes}]`);
  };
}

/**
 * Values spread evenly over `minval` … `maxval`, the end excluded.
 *
 * ```ts
 * random.uniform(key, [2, 3], { minval: -1, dtype: "bfloat16" })
 * ```
 *
 * @example
 * ```ts
 * random.uniform(random.key(0), [2]); // [0.9477, 0.9786]
 * ```
 */
export function uniform(key: Tensor, shape: ShapeLike = [], options?: UniformOptions): Tensor {
  const { minval, maxval, ...given } = uniformOptions.read(options, "random.uniform");
  const [sizes, dtype] = check(key, shape, given.dtype, "random.uniform");
  const [low, high] = [bound(minval, dtype), bound(maxval, dtype)];
  checkBroadcast([low, high], sizes, "random.uniform");
  const draw = (words: Tensor, from: Tensor, to: Tensor) => uniformIn(words, sizes, dtype, from, to);
  return atOnce([key, low, high], draw, `random.uniform ${dtype}[${sizes}]`);
}

const realNormal = sampler("normal", (words, shape, dtype) => {
  // The smallest value above −1: −1 itself would become −infinity.
  const low = Tensor.scalar(-1 + limits(dtype).epsilon / 2, dtype);
  const u = uniformIn(words, shape, dtype, low, Tensor.scalar(1, dtype));
  return ops.mul(ops.xlaFunction("erfInv", u), Math.SQRT2);
});

/**
 * Normally distributed values with mean 0 and variance 1; complex ones have it in both parts together.
 *
 * @example
 * ```ts
 * random.normal(random.key(0), [2]); // [1.623, 2.025]
 * ```
 */
export function normal(key: Tensor, shape: ShapeLike = [], dtype?: DTypeOption): Tensor {
  const type = dtypeOf(dtype, "random.normal");
  if (type === undefined || !isComplex(type)) return realNormal(key, shape, dtype);
  const part = type === "complex128" ? "float64" : "float32";
  const [first, second] = halves(split(key));
  const drawn = (words: Tensor) => realNormal(words, shape, part);
  return ops.div(Tensor.complex(drawn(first), drawn(second)), Math.SQRT2);
}

/**
 * Normally distributed values of those between `lower` and `upper`, both excluded.
 *
 * @param shape by default the shape that `lower` and `upper` have together
 *
 * @example
 * ```ts
 * random.truncatedNormal(random.key(0), -1, 1, [2]); // [0.8619, 0.9413]
 * ```
 */
export function truncatedNormal(
  key: Tensor,
  lower: number | Tensor,
  upper: number | Tensor,
  shape?: ShapeLike,
  dtype?: DTypeOption,
): Tensor {
  const caller = "random.truncatedNormal";
  const given = [lower, upper].map((value) => (value instanceof Tensor ? value.shape : []));
  const [full, type] = check(key, shape ?? broadcastShape(given, caller), dtype, caller);
  const [low, high] = [bound(lower, type), bound(upper, type)];
  checkBroadcast([low, high], full, caller);
  return atOnce([key, low, high], (words, from, to) => {
    const probability = (x: Tensor) => ops.xlaFunction("erf", ops.mul(x, Math.SQRT1_2));
    const u = uniformIn(words, full, type, probability(from), probability(to));
    const value = ops.mul(ops.xlaFunction("erfInv", u), Math.SQRT2);
    const inside = (x: Tensor, direction: 1 | -1) => spread(neighbour(ops.stopGradient(x), direction), full);
    return ops.min(ops.max(value, inside(from, 1)), inside(to, -1));
  });
}

/**
 * Exponentially distributed values with rate 1.
 *
 * @example
 * ```ts
 * random.exponential(random.key(0), [2]); // [2.95, 3.843]
 * ```
 */
export const exponential = sampler("exponential", (words, shape, dtype) =>
  ops.xlaFunction("exponentialQuantile", fraction(words, shape, dtype)),
);

/**
 * Laplace-distributed values with mean 0 and scale 1.
 *
 * @example
 * ```ts
 * random.laplace(random.key(0), [2]); // [-2.257, -3.15]
 * ```
 */
export const laplace = sampler("laplace", (words, shape, dtype) => {
  const low = Tensor.scalar(-1 + limits(dtype).epsilon / 2, dtype);
  const u = uniformIn(words, shape, dtype, low, Tensor.scalar(1, dtype));
  return ops.mul(ops.sign(u), ops.log1p(ops.neg(ops.abs(u))));
});

/**
 * Values of the logistic distribution with mean 0 and scale 1.
 *
 * @example
 * ```ts
 * random.logistic(random.key(0), [2]); // [2.896, 3.822]
 * ```
 */
export const logistic = sampler("logistic", (words, shape, dtype) => {
  const u = positive(words, shape, dtype);
  return ops.sub(ops.log(u), ops.log1p(ops.neg(u)));
});

/**
 * Values of the standard Gumbel distribution.
 *
 * @example
 * ```ts
 * random.gumbel(random.key(0), [2]); // [2.923, 3.833]
 * ```
 */
export function gumbel(key: Tensor, shape: ShapeLike = [], options: GumbelOptions = {}): Tensor {
  const [sizes, dtype] = check(key, shape, options, "random.gumbel");
  return atOnce([key], (words) => gumbelOf(words, sizes, dtype, options.mode ?? "low"));
}

function gumbelOf(words: Tensor, shape: Shape, dtype: FloatType, mode: GumbelMode): Tensor {
  if (mode === "low") return ops.neg(ops.log(ops.neg(ops.log(positive(words, shape, dtype)))));
  if (mode !== "high") throw new ValueError(`[random.gumbel] mode ${String(mode)} is not "low" or "high"`);
  const { mantissaBits, smallestNormal } = layouts[dtype];
  const [high, low] = halves(fraction(words, [2, ...shape], dtype));
  const fine = ops.add(ops.add(high, ops.mul(low, 2 ** -mantissaBits)), smallestNormal);
  const u = ops.select(ops.compare("ge", high, 0.5), high, fine);
  return ops.neg(ops.log(ops.neg(ops.log1p(ops.neg(u)))));
}

/**
 * True with probability `p`. @param shape by default the shape of `p`
 *
 * @example
 * ```ts
 * random.bernoulli(random.key(0), 0.5, [3]); // [false, false, true]
 * ```
 */
export function bernoulli(
  key: Tensor,
  p: number | Tensor = 0.5,
  shape?: ShapeLike,
  options?: BernoulliOptions,
): Tensor {
  const { mode } = bernoulliOptions.read(options, "random.bernoulli");
  const isTensor = p instanceof Tensor;
  const given = isTensor ? p.dtype : "float32";
  const [full, dtype] = check(key, shape ?? (isTensor ? p.shape : []), given, "random.bernoulli");
  const chance = bound(p, dtype);
  checkBroadcast([chance], full, "random.bernoulli");
  return atOnce([key, chance], (words, probability) => {
    const limit = spread(probability, full);
    if (mode === "low") return ops.compare("lt", fraction(words, full, dtype), limit);
    const [high, low] = halves(fraction(words, [2, ...full], dtype));
    const rest = limit.node.kind === "literal" ? ops.full(full, limit.node.literal.value, dtype) : limit;
    return ops.compare("lt", ops.mul(low, 2 ** -layouts[dtype].mantissaBits), ops.sub(rest, high));
  });
}

/** Multiples of 2^−mantissaBits from 0 up to but not including 1, every one equally likely. */
function fraction(words: Tensor, shape: Shape, dtype: FloatType): Tensor {
  const { mantissaBits, randomBits } = layouts[dtype];
  if (dtype === "float64") {
    const [high, low] = hash(words, shape);
    const lowBits = mantissaBits - 32;
    const fine = ops.convert(ops.shrLogical(low, 32 - lowBits), dtype);
    return ops.add(ops.mul(ops.convert(high, dtype), 2 ** -32), ops.mul(fine, 2 ** -mantissaBits));
  }
  const all = randomWords(words, shape);
  const used = randomBits === 32 ? all : ops.and(all, 2 ** randomBits - 1);
  const mantissa = ops.convert(ops.shrLogical(used, randomBits - mantissaBits), "float32");
  return ops.convert(ops.mul(mantissa, 2 ** -mantissaBits), dtype);
}

/** A {@link fraction} with the smallest positive number in the place of 0. */
function positive(words: Tensor, shape: Shape, dtype: FloatType): Tensor {
  return ops.max(fraction(words, shape, dtype), layouts[dtype].smallestNormal);
}

function uniformIn(words: Tensor, shape: Shape, dtype: FloatType, low: Tensor, high: Tensor): Tensor {
  const u = fraction(words, shape, dtype);
  if (isNumber(low, 0) && isNumber(high, 1)) return u;
  const from = spread(low, shape);
  const span = spread(ops.sub(spread(high, shape), from), shape);
  // XLA multiplies and adds float16 and float32 with one rounding; a multiple of a power of two is exact anyway.
  const isExact = Number.isInteger(Math.log2(Math.fround(numberOf(high) - numberOf(low))));
  const inner = dtype === "float16" ? "float32" : dtype === "float32" && !isExact ? "float64" : dtype;
  const [scaled, shift] = [
    ops.mul(ops.convert(u, inner), ops.convert(span, inner)),
    ops.convert(from, inner),
  ];
  return ops.max(ops.convert(ops.add(scaled, spread(shift, shape)), dtype), from);
}

function isNumber(x: Tensor, value: number): boolean {
  return numberOf(x) === value;
}

/** The value of a scalar constant, NaN of other tensors. */
function numberOf({ node }: Tensor): number {
  return node.kind === "literal" ? node.literal.value : Number.NaN;
}

/** The slices 0 and 1 along the first dim. */
function halves(x: Tensor): [Tensor, Tensor] {
  const half = (i: number) => ops.reshape(ops.sliceDim(x, 0, i, i + 1), x.shape.slice(1));
  return [half(0), half(1)];
}

/** The nearest value of the type above (1) or below (−1). */
function neighbour(x: Tensor, direction: 1 | -1): Tensor {
  const { epsilon, max } = limits(x.dtype);
  const smallest = (isFloatType(x.dtype) ? layouts[x.dtype].smallestNormal : 1) * epsilon;
  // A little over half the distance to the neighbour: the sum is rounded to it.
  const step = ops.add(ops.mul(ops.abs(x), (epsilon / 2) * (1 + epsilon)), smallest);
  const moved = direction === 1 ? ops.add(x, step) : ops.sub(x, step);
  return ops.select(ops.finite(x), moved, ops.full(x.shape, -direction * max, x.dtype));
}

/** A bound of a distribution in its type. */
function bound(value: number | Tensor, dtype: DType): Tensor {
  return typeof value === "number" ? Tensor.scalar(value, dtype) : ops.convert(value, dtype);
}

/** Repeats a tensor to a shape that it was checked to fit; a scalar constant fits as it is. */
export function spread(x: Tensor, shape: Shape): Tensor {
  return x.node.kind === "literal" ? x : expandTo(x, shape);
}

/** Checks that tensors can be broadcast to a shape. */
export function checkBroadcast(xs: readonly Tensor[], shape: Shape, caller: string): void {
  for (const { type } of xs) {
    const offset = shape.length - type.shape.length;
    if (offset < 0 || type.shape.some((n, d) => n !== 1 && n !== shape[d + offset])) {
      throw new ShapeError(
        `[${caller}] an argument ${formatType(type)} does not broadcast to the shape [${shape}] that is drawn`,
      );
    }
  }
}
