import { byteSize, type DType } from "../../../ir/dtype.js";
import { at } from "../../../ir/shape.js";
import type { KernelPlan } from "../../kernel/phases.js";
import { kernelArgs, spillBytes } from "../../kernel/phases.js";
import type { Access, Indirection } from "../../kernel/spec.js";

/** The bytes of an argument that a kernel touches, relative to its address: from the first to the end of the last. */
export interface Extent {
  readonly from: number;
  readonly to: number;
}

/** What a kernel touches of each argument, including scratch rows of one thread. */
export function kernelExtents(plan: KernelPlan): readonly Extent[] {
  const { spec } = plan;
  const extents: (Extent | undefined)[] = kernelArgs(plan).map(() => undefined);
  const touch = (arg: number, from: number, to: number): void => {
    const known = extents[arg];
    extents[arg] = known ? { from: Math.min(known.from, from), to: Math.max(known.to, to) } : { from, to };
  };
  const access = ({ arg, strides, offset = 0 }: Access, dtype: DType, index?: Indirection): void => {
    const bytes = byteSize(dtype);
    let [from, to] = [offset * bytes, (offset + 1) * bytes];
    const reach = (distance: number) => {
      from += Math.min(0, distance);
      to += Math.max(0, distance);
    };
    strides.forEach((stride, d) => {
      reach(stride * (at(spec.dims, d) - 1) * bytes);
    });
    if (index) {
      reach((index.limit - 1) * index.stride * bytes);
      access(index.access, "int32");
    }
    touch(arg, from, to);
  };
  for (const node of spec.nodes) if (node.kind === "load") access(node.access, node.dtype, node.index);
  for (const store of spec.stores) access(store.access, at(spec.nodes, store.node).dtype, store.index);
  for (const { arg, count } of spec.fills) touch(arg, 0, count * byteSize(at(spec.args, arg)));
  spillBytes(plan).forEach((bytes, i) => {
    touch(spec.args.length + i, 0, bytes);
  });
  return extents.map((extent) => extent ?? { from: 0, to: 0 });
}
