/** Products of several matrices, powers and the exponential. */
import { need } from "../../ir/arguments.js";
import { complexType, partType } from "../../ir/dtype.js";
import { ShapeError } from "../../ir/errors.js";
import { at, formatType, range } from "../../ir/shape.js";
import { checkSquare } from "../../lax/linalg/matrixOperands.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { scan } from "../../transforms/control/scan.js";
import { asInexact, asTensor, expandTo, requireRank } from "../operands.js";
import { max, sum } from "../reductions/reductions.js";
import { matmul } from "./contraction.js";
import { eye } from "./diagonals.js";
import { inv, solve } from "./solving.js";

/**
 * A square matrix multiplied with itself n times, by squaring; a negative n inverts it before.
 *
 * @example
 * ```ts
 * np.linalg.matrixPower(np.array([[1, 1], [0, 1]]), 3); // [[1, 3], [0, 1]]
 * ```
 */
export function matrixPower(value: TensorLike, n: number): Tensor {
  const given = asTensor(value, "linalg.matrixPower");
  requireRank(given, 2, "linalg.matrixPower");
  need("integer", n, "the power", "linalg.matrixPower");
  const x = n < 0 ? inv(given) : given;
  let result: Tensor | undefined;
  let square = x;
  for (let rest = Math.abs(n); rest > 0; rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) result = result ? matmul(result, square) : square;
    if (rest > 1) square = matmul(square, square);
  }
  const size = at(x.shape, x.ndim - 1);
  return result ?? expandTo(eye(size, size, { dtype: x.dtype }), x.shape);
}

/**
 * The product of several matrices, in the order that takes the fewest multiplications; the ends may be vectors.
 *
 * @example
 * ```ts
 * np.linalg.multiDot([np.eye(2), np.array([[1, 2], [3, 4]]), np.array([1, 1])]); // [3, 7]
 * ```
 */
export function multiDot(values: readonly TensorLike[]): Tensor {
  need("list", values, "values", "multiDot");
  const xs = values.map((value) => asTensor(value, "linalg.multiDot"));
  const sizes = [xs[0]?.ndim === 1 ? 1 : (xs[0]?.shape[0] ?? 0)];
  xs.forEach((x, i) => {
    const isEnd = i === 0 || i === xs.length - 1;
    const columns = x.ndim === 1 && i === 0 ? x.shape[0] : x.ndim === 1 ? 1 : x.shape[1];
    const rows = x.ndim === 1 && i === 0 ? 1 : x.shape[0];
    if (xs.length < 2 || (x.ndim !== 2 && !(isEnd && x.ndim === 1)) || rows !== sizes[i]) {
      const all = xs.map(({ type }) => formatType(type)).join(", ");
      throw new ShapeError(`[linalg.multiDot] needs at least two matrices whose shapes fit, got ${all}`);
    }
    sizes.push(columns ?? 0);
  });
  return bestProduct(xs, sizes);
}

/** The cheapest way to multiply matrices i … j, found for all shorter chains first. */
function bestProduct(xs: readonly Tensor[], sizes: readonly number[]): Tensor {
  const cost = new Map<string, { readonly price: number; readonly cut: number }>();
  const priceOf = (i: number, j: number) => (i === j ? 0 : (cost.get(`${i},${j}`)?.price ?? 0));
  for (let length = 2; length <= xs.length; length++) {
    for (let i = 0; i + length <= xs.length; i++) {
      const j = i + length - 1;
      const options = range(length - 1).map((k) => ({
        cut: i + k,
        price:
          priceOf(i, i + k) + priceOf(i + k + 1, j) + at(sizes, i) * at(sizes, i + k + 1) * at(sizes, j + 1),
      }));
      cost.set(
        `${i},${j}`,
        // Of equal prices the one from left to right, as in JAX: types of half width round what lies between.
        options.reduce((best, option) => (option.price <= best.price ? option : best)),
      );
    }
  }
  const multiply = (i: number, j: number): Tensor => {
    const cut = cost.get(`${i},${j}`)?.cut;
    return cut === undefined ? at(xs, i) : matmul(multiply(i, cut), multiply(cut + 1, j));
  };
  return multiply(0, xs.length - 1);
}

/** The most squarings of {@link expm}, enough for matrices of norm 2¹⁶. */
const maxSquarings = 16;

/** Numerators of the rational approximation of exp, of the orders that fit the precision of each type. */
const approximations = {
  float32: { reach: 3.92572478313866, terms: [17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1] },
  float64: {
    reach: 5.371920351148152,
    terms: [
      64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000,
      10559470521600, 670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
    ],
  },
} as const;

/**
 * The exponential of square matrices, 1 + x + x² / 2 + …; NaN for a norm beyond 2¹⁶.
 *
 * @example
 * ```ts
 * np.linalg.expm(np.array([[0, 1], [0, 0]])); // [[1, 1], [0, 1]]
 * ```
 */
export function expm(value: TensorLike): Tensor {
  const given = asInexact(value, "linalg.expm");
  checkSquare(given, "linalg.expm", "floats or complex numbers");
  const part = partType(given.dtype) === "float64" ? "float64" : "float32";
  const dtype = given.parts ? complexType(part) : part;
  const x = ops.convert(given, dtype);
  const { reach, terms } = approximations[part];
  const size = max(sum(ops.abs(x), -2), -1);
  const needed = ops.ceil(ops.mul(ops.log(ops.mul(size, 1 / reach)), 1 / Math.LN2));
  const squarings = ops.stopGradient(ops.max(needed, ops.zeros(needed.type)));
  const dims = range(x.ndim - 2);
  const spread = (t: Tensor) => ops.broadcastInDim(t, x.shape, dims);
  const small = ops.mul(x, ops.convert(spread(ops.exp(ops.mul(squarings, -Math.LN2))), dtype));
  const start = rational(small, terms);
  const [whole] = scan<Tensor, Tensor, null>(
    (power, step) => {
      const isOpen = ops.compare("gt", squarings, ops.broadcastInDim(step, squarings.shape, []));
      return [ops.select(spread(isOpen), matmul(power, power), power), null];
    },
    start,
    ops.iota(part, [maxSquarings], 0),
  );
  const isBeyond = spread(ops.compare("gt", squarings, maxSquarings));
  return ops.convert(ops.select(isBeyond, ops.full(x.shape, Number.NaN, dtype), whole), given.dtype);
}

/** The approximation p(x) / p(−x). */
function rational(x: Tensor, terms: readonly number[]): Tensor {
  const n = at(x.shape, x.ndim - 1);
  const one = expandTo(eye(n, n, { dtype: x.dtype }), x.shape);
  const square = matmul(x, x);
  const polynomial = (start: number) => {
    let power = one;
    let total = ops.mul(one, at(terms, start));
    for (let i = start + 2; i < terms.length; i += 2) {
      power = matmul(power, square);
      total = ops.add(total, ops.mul(power, at(terms, i)));
    }
    return total;
  };
  const [even, odd] = [polynomial(0), matmul(x, polynomial(1))];
  return solve(ops.sub(even, odd), ops.add(even, odd));
}
