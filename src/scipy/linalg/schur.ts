/** Schur's decomposition of square matrices, and what follows from it: functions of matrices, Sylvester's equation. */

import { need, numberFrom, oneOf } from "../../ir/arguments.js";
import { complexType, isComplex, limits, partType } from "../../ir/dtype.js";
import { ShapeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, range } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import {
  adjoint,
  checkSquare,
  diagonalMatrices,
  diagonals,
  flatBatch,
  likeBatch,
  positionsIn,
  putColumn,
  times,
} from "../../lax/linalg/matrixOperands.js";
import { realSchur } from "../../lax/linalg/realSchur.js";
import { schur as complexSchur, hessenberg as hessenbergOf, type Schur } from "../../lax/linalg/schur.js";
import * as np from "../../numpy/index.js";
import { asInexact, cast, inexactType } from "../../numpy/operands.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { scan } from "../../transforms/control/scan.js";
import { libraryVjp } from "../../transforms/derivatives/customVjp.js";
import { vjp } from "../../transforms/derivatives/grad.js";

const elements = "floats or complex numbers";

/** Square matrices of floats or complex numbers. */
function squareOf(value: TensorLike, caller: string): Tensor {
  const x = asInexact(value, caller);
  checkSquare(x, caller, elements);
  return x;
}

/** Decompositions are computed in 64 bits, whatever the type of a matrix is: eigenvalues react to every rounding. */
function wide(x: Tensor, isReal = !isComplex(x.dtype)): Tensor {
  return ops.convert(flatBatch(x), isReal ? "float64" : "complex128");
}

/** A result with the batch dims of x, in the real or complex type that goes with x. */
function narrow(result: Tensor, x: Tensor): Tensor {
  const own = isComplex(result.dtype) ? complexType(partType(x.dtype)) : x.dtype;
  return likeBatch(ops.convert(result, own), x);
}

/** The complex decomposition of matrices, in 64 bits: [batch, n, n]. */
function triangleOf(x: Tensor): Schur {
  return complexSchur(wide(x, false));
}

const hessenbergOptions = schema({
  /** Whether the unitary matrix is returned, too. */
  calcQ: false,
});

/** Options of {@link hessenberg}. */
export interface HessenbergOptions extends OptionsOf<typeof hessenbergOptions> {}

/**
 * The decomposition `a = Q H Qᴴ` into a unitary matrix and one that is zero below the diagonal under the main one: H, or
 * with `calcQ` H and Q.
 *
 * @example
 * ```ts
 * const [h, q] = scipy.linalg.hessenberg(np.array([[1, 2, 3], [4, 5, 6], [3, 8, 9]]), { calcQ: true });
 * h.get(2, 0); // 0
 * np.matmul(np.matmul(q, h), np.transpose(q)); // [[1, 2, 3], [4, 5, 6], [3, 8, 9]]
 * ```
 */
export function hessenberg(
  a: TensorLike,
  options: HessenbergOptions & { readonly calcQ: true },
): [h: Tensor, q: Tensor];
export function hessenberg(a: TensorLike, options?: HessenbergOptions): Tensor;
export function hessenberg(a: TensorLike, options?: HessenbergOptions): Tensor | [h: Tensor, q: Tensor] {
  const caller = "scipy.linalg.hessenberg";
  const { calcQ } = hessenbergOptions.read(options, caller);
  const x = squareOf(a, caller);
  const [h, q] = hessenbergOf(flatBatch(x)).map((matrix) => likeBatch(matrix, x)) as [Tensor, Tensor];
  return calcQ ? [h, q] : h;
}

const schurOptions = schema({
  /** Whether real matrices get real factors with blocks of two rows (`"real"`, the default), or complex ones. */
  output: optional(oneOf("real", "complex"), "real"),
});

/** Options of {@link schur}. */
export interface SchurOptions extends OptionsOf<typeof schurOptions> {}

/**
 * The decomposition `a = Z T Zᴴ` into a unitary matrix and a triangle. The real T of real matrices has a block of two rows
 * for each pair of conjugate eigenvalues. Eigenvalues are in no order.
 *
 * @example
 * ```ts
 * const [t, z] = scipy.linalg.schur(np.array([[0, 2], [-2, 0]]));
 * np.diag(t); // [0, 0]
 * np.matmul(np.matmul(z, t), np.transpose(z)); // [[0, 2], [-2, 0]]
 * ```
 */
export function schur(a: TensorLike, options?: SchurOptions): [t: Tensor, z: Tensor] {
  const caller = "scipy.linalg.schur";
  const { output } = schurOptions.read(options, caller);
  const x = squareOf(a, caller);
  const isReal = output === "real" && !isComplex(x.dtype);
  const [t, z] = isReal ? realSchur(wide(x)) : triangleOf(x);
  return [narrow(t, x), narrow(z, x)];
}

/** Turns two rows from each block of two on, from the last one up, so that the blocks become triangles. */
function triangular([start, unitary]: Schur): Schur {
  const [batch = 0, n = 0] = start.shape;
  if (n < 2) return [start, unitary];
  const zero = Tensor.scalar(0, "int32");
  const turn = ([t, z]: Schur, index: Tensor): [Schur, null] => {
    const [rows, columns] = [ops.dynamicSlice(t, [zero, index, zero], [batch, 2, n]), [batch, n, 2]];
    const block = ops.dynamicSlice(t, [zero, index, index], [batch, 2, 2]);
    const [a, b, c, d] = [
      [0, 0],
      [0, 1],
      [1, 0],
      [1, 1],
    ].map(([i = 0, j = 0]) => block.get(np.s(), i, j)) as [Tensor, Tensor, Tensor, Tensor];
    const half = ops.mul(ops.sub(a, d), 0.5);
    const from = ops.add(half, ops.sqrt(ops.add(ops.mul(half, half), ops.mul(b, c))));
    const size = ops.add(ops.abs(a), ops.abs(d));
    const isBlock = ops.compare("gt", ops.abs(c), ops.mul(size, limits(t.dtype).epsilon));
    const length = ops.convert(np.hypot(ops.abs(from), ops.abs(c)), t.dtype);
    const safe = ops.select(isBlock, length, ops.ones(length.type));
    const cos = ops.select(isBlock, ops.div(from, safe), ops.ones(a.type));
    const sin = ops.select(isBlock, ops.div(c, safe), ops.zeros(a.type));
    const turns = np.stack([np.stack([np.conj(cos), sin], -1), np.stack([ops.neg(sin), cos], -1)], -2);
    const right = (m: Tensor) => {
      const two = ops.dynamicSlice(m, [zero, zero, index], columns);
      return ops.dynamicUpdateSlice(m, times(two, adjoint(turns)), [zero, zero, index]);
    };
    const turned = right(ops.dynamicUpdateSlice(t, times(turns, rows), [zero, index, zero]));
    const under = ops.zeros({ ...t.type, shape: [batch, 1, 1] });
    return [[ops.dynamicUpdateSlice(turned, under, [zero, ops.add(index, 1), index]), right(z)], null];
  };
  const blocks = ops.iota("int32", [n - 1], 0);
  return scan(turn, [start, unitary] as const, blocks, { reverse: true })[0];
}

/**
 * The complex factors of {@link schur} from the real ones.
 *
 * @example
 * ```ts
 * const [t] = scipy.linalg.rsf2csf(...scipy.linalg.schur(np.array([[0, 2], [-2, 0]])));
 * np.imag(np.diag(t)); // [2, -2]
 * ```
 */
export function rsf2csf(t: TensorLike, z: TensorLike): [t: Tensor, z: Tensor] {
  const caller = "scipy.linalg.rsf2csf";
  const [x, unitary] = [squareOf(t, caller), squareOf(z, caller)];
  if (x.shape.at(-1) !== unitary.shape.at(-1)) {
    throw new ShapeError(
      `[${caller}] needs matrices of the same size, got ${formatType(x.type)} and ${formatType(unitary.type)}`,
    );
  }
  const batch = np.broadcastShapes(x.shape.slice(0, -2), unitary.shape.slice(0, -2));
  const [own, other] = [x, unitary].map((one) => np.broadcastTo(one, [...batch, ...one.shape.slice(-2)])) as [
    Tensor,
    Tensor,
  ];
  const [triangle, vectors] = triangular([wide(own, false), wide(other, false)]);
  return [narrow(triangle, own), narrow(vectors, other)];
}

/** Fills a triangle from its diagonal outwards: each diagonal follows from those before it. */
function byDiagonals(start: Tensor, next: (known: Tensor) => Tensor): Tensor {
  const [rows, columns] = positionsIn(start);
  const away = ops.sub(columns, rows);
  const n = at(start.shape, start.ndim - 1);
  const [filled] = scan<Tensor, Tensor, null>(
    (known, step) => {
      const isNext = ops.compare("eq", away, ops.broadcastInDim(step, start.shape, []));
      return [ops.select(isNext, next(known), known), null];
    },
    start,
    ops.iota("int32", [Math.max(n - 1, 0)], 0).add(1),
  );
  return filled;
}

/** What is 1 where it would be 0. */
function nonzero(x: Tensor): Tensor {
  return ops.select(ops.compare("eq", x, ops.zeros(x.type)), ops.ones(x.type), x);
}

/** All combinations of the diagonals [batch, n] of two triangles. */
function outer(x: Tensor, y: Tensor, combine: (x: Tensor, y: Tensor) => Tensor): Tensor {
  return combine(np.expandDims(x, 2), np.expandDims(y, 1));
}

/**
 * A function of square matrices, complex: that of the eigenvalues, carried over to the matrix by Schur's decomposition and
 * Parlett's recurrence, which needs eigenvalues that differ.
 *
 * @param func a function of tensors of complex numbers, element by element
 *
 * @example
 * ```ts
 * np.real(scipy.linalg.funm(np.array([[1, 2], [0, 3]]), np.square)); // [[1, 8], [0, 9]]
 * ```
 */
export function funm(a: TensorLike, func: (x: Tensor) => Tensor): Tensor {
  const caller = "scipy.linalg.funm";
  need("function", func, "func", caller);
  const x = squareOf(a, caller);
  const [t, z] = triangleOf(x);
  const eigenvalues = diagonals(t);
  const values = ops.convert(func(ops.convert(eigenvalues, complexType(partType(x.dtype)))), t.dtype);
  const gaps = nonzero(outer(eigenvalues, eigenvalues, (own, other) => np.subtract(other, own)));
  const whole = byDiagonals(diagonalMatrices(values), (f) =>
    ops.div(ops.sub(times(t, f), times(f, t)), gaps),
  );
  return narrow(times(times(z, whole), adjoint(z)), x);
}

/**
 * The principal square root of square matrices, complex: `root · root = a`, by the triangle of Schur's decomposition.
 *
 * @example
 * ```ts
 * np.real(scipy.linalg.sqrtm(np.array([[4, 1], [0, 9]]))); // [[2, 0.2], [0, 3]]
 * ```
 */
export function sqrtm(a: TensorLike): Tensor {
  const x = squareOf(a, "scipy.linalg.sqrtm");
  const [t, z] = triangleOf(x);
  const roots = ops.sqrt(diagonals(t));
  const sums = nonzero(outer(roots, roots, np.add));
  // On the next diagonal the product holds only elements that are known, and 0 for the two that are not.
  const root = byDiagonals(diagonalMatrices(roots), (known) =>
    ops.div(ops.sub(t, times(known, known)), sums),
  );
  return narrow(times(times(z, root), adjoint(z)), x);
}

const sylvesterOptions = schema({
  /** The solution is NaN where the sum of an eigenvalue of a and one of b is smaller: there is none, or many. */
  tol: optional(numberFrom(0), 1e-8),
});

/** Options of {@link solveSylvester}. */
export interface SolveSylvesterOptions extends OptionsOf<typeof sylvesterOptions> {}

/** Solves `a x + x b = c` with the decompositions of a and b, column by column of the triangle of b; linear in c. */
function solveWith([r, u]: Schur, [t, v]: Schur, c: Tensor): Tensor {
  const [batch = 0, m = 0, n = 0] = c.shape;
  const right = times(times(adjoint(u), c), v);
  const diagonal = diagonals(t);
  const [rows, columns] = positionsIn(r);
  const isDiagonal = ops.compare("eq", rows, columns);
  const zero = Tensor.scalar(0, "int32");
  const column = (x: Tensor, index: Tensor, height: number) =>
    ops.dynamicSlice(x, [zero, zero, index], [batch, height, 1]);
  const [y] = scan<Tensor, Tensor, null>(
    (known, index) => {
      const value = ops.dynamicSlice(diagonal, [zero, index], [batch, 1]);
      const shift = ops.broadcastInDim(value, r.shape, [0, 1]);
      const shifted = ops.add(r, ops.select(isDiagonal, shift, ops.zeros(r.type)));
      const side = ops.sub(column(right, index, m), times(known, column(t, index, n)));
      return [putColumn(known, lax.linalg.triangularSolve(shifted, side, { leftSide: true }), index), null];
    },
    ops.zeros(right.type),
    ops.iota("int32", [n], 0),
  );
  return times(times(u, y), adjoint(v));
}

/** The solution of complex systems [batch, …], whose derivative is that of the equation. */
const sylvester = libraryVjp(
  (a: Tensor, b: Tensor, c: Tensor) => solveWith(complexSchur(a), complexSchur(b), c),
  {
    forward: (a, b, c) => {
      const factors = [complexSchur(a), complexSchur(b)] as const;
      const x = solveWith(...factors, c);
      return [x, [factors, x] as const];
    },
    backward: ([factors, x], ct) => {
      const [ofA, ofB] = factors;
      const change = (da: Tensor, db: Tensor, dc: Tensor) =>
        solveWith(ofA, ofB, ops.sub(dc, ops.add(times(da, x), times(x, db))));
      const zeros = [ofA[0].type, ofB[0].type, x.type].map((type) => ops.zeros(type));
      return vjp(change, zeros as [Tensor, Tensor, Tensor])[1](ct);
    },
  },
);

/**
 * The solution x of Sylvester's equation `a x + x b = c`.
 *
 * @example
 * ```ts
 * const [a, b] = [np.diag(np.array([1, 2])), np.diag(np.array([3, 4]))];
 * scipy.linalg.solveSylvester(a, b, np.array([[4, 10], [10, 18]])); // [[1, 2], [2, 3]]
 * ```
 */
export function solveSylvester(
  a: TensorLike,
  b: TensorLike,
  c: TensorLike,
  options?: SolveSylvesterOptions,
): Tensor {
  const caller = "scipy.linalg.solveSylvester";
  const { tol } = sylvesterOptions.read(options, caller);
  const dtype = inexactType(operandType(a, b, c));
  const [left, right, side] = [a, b, c].map((value) => cast(np.asarray(value), dtype)) as [
    Tensor,
    Tensor,
    Tensor,
  ];
  checkSquare(left, caller, elements);
  checkSquare(right, caller, elements);
  if (left.shape.at(-1) !== side.shape.at(-2) || right.shape.at(-1) !== side.shape.at(-1)) {
    throw new ShapeError(
      `[${caller}] ${formatType(left.type)} and ${formatType(right.type)} do not fit ${formatType(side.type)}: c needs the rows of a and the columns of b`,
    );
  }
  const batch = [left, right, side].reduce<readonly number[]>(
    (shape, x) => np.broadcastShapes(shape, x.shape.slice(0, -2)),
    [],
  );
  const flat = (x: Tensor) => wide(np.broadcastTo(x, [...batch, ...x.shape.slice(-2)]), false);
  const [l, r] = [flat(left), flat(right)];
  const x = sylvester(l, r, flat(side));
  const values = (matrix: Tensor) => diagonals(complexSchur(lax.stopGradient(matrix))[0]);
  const sums = ops.abs(outer(values(l), values(r), np.add));
  const isSingular = ops.compare("lt", ops.reduceMin(sums, range(3).slice(1)), tol);
  const like = np.broadcastTo(side, [...batch, ...side.shape.slice(-2)]);
  const own = isComplex(dtype) ? x : np.real(x);
  return narrow(np.where(np.expandDims(isSingular, [1, 2]), Number.NaN, own), like);
}
