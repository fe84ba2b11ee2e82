/**
 * Afterwards a loop over rows that are added to the same float32 sums adds several of them in one iteration, so that
 * the sums are loaded and stored once for all of these, and as many rows are on their way from memory at a time.
 *
 * Unchanged are the values: every sum has the same terms, added one after the other in the same order.
 */

import { opFacts } from "../../ir/opFacts.js";
import { at, range } from "../../ir/shape.js";
import type { Access, KernelNode, KernelSpec, KernelStore } from "./spec.js";
import type { VectorOpCall } from "./vectorOps.js";

/** How many rows may be added in one iteration, best first. */
const ROWS = [8, 4, 2] as const;

/** Maximum number of nodes of an iteration, and of streams that are read in it, each of which needs a pointer. */
const MOST = { nodes: 64, streams: 9 } as const;

const addition: VectorOpCall = { op: "add", from: "float32", to: "float32" };

/** Adds several rows at a time, if a canonical kernel does nothing but add rows. */
export function sumRows(spec: KernelSpec): KernelSpec {
  const dim = spec.dims.length - 2;
  const [store, ...others] = spec.stores;
  if (store === undefined || others.length > 0 || dim < 0 || !addsRows(spec, store, dim)) return spec;
  const changes = changingNodes(spec, dim);
  const perRow = spec.nodes.filter((node, i) => at(changes, i) && isStream(spec, node)).length;
  const count = ROWS.find(
    (n) =>
      at(spec.dims, dim) % n === 0 && n * spec.nodes.length <= MOST.nodes && n * perRow + 1 <= MOST.streams,
  );
  return count === undefined ? spec : joinRows(spec, store, { dim, count, changes });
}

/** Whether all that a kernel stores is sums, to which every iteration of a loop adds a row of cheap values. */
function addsRows({ dims, nodes }: KernelSpec, { node, access, combine, index }: KernelStore, dim: number) {
  const isSum = combine === "sum" && index === undefined && at(nodes, node).dtype === "float32";
  const isRow = at(access.strides, dim) === 0 && at(access.strides, dims.length - 1) === 1;
  const isCheap = nodes.every(
    (of) =>
      of.kind === "literal" ||
      (of.kind === "load" && of.index === undefined && of.access.arg !== access.arg) ||
      (of.kind === "op" && ["trivial", "short"].includes(opFacts[of.call.op].price)),
  );
  return isSum && isRow && isCheap;
}

/** Whether each node is another one in every iteration of a loop. */
function changingNodes({ nodes }: KernelSpec, dim: number): readonly boolean[] {
  const changes: boolean[] = [];
  for (const node of nodes) {
    if (node.kind === "load") changes.push(at(node.access.strides, dim) !== 0);
    else changes.push(node.kind === "op" && node.args.some((arg) => at(changes, arg)));
  }
  return changes;
}

/** Whether a node is read element by element. */
function isStream({ dims }: KernelSpec, node: KernelNode): boolean {
  return node.kind === "load" && at(node.access.strides, dims.length - 1) !== 0;
}

interface Joining {
  readonly dim: number;
  /** Number of rows of an iteration. */
  readonly count: number;
  readonly changes: readonly boolean[];
}

function joinRows(spec: KernelSpec, store: KernelStore, { dim, count, changes }: Joining): KernelSpec {
  const dtype = "float32";
  const nodes: KernelNode[] = [];
  const add = (node: KernelNode): number => nodes.push(node) - 1;
  const moved = ({ arg, strides, offset = 0 }: Access, row: number): Access => ({
    ...{ arg, offset: offset + row * at(strides, dim) },
    strides: strides.map((stride, d) => (d === dim ? count * stride : stride)),
  });
  const access = moved(store.access, 0);
  let sum = add({ kind: "load", dtype, access });
  const shared = new Map<number, number>();
  for (const row of range(count)) {
    const places: number[] = [];
    spec.nodes.forEach((node, i) => {
      const known = at(changes, i) ? undefined : shared.get(i);
      const args = node.kind === "op" ? { args: node.args.map((arg) => at(places, arg)) } : {};
      const own = node.kind === "load" ? { access: moved(node.access, row) } : {};
      const place = known ?? add({ ...node, ...args, ...own } as KernelNode);
      if (!at(changes, i)) shared.set(i, place);
      places.push(place);
    });
    sum = add({ kind: "op", dtype, call: addition, args: [sum, at(places, store.node)], result: 0 });
  }
  const dims = spec.dims.map((size, d) => (d === dim ? size / count : size));
  return { ...spec, dims, nodes, stores: [{ node: sum, access }] };
}
