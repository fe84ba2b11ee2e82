import type { BinaryOp, UnaryOp } from "./opFacts.js";

const twoOverSqrtPi = 2 / Math.sqrt(Math.PI);
const sqrtPi = Math.sqrt(Math.PI);

/** exp(−x²) without the rounding error of x² in the exponent. */
function expMinusSquare(x: number): number {
  const high = Math.fround(x);
  return Math.exp(-high * high) * Math.exp((high - x) * (high + x));
}

/** erf by its series of positive terms: 2/√π · exp(−x²) · Σ 2ⁿ x²ⁿ⁺¹ / (1·3·…·(2n+1)). */
function erfSeries(x: number): number {
  let term = x;
  let sum = x;
  for (let n = 1; Math.abs(term) > Math.abs(sum) * 1e-17; n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return twoOverSqrtPi * expMinusSquare(x) * sum;
}

/** erfc of a large x by the continued fraction exp(−x²)/√π · 1/(x + ½/(x + 1/(x + 1½/(x + …)))). */
function erfcFraction(x: number): number {
  let fraction = x;
  for (let n = Math.ceil(8 + 180 / (x * x)); n >= 1; n--) fraction = x + n / 2 / fraction;
  return expMinusSquare(x) / (sqrtPi * fraction);
}

/** The error function, to a few units in the last place of float64. */
function erf(x: number): number {
  const size = Math.abs(x);
  if (size < 1.5 || Number.isNaN(x)) return erfSeries(x);
  return Math.sign(x) * (size > 6 ? 1 : 1 - erfcFraction(size));
}

/**
 * 1 − erf(x) for x ≥ 0; from 1 on the subtraction would lose digits that the continued fraction keeps, though it
 * converges slowly.
 */
function erfc(x: number): number {
  return x < 1 ? 1 - erfSeries(x) : erfcFraction(x);
}

/** The inverse of {@link erf}: a closed-form guess of three digits and three steps of Halley's method. */
function erfInv(y: number): number {
  const size = Math.abs(y);
  if (!(size < 1)) return size === 1 ? y * Number.POSITIVE_INFINITY : Number.NaN;
  if (size < 1e-8) return y / twoOverSqrtPi;
  // Near 1 the distance to 1 is exact and holds all the digits.
  const rest = 1 - size;
  const log = Math.log(rest * (1 + size));
  const a = 0.147;
  const b = 2 / (Math.PI * a) + log / 2;
  let x = Math.sqrt(Math.sqrt(b * b - log / a) - b);
  for (let step = 0; step < 3; step++) {
    const error = size < 0.5 ? erf(x) - size : rest - erfc(x);
    x -= error / (twoOverSqrtPi * expMinusSquare(x) + x * error);
  }
  return Math.sign(y) * x;
}

/** x to the power y as C defines it; JavaScript gives NaN for 1 to NaN and ±1 to ±infinity. */
function power(x: number, y: number): number {
  if (x === 1 || (x === -1 && Math.abs(y) === Number.POSITIVE_INFINITY)) return 1;
  return x ** y;
}

/** 1 / (1 + exp(−x)), also for large negative numbers. */
const logistic = (x: number): number => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)));

/**
 * The functions of one number that no processor has an instruction for, in float64: what the ops of the same names mean,
 * and what kernels call for lanes that their own code does not cover.
 */
export const unaryFunctions = {
  exp: Math.exp,
  expm1: Math.expm1,
  log: Math.log,
  log1p: Math.log1p,
  tanh: Math.tanh,
  sin: Math.sin,
  cos: Math.cos,
  cbrt: Math.cbrt,
  erf,
  erfInv,
  logistic,
} as const satisfies { readonly [K in UnaryOp]?: (x: number) => number };

/** The same for functions of two numbers. */
export const binaryFunctions = {
  rem: (x: number, y: number) => x % y,
  pow: power,
  atan2: Math.atan2,
} as const satisfies { readonly [K in BinaryOp]?: (x: number, y: number) => number };

/** All of them. */
export const scalarFunctions = { ...unaryFunctions, ...binaryFunctions } as const;

/** The name of a function of float64 numbers. */
export type ScalarFunction = keyof typeof scalarFunctions;
