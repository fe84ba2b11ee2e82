/** Solvers, decompositions and functions of matrices with SciPy's conventions. Matrices are the last two dims. */

import { oneOf } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { partType } from "../../ir/dtype.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, range } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import { type LuFactors, solveWith } from "../../lax/linalg/lu.js";
import { adjoint, checkSquare, flatBatch, likeBatch } from "../../lax/linalg/matrixOperands.js";
import * as np from "../../numpy/index.js";
import { asInexact, cast, inexactType } from "../../numpy/operands.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { scan } from "../../transforms/control/scan.js";
import { jvp } from "../../transforms/derivatives/jvp.js";

/**
 * The determinant; see `np.linalg.det`.
 *
 * @example
 * ```ts
 * scipy.linalg.det(np.array([[2, 1], [1, 3]])); // 5
 * ```
 */
export const det: typeof np.linalg.det = (x) => np.linalg.det(x);
/**
 * The inverse; see `np.linalg.inv`.
 *
 * @example
 * ```ts
 * scipy.linalg.inv(np.array([[2, 0], [0, 4]])); // [[0.5, 0], [0, 0.25]]
 * ```
 */
export const inv: typeof np.linalg.inv = (x) => np.linalg.inv(x);
/**
 * U, the singular values and Vᴴ; see `np.linalg.svd`.
 *
 * @example
 * ```ts
 * scipy.linalg.svd(np.array([[3, 0], [0, -4]]))[1]; // [4, 3]
 * ```
 */
export const svd: typeof np.linalg.svd = (x, options) => np.linalg.svd(x, options);
/**
 * The exponential of square matrices; see `np.linalg.expm`.
 *
 * @example
 * ```ts
 * scipy.linalg.expm(np.array([[0, 1], [0, 0]])); // [[1, 1], [0, 1]]
 * ```
 */
export const expm: typeof np.linalg.expm = (x) => np.linalg.expm(x);

const triangleOptions = schema({
  /** Whether the lower triangle is meant; the upper one by default. */
  lower: false,
});

/** Options of {@link cholesky} and {@link choFactor}. */
export interface CholeskyOptions extends OptionsOf<typeof triangleOptions> {}

/**
 * The triangle U with `Uᴴ U = a`, read from the upper triangle of a; or with `lower`, L with `L Lᴴ = a` from the lower one.
 *
 * @example
 * ```ts
 * scipy.linalg.cholesky(np.array([[4, 2], [2, 5]])); // [[2, 1], [0, 2]]
 * ```
 */
export function cholesky(a: TensorLike, options?: CholeskyOptions): Tensor {
  const { lower } = triangleOptions.read(options, "scipy.linalg.cholesky");
  const x = asInexact(a, "scipy.linalg.cholesky");
  const triangle = lax.linalg.cholesky(lower ? x : adjoint(x), { symmetrizeInput: false });
  return lower ? triangle : adjoint(triangle);
}

/** What {@link choFactor} gives: a triangle, and whether it is the lower one. */
export type CholeskyFactor = readonly [triangle: Tensor, lower: boolean];

/**
 * {@link cholesky}, with a note of which triangle it is, for {@link choSolve}.
 *
 * @example
 * ```ts
 * const a = np.array([[4, 2], [2, 5]]);
 * scipy.linalg.choSolve(scipy.linalg.choFactor(a), np.array([8, 12])); // [1, 2]
 * ```
 */
export function choFactor(a: TensorLike, options?: CholeskyOptions): CholeskyFactor {
  const { lower } = triangleOptions.read(options, "scipy.linalg.choFactor");
  return [cholesky(a, { lower }), lower];
}

/** A pair of factors; throws unless it is one. */
function pairOf<T extends readonly unknown[]>(factor: T, maker: string, caller: string): T {
  if (Array.isArray(factor) && factor.length === 2) return factor;
  throw new ValueError(`[${caller}] the factors must be what ${maker} returns, got ${describe(factor)}`);
}

/**
 * Solves `a x = b` with what {@link choFactor} gave for a.
 *
 * @example
 * ```ts
 * scipy.linalg.choSolve([np.array([[2, 0], [1, 2]]), true], np.array([8, 12])); // [1, 2]
 * ```
 */
export function choSolve(factor: CholeskyFactor, b: TensorLike): Tensor {
  const [triangle, lower] = pairOf(factor, "choFactor", "scipy.linalg.choSolve");
  const half = solveTriangular(triangle, b, { lower, trans: lower ? "N" : "C" });
  return solveTriangular(triangle, half, { lower, trans: lower ? "C" : "N" });
}

const eighOptions = schema({
  /** Whether the lower triangle is read; true by default. */
  lower: true,
  /** Whether only the eigenvalues are returned. */
  eigvalsOnly: false,
});

/** Options of {@link eigh}. */
export interface EighOptions extends OptionsOf<typeof eighOptions> {}

/**
 * The eigenvalues of symmetric or Hermitian matrices, the smallest first, and the eigenvectors as columns.
 *
 * @example
 * ```ts
 * scipy.linalg.eigh(np.array([[2, 0], [0, 1]]), { eigvalsOnly: true }); // [1, 2]
 * ```
 */
export function eigh(a: TensorLike, options: EighOptions & { readonly eigvalsOnly: true }): Tensor;
export function eigh(a: TensorLike, options?: EighOptions): [values: Tensor, vectors: Tensor];
export function eigh(a: TensorLike, options?: EighOptions): Tensor | [values: Tensor, vectors: Tensor] {
  const { lower, eigvalsOnly } = eighOptions.read(options, "scipy.linalg.eigh");
  const [values, vectors] = np.linalg.eigh(a, { uplo: lower ? "L" : "U", symmetrizeInput: false });
  return eigvalsOnly ? values : [values, vectors];
}

const eighTridiagonalOptions = schema({
  /** Whether only the eigenvalues are returned. */
  eigvalsOnly: false,
  /** Which eigenvalues: all of them (`"a"`, the default), or those whose ordinals are in `selectRange` (`"i"`). */
  select: optional(oneOf("a", "i"), "a"),
  /** The first and the last ordinal, from 0, that `select: "i"` asks for. */
  selectRange: optional<readonly [first: number, last: number]>("integers"),
});

/** Options of {@link eighTridiagonal}. */
export interface EighTridiagonalOptions extends OptionsOf<typeof eighTridiagonalOptions> {}

/** The ordinals of the eigenvalues that are asked for. */
function selected(
  n: number,
  { select, selectRange }: Pick<EighTridiagonalOptions, "select" | "selectRange">,
  caller: string,
): readonly [start: number, stop: number] {
  if (select === "a") return [0, n];
  const [first, last] = selectRange ?? [];
  if (first === undefined || last === undefined || !(0 <= first && first <= last && last < n)) {
    throw new ValueError(
      `[${caller}] select "i" needs selectRange: [first, last] with 0 ≤ first ≤ last < ${n}, got ${describe(selectRange)}`,
    );
  }
  return [first, last + 1];
}

/**
 * {@link eigh} of the symmetric or Hermitian matrices with given diagonals, and given elements above them.
 *
 * @example
 * ```ts
 * scipy.linalg.eighTridiagonal(np.array([2, 2]), np.array([1]), { eigvalsOnly: true }); // [1, 3]
 * ```
 */
export function eighTridiagonal(
  d: TensorLike,
  e: TensorLike,
  options: EighTridiagonalOptions & { readonly eigvalsOnly: true },
): Tensor;
export function eighTridiagonal(
  d: TensorLike,
  e: TensorLike,
  options?: EighTridiagonalOptions,
): [values: Tensor, vectors: Tensor];
export function eighTridiagonal(
  d: TensorLike,
  e: TensorLike,
  options?: EighTridiagonalOptions,
): Tensor | [values: Tensor, vectors: Tensor] {
  const caller = "scipy.linalg.eighTridiagonal";
  const { eigvalsOnly, ...given } = eighTridiagonalOptions.read(options, caller);
  const dtype = inexactType(operandType(d, e));
  const [diagonal, above] = [cast(np.asarray(d), dtype), cast(np.asarray(e), dtype)];
  const n = diagonal.ndim === 1 ? diagonal.size : 0;
  if (n === 0 || above.ndim !== 1 || above.size !== n - 1) {
    throw new ShapeError(
      `[${caller}] needs a vector and one that is shorter by 1, got ${formatType(diagonal.type)} and ${formatType(above.type)}`,
    );
  }
  const matrix = np.add(np.diag(diagonal), np.add(np.diag(above, 1), np.diag(np.conj(above), -1)));
  const [start, stop] = selected(n, given, caller);
  const [values, vectors] = np.linalg.eigh(matrix, { symmetrizeInput: false });
  const kept = ops.sliceDim(values, 0, start, stop);
  return eigvalsOnly ? kept : [kept, ops.sliceDim(vectors, 1, start, stop)];
}

const luOptions = schema({
  /** Whether the permutation is applied to L, so that two factors are left. */
  permuteL: false,
});

/** Options of {@link lu}. */
export interface LuOptions extends OptionsOf<typeof luOptions> {}

/**
 * The decomposition `a = P L U` into a permutation, a lower triangle with ones and an upper one; `[P L, U]` with `permuteL`.
 *
 * @example
 * ```ts
 * const [p, l, u] = scipy.linalg.lu(np.array([[1, 2], [4, 2]]));
 * l; // [[1, 0], [0.25, 1]]
 * ```
 */
export function lu(a: TensorLike, options: LuOptions & { readonly permuteL: true }): [pl: Tensor, u: Tensor];
export function lu(a: TensorLike, options?: LuOptions): [p: Tensor, l: Tensor, u: Tensor];
export function lu(a: TensorLike, options?: LuOptions): Tensor[] {
  const { permuteL } = luOptions.read(options, "scipy.linalg.lu");
  const x = asInexact(a, "scipy.linalg.lu");
  const [both, , order] = lax.linalg.lu(x);
  const [rows, columns] = [at(x.shape, x.ndim - 2), at(x.shape, x.ndim - 1)];
  const k = Math.min(rows, columns);
  const below = np.tril(ops.sliceDim(both, x.ndim - 1, 0, k), -1);
  const l = np.add(below, np.eye(rows, k, { dtype: x.dtype }));
  const u = np.triu(ops.sliceDim(both, x.ndim - 2, 0, k));
  const shape = [...x.shape.slice(0, -2), rows, rows];
  const isOwn = ops.compare(
    "eq",
    ops.broadcastInDim(order, shape, [...range(x.ndim - 2), x.ndim - 1]),
    ops.iota("int32", shape, x.ndim - 2),
  );
  const p = ops.convert(isOwn, x.dtype);
  return permuteL ? [np.matmul(p, l), u] : [ops.convert(isOwn, partType(x.dtype)), l, u];
}

/** What {@link luFactor} gives: both triangles in one matrix, and the row that each row was exchanged with. */
export type LuFactor = readonly [lu: Tensor, pivots: Tensor];

/**
 * Both triangles of the decomposition `P L U` in one matrix, for {@link luSolve}.
 *
 * @example
 * ```ts
 * const factors = scipy.linalg.luFactor(np.array([[2, 1], [1, 3]]));
 * scipy.linalg.luSolve(factors, np.array([3, 4])); // [1, 1]
 * ```
 */
export function luFactor(a: TensorLike): LuFactor {
  const [both, pivots] = lax.linalg.lu(asInexact(a, "scipy.linalg.luFactor"));
  return [both, pivots];
}

const transOptions = schema({
  /** Whether a is meant as it is (`"N"`, the default), transposed (`"T"`), or transposed and conjugated (`"C"`). */
  trans: optional(oneOf("N", "T", "C"), "N"),
});

/** Options of {@link luSolve}. */
export interface LuSolveOptions extends OptionsOf<typeof transOptions> {}

/** The order of rows that exchanges one after the other make: [batch, n]. */
function orderOf(pivots: Tensor): Tensor {
  const positions = ops.iota("int32", pivots.shape, 1);
  const spread = (x: Tensor) => ops.broadcastInDim(x, pivots.shape, [0]);
  const isAt = (row: Tensor) => ops.compare("eq", positions, spread(row));
  const [order] = scan<Tensor, [Tensor, Tensor], null>(
    (rows, [step, pivot]) => {
      const here = ops.broadcastInDim(step, pivot.shape, []);
      const valueAt = (row: Tensor) => spread(np.sum(np.where(isAt(row), rows, 0), 1));
      const swapped = ops.select(isAt(here), valueAt(pivot), rows);
      return [ops.select(isAt(pivot), valueAt(here), swapped), null];
    },
    positions,
    [ops.iota("int32", [at(pivots.shape, 1)], 0), ops.transpose(pivots, [1, 0])],
  );
  return order;
}

/** Matrices and right sides of one type and one flat batch; and how a solution gets the form of the right side. */
function system(a: Tensor, b: TensorLike, caller: string) {
  const dtype = inexactType(operandType(a, b));
  const right = cast(np.asarray(b), dtype);
  checkSquare(a, caller, "floats or complex numbers");
  const columns = right.ndim === 1 ? ops.reshape(right, [...right.shape, 1]) : right;
  const batch = np.broadcastShapes(a.shape.slice(0, -2), columns.shape.slice(0, -2));
  const spread = (x: Tensor, kept: number) => np.broadcastTo(x, [...batch, ...x.shape.slice(x.ndim - kept)]);
  const sides = spread(columns, 2);
  const restore = (x: Tensor) => {
    const shaped = likeBatch(x, sides);
    return right.ndim === 1 ? ops.reshape(shaped, shaped.shape.slice(0, -1)) : shaped;
  };
  return { a: flatBatch(spread(cast(a, dtype), 2)), b: flatBatch(sides), spread, restore };
}

/**
 * Solves `a x = b`, or the same with a transposed, with what {@link luFactor} gave for a.
 *
 * @example
 * ```ts
 * const factors = scipy.linalg.luFactor(np.array([[2, 1], [0, 3]]));
 * scipy.linalg.luSolve(factors, np.array([2, 4]), { trans: "T" }); // [1, 1]
 * ```
 */
export function luSolve(factor: LuFactor, b: TensorLike, options?: LuSolveOptions): Tensor {
  const caller = "scipy.linalg.luSolve";
  const [both, pivots] = pairOf(factor, "luFactor", caller);
  const { trans } = transOptions.read(options, caller);
  const sides = system(trans === "C" ? np.conj(both) : both, b, caller);
  const rows = sides.spread(pivots, 1);
  const flat = ops.reshape(rows, [rows.size / at(rows.shape, rows.ndim - 1), at(rows.shape, rows.ndim - 1)]);
  const factors: LuFactors = [sides.a, flat, orderOf(flat)];
  return sides.restore(solveWith(factors, sides.b, trans !== "N"));
}

const qrOptions = schema({
  /** Whether Q is square (`"full"`, the default) or has as many columns as needed (`"economic"`); `"r"` gives R alone. */
  mode: optional(oneOf("full", "economic", "r"), "full"),
});

/** Options of {@link qr}. */
export interface QrOptions extends OptionsOf<typeof qrOptions> {}

/**
 * The decomposition `a = Q R` into orthonormal columns and an upper triangle.
 *
 * @example
 * ```ts
 * const [q, r] = scipy.linalg.qr(np.array([[3, 1], [4, 2]]), { mode: "economic" });
 * np.matmul(q, r); // [[3, 1], [4, 2]]
 * ```
 */
export function qr(a: TensorLike, options: QrOptions & { readonly mode: "r" }): [r: Tensor];
export function qr(a: TensorLike, options?: QrOptions): [q: Tensor, r: Tensor];
export function qr(a: TensorLike, options?: QrOptions): Tensor[] {
  const { mode } = qrOptions.read(options, "scipy.linalg.qr");
  const [q, r] = np.linalg.qr(a, { mode: mode === "economic" ? "reduced" : "complete" });
  return mode === "r" ? [r] : [q, r];
}

const qrMultiplyOptions = schema({
  /** Whether `c Q` (`"right"`, the default) or `Q c` (`"left"`) is computed. */
  mode: optional(oneOf("right", "left"), "right"),
  /** Whether Q is conjugated. */
  conjugate: false,
});

/** Options of {@link qrMultiply}. */
export interface QrMultiplyOptions extends OptionsOf<typeof qrMultiplyOptions> {}

/**
 * The product of c and the orthonormal columns Q of `a = Q R`, and R. A vector c is a row for `mode: "right"`, else a column.
 *
 * @example
 * ```ts
 * const a = np.array([[1, 1], [1, 2], [1, 3]]);
 * const [qb, r] = scipy.linalg.qrMultiply(a, np.array([2, 4, 6]));
 * scipy.linalg.solveTriangular(r, qb); // [0, 2]
 * ```
 */
export function qrMultiply(
  a: TensorLike,
  c: TensorLike,
  options?: QrMultiplyOptions,
): [product: Tensor, r: Tensor] {
  const caller = "scipy.linalg.qrMultiply";
  const { mode, conjugate } = qrMultiplyOptions.read(options, caller);
  const dtype = inexactType(operandType(a, c));
  const [q, r] = np.linalg.qr(cast(np.asarray(a), dtype));
  const columns = conjugate ? np.conj(q) : q;
  const other = cast(np.asarray(c), dtype);
  return [mode === "left" ? np.matmul(columns, other) : np.matmul(other, columns), r];
}

const solveOptions = schema({
  /** Which triangle is read of matrices that are positive definite. */
  lower: false,
  /** What a is: any matrix (`"gen"`, the default), a symmetric, a Hermitian, or a positive definite one. */
  assumeA: optional(oneOf("gen", "sym", "her", "pos"), "gen"),
});

/** Options of {@link solve}. */
export interface SolveOptions extends OptionsOf<typeof solveOptions> {}

/**
 * Solves `a x = b`; positive definite matrices by Cholesky's decomposition.
 *
 * @example
 * ```ts
 * scipy.linalg.solve(np.array([[4, 2], [2, 5]]), np.array([8, 12]), { assumeA: "pos" }); // [1, 2]
 * ```
 */
export function solve(a: TensorLike, b: TensorLike, options?: SolveOptions): Tensor {
  const { lower, assumeA } = solveOptions.read(options, "scipy.linalg.solve");
  return assumeA === "pos" ? choSolve(choFactor(a, { lower }), b) : np.linalg.solve(a, b);
}

const solveTriangularOptions = schema({
  ...transOptions.fields,
  /** Whether the lower triangle is read; the upper one by default. */
  lower: false,
  /** Whether the diagonal is taken for ones. */
  unitDiagonal: false,
});

/** Options of {@link solveTriangular}. */
export interface SolveTriangularOptions extends OptionsOf<typeof solveTriangularOptions> {}

/**
 * Solves `a x = b` where of a one triangle is read.
 *
 * @example
 * ```ts
 * scipy.linalg.solveTriangular(np.array([[2, 1], [0, 4]]), np.array([4, 8])); // [1, 2]
 * ```
 */
export function solveTriangular(a: TensorLike, b: TensorLike, options?: SolveTriangularOptions): Tensor {
  const caller = "scipy.linalg.solveTriangular";
  const { trans, lower, unitDiagonal } = solveTriangularOptions.read(options, caller);
  const x = asInexact(a, caller);
  const own = { lower, trans: trans !== "N", unitDiagonal };
  return np.linalg.solveTriangular(trans === "C" ? np.conj(x) : x, b, own);
}

/**
 * The exponential of square matrices, and its derivative in the direction of others.
 *
 * @example
 * ```ts
 * const [value, slope] = scipy.linalg.expmFrechet(np.zeros([2, 2]), np.ones([2, 2]));
 * slope; // [[1, 1], [1, 1]]
 * ```
 */
export function expmFrechet(a: TensorLike, direction: TensorLike): [value: Tensor, slope: Tensor] {
  const caller = "scipy.linalg.expmFrechet";
  const x = asInexact(a, caller);
  const along = cast(asInexact(direction, caller), x.dtype);
  const [value, slope] = jvp((y: Tensor) => np.linalg.expm(y), [x], [along]);
  return [value, slope];
}

const polarOptions = schema({
  /** Whether the positive factor stands right of the unitary one (the default) or left of it. */
  side: optional(oneOf("right", "left"), "right"),
});

/** Options of {@link polar}. */
export interface PolarOptions extends OptionsOf<typeof polarOptions> {}

/**
 * The factors of `a = U P`, or with `side: "left"` of `a = P U`: orthonormal U, and P Hermitian without negative eigenvalues.
 *
 * @example
 * ```ts
 * const [u, p] = scipy.linalg.polar(np.array([[0, -2], [3, 0]]));
 * p; // [[3, 0], [0, 2]]
 * ```
 */
export function polar(a: TensorLike, options?: PolarOptions): [unitary: Tensor, positive: Tensor] {
  const { side } = polarOptions.read(options, "scipy.linalg.polar");
  const x = asInexact(a, "scipy.linalg.polar");
  const [u, s, vh] = np.linalg.svd(x, { fullMatrices: false });
  const scaled = (columns: Tensor) => np.multiply(columns, np.expandDims(ops.convert(s, x.dtype), -2));
  const positive = side === "right" ? np.matmul(scaled(adjoint(vh)), vh) : np.matmul(scaled(u), adjoint(u));
  return [np.matmul(u, vh), positive];
}
