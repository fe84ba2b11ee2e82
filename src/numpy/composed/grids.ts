/** Indices of parts of matrices and grids. */

import { need, needIfGiven, oneOf } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, range, type Shape } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { arange, array, zeros } from "../arrays/creation.js";
import { stack } from "../arrays/joining.js";
import { where } from "../elementwise/logic.js";
import { Slice } from "../indexing/indexing.js";
import {
  asTensor,
  type DTypeOption,
  dtypeOf,
  expandTo,
  numberType,
  type SizedOptions,
  sizedOptions,
  toShape,
  toType,
} from "../operands.js";
import { nonzero } from "../statistics/sets.js";

function requireCount(n: number, caller: string): number {
  if (Number.isInteger(n) && n >= 0) return n;
  throw new ValueError(`[${caller}] sizes must be integers of at least 0, got ${n}`);
}

/** The rows and columns of the elements of a matrix that satisfy a condition. */
function placesOf(
  rows: number,
  columns: number,
  chosen: (i: number, j: number) => boolean,
): [Tensor, Tensor] {
  const pairs = range(rows).flatMap((i) =>
    range(columns)
      .filter((j) => chosen(i, j))
      .map((j) => [i, j] as const),
  );
  return [
    array(
      pairs.map(([i]) => i),
      "int32",
    ),
    array(
      pairs.map(([, j]) => j),
      "int32",
    ),
  ];
}

/**
 * The indices of the elements on and below the k-th diagonal of a matrix of n rows.
 *
 * @example
 * ```ts
 * np.trilIndices(2); // [[0, 1, 1], [0, 0, 1]]
 * ```
 */
export function trilIndices(n: number, k = 0, columns = n): [rows: Tensor, columns: Tensor] {
  need("number", n, "n", "trilIndices");
  needIfGiven("number", k, "k", "trilIndices");
  needIfGiven("number", columns, "columns", "trilIndices");
  return placesOf(requireCount(n, "trilIndices"), requireCount(columns, "trilIndices"), (i, j) => j - i <= k);
}

/**
 * The indices of the elements on and above the k-th diagonal of a matrix of n rows.
 *
 * @example
 * ```ts
 * np.triuIndices(2); // [[0, 0, 1], [0, 1, 1]]
 * ```
 */
export function triuIndices(n: number, k = 0, columns = n): [rows: Tensor, columns: Tensor] {
  need("number", n, "n", "triuIndices");
  needIfGiven("number", k, "k", "triuIndices");
  needIfGiven("number", columns, "columns", "triuIndices");
  return placesOf(requireCount(n, "triuIndices"), requireCount(columns, "triuIndices"), (i, j) => j - i >= k);
}

/**
 * The indices of the main diagonal of a tensor of `ndim` dims of size n.
 *
 * @example
 * ```ts
 * np.diagIndices(2); // [[0, 1], [0, 1]]
 * ```
 */
export function diagIndices(n: number, ndim = 2): Tensor[] {
  need("number", n, "n", "diagIndices");
  needIfGiven("number", ndim, "ndim", "diagIndices");
  return range(requireCount(ndim, "diagIndices")).map(() =>
    ops.iota("int32", [requireCount(n, "diagIndices")], 0),
  );
}

/** The matrix whose indices are requested. */
function matrixOf(value: TensorLike, caller: string): readonly [rows: number, columns: number] {
  const { shape, type } = asTensor(value, caller);
  const [rows, columns] = shape;
  if (rows !== undefined && columns !== undefined && shape.length === 2) return [rows, columns];
  throw new ShapeError(`[${caller}] takes a matrix, got ${formatType(type)}`);
}

/**
 * {@link trilIndices} for the shape of a matrix.
 *
 * @example
 * ```ts
 * np.trilIndicesFrom(np.ones([2, 2])); // [[0, 1, 1], [0, 0, 1]]
 * ```
 */
export function trilIndicesFrom(x: TensorLike, k = 0): [rows: Tensor, columns: Tensor] {
  const [rows, columns] = matrixOf(x, "trilIndicesFrom");
  return trilIndices(rows, k, columns);
}

/**
 * {@link triuIndices} for the shape of a matrix.
 *
 * @example
 * ```ts
 * np.triuIndicesFrom(np.ones([2, 2])); // [[0, 0, 1], [0, 1, 1]]
 * ```
 */
export function triuIndicesFrom(x: TensorLike, k = 0): [rows: Tensor, columns: Tensor] {
  const [rows, columns] = matrixOf(x, "triuIndicesFrom");
  return triuIndices(rows, k, columns);
}

/**
 * {@link diagIndices} for the shape of a tensor whose dims have one size.
 *
 * @example
 * ```ts
 * np.diagIndicesFrom(np.ones([2, 2])); // [[0, 1], [0, 1]]
 * ```
 */
export function diagIndicesFrom(value: TensorLike): Tensor[] {
  const x = asTensor(value, "diagIndicesFrom");
  const [n] = x.shape;
  if (n === undefined || x.ndim < 2 || x.shape.some((size) => size !== n)) {
    throw new ShapeError(
      `[diagIndicesFrom] needs two dims or more of the same size, got ${formatType(x.type)}`,
    );
  }
  return diagIndices(n, x.ndim);
}

/**
 * The rows and columns of the elements of an n × n matrix that a function leaves: `np.maskIndices(3, np.triu, 1, { size: 3 })`.
 *
 * @param mask takes a matrix and `k`, and sets unwanted elements to zero
 *
 * @example
 * ```ts
 * np.maskIndices(3, np.triu, 1, { size: 3 }); // [[0, 0, 1], [1, 2, 2]]
 * ```
 */
export function maskIndices(
  n: number,
  mask: (x: Tensor, k: number) => Tensor,
  k: number,
  options: SizedOptions,
): [rows: Tensor, columns: Tensor] {
  need("function", mask, "mask", "maskIndices");
  const whole = ops.full([requireCount(n, "maskIndices"), n], 1, "int32");
  const [rows, columns] = nonzero(mask(whole, k), sizedOptions.read(options, "maskIndices"));
  return [rows ?? whole, columns ?? whole];
}

/** The coordinates that a slice names, as `arange` makes them. */
function coordinates(slices: readonly Slice[], caller: string): Tensor[] {
  const vectors = slices.map((slice, d) => {
    if (slice instanceof Slice && slice.stop !== null) {
      return arange(slice.start ?? 0, slice.stop, slice.step ?? 1);
    }
    throw new ValueError(
      `[${caller}] argument ${d} must be a slice with an end, np.s(start, stop, step), got ${describe(slice)}`,
    );
  });
  const dtype = operandType(...vectors);
  return vectors.map((vector) => toType(vector, dtype, caller));
}

/**
 * The coordinates of every point of a grid, stacked along a first dim.
 *
 * @example
 * ```ts
 * np.mgrid(np.s(0, 2), np.s(0, 3)); // [[[0, 0, 0], [1, 1, 1]], [[0, 1, 2], [0, 1, 2]]]
 * ```
 */
export function mgrid(...slices: readonly Slice[]): Tensor {
  const vectors = coordinates(slices, "mgrid");
  return slices.length === 1 ? at(vectors, 0) : stack(meshgrid(vectors, { indexing: "ij" }));
}

/**
 * The coordinates of a grid, one tensor for each dim, that broadcast to those of {@link mgrid}.
 *
 * @example
 * ```ts
 * np.ogrid(np.s(0, 2), np.s(0, 3)); // [[[0], [1]], [[0, 1, 2]]]
 * ```
 */
export function ogrid(...slices: readonly Slice[]): Tensor[] {
  return ix(...coordinates(slices, "ogrid"));
}

/**
 * Vectors of indices shaped so that they broadcast to a grid.
 *
 * @example
 * ```ts
 * np.ix(np.array([0, 2], "int32"), np.array([1, 3], "int32")); // [[[0], [2]], [[1, 3]]]
 * ```
 */
export function ix(...vectors: readonly TensorLike[]): Tensor[] {
  return vectors.map((value, d) => {
    const x = asTensor(value, "ix");
    if (x.ndim !== 1) throw new ShapeError(`[ix] takes vectors, argument ${d} is ${formatType(x.type)}`);
    return ops.reshape(
      x,
      vectors.map((_, i) => (i === d ? x.size : 1)),
    );
  });
}

/**
 * The matrix with a value, or a vector of values that is repeated where it is short, on its main diagonal.
 *
 * @example
 * ```ts
 * np.fillDiagonal(np.zeros([2, 2]), 5); // [[5, 0], [0, 5]]
 * ```
 */
export function fillDiagonal(value: TensorLike, on: TensorLike): Tensor {
  const x = asTensor(value, "fillDiagonal");
  if (x.ndim < 2) throw new ShapeError(`[fillDiagonal] takes at least a matrix, got ${formatType(x.type)}`);
  if (x.ndim > 2 && x.shape.some((n) => n !== x.shape[0])) {
    throw new ShapeError(`[fillDiagonal] all dims of ${formatType(x.type)} must have the same size`);
  }
  const first = ops.iota("int32", x.shape, 0);
  const onDiagonal = range(x.ndim - 1)
    .map((d) => ops.compare("eq", first, ops.iota("int32", x.shape, d + 1)))
    .reduce((all, one) => ops.and(all, one));
  const fill = toType(on, x.dtype, "fillDiagonal");
  if (fill.ndim === 0) return where(onDiagonal, fill, x);
  const index = ops.rem(first, Math.max(fill.size, 1));
  return where(onDiagonal, ops.gather(ops.reshape(fill, [fill.size]), index, { dim: 0, batchDims: 0 }), x);
}

/**
 * A function over the indices of every element, as NumPy's `fromfunction`.
 *
 * @example
 * ```ts
 * np.fromfunction((i, j) => i.mul(10).add(j), [2, 2]); // [[0, 1], [10, 11]]
 * ```
 */
export function fromfunction(fn: (...indices: Tensor[]) => Tensor, shape: readonly number[]): Tensor {
  need("function", fn, "fn", "fromfunction");
  need("list", shape, "shape", "fromfunction");
  return fn(
    ...range(shape.length).map((d) =>
      ops.iota(
        "float32",
        shape.map((n) => requireCount(n, "fromfunction")),
        d,
      ),
    ),
  );
}

const meshgridOptions = schema({ indexing: optional(oneOf("xy", "ij"), "xy"), sparse: false });

/**
 * One tensor per input that repeats it along the dims of the others.
 *
 * @example
 * ```ts
 * np.meshgrid([np.array([1, 2]), np.array([3, 4])]); // [[[1, 2], [1, 2]], [[3, 3], [4, 4]]]
 * ```
 */
export function meshgrid(xs: readonly TensorLike[], options?: OptionsOf<typeof meshgridOptions>): Tensor[] {
  need("list", xs, "xs", "meshgrid");
  const { indexing, sparse } = meshgridOptions.read(options, "meshgrid");
  const vectors = [...xs].map((x) => asTensor(x, "meshgrid"));
  const wrong = vectors.find((x) => x.ndim > 1);
  if (wrong) throw new ShapeError(`[meshgrid] takes vectors, got ${formatType(wrong.type)}`);
  const order = range(vectors.length);
  if (indexing === "xy" && vectors.length > 1) order.splice(0, 2, 1, 0);
  const shape = order.map((i) => at(vectors, i).size);
  return vectors.map((x, i) => {
    const thin = ops.reshape(
      x,
      order.map((j) => (i === j ? x.size : 1)),
    );
    return sparse ? thin : expandTo(thin, shape);
  });
}

/**
 * The index along each dim of a tensor of the given shape, stacked along a new first dim.
 *
 * @example
 * ```ts
 * np.indices([2, 2]); // [[[0, 0], [1, 1]], [[0, 1], [0, 1]]]
 * ```
 */
export function indices(dimensions: Shape, dtype?: DTypeOption): Tensor {
  need("list", dimensions, "dimensions", "indices");
  const shape = toShape(dimensions, "indices");
  const type = numberType(dtypeOf(dtype, "indices") ?? "int32");
  if (shape.length === 0) return zeros([0], type);
  return stack(shape.map((_, d) => ops.iota(type, shape, d)));
}
