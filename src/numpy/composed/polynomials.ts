/** Polynomials as vectors of coefficients, the highest power first. */

import { need, needIfGiven } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { complexType, limits, partType } from "../../ir/dtype.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { formatType, range } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { array } from "../arrays/creation.js";
import { concatenate, stack } from "../arrays/joining.js";
import { roll } from "../arrays/shaping.js";
import { add, divide, multiply, subtract } from "../elementwise/arithmetic.js";
import { negative } from "../elementwise/elementwise.js";
import { equal, greaterEqual, where } from "../elementwise/logic.js";
import { s } from "../indexing/indexing.js";
import { take } from "../indexing/take.js";
import { eigvals } from "../linalg/decompositions.js";
import { diag } from "../linalg/diagonals.js";
import { lstsq } from "../linalg/solving.js";
import { asInexact, asTensor, cast, inexactType, like, squaredSize, toType } from "../operands.js";
import { all, argmin } from "../reductions/reductions.js";
import { argsort } from "../reductions/sorting.js";
import { convolve } from "./neighbours.js";

/**
 * The value of a polynomial, by Horner's rule.
 *
 * @example
 * ```ts
 * np.polyval(np.array([1, 2, 3]), 2); // 11
 * ```
 */
export function polyval(coefficients: TensorLike, x: TensorLike): Tensor {
  const p = vector(coefficients, "polyval");
  const at = asTensor(x, "polyval");
  const each = range(p.size).map((i) => ops.reshape(ops.sliceDim(p, 0, i, i + 1), []));
  const zeros = ops.full(at.shape, 0, operandType(p, at));
  return each.reduce((sum, c) => add(multiply(sum, at), c), zeros);
}

function vector(value: TensorLike, caller: string): Tensor {
  const x = asTensor(value, caller);
  return ops.reshape(x, [x.size]);
}

/**
 * The sum of two polynomials.
 *
 * @example
 * ```ts
 * np.polyadd(np.array([1, 2]), np.array([1, 1, 1])); // [1, 2, 3]
 * ```
 */
export function polyadd(x: TensorLike, y: TensorLike): Tensor {
  const [a, b] = [vector(x, "polyadd"), vector(y, "polyadd")];
  const length = Math.max(a.size, b.size);
  const grown = (p: Tensor) => concatenate([ops.full([length - p.size], 0, p.dtype), p]);
  return add(grown(a), grown(b));
}

/**
 * The difference of two polynomials.
 *
 * @example
 * ```ts
 * np.polysub(np.array([1, 2]), np.array([1, 1])); // [0, 1]
 * ```
 */
export function polysub(x: TensorLike, y: TensorLike): Tensor {
  return polyadd(x, negative(y));
}

/**
 * The product of two polynomials.
 *
 * @example
 * ```ts
 * np.polymul(np.array([1, 1]), np.array([1, 2])); // [1, 3, 2]
 * ```
 */
export function polymul(x: TensorLike, y: TensorLike): Tensor {
  return convolve(vector(x, "polymul"), vector(y, "polymul"));
}

/**
 * The derivative of a polynomial, taken `m` times.
 *
 * @example
 * ```ts
 * np.polyder(np.array([1, 2, 3])); // [2, 2]
 * ```
 */
export function polyder(coefficients: TensorLike, m = 1): Tensor {
  needIfGiven("number", m, "m", "polyder");
  let p = asInexact(vector(coefficients, "polyder"), "polyder");
  for (let i = 0; i < checkTimes(m, "polyder") && p.size > 0; i++) {
    const powers = range(p.size - 1).map((k) => p.size - 1 - k);
    p = multiply(ops.sliceDim(p, 0, 0, p.size - 1), array(powers, partType(p.dtype)));
  }
  return p;
}

/**
 * The integral of a polynomial, taken `m` times, that is zero at zero.
 *
 * @example
 * ```ts
 * np.polyint(np.array([2, 2])); // [1, 2, 0]
 * ```
 */
export function polyint(coefficients: TensorLike, m = 1): Tensor {
  let p = asInexact(vector(coefficients, "polyint"), "polyint");
  for (let i = 0; i < checkTimes(m, "polyint"); i++) {
    const powers = range(p.size).map((k) => p.size - k);
    p = concatenate([divide(p, array(powers, partType(p.dtype))), ops.full([1], 0, p.dtype)]);
  }
  return p;
}

/** Maximum number of repetitions of a step: each records an equation. */
const MAX_TIMES = 1_000;

function checkTimes(m: number, caller: string): number {
  if (Number.isInteger(m) && m >= 0 && m <= MAX_TIMES) return m;
  throw new ValueError(`[${caller}] m must be an integer from 0 to ${MAX_TIMES}, got ${describe(m)}`);
}

/**
 * The polynomial with the given roots and the leading coefficient 1; of a square matrix the characteristic one, whose
 * roots are the eigenvalues.
 *
 * @example
 * ```ts
 * np.poly(np.array([1, 2])); // [1, -3, 2]
 * ```
 */
export function poly(value: TensorLike): Tensor {
  const x = asInexact(value, "poly");
  const isMatrix = x.ndim === 2 && x.shape[0] === x.shape[1] && x.size > 0;
  if (x.ndim > 1 && !isMatrix) {
    throw new ShapeError(`[poly] takes roots or a square matrix, got ${formatType(x.type)}`);
  }
  const roots = vector(isMatrix ? eigvals(x) : x, "poly");
  const one = ops.full([1], 1, roots.dtype);
  return range(roots.size).reduce(
    (product, i) => convolve(product, concatenate([one, ops.neg(ops.sliceDim(roots, 0, i, i + 1))])),
    one,
  );
}

/**
 * The quotient and the rest of polynomials, which keeps its leading zeros.
 *
 * @example
 * ```ts
 * np.polydiv(np.array([1, 3, 2]), np.array([1, 1])); // [[1, 2], [0, 0, 0]]
 * ```
 */
export function polydiv(x: TensorLike, y: TensorLike): [quotient: Tensor, rest: Tensor] {
  const dtype = inexactType(operandType(x, y));
  const [dividend, divisor] = [
    toType(vector(x, "polydiv"), dtype, "polydiv"),
    toType(vector(y, "polydiv"), dtype, "polydiv"),
  ];
  const count = dividend.size - divisor.size + 1;
  if (count < 1) return [ops.full([1], 0, dividend.dtype), dividend];
  const lead = ops.sliceDim(divisor, 0, 0, 1);
  let rest = dividend;
  const quotient = range(count).map((k) => {
    const digit = divide(ops.sliceDim(rest, 0, k, k + 1), lead);
    rest = rest.at(s(k, k + divisor.size)).subtract(multiply(digit, divisor));
    return digit;
  });
  return [concatenate(quotient), rest];
}

/**
 * The complex roots of a polynomial, in no particular order. As many as there are leading zeros are missing: they are
 * NaN, at the end.
 *
 * @example
 * ```ts
 * np.sort(np.real(np.roots(np.array([1, -3, 2])))); // [1, 2]
 * ```
 */
export function roots(coefficients: TensorLike): Tensor {
  const p = vector(asInexact(coefficients, "roots"), "roots");
  const n = p.size - 1;
  if (n < 1) return ops.full([0], 0, complexType(p.dtype));
  const isZero = equal(p, 0);
  const isNone = all(isZero);
  const skipped = where(isNone, p.size, argmin(isZero));
  const leading = roll(where(isNone, 1, p), ops.neg(skipped));
  // The eigenvalues of the companion matrix are the roots.
  const below = diag(ops.full([n - 1], 1, p.dtype), -1);
  const first = divide(ops.neg(ops.sliceDim(leading, 0, 1, n + 1)), ops.sliceDim(leading, 0, 0, 1));
  const found = eigvals(below.at(0).set(first));
  const order = argsort(cast(equal(found, 0), "int32"));
  const missing = greaterEqual(ops.iota("int32", [n], 0), subtract(n, skipped));
  const unknown = ops.full([n], Number.NaN, partType(found.dtype));
  return where(missing, Tensor.complex(unknown, unknown), take(found, order, 0, { mode: "clip" }));
}

const vanderOptions = schema({
  /** The number of columns; that of the elements by default. */
  n: optional("number"),
  /** Whether powers rise from left to right. */
  increasing: false,
});

/** Options of {@link vander}. */
export interface VanderOptions extends OptionsOf<typeof vanderOptions> {}

/**
 * The matrix whose columns are the powers of a vector, the highest first.
 *
 * @example
 * ```ts
 * np.vander(np.array([1, 2, 3])); // [[1, 1, 1], [4, 2, 1], [9, 3, 1]]
 * ```
 */
export function vander(value: TensorLike, options?: VanderOptions): Tensor {
  const { n, increasing } = vanderOptions.read(options, "vander");
  const x = vector(value, "vander");
  const columns = checkTimes(n ?? x.size, "vander");
  let power = ops.broadcastInDim(like(x, 1), x.shape, []);
  const powers = range(columns).map(() => {
    const now = power;
    power = multiply(power, x);
    return now;
  });
  if (columns === 0) return ops.full([x.size, 0], 0, x.dtype);
  return stack(increasing ? powers : powers.reverse(), 1);
}

/**
 * The polynomial of a degree with the smallest squares of differences to points `(x, y)`; y may have columns.
 *
 * @example
 * ```ts
 * np.polyfit(np.array([0, 1, 2]), np.array([1, 3, 5]), 1); // [2, 1]
 * ```
 */
export function polyfit(x: TensorLike, y: TensorLike, degree: number): Tensor {
  need("integer", degree, "degree", "polyfit");
  const points = asInexact(vector(x, "polyfit"), "polyfit");
  const powers = vander(points, { n: checkTimes(degree, "polyfit") + 1 });
  // Columns are scaled to one length, so that small singular values are meaningful.
  const lengths = ops.sqrt(ops.reduceSum(squaredSize(powers), [0]));
  const scaled = divide(powers, lengths);
  const [found] = lstsq(scaled, asInexact(y, "polyfit"), points.size * limits(points.dtype).epsilon);
  return divide(found, found.ndim === 1 ? lengths : ops.reshape(lengths, [lengths.size, 1]));
}
