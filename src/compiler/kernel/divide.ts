/**
 * Afterwards the iterations of the outermost loop of a kernel can run at the same time on several threads: each writes
 * different elements, and none reads what another writes. Memory that is filled first is divided among them evenly.
 *
 * Unchanged are the points, the values at each of them, the element of memory that each access refers to, and the order
 * in which a row's elements are added: results do not depend on the number of threads.
 */

import { at, sizeOf } from "../../ir/shape.js";
import { mapStrides } from "./canonical.js";
import type { KernelSpec, KernelStore } from "./spec.js";

/**
 * Minimum number of points of a kernel that reads or writes up to three elements at each, and of fewer that access more;
 * a smaller one finishes before other threads have noticed it.
 */
const MIN_POINTS = 1 << 14;
const FEW_ACCESSES = 3;

/** Iterations for each thread that even out differences in their number. */
const ITERATIONS_PER_THREAD = 4;

/** Minimum length of a piece of a vectorised loop, and of one that runs again for every row that is added. */
const MIN_LOOP_LENGTH = 256;
const MIN_SUM_LENGTH = 64;

/**
 * The same kernel with an outermost loop whose iterations are independent, at least one for each of `parts` threads;
 * undefined if there is no such loop or too little work.
 *
 * @param spec a canonical kernel
 */
export function divide(spec: KernelSpec, parts: number): KernelSpec | undefined {
  if (parts < 2 || workOf(spec) < MIN_POINTS) return undefined;
  if (spec.stores.some(({ index }) => index !== undefined)) return undefined;
  const isReduced = spec.nodes.some(({ kind }) => kind === "reduce");
  const outermost = spec.dims[0] ?? 1;
  const isDivisible = spec.numRows > 0 && outermost >= parts && writesDisjoint(spec, 0);
  if (isDivisible && fillsDisjoint(spec)) return spec;
  if (isReduced) return undefined;
  // The length of a loop whose iterations are not independent counts as 0.
  const lengths = spec.dims.map((size, d) => (writesDisjoint(spec, d) ? size : 0));
  const length = Math.max(0, ...lengths);
  const longest = lengths.indexOf(length);
  // Short pieces of sums would read memory in short pieces, too.
  const count =
    spec.fills.length > 0
      ? pieces(length, [parts], MIN_SUM_LENGTH)
      : pieces(length, [ITERATIONS_PER_THREAD * parts, parts], MIN_LOOP_LENGTH);
  const result = count === undefined ? undefined : cut(spec, longest, count);
  return result && fillsDisjoint(result) ? result : undefined;
}

/** Points, of which those that access many elements count more. */
function workOf({ dims, nodes, stores }: KernelSpec): number {
  const numAccesses = nodes.filter(({ kind }) => kind === "load").length + stores.length;
  return sizeOf(dims) * Math.max(1, numAccesses / FEW_ACCESSES);
}

/** Whether sums are complete in one iteration of the outermost loop, and the iterations fill equal parts of memory. */
function fillsDisjoint({ dims, stores, fills }: KernelSpec): boolean {
  const isDisjoint = ({ access, combine }: KernelStore): boolean => {
    const [step = 0, ...inner] = access.strides;
    const reach = inner.reduce((sum, stride, d) => sum + (at(dims, d + 1) - 1) * stride, 0);
    const fill = fills.find(({ arg }) => arg === access.arg);
    if (combine === undefined || fill?.value !== 0) return false;
    return fill.count === step * at(dims, 0) && reach < step && inner.every((stride) => stride >= 0);
  };
  const isSummed = ({ access, combine }: KernelStore) =>
    combine !== undefined || fills.some(({ arg }) => arg === access.arg);
  return stores.filter(isSummed).every(isDisjoint);
}

/** Whether every iteration of a loop writes different elements. */
function writesDisjoint(spec: KernelSpec, dim: number): boolean {
  return spec.stores.every(({ access }) => at(access.strides, dim) !== 0);
}

/** The number of equal pieces into which a loop of this length is divided: little more than one of the wanted. */
function pieces(length: number, wanted: readonly number[], shortest: number): number | undefined {
  for (const least of wanted) {
    for (let count = least; count <= ITERATIONS_PER_THREAD * least && count * shortest <= length; count++) {
      if (length % count === 0) return count;
    }
  }
  return undefined;
}

/** Splits a loop in two, of which the outer one becomes the outermost of all. */
export function cut(spec: KernelSpec, dim: number, count: number): KernelSpec {
  const length = at(spec.dims, dim) / count;
  const dims = [count, ...spec.dims.map((size, d) => (d === dim ? length : size))];
  return mapStrides({ ...spec, dims, numRows: spec.numRows + 1 }, (strides) => [
    at(strides, dim) * length,
    ...strides,
  ]);
}
