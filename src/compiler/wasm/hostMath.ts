import type { HostFunction } from "./vectorProgram.js";

/** The scalar functions kernels import under the name `math`, as float64 JavaScript. */
export const HOST_MATH: { readonly [K in HostFunction]: (x: number, y: number) => number } = {
  sin: (x) => Math.sin(x),
  cos: (x) => Math.cos(x),
  rem: (x, y) => x % y,
  pow: powerLikeC,
  exp: (x) => Math.exp(x),
  expm1: (x) => Math.expm1(x),
  log: (x) => Math.log(x),
  log1p: (x) => Math.log1p(x),
  tanh: (x) => Math.tanh(x),
  cbrt: (x) => Math.cbrt(x),
  atan2: (y, x) => Math.atan2(y, x),
  logistic: (x) => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x))),
  erf: errorFunction,
  erfInv: inverseErrorFunction,
};

function powerLikeC(x: number, y: number): number {
  if (x === 1 || (x === -1 && Math.abs(y) === Infinity)) return 1;
  return x ** y;
}

/** The error function in float64: its series near 0, the continued fraction of its complement beyond. */
function errorFunction(x: number): number {
  const a = Math.abs(x);
  if (!(a > 0) || a === Infinity) return a === Infinity ? Math.sign(x) : x;
  if (a > 6) return Math.sign(x);
  return a < 2.5 ? Math.sign(x) * erfSeries(a) : Math.sign(x) * (1 - erfcFraction(a));
}

function erfSeries(a: number): number {
  let term = a;
  let sum = a;
  for (let n = 1; Math.abs(term) > 1e-18 * sum; n++) {
    term *= (2 * a * a) / (2 * n + 1);
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-a * a) * sum;
}

function erfcFraction(a: number): number {
  let fraction = a;
  for (let n = Math.ceil(8 + 180 / (a * a)); n >= 1; n--) fraction = a + n / 2 / fraction;
  return Math.exp(-a * a) / (Math.sqrt(Math.PI) * fraction);
}

/** Newton's iteration from Giles' single-precision approximation. */
function inverseErrorFunction(x: number): number {
  const a = Math.abs(x);
  if (!(a < 1) || a === 0) return a === 1 ? x * Infinity : a === 0 ? x : Number.NaN;
  const w = -Math.log1p(-a * a);
  let y = w < 5 ? a * (1.50140941 + 0.246640727 * (w - 2.5)) : Math.sqrt(w);
  if (w < 0.2) y = (a * Math.sqrt(Math.PI)) / 2;
  for (let step = 0; step < 30; step++) {
    // The residual from the complement keeps its digits where erf is close to 1.
    const residual = a > 0.5 ? 1 - a - complement(y) : errorFunction(y) - a;
    const slope = (2 / Math.sqrt(Math.PI)) * Math.exp(-y * y);
    const newton = residual / slope;
    const delta = newton / (1 + y * newton);
    y -= delta;
    if (Math.abs(delta) <= 1e-16 * y) break;
  }
  return Math.sign(x) * y;
}

/** From 1 on the subtraction would lose digits that the fraction keeps. */
function complement(y: number): number {
  return y < 1 ? 1 - erfSeries(y) : erfcFraction(y);
}
