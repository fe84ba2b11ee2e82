/**
 * Afterwards the iterations of the outermost loop of a kernel can run at the same time on several threads: each writes
 * different elements, and none reads what another writes.
 *
 * Unchanged are the points, the values at each of them, the element of memory that each access refers to, and the order
 * in which a row's elements are added: results do not depend on the number of threads.
 */

import { at, sizeOf } from "../../ir/shape.js";
import { mapStrides } from "./canonical.js";
import type { KernelSpec } from "./spec.js";

/** Minimum number of points of a kernel; a smaller one finishes before other threads have noticed it. */
const MIN_POINTS = 1 << 14;

/** Iterations for each thread that even out differences in their number. */
const ITERATIONS_PER_THREAD = 4;

/** Minimum length of a piece of a vectorised loop. */
const MIN_LOOP_LENGTH = 256;

/**
 * The same kernel with an outermost loop whose iterations are independent, at least one for each of `parts` threads;
 * undefined if there is no such loop or too little work.
 *
 * @param spec a canonical kernel
 */
export function divide(spec: KernelSpec, parts: number): KernelSpec | undefined {
  if (parts < 2 || sizeOf(spec.dims) < MIN_POINTS || spec.fills.length > 0) return undefined;
  if (spec.stores.some(({ combine, index }) => combine !== undefined || index !== undefined))
    return undefined;
  const isReduced = spec.nodes.some(({ kind }) => kind === "reduce");
  const outermost = spec.dims[0] ?? 1;
  if (spec.numRows > 0 && outermost >= parts && writesDisjoint(spec, 0)) return spec;
  if (isReduced) return undefined;
  const longest = spec.dims.indexOf(Math.max(...spec.dims));
  const count = pieces(at(spec.dims, longest), parts);
  return count === undefined || !writesDisjoint(spec, longest) ? undefined : cut(spec, longest, count);
}

/** Whether every iteration of a loop writes different elements. */
function writesDisjoint(spec: KernelSpec, dim: number): boolean {
  return spec.stores.every(({ access }) => at(access.strides, dim) !== 0);
}

/** The number of equal pieces into which a loop of this length is divided. */
function pieces(length: number, parts: number): number | undefined {
  for (const least of [ITERATIONS_PER_THREAD * parts, parts]) {
    for (
      let count = least;
      count <= ITERATIONS_PER_THREAD * least && count * MIN_LOOP_LENGTH <= length;
      count++
    ) {
      if (length % count === 0) return count;
    }
  }
  return undefined;
}

/** Splits a loop in two, of which the outer one becomes the outermost of all. */
function cut(spec: KernelSpec, dim: number, count: number): KernelSpec {
  const length = at(spec.dims, dim) / count;
  const dims = [count, ...spec.dims.map((size, d) => (d === dim ? length : size))];
  return mapStrides({ ...spec, dims, numRows: spec.numRows + 1 }, (strides) => [
    at(strides, dim) * length,
    ...strides,
  ]);
}
