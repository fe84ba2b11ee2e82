/** JAX's `scipy.cluster.vq`. */

import { ShapeError } from "../../ir/errors.js";
import { formatType } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { cast, inexactType } from "../../numpy/operands.js";
import { operandType, type TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";

/**
 * For each row of observations the number of the nearest row of a code book, and how far away that is. Vectors count as
 * rows of one element.
 *
 * @example
 * ```ts
 * const [codes, distances] = scipy.cluster.vq.vq(np.array([[1, 2], [7, 5]]), np.array([[1, 1], [7, 9]]));
 * codes; // [0, 1]
 * distances; // [1, 4]
 * ```
 */
export function vq(obs: TensorLike, codeBook: TensorLike): [codes: Tensor, distances: Tensor] {
  const caller = "scipy.cluster.vq.vq";
  const dtype = inexactType(operandType(obs, codeBook));
  const [rows, codes] = [obs, codeBook].map((value) => {
    const x = cast(np.asarray(value), dtype);
    if (x.ndim !== 1 && x.ndim !== 2) {
      throw new ShapeError(`[${caller}] needs vectors or matrices, got ${formatType(x.type)}`);
    }
    return x;
  }) as [Tensor, Tensor];
  if (rows.ndim !== codes.ndim || (rows.ndim === 2 && rows.shape[1] !== codes.shape[1])) {
    throw new ShapeError(
      `[${caller}] the rows of ${formatType(rows.type)} and of the code book ${formatType(codes.type)} are not alike: give both the same number of columns`,
    );
  }
  const asRows = (x: Tensor) => (x.ndim === 1 ? np.expandDims(x, 1) : x);
  const apart = np.subtract(np.expandDims(asRows(rows), 1), np.expandDims(asRows(codes), 0));
  const distances = np.linalg.norm(apart, null, -1);
  const nearest = np.argmin(distances, 1);
  const own = np.squeeze(np.takeAlongAxis(distances, np.expandDims(nearest, 1), 1), 1);
  return [nearest, own];
}
