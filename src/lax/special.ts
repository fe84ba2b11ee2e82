/** The gamma function and its relatives, and rounding to fewer bits. */

import { need } from "../ir/arguments.js";
import { isFloat } from "../ir/dtype.js";
import { DTypeError, ValueError } from "../ir/errors.js";
import { formatType } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import { needTensor } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { libraryVjp } from "../transforms/derivatives/customVjp.js";
import { withDerivative } from "./composed.js";

const constant = (x: Tensor, value: number) => ops.full(x.shape, value, x.dtype);

/** Computes half-width floats in float32. */
function wide(fn: (x: Tensor) => Tensor, name: string): (x: Tensor) => Tensor {
  return (x) => {
    needTensor(x, "x", `lax.${name}`);
    if (!isFloat(x.dtype)) throw new DTypeError(`[lax.${name}] needs floats, got ${formatType(x.type)}`);
    return ops.convert(fn(x.dtype === "float64" ? x : ops.convert(x, "float32")), x.dtype);
  };
}

/** Lanczos' approximation of the gamma function around 7. */
const lanczos = {
  g: 7,
  base: 0.99999999999980993,
  terms: [
    676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
    -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
  ],
} as const;

/** log Γ(z + 1) for z from −½. */
function logGammaAbove(z: Tensor): Tensor {
  const sum = lanczos.terms.reduce(
    (total, term, i) => ops.add(total, ops.div(constant(z, term), ops.add(z, i + 1))),
    constant(z, lanczos.base),
  );
  const shift = lanczos.g + 0.5;
  const t = ops.add(z, shift);
  const log = ops.add(ops.log1p(ops.div(z, shift)), Math.log(shift));
  const exponent = ops.mul(ops.sub(ops.add(z, 0.5), ops.div(t, log)), log);
  return ops.add(ops.add(exponent, Math.log(2 * Math.PI) / 2), ops.log(sum));
}

/** The distance to the nearest integer, on which reflection depends. */
function fromWhole(x: Tensor): Tensor {
  const size = ops.abs(x);
  const rest = ops.sub(size, ops.floor(size));
  return ops.select(ops.compare("gt", rest, 0.5), ops.sub(constant(x, 1), rest), rest);
}

function logGamma(x: Tensor): Tensor {
  const isLow = ops.compare("lt", x, 0.5);
  const above = logGammaAbove(ops.select(isLow, ops.neg(x), ops.sub(x, 1)));
  // Γ(x) Γ(1 − x) = π / sin(πx).
  const sine = ops.log(ops.sin(ops.mul(fromWhole(x), Math.PI)));
  const mirrored = ops.sub(ops.sub(constant(x, Math.log(Math.PI)), sine), above);
  const reflected = ops.select(ops.finite(sine), mirrored, ops.neg(sine));
  const isInfinite = ops.compare("eq", ops.abs(x), Number.POSITIVE_INFINITY);
  const value = ops.select(isLow, reflected, above);
  return ops.select(isInfinite, constant(x, Number.POSITIVE_INFINITY), value);
}

/** How far arguments are moved up before the series for large ones is used. */
const moved = 8;

/** Sums a series in 1 / y², and one term for each step that x was moved up to y. */
function moveUp(x: Tensor, term: (x: Tensor) => Tensor, series: (y: Tensor) => Tensor): Tensor {
  const isLarge = ops.compare("ge", x, moved);
  const low = ops.select(isLarge, constant(x, 1), x);
  let total = series(ops.select(isLarge, x, ops.add(low, moved)));
  for (let k = moved - 1; k >= 0; k--) {
    total = ops.add(total, ops.select(isLarge, constant(x, 0), term(ops.add(low, k))));
  }
  return total;
}

/** The value of a polynomial, the highest term first. */
function polynomial(x: Tensor, coefficients: readonly number[]): Tensor {
  return coefficients.reduce((sum, c) => ops.add(ops.mul(sum, x), c), constant(x, 0));
}

const one = (x: Tensor) => constant(x, 1);

function digammaAbove(x: Tensor): Tensor {
  const inverse = (t: Tensor) => ops.neg(ops.div(one(t), t));
  return moveUp(x, inverse, (y) => {
    const r = ops.div(one(y), y);
    const square = ops.mul(r, r);
    const tail = ops.mul(square, polynomial(square, [1 / 240, -1 / 252, 1 / 120, -1 / 12]));
    return ops.add(ops.sub(ops.log(y), ops.mul(r, 0.5)), tail);
  });
}

function trigammaAbove(x: Tensor): Tensor {
  const inverse = (t: Tensor) => ops.div(one(t), ops.mul(t, t));
  return moveUp(x, inverse, (y) => {
    const r = ops.div(one(y), y);
    const square = ops.mul(r, r);
    const tail = ops.mul(ops.mul(square, r), polynomial(square, [-1 / 30, 1 / 42, -1 / 30, 1 / 6]));
    return ops.add(ops.add(r, ops.mul(square, 0.5)), tail);
  });
}

/** π · cotangent, and the square of π / sine, of πx, by the distance to the nearest integer. */
function reflections(x: Tensor): { cotangent: Tensor; square: Tensor } {
  const angle = ops.mul(ops.sub(x, ops.round(x)), Math.PI);
  const sine = ops.sin(angle);
  const cotangent = ops.mul(ops.div(ops.cos(angle), sine), Math.PI);
  const ratio = ops.div(constant(x, Math.PI), sine);
  return { cotangent, square: ops.mul(ratio, ratio) };
}

function trigamma(x: Tensor): Tensor {
  const isLow = ops.compare("lt", x, 0.5);
  const above = trigammaAbove(ops.select(isLow, ops.sub(one(x), x), x));
  const at = ops.select(isLow, x, constant(x, 0.5));
  return ops.select(isLow, ops.sub(reflections(at).square, above), above);
}

function digammaOf(x: Tensor): Tensor {
  const isLow = ops.compare("lt", x, 0.5);
  const above = digammaAbove(ops.select(isLow, ops.sub(one(x), x), x));
  const isPole = ops.and(ops.compare("le", x, 0), ops.compare("eq", x, ops.floor(x)));
  const at = ops.select(ops.and(isLow, ops.not(isPole)), x, constant(x, 0.5));
  const value = ops.select(isLow, ops.sub(above, reflections(at).cotangent), above);
  return ops.select(isPole, constant(x, Number.NaN), value);
}

const digammaRule = withDerivative(digammaOf, trigamma);

/**
 * The logarithm of the size of the gamma function.
 *
 * @example
 * ```ts
 * lax.lgamma(np.array([3, 5])); // [0.6931, 3.178]
 * ```
 */
export const lgamma: (x: Tensor) => Tensor = wide(withDerivative(logGamma, digammaRule), "lgamma");

/**
 * The derivative of {@link lgamma}; NaN at 0, −1, −2 ….
 *
 * @example
 * ```ts
 * lax.digamma(np.array([1, 2])); // [-0.5772, 0.4228]
 * ```
 */
export const digamma: (x: Tensor) => Tensor = wide(digammaRule, "digamma");

/**
 * Rounds floats to fewer bits, to the nearest with ties to even: what is too large becomes infinite, what is too small
 * 0. The cotangent is rounded likewise.
 *
 * @example
 * ```ts
 * lax.reducePrecision(np.array([1.001]), 5, 2); // [1]
 * ```
 */
export function reducePrecision(x: Tensor, exponentBits: number, mantissaBits: number): Tensor {
  needTensor(x, "x", "lax.reducePrecision");
  need("number", exponentBits, "exponentBits", "lax.reducePrecision");
  need("number", mantissaBits, "mantissaBits", "lax.reducePrecision");
  if (!isFloat(x.dtype) || x.dtype === "float64") {
    throw new DTypeError(`[lax.reducePrecision] rounds float32 and narrower, got ${formatType(x.type)}`);
  }
  const fits = (n: number, least: number) => Number.isInteger(n) && n >= least;
  if (!fits(exponentBits, 1) || !fits(mantissaBits, 0)) {
    throw new ValueError(
      `[lax.reducePrecision] ${exponentBits} bits of exponent and ${mantissaBits} of mantissa: use at least 1 and 0`,
    );
  }
  const round = (t: Tensor) => rounded(t, Math.min(8, exponentBits), Math.min(23, mantissaBits));
  const rule: (t: Tensor) => Tensor = libraryVjp(round, {
    forward: (t) => [round(t), null],
    backward: (_, ct) => [rule(ct)],
  });
  return rule(x);
}

function rounded(given: Tensor, exponentBits: number, mantissaBits: number): Tensor {
  const x = ops.convert(given, "float32");
  const word = (value: number) => ops.full(x.shape, value, "uint32");
  let bits = ops.bitcast(x, "uint32");
  const sign = ops.and(bits, word(0x80000000));
  const drop = 23 - mantissaBits;
  if (drop > 0) {
    const last = ops.and(ops.shrLogical(bits, word(drop)), word(1));
    const half = ops.add(last, word(2 ** (drop - 1) - 1));
    bits = ops.and(ops.add(bits, half), word(2 ** 32 - 2 ** drop));
  }
  if (exponentBits < 8) {
    const reach = 2 ** (exponentBits - 1) - 1;
    const exponent = ops.and(bits, word(0x7f800000));
    const [least, most] = [(127 - reach) * 2 ** 23, (127 + reach) * 2 ** 23];
    const limited = ops.select(ops.compare("gt", exponent, word(most)), ops.or(sign, word(0x7f800000)), bits);
    bits = ops.select(ops.compare("le", exponent, word(least)), sign, limited);
  }
  const value = ops.select(ops.compare("ne", x, x), x, ops.bitcast(bits, "float32"));
  return ops.convert(value, given.dtype);
}
