/** Distributions of integers. */
import { needIfGiven } from "../ir/arguments.js";
import type { DType } from "../ir/dtype.js";
import { ShapeError } from "../ir/errors.js";
import { at, type Shape } from "../ir/shape.js";
import { lgamma } from "../lax/special.js";
import { expandTo, type ShapeLike } from "../numpy/operands.js";
import * as ops from "../trace/ops.js";
import { needTensor } from "../trace/promote.js";
import { Tensor } from "../trace/tensor.js";
import { scan } from "../transforms/control/scan.js";
import { whileLoop } from "../transforms/control/whileLoop.js";
import { bernoulli, uniform } from "./floats.js";
import { atOnce, checkKey, drawnShape, split } from "./keys.js";
import { keyOf, type Parameter, parameters } from "./parameters.js";

const any = (x: Tensor) =>
  ops.reduceMax(
    x,
    x.shape.map((_, d) => d),
  );
const filled = (x: Tensor, value: number) => ops.full(x.shape, value, x.dtype);

/**
 * −1 or 1 with equal probability. @returns int32 unless `dtype` says otherwise
 *
 * @example
 * ```ts
 * random.rademacher(random.key(0), [4]); // [-1, -1, 1, 1]
 * ```
 */
export function rademacher(key: Tensor, shape: ShapeLike = [], dtype: DType = "int32"): Tensor {
  checkKey(key, "random.rademacher");
  const sizes = drawnShape(shape, "random.rademacher");
  return atOnce([key], (words) => {
    const drawn = ops.convert(bernoulli(words, 0.5, sizes), dtype);
    return ops.sub(ops.mul(drawn, 2), filled(drawn, 1));
  });
}

/**
 * The number of trials of probability `p` until the first success. @returns int32
 *
 * @example
 * ```ts
 * random.geometric(random.key(0), 0.5, [3]); // [1, 1, 2]
 * ```
 */
export function geometric(key: Tensor, p: Parameter, shape?: ShapeLike): Tensor {
  const own = parameters(key, [p], shape, "float32", "random.geometric");
  return atOnce([key, own.tensors[0]], (words, chance) => {
    const u = uniform(words, own.shape);
    const safe = ops.select(ops.compare("eq", u, 0), filled(u, 1), u);
    const count = ops.floor(ops.div(ops.log(safe), ops.log1p(ops.neg(chance))));
    return ops.convert(ops.add(count, 1), "int32");
  });
}

/**
 * The number of events of rate `lam` in a unit of time. Where all rates are below 10 these are JAX's numbers; for
 * larger ones the same method may reject other candidates, because the last digits of logarithms differ.
 *
 * @returns int32
 *
 * @example
 * ```ts
 * random.poisson(random.key(0), 4, [3]); // [0, 1, 5]
 * ```
 */
export function poisson(key: Tensor, lam: Parameter, shape?: ShapeLike): Tensor {
  const own = parameters(key, [lam], shape, "float32", "random.poisson");
  return atOnce([key, own.tensors[0]], (words, rate) => {
    const isSmall = ops.or(ops.compare("ne", rate, rate), ops.compare("lt", rate, 10));
    const few = countProducts(words, ops.select(isSmall, rate, filled(rate, 0)), own.shape);
    const many = refuseFew(words, ops.select(isSmall, filled(rate, 1e5), rate), own.shape);
    const drawn = ops.select(isSmall, few, many);
    return ops.select(ops.compare("eq", rate, 0), filled(drawn, 0), drawn);
  });
}

/** Knuth's method for small rates: how many uniform values can be multiplied. */
function countProducts(key: Tensor, rate: Tensor, shape: Shape): Tensor {
  type State = readonly [count: Tensor, key: Tensor, log: Tensor];
  const isOpen = (log: Tensor) => ops.compare("gt", log, ops.neg(rate));
  const [count] = whileLoop<State>(
    ([, , log]) => any(isOpen(log)),
    ([counted, words, log]) => {
      const two = split(words);
      const more = ops.select(isOpen(log), ops.add(counted, 1), counted);
      return [more, keyOf(two, 0), ops.add(log, ops.log(uniform(keyOf(two, 1), shape)))];
    },
    [ops.full(shape, 0, "int32"), key, ops.zeros(rate.type)],
  );
  return ops.sub(count, filled(count, 1));
}

/** Hörmann's method for large rates, in which few values are rejected. */
function refuseFew(key: Tensor, rate: Tensor, shape: Shape): Tensor {
  const over = (numerator: number, x: Tensor) => ops.div(filled(x, numerator), x);
  const logRate = ops.log(rate);
  const b = ops.add(ops.mul(ops.sqrt(rate), 2.53), 0.931);
  const a = ops.add(ops.mul(b, 0.02483), -0.059);
  const inverseAlpha = ops.add(over(1.1328, ops.sub(b, 3.4)), 1.1239);
  const limit = ops.sub(filled(b, 0.9277), over(3.6224, ops.sub(b, 2)));
  const attempt = (u: Tensor, v: Tensor): [k: Tensor, accepted: Tensor] => {
    const rest = ops.sub(filled(u, 0.5), ops.abs(u));
    const k = ops.floor(ops.add(ops.add(ops.mul(ops.add(ops.div(ops.mul(a, 2), rest), b), u), rate), 0.43));
    const s = ops.log(ops.div(ops.mul(v, inverseAlpha), ops.add(ops.div(a, ops.mul(rest, rest)), b)));
    const t = ops.sub(ops.add(ops.neg(rate), ops.mul(k, logRate)), lgamma(ops.add(k, 1)));
    return [k, acceptance(k, rest, v, limit, ops.compare("le", s, t))];
  };
  const drawn = untilAccepted(key, shape, rate, attempt);
  return ops.convert(drawn, "int32");
}

function acceptance(k: Tensor, rest: Tensor, v: Tensor, limit: Tensor, isBelow: Tensor): Tensor {
  const atOnceAccepted = ops.and(ops.compare("ge", rest, 0.07), ops.compare("le", v, limit));
  const isRefused = ops.or(
    ops.compare("lt", k, 0),
    ops.and(ops.compare("lt", rest, 0.013), ops.compare("gt", v, rest)),
  );
  return ops.or(atOnceAccepted, ops.and(ops.not(isRefused), isBelow));
}

/** Repeats with new pairs of uniform values until every element is accepted; later values replace earlier ones. */
function untilAccepted(
  key: Tensor,
  shape: Shape,
  like: Tensor,
  attempt: (u: Tensor, v: Tensor) => readonly [value: Tensor, accepted: Tensor],
): Tensor {
  type State = readonly [value: Tensor, accepted: Tensor, key: Tensor];
  const [value] = whileLoop<State>(
    ([, accepted]) => any(ops.not(accepted)),
    ([current, accepted, words]) => {
      const three = split(words, 3);
      const u = ops.sub(uniform(keyOf(three, 1), shape), 0.5);
      const [next, isAccepted] = attempt(u, uniform(keyOf(three, 2), shape));
      return [ops.select(isAccepted, next, current), ops.or(accepted, isAccepted), keyOf(three, 0)];
    },
    [ops.full(shape, -1, like.dtype), ops.full(shape, false, "bool"), key],
  );
  return value;
}

/**
 * The number of successes in `n` trials of probability `p`: JAX's numbers where at most 10 are expected of each.
 *
 * @returns integers as float32; NaN for invalid parameters
 *
 * @example
 * ```ts
 * random.binomial(random.key(0), 10, 0.5, [3]); // [6, 7, 5]
 * ```
 */
export function binomial(key: Tensor, n: Parameter, p: Parameter, shape?: ShapeLike): Tensor {
  const own = parameters(key, [n, p], shape, "float32", "random.binomial");
  return atOnce([key, ...own.tensors], (words, tries, chance) => binomialOf(words, tries, chance, own.shape));
}

function binomialOf(words: Tensor, tries: Tensor, chance: Tensor, shape: Shape): Tensor {
  const isRare = ops.compare("lt", chance, 0.5);
  const given = ops.select(isRare, chance, ops.sub(filled(chance, 1), chance));
  const isNoCount = ops.or(ops.compare("ne", tries, tries), ops.compare("lt", tries, 0));
  const isEndless = ops.compare("eq", ops.abs(tries), Number.POSITIVE_INFINITY);
  const isNoChance = ops.or(ops.compare("ne", given, given), ops.compare("lt", given, 0));
  const q = ops.select(isNoChance, filled(given, 0.01), given);
  const isSmall = ops.or(isNoCount, ops.compare("le", ops.mul(tries, q), 10));
  const count = ops.floor(tries);
  const few = countGeometric(words, ops.select(isSmall, count, filled(count, 0)), q, shape);
  const many = refuseBinomial(
    words,
    ops.select(isSmall, filled(count, 1e4), count),
    ops.select(isSmall, filled(q, 0.5), q),
    shape,
  );
  const drawn = ops.select(isSmall, few, many);
  const isInvalid = ops.or(isNoChance, isNoCount);
  const withNan = ops.select(isInvalid, filled(drawn, Number.NaN), drawn);
  const value = ops.select(
    ops.and(isEndless, ops.not(isInvalid)),
    filled(drawn, Number.POSITIVE_INFINITY),
    withNan,
  );
  const isNan = ops.compare("ne", given, given);
  const asDrawn = ops.or(ops.or(isRare, isNoCount), ops.or(isNan, isEndless));
  return ops.select(asDrawn, value, ops.sub(count, value));
}

/** For few successes: how many waiting times for a success fit into the trials. */
function countGeometric(key: Tensor, count: Tensor, chance: Tensor, shape: Shape): Tensor {
  const log = ops.log1p(ops.neg(chance));
  type State = readonly [successes: Tensor, sum: Tensor, key: Tensor];
  const isOpen = (sum: Tensor) => ops.compare("le", sum, count);
  const [successes] = whileLoop<State>(
    ([, sum]) => any(isOpen(sum)),
    ([counted, sum, words]) => {
      const two = split(words);
      const wait = ops.ceil(ops.div(ops.log(uniform(keyOf(two, 0), shape)), log));
      const more = ops.select(isOpen(sum), ops.add(counted, 1), counted);
      return [more, ops.add(sum, wait), keyOf(two, 1)];
    },
    [ops.zeros(count.type), ops.zeros(count.type), key],
  );
  return ops.sub(successes, filled(successes, 1));
}

/** For many successes: Hörmann's method BTRS. */
function refuseBinomial(key: Tensor, count: Tensor, p: Tensor, shape: Shape): Tensor {
  const rest = ops.sub(filled(p, 1), p);
  const deviation = ops.sqrt(ops.mul(ops.mul(count, p), rest));
  const b = ops.add(ops.mul(deviation, 2.53), 1.15);
  const a = ops.add(ops.add(ops.mul(b, 0.0248), -0.0873), ops.mul(p, 0.01));
  const c = ops.add(ops.mul(count, p), 0.5);
  const over = (numerator: number) => ops.div(filled(b, numerator), b);
  const limit = ops.sub(filled(b, 0.92), over(4.2));
  const ratio = ops.div(p, rest);
  const alpha = ops.mul(ops.add(over(5.1), 2.83), deviation);
  const m = ops.floor(ops.mul(ops.add(count, 1), p));
  const next = (x: Tensor) => ops.add(ops.sub(count, x), 1);
  return untilAccepted(key, shape, p, (u, v) => {
    const us = ops.sub(filled(u, 0.5), ops.abs(u));
    const isSure = ops.and(ops.compare("ge", us, 0.07), ops.compare("le", v, limit));
    const k = ops.floor(ops.add(ops.mul(ops.add(ops.div(ops.mul(a, 2), us), b), u), c));
    const isRefused = ops.or(ops.compare("lt", k, 0), ops.compare("gt", k, count));
    const log = ops.log(ops.div(ops.mul(v, alpha), ops.add(ops.div(a, ops.mul(us, us)), b)));
    const bound = [
      ops.mul(ops.add(m, 0.5), ops.log(ops.div(ops.add(m, 1), ops.mul(ratio, next(m))))),
      ops.mul(ops.add(count, 1), ops.log(ops.div(next(m), next(k)))),
      ops.mul(ops.add(k, 0.5), ops.log(ops.div(ops.mul(ratio, next(k)), ops.add(k, 1)))),
      stirlingTail(m),
      stirlingTail(ops.sub(count, m)),
      ops.neg(stirlingTail(k)),
      ops.neg(stirlingTail(ops.sub(count, k))),
    ].reduce((sum, part) => ops.add(sum, part));
    return [k, ops.or(isSure, ops.and(ops.not(isRefused), ops.compare("le", log, bound)))];
  });
}

const stirlingTails = [
  0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
  0.0138761288230707, 0.0118967099458917, 0.010411265261972, 0.00925546218271273, 0.00833056343336287,
];

/** log k! less Stirling's formula for it. */
function stirlingTail(x: Tensor): Tensor {
  const isSmall = ops.compare("le", x, 9);
  const k = ops.clamp(Tensor.scalar(0, x.dtype), x, Tensor.scalar(9, x.dtype));
  const next = ops.add(k, 1);
  const square = ops.mul(next, next);
  const inner = ops.sub(filled(k, 1 / 360), ops.div(filled(k, 1 / 1260), square));
  const large = ops.div(ops.sub(filled(k, 1 / 12), ops.div(inner, square)), next);
  const whole = ops.floor(k);
  const small = stirlingTails.reduce(
    (value, tail, i) => ops.select(ops.compare("eq", whole, i), filled(k, tail), value),
    filled(k, at(stirlingTails, 0)),
  );
  return ops.select(isSmall, small, large);
}

/**
 * How many of `n` draws fall into each of the categories along the last dim of `p`.
 *
 * @returns float32, which adds up to n along the last dim
 *
 * @example
 * ```ts
 * random.multinomial(random.key(0), 10, np.array([0.5, 0.25, 0.25])); // [7, 2, 1]
 * ```
 */
export function multinomial(key: Tensor, n: Parameter, p: Tensor, given?: Shape): Tensor {
  needTensor(p, "p", "random.multinomial");
  needIfGiven("list", given, "shape", "random.multinomial");
  const shape = given ?? p.shape;
  const caller = "random.multinomial";
  checkKey(key, caller);
  if (!(p instanceof Tensor) || p.ndim < 1) {
    throw new ShapeError(`[${caller}] needs probabilities along a dim, got ${p}`);
  }
  const own = parameters(key, [p], shape, "float32", caller);
  const batch = own.shape.slice(0, -1);
  const count = typeof n === "number" ? Tensor.scalar(n, "float32") : ops.convert(n, "float32");
  return atOnce([key, expandTo(count, batch), own.tensors[0]], (words, tries, chances) => {
    const first = ops.moveDim(chances, chances.ndim - 1, 0);
    const remaining = ops.cumsum(first, 0, true);
    const isOver = ops.compare("eq", remaining, 0);
    const ratios = ops.div(first, ops.select(isOver, filled(remaining, 1), remaining));
    const keys = split(words, at(ratios.shape, 0));
    const [, counts] = scan(
      (rest: Tensor, [ratio, own]: readonly [Tensor, Tensor]) => {
        const chance = ops.clamp(Tensor.scalar(0, "float32"), ratio, Tensor.scalar(1, "float32"));
        const drawn = binomialOf(own, rest, chance, batch);
        return [ops.sub(rest, drawn), drawn] as const;
      },
      tries,
      [ratios, keys] as const,
    );
    return ops.moveDim(counts, 0, batch.length);
  });
}
