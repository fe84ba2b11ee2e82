import type { Vec, VecBuilder } from "../vectorProgram.js";
import { copySign } from "./exponential.js";

/** Square root, correctly rounded. */
export function sqrt(b: VecBuilder, x: Vec): Vec {
  return b.op("f32x4.sqrt", x);
}

/** 1 / √x. */
export function rsqrt(b: VecBuilder, x: Vec): Vec {
  return b.div(b.f32(1), b.op("f32x4.sqrt", x));
}

/** Cube root of either sign. */
export function cbrt(b: VecBuilder, x: Vec): Vec {
  const magnitude = b.abs(x);
  const denormal = b.op("f32x4.lt", magnitude, b.f32(2 ** -126));
  const a = b.select(denormal, b.mul(magnitude, b.f32(2 ** 24)), magnitude);
  // A third of the exponent gives a guess within 4 %; one step of Halley and one of a series polish it.
  const third = b.mul(b.op("f32x4.convert_i32x4_s", a), b.f32(1 / 3));
  const guess = b.iadd(b.op("i32x4.trunc_sat_f32x4_s", third), b.i32(0x2a5119f2));
  const one = b.f32(1);
  const two = b.f32(2);
  const q = b.mul(b.mul(guess, guess), b.div(guess, a));
  const t = b.div(b.mul(guess, b.add(q, two)), b.madd(q, two, one));
  const error = b.sub(b.mul(b.mul(t, t), b.div(t, a)), one);
  const step = b.mul(error, b.nmadd(error, b.f32(2 / 9), b.f32(1 / 3)));
  const root = b.nmadd(t, step, t);
  const scaled = b.select(denormal, b.mul(root, b.f32(2 ** -8)), root);
  const ordinary = b.and(b.op("f32x4.gt", magnitude, b.f32(0)), b.op("f32x4.lt", magnitude, b.f32(Infinity)));
  return b.select(ordinary, copySign(b, scaled, x), x);
}

const DOUBLE_ROUNDING_MAGIC = 6755399441055744;
const LOG2_SERIES = [1 / 13, 1 / 11, 1 / 9, 1 / 7, 1 / 5, 1 / 3, 1];
const EXP2_SERIES = Array.from({ length: 9 }, (_, index) => {
  const power = 8 - index;
  let term = 1;
  for (let i = 1; i <= power; i++) term *= Math.LN2 / i;
  return term;
});

/** 2^(y · log2 x) for two positive float64 lanes, with room to spare for a float32 result. */
function powerOfHalf(b: VecBuilder, x: Vec, y: Vec): Vec {
  const one = b.f64(1);
  // Exponent and mantissa around √½, as in the single-precision logarithm.
  const exponent = b.shift("i64x2.shr_s", b.op("i64x2.sub", x, b.f64(Math.SQRT1_2)), 52);
  const m = b.op("i64x2.sub", x, b.shift("i64x2.shl", exponent, 52));
  const e = b.op("f64x2.convert_low_i32x4_s", b.shuffle(exponent, exponent, [0, 2, 0, 2]));
  const s = b.op("f64x2.div", b.op("f64x2.sub", m, one), b.op("f64x2.add", m, one));
  const series = b.dpoly(b.op("f64x2.mul", s, s), LOG2_SERIES);
  const fraction = b.op("f64x2.mul", b.op("f64x2.mul", s, b.f64(2 / Math.LN2)), series);
  const finite = b.op("f64x2.add", e, fraction);
  const zero = b.op("f64x2.eq", x, b.f64(0));
  const log2 = b.select(b.op("f64x2.lt", x, b.f64(Infinity)), b.select(zero, b.f64(-Infinity), finite), x);
  const t = b.op("f64x2.min", b.op("f64x2.max", b.op("f64x2.mul", y, log2), b.f64(-300)), b.f64(300));
  const magic = b.f64(DOUBLE_ROUNDING_MAGIC + 1023);
  const biased = b.op("f64x2.add", t, magic);
  const f = b.op("f64x2.sub", t, b.op("f64x2.sub", biased, magic));
  return b.op("f64x2.mul", b.dpoly(f, EXP2_SERIES), b.shift("i64x2.shl", biased, 52));
}

/** x^y for x ≥ 0. */
function powerOfPositive(b: VecBuilder, x: Vec, y: Vec): Vec {
  if (b.features.gpu) return b.host("pow", x, y);
  const [xLow, xHigh] = b.halves("f64x2.promote_low_f32x4", x);
  const [yLow, yHigh] = b.halves("f64x2.promote_low_f32x4", y);
  return b.join(
    b.op("f32x4.demote_f64x2_zero", powerOfHalf(b, xLow, yLow)),
    b.op("f32x4.demote_f64x2_zero", powerOfHalf(b, xHigh, yHigh)),
  );
}

/** x^y with the special cases of C's `pow`: 1^y and x^0 are 1 even for NaN, (−1)^±∞ is 1. */
export function pow(b: VecBuilder, x: Vec, y: Vec): Vec {
  const one = b.f32(1);
  const zero = b.f32(0);
  const infinity = b.f32(Infinity);
  const magnitude = b.abs(x);
  const positive = powerOfPositive(b, magnitude, y);
  const integer = b.op("f32x4.eq", y, b.op("f32x4.nearest", y));
  const half = b.mul(y, b.f32(0.5));
  const odd = b.and(integer, b.op("f32x4.ne", half, b.op("f32x4.nearest", half)));
  const signed = b.xor(positive, b.and(b.and(x, b.i32(0x80000000)), odd));
  const undefinedRoot = b.and(
    b.and(b.op("f32x4.lt", x, zero), b.op("f32x4.gt", x, b.f32(-Infinity))),
    b.op("v128.not", integer),
  );
  // Setting every bit makes a NaN; a NaN exponent counts as no integer, which is right too.
  const result = b.or(signed, undefinedRoot);
  const unitBase = b.and(b.op("f32x4.eq", magnitude, one), b.op("f32x4.eq", b.abs(y), infinity));
  const isOne = b.or(b.or(b.op("f32x4.eq", y, zero), b.op("f32x4.eq", x, one)), unitBase);
  return b.select(isOne, one, result);
}

/** Quotients up to this size have exact products in float64. */
const EXACT_QUOTIENT = 2 ** 29;

/** The remainder of truncated division, with the sign of x, exact as `x % y` in JavaScript. */
export function rem(b: VecBuilder, x: Vec, y: Vec): Vec {
  if (b.features.gpu) return b.host("rem", x, y);
  const ax = b.abs(x);
  const ay = b.abs(y);
  const [xs, ys] = [b.halves("f64x2.promote_low_f32x4", ax), b.halves("f64x2.promote_low_f32x4", ay)];
  const half = (p: Vec, q: Vec): Vec => {
    const quotient = b.op("f64x2.trunc", b.op("f64x2.div", p, q));
    const r = b.op("f64x2.sub", p, b.op("f64x2.mul", quotient, q));
    const below = b.op("f64x2.lt", r, b.f64(0));
    return b.op("f32x4.demote_f64x2_zero", b.op("f64x2.add", r, b.and(below, q)));
  };
  const near = copySign(b, b.join(half(xs[0], ys[0]), half(xs[1], ys[1])), x);
  const easy = b.and(
    b.op("f32x4.lt", b.div(ax, ay), b.f32(EXACT_QUOTIENT)),
    b.op("f32x4.lt", ay, b.f32(Infinity)),
  );
  return b.patch(near, b.op("v128.not", easy), "rem", x, y);
}
