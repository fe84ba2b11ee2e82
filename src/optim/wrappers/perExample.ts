/** Gradients of single examples, as private training clips them, and gradients scaled inside of a model. */

import { need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { ShapeError } from "../../ir/errors.js";
import { divide, minimum, multiply } from "../../numpy/elementwise/arithmetic.js";
import { less, where } from "../../numpy/elementwise/logic.js";
import { isnan } from "../../numpy/elementwise/specialValues.js";
import { tensordot } from "../../numpy/linalg/contraction.js";
import { sum } from "../../numpy/reductions/reductions.js";
import { stopGradient } from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { vmap } from "../../transforms/batching/vmap.js";
import { libraryVjp } from "../../transforms/derivatives/customVjp.js";
import { globalNorm } from "../transformations/clipping.js";
import { mapTensors } from "../transformations/transformation.js";

function checkExamples(grads: unknown, caller: string): void {
  const sizes = tree.leaves(grads).map((leaf) => (leaf instanceof Tensor ? leaf.shape[0] : undefined));
  if (sizes.every((size) => size !== undefined && size === sizes[0])) return;
  throw new ShapeError(
    `[${caller}] gradients must have a first dim of one gradient for each example, the same in all, got ${describe(grads)}: take them with vmap(grad(loss))`,
  );
}

/**
 * Shrinks the gradient of each example so that its norm over the whole tree is at most `maxNorm`, and adds them up.
 *
 * @param grads a tree whose first dims are examples
 * @returns the sum, and how many examples were clipped
 *
 * @example
 * ```ts
 * const grads = { w: np.array([[3, 4], [0.3, 0.4]]) };
 * optim.perExampleGlobalNormClip(grads, 1); // [{ "w": [0.9, 1.2] }, 1]
 * ```
 */
export function perExampleGlobalNormClip<T>(grads: T, maxNorm: number): [sum: T, numClipped: Tensor] {
  need("number", maxNorm, "maxNorm", "perExampleGlobalNormClip");
  checkExamples(grads, "perExampleGlobalNormClip");
  const shares = divide(maxNorm, vmap((one: T) => globalNorm(one))(grads));
  const factors = where(isnan(shares), 1, minimum(shares, 1));
  const clipped = mapTensors((g) => tensordot(factors.astype(g.dtype), g, 1), grads);
  return [clipped, sum(less(factors, 1))];
}

/**
 * Shrinks the gradient of each example leaf by leaf, so that its norm over the whole tree is at most `maxNorm`, and adds
 * them up.
 *
 * @param uniform whether all leaves get the same share of the norm, or shares as their numbers of elements
 * @returns the sums, and how many examples were clipped in each leaf
 *
 * @example
 * ```ts
 * const grads = { w: np.array([[3, 4], [0.3, 0.4]]) };
 * optim.perExampleLayerNormClip(grads, 1); // [{ "w": [0.9, 1.2] }, { "w": 1 }]
 * ```
 */
export function perExampleLayerNormClip<T>(
  grads: T,
  maxNorm: number,
  uniform = true,
): [sums: T, numsClipped: T] {
  need("number", maxNorm, "maxNorm", "perExampleLayerNormClip");
  checkExamples(grads, "perExampleLayerNormClip");
  const { leaves, structure } = tree.flatten(grads);
  const sizes = leaves.map((leaf) => (uniform || !(leaf instanceof Tensor) ? 1 : leaf.size));
  const total = sizes.reduce((a, b) => a + b, 0);
  const results = leaves.map((leaf, i) =>
    perExampleGlobalNormClip(leaf, maxNorm * Math.sqrt((sizes[i] ?? 1) / total)),
  );
  const part = (i: 0 | 1) =>
    tree.unflatten<T>(
      structure,
      results.map((result) => result[i]),
    );
  return [part(0), part(1)];
}

/**
 * The same values, whose gradients are multiplied by a number: 0 stops them, −1 turns them round for an adversary.
 *
 * @example
 * ```ts
 * grad((x: Tensor) => optim.scaleGradient(x, 0.5).mul(6))(np.array(1)); // 3
 * ```
 */
export function scaleGradient<T>(values: T, scale: number): T {
  need("number", scale, "scale", "scaleGradient");
  if (scale === 0) return mapTensors(stopGradient, values);
  const scaled = libraryVjp((x: Tensor) => x, {
    forward: (x) => [x, null],
    backward: (_, ct) => [multiply(ct, scale)],
  });
  return mapTensors((x) => scaled(x), values);
}
