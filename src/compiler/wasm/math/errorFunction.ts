import type { Vec, VecBuilder } from "../vectorProgram.js";
import { copySign, log } from "./exponential.js";

const ERF_NUMERATOR = [2.1237322e-6, 0.00028619796, 0.0036580483, 0.05243302, 0.18741608, 1.1283791];
const ERF_DENOMINATOR = [3.8918573e-5, 0.001143296, 0.014752088, 0.112945676, 0.4994258, 1];
/** From here on the correctly rounded result is 1. */
const ERF_SATURATION = 3.9192059;

/** The error function; exactly ±1 for large arguments. */
export function erf(b: VecBuilder, x: Vec): Vec {
  const magnitude = b.abs(x);
  const c = b.atMost(magnitude, ERF_SATURATION);
  const z = b.mul(c, c);
  const ratio = b.div(b.mul(c, b.poly(z, ERF_NUMERATOR)), b.poly(z, ERF_DENOMINATOR));
  const one = b.op("f32x4.ge", magnitude, b.f32(ERF_SATURATION));
  return copySign(b, b.select(one, b.f32(1), b.atMost(ratio, 1)), x);
}

const ERF_INV_CENTRE = [
  2.81022636e-8, 3.43273939e-7, -3.5233877e-6, -4.39150654e-6, 0.00021858087, -0.00125372503, -0.00417768164,
  0.246640727, 1.50140941,
];
const ERF_INV_TAIL = [
  -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
  1.00167406, 2.83297682,
];

/** The inverse of the error function: ±∞ at ±1, NaN beyond. */
export function erfInv(b: VecBuilder, x: Vec): Vec {
  // 1 − x² as a product keeps its digits near ±1.
  const w = b.neg(log(b, b.mul(b.sub(b.f32(1), x), b.add(b.f32(1), x))));
  const centre = b.poly(b.sub(w, b.f32(2.5)), ERF_INV_CENTRE);
  const tail = b.poly(b.sub(b.op("f32x4.sqrt", w), b.f32(3)), ERF_INV_TAIL);
  const p = b.select(b.op("f32x4.lt", w, b.f32(5)), centre, tail);
  const pole = b.op("f32x4.eq", b.abs(x), b.f32(1));
  return b.mul(x, b.select(pole, b.f32(Infinity), p));
}
