/**
 * Afterwards no float32 value along a row is divided by one that is the same for the whole row: it is
 * multiplied with the reciprocal, which is computed once per row.
 *
 * Unchanged are all other values; quotients differ by at most one more unit in the last place.
 */

import type { DType } from "../../ir/dtype.js";
import { at } from "../../ir/shape.js";
import { innerNodes } from "./phases.js";
import type { KernelNode, KernelSpec } from "./spec.js";

/** Beyond these sizes the reciprocal of a float32 loses digits or overflows. */
const SMALL = 2 ** -100;
const LARGE = 2 ** 100;

/**
 * Replaces float32 divisions whose divisor is the same along a whole row by products with its reciprocal, which
 * takes a tenth of the time and errs by at most one more unit in the last place. Divisors near the ends of the
 * range are scaled first, so that no quotient is lost.
 */
export function simplifyDivision(spec: KernelSpec): KernelSpec {
  const inner = innerNodes(spec);
  const isSlow = (node: KernelNode, i: number): node is Extract<KernelNode, { kind: "op" }> =>
    node.kind === "op" &&
    node.call.op === "div" &&
    node.dtype === "float32" &&
    at(inner, i) &&
    !at(inner, at(node.args, 1));
  if (!spec.nodes.some(isSlow)) return spec;
  const nodes: KernelNode[] = [];
  const moved: number[] = [];
  const add = (node: KernelNode): number => {
    nodes.push(node);
    return nodes.length - 1;
  };
  const literal = (value: number, dtype: DType = "float32") => add({ kind: "literal", dtype, value });
  const apply = (op: "mul" | "div" | "abs" | "select", ...args: number[]) =>
    add({ kind: "op", dtype: "float32", call: { op, from: "float32", to: "float32" }, args, result: 0 });
  const compare = (direction: "lt" | "gt", x: number, y: number) =>
    add({
      kind: "op",
      dtype: "bool",
      call: { op: "compare", from: "float32", to: "bool", direction },
      args: [x, y],
      result: 0,
    });
  /** For every divisor its scale, if it needs one, and the reciprocal of the scaled divisor. */
  const reciprocals = new Map<number, { readonly scale: number | undefined; readonly reciprocal: number }>();
  const reciprocalOf = (divisor: number) => {
    const known = reciprocals.get(divisor);
    if (known) return known;
    const node = at(nodes, divisor);
    const isPlain = node.kind === "literal" && Math.abs(node.value) > SMALL && Math.abs(node.value) < LARGE;
    let result: { scale: number | undefined; reciprocal: number };
    if (isPlain && node.kind === "literal") {
      result = { scale: undefined, reciprocal: literal(Math.fround(1 / node.value)) };
    } else if (isSoftmaxSum(node, nodes)) {
      result = { scale: undefined, reciprocal: apply("div", literal(1), divisor) };
    } else {
      const size = apply("abs", divisor);
      const shrink = apply("select", compare("gt", size, literal(LARGE)), literal(2 ** -64), literal(1));
      const scale = apply("select", compare("lt", size, literal(SMALL)), literal(2 ** 64), shrink);
      result = { scale, reciprocal: apply("div", literal(1), apply("mul", divisor, scale)) };
    }
    reciprocals.set(divisor, result);
    return result;
  };
  spec.nodes.forEach((node, i) => {
    if (!isSlow(node, i)) {
      moved.push(add(withArgs(node, moved)));
      return;
    }
    const [x, divisor] = node.args.map((arg) => at(moved, arg));
    const { scale, reciprocal } = reciprocalOf(divisor ?? 0);
    const scaled = scale === undefined ? (x ?? 0) : apply("mul", x ?? 0, scale);
    moved.push(apply("mul", scaled, reciprocal));
  });
  const stores = spec.stores.map((store) => ({ ...store, node: at(moved, store.node) }));
  return { ...spec, nodes, stores };
}

/** A sum of `exp(x − max(x))` over a row lies between 1 and the row's length, or is NaN. */
function isSoftmaxSum(node: KernelNode, nodes: readonly KernelNode[]): boolean {
  if (node.kind !== "reduce" || node.combine !== "sum") return false;
  const term = at(nodes, node.arg);
  return term.kind === "op" && term.call.op === "exp" && term.call.isBelowZero === true;
}

function withArgs(node: KernelNode, moved: readonly number[]): KernelNode {
  if (node.kind === "op") return { ...node, args: node.args.map((arg) => at(moved, arg)) };
  return node.kind === "reduce" ? { ...node, arg: at(moved, node.arg) } : node;
}
