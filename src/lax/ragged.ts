/** Products of groups of rows with a matrix each, and reductions by any function. */

import { integerFrom } from "../ir/arguments.js";
import { ShapeError, ValueError } from "../ir/errors.js";
import { type OptionsOf, optional, required, schema } from "../ir/schema.js";
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

const raggedDotOptions = schema({
  /** The dims of `lhs` that are summed over. */
  lhsContract: required<readonly number[]>("integers"),
  /** The dims of `rhs` that are summed over, in the same order. */
  rhsContract: required<readonly number[]>("integers"),
  /** The dims of `lhs` that products are taken along, one by one; they come first in the result. */
  lhsBatch: optional<readonly number[]>("integers"),
  /** The dims of `rhs` that they are taken along, in the same order. */
  rhsBatch: optional<readonly number[]>("integers"),
  /** The dim of `lhs` whose elements belong to groups. */
  lhsRagged: required(integerFrom(0)),
  /** The dim of `rhs` with one element for each group, unless the ragged dim is summed over or a batch dim. */
  rhsGroup: optional(integerFrom(0)),
});

/** Options of {@link raggedDotGeneral}. */
export interface RaggedDotOptions extends OptionsOf<typeof raggedDotOptions> {}

/**
 * `lax.dotGeneral` of operands whose dim `lhsRagged` falls into consecutive groups. If it is a free dim, each of its groups
 * is multiplied with its own element of `rhs` along `rhsGroup`; if it is summed over, each group has a sum of its own, along
 * a new first dim; those of a batch dim change nothing. The groups are masks of the whole product: {@link raggedDot} skips
 * what they leave out.
 *
 * @param groupSizes integers [groups]
 *
 * @example
 * ```ts
 * const dims = { lhsContract: [0], rhsContract: [0], lhsRagged: 0 };
 * lax.raggedDotGeneral(np.array([1, 2, 3]), np.array([1, 1, 1]), np.array([1, 2], "int32"), dims); // [1, 5]
 * ```
 */
export function raggedDotGeneral(
  lhs: Tensor,
  rhs: Tensor,
  groupSizes: Tensor,
  options: RaggedDotOptions,
): Tensor {
  const caller = "lax.raggedDotGeneral";
  needTensor(lhs, "lhs", caller);
  needTensor(rhs, "rhs", caller);
  needTensor(groupSizes, "groupSizes", caller);
  const given = raggedDotOptions.read(options, caller);
  const { lhsContract, rhsContract, lhsBatch = [], rhsBatch = [], lhsRagged, rhsGroup } = given;
  if (groupSizes.ndim !== 1) {
    throw new ShapeError(`[${caller}] needs a size for each group, got ${formatType(groupSizes.type)}`);
  }
  const isBatch = lhsBatch.includes(lhsRagged);
  const isFree = !isBatch && !lhsContract.includes(lhsRagged);
  if (isFree !== (rhsGroup !== undefined)) {
    throw new ValueError(
      `[${caller}] rhsGroup names the dim of the groups of rhs if lhsRagged is neither summed over nor a batch dim: ${isFree ? "give it" : "leave it out"}`,
    );
  }
  if (isBatch) return ops.dotGeneral(lhs, rhs, { lhsContract, rhsContract, lhsBatch, rhsBatch });
  const grouped = inGroups(lhs, lhsRagged, groupSizes);
  const later = (dims: readonly number[]) => dims.map((d) => d + 1);
  const [contract, batch] = [later(lhsContract), later(lhsBatch)];
  if (isFree && rhsGroup !== undefined) {
    return ops.dotGeneral(grouped, rhs, {
      lhsContract: [...contract, 0],
      rhsContract: [...rhsContract, rhsGroup],
      lhsBatch: batch,
      rhsBatch,
    });
  }
  const product = ops.dotGeneral(grouped, rhs, {
    lhsContract: contract,
    rhsContract,
    lhsBatch: batch,
    rhsBatch,
  });
  // The groups are the first free dim of the product.
  return ops.moveDim(product, lhsBatch.length, 0);
}

/** A copy of x for each group, along a new first dim, with zeros outside of the group. */
function inGroups(x: Tensor, dim: number, groupSizes: Tensor): Tensor {
  const sizes = ops.convert(groupSizes, "int32");
  const shape = [at(sizes.shape, 0), ...x.shape];
  const spread = (values: Tensor) => ops.broadcastInDim(values, shape, [0]);
  const ends = ops.cumsum(sizes, 0);
  const place = ops.iota("int32", shape, dim + 1);
  const isInside = ops.and(
    ops.compare("ge", place, spread(ops.sub(ends, sizes))),
    ops.compare("lt", place, spread(ends)),
  );
  const copies = ops.broadcastInDim(x, shape, range(shape.length).slice(1));
  return ops.select(isInside, copies, ops.zeros(copies.type));
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
