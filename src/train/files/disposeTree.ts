import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";

/**
 * Gives back the memory of all tensors in a tree.
 *
 * @param except a tree whose tensors are kept
 */
export function disposeTree(values: unknown, except?: unknown): void {
  const kept = new Set(tree.leaves(except));
  for (const leaf of tree.leaves(values)) if (leaf instanceof Tensor && !kept.has(leaf)) leaf.dispose();
}
