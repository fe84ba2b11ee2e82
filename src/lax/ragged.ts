/** Products of groups of rows with a matrix each, and reductions by any function. */

import { ShapeError } from "../ir/errors.js";
import { at, formatType, normalizeDims, range } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import { needTensor } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { flattenArgs } from "../trace/trace.js";
import * as tree from "../trace/tree.js";
import { reduceWindow } from "./reduceWindow.js";

/**
 * Multiplies consecutive groups of rows with a matrix each: the first `groupSizes[0]` rows with `rhs[0]`, and so on.
 * Rows after the last group give zeros.
 *
 * @param lhs [rows, inputs]
 * @param rhs [groups, inputs, outputs]
 * @param groupSizes int32 [groups]
 *
 * @example
 * ```ts
 * const matrices = np.array([[[1]], [[10]]]);
 * lax.raggedDot(np.array([[1], [2], [3]]), matrices, np.array([1, 2], "int32")); // [[1], [20], [30]]
 * ```
 */
export function raggedDot(lhs: Tensor, rhs: Tensor, groupSizes: Tensor): Tensor {
  needTensor(lhs, "lhs", "lax.raggedDot");
  needTensor(rhs, "rhs", "lax.raggedDot");
  needTensor(groupSizes, "groupSizes", "lax.raggedDot");
  const [inputs, groups] = [lhs.shape[1], rhs.shape[0]];
  const fits = lhs.ndim === 2 && rhs.ndim === 3 && groupSizes.ndim === 1;
  if (!fits || rhs.shape[1] !== inputs || groupSizes.shape[0] !== groups) {
    throw new ShapeError(
      `[lax.raggedDot] needs [rows, inputs], [groups, inputs, outputs] and [groups], got ${formatType(lhs.type)}, ${formatType(rhs.type)} and ${formatType(groupSizes.type)}`,
    );
  }
  return ops.raggedDot(lhs, rhs, ops.convert(groupSizes, "int32"), "rows");
}

/**
 * Reduces whole dims by an associative function, starting from `init`.
 *
 * @param operands a tensor, or a tree of tensors of one shape
 *
 * @example
 * ```ts
 * lax.reduce(np.array([[1, 2], [3, 4]]), np.array(1), lax.mul, [0]); // [3, 8]
 * ```
 */
export function reduce<T, I = T>(
  operands: T,
  init: I,
  computation: (a: T, b: T) => T,
  dimensions: readonly number[],
): T {
  const { tensors } = flattenArgs(operands, "lax.reduce");
  const { shape } = at(tensors, 0);
  const dims = normalizeDims(dimensions, shape.length, "lax.reduce");
  if (dims.some((d) => shape[d] === 0)) {
    throw new ShapeError(`[lax.reduce] dims [${dims}] of [${shape}] are empty: there is nothing to reduce`);
  }
  const window = shape.map((n, d) => (dims.includes(d) ? n : 1));
  const kept = range(shape.length).filter((d) => !dims.includes(d));
  const reduced = flattenArgs(reduceWindow(operands, init, computation, window), "lax.reduce");
  return tree.unflatten<T>(
    reduced.structure,
    reduced.tensors.map((x) =>
      ops.reshape(
        x,
        kept.map((d) => at(x.shape, d)),
      ),
    ),
  );
}
