/** Decompositions of matrices, and what follows from their singular values. */

import { oneOf } from "../../ir/arguments.js";
import { limits } from "../../ir/dtype.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import { choleskyOptions as laxCholeskyOptions } from "../../lax/linalg/cholesky.js";
import { adjoint } from "../../lax/linalg/matrixOperands.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { libraryVjp } from "../../transforms/derivatives/customVjp.js";
import { vjp } from "../../transforms/derivatives/grad.js";
import { matrixTranspose } from "../arrays/shaping.js";
import { asInexact, like } from "../operands.js";
import { sum } from "../reductions/reductions.js";
import { matmul } from "./contraction.js";
import { eye } from "./diagonals.js";

const choleskyOptions = schema({
  ...laxCholeskyOptions.fields,
  /** Whether the result is the upper triangle U with `Uᴴ U = x`. */
  upper: false,
});

/** Options of {@link cholesky}. */
export interface CholeskyOptions extends OptionsOf<typeof choleskyOptions> {}

/**
 * The lower triangles L with `L Lᴴ = x`; NaN for a matrix that is not positive definite.
 *
 * @example
 * ```ts
 * np.linalg.cholesky(np.array([[4, 2], [2, 5]])); // [[2, 0], [1, 2]]
 * ```
 */
export function cholesky(value: TensorLike, given?: CholeskyOptions): Tensor {
  const { upper, ...options } = choleskyOptions.read(given, "linalg.cholesky");
  const l = lax.linalg.cholesky(asInexact(value, "linalg.cholesky"), options);
  return upper ? adjoint(l) : l;
}

const qrOptions = schema({
  /** Whether Q is square (`"complete"`) or has only as many columns as are needed (`"reduced"`, the default). */
  mode: optional(oneOf("reduced", "complete"), "reduced"),
});

/** Options of {@link qr}. */
export interface QrOptions extends OptionsOf<typeof qrOptions> {}

/**
 * The decomposition `x = Q R` into orthonormal columns and an upper triangle.
 *
 * @example
 * ```ts
 * const [q, r] = np.linalg.qr(np.array([[3, 1], [4, 2]]));
 * np.matmul(q, r); // [[3, 1], [4, 2]]
 * ```
 */
export function qr(value: TensorLike, options?: QrOptions): [q: Tensor, r: Tensor] {
  const { mode } = qrOptions.read(options, "linalg.qr");
  return lax.linalg.qr(asInexact(value, "linalg.qr"), { fullMatrices: mode === "complete" });
}

/** Options of {@link svd}. */
export type SvdOptions = lax.linalg.SvdOptions;

/**
 * The decomposition `x = U diag(s) Vᴴ`, the largest singular value first: U, s and Vᴴ.
 *
 * @example
 * ```ts
 * np.linalg.svd(np.array([[3, 0], [0, -4]]))[1]; // [4, 3]
 * ```
 */
export function svd(value: TensorLike, options: SvdOptions = {}): [u: Tensor, s: Tensor, vh: Tensor] {
  return lax.linalg.svd(asInexact(value, "linalg.svd"), options);
}

/**
 * The singular values, the largest first.
 *
 * @example
 * ```ts
 * np.linalg.svdvals(np.array([[3, 0], [0, -4]])); // [4, 3]
 * ```
 */
export function svdvals(value: TensorLike): Tensor {
  return lax.linalg.singularValues(asInexact(value, "linalg.svdvals"));
}

/**
 * The eigenvalues of square matrices, in no order, and eigenvectors as columns, all complex. Derivatives are those of
 * matrices whose eigenvalues differ; the vectors keep length 1 and a positive largest element.
 *
 * @example
 * ```ts
 * np.real(np.linalg.eig(np.array([[2, 1], [0, 3]]))[0]); // [2, 3]
 * ```
 */
export function eig(value: TensorLike): [values: Tensor, vectors: Tensor] {
  const [values, vectors] = lax.linalg.eig(asInexact(value, "linalg.eig"));
  return [values, vectors];
}

/**
 * The eigenvalues of square matrices, in no order, complex.
 *
 * @example
 * ```ts
 * np.imag(np.linalg.eigvals(np.array([[0, 2], [-2, 0]]))); // [2, -2]
 * ```
 */
export function eigvals(value: TensorLike): Tensor {
  return lax.linalg.eigenvalues(asInexact(value, "linalg.eigvals"));
}

const eighOptions = schema({
  /** The triangle that is read where `symmetrizeInput` is false; `"L"` by default. */
  uplo: optional(oneOf("L", "U"), "L"),
  /** Whether both triangles are read, as their mean; true by default. */
  symmetrizeInput: optional("flag"),
});

/** Options of {@link eigh}. */
export interface EighOptions extends OptionsOf<typeof eighOptions> {}

/**
 * The eigenvalues of symmetric (of complex ones Hermitian) matrices, the smallest first, and the eigenvectors as columns.
 *
 * @example
 * ```ts
 * np.linalg.eigh(np.array([[2, 1], [1, 2]]))[0]; // [1, 3]
 * ```
 */
export function eigh(value: TensorLike, options?: EighOptions): [values: Tensor, vectors: Tensor] {
  const { uplo, symmetrizeInput } = eighOptions.read(options, "linalg.eigh");
  const x = asInexact(value, "linalg.eigh");
  const [vectors, values] = lax.linalg.eigh(x, { lower: uplo === "L", symmetrizeInput });
  return [values, vectors];
}

/**
 * The eigenvalues of symmetric (of complex ones Hermitian) matrices, the smallest first.
 *
 * @example
 * ```ts
 * np.linalg.eigvalsh(np.array([[2, 1], [1, 2]])); // [1, 3]
 * ```
 */
export function eigvalsh(value: TensorLike, options: EighOptions = {}): Tensor {
  return eigh(value, options)[0];
}

/**
 * How many singular values are larger than a bound.
 *
 * @param tolerance by default the largest one, times the larger size, times the precision of the type
 *
 * @example
 * ```ts
 * np.linalg.matrixRank(np.array([[1, 2], [2, 4]])); // 1
 * ```
 */
export function matrixRank(value: TensorLike, tolerance?: number): Tensor {
  const x = asInexact(value, "linalg.matrixRank");
  if (x.ndim < 2)
    return ops.convert(ops.reduceMax(ops.compare("ne", x, 0), x.ndim === 0 ? [] : [0]), "int32");
  const values = lax.linalg.singularValues(x);
  const last = values.ndim - 1;
  const size = Math.max(...x.shape.slice(-2)) * limits(x.dtype).epsilon;
  const bound =
    tolerance === undefined
      ? ops.mul(ops.sliceDim(values, last, 0, 1), size)
      : ops.full([...values.shape.slice(0, -1), 1], tolerance, values.dtype);
  const wide = ops.broadcastInDim(
    bound,
    values.shape,
    values.shape.map((_, d) => d),
  );
  return sum(ops.compare("gt", values, wide), -1);
}

/**
 * The pseudoinverse: of all matrices that solve `x p = 1` best, the smallest.
 *
 * @param rtol singular values up to this share of the largest count as zero
 *
 * @example
 * ```ts
 * np.linalg.pinv(np.array([[2, 0], [0, 0]])); // [[0.5, 0], [0, 0]]
 * ```
 */
export function pinv(value: TensorLike, rtol?: number): Tensor {
  const x = asInexact(value, "linalg.pinv");
  const share = rtol ?? 10 * Math.max(...x.shape.slice(-2)) * limits(x.dtype).epsilon;
  const inverse = (a: Tensor) => pseudoinverse(a, share);
  if (x.parts) return complexInverse(x, inverse);
  const withRule = libraryVjp(inverse, {
    forward: (a) => {
      const p = inverse(a);
      return [p, [a, p] as const];
    },
    backward: ([a, p], ct) => {
      const [pt, ctT] = [matrixTranspose(p), matrixTranspose(ct)];
      const complement = (product: Tensor) =>
        ops.sub(ops.add(ops.mul(product, 0), identityLike(product)), product);
      const parts = [
        ops.neg(matmul(matmul(pt, ct), pt)),
        matmul(matmul(complement(matmul(a, p)), ctT), matmul(p, pt)),
        matmul(matmul(pt, p), matmul(ctT, complement(matmul(p, a)))),
      ];
      return [parts.reduce((total, part) => ops.add(total, part))];
    },
  });
  return withRule(x);
}

function complexInverse(x: Tensor, inverse: (a: Tensor) => Tensor): Tensor {
  const withRule = libraryVjp(inverse, {
    forward: (a) => {
      const p = inverse(a);
      return [p, [a, p] as const];
    },
    backward: ([a, p], ct) => {
      const ph = adjoint(p);
      const complement = (product: Tensor) => ops.sub(identityLike(product), product);
      const change = (t: Tensor) => {
        const beside = matmul(matmul(matmul(p, ph), adjoint(t)), complement(matmul(a, p)));
        const below = matmul(complement(matmul(p, a)), matmul(adjoint(t), matmul(ph, p)));
        return ops.sub(ops.add(beside, below), matmul(matmul(p, t), p));
      };
      return vjp(change, [ops.zeros(a.type)])[1](ct);
    },
  });
  return withRule(x);
}

function identityLike(x: Tensor): Tensor {
  const n = at(x.shape, x.ndim - 1);
  return ops.broadcastInDim(eye(n, n, { dtype: x.dtype }), x.shape, [x.ndim - 2, x.ndim - 1]);
}

function pseudoinverse(x: Tensor, share: number): Tensor {
  const [u, s, vh] = lax.linalg.svd(x, { fullMatrices: false });
  const last = s.ndim - 1;
  const dims = s.shape.map((_, d) => d);
  const bound = ops.broadcastInDim(ops.mul(ops.sliceDim(s, last, 0, 1), share), s.shape, dims);
  const isLarge = ops.compare("gt", s, bound);
  const inverse = ops.select(isLarge, ops.div(ops.ones(s.type), s), like(s, 0));
  const v = adjoint(vh);
  const factors = ops.broadcastInDim(ops.convert(inverse, v.dtype), v.shape, [
    ...dims.slice(0, -1),
    last + 1,
  ]);
  return matmul(ops.mul(v, factors), adjoint(u));
}
