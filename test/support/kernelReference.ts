/**
 * What a kernel means, by the reference engine: every value as one tensor over all points of the loops. Slow and
 * plain, to compare compiled kernels and rewritten ones with.
 */

import { identityOf } from "../../src/compiler/identities.js";
import type {
  Access,
  Indirection,
  KernelNode,
  KernelSpec,
  KernelStore,
} from "../../src/compiler/kernel/spec.js";
import { type HostTensor, hostTensor, numbersOf } from "../../src/engines/reference/hostTensor.js";
import { type DType, isFloat } from "../../src/ir/dtype.js";
import type { OpName, OpParams } from "../../src/ir/ops.js";
import { at, range, rowMajorStrides, sizeOf } from "../../src/ir/shape.js";
import { Random } from "../compiler/randomProgram.js";
import { applyOp } from "./interpreting.js";

/** The memory of one argument: its elements, of which number `origin` is the one that the argument points to. */
export interface ArgMemory {
  readonly dtype: DType;
  readonly origin: number;
  readonly values: number[];
}

/** The points of a loop nest, in order. */
function points(dims: readonly number[]): number[][] {
  const strides = rowMajorStrides(dims);
  return range(sizeOf(dims)).map((i) => dims.map((n, d) => Math.floor(i / at(strides, d)) % n));
}

function placeOf(point: readonly number[], { strides, offset = 0 }: Access): number {
  return offset + offsetOf(point, strides);
}

function offsetOf(point: readonly number[], strides: readonly number[]): number {
  return strides.reduce((sum, stride, d) => sum + stride * at(point, d), 0);
}

/** How far below and above its start a kernel can reach into each argument, in elements. */
function reach(spec: KernelSpec, arg: number): readonly [low: number, high: number] {
  const loads = spec.nodes.flatMap((node) => (node.kind === "load" ? [node] : []));
  const all: { access: Access; index?: Indirection | undefined }[] = [...loads, ...spec.stores];
  const own = all.filter(({ access }) => access.arg === arg);
  const indices = all.flatMap(({ index }) =>
    index && index.access.arg === arg ? [{ access: index.access }] : [],
  );
  let [low, high] = [0, 0];
  for (const { access, index } of [...own, ...indices] as typeof all) {
    const terms = access.strides.map((stride, d) => stride * (at(spec.dims, d) - 1));
    terms.push(access.offset ?? 0);
    const jump = index ? index.stride * (index.limit - 1) : 0;
    const sum = (list: readonly number[]) => list.reduce((n, x) => n + x, 0);
    low = Math.min(low, sum([...terms, jump].filter((n) => n < 0)));
    high = Math.max(high, sum([...terms, jump].filter((n) => n > 0)));
  }
  for (const fill of spec.fills) if (fill.arg === arg) high = Math.max(high, fill.count - 1);
  return [low, high];
}

/** Random memory for all arguments of a kernel, large enough for every access. */
export function randomMemory(spec: KernelSpec, seed: number): ArgMemory[] {
  const random = new Random(seed);
  return spec.args.map((dtype, arg) => {
    const [low, high] = reach(spec, arg);
    const value = () => {
      if (isFloat(dtype)) return random.below(25) / 4 - 3;
      if (dtype === "bool") return random.below(2);
      return random.below(9) - (dtype === "int32" ? 3 : 0);
    };
    return { dtype, origin: -low, values: range(high - low + 1).map(value) };
  });
}

/** Runs a kernel on copies of the arguments; gives them as they are afterwards. */
export function interpretKernel(spec: KernelSpec, memory: readonly ArgMemory[]): ArgMemory[] {
  const result = memory.map((arg) => ({ ...arg, values: [...arg.values] }));
  const all = points(spec.dims);
  for (const { arg, count, value } of spec.fills) {
    const { values, origin } = at(result, arg);
    values.fill(value, origin, origin + count);
  }
  const nodes: HostTensor[] = [];
  for (const node of spec.nodes) nodes.push(evaluate(spec, node, nodes, memory, all));
  for (const store of spec.stores) write(spec, store, numbersOf(at(nodes, store.node)), result, all);
  return result;
}

function element(memory: readonly ArgMemory[], access: Access, point: readonly number[], jump = 0): number {
  const { values, origin } = at(memory, access.arg);
  return at(values, origin + placeOf(point, access) + jump);
}

function evaluate(
  spec: KernelSpec,
  node: KernelNode,
  nodes: readonly HostTensor[],
  memory: readonly ArgMemory[],
  all: readonly (readonly number[])[],
): HostTensor {
  const full = (values: readonly number[]) => hostTensor(node.dtype, spec.dims, values);
  switch (node.kind) {
    case "literal":
      return full(all.map(() => node.value));
    case "iota":
      return full(all.map((point) => offsetOf(point, node.coefficients)));
    case "load":
      return full(
        all.map((point) => {
          const { index } = node;
          if (!index) return element(memory, node.access, point);
          const i = Math.min(Math.max(element(memory, index.access, point), 0), index.limit - 1);
          return element(memory, node.access, point, i * index.stride);
        }),
      );
    case "op": {
      const { op, direction, to } = node.call;
      const params =
        op === "compare" ? { direction } : op === "convert" || op === "bitcast" ? { dtype: to } : {};
      const operands = node.args.map((arg) => at(nodes, arg));
      return at(applyOp(op, operands, params as OpParams[OpName] as OpParams[typeof op]), node.result);
    }
    case "reduce": {
      const row = sizeOf(spec.dims.slice(spec.numRows));
      const values = numbersOf(at(nodes, node.arg));
      const combined = range(values.length / row).map((r) =>
        values
          .slice(r * row, (r + 1) * row)
          .reduce((x, y) => combine(node.combine, x, y), identityOf(node.combine, node.dtype)),
      );
      return full(all.map((_, i) => at(combined, Math.floor(i / row))));
    }
  }
}

function combine(how: "sum" | "max" | "min", x: number, y: number): number {
  if (how === "sum") return x + y;
  return how === "max" ? Math.max(x, y) : Math.min(x, y);
}

function changesAlong(spec: KernelSpec, strides: readonly number[]): boolean {
  return strides.slice(spec.numRows).some((stride) => stride !== 0);
}

/** Whether a value is not the same at all points of a row. */
function changesInRow(spec: KernelSpec, node: number): boolean {
  const found = at(spec.nodes, node);
  switch (found.kind) {
    case "load":
      return [found.access, ...(found.index ? [found.index.access] : [])].some((a) =>
        changesAlong(spec, a.strides),
      );
    case "iota":
      return changesAlong(spec, found.coefficients);
    case "op":
      return found.args.some((arg) => changesInRow(spec, arg));
    default:
      return false;
  }
}

function write(
  spec: KernelSpec,
  { node, access, combine: how, index }: KernelStore,
  source: readonly number[],
  memory: readonly ArgMemory[],
  all: readonly (readonly number[])[],
): void {
  const { values, origin, dtype } = at(memory, access.arg);
  const row = sizeOf(spec.dims.slice(spec.numRows));
  // A value of the whole row that goes to one place is stored once per row.
  const isRow = !index && !changesAlong(spec, access.strides) && !changesInRow(spec, node);
  all.forEach((point, i) => {
    if (isRow && i % row !== 0) return;
    const jump = index ? element(memory, index.access, point) : 0;
    if (index && (jump < 0 || jump >= index.limit)) return;
    const place = origin + placeOf(point, access) + jump * (index?.stride ?? 0);
    const value = how ? combine(how, at(values, place), at(source, i)) : at(source, i);
    values[place] = at(numbersOf(hostTensor(dtype, [1], [value])), 0);
  });
}
