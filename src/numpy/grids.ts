/** Indices of parts of matrices and grids. */
import { need, needIfGiven } from "../ir/arguments.js";
import { ShapeError, ValueError } from "../ir/errors.js";
import { formatType, range } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import type { TensorLike } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { array } from "./creation.js";
import { where } from "./logic.js";
import { asTensor, toType } from "./operands.js";

function requireCount(n: number, caller: string): number {
  if (Number.isInteger(n) && n >= 0) return n;
  throw new ValueError(`[${caller}] sizes are integers from 0, got ${n}`);
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

/** The indices of the elements on and below the k-th diagonal of a matrix of n rows. */
export function trilIndices(n: number, k = 0, columns = n): [rows: Tensor, columns: Tensor] {
  need("number", n, "n", "trilIndices");
  needIfGiven("number", k, "k", "trilIndices");
  needIfGiven("number", columns, "columns", "trilIndices");
  return placesOf(requireCount(n, "trilIndices"), requireCount(columns, "trilIndices"), (i, j) => j - i <= k);
}

/** The indices of the elements on and above the k-th diagonal of a matrix of n rows. */
export function triuIndices(n: number, k = 0, columns = n): [rows: Tensor, columns: Tensor] {
  need("number", n, "n", "triuIndices");
  needIfGiven("number", k, "k", "triuIndices");
  needIfGiven("number", columns, "columns", "triuIndices");
  return placesOf(requireCount(n, "triuIndices"), requireCount(columns, "triuIndices"), (i, j) => j - i >= k);
}

/** The indices of the main diagonal of a tensor of `ndim` dims of size n. */
export function diagIndices(n: number, ndim = 2): Tensor[] {
  need("number", n, "n", "diagIndices");
  needIfGiven("number", ndim, "ndim", "diagIndices");
  return range(requireCount(ndim, "diagIndices")).map(() =>
    ops.iota("int32", [requireCount(n, "diagIndices")], 0),
  );
}

/** Vectors of indices shaped so that they broadcast to a grid. */
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

/** The matrix with a value, or a vector of values that is repeated where it is short, on its main diagonal. */
export function fillDiagonal(value: TensorLike, on: TensorLike): Tensor {
  const x = asTensor(value, "fillDiagonal");
  if (x.ndim < 2) throw new ShapeError(`[fillDiagonal] takes at least a matrix, got ${formatType(x.type)}`);
  if (x.ndim > 2 && x.shape.some((n) => n !== x.shape[0])) {
    throw new ShapeError(`[fillDiagonal] all dims of ${formatType(x.type)} must have one size`);
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

/** A function over the indices of every element, as NumPy's `fromfunction`. */
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
