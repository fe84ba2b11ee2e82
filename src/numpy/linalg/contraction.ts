/** Sums of products: dot products, matrix products and their relatives. */

import { need } from "../../ir/arguments.js";
import { dtypeKind } from "../../ir/dtype.js";
import { DimError, DTypeError, ShapeError } from "../../ir/errors.js";
import type { Precision } from "../../ir/ops.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, normalizeDim, normalizeDims, range, type Shape } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { multiply, subtract } from "../elementwise/arithmetic.js";
import { conj } from "../elementwise/complex.js";
import { asTensor, broadcastShape, cast, requireRank, toType } from "../operands.js";

const productOptions = schema({
  /** The data type of the result, for example float32 for the product of two bfloat16 matrices. */
  preferredElementType: optional(dtypeKind),
  /**
   * How exactly float32 is multiplied at least, by JAX's names. Products are float32 unless this, or the run option
   * `precision`, asks for less: with `default` or `high` GPUs round factors to TF32, which is faster.
   */
  precision: optional<Precision>("string"),
});

/** Options of products. */
export interface ProductOptions extends OptionsOf<typeof productOptions> {}

/** Operands of one data type. */
function operands(x: TensorLike, y: TensorLike, caller: string): [Tensor, Tensor] {
  const dtype = operandType(x, y);
  return [toType(x, dtype, caller), toType(y, dtype, caller)];
}

/** `dotGeneral` with options of products. */
export function product(x: Tensor, y: Tensor, dims: ops.DotDims, options?: ProductOptions): Tensor {
  const { precision, preferredElementType: dtype = x.dtype } = productOptions.read(options, "matmul");
  return ops.dotGeneral(x, y, precision === undefined ? dims : { ...dims, precision }, dtype);
}

function refuse(caller: string, x: Tensor, y: Tensor, dimX: number, dimY: number): void {
  const [n, m] = [at(x.shape, dimX), at(y.shape, dimY)];
  if (n !== m) {
    throw new ShapeError(
      `[${caller}] ${formatType(x.type)} and ${formatType(y.type)} cannot be multiplied: dim ${dimX} of the left has size ${n}, dim ${dimY} of the right ${m}`,
    );
  }
}

/**
 * The matrix product of the last two dims; the dims before them broadcast. A vector on the left is a row, on
 * the right a column, and that dim is dropped again.
 *
 * @example
 * ```ts
 * np.matmul(np.array([[1, 2], [3, 4]]), np.array([1, 1])); // [3, 7]
 * ```
 */
export function matmul(x: TensorLike, y: TensorLike, options: ProductOptions = {}): Tensor {
  const [a, b] = operands(x, y, "matmul");
  if (a.ndim === 0 || b.ndim === 0) {
    throw new ShapeError(
      `[matmul] ${formatType(a.type)} and ${formatType(b.type)} must have at least one dim: use multiply for scalars`,
    );
  }
  const inner = [a.ndim - 1, Math.max(0, b.ndim - 2)] as const;
  refuse("matmul", a, b, ...inner);
  const [rows, columns] = [a.ndim > 1 ? 1 : 0, b.ndim > 1 ? 1 : 0];
  const batchA = a.shape.slice(0, a.ndim - 1 - rows);
  const batchB = b.shape.slice(0, b.ndim - 1 - columns);
  const batch = broadcastShape([batchA, batchB], "matmul");
  return broadcastProduct(a, b, inner, batch, [batchA.length, batchB.length], options);
}

/**
 * A product whose batch dims broadcast. A dim that only one operand has need not be repeated for the other:
 * it is a free dim of that operand, and the result's dims are put in order afterwards.
 */
function broadcastProduct(
  a: Tensor,
  b: Tensor,
  [contractA, contractB]: readonly [number, number],
  batch: Shape,
  [ranksA, ranksB]: readonly [number, number],
  options: ProductOptions,
): Tensor {
  const paired: number[] = [];
  const [ownA, ownB]: [number[], number[]] = [[], []];
  const [lhsBatch, rhsBatch]: [number[], number[]] = [[], []];
  const [dropA, dropB]: [number[], number[]] = [[], []];
  batch.forEach((_, d) => {
    const [i, j] = [d - batch.length + ranksA, d - batch.length + ranksB];
    const [n, m] = [i < 0 ? undefined : a.shape[i], j < 0 ? undefined : b.shape[j]];
    if (n === m && n !== undefined) {
      paired.push(d);
      lhsBatch.push(i);
      rhsBatch.push(j);
      return;
    }
    const isLeft = m === undefined || (m === 1 && n !== undefined && n !== 1);
    (isLeft ? ownA : ownB).push(d);
    if (isLeft && m !== undefined) dropB.push(j);
    if (!isLeft && n !== undefined) dropA.push(i);
  });
  const [x, mapA] = dropDims(a, dropA);
  const [y, mapB] = dropDims(b, dropB);
  const out = product(
    x,
    y,
    {
      lhsContract: [mapA(contractA)],
      rhsContract: [mapB(contractB)],
      lhsBatch: lhsBatch.map(mapA),
      rhsBatch: rhsBatch.map(mapB),
    },
    options,
  );
  // The result's dims are: paired, own of a, rows of a, own of b, columns of b.
  const [matrixA, matrixB] = [a.ndim - ranksA - 1, b.ndim - ranksB - 1];
  const [rowPlace, columnPlace] = [batch.length, batch.length + matrixA];
  const produced = [
    ...paired,
    ...ownA,
    ...range(matrixA).map(() => rowPlace),
    ...ownB,
    ...range(matrixB).map(() => columnPlace),
  ];
  const wanted = range(batch.length + matrixA + matrixB);
  return ops.transpose(
    out,
    wanted.map((d) => produced.indexOf(d)),
  );
}

/** A tensor without dims of size 1, and where its other dims have gone. */
function dropDims(x: Tensor, dims: readonly number[]): [Tensor, (dim: number) => number] {
  const kept = range(x.ndim).filter((d) => !dims.includes(d));
  return [
    ops.reshape(
      x,
      kept.map((d) => at(x.shape, d)),
    ),
    (dim) => kept.indexOf(dim),
  ];
}

/**
 * NumPy's `dot`: the product of scalars, the inner product of vectors, the matrix product of matrices; in
 * general the sum over the last dim of x and the second to last dim of y.
 *
 * @example
 * ```ts
 * np.dot(np.array([1, 2]), np.array([3, 4])); // 11
 * ```
 */
export function dot(x: TensorLike, y: TensorLike, options?: ProductOptions): Tensor {
  const given = productOptions.read(options, "dot");
  const [a, b] = operands(x, y, "dot");
  if (a.ndim === 0 || b.ndim === 0) {
    const result = multiply(a, b);
    return cast(result, given.preferredElementType ?? result.dtype);
  }
  const [i, j] = [a.ndim - 1, Math.max(0, b.ndim - 2)];
  refuse("dot", a, b, i, j);
  return product(a, b, { lhsContract: [i], rhsContract: [j] }, given);
}

/**
 * The inner product of two tensors as flat vectors, the first of them conjugated.
 *
 * @example
 * ```ts
 * np.vdot(np.array([1, 2]), np.array([3, 4])); // 11
 * ```
 */
export function vdot(x: TensorLike, y: TensorLike, options: ProductOptions = {}): Tensor {
  const [a, b] = operands(x, y, "vdot");
  return dot(conj(ops.reshape(a, [a.size])), ops.reshape(b, [b.size]), options);
}

/**
 * The sum of products over one dim of both, the first conjugated; the others broadcast.
 *
 * @example
 * ```ts
 * np.vecdot(np.array([[1, 2], [3, 4]]), np.array([1, 1])); // [3, 7]
 * ```
 */
export function vecdot(x: TensorLike, y: TensorLike, dim = -1, options: ProductOptions = {}): Tensor {
  const [a, b] = operands(x, y, "vecdot");
  requireRank(a, 1, "vecdot");
  requireRank(b, 1, "vecdot");
  const last = (t: Tensor) => ops.moveDim(t, at(normalizeDims(dim, t.ndim, "vecdot"), 0), t.ndim - 1);
  const [p, q] = [last(conj(a)), last(b)];
  refuse("vecdot", p, q, p.ndim - 1, q.ndim - 1);
  const row = ops.reshape(p, [...p.shape.slice(0, -1), 1, at(p.shape, p.ndim - 1)]);
  const column = ops.reshape(q, [...q.shape, 1]);
  const result = matmul(row, column, options);
  return ops.reshape(result, result.shape.slice(0, -2));
}

/**
 * The sum of products over the last dims of both.
 *
 * @example
 * ```ts
 * np.inner(np.array([[1, 2], [3, 4]]), np.array([1, 1])); // [3, 7]
 * ```
 */
export function inner(x: TensorLike, y: TensorLike, options: ProductOptions = {}): Tensor {
  const [a, b] = operands(x, y, "inner");
  if (a.ndim === 0 || b.ndim === 0) return dot(a, b, options);
  refuse("inner", a, b, a.ndim - 1, b.ndim - 1);
  return product(a, b, { lhsContract: [a.ndim - 1], rhsContract: [b.ndim - 1] }, options);
}

/**
 * All products of an element of x and an element of y, as a matrix.
 *
 * @example
 * ```ts
 * np.outer(np.array([1, 2]), np.array([3, 4])); // [[3, 4], [6, 8]]
 * ```
 */
export function outer(x: TensorLike, y: TensorLike): Tensor {
  const [a, b] = operands(x, y, "outer");
  return multiply(ops.reshape(a, [a.size, 1]), ops.reshape(b, [1, b.size]));
}

/**
 * The Kronecker product: every element of x multiplied with the whole of y.
 *
 * @example
 * ```ts
 * np.kron(np.array([1, 2]), np.array([1, 10])); // [1, 10, 2, 20]
 * ```
 */
export function kron(x: TensorLike, y: TensorLike): Tensor {
  const [a, b] = operands(x, y, "kron");
  if (a.dtype === "bool" && b.dtype === "bool") {
    throw new DTypeError(`[kron] works on numbers, not on bool: convert one with astype("int32")`);
  }
  const rank = Math.max(a.ndim, b.ndim);
  const sizes = (t: Tensor) => [...new Array<number>(rank - t.ndim).fill(1), ...t.shape];
  const [m, n] = [sizes(a), sizes(b)];
  const spread = multiply(
    ops.reshape(
      a,
      m.flatMap((size) => [size, 1]),
    ),
    ops.reshape(
      b,
      n.flatMap((size) => [1, size]),
    ),
  );
  return ops.reshape(
    spread,
    m.map((size, d) => size * at(n, d)),
  );
}

/**
 * The sum of products over several dims.
 *
 * @param dims a number n pairs the last n dims of x with the first n of y; two lists name the dims of each
 *
 * @example
 * ```ts
 * np.tensordot(np.array([[1, 2], [3, 4]]), np.array([1, 1]), 1); // [3, 7]
 * ```
 */
export function tensordot(
  x: TensorLike,
  y: TensorLike,
  dims: number | readonly [number | readonly number[], number | readonly number[]] = 2,
  options: ProductOptions = {},
): Tensor {
  const [a, b] = operands(x, y, "tensordot");
  if (
    typeof dims === "number" &&
    !(Number.isInteger(dims) && dims >= 0 && dims <= Math.min(a.ndim, b.ndim))
  ) {
    throw new DimError(
      `[tensordot] cannot pair ${dims} dims of ${formatType(a.type)} and ${formatType(b.type)}: use 0 to ${Math.min(a.ndim, b.ndim)}`,
    );
  }
  if (typeof dims !== "number") need("list", dims, "dims", "tensordot");
  const [lhsContract, rhsContract] =
    typeof dims === "number"
      ? [range(dims).map((d) => a.ndim - dims + d), range(dims)]
      : [normalizeDims(dims[0], a.ndim, "tensordot"), normalizeDims(dims[1], b.ndim, "tensordot")];
  if (lhsContract.length !== rhsContract.length) {
    throw new DimError(
      `[tensordot] dims [${lhsContract}] of the left and [${rhsContract}] of the right must pair up`,
    );
  }
  lhsContract.forEach((d, i) => {
    refuse("tensordot", a, b, d, at(rhsContract, i));
  });
  return product(a, b, { lhsContract, rhsContract }, options);
}

const crossOptions = schema({
  /** The dim of both operands and of the result; overridden by the other options. */
  dim: optional("integer", -1),
  /** The dim of the first operand. */
  dimA: optional("integer"),
  /** The dim of the second operand. */
  dimB: optional("integer"),
  /** The dim of the result. */
  dimC: optional("integer"),
});

/** Options of {@link cross}: along which dims vectors lie, the last by default. */
export interface CrossOptions extends OptionsOf<typeof crossOptions> {}

/**
 * The cross product of vectors of three elements. One of two elements has 0 as its third; of two such vectors only the
 * third element of the product is given.
 *
 * ```ts
 * np.cross(x, y, { dim: 0 })
 * ```
 *
 * @example
 * ```ts
 * np.cross(np.array([1, 0, 0]), np.array([0, 1, 0])); // [0, 0, 1]
 * ```
 */
export function cross(x: TensorLike, y: TensorLike, options?: CrossOptions): Tensor {
  const { dim, dimA = dim, dimB = dim, dimC = dim } = crossOptions.read(options, "cross");
  const vectors = (value: TensorLike, along: number) => {
    const t = asTensor(value, "cross");
    const d = normalizeDim(along, t.ndim, "cross");
    if (t.shape[d] === 2 || t.shape[d] === 3) return ops.moveDim(t, d, t.ndim - 1);
    throw new ShapeError(`[cross] dim ${d} must have size 2 or 3, got ${formatType(t.type)}`);
  };
  const [a, b] = [vectors(x, dimA), vectors(y, dimB)];
  if (a.shape.at(-1) === 2 && b.shape.at(-1) === 2) {
    const element = (t: Tensor, i: number) =>
      ops.reshape(ops.sliceDim(t, t.ndim - 1, i, i + 1), t.shape.slice(0, -1));
    return subtract(multiply(element(a, 0), element(b, 1)), multiply(element(a, 1), element(b, 0)));
  }
  const turned = (t: Tensor, by: number) => {
    const d = t.ndim - 1;
    const third = t.shape[d] === 2 ? [ops.full([...t.shape.slice(0, -1), 1], 0, t.dtype)] : [];
    const whole = ops.concatenate([t, ...third], d);
    return ops.concatenate([ops.sliceDim(whole, d, by, 3), ops.sliceDim(whole, d, 0, by)], d);
  };
  const result = subtract(multiply(turned(a, 1), turned(b, 2)), multiply(turned(a, 2), turned(b, 1)));
  return ops.moveDim(result, result.ndim - 1, normalizeDim(dimC, result.ndim, "cross"));
}
