/** Systems of linear equations, inverses and determinants. */
import { needIfGiven } from "../../ir/arguments.js";
import { limits } from "../../ir/dtype.js";
import { ShapeError } from "../../ir/errors.js";
import { at, formatType, range, type Shape, sizeOf } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import { decompose, solveWith } from "../../lax/linalg/lu.js";
import {
  adjoint,
  checkSquare,
  flatBatch,
  likeBatch,
  squaredSizes,
  times,
  transposed,
} from "../../lax/linalg/matrixOperands.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { libraryVjp } from "../../transforms/derivatives/customVjp.js";
import { matrixTranspose } from "../arrays/shaping.js";
import { where } from "../elementwise/logic.js";
import {
  asInexact,
  asTensor,
  broadcastShape,
  cast,
  expandTo,
  inexactType,
  requireRank,
} from "../operands.js";
import { prod, sum } from "../reductions/reductions.js";
import { matmul } from "./contraction.js";
import { diagonal, eye } from "./diagonals.js";

/** Both operands as floats or complex numbers of one type. */
function floats(a: TensorLike, b: TensorLike, caller: string): [Tensor, Tensor] {
  const dtype = inexactType(operandType(a, b));
  return [cast(asTensor(a, caller), dtype), cast(asTensor(b, caller), dtype)];
}

/** Right sides as matrices, with one batch for both; and how the solution gets the form of the right side. */
function rightSides(
  a: Tensor,
  b: Tensor,
  caller: string,
): { a: Tensor; b: Tensor; restore: (x: Tensor) => Tensor } {
  checkSquare(a, caller, "floats or complex numbers");
  requireRank(b, 1, caller);
  const isVector = b.ndim === 1;
  const right = isVector ? ops.reshape(b, [...b.shape, 1]) : b;
  const n = at(a.shape, a.ndim - 1);
  if (right.shape.at(-2) !== n) {
    throw new ShapeError(
      `[${caller}] ${formatType(a.type)} has ${n} unknowns, but the right side ${formatType(b.type)} has ${right.shape.at(-2)}`,
    );
  }
  const batch = broadcastShape([a.shape.slice(0, -2), right.shape.slice(0, -2)], caller);
  const spread = (x: Tensor) => expandTo(x, [...batch, ...x.shape.slice(-2)]);
  return {
    a: spread(a),
    b: spread(right),
    restore: (x) => (isVector ? ops.reshape(x, x.shape.slice(0, -1)) : x),
  };
}

const solveSquare = libraryVjp((a: Tensor, b: Tensor) => solveWith(decompose(a), b), {
  forward: (a, b) => {
    const factors = decompose(a);
    const x = solveWith(factors, b);
    return [x, [factors, x] as const];
  },
  backward: ([factors, x], ct) => {
    const back = solveWith(factors, ct, true);
    return [ops.neg(times(back, transposed(x))), back];
  },
});

/**
 * Solves `a x = b`; b is a vector, or matrices whose columns are right sides.
 *
 * @example
 * ```ts
 * np.linalg.solve(np.array([[2, 1], [1, 3]]), np.array([3, 4])); // [1, 1]
 * ```
 */
export function solve(a: TensorLike, b: TensorLike): Tensor {
  const caller = "linalg.solve";
  const sides = rightSides(...floats(a, b, caller), caller);
  const x = solveSquare(flatBatch(sides.a), flatBatch(sides.b));
  return sides.restore(likeBatch(x, sides.b));
}

/**
 * The inverse of square matrices.
 *
 * @example
 * ```ts
 * np.linalg.inv(np.array([[2, 0], [0, 4]])); // [[0.5, 0], [0, 0.25]]
 * ```
 */
export function inv(value: TensorLike): Tensor {
  const x = asInexact(value, "linalg.inv");
  checkSquare(x, "linalg.inv", "floats or complex numbers");
  const n = at(x.shape, x.ndim - 1);
  return solve(x, expandTo(eye(n, n, { dtype: x.dtype }), x.shape));
}

/** Options of {@link solveTriangular}. */
export interface SolveTriangularOptions {
  /** Whether the lower triangle is read; otherwise the upper one. */
  readonly lower?: boolean | undefined;
  /** Whether the triangle is transposed before. */
  readonly trans?: boolean | undefined;
  /** Whether the diagonal is taken for ones. */
  readonly unitDiagonal?: boolean | undefined;
}

/**
 * Solves `a x = b` where of a one triangle is read.
 *
 * @example
 * ```ts
 * np.linalg.solveTriangular(np.array([[2, 1], [0, 4]]), np.array([4, 8])); // [1, 2]
 * ```
 */
export function solveTriangular(a: TensorLike, b: TensorLike, options: SolveTriangularOptions = {}): Tensor {
  const caller = "linalg.solveTriangular";
  const sides = rightSides(...floats(a, b, caller), caller);
  const { lower = false, trans = false, unitDiagonal = false } = options;
  const x = lax.linalg.triangularSolve(sides.a, sides.b, {
    leftSide: true,
    lower,
    transposeA: trans,
    unitDiagonal,
  });
  return sides.restore(x);
}

/**
 * Solves `a x = b` of the lower triangle that `cholesky` gives for a.
 *
 * @example
 * ```ts
 * np.linalg.choSolve(np.linalg.cholesky(np.array([[4, 2], [2, 5]])), np.array([8, 12])); // [1, 2]
 * ```
 */
export function choSolve(l: TensorLike, b: TensorLike): Tensor {
  const triangle = asInexact(l, "linalg.choSolve");
  const half = solveTriangular(triangle, b, { lower: true });
  return solveTriangular(adjoint(triangle), half);
}

/**
 * The sign (of complex numbers the direction) of a determinant, and the logarithm of its size: together they neither overflow nor vanish.
 *
 * @example
 * ```ts
 * np.linalg.slogdet(np.array([[2, 0], [0, -4]])); // [-1, 2.079]
 * ```
 */
export function slogdet(value: TensorLike): [sign: Tensor, logabsdet: Tensor] {
  const x = asInexact(value, "linalg.slogdet");
  checkSquare(x, "linalg.slogdet", "floats or complex numbers");
  const [both, pivots] = lax.linalg.lu(x);
  const entries = diagonal(both, { dim1: -2, dim2: -1 });
  const isSingular = ops.reduceMax(ops.compare("eq", entries, 0), [entries.ndim - 1]);
  const zeros = (dtype: Tensor) => ops.zeros({ ...dtype.type, shape: isSingular.shape });
  const sign = signOf(entries, pivots);
  const log = sum(ops.log(ops.abs(entries)), -1);
  return [
    ops.select(isSingular, zeros(sign), sign),
    ops.select(isSingular, ops.full(log.shape, Number.NEGATIVE_INFINITY, log.dtype), log),
  ];
}

/** Every exchange of rows and every negative entry of the diagonal turns the sign, every complex one its direction. */
function signOf(entries: Tensor, pivots: Tensor): Tensor {
  const last = pivots.ndim - 1;
  const exchanged = ops.convert(ops.compare("ne", pivots, ops.iota("int32", pivots.shape, last)), "int32");
  if (entries.parts) {
    const directions = ops.div(entries, ops.convert(ops.abs(entries), entries.dtype));
    return ops.mul(parityOf(exchanged, entries), prod(directions, -1));
  }
  const negative = ops.convert(ops.compare("lt", entries, 0), "int32");
  return parityOf(ops.add(exchanged, negative), entries);
}

/** 1 for an even sum along the last dim, −1 for an odd one. */
function parityOf(turns: Tensor, entries: Tensor): Tensor {
  const last = turns.ndim - 1;
  const odd = ops.and(ops.reduceSum(turns, [last]), ops.full(turns.shape.slice(0, -1), 1, "int32"));
  return ops.convert(ops.sub(ops.full(odd.shape, 1, "int32"), ops.mul(odd, 2)), entries.dtype);
}

/**
 * The determinant of square matrices.
 *
 * @example
 * ```ts
 * np.linalg.det(np.array([[2, 1], [1, 3]])); // 5
 * ```
 */
export function det(value: TensorLike): Tensor {
  const x = asInexact(value, "linalg.det");
  checkSquare(x, "linalg.det", "floats or complex numbers");
  const n = at(x.shape, x.ndim - 1);
  if (n <= 3) return smallDet(x, n);
  return determinant(x);
}

const determinant = libraryVjp(productOfPivots, {
  forward: (x) => {
    const value = productOfPivots(x);
    return [value, [x, value] as const];
  },
  backward: ([x, value], ct) => {
    const scale = ops.mul(ct, value);
    const dims = range(x.ndim - 2);
    return [ops.mul(matrixTranspose(inv(x)), ops.broadcastInDim(scale, x.shape, dims))];
  },
});

function productOfPivots(x: Tensor): Tensor {
  const [both, pivots] = lax.linalg.lu(x);
  const entries = diagonal(both, { dim1: -2, dim2: -1 });
  if (entries.parts) {
    const exchanged = ops.compare("ne", pivots, ops.iota("int32", pivots.shape, pivots.ndim - 1));
    return ops.mul(parityOf(ops.convert(exchanged, "int32"), entries), prod(entries, -1));
  }
  const size = prod(ops.abs(entries), -1);
  return ops.mul(signOf(entries, pivots), size);
}

/** By the first row, which is exact for singular matrices too. */
function smallDet(x: Tensor, n: number): Tensor {
  const batch = x.shape.slice(0, -2);
  const entry = (i: number, j: number) => {
    const row = ops.sliceDim(x, x.ndim - 2, i, i + 1);
    return ops.reshape(ops.sliceDim(row, x.ndim - 1, j, j + 1), batch);
  };
  const minor = (a: number, b: number) =>
    ops.sub(ops.mul(entry(n - 2, a), entry(n - 1, b)), ops.mul(entry(n - 2, b), entry(n - 1, a)));
  if (n === 0) return ops.full(batch, 1, x.dtype);
  if (n === 1) return entry(0, 0);
  if (n === 2) return minor(0, 1);
  const terms = [
    ops.mul(entry(0, 0), minor(1, 2)),
    ops.mul(entry(0, 1), minor(0, 2)),
    ops.mul(entry(0, 2), minor(0, 1)),
  ];
  return ops.add(ops.sub(at(terms, 0), at(terms, 1)), at(terms, 2));
}

/** What {@link lstsq} finds. */
export type LeastSquares = readonly [x: Tensor, residuals: Tensor, rank: Tensor, singularValues: Tensor];

/**
 * The x that makes the squares of `a x − b` smallest, the shortest one of several.
 *
 * @param rcond singular values below this share of the largest count as zero
 * @returns x, the sums of squares for every column of b, the rank of a, and its singular values
 *
 * @example
 * ```ts
 * np.linalg.lstsq(np.array([[1, 0], [1, 1], [1, 2]]), np.array([1, 3, 5]))[0]; // [1, 2]
 * ```
 */
export function lstsq(a: TensorLike, b: TensorLike, rcond?: number): LeastSquares {
  const caller = "linalg.lstsq";
  const [x, y] = floats(a, b, caller);
  if (x.ndim !== 2 || y.ndim < 1 || y.ndim > 2 || x.shape[0] !== y.shape[0]) {
    throw new ShapeError(
      `[${caller}] needs a matrix and right sides of as many rows, got ${formatType(x.type)} and ${formatType(y.type)}`,
    );
  }
  const right = y.ndim === 1 ? ops.reshape(y, [...y.shape, 1]) : y;
  const share = rcond ?? limits(x.dtype).epsilon * Math.max(...x.shape);
  const [u, s, vh] = lax.linalg.svd(x, { fullMatrices: false });
  const bound = expandTo(
    ops.mul(ops.sliceDim(s, 0, 0, 1), share < 0 ? limits(x.dtype).epsilon : share),
    s.shape,
  );
  const counts = ops.and(ops.compare("gt", s, 0), ops.compare("ge", s, bound));
  const inverse = where(counts, ops.div(ops.ones(s.type), where(counts, s, 1)), 0);
  const inner = matmul(adjoint(u), right);
  const scaled = ops.mul(inner, ops.broadcastInDim(ops.convert(inverse, inner.dtype), inner.shape, [0]));
  const solution = matmul(adjoint(vh), scaled);
  const rest = ops.sub(right, matmul(x, solution));
  const own = y.ndim === 1 ? ops.reshape(solution, [solution.size]) : solution;
  return [own, sum(squaredSizes(rest), 0), sum(counts), s];
}

/**
 * Solves `tensordot(a, x, x.ndim) = b`.
 *
 * @example
 * ```ts
 * np.linalg.tensorsolve(np.array([[2, 0], [0, 4]]), np.array([4, 4])); // [2, 1]
 * ```
 */
export function tensorsolve(a: TensorLike, b: TensorLike): Tensor {
  const [x, y] = floats(a, b, "linalg.tensorsolve");
  const shape = x.shape.slice(y.ndim);
  checkSizes(sizeOf(shape), y.size, x, "linalg.tensorsolve");
  const matrix = ops.reshape(x, [y.size, sizeOf(shape)]);
  return ops.reshape(solve(matrix, ops.reshape(y, [y.size])), shape);
}

/**
 * The tensor that undoes `tensordot(a, ·)`.
 *
 * @param numDims how many dims of a are those of the result of `tensordot`
 *
 * @example
 * ```ts
 * np.linalg.tensorinv(np.array([[2, 0], [0, 4]]), 1); // [[0.5, 0], [0, 0.25]]
 * ```
 */
export function tensorinv(a: TensorLike, numDims = 2): Tensor {
  needIfGiven("integer", numDims, "numDims", "linalg.tensorinv");
  const x = asInexact(a, "linalg.tensorinv");
  const [rows, columns]: [Shape, Shape] = [x.shape.slice(0, numDims), x.shape.slice(numDims)];
  checkSizes(sizeOf(columns), sizeOf(rows), x, "linalg.tensorinv");
  return ops.reshape(inv(ops.reshape(x, [sizeOf(rows), sizeOf(columns)])), [...columns, ...rows]);
}

function checkSizes(unknowns: number, equations: number, x: Tensor, caller: string): void {
  if (unknowns === equations) return;
  throw new ShapeError(
    `[${caller}] ${formatType(x.type)} stands for ${equations} equations of ${unknowns} unknowns: they must be as many`,
  );
}
