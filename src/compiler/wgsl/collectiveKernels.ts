import { type DType, isFloat } from "../../ir/dtype.js";
import { range } from "../../ir/shape.js";
import { canonical } from "../kernel/canonical.js";
import { type LoopPlan, planLoops } from "../kernel/loopPlan.js";
import { planKernel } from "../kernel/phases.js";
import type { KernelNode, KernelSpec } from "../kernel/spec.js";
import type { CollectiveSpec } from "../steps.js";
import { GPU_FEATURES } from "../wasm/features.js";
import { gpuTarget } from "./kernelShader.js";

/** A part of a member's source or target, from an element on. */
export interface MemberPlace {
  readonly member: number;
  readonly side: "source" | "target";
  readonly element: number;
}

/** One kernel of a collective on a GPU whose memory holds its devices, or copies of the sources of others. */
export interface CollectiveKernel {
  readonly plan: LoopPlan;
  /** The arguments, by the members of a group. */
  readonly args: readonly MemberPlace[];
}

/**
 * The kernels that a collective consists of; they may run in any order.
 *
 * @param receivers the members of the group whose targets they write
 */
export function collectiveKernels(spec: CollectiveSpec, receivers: readonly number[]): CollectiveKernel[] {
  const { size, dtype, outer, inner, elements } = spec;
  const members = range(size);
  const copy = (from: MemberPlace, to: MemberPlace, dims: Dims, strides: Strides) => ({
    plan: gpuPlan(copySpec(dtype, dims, strides)),
    args: [from, to],
  });
  switch (spec.kind) {
    case "allReduce":
      // All targets are written at once: each may be the memory of a source.
      return [
        {
          plan: gpuPlan(combineSpec(spec, [elements], [1], [1], receivers.length)),
          args: [
            ...members.map((member) => place(member, "source")),
            ...receivers.map((member) => place(member, "target")),
          ],
        },
      ];
    case "reduceScatter":
      return receivers.map((member) => ({
        plan: gpuPlan(combineSpec(spec, [outer, inner], [size * inner, 1], [inner, 1], 1)),
        args: [...members.map((from) => place(from, "source", member * inner)), place(member, "target")],
      }));
    case "allGather":
      return members.flatMap((from) =>
        receivers.map((to) =>
          copy(place(from, "source"), place(to, "target", from * inner), [outer, inner], {
            from: [inner, 1],
            to: [size * inner, 1],
          }),
        ),
      );
    case "allToAll":
      return members.flatMap((from) =>
        receivers.map((to) =>
          copy(place(from, "source", to * inner), place(to, "target", from * inner), [inner], DENSE),
        ),
      );
    case "permute":
      return permute(spec, receivers, (from, to) =>
        copy(place(from, "source"), place(to, "target"), [elements], DENSE),
      );
  }
}

type Dims = readonly number[];
interface Strides {
  readonly from: readonly number[];
  readonly to: readonly number[];
}
const DENSE: Strides = { from: [1], to: [1] };

function place(member: number, side: "source" | "target", element = 0): MemberPlace {
  return { member, side, element };
}

function permute(
  { permutation, dtype, elements, unset }: CollectiveSpec,
  receivers: readonly number[],
  copy: (from: number, to: number) => CollectiveKernel,
): CollectiveKernel[] {
  const copies = permutation.filter(([, to]) => receivers.includes(to)).map(([from, to]) => copy(from, to));
  const reached = new Set(permutation.map(([, to]) => to));
  const others = unset ? [] : receivers.filter((member) => !reached.has(member));
  return [
    ...copies,
    ...others.map((member) => ({
      plan: gpuPlan(valueSpec(dtype, elements, 0)),
      args: [place(member, "target")],
    })),
  ];
}

function copySpec(dtype: DType, dims: Dims, { from, to }: Strides): KernelSpec {
  return {
    ...{ dims, numRows: 0, args: [dtype, dtype], fills: [] },
    nodes: [{ kind: "load", dtype, access: { arg: 0, strides: from } }],
    stores: [{ node: 0, access: { arg: 1, strides: to } }],
  };
}

/** A kernel that writes one value to some elements. */
export function valueSpec(dtype: DType, elements: number, value: number): KernelSpec {
  return {
    ...{ dims: [elements], numRows: 0, args: [dtype], fills: [] },
    nodes: [{ kind: "literal", dtype, value }],
    stores: [{ node: 0, access: { arg: 0, strides: [1] } }],
  };
}

/** Combines what all members have, in their order, and stores it in some places; 16-bit floats are added in float32. */
function combineSpec(
  { size, dtype, combine }: CollectiveSpec,
  dims: Dims,
  from: readonly number[],
  to: readonly number[],
  targets: number,
): KernelSpec {
  const wide: DType = combine === "sum" && (dtype === "bfloat16" || dtype === "float16") ? "float32" : dtype;
  const nodes: KernelNode[] = [];
  const add = (node: KernelNode): number => nodes.push(node) - 1;
  const convert = (arg: number, source: DType, target: DType): number =>
    source === target
      ? arg
      : add({
          kind: "op",
          dtype: target,
          call: { op: "convert", from: source, to: target },
          args: [arg],
          result: 0,
        });
  const op = combine === "sum" ? "add" : combine;
  const join = (left: number, right: number): number =>
    add({ kind: "op", dtype: wide, call: { op, from: wide, to: wide }, args: [left, right], result: 0 });
  const parts = range(size).map((arg) =>
    convert(add({ kind: "load", dtype, access: { arg, strides: from } }), dtype, wide),
  );
  const combined = parts.reduce(join);
  // Sums begin with 0, so that those of negative zeros are 0.
  const isSum = combine === "sum" && isFloat(dtype);
  const sum = isSum ? join(combined, add({ kind: "literal", dtype: wide, value: 0 })) : combined;
  const result = convert(sum, wide, dtype);
  return {
    ...{ dims, numRows: 0, nodes, fills: [] },
    args: range(size + targets).map(() => dtype),
    stores: range(targets).map((t) => ({ node: result, access: { arg: size + t, strides: to } })),
  };
}

/** The loops of a kernel on a GPU. */
export function gpuPlan(spec: KernelSpec): LoopPlan {
  return planLoops(planKernel(canonical(spec), GPU_FEATURES), false, gpuTarget);
}
