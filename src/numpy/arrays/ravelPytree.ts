import { TreeError } from "../../ir/errors.js";
import { sizeOf } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { operandType } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";

/**
 * All tensors of a tree as one vector of their common type, and the function that makes such a tree of a vector
 * again, with the shapes and types of the first.
 *
 * ```ts
 * const [flat, unravel] = ravelPytree(params);
 * const moved = unravel(flat.mul(0.5));
 * ```
 *
 * @example
 * ```ts
 * const [flat, unravel] = ravelPytree({ a: np.array([1, 2]), b: np.array([3]) });
 * flat; // [1, 2, 3]
 * unravel(flat.mul(10)); // { "a": [10, 20], "b": [30] }
 * ```
 */
export function ravelPytree<T>(values: T): [flat: Tensor, unravel: (flat: Tensor) => T] {
  const { structure } = tree.flatten(values);
  const leaves = tree.flattenWithPath(values).map(({ path, leaf }) => {
    if (leaf instanceof Tensor) return leaf;
    throw new TreeError(`[ravelPytree] the leaf at "${path}" is not a tensor but ${String(leaf)}`);
  });
  const dtype = leaves.length > 0 ? operandType(...leaves) : "float32";
  const total = leaves.reduce((n, { size }) => n + size, 0);
  const flat =
    leaves.length > 0
      ? ops.concatenate(
          leaves.map((leaf) => ops.reshape(ops.convert(leaf, dtype), [leaf.size])),
          0,
        )
      : ops.full([0], 0, dtype);
  const unravel = (vector: Tensor): T => {
    if (vector.ndim !== 1 || vector.size !== total) {
      throw new TreeError(
        `[ravelPytree] the tree has ${total} elements, got ${vector}: pass a vector of ${total}`,
      );
    }
    let start = 0;
    const parts = leaves.map(({ type }) => {
      const stop = start + sizeOf(type.shape);
      const part = ops.sliceDim(vector, 0, start, stop);
      start = stop;
      return ops.convert(ops.reshape(part, type.shape), type.dtype);
    });
    return tree.unflatten<T>(structure, parts);
  };
  return [flat, unravel];
}
