import type { Vec, VecBuilder } from "../vectorProgram.js";
import { copySign } from "./exponential.js";

/** π/2 in two float64 parts; the first has 25 bits, so multiples up to 2^28 are exact. */
const HALF_PI_HIGH = 1.5707963109016418;
const HALF_PI_LOW = 1.5893254773528196e-8;
const DOUBLE_ROUNDING_MAGIC = 6755399441055744;
/** Beyond this the float64 reduction is no longer exact and the host's functions take over. */
const REDUCTION_LIMIT = 2 ** 28;

const SIN_COEFFICIENTS = [-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1];
const COS_COEFFICIENTS = [2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2];

function reduce(b: VecBuilder, x: Vec): { r: Vec; quadrant: Vec } {
  const magic = b.f64(DOUBLE_ROUNDING_MAGIC);
  const parts = b.halves("f64x2.promote_low_f32x4", x).map((half) => {
    const shifted = b.op("f64x2.add", b.op("f64x2.mul", half, b.f64(2 / Math.PI)), magic);
    const n = b.op("f64x2.sub", shifted, magic);
    const coarse = b.op("f64x2.sub", half, b.op("f64x2.mul", n, b.f64(HALF_PI_HIGH)));
    const r = b.op("f64x2.sub", coarse, b.op("f64x2.mul", n, b.f64(HALF_PI_LOW)));
    return { shifted, r: b.op("f32x4.demote_f64x2_zero", r) };
  });
  const [low, high] = parts;
  if (low === undefined || high === undefined) throw new Error("[reduce] a vector has two halves");
  return { r: b.join(low.r, high.r), quadrant: b.shuffle(low.shifted, high.shifted, [0, 2, 4, 6]) };
}

function sineOfQuadrant(b: VecBuilder, r: Vec, quadrant: Vec): Vec {
  const z = b.mul(r, r);
  const one = b.f32(1);
  const sine = b.mul(r, b.madd(z, b.poly(z, SIN_COEFFICIENTS), one));
  const cosine = b.madd(b.mul(z, z), b.poly(z, COS_COEFFICIENTS), b.nmadd(z, b.f32(0.5), one));
  const odd = b.op("i32x4.ne", b.and(quadrant, b.i32(1)), b.i32(0));
  const sign = b.ishl(b.and(quadrant, b.i32(2)), 30);
  return b.xor(b.select(odd, cosine, sine), sign);
}

/** Sine, accurate for every float32. */
export function sin(b: VecBuilder, x: Vec): Vec {
  return shiftedSine(b, x, "sin", 0);
}

/** Cosine, accurate for every float32. */
export function cos(b: VecBuilder, x: Vec): Vec {
  return shiftedSine(b, x, "cos", 1);
}

/** The sine some quadrants further on. */
function shiftedSine(b: VecBuilder, x: Vec, name: "sin" | "cos", quadrants: 0 | 1): Vec {
  if (b.features.gpu) return b.host(name, x);
  const { r, quadrant } = reduce(b, x);
  const far = b.op("f32x4.gt", b.abs(x), b.f32(REDUCTION_LIMIT));
  const place = quadrants === 0 ? quadrant : b.iadd(quadrant, b.i32(quadrants));
  return b.patch(sineOfQuadrant(b, r, place), far, name, x);
}

/** (atan(a) / a − 1) / a² on [0, 1]. */
const ATAN_COEFFICIENTS = [
  0.002823639, -0.015956903, 0.04250499, -0.07489009, 0.10634793, -0.14202736, 0.19992696, -0.33333102,
];

/** The angle of the point (x, y), with the quadrants, zeros and infinities of C's `atan2`. */
export function atan2(b: VecBuilder, y: Vec, x: Vec): Vec {
  const ax = b.abs(x);
  const ay = b.abs(y);
  const larger = b.max(ax, ay);
  const smaller = b.min(ax, ay);
  // 0 / 0 stands for 0, ∞ / ∞ for 1.
  const ratio = b.div(smaller, larger);
  const both = b.op("f32x4.eq", smaller, b.f32(Infinity));
  const none = b.op("f32x4.eq", larger, b.f32(0));
  const a = b.select(both, b.f32(1), b.op("v128.andnot", ratio, none));
  const z = b.mul(a, a);
  const acute = b.madd(b.mul(z, a), b.poly(z, ATAN_COEFFICIENTS), a);
  const steep = b.op("f32x4.gt", ay, ax);
  const upright = b.select(steep, b.sub(b.f32(Math.PI / 2), acute), acute);
  const leftward = b.isar(x, 31);
  const angle = b.select(leftward, b.sub(b.f32(Math.PI), upright), upright);
  // The sign transfer must not lose a NaN, and does not: it changes one bit only.
  return copySign(b, angle, y);
}
