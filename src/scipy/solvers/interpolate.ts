/** JAX's `scipy.interpolate`. */

import { oneOf } from "../../ir/arguments.js";
import { ShapeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, range } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { asFloat, asInexact } from "../../numpy/operands.js";
import { needTensor, needTensors } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";

const gridOptions = schema({
  /** Between neighbours (`"linear"`, the default), or the value of the nearest point of the grid. */
  method: optional(oneOf("linear", "nearest"), "linear"),
  /** The value outside of the grid, NaN by default; `null` continues what is inside. */
  fillValue: optional<number | null>("any", Number.NaN),
});

/** Options of {@link RegularGridInterpolator}. */
export interface RegularGridOptions extends OptionsOf<typeof gridOptions> {}

/** Where points lie along one dim of the grid. */
interface Place {
  /** The point of the grid before them. */
  readonly low: Tensor;
  /** How far they are on the way to the next one, from 0 to 1. */
  readonly share: Tensor;
  readonly isOutside: Tensor;
}

function placeOf(x: Tensor, grid: Tensor): Place {
  const last = at(grid.shape, 0) - 1;
  const low = np.clip(np.searchsorted(grid, x).sub(1), 0, last - 1);
  const [before, after] = [np.take(grid, low), np.take(grid, low.add(1))];
  return {
    low,
    share: np.divide(np.subtract(x, before), np.subtract(after, before)),
    isOutside: np.logicalOr(x.lt(grid.get(0)), x.gt(grid.get(last))),
  };
}

/** Interpolates between the corners of the cell that a point lies in: each counts as much as the others are far. */
function linear(values: Tensor, places: readonly Place[], spread: (x: Tensor) => Tensor): Tensor {
  const corners = range(2 ** places.length).map((bits) => {
    const isHigh = (d: number) => ((bits >> d) & 1) === 1;
    const index = places.map(({ low }, d) => (isHigh(d) ? low.add(1) : low));
    const weights = places.map(({ share }, d) => (isHigh(d) ? share : np.subtract(1, share)));
    return np.multiply(values.get(...index), spread(weights.reduce((a, b) => np.multiply(a, b))));
  });
  return corners.reduce((a, b) => np.add(a, b));
}

/**
 * A function that interpolates values given on a grid: from points, whose last dim has their coordinates, to values.
 *
 * @param points the rising coordinates of the grid along each of its dims
 * @param values their values; dims beyond those of the grid are interpolated together
 *
 * @example
 * ```ts
 * const f = scipy.interpolate.RegularGridInterpolator([np.arange(2), np.arange(3)], np.array([[1, 2, 3], [3, 4, 5]]));
 * f(np.array([[0.5, 1], [0, 1.5]])); // [3, 2.5]
 * ```
 */
export function RegularGridInterpolator(
  points: readonly Tensor[],
  values: Tensor,
  options?: RegularGridOptions,
): (xi: Tensor) => Tensor {
  const caller = "scipy.interpolate.RegularGridInterpolator";
  const { method, fillValue } = gridOptions.read(options, caller);
  needTensors(points, "points", caller);
  needTensor(values, "values", caller);
  const grid = points.map((p) => asFloat(p, caller));
  const known = asInexact(values, caller);
  const sizes = known.shape.slice(0, grid.length);
  if (grid.length === 0 || grid.some((p, d) => p.ndim !== 1 || p.size !== sizes[d] || p.size < 2)) {
    throw new ShapeError(
      `[${caller}] values of ${formatType(known.type)} need a vector of at least 2 coordinates for each of their first dims, got ${grid.map(({ type }) => formatType(type)).join(", ")}`,
    );
  }
  const rest = known.shape.slice(grid.length);
  return (xi) => {
    needTensor(xi, "xi", caller);
    const x = asFloat(xi, caller);
    const shape = x.ndim === 1 ? [x.size / grid.length] : x.shape.slice(0, -1);
    if (x.ndim === 0 || (x.ndim > 1 ? x.shape.at(-1) !== grid.length : x.size % grid.length !== 0)) {
      throw new ShapeError(
        `[${caller}] points of ${formatType(x.type)} must have ${grid.length} coordinates in their last dim`,
      );
    }
    const rows = x.reshape([-1, grid.length]);
    const places = grid.map((p, d) => placeOf(rows.get(np.s(), d), p));
    const spread = (y: Tensor) => y.reshape([-1, ...rest.map(() => 1)]);
    const found =
      method === "linear"
        ? linear(known, places, spread)
        : known.get(...places.map(({ low, share }) => np.where(share.le(0.5), low, low.add(1))));
    const isOutside = places.map((place) => place.isOutside).reduce((a, b) => np.logicalOr(a, b));
    const filled = fillValue === null ? found : np.where(spread(isOutside), fillValue, found);
    return filled.reshape([...shape, ...rest]);
  };
}
