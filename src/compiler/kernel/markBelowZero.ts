/**
 * Afterwards every `exp(x - max(x))` along a row is marked: its argument is at most 0, or NaN.
 *
 * Unchanged is everything else, including the values.
 */

import type { KernelNode, KernelSpec } from "./spec.js";

/** Marks `exp(x − max(x))`, the core of every softmax: its argument is never above 0, which makes it cheaper. */
export function markBelowZero(spec: KernelSpec): KernelSpec {
  const isBelowZero = (index: number | undefined): boolean => {
    const node = index === undefined ? undefined : spec.nodes[index];
    if (node?.kind !== "op" || node.call.op !== "sub") return false;
    const [x, largest] = node.args;
    const reduced = largest === undefined ? undefined : spec.nodes[largest];
    return reduced?.kind === "reduce" && reduced.combine === "max" && reduced.arg === x;
  };
  const mark = (node: KernelNode): KernelNode => {
    if (node.kind !== "op" || node.call.op !== "exp" || !isBelowZero(node.args[0])) return node;
    return { ...node, call: { ...node.call, isBelowZero: true } };
  };
  return { ...spec, nodes: spec.nodes.map(mark) };
}
