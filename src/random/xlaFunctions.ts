/**
 * Functions of float32 that give the bits of XLA's on CPUs with fused multiply-add, which JAX draws with there: the same
 * polynomials, with one rounding where LLVM fuses a product with a sum. Engines round every op by itself, so that a fused
 * step is computed in float64, where the product is exact, and rounded once.
 */

import * as ops from "../trace/ops.js";
import { Tensor } from "../trace/tensor.js";
import { libraryVjp } from "../transforms/derivatives/customVjp.js";

/** An operand in float64; numbers are rounded to float32 before. */
function wide(x: Tensor | number): Tensor {
  return typeof x === "number" ? Tensor.scalar(Math.fround(x), "float64") : ops.convert(x, "float64");
}

/** a · b + c, rounded once. */
function fused(a: Tensor, b: Tensor | number, c: Tensor | number): Tensor {
  return ops.convert(ops.add(ops.mul(wide(a), wide(b)), wide(c)), "float32");
}

/** A polynomial by Horner's scheme, from its highest coefficient down. */
function polynomial(x: Tensor, [first = 0, second = 0, ...rest]: readonly number[]): Tensor {
  const w = wide(x);
  return rest.reduce((sum, c) => fused(sum, w, c), fused(w, first, second));
}

/** ln x for positive x: the power of two apart, the rest by three interleaved polynomials. */
function log(x: Tensor): Tensor {
  const bits = ops.bitcast(ops.max(x, 2 ** -126), "int32");
  const half = ops.bitcast(ops.or(ops.and(bits, 0x7fffff), 0x3f000000), "float32");
  const exponent = ops.convert(ops.sub(ops.shrArithmetic(bits, 23), 126), "float32");
  const isSmall = ops.compare("lt", half, Math.fround(Math.SQRT1_2));
  const zero = ops.zeros(half.type);
  const y = ops.add(ops.sub(half, 1), ops.select(isSmall, half, zero));
  const power = ops.sub(exponent, ops.convert(isSmall, "float32"));
  const square = ops.mul(y, y);
  const cube = ops.mul(square, y);
  const high = polynomial(y, [0.070376836, -0.1151461, 0.116769984]);
  const middle = fused(high, cube, polynomial(y, [-0.12420141, 0.14249323, -0.16668057]));
  const low = fused(middle, cube, polynomial(y, [0.20000714, -0.24999994, 0.3333333]));
  const rest = fused(low, cube, ops.mul(power, Math.fround(-0.00021219444)));
  return fused(power, 0.6933594, ops.add(fused(square, -0.5, y), rest));
}

/**
 * ln(1 + x) for x above −1.
 *
 * @param fusesCube which of the two products of the last sum is fused: LLVM's choice differs between its uses
 */
function log1p(x: Tensor, fusesCube: boolean): Tensor {
  const square = ops.mul(x, x);
  const cube = ops.mul(x, square);
  const ratio = ops.div(
    polynomial(x, [4.527e-5, 0.49854103, 6.5787325, 29.911919, 60.94967, 57.112965, 20.039553]),
    polynomial(x, [1, 15.062909, 83.04757, 221.7624, 309.09872, 216.42789, 60.11866]),
  );
  const correction = fusesCube
    ? fused(cube, ratio, ops.mul(square, -0.5))
    : fused(square, -0.5, ops.mul(cube, ratio));
  const isNear = ops.compare("lt", ops.abs(x), Math.fround(Math.SQRT2 - 1));
  return ops.select(isNear, ops.add(x, correction), log(ops.add(x, 1)));
}

/** −ln(1 − u) for 0 ≤ u < 1. */
export function negativeLog1pOfNegative(u: Tensor): Tensor {
  return ops.neg(log1p(ops.neg(u), true));
}

/** The coefficients of Giles' polynomials for the inverse error function, in the centre and in the tails. */
const inverseCoefficients: readonly (readonly [centre: number, tails: number])[] = [
  [2.8102264e-8, -0.00020021426],
  [3.4327394e-7, 0.00010095056],
  [-3.5233877e-6, 0.0013493432],
  [-4.3915065e-6, -0.0036734284],
  [0.00021858087, 0.0057395077],
  [-0.001253725, -0.0076224613],
  [-0.0041776816, 0.0094388705],
  [0.24664073, 1.001674],
  [1.5014094, 2.8329768],
];

function erfInvValue(x: Tensor): Tensor {
  const negative = log1p(ops.mul(x, ops.neg(x)), false);
  const isCentral = ops.compare("gt", negative, -5);
  const w = ops.select(isCentral, ops.sub(ops.neg(negative), 2.5), ops.sub(ops.sqrt(ops.neg(negative)), 3));
  const step = wide(w);
  const [first, ...rest] = inverseCoefficients.map(([centre, tails]) => {
    const everywhere = (value: number) => ops.full(x.shape, Math.fround(value), "float64");
    return ops.select(isCentral, everywhere(centre), everywhere(tails));
  });
  const p = rest.reduce((sum, c) => fused(sum, step, c), first ?? step);
  const isEnd = ops.compare("eq", ops.abs(x), 1);
  return ops.select(isEnd, ops.mul(x, Number.POSITIVE_INFINITY), ops.mul(p, x));
}

/** erf of a value that is limited to where the result is not ±1 yet. */
function erfValue(x: Tensor): Tensor {
  const end = Math.fround(3.7439213);
  const limited = ops.min(ops.max(x, -end), end);
  const square = ops.mul(limited, limited);
  const top = polynomial(square, [0.00022905065, 0.003408291, 0.050955694, 0.18520832, 1.1283791]);
  const bottom = polynomial(
    square,
    [-1.1791603e-7, 2.3547966e-5, 0.0010179626, 0.01407047, 0.11098505, 0.49746925, 1],
  );
  const ratio = ops.div(ops.mul(limited, top), bottom);
  return ops.select(ops.compare("ge", ops.abs(x), end), ops.sign(x), ratio);
}

/** The value of one function with the derivative of the op of the same meaning. */
const withDerivative = (value: (x: Tensor) => Tensor, derivative: (x: Tensor, out: Tensor) => Tensor) =>
  libraryVjp(value, {
    forward: (x: Tensor): [Tensor, [Tensor, Tensor]] => {
      const out = value(x);
      return [out, [x, out]];
    },
    backward: ([x, out], ct) => [ops.mul(ct, derivative(x, out))],
  });

/** The inverse error function. */
export const erfInv = withDerivative(erfInvValue, (_, out) =>
  ops.mul(ops.exp(ops.mul(out, out)), Math.sqrt(Math.PI) / 2),
);

/** The error function. */
export const erf = withDerivative(erfValue, (x) =>
  ops.mul(ops.exp(ops.neg(ops.mul(x, x))), 2 / Math.sqrt(Math.PI)),
);
