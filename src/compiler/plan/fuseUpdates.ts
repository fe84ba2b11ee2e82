/**
 * Afterwards a product of groups of which one kernel alone reads the result, to add a multiple of it to a value that
 * nothing needs any more, adds to this value in place: the gradients of experts that only an update of donated weights
 * reads are never written.
 *
 * Unchanged are the values, except that long sums are rounded in fewer places, and the order of all other steps.
 */

import { at, sizeOf } from "../../ir/shape.js";
import { canonical } from "../kernel/canonical.js";
import type { KernelNode, KernelSpec } from "../kernel/spec.js";
import type { Compilation } from "./compilation.js";
import { touches } from "./inPlace.js";
import type { Ref } from "./planBuffers.js";
import {
  accesses,
  type PlannedGemm,
  type PlannedKernel,
  type UnplacedStep,
  type Users,
  usersOf,
} from "./plannedSteps.js";

/** A kernel that computes `value + factor · product`, and where these lie. */
interface Update {
  readonly factor: number;
  readonly value: Ref;
  readonly result: Ref;
}

/** Joins products of groups with the updates that follow them. @param donated which inputs may be overwritten */
export function fuseUpdates(
  steps: readonly UnplacedStep[],
  compilation: Compilation,
  donated: readonly boolean[],
): UnplacedStep[] {
  if (!steps.some((step) => step.op === "gemm" && step.ragged?.dim === "k")) return [...steps];
  const users = usersOf(steps);
  const replaced = new Map<UnplacedStep, readonly UnplacedStep[]>();
  for (const step of steps) {
    if (step.op !== "gemm" || !isPlainSum(step)) continue;
    const kernel = onlyReader(step, users);
    const update = kernel && updateOf(step, kernel, compilation);
    const place = update && placeOf(steps, step, kernel, update.value, donated);
    if (!place) continue;
    replaced
      .set(step, [])
      .set(kernel, [])
      .set(place, joined(step, kernel, update, compilation));
  }
  return steps.flatMap((step) => replaced.get(step) ?? [step]);
}

/**
 * The step in whose place a product can add to a value: its own, or that of the kernel if the value is still read
 * between the two. Undefined if the value must stay as it is.
 */
function placeOf(
  steps: readonly UnplacedStep[],
  gemm: PlannedGemm,
  kernel: PlannedKernel,
  { buffer }: Ref,
  donated: readonly boolean[],
): UnplacedStep | undefined {
  const value = buffer.root();
  const [from, to] = [steps.indexOf(gemm), steps.indexOf(kernel)];
  const isFree = value.kind.kind === "input" && donated[value.kind.index] === true;
  const isUsed = (step: UnplacedStep) => touches(step, value, "reads") || touches(step, value, "writes");
  if (to < from || !isFree || isUsed(gemm) || steps.slice(to + 1).some(isUsed)) return undefined;
  const between = steps.slice(from + 1, to);
  if (!between.some(isUsed)) return gemm;
  const operands = accesses(gemm).reads.map((operand) => operand.root());
  const isChanged = operands.some((operand) => between.some((step) => touches(step, operand, "writes")));
  const isDynamic = operands.some(({ kind }) => kind.kind === "dynamic");
  return isChanged || isDynamic ? undefined : kernel;
}

/** Whether a product is the sums of groups in a whole dense buffer of its own. */
function isPlainSum({ ragged, dtype, alpha, beta, batch, epilogue, c, m, n, ldc }: PlannedGemm): boolean {
  const isSum = ragged?.dim === "k" && dtype === "float32" && alpha === 1 && beta === 0;
  return (
    isSum &&
    batch.length === 0 &&
    epilogue === undefined &&
    ldc === n &&
    ragged.stride === 4 * m * n &&
    isWhole(c, 4 * ragged.groups * m * n) &&
    c.buffer.root().kind.kind === "temporary"
  );
}

function isWhole({ buffer, offset }: Ref, bytes: number): boolean {
  return offset === 0 && buffer.root().bytes === bytes;
}

/** The kernel that reads the result of a product; undefined if it is another step or there are several. */
function onlyReader(gemm: PlannedGemm, users: Users): PlannedKernel | undefined {
  const [reader, ...others] = (users.get(gemm.c.buffer.root()) ?? []).filter((step) => step !== gemm);
  return others.length === 0 && reader?.op === "kernel" ? reader : undefined;
}

/** What a kernel adds a multiple of a product to; undefined if it does anything else. */
function updateOf(gemm: PlannedGemm, kernel: PlannedKernel, { library }: Compilation): Update | undefined {
  const plan = library.plan(kernel.kernel);
  if ("kind" in plan || plan.spills.length > 0 || kernel.filled) return undefined;
  const spec = canonical(plan.spec);
  const [store, ...others] = spec.stores;
  const bytes = 4 * sizeOf(spec.dims);
  const isPlain = spec.dims.length === 1 && spec.fills.length === 0 && others.length === 0;
  if (!isPlain || !store || store.combine || store.index || store.access.strides[0] !== 1) return undefined;
  const isProduct = (arg: number) => kernel.args[arg]?.buffer.root() === gemm.c.buffer.root();
  const found = multipleAdded(spec, at(spec.nodes, store.node), isProduct);
  if (!found) return undefined;
  const [value, result] = [at(kernel.args, found.value), at(kernel.args, store.access.arg)];
  const areWhole = [gemm.c, value, result].every((ref) => isWhole(ref, bytes));
  const { kind } = result.buffer.root().kind;
  return areWhole && (kind === "output" || kind === "temporary")
    ? { factor: found.factor, value, result }
    : undefined;
}

/** The argument that a multiple of the product is added to, and the factor. */
function multipleAdded(
  { nodes }: KernelSpec,
  sum: KernelNode,
  isProduct: (arg: number) => boolean,
): { readonly value: number; readonly factor: number } | undefined {
  if (sum.kind !== "op" || sum.dtype !== "float32") return undefined;
  const operands = sum.args.map((i) => at(nodes, i));
  const isDifference = sum.call.op === "sub";
  if (sum.call.op !== "add" && !isDifference) return undefined;
  for (const [x, y] of isDifference ? [operands] : [operands, operands.toReversed()]) {
    const value = loaded(x);
    const factor = factorOf(nodes, y, isProduct);
    if (value !== undefined && !isProduct(value) && factor !== undefined) {
      return { value, factor: isDifference ? -factor : factor };
    }
  }
  return undefined;
}

/** The number that a product is multiplied by; undefined if a node is something else. */
function factorOf(
  nodes: readonly KernelNode[],
  node: KernelNode | undefined,
  isProduct: (arg: number) => boolean,
): number | undefined {
  const arg = loaded(node);
  if (arg !== undefined) return isProduct(arg) ? 1 : undefined;
  if (node?.kind !== "op" || node.call.op !== "mul" || node.dtype !== "float32") return undefined;
  const factors = node.args.map((i) => at(nodes, i));
  const [literal] = factors.flatMap((factor) => (factor.kind === "literal" ? [factor.value] : []));
  const [product] = factors.flatMap((factor) => loaded(factor) ?? []);
  const isMultiple = literal !== undefined && product !== undefined && isProduct(product);
  return isMultiple && Number.isFinite(literal) ? literal : undefined;
}

/** The argument whose elements a node reads one after the other. */
function loaded(node: KernelNode | undefined): number | undefined {
  const isPlain = node?.kind === "load" && node.index === undefined && node.dtype === "float32";
  return isPlain && node.access.strides[0] === 1 ? node.access.arg : undefined;
}

/** The value in the place of the result, and the product that is added to it. */
function joined(
  gemm: PlannedGemm,
  kernel: PlannedKernel,
  { factor, value, result }: Update,
  compilation: Compilation,
): readonly UnplacedStep[] {
  const [first, second] = [at(compilation.infos, gemm.info), at(compilation.infos, kernel.info)];
  const bytes = result.buffer.root().bytes;
  const ops = [...first.ops, ...second.ops];
  // Of what the kernel reads and writes, the memory of the product is left out.
  const moved = first.bytes + second.bytes - 2 * bytes;
  const info = compilation.info(ops, first.source, first.flops + second.flops, moved);
  return [
    // Both are one place, so that nothing is copied.
    {
      op: "copy",
      source: value,
      target: result,
      bytes,
      info: compilation.info(["copy"], second.source, 0, 0),
    },
    { ...gemm, c: result, alpha: factor, beta: 1, info },
  ];
}
