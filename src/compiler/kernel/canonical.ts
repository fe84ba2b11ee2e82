/**
 * Afterwards no loop has a single iteration, and no two adjacent loops could run through memory as one, except that
 * there is always an inner loop and that a row loop is never merged with a reduced loop.
 *
 * Unchanged are the points, the value at each of them, and the element of memory that each access refers to.
 */

import { at, range } from "../../ir/shape.js";
import type { Access, Indirection, KernelNode, KernelSpec, KernelStore } from "./spec.js";

/**
 * The same kernel with as few loops as possible: loops of one iteration are dropped and neighbours that run
 * through memory as one are merged, so that equal work has equal specs and long vector loops.
 */
export function canonical(spec: KernelSpec): KernelSpec {
  const hasReduce = spec.nodes.some((node) => node.kind === "reduce");
  let result = dropUnitDims(spec);
  for (let d = result.dims.length - 2; d >= 0; d--) {
    const sameSide = !hasReduce || d >= result.numRows || d + 1 < result.numRows;
    if (sameSide && mergeable(result, d)) result = merge(result, d);
  }
  const isEmptyInner = hasReduce ? result.numRows === result.dims.length : result.dims.length === 0;
  if (isEmptyInner) result = mapStrides({ ...result, dims: [...result.dims, 1] }, (s) => [...s, 0]);
  return hasReduce ? result : { ...result, numRows: result.dims.length - 1 };
}

function dropUnitDims(spec: KernelSpec): KernelSpec {
  const kept = range(spec.dims.length).filter((d) => spec.dims[d] !== 1);
  if (kept.length === spec.dims.length) return spec;
  return mapStrides(
    {
      ...spec,
      dims: kept.map((d) => at(spec.dims, d)),
      numRows: kept.filter((d) => d < spec.numRows).length,
    },
    (strides) => kept.map((d) => at(strides, d)),
  );
}

function mergeable(spec: KernelSpec, d: number): boolean {
  let fits = true;
  mapStrides(spec, (strides) => {
    if (at(strides, d) !== at(strides, d + 1) * at(spec.dims, d + 1)) fits = false;
    return strides;
  });
  return fits;
}

function merge(spec: KernelSpec, d: number): KernelSpec {
  const dims = spec.dims.flatMap((n, i) => (i === d ? [n * at(spec.dims, d + 1)] : i === d + 1 ? [] : [n]));
  const numRows = d < spec.numRows ? spec.numRows - 1 : spec.numRows;
  return mapStrides({ ...spec, dims, numRows }, (strides) => strides.filter((_, i) => i !== d));
}

/** Changes every list of strides of a kernel. */
export function mapStrides(
  spec: KernelSpec,
  change: (strides: readonly number[]) => readonly number[],
): KernelSpec {
  const access = (a: Access): Access => ({ ...a, strides: change(a.strides) });
  const index = (i: Indirection | undefined): Indirection | undefined =>
    i && { ...i, access: access(i.access) };
  const nodes = spec.nodes.map((node): KernelNode => {
    if (node.kind === "load") return { ...node, access: access(node.access), index: index(node.index) };
    if (node.kind === "iota") return { ...node, coefficients: change(node.coefficients) };
    return node;
  });
  const stores = spec.stores.map(
    (store): KernelStore => ({ ...store, access: access(store.access), index: index(store.index) }),
  );
  return { ...spec, nodes, stores };
}
