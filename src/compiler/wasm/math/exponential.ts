import { float32Bits, type Vec, type VecBuilder } from "../vectorProgram.js";

const LOG2_E = Math.LOG2E;
/** ln 2 in two parts; the first has so few bits that its product with any exponent is exact. */
const LN2_HIGH = 0.693359375;
const LN2_LOW = -2.1219444e-4;
/** Adding 1.5 · 2^23 rounds to an integer and leaves that integer in the low bits. */
const ROUNDING_MAGIC = 12582912;
/** 2^n is applied as two powers of two whose biased exponents add up to n + 254. */
const DOUBLE_BIAS = 254;

/** (e^r − 1 − r) / r² on |r| ≤ ln 2 / 2, off by at most a twentieth of a unit in e^r's last place. */
const EXP_COEFFICIENTS = [1.3814599e-3, 8.3687166e-3, 4.1668389e-2, 1.66665211e-1, 4.9999994e-1];

function exponentSplit(b: VecBuilder, x: Vec, bias: number): { r: Vec; biased: Vec } {
  if (b.features.gpu) {
    // Compilers of GPUs may simplify x + magic − magic to x.
    const n = b.op("f32x4.nearest", b.mul(x, b.f32(LOG2_E)));
    const r = b.nmadd(n, b.f32(LN2_LOW), b.nmadd(n, b.f32(LN2_HIGH), x));
    const integer = b.add(n, b.f32(ROUNDING_MAGIC));
    return { r, biased: b.iadd(integer, b.i32(bias - float32Bits(ROUNDING_MAGIC))) };
  }
  const magic = b.f32(ROUNDING_MAGIC + bias);
  const biased = b.madd(x, b.f32(LOG2_E), magic);
  const n = b.sub(biased, magic);
  const r = b.nmadd(n, b.f32(LN2_LOW), b.nmadd(n, b.f32(LN2_HIGH), x));
  return { r, biased };
}

/** Below this e^x is 0. */
const LEAST = -104;

/**
 * A power of two, or 0 where e^x is: a product that is too small even for a denormal takes some processors a hundred
 * times as long as a product with 0, and masked softmaxes are full of them.
 */
function unlessZero(b: VecBuilder, x: Vec, power: Vec): Vec {
  return b.and(b.op("f32x4.gt", x, b.f32(LEAST)), power);
}

/** e^x, down to denormals and 0 and up to infinity. */
export function exp(b: VecBuilder, x: Vec): Vec {
  const clamped = b.atMost(b.atLeast(x, -105), 89);
  const { r, biased } = exponentSplit(b, clamped, DOUBLE_BIAS);
  const p = b.add(b.madd(b.mul(r, r), b.poly(r, EXP_COEFFICIENTS), r), b.f32(1));
  const half = b.isar(biased, 1);
  const other = b.isub(biased, half);
  return b.mul(b.mul(p, b.ishl(half, 23)), unlessZero(b, x, b.ishl(other, 23)));
}

/** Makes an even bias as `DOUBLE_BIAS` is, so that ties go to the same n and results have the bits of `exp`. */
const BELOW_ZERO_SHIFT = 65;

/** e^x for x ≤ 0, where one power of two and a constant one reach all the way down to denormals. */
export function expBelowZero(b: VecBuilder, x: Vec): Vec {
  const { r, biased } = exponentSplit(b, b.atLeast(x, -105), 127 + BELOW_ZERO_SHIFT);
  const p = b.add(b.madd(b.mul(r, r), b.poly(r, EXP_COEFFICIENTS), r), b.f32(1));
  return b.mul(b.mul(p, b.ishl(biased, 23)), unlessZero(b, x, b.f32(2 ** -BELOW_ZERO_SHIFT)));
}

/** e^x − 1 without cancellation near 0. */
export function expm1(b: VecBuilder, x: Vec): Vec {
  const clamped = b.atMost(b.atLeast(x, -18), 89);
  // Half of 2^n, so that n = 128 stays finite until the end.
  const { r, biased } = exponentSplit(b, clamped, 126);
  const halfScale = b.ishl(biased, 23);
  const p = b.madd(b.mul(r, r), b.poly(r, EXP_COEFFICIENTS), r);
  const half = b.madd(halfScale, p, b.sub(halfScale, b.f32(0.5)));
  // Tiny arguments are their own result; the halving above would round denormals and lose −0.
  const tiny = b.op("f32x4.lt", b.abs(x), b.f32(2 ** -25));
  return b.select(tiny, x, b.add(half, half));
}

/** (log(1 + f) − f + f² / 2) / f³ on [√½ − 1, √2 − 1]. */
const LOG_COEFFICIENTS = [
  7.0376836292e-2, -1.151461031e-1, 1.167699874e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
  2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
];

/** What is known of a logarithm's argument besides its float32. */
interface LogArgument {
  /** What is added to the exponent. */
  readonly exponentBias?: Vec;
  /** The low-order part: the logarithm is log(u) + tail / u. */
  readonly tail?: Vec;
  /** u − 1, exactly. */
  readonly beyondOne?: Vec;
}

/** log of a positive normal `u`. */
function logOfNormal(b: VecBuilder, u: Vec, { exponentBias, tail, beyondOne }: LogArgument): Vec {
  const offset = b.i32(float32Bits(Math.SQRT1_2));
  const exponent = b.isar(b.isub(u, offset), 23);
  const rounded = b.sub(b.isub(u, b.ishl(exponent, 23)), b.f32(1));
  const isNearOne = () => b.op("i32x4.eq", exponent, b.i32(0));
  const f = beyondOne === undefined ? rounded : b.select(isNearOne(), beyondOne, rounded);
  const unbiased = b.op("f32x4.convert_i32x4_s", exponent);
  const e = exponentBias === undefined ? unbiased : b.add(unbiased, exponentBias);
  const z = b.mul(f, f);
  let low = b.mul(b.mul(b.poly(f, LOG_COEFFICIENTS), f), z);
  low = b.madd(e, b.f32(LN2_LOW), low);
  low = b.nmadd(z, b.f32(0.5), low);
  if (tail !== undefined) low = b.madd(tail, b.div(b.f32(1), u), low);
  return b.madd(e, b.f32(LN2_HIGH), b.add(f, low));
}

/** Puts −∞ where x is `zero`, NaN below and x itself where it is +∞ or NaN. */
function logSpecials(b: VecBuilder, x: Vec, result: Vec, zero: Vec): Vec {
  const negative = b.op("f32x4.lt", x, zero);
  const withPole = b.select(b.op("f32x4.eq", x, zero), b.f32(-Infinity), b.or(result, negative));
  return b.select(b.op("f32x4.lt", x, b.f32(Infinity)), withPole, x);
}

/** Natural logarithm, denormals included. */
export function log(b: VecBuilder, x: Vec): Vec {
  const denormal = b.op("f32x4.lt", x, b.f32(2 ** -126));
  const scaled = b.select(denormal, b.mul(x, b.f32(2 ** 23)), x);
  const exponentBias = b.and(denormal, b.f32(-23));
  return logSpecials(b, x, logOfNormal(b, scaled, { exponentBias }), b.f32(0));
}

/** What rounding u = 1 + x dropped, exact whichever of the two is larger. */
function lostBySum(b: VecBuilder, x: Vec, u: Vec): Vec {
  const one = b.f32(1);
  const large = b.op("f32x4.gt", x, one);
  return b.select(large, b.sub(one, b.sub(u, x)), b.sub(x, b.sub(u, one)));
}

/** log(1 + x) without cancellation near 0. */
export function log1p(b: VecBuilder, x: Vec): Vec {
  const one = b.f32(1);
  const u = b.add(x, one);
  // Compilers of GPUs may find that nothing is lost; far from 1 that is a unit or two of the logarithm.
  const known = b.features.gpu ? { beyondOne: x } : { tail: lostBySum(b, x, u) };
  const result = logSpecials(b, x, logOfNormal(b, u, known), b.f32(-1));
  const tiny = b.op("f32x4.lt", b.abs(x), b.f32(2 ** -25));
  return b.select(tiny, x, result);
}

/** x + x³ · N(x²) over D(x²). */
const TANH_NUMERATOR = [1.394553628e-8, 2.10273356e-5, 3.520756727e-3, 1.3402161e-1];
const TANH_DENOMINATOR = [8.015776984e-7, 3.326951409e-4, 2.597254514e-2, 4.67354834e-1, 1];
/** The smallest argument whose ratio is exactly 1, which depends on how the products are rounded. */
const TANH_SATURATION = { fused: 8.017734, unfused: 7.9073896 };

/** Hyperbolic tangent; exactly ±1 for large arguments. */
export function tanh(b: VecBuilder, x: Vec): Vec {
  const limit = b.features.fma ? TANH_SATURATION.fused : TANH_SATURATION.unfused;
  const c = b.atMost(b.atLeast(x, -limit), limit);
  const z = b.mul(c, c);
  const numerator = b.madd(b.mul(z, c), b.poly(z, TANH_NUMERATOR), c);
  const ratio = quotient(b, numerator, b.poly(z, TANH_DENOMINATOR));
  // A GPU may or may not fuse products with sums.
  return b.features.gpu ? b.atMost(b.atLeast(ratio, -1), 1) : ratio;
}

/** 1 / (1 + e^−x), down to denormals. */
export function logistic(b: VecBuilder, x: Vec): Vec {
  const one = b.f32(1);
  const e = exp(b, b.neg(b.abs(x)));
  const numerator = b.select(b.op("f32x4.ge", x, b.f32(0)), one, e);
  return quotient(b, numerator, b.add(one, e));
}

/**
 * A quotient by a number from 1 to some thousand. GPUs take forty instructions to round any quotient correctly, and a
 * quarter of that for one that is at most a unit in the last place off.
 */
function quotient(b: VecBuilder, numerator: Vec, denominator: Vec): Vec {
  if (!b.features.gpu) return b.div(numerator, denominator);
  // An eighth off, then a sixty-fourth …: Newton's steps square the error.
  let inverse = b.isub(b.i32(0x7ef311c7), denominator);
  for (let i = 0; i < 3; i++) inverse = b.mul(inverse, b.nmadd(denominator, inverse, b.f32(2)));
  const product = b.mul(numerator, inverse);
  // The nearest float where the GPU rounds these once.
  const rest = b.nmadd(product, denominator, numerator);
  return b.madd(rest, inverse, product);
}

/** The magnitude of `magnitude` with the sign of `sign`. */
export function copySign(b: VecBuilder, magnitude: Vec, sign: Vec): Vec {
  return b.select(b.i32(0x80000000), sign, magnitude);
}
