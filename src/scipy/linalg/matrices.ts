/** Matrices with a pattern. */

import { integerFrom, need, oneOf } from "../../ir/arguments.js";
import { complexType, type DType, partType } from "../../ir/dtype.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, range } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import * as np from "../../numpy/index.js";
import { asInexact, asTensor, cast } from "../../numpy/operands.js";
import { operandType, type TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";

/** A matrix of numbers that a formula gives for rows and columns. */
function fromFormula(
  rows: number,
  columns: number,
  formula: (i: number, j: number) => number,
  dtype: DType = "float32",
): Tensor {
  return np.array(
    range(rows).map((i) => range(columns).map((j) => formula(i, j))),
    dtype,
  );
}

function size(n: number, caller: string): number {
  need(integerFrom(0), n, "n", `scipy.linalg.${caller}`);
  return n;
}

const choose = (n: number, k: number): number =>
  k < 0 || k > n ? 0 : Math.round(range(k).reduce((product, i) => (product * (n - i)) / (i + 1), 1));

/** Elements of vectors along the last dim at the places of a matrix. */
function fromPlaces(
  x: Tensor,
  rows: number,
  columns: number,
  place: (i: number, j: number) => number,
): Tensor {
  return np.take(x, fromFormula(rows, columns, place, "int32"), -1, { mode: "clip" });
}

const lengthOf = (x: Tensor): number => at(x.shape, x.ndim - 1);

function vectors(value: TensorLike, caller: string): Tensor {
  const x = asTensor(value, `scipy.linalg.${caller}`);
  if (x.ndim > 0 && lengthOf(x) > 0) return x;
  throw new ShapeError(`[scipy.linalg.${caller}] takes vectors with elements, got ${formatType(x.type)}`);
}

/** Two vectors of one type and batch, and the second without its first element, which the first one has. */
function column(c: TensorLike, r: TensorLike, caller: string): [column: Tensor, rest: Tensor] {
  const dtype = operandType(c, r);
  const [x, y] = [cast(vectors(c, caller), dtype), cast(vectors(r, caller), dtype)];
  const batch = np.broadcastShapes(x.shape.slice(0, -1), y.shape.slice(0, -1));
  const spread = (z: Tensor) => np.broadcastTo(z, [...batch, lengthOf(z)]);
  return [spread(x), spread(y).get("...", np.s(1))];
}

/**
 * The matrix whose elements are the same along each diagonal: the first column, and the first row, by default its conjugate.
 *
 * @example
 * ```ts
 * scipy.linalg.toeplitz(np.array([1, 2, 3]), np.array([1, 5])); // [[1, 5], [2, 1], [3, 2]]
 * ```
 */
export function toeplitz(c: TensorLike, r: TensorLike = np.conj(c)): Tensor {
  const [first, rest] = column(c, r, "toeplitz");
  const [rows, columns] = [lengthOf(first), lengthOf(rest) + 1];
  const both = np.concatenate([np.flip(rest, -1), first], -1);
  return fromPlaces(both, rows, columns, (i, j) => i - j + columns - 1);
}

/**
 * The matrix whose elements are the same along each antidiagonal: the first column, and the last row, by default zeros.
 *
 * @example
 * ```ts
 * scipy.linalg.hankel(np.array([1, 2, 3]), np.array([3, 7])); // [[1, 2], [2, 3], [3, 7]]
 * ```
 */
export function hankel(c: TensorLike, r: TensorLike = np.zerosLike(c)): Tensor {
  const [first, rest] = column(c, r, "hankel");
  const both = np.concatenate([first, rest], -1);
  return fromPlaces(both, lengthOf(first), lengthOf(rest) + 1, (i, j) => i + j);
}

/**
 * The matrix whose columns are a vector, each turned by one more place.
 *
 * @example
 * ```ts
 * scipy.linalg.circulant(np.array([1, 2, 3])); // [[1, 3, 2], [2, 1, 3], [3, 2, 1]]
 * ```
 */
export function circulant(c: TensorLike): Tensor {
  const x = vectors(c, "circulant");
  const n = lengthOf(x);
  return fromPlaces(x, n, n, (i, j) => (i - j + n) % n);
}

/**
 * A matrix with others along its diagonal and 0 elsewhere; vectors and numbers count as rows.
 *
 * @example
 * ```ts
 * scipy.linalg.blockDiag(np.ones([1, 2]), 3); // [[1, 1, 0], [0, 0, 3]]
 * ```
 */
export function blockDiag(...blocks: readonly TensorLike[]): Tensor {
  const dtype = operandType(...blocks);
  const matrices = (blocks.length === 0 ? [np.zeros([1, 0])] : blocks).map((block) => {
    const x = np.atleast2d(cast(asTensor(block, "scipy.linalg.blockDiag"), dtype));
    if (x.ndim === 2) return x;
    throw new ShapeError(`[scipy.linalg.blockDiag] takes matrices, got ${formatType(x.type)}`);
  });
  const width = matrices.reduce((sum, x) => sum + at(x.shape, 1), 0);
  let left = 0;
  const rows = matrices.map((x) => {
    const before = left;
    left += at(x.shape, 1);
    return np.pad(x, [
      [0, 0],
      [before, width - left],
    ]);
  });
  return np.concatenate(rows, 0);
}

/**
 * The matrix whose first row is −a₁/a₀ … and that moves all others down: its eigenvalues are the roots of a polynomial.
 *
 * @example
 * ```ts
 * scipy.linalg.companion(np.array([2, -3, 4])); // [[1.5, -2], [1, 0]]
 * ```
 */
export function companion(a: TensorLike): Tensor {
  const x = asInexact(vectors(a, "companion"), "scipy.linalg.companion");
  const n = lengthOf(x) - 1;
  if (n < 1) throw new ShapeError(`[scipy.linalg.companion] needs 2 elements, got ${formatType(x.type)}`);
  const top = np.negative(np.divide(x.get("...", np.s(1)), x.get("...", np.s(0, 1))));
  const below = np.broadcastTo(np.eye(n - 1, n, { dtype: x.dtype }), [...x.shape.slice(0, -1), n - 1, n]);
  return np.concatenate([np.expandDims(top, -2), below], -2);
}

/**
 * Leslie's matrix: births in its first row, and below the diagonal the shares that survive.
 *
 * @example
 * ```ts
 * scipy.linalg.leslie(np.array([0.5, 2]), np.array([0.25])); // [[0.5, 2], [0.25, 0]]
 * ```
 */
export function leslie(f: TensorLike, s: TensorLike): Tensor {
  const dtype = operandType(f, s);
  const [births, shares] = [cast(vectors(f, "leslie"), dtype), cast(vectors(s, "leslie"), dtype)];
  const n = lengthOf(births);
  if (lengthOf(shares) !== n - 1) {
    throw new ShapeError(`[scipy.linalg.leslie] ${n} births need ${n - 1} shares, got ${lengthOf(shares)}`);
  }
  const below = np.multiply(np.expandDims(shares, -1), np.eye(n - 1, n, { dtype }));
  return np.concatenate([np.expandDims(births, -2), below], -2);
}

/**
 * The distances of all elements from each other.
 *
 * @example
 * ```ts
 * scipy.linalg.fiedler(np.array([1, 4])); // [[0, 3], [3, 0]]
 * ```
 */
export function fiedler(a: TensorLike): Tensor {
  const x = vectors(a, "fiedler");
  return np.abs(np.subtract(np.expandDims(x, -1), np.expandDims(x, -2)));
}

/**
 * The matrix with five diagonals whose eigenvalues are the roots of a polynomial, like those of {@link companion}.
 *
 * @example
 * ```ts
 * scipy.linalg.fiedlerCompanion(np.array([1, -16, 86, -176])); // [[16, -86, 1], [1, 0, 0], [0, 176, 0]]
 * ```
 */
export function fiedlerCompanion(a: TensorLike): Tensor {
  const x = asInexact(vectors(a, "fiedlerCompanion"), "scipy.linalg.fiedlerCompanion");
  const n = lengthOf(x) - 1;
  if (n < 0) {
    throw new ShapeError(`[scipy.linalg.fiedlerCompanion] needs coefficients, got ${formatType(x.type)}`);
  }
  // Every element is 0, 1 or a coefficient: k > 1 stands for that of the k-1st power below the highest.
  const elementOf = (i: number, j: number): number => {
    if (i === 0 && j === 0) return 2;
    if (i % 2 === 1) return j === Math.max(i - 2, 0) ? 1 : 0;
    if (j === i + 1) return i + 3;
    if (j === i - 1) return i + 2;
    return j === i + 2 ? 1 : 0;
  };
  const coefficients = np.negative(np.divide(x.get("...", np.s(1)), x.get("...", np.s(0, 1))));
  const fixed = np.broadcastTo(np.array([0, 1], x.dtype), [...x.shape.slice(0, -1), 2]);
  return np.take(np.concatenate([fixed, coefficients], -1), fromFormula(n, n, elementOf, "int32"), -1);
}

/** Which rows of a convolution matrix are kept. */
const convolutionModes = oneOf("full", "same", "valid");

/**
 * The matrix whose product with a vector of n elements is the convolution of that with a.
 *
 * @example
 * ```ts
 * scipy.linalg.convolutionMatrix(np.array([1, 2]), 2); // [[1, 0], [2, 1], [0, 2]]
 * ```
 */
export function convolutionMatrix(
  a: TensorLike,
  n: number,
  mode: "full" | "same" | "valid" = "full",
): Tensor {
  const caller = "scipy.linalg.convolutionMatrix";
  need(integerFrom(1), n, "n", caller);
  need(convolutionModes, mode, "mode", caller);
  const x = vectors(a, "convolutionMatrix");
  const m = lengthOf(x);
  const padded = np.pad(x, [...range(x.ndim - 1).map(() => [0, 0] as const), [n - 1, n - 1]]);
  const numRows = { full: m + n - 1, same: Math.max(m, n), valid: Math.max(m, n) - Math.min(m, n) + 1 }[mode];
  const first = { full: 0, same: Math.floor((Math.min(m, n) - 1) / 2), valid: Math.min(m, n) - 1 }[mode];
  return fromPlaces(padded, numRows, n, (i, j) => i + first - j + n - 1);
}

/**
 * Hilbert's matrix, 1 / (i + j + 1).
 *
 * @example
 * ```ts
 * scipy.linalg.hilbert(2); // [[1, 0.5], [0.5, 0.3333]]
 * ```
 */
export function hilbert(n: number): Tensor {
  return fromFormula(size(n, "hilbert"), n, (i, j) => 1 / (i + j + 1));
}

/**
 * The inverse of {@link hilbert}, whose elements are integers.
 *
 * @example
 * ```ts
 * scipy.linalg.invhilbert(2); // [[4, -6], [-6, 12]]
 * ```
 */
export function invhilbert(n: number): Tensor {
  return fromFormula(size(n, "invhilbert"), n, (i, j) => {
    const factors = [choose(n + i, n - j - 1), choose(n + j, n - i - 1), choose(i + j, i) ** 2];
    return factors.reduce((a, b) => a * b, (i + j + 1) * (-1) ** (i + j));
  });
}

/** Which triangle of Pascal's matrix is meant, or the product of both. */
export type PascalKind = "symmetric" | "lower" | "upper";
const pascalKinds = oneOf("symmetric", "lower", "upper");

/**
 * Pascal's matrix of binomial coefficients.
 *
 * @example
 * ```ts
 * scipy.linalg.pascal(3); // [[1, 1, 1], [1, 2, 3], [1, 3, 6]]
 * ```
 */
export function pascal(n: number, kind: PascalKind = "symmetric"): Tensor {
  need(pascalKinds, kind, "kind", "scipy.linalg.pascal");
  const formulas = {
    symmetric: (i: number, j: number) => choose(i + j, i),
    lower: choose,
    upper: (i: number, j: number) => choose(j, i),
  };
  return fromFormula(size(n, "pascal"), n, formulas[kind]);
}

/**
 * The inverse of {@link pascal}.
 *
 * @example
 * ```ts
 * scipy.linalg.invpascal(2); // [[2, -1], [-1, 1]]
 * ```
 */
export function invpascal(n: number, kind: PascalKind = "symmetric"): Tensor {
  need(pascalKinds, kind, "kind", "scipy.linalg.invpascal");
  const sign = (i: number, j: number) => (-1) ** (i + j);
  const formulas = {
    symmetric: (i: number, j: number) =>
      range(n).reduce((sum, k) => sum + sign(i, j) * choose(k, i) * choose(k, j), 0),
    lower: (i: number, j: number) => sign(i, j) * choose(i, j),
    upper: (i: number, j: number) => sign(i, j) * choose(j, i),
  };
  return fromFormula(size(n, "invpascal"), n, formulas[kind]);
}

/**
 * Hadamard's matrix of 1 and −1 with orthogonal rows, by Sylvester's construction; n is a power of 2.
 *
 * @example
 * ```ts
 * scipy.linalg.hadamard(2); // [[1, 1], [1, -1]]
 * ```
 */
export function hadamard(n: number, dtype: DType = "int32"): Tensor {
  if (!Number.isInteger(Math.log2(size(n, "hadamard")))) {
    throw new ValueError(`[scipy.linalg.hadamard] n must be a power of 2, got ${n}`);
  }
  const isOdd = (bits: number): boolean => bits !== 0 && (bits % 2 === 1) !== isOdd(bits >> 1);
  return fromFormula(n, n, (i, j) => (isOdd(i & j) ? -1 : 1), dtype);
}

const helmertOptions = schema({
  /** Whether the first row, of equal elements, is included. */
  full: false,
});

/** Options of {@link helmert}. */
export interface HelmertOptions extends OptionsOf<typeof helmertOptions> {}

/**
 * Helmert's matrix: row i compares element i with the mean of those before it; rows are orthonormal.
 *
 * @example
 * ```ts
 * scipy.linalg.helmert(2); // [[0.7071, -0.7071]]
 * ```
 */
export function helmert(n: number, options?: HelmertOptions): Tensor {
  const { full } = helmertOptions.read(options, "scipy.linalg.helmert");
  const rows = fromFormula(size(n, "helmert"), n, (i, j) => {
    if (i === 0) return 1 / Math.sqrt(n);
    return j > i ? 0 : (j === i ? -i : 1) / Math.sqrt(i * (i + 1));
  });
  return full ? rows : rows.get(np.s(1));
}

const dftOptions = schema({
  /** What elements are divided by: n, or its root with `"sqrtn"`; nothing by default. */
  scale: optional(oneOf("sqrtn", "n")),
  /** The type of the elements; complex64 by default. */
  dtype: optional(oneOf("complex64", "complex128"), "complex64"),
});

/** Options of {@link dft}. */
export interface DftOptions extends OptionsOf<typeof dftOptions> {}

/**
 * The matrix whose product with a vector is its discrete Fourier transform.
 *
 * @example
 * ```ts
 * np.real(scipy.linalg.dft(2)); // [[1, 1], [1, -1]]
 * ```
 */
export function dft(n: number, options?: DftOptions): Tensor {
  const { scale, dtype } = dftOptions.read(options, "scipy.linalg.dft");
  const part = partType(complexType(dtype));
  const divisor = scale === undefined ? 1 : scale === "n" ? n : Math.sqrt(n);
  const turn = (i: number, j: number) => (-2 * Math.PI * ((i * j) % n)) / n;
  const of = (fn: (angle: number) => number) =>
    fromFormula(size(n, "dft"), n, (i, j) => fn(turn(i, j)) / divisor, part);
  return lax.complex(of(Math.cos), of(Math.sin));
}
