/**
 * Afterwards a matrix product and the kernel behind it are one step, its *epilogue*, where the kernel computes every
 * point from one element of the product: the sums are still in registers. A product that nothing else reads is never
 * written.
 *
 * Unchanged are the values and the order of all other steps.
 */

import { at, rowMajorStrides, sizeOf } from "../../ir/shape.js";
import type { KernelSpec } from "../kernel/spec.js";
import type { Compilation } from "./compilation.js";
import { mayOverlap } from "./planBuffers.js";
import type { PlannedGemm, PlannedKernel, UnplacedStep, Users } from "./plannedSteps.js";
import { usersOf, withInner } from "./plannedSteps.js";

/** Ops of a kernel up to which it is worth its place behind a product: it is written for many elements of a thread. */
const MAX_OPS = 24;

/** Joins products with the kernels that follow them. */
export function fuseEpilogues(steps: readonly UnplacedStep[], compilation: Compilation): UnplacedStep[] {
  const users = usersOf(steps);
  const fuse = (list: readonly UnplacedStep[]): UnplacedStep[] => {
    const result: UnplacedStep[] = [];
    for (const step of list) {
      const last = result.at(-1);
      const joined = last?.op === "gemm" && step.op === "kernel" && join(last, step, users, compilation);
      if (joined) result[result.length - 1] = joined;
      else result.push(withInner(step, fuse));
    }
    return result;
  };
  return fuse(steps);
}

/** One step that does what a product and a kernel do; undefined where the kernel is no epilogue. */
function join(
  gemm: PlannedGemm,
  kernel: PlannedKernel,
  users: Users,
  compilation: Compilation,
): PlannedGemm | undefined {
  const { offset } = gemm.c;
  const buffer = gemm.c.buffer.root();
  const plan = compilation.library.plan(kernel.kernel);
  const isFloat = gemm.dtype === "float32" || gemm.dtype === "float16";
  if (!isFloat || gemm.ragged || gemm.epilogue || "kind" in plan || plan.spills.length > 0) return undefined;
  const { spec } = plan;
  const count = gemm.batch.reduce((product, dim) => product * dim.count, gemm.m * gemm.n);
  const { kind } = buffer.kind;
  const isWhole = (kind === "temporary" || kind === "output") && offset === 0 && buffer.bytes === 4 * count;
  const overlapping = kernel.args.flatMap((ref, i) => (mayOverlap(ref.buffer, buffer) ? [i] : []));
  const [product] = overlapping;
  if (!isWhole || product === undefined || overlapping.length > 1 || kernel.args[product]?.offset !== 0)
    return undefined;
  if (sizeOf(spec.dims) !== count || !isPointwise(spec, product)) return undefined;
  const keepsProduct = kind === "output" || users.get(buffer)?.length !== 2 || gemm.beta !== 0;
  const others = kernel.args.map((_, i) => i).filter((i) => i !== product);
  const order = [product, ...others];
  const own = withArguments(spec, order, gemm.dtype);
  const position = (i: number) => order.indexOf(i) + 2;
  const [first, second] = [at(compilation.infos, gemm.info), at(compilation.infos, kernel.info)];
  const saved = 4 * count * (keepsProduct ? 1 : 2);
  return {
    ...gemm,
    info: compilation.info(
      [...first.ops, ...second.ops],
      first.source,
      first.flops + second.flops,
      first.bytes + second.bytes - saved,
    ),
    epilogue: {
      kernel: compilation.library.add(own).index,
      args: others.map((i) => at(kernel.args, i)),
      reads: kernel.reads.filter((i) => i !== product).map((i) => position(i) - 3),
      writes: kernel.writes.map((i) => position(i) - 3),
      aliases: kernel.aliases
        .filter(([, read]) => read !== product)
        .map(([written, read]) => [position(written) - 3, position(read) - 3] as const),
      keepsProduct,
    },
  };
}

/** Whether a kernel reads an argument in the order of its points and computes each of them from the same element. */
function isPointwise({ dims, nodes, stores, fills, args }: KernelSpec, product: number): boolean {
  const order = rowMajorStrides(dims).join();
  const isInOrder = nodes.every((node) => {
    if (node.kind === "reduce") return false;
    if (node.kind !== "load" || node.access.arg !== product) return true;
    return node.index === undefined && node.dtype === "float32" && node.access.strides.join() === order;
  });
  const isPlain = stores.every(
    ({ access, combine, index }) =>
      access.arg !== product && !combine && !index && wide.has(at(args, access.arg)),
  );
  const isShort = nodes.filter(({ kind }) => kind === "op").length <= MAX_OPS;
  return isInOrder && isPlain && isShort && fills.length === 0;
}

/** Types whose elements are words, so that threads write them without disturbing each other. */
const wide: ReadonlySet<string> = new Set(["float32", "int32", "uint32"]);

/** The same kernel behind the two operands of a product, with its own arguments in another order. */
function withArguments(spec: KernelSpec, order: readonly number[], factor: PlannedGemm["dtype"]): KernelSpec {
  const moved = <A extends { readonly arg: number }>(access: A): A => ({
    ...access,
    arg: order.indexOf(access.arg) + 2,
  });
  return {
    ...spec,
    args: [factor, factor, ...order.map((i) => at(spec.args, i))],
    nodes: spec.nodes.map((node) =>
      node.kind === "load"
        ? {
            ...node,
            access: moved(node.access),
            index: node.index && { ...node.index, access: moved(node.index.access) },
          }
        : node,
    ),
    stores: spec.stores.map((store) => ({ ...store, access: moved(store.access) })),
  };
}
