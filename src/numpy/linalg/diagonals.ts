/** Diagonals of matrices. */

import { need, needIfGiven } from "../../ir/arguments.js";
import { dtypeKind } from "../../ir/dtype.js";
import { DimError, ShapeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, normalizeDim, range, type Shape } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { asTensor, cast, type DTypeOption, dtypeOf, expandTo, requireRank, toShape } from "../operands.js";
import { sum } from "../reductions/reductions.js";

const diagonalOptions = schema({
  /** How far above the main diagonal; negative ones lie below. */
  offset: optional("integer", 0),
  /** The dim of the rows; the first by default. */
  dim1: 0,
  /** The dim of the columns; the second by default. */
  dim2: 1,
});

/** Options of {@link diagonal} and {@link trace}: which diagonal of which two dims. */
export interface DiagonalOptions extends OptionsOf<typeof diagonalOptions> {}

/**
 * The diagonal of two dims, which becomes the last dim.
 *
 * @example
 * ```ts
 * np.diagonal(np.array([[1, 2], [3, 4]])); // [1, 4]
 * ```
 */
export function diagonal(value: TensorLike, options?: DiagonalOptions): Tensor {
  const { offset, dim1, dim2 } = diagonalOptions.read(options, "diagonal");
  const x = asTensor(value, "diagonal");
  requireRank(x, 2, "diagonal");
  const [a, b] = [normalizeDim(dim1, x.ndim, "diagonal"), normalizeDim(dim2, x.ndim, "diagonal")];
  if (a === b) throw new DimError(`[diagonal] dim1 and dim2 are both dim ${a}: a diagonal needs two dims`);
  const others = range(x.ndim).filter((d) => d !== a && d !== b);
  const batch = others.map((d) => at(x.shape, d));
  const [rows, columns] = [at(x.shape, a), at(x.shape, b)];
  const count = Math.max(
    0,
    offset >= 0 ? Math.min(rows, columns - offset) : Math.min(rows + offset, columns),
  );
  if (count === 0) return ops.full([...batch, 0], 0, x.dtype);
  // Neighbours on a diagonal are one row and one column apart.
  const flat = ops.reshape(ops.transpose(x, [...others, a, b]), [...batch, rows * columns]);
  const start = offset >= 0 ? offset : -offset * columns;
  return ops.sliceDim(flat, batch.length, start, start + (count - 1) * (columns + 1) + 1, columns + 1);
}

const traceOptions = schema({
  ...diagonalOptions.fields,
  /** The data type of the sum. */
  dtype: optional(dtypeKind),
});

/** Options of {@link trace}. */
export interface TraceOptions extends OptionsOf<typeof traceOptions> {}

/**
 * The sum of a diagonal.
 *
 * @example
 * ```ts
 * np.trace(np.array([[1, 2], [3, 4]])); // 5
 * ```
 */
export function trace(x: TensorLike, options?: TraceOptions): Tensor {
  const { dtype, ...which } = traceOptions.read(options, "trace");
  return sum(diagonal(x, which), -1, { dtype });
}

/**
 * The diagonal of a matrix, or the matrix with a vector on its diagonal.
 *
 * @example
 * ```ts
 * np.diag(np.array([1, 2])); // [[1, 0], [0, 2]]
 * ```
 */
export function diag(value: TensorLike, k = 0): Tensor {
  needIfGiven("integer", k, "k", "diag");
  const x = asTensor(value, "diag");
  if (x.ndim === 2) return diagonal(x, { offset: k });
  if (x.ndim !== 1) {
    throw new ShapeError(`[diag] takes a vector or a matrix, got ${formatType(x.type)}: use diagonal`);
  }
  const n = x.size + Math.abs(k);
  const column = ops.pad(x, Tensor.scalar(0, x.dtype), {
    low: [Math.max(0, k)],
    high: [Math.max(0, -k)],
    interior: [0],
  });
  const [rows, columns] = [ops.iota("int32", [n, n], 0), ops.iota("int32", [n, n], 1)];
  const isDiagonal = ops.compare("eq", k === 0 ? rows : ops.add(rows, k), columns);
  return ops.select(isDiagonal, expandTo(column, [n, n]), Tensor.scalar(0, x.dtype));
}

/**
 * The matrix with the flattened tensor on its diagonal.
 *
 * @example
 * ```ts
 * np.diagflat(np.array([1, 2])); // [[1, 0], [0, 2]]
 * ```
 */
export function diagflat(value: TensorLike, k = 0): Tensor {
  needIfGiven("integer", k, "k", "diagflat");
  const x = asTensor(value, "diagflat");
  return diag(ops.reshape(x, [x.size]), k);
}

const eyeOptions = schema({ k: 0, dtype: optional(dtypeKind, "float32") });

/**
 * Ones where column − row = k, zeros elsewhere: the identity matrix for k = 0.
 *
 * @example
 * ```ts
 * np.eye(2); // [[1, 0], [0, 1]]
 * ```
 */
export function eye(rows: number, columns: number = rows, options?: OptionsOf<typeof eyeOptions>): Tensor {
  need("number", rows, "rows", "eye");
  needIfGiven("number", columns, "columns", "eye");
  const { k, dtype } = eyeOptions.read(options, "eye");
  return cast(ops.compare("eq", ...rowsAndColumns([rows, columns], k, "eye")), dtype);
}

/**
 * The identity matrix.
 *
 * @example
 * ```ts
 * np.identity(2); // [[1, 0], [0, 1]]
 * ```
 */
export function identity(n: number, dtype?: DTypeOption): Tensor {
  need("number", n, "n", "identity");
  return eye(n, n, { dtype: dtypeOf(dtype, "identity") });
}

/** For every element of a matrix its row + k and its column. */
function rowsAndColumns(shape: Shape, k: number, caller: string): [Tensor, Tensor] {
  const sizes = toShape(shape, caller);
  need("integer", k, "the diagonal k", caller);
  const rows = ops.iota("int32", sizes, 0);
  return [k === 0 ? rows : ops.add(rows, k), ops.iota("int32", sizes, 1)];
}

/**
 * Ones on and below diagonal k, zeros above.
 *
 * @example
 * ```ts
 * np.tri(3); // [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
 * ```
 */
export function tri(rows: number, columns: number = rows, options?: OptionsOf<typeof eyeOptions>): Tensor {
  need("number", rows, "rows", "tri");
  needIfGiven("number", columns, "columns", "tri");
  const { k, dtype } = eyeOptions.read(options, "tri");
  return cast(ops.compare("ge", ...rowsAndColumns([rows, columns], k, "tri")), dtype);
}

/**
 * The last two dims with zeros above diagonal k.
 *
 * @example
 * ```ts
 * np.tril(np.ones([2, 2])); // [[1, 0], [1, 1]]
 * ```
 */
export function tril(x: TensorLike, k = 0): Tensor {
  return triangle(x, k, "ge", "tril");
}

/**
 * The last two dims with zeros below diagonal k.
 *
 * @example
 * ```ts
 * np.triu(np.ones([2, 2])); // [[1, 1], [0, 1]]
 * ```
 */
export function triu(x: TensorLike, k = 0): Tensor {
  return triangle(x, k, "le", "triu");
}

function triangle(value: TensorLike, k: number, keep: "ge" | "le", caller: string): Tensor {
  const x = asTensor(value, caller);
  if (x.ndim < 2) {
    throw new ShapeError(`[${caller}] needs a matrix or a batch of matrices, got ${formatType(x.type)}`);
  }
  const mask = ops.compare(keep, ...rowsAndColumns(x.shape.slice(-2), k, caller));
  return ops.select(expandTo(mask, x.shape), x, Tensor.scalar(0, x.dtype));
}
