import { isTyped, type TensorType } from "../../ir/shape.js";
import { ShapeDtypeStruct } from "../../spmd/mesh/shapeDtypeStruct.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";

/** Tensors without values for the types of a tree, to compute the cost of programs too large for this machine. */
export function abstractTree<T>(types: T): tree.MapTree<T, TensorType, Tensor> {
  const { leaves, structure } = tree.flatten(types, isTyped);
  return tree.unflatten(
    structure,
    leaves.map((leaf) => (isTyped(leaf) ? ShapeDtypeStruct(leaf.shape, leaf.dtype) : leaf)),
  );
}
