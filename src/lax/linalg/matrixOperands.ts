/** What the decompositions share: batches of matrices, their triangles and products. */
import { describe } from "../../ir/describe.js";
import { isComplex, isFloat } from "../../ir/dtype.js";
import { DTypeError, ShapeError } from "../../ir/errors.js";
import { at, formatType, range, sizeOf } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";

/** What the elements of matrices may be. */
export type ElementKind = "floats" | "floats or complex numbers";

/** Throws unless x is a batch of matrices of floats. */
export function checkMatrices(x: Tensor, caller: string, of: ElementKind = "floats"): void {
  const fits = x instanceof Tensor && (isFloat(x.dtype) || (of !== "floats" && isComplex(x.dtype)));
  if (!fits) {
    throw new DTypeError(`[${caller}] needs a tensor of ${of}, got ${describe(x)}: convert it with astype`);
  }
  if (x.ndim < 2) {
    throw new ShapeError(`[${caller}] needs matrices, got ${formatType(x.type)}: add dims with expandDims`);
  }
}

/** Throws unless x is a batch of square matrices of floats. */
export function checkSquare(x: Tensor, caller: string, of: ElementKind = "floats"): void {
  checkMatrices(x, caller, of);
  const [rows, columns] = x.shape.slice(-2);
  if (rows !== columns) {
    throw new ShapeError(
      `[${caller}] needs square matrices, got ${formatType(x.type)} of ${rows} rows and ${columns} columns`,
    );
  }
}

/** The same matrices under one batch dim, in float32 or wider. */
export function flatBatch(x: Tensor): Tensor {
  const isWide = x.dtype === "float64" || isComplex(x.dtype);
  const wide = isWide ? x : ops.convert(x, "float32");
  return ops.reshape(wide, [sizeOf(x.shape.slice(0, -2)), ...x.shape.slice(-2)]);
}

/** Undoes {@link flatBatch} for a result, which takes the batch dims and the type of an operand. */
export function likeBatch(result: Tensor, operand: Tensor): Tensor {
  const shape = [...operand.shape.slice(0, -2), ...result.shape.slice(1)];
  const own = isFloat(result.dtype) && isFloat(operand.dtype) ? ops.convert(result, operand.dtype) : result;
  return ops.reshape(own, shape);
}

/** Swaps rows and columns. */
export function transposed(x: Tensor): Tensor {
  return ops.transpose(x, [...range(x.ndim - 2), x.ndim - 1, x.ndim - 2]);
}

/** The numbers with the other sign of their imaginary parts. */
export function conjugates(x: Tensor): Tensor {
  return x.parts ? Tensor.complex(x.parts[0], ops.neg(x.parts[1])) : x;
}

/** The conjugates of [batch, m, n] with rows and columns swapped. */
export function adjoint(x: Tensor): Tensor {
  return conjugates(transposed(x));
}

/** The real parts of complex numbers; other numbers are their own. */
export function realParts(x: Tensor): Tensor {
  return x.parts?.[0] ?? x;
}

/** The squares of the sizes of all elements. */
export function squaredSizes(x: Tensor): Tensor {
  const [real, imag] = x.parts ?? [x];
  const square = ops.mul(real, real);
  return imag ? ops.add(square, ops.mul(imag, imag)) : square;
}

/** The sums of squared sizes along the last dim. */
export function squaredLengths(x: Tensor): Tensor {
  const size = ops.abs(x);
  return ops.reduceSum(ops.mul(size, size), [x.ndim - 1]);
}

/** The matrix products of two batches [batch, …]. */
export function times(x: Tensor, y: Tensor): Tensor {
  return ops.dotGeneral(x, y, { lhsBatch: [0], rhsBatch: [0], lhsContract: [2], rhsContract: [1] });
}

/** Of each matrix the elements at and below a diagonal, zeros elsewhere. */
export function lower(x: Tensor, offset = 0): Tensor {
  return ops.select(isLower(x, offset), x, ops.zeros(x.type));
}

/** Of each matrix the elements at and above a diagonal, zeros elsewhere. */
export function upper(x: Tensor, offset = 0): Tensor {
  return ops.select(isLower(x, offset - 1), ops.zeros(x.type), x);
}

function isLower(x: Tensor, offset: number): Tensor {
  const [rows, columns] = positionsIn(x);
  return ops.compare("ge", ops.add(rows, offset), columns);
}

/** The symmetric (of complex numbers Hermitian) matrices whose lower triangles are given. */
export function mirroredLower(x: Tensor): Tensor {
  // The diagonals of Hermitian matrices are real, whatever the triangle says.
  const own = x.parts ? Tensor.complex(x.parts[0], lower(x.parts[1], -1)) : x;
  return ops.add(lower(own), adjoint(lower(own, -1)));
}

/** The row and the column of every element. */
export function positionsIn(x: Tensor): [rows: Tensor, columns: Tensor] {
  return [ops.iota("int32", x.shape, x.ndim - 2), ops.iota("int32", x.shape, x.ndim - 1)];
}

/** [batch, n] on the diagonals of matrices [batch, n, n]. */
export function diagonalMatrices(x: Tensor): Tensor {
  const n = at(x.shape, 1);
  const whole = ops.broadcastInDim(x, [...x.shape, n], [0, 1]);
  const [rows, columns] = positionsIn(whole);
  return ops.select(ops.compare("eq", rows, columns), whole, ops.zeros(whole.type));
}

/** The diagonals of matrices [batch, m, n] as [batch, min(m, n)]. */
export function diagonals(x: Tensor): Tensor {
  const [batch = 0, m = 0, n = 0] = x.shape;
  const count = Math.min(m, n);
  if (count === 0) return ops.zeros({ ...x.type, shape: [batch, 0] });
  const flat = ops.reshape(x, [batch, m * n]);
  return ops.sliceDim(flat, 1, 0, (count - 1) * (n + 1) + 1, n + 1);
}

/** Identity matrices, as many and of the type of x: [batch, rows, columns]. */
export function identities(x: Tensor, rows: number, columns: number): Tensor {
  const ones = ops.ones({ ...x.type, shape: [at(x.shape, 0), rows, columns] });
  const [i, j] = positionsIn(ones);
  return ops.select(ops.compare("eq", i, j), ones, ops.zeros(ones.type));
}

/** Scales the rows of [batch, m, n] by [batch, m]. */
export function scaleRows(x: Tensor, factors: Tensor): Tensor {
  return ops.mul(x, ops.broadcastInDim(ops.convert(factors, x.dtype), x.shape, [0, 1]));
}

/** Scales the columns of [batch, m, n] by [batch, n]. */
export function scaleColumns(x: Tensor, factors: Tensor): Tensor {
  return ops.mul(x, ops.broadcastInDim(ops.convert(factors, x.dtype), x.shape, [0, 2]));
}

/** The rows `start` … `stop` − 1 of the columns `left` … `right` − 1. */
export function part(x: Tensor, start: number, stop: number, left: number, right: number): Tensor {
  return ops.sliceDim(ops.sliceDim(x, 1, start, stop), 2, left, right);
}

/** Number of columns of a block: large matrices are processed in blocks, with only products between them. */
export const blockSize = 64;

/** The bounds of the blocks of n columns. */
export function blocksOf(n: number): (readonly [start: number, stop: number])[] {
  const count = Math.ceil(n / blockSize);
  return range(count).map((i) => [i * blockSize, Math.min(n, (i + 1) * blockSize)] as const);
}

/** A row of [batch, m, n] written over another row. */
export function putRow(x: Tensor, row: Tensor, index: Tensor): Tensor {
  const zero = Tensor.scalar(0, "int32");
  return ops.dynamicUpdateSlice(x, ops.reshape(row, [at(x.shape, 0), 1, at(x.shape, 2)]), [
    zero,
    index,
    zero,
  ]);
}

/** A column of [batch, m, n] written over another column. */
export function putColumn(x: Tensor, column: Tensor, index: Tensor): Tensor {
  const zero = Tensor.scalar(0, "int32");
  const block = ops.reshape(column, [at(x.shape, 0), at(x.shape, 1), 1]);
  return ops.dynamicUpdateSlice(x, block, [zero, zero, index]);
}

/** The rows of [batch, m, n] in the order of [batch, k] indices. */
export function takeRows(x: Tensor, order: Tensor): Tensor {
  return ops.gather(x, order, { dim: 1, batchDims: 1 });
}

/** Joins what is not empty along a dim. */
export function join(parts: readonly Tensor[], dim: number): Tensor {
  const full = parts.filter((x) => at(x.shape, dim) > 0);
  return full.length === 0 ? at(parts, 0) : ops.concatenate(full, dim);
}
