/** Norms and what belongs to them; used as `np.linalg`. */
import { DimError, ValueError } from "../ir/errors.js";
import { at, normalizeDims, range } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import type { TensorLike } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { matmul } from "./contraction.js";
import { eye } from "./creation.js";
import { asFloat, asTensor, cast, type Dims, requireRank, wideType } from "./operands.js";
import { type KeepdimsOptions, max, min, restoreDims, sum } from "./reductions.js";

export { cross, matmul, outer, tensordot, vecdot } from "./contraction.js";
export { diagonal, trace } from "./diagonals.js";
export { matrixTranspose } from "./shaping.js";

/**
 * Which norm: for vectors any number p, ±Infinity included; for matrices `"fro"`, 1, −1, Infinity, −Infinity.
 */
export type NormOrder = number | "fro";

/**
 * The norm over one dim (of vectors), over two dims (of matrices), or of all elements when no dim is given.
 * The default is the root of the sum of squares.
 *
 * ```ts
 * np.linalg.norm(x)          // of all elements
 * np.linalg.norm(x, 1, -1)   // sums of absolute values along the last dim
 * ```
 */
export function norm(
  value: TensorLike,
  order?: NormOrder | null,
  dim?: Dims,
  { keepdims }: KeepdimsOptions = {},
): Tensor {
  const operand = asFloat(value, "linalg.norm");
  const x = cast(operand, wideType(operand.dtype));
  const wantsAll = dim === undefined || dim === null;
  if (order === undefined || order === null) {
    const dims = normalizeDims(dim, x.ndim, "linalg.norm");
    return cast(ops.sqrt(sum(ops.mul(x, x), dims, { keepdims })), operand.dtype);
  }
  const dims = wantsAll ? range(x.ndim) : normalizeDims(dim, x.ndim, "linalg.norm");
  const [first, second] = dims;
  if (first !== undefined && dims.length === 1)
    return cast(vectorNorm(x, order, first, keepdims), operand.dtype);
  if (first !== undefined && second !== undefined && dims.length === 2) {
    return cast(matrixNorm(x, order, [first, second], keepdims), operand.dtype);
  }
  throw new DimError(
    `[linalg.norm] order ${order} is a norm of one dim or of two, not of ${dims.length}: name the dims`,
  );
}

function vectorNorm(x: Tensor, order: NormOrder, dim: number, keepdims: boolean | undefined): Tensor {
  const size = ops.abs(x);
  switch (order) {
    case Number.POSITIVE_INFINITY:
      return max(size, dim, { keepdims });
    case Number.NEGATIVE_INFINITY:
      return min(size, dim, { keepdims });
    case 0:
      return cast(sum(ops.compare("ne", x, 0), dim, { keepdims }), x.dtype);
    case 1:
      return sum(size, dim, { keepdims });
    case 2:
      return ops.sqrt(sum(ops.mul(x, x), dim, { keepdims }));
    case "fro":
      throw new ValueError('[linalg.norm] "fro" is a norm of matrices: name two dims');
    default:
      return ops.pow(sum(ops.pow(size, order), dim, { keepdims }), 1 / order);
  }
}

function matrixNorm(
  x: Tensor,
  order: NormOrder,
  [rows, columns]: readonly [number, number],
  keepdims: boolean | undefined,
): Tensor {
  const over = (inner: number, outer: number, reduce: typeof max) => {
    const sums = sum(ops.abs(x), inner, { keepdims: true });
    return restoreDims(
      ops.reshape(
        reduce(sums, outer, { keepdims: true }),
        x.shape.filter((_, d) => d !== rows && d !== columns),
      ),
      x,
      [rows, columns],
      keepdims,
    );
  };
  switch (order) {
    case "fro":
      return ops.sqrt(sum(ops.mul(x, x), [rows, columns], { keepdims }));
    case 1:
      return over(rows, columns, max);
    case -1:
      return over(rows, columns, min);
    case Number.POSITIVE_INFINITY:
      return over(columns, rows, max);
    case Number.NEGATIVE_INFINITY:
      return over(columns, rows, min);
    default:
      throw new ValueError(
        `[linalg.norm] order ${order} of a matrix needs its singular values, which are not available: use "fro", 1, −1, Infinity or −Infinity`,
      );
  }
}

/** A square matrix multiplied with itself n times, by squaring. */
export function matrixPower(value: TensorLike, n: number): Tensor {
  const x = asTensor(value, "linalg.matrixPower");
  requireRank(x, 2, "linalg.matrixPower");
  if (!Number.isInteger(n) || n < 0) {
    throw new ValueError(`[linalg.matrixPower] the power ${n} must be a whole number from 0`);
  }
  let result: Tensor | undefined;
  let square = x;
  for (let rest = n; rest > 0; rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) result = result ? matmul(result, square) : square;
    if (rest > 1) square = matmul(square, square);
  }
  const size = at(x.shape, x.ndim - 1);
  return result ?? ops.broadcastInDim(eye(size, size, { dtype: x.dtype }), x.shape, [x.ndim - 2, x.ndim - 1]);
}
