/** The order in which every device of an axis has as much causal attention to compute as the others. */
import { need, needIfGiven } from "../../ir/arguments.js";
import { ShapeError } from "../../ir/errors.js";
import { at, normalizeDim } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import * as ops from "../../trace/ops.js";
import { needTensor } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";

/** Throws unless a sequence has two equal chunks for every device. */
function checkedDim(x: Tensor, numDevices: number, dim: number, caller: string): number {
  needTensor(x, "x", caller);
  need("integer", numDevices, "numDevices", caller);
  needIfGiven("integer", dim, "dim", caller);
  const d = normalizeDim(dim, x.ndim, caller);
  const [length, parts] = [at(x.shape, d), 2 * numDevices];
  if (length % parts === 0) return d;
  throw new ShapeError(
    `[${caller}] ${length} tokens do not split into two chunks for each of ${numDevices} devices (${length} / ${parts} = ${Number((length / parts).toPrecision(3))}): use a multiple of ${parts}`,
  );
}

/** The shape with one dim replaced by several. */
const split = (x: Tensor, dim: number, sizes: readonly number[]) =>
  ops.reshape(x, [...x.shape.slice(0, dim), ...sizes, ...x.shape.slice(dim + 1)]);

/**
 * A sequence in the order in which device i of n holds its chunks i and 2n − 1 − i. In causal attention early tokens see
 * few others and late ones many, so that every device has the same amount of work.
 *
 * @param numDevices the size of the mesh axis that splits the sequence
 * @param dim the dim of the sequence; 1 by default, after the batch
 *
 * @example
 * ```ts
 * nn.zigzag(np.arange(8), 2, 0); // [0, 1, 6, 7, 2, 3, 4, 5]
 * ```
 */
export function zigzag(x: Tensor, numDevices: number, dim = 1): Tensor {
  const d = checkedDim(x, numDevices, dim, "nn.zigzag");
  const chunks = split(x, d, [2, numDevices, at(x.shape, d) / (2 * numDevices)]);
  const [early, late] = [ops.sliceDim(chunks, d, 0, 1), ops.sliceDim(chunks, d, 1, 2)];
  return ops.reshape(ops.moveDim(ops.concatenate([early, np.flip(late, d + 1)], d), d + 1, d), x.shape);
}

/**
 * A sequence in its own order again: the inverse of {@link zigzag}.
 *
 * @example
 * ```ts
 * nn.unzigzag(nn.zigzag(np.arange(8), 2, 0), 2, 0); // [0, 1, 2, 3, 4, 5, 6, 7]
 * ```
 */
export function unzigzag(x: Tensor, numDevices: number, dim = 1): Tensor {
  const d = checkedDim(x, numDevices, dim, "nn.unzigzag");
  const pairs = ops.moveDim(split(x, d, [numDevices, 2, at(x.shape, d) / (2 * numDevices)]), d + 1, d);
  const [early, late] = [ops.sliceDim(pairs, d, 0, 1), ops.sliceDim(pairs, d, 1, 2)];
  return ops.reshape(ops.concatenate([early, np.flip(late, d + 1)], d), x.shape);
}
