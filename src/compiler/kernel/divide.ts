/**
 * Afterwards the iterations of the outermost loop of a kernel can run at the same time on several threads: each
 * writes elements of its own, and none reads what another writes.
 *
 * Unchanged are the points, the values at each of them, the element of memory that each access means, and the order
 * in which a row's elements are added up: results do not depend on who computes them.
 */

import { at, sizeOf } from "../../ir/shape.js";
import { mapStrides } from "./canonical.js";
import type { KernelSpec } from "./spec.js";

/** Kernels of fewer points are over before others have noticed that there is something to do. */
const FEWEST_POINTS = 1 << 14;

/** As many iterations for every thread as even out their number. */
const EVEN = 4;

/** The fewest elements that a vectorised loop is cut into. */
const SHORTEST_LOOP = 256;

/**
 * The same kernel with an outermost loop whose iterations are independent, at least one for each of `parts` threads;
 * nothing where there is no such loop or too little to do.
 *
 * @param spec a canonical kernel
 */
export function divide(spec: KernelSpec, parts: number): KernelSpec | undefined {
  if (parts < 2 || sizeOf(spec.dims) < FEWEST_POINTS || spec.fills.length > 0) return undefined;
  if (spec.stores.some(({ combine, index }) => combine !== undefined || index !== undefined))
    return undefined;
  const isReduced = spec.nodes.some(({ kind }) => kind === "reduce");
  const outermost = spec.dims[0] ?? 1;
  if (spec.numRows > 0 && outermost >= parts && isOwn(spec, 0)) return spec;
  if (isReduced) return undefined;
  const longest = spec.dims.indexOf(Math.max(...spec.dims));
  const count = pieces(at(spec.dims, longest), parts);
  return count === undefined || !isOwn(spec, longest) ? undefined : cut(spec, longest, count);
}

/** Whether every iteration of a loop writes other elements. */
function isOwn(spec: KernelSpec, dim: number): boolean {
  return spec.stores.every(({ access }) => at(access.strides, dim) !== 0);
}

/** Into how many equal pieces a loop of this length is cut. */
function pieces(length: number, parts: number): number | undefined {
  for (const least of [EVEN * parts, parts]) {
    for (let count = least; count <= EVEN * least && count * SHORTEST_LOOP <= length; count++) {
      if (length % count === 0) return count;
    }
  }
  return undefined;
}

/** Makes a loop two, of which the outer one becomes the outermost of all. */
function cut(spec: KernelSpec, dim: number, count: number): KernelSpec {
  const length = at(spec.dims, dim) / count;
  const dims = [count, ...spec.dims.map((size, d) => (d === dim ? length : size))];
  return mapStrides({ ...spec, dims, numRows: spec.numRows + 1 }, (strides) => [
    at(strides, dim) * length,
    ...strides,
  ]);
}
