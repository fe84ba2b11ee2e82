/** JAX's `scipy.ndimage`. */

import { oneOf } from "../../ir/arguments.js";
import { isComplex, isFloat } from "../../ir/dtype.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { asFloat, asTensor } from "../../numpy/operands.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";

const mapOptions = schema({
  /** What lies beyond the edges: `cval` (`"constant"`, the default), or elements of the tensor. */
  mode: optional(oneOf("constant", "nearest", "wrap", "mirror", "reflect"), "constant"),
  /** The value beyond the edges in mode `"constant"`. */
  cval: 0,
});

/** Options of {@link mapCoordinates}. */
export interface MapCoordinatesOptions extends OptionsOf<typeof mapOptions> {}

type Mode = NonNullable<MapCoordinatesOptions["mode"]>;

function mirrored(index: Tensor, size: number): Tensor {
  const s = size - 1;
  return s === 0 ? np.zerosLike(index) : np.abs(np.subtract(np.mod(np.add(index, s), 2 * s), s));
}

/** The places inside of a dim that stand for others beyond its edges. */
const inside: Readonly<Record<Mode, (index: Tensor, size: number) => Tensor>> = {
  constant: (index) => index,
  nearest: (index, size) => np.clip(index, 0, size - 1),
  wrap: (index, size) => np.mod(index, size),
  mirror: mirrored,
  reflect: (index, size) =>
    np.floorDivide(np.subtract(mirrored(np.add(np.multiply(index, 2), 1), 2 * size + 1), 1), 2),
};

/** Halves are rounded away from 0. */
const rounded = (x: Tensor) => np.copysign(np.floor(np.add(np.abs(x), 0.5)), x);

/** A place along a dim, how much its element counts, and whether it is inside. */
interface Neighbour {
  readonly index: Tensor;
  readonly weight: Tensor | undefined;
  readonly isInside: Tensor;
}

function neighbours(coordinate: Tensor, size: number, order: number, mode: Mode): Neighbour[] {
  const neighbour = (place: Tensor, weight: Tensor | undefined): Neighbour => {
    const index = inside[mode](place.astype("int32"), size);
    const isInside = np.logicalAnd(index.ge(0), index.lt(size));
    return { index: np.clip(index, 0, size - 1), weight, isInside };
  };
  if (order === 0) return [neighbour(rounded(coordinate), undefined)];
  const low = np.floor(coordinate);
  const share = np.subtract(coordinate, low);
  return [neighbour(low, np.subtract(1, share)), neighbour(np.add(low, 1), share)];
}

/**
 * The elements of a tensor at coordinates, one tensor of them for each dim: the nearest ones for order 0, and
 * interpolated between neighbours for order 1.
 *
 * @example
 * ```ts
 * scipy.ndimage.mapCoordinates(np.array([[1, 2], [3, 4]]), [np.array([0.5]), np.array([0.5])], 1); // [2.5]
 * ```
 */
export function mapCoordinates(
  input: TensorLike,
  coordinates: readonly TensorLike[],
  order: 0 | 1,
  options?: MapCoordinatesOptions,
): Tensor {
  const caller = "scipy.ndimage.mapCoordinates";
  const { mode, cval } = mapOptions.read(options, caller);
  const x = asTensor(input, caller);
  if (order !== 0 && order !== 1) throw new ValueError(`[${caller}] order must be 0 or 1, got ${order}`);
  if (coordinates.length !== x.ndim) {
    throw new ShapeError(
      `[${caller}] ${formatType(x.type)} needs ${x.ndim} coordinates, got ${coordinates.length}`,
    );
  }
  const along = np
    .broadcastArrays(...coordinates.map((one) => asFloat(one, caller)))
    .map((one, d) => neighbours(one, at(x.shape, d), order, mode));
  const corners = along.reduce<Neighbour[][]>(
    (lists, own) => lists.flatMap((list) => own.map((one) => [...list, one])),
    [[]],
  );
  const total = corners
    .map((corner) => {
      const element = x.get(...corner.map(({ index }) => index));
      const value =
        mode === "constant"
          ? np.where(corner.map(({ isInside }) => isInside).reduce(np.logicalAnd), element, cval)
          : element;
      return corner.reduce((y, { weight }) => (weight ? np.multiply(y, weight) : y), value);
    })
    .reduce((sum, one) => np.add(sum, one));
  const isWhole = !isFloat(x.dtype) && !isComplex(x.dtype);
  return (isWhole && order === 1 ? rounded(total) : total).astype(x.dtype);
}
