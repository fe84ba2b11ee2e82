import type { Engine } from "../../ir/engine.js";
import { InternalError } from "../../ir/errors.js";
import type { TensorType } from "../../ir/shape.js";
import { isTyped } from "../../ir/shape.js";
import { onDevice, Storage } from "../../trace/storage.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";

function noValues(): never {
  throw new InternalError("an abstract tensor has no values");
}

/** An engine without memory, for tensors of which only the type is wanted. */
const nowhere: Engine = {
  name: "nowhere",
  numDevices: 1,
  process: { index: 0, count: 1 },
  isAddressable: () => true,
  compile: noValues,
  upload: noValues,
  download: noValues,
  ready: noValues,
  peek: noValues,
  transfer: noValues,
  release: () => {},
  close: async () => {},
};

/** A tensor that has a type and no values, to ask what a program would cost that is too large to run here. */
export function abstractTensor(type: TensorType): Tensor {
  return Tensor.stored(new Storage(onDevice(nowhere), type, [{ type }]));
}

/** Abstract tensors in place of the types of a tree. */
export function abstractTree<T>(types: T): tree.MapTree<T, TensorType, Tensor> {
  const { leaves, structure } = tree.flatten(types, isTyped);
  return tree.unflatten(
    structure,
    leaves.map((leaf) => (isTyped(leaf) ? abstractTensor({ dtype: leaf.dtype, shape: leaf.shape }) : leaf)),
  );
}
