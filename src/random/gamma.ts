/** The gamma distribution and those that follow from it. */
import { need } from "../ir/arguments.js";
import { ShapeError } from "../ir/errors.js";
import { at, sizeOf } from "../ir/shape.js";
import * as lax from "../lax/index.js";
import type { DTypeOption, ShapeLike } from "../numpy/operands.js";
import * as ops from "../trace/ops.js";
import { needTensor } from "../trace/promote.js";
import { Tensor } from "../trace/tensor.js";
import { vmap } from "../transforms/batching/vmap.js";
import { whileLoop } from "../transforms/control/whileLoop.js";
import { libraryVjp } from "../transforms/derivatives/customVjp.js";
import { exponential, layouts, normal, uniform } from "./floats.js";
import { atOnce, checkKey, drawnShape, split } from "./keys.js";
import { keyOf, type Parameter, parameters } from "./parameters.js";

/**
 * A value of the gamma distribution of every shape parameter, or its logarithm. The derivative with respect to
 * the parameter keeps the share of the distribution below the value.
 */
function draw(words: Tensor, a: Tensor, isLog: boolean): Tensor {
  const rule = libraryVjp((alpha: Tensor) => drawAll(words, alpha, isLog), {
    forward: (alpha) => {
      const drawn = drawAll(words, alpha, isLog);
      return [drawn, [alpha, drawn] as const];
    },
    backward: ([alpha, drawn], ct) => {
      if (!isLog) return [ops.mul(ct, lax.randomGammaGrad(alpha, drawn))];
      // The value may be too small for its type where its logarithm is not.
      const value = ops.max(
        ops.exp(drawn),
        layouts[alpha.dtype === "float64" ? "float64" : "float32"].smallestNormal,
      );
      return [ops.mul(ct, ops.div(lax.randomGammaGrad(alpha, value), value))];
    },
  });
  return rule(a);
}

function drawAll(words: Tensor, a: Tensor, isLog: boolean): Tensor {
  const count = sizeOf(a.shape);
  if (count === 0) return a;
  const keys = split(words, count);
  const values = vmap((key: Tensor, alpha: Tensor) => drawOne(key, alpha, isLog))(
    keys,
    ops.reshape(a, [count]),
  );
  return ops.reshape(values, a.shape);
}

/** What a try of {@link drawOne} leaves: the key of the next one, x², v³ and u. */
type Try = readonly [key: Tensor, square: Tensor, cube: Tensor, u: Tensor];

/** Marsaglia and Tsang's method: cubes of normal values, of which few are rejected. */
function drawOne(key: Tensor, given: Tensor, isLog: boolean): Tensor {
  const { dtype } = given;
  const constant = (value: number) => Tensor.scalar(value, dtype);
  const isLarge = ops.compare("ge", given, 1);
  const alpha = ops.select(isLarge, given, ops.add(given, 1));
  const d = ops.sub(alpha, 1 / 3);
  const c = ops.div(constant(1 / 3), ops.sqrt(d));
  const keys = split(key);
  const isRefused = ([, square, cube, u]: Try) => {
    const isOutside = ops.compare("ge", u, ops.sub(constant(1), ops.mul(ops.mul(square, square), 0.0331)));
    const bound = ops.add(
      ops.mul(square, 0.5),
      ops.mul(d, ops.add(ops.sub(constant(1), cube), ops.log(cube))),
    );
    return ops.and(isOutside, ops.compare("ge", ops.log(u), bound));
  };
  const next = ([words]: Try): Try => {
    const three = split(words, 3);
    const [x, v] = aboveZero(keyOf(three, 1), c);
    const u = uniform(keyOf(three, 2), [], { dtype });
    return [keyOf(three, 0), ops.mul(x, x), ops.mul(ops.mul(v, v), v), u];
  };
  const start: Try = [keyOf(keys, 0), constant(0), constant(1), constant(2)];
  const [, , cube] = whileLoop(isRefused, next, start);
  const exponent = ops.div(constant(1), given);
  if (isLog) {
    const log = ops.neg(exponential(keyOf(keys, 1), [], dtype));
    const isPlain = ops.or(isLarge, ops.compare("eq", log, 0));
    const boost = ops.select(isPlain, constant(0), ops.mul(log, exponent));
    return ops.add(ops.add(ops.log(d), ops.log(cube)), boost);
  }
  const u = ops.sub(constant(1), uniform(keyOf(keys, 1), [], { dtype }));
  return ops.mul(ops.mul(d, cube), ops.select(isLarge, constant(1), ops.pow(u, exponent)));
}

/** A normal value x for which v = 1 + c x is positive, and v. */
function aboveZero(key: Tensor, c: Tensor): [x: Tensor, v: Tensor] {
  const { dtype } = c;
  type State = readonly [key: Tensor, x: Tensor, v: Tensor];
  const [, x, v] = whileLoop<State>(
    ([, , value]) => ops.compare("le", value, 0),
    ([words]) => {
      const two = split(words);
      const drawn = normal(keyOf(two, 1), [], dtype);
      return [keyOf(two, 0), drawn, ops.add(ops.mul(drawn, c), 1)];
    },
    [key, Tensor.scalar(0, dtype), Tensor.scalar(-1, dtype)],
  );
  return [x, v];
}

/**
 * Values of the gamma distribution with shape parameter `a` and scale 1. @param shape by default that of `a`
 *
 * @example
 * ```ts
 * random.gamma(random.key(0), 2, [2]); // [1.59, 1.76]
 * ```
 */
export function gamma(key: Tensor, a: Parameter, shape?: ShapeLike, dtype?: DTypeOption): Tensor {
  const { tensors } = parameters(key, [a], shape, dtype, "random.gamma");
  return atOnce([key, tensors[0]], (words, alpha) => draw(words, alpha, false));
}

/**
 * Logarithms of values of {@link gamma}, precise where those would vanish.
 *
 * @example
 * ```ts
 * random.loggamma(random.key(0), 2, [2]); // [0.4636, 0.5653]
 * ```
 */
export function loggamma(key: Tensor, a: Parameter, shape?: ShapeLike, dtype?: DTypeOption): Tensor {
  const { tensors } = parameters(key, [a], shape, dtype, "random.loggamma");
  return atOnce([key, tensors[0]], (words, alpha) => draw(words, alpha, true));
}

/**
 * Values of the beta distribution. @param shape by default the shape that `a` and `b` have together
 *
 * @example
 * ```ts
 * random.beta(random.key(0), 2, 3, [2]); // [0.2363, 0.4905]
 * ```
 */
export function beta(
  key: Tensor,
  a: Parameter,
  b: Parameter,
  shape?: ShapeLike,
  dtype?: DTypeOption,
): Tensor {
  const { tensors } = parameters(key, [a, b], shape, dtype, "random.beta");
  return atOnce([key, ...tensors], (words, first, second) => {
    const keys = split(words);
    const [x, y] = [draw(keyOf(keys, 0), first, true), draw(keyOf(keys, 1), second, true)];
    const largest = ops.max(x, y);
    const [p, q] = [ops.exp(ops.sub(x, largest)), ops.exp(ops.sub(y, largest))];
    return ops.div(p, ops.add(p, q));
  });
}

/**
 * Values of the Dirichlet distribution: positive numbers along the last dim that add up to 1.
 *
 * @param alpha the concentrations along the last dim
 * @param shape the dims before the last one; by default those of `alpha`
 *
 * @example
 * ```ts
 * random.dirichlet(random.key(0), np.array([1, 1, 1])); // [0.3647, 0.4283, 0.207]
 * ```
 */
export function dirichlet(key: Tensor, alpha: Tensor, shape?: ShapeLike, dtype?: DTypeOption): Tensor {
  checkKey(key, "random.dirichlet");
  needTensor(alpha, "alpha", "random.dirichlet");
  const caller = "random.dirichlet";
  if (!(alpha instanceof Tensor) || alpha.ndim < 1) {
    throw new ShapeError(`[${caller}] needs concentrations along a dim, got ${alpha}`);
  }
  const n = at(alpha.shape, alpha.ndim - 1);
  const full = shape === undefined ? alpha.shape : [...drawnShape(shape, caller), n];
  const { tensors } = parameters(key, [alpha], full, dtype, caller);
  return atOnce([key, tensors[0]], (words, concentration) => {
    const logs = draw(words, concentration, true);
    const last = logs.ndim - 1;
    const along = (x: Tensor) =>
      ops.broadcastInDim(x, logs.shape, logs.shape.map((_, d) => d).slice(0, last));
    const shares = ops.exp(ops.sub(logs, along(ops.reduceMax(logs, [last]))));
    return ops.div(shares, along(ops.reduceSum(shares, [last])));
  });
}

/**
 * Values of Student's t distribution. @param df the degrees of freedom
 *
 * @example
 * ```ts
 * random.t(random.key(0), 3, [2]); // [0.6902, -3.239]
 * ```
 */
export function t(key: Tensor, df: Parameter, shape?: ShapeLike, dtype?: DTypeOption): Tensor {
  const own = parameters(key, [df], shape, dtype, "random.t");
  return atOnce([key, own.tensors[0]], (words, degrees) => {
    const keys = split(words);
    const drawn = normal(keyOf(keys, 0), own.shape, own.dtype);
    const half = ops.mul(degrees, 0.5);
    return ops.mul(drawn, ops.sqrt(ops.div(half, draw(keyOf(keys, 1), half, false))));
  });
}

/**
 * Values of the chi-square distribution. @param df the degrees of freedom
 *
 * @example
 * ```ts
 * random.chisquare(random.key(0), 3, [2]); // [2.205, 2.49]
 * ```
 */
export function chisquare(key: Tensor, df: Parameter, shape?: ShapeLike, dtype?: DTypeOption): Tensor {
  const { tensors } = parameters(key, [df], shape, dtype, "random.chisquare");
  return atOnce([key, tensors[0]], (words, degrees) =>
    ops.mul(ops.exp(draw(words, ops.mul(degrees, 0.5), true)), 2),
  );
}

/**
 * Values of the F distribution.
 *
 * @param dfnum the degrees of freedom of the numerator
 * @param dfden the degrees of freedom of the denominator
 *
 * @example
 * ```ts
 * random.f(random.key(0), 3, 5, [2]); // [2.58, 0.1922]
 * ```
 */
export function f(
  key: Tensor,
  dfnum: Parameter,
  dfden: Parameter,
  shape?: ShapeLike,
  dtype?: DTypeOption,
): Tensor {
  const { tensors } = parameters(key, [dfnum, dfden], shape, dtype, "random.f");
  return atOnce([key, ...tensors], (words, above, below) => {
    const keys = split(words);
    const mean = (index: number, degrees: Tensor) => ops.div(chisquare(keyOf(keys, index), degrees), degrees);
    return ops.div(mean(1, above), mean(0, below));
  });
}

/**
 * Values whose density falls like exp(−|x|ᵖ).
 *
 * @example
 * ```ts
 * random.generalizedNormal(random.key(0), 3, [2]); // [0.8928, 0.0965]
 * ```
 */
export function generalizedNormal(
  key: Tensor,
  p: number,
  shape: ShapeLike = [],
  dtype?: DTypeOption,
): Tensor {
  checkKey(key, "random.generalizedNormal");
  need("number", p, "p", "random.generalizedNormal");
  const own = parameters(key, [1 / p], shape, dtype, "random.generalizedNormal");
  return atOnce([key], (words) => {
    const keys = split(words);
    const size = ops.pow(draw(keyOf(keys, 0), ops.full(own.shape, 1 / p, own.dtype), false), 1 / p);
    const isPositive = ops.compare("lt", uniform(keyOf(keys, 1), own.shape), 0.5);
    return ops.select(isPositive, size, ops.neg(size));
  });
}

/**
 * Points evenly spread in the ball of radius 1.
 *
 * @param d the number of coordinates, along the last dim
 * @param p the order of the norm that defines the ball
 *
 * @example
 * ```ts
 * random.ball(random.key(0), 2); // [0.9172, 0.3928]
 * ```
 */
export function ball(key: Tensor, d: number, p = 2, shape: ShapeLike = [], dtype?: DTypeOption): Tensor {
  const own = parameters(key, [p], shape, dtype, "random.ball");
  return atOnce([key], (words) => {
    const keys = split(words);
    const point = generalizedNormal(keyOf(keys, 0), p, [...own.shape, d], own.dtype);
    const more = exponential(keyOf(keys, 1), own.shape, own.dtype);
    const sum = ops.reduceSum(ops.pow(ops.abs(point), p), [own.shape.length]);
    const radius = ops.pow(ops.add(sum, more), 1 / p);
    return ops.div(
      point,
      ops.broadcastInDim(
        radius,
        point.shape,
        own.shape.map((_, i) => i),
      ),
    );
  });
}
