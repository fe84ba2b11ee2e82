/**
 * Afterwards a kernel whose results only products of groups of rows read, or other such kernels, computes only the rows
 * of these groups, and products leave rows alone that only such kernels read: the tokens that devices send to an expert
 * have room for all of them, and fill as much of it as the router decides.
 *
 * Unchanged are the values that any other step reads, and the order of steps.
 */

import { at, sizeOf } from "../../ir/shape.js";
import { canonical } from "../kernel/canonical.js";
import type { KernelNode, KernelSpec } from "../kernel/spec.js";
import { someStep } from "../stepTree.js";
import type { Compilation } from "./compilation.js";
import { type Buffer, mayOverlap, type Ref } from "./planBuffers.js";
import {
  accesses,
  type PlannedGemm,
  type PlannedKernel,
  type UnplacedStep,
  type Users,
  usersOf,
  withInner,
} from "./plannedSteps.js";

/** The groups whose rows count. */
type Groups = NonNullable<PlannedKernel["filled"]>;

/** A kernel that is limited to groups, and its number of points. */
interface Limit {
  readonly groups: Groups;
  readonly points: number;
}

/** The steps of one list, those inside of them left out, with how they are limited. */
type Limits = ReadonlyMap<UnplacedStep, Limit | undefined>;

/** Limits kernels to the rows that products of groups read. */
export function limitRows(steps: readonly UnplacedStep[], compilation: Compilation): UnplacedStep[] {
  if (!someStep(steps, (step) => step.op === "gemm" && step.ragged !== undefined)) return [...steps];
  const users = usersOf(steps);
  const limit = (list: readonly UnplacedStep[]): UnplacedStep[] => {
    const inside = list.map((step) => withInner(step, limit));
    // What reads a kernel's results comes after it.
    const limits = new Map<UnplacedStep, Limit | undefined>(list.map((step) => [step, undefined]));
    for (const [i, step] of [...list.entries()].reverse()) {
      const found = step.op === "kernel" && kernelLimit(step, users, limits, compilation);
      const isKnown = found && !list.slice(i).some((later) => writesTo(later, found.groups.sizes.buffer));
      if (isKnown) limits.set(step, found);
    }
    return inside.map((step, i) => {
      const before = at(list, i);
      const found = limits.get(before);
      if (step.op === "kernel" && found) return limited(step, found, compilation);
      const keepsRest = before.op === "gemm" && isRestUnread(before, users, limits);
      return step.op === "gemm" && step.ragged && keepsRest
        ? { ...step, ragged: { ...step.ragged, keepsRest } }
        : step;
    });
  };
  return limit(steps);
}

/** Whether a step, or one inside of it, changes a buffer or says where it lies. */
function writesTo(step: UnplacedStep, buffer: Buffer): boolean {
  return someStep([step], (one) => {
    const moved = one.op === "address" ? [one.slot] : [];
    return [...accesses(one).writes, ...moved].some(
      (other) => other.root() === buffer.root() || mayOverlap(other, buffer),
    );
  });
}

/** The groups of a product of groups whose rows are those of an operand. */
function groupsOfProduct({ ragged, batch, m, k }: PlannedGemm): Groups | undefined {
  if (!ragged || batch.length > 0) return undefined;
  return { sizes: ragged.sizes, groups: ragged.groups, rows: ragged.dim === "m" ? m : k };
}

/** Whether a product reads the rows of a dense buffer from its start and nothing after those of its groups. */
function readsRows(gemm: PlannedGemm, buffer: Buffer): boolean {
  const { bytes } = buffer;
  const { ragged, a, b, c, transposeA, transposeB, lda, ldb, m, n, k } = gemm;
  const is = (ref: Ref) => ref.buffer.root() === buffer;
  if (!ragged || gemm.dtype !== "float32" || is(c) || is(ragged.sizes) || gemm.epilogue) return false;
  if (ragged.dim === "m") {
    return is(a) && !is(b) && a.offset === 0 && !transposeA && lda === k && bytes === 4 * m * k;
  }
  const isRowsA = !is(a) || (a.offset === 0 && transposeA && lda === m && bytes === 4 * m * k);
  return isRowsA && (!is(b) || (b.offset === 0 && !transposeB && ldb === n && bytes === 4 * k * n));
}

const areSame = (a: Groups, b: Groups) =>
  a.sizes.buffer.root() === b.sizes.buffer.root() &&
  a.sizes.offset === b.sizes.offset &&
  a.groups === b.groups &&
  a.rows === b.rows;

/** The groups of whose rows alone a buffer is read; `writer` writes it. */
function readGroups({ buffer, offset }: Ref, writer: UnplacedStep, users: Users, limits: Limits) {
  const root = buffer.root();
  if (root.kind.kind !== "temporary" || offset !== 0) return undefined;
  const groupsOf = (step: UnplacedStep): Groups | undefined => {
    // Where steps inside of others run, sizes may lie elsewhere.
    if (!limits.has(step)) return undefined;
    if (step.op === "gemm") return readsRows(step, root) ? groupsOfProduct(step) : undefined;
    const limit = limits.get(step);
    const isWhole = step.op === "kernel" && limit !== undefined && root.bytes === 4 * limit.points;
    const isAtStart = isWhole && step.args.every((ref) => ref.buffer.root() !== root || ref.offset === 0);
    return isAtStart ? limit.groups : undefined;
  };
  return allSame((users.get(root) ?? []).filter((step) => step !== writer).map(groupsOf));
}

/** What all of them are; undefined if there is none or they differ. */
function allSame(found: readonly (Groups | undefined)[]): Groups | undefined {
  const [first] = found;
  return first && found.every((groups) => groups && areSame(groups, first)) ? first : undefined;
}

/** How a kernel can be limited. */
function kernelLimit(
  kernel: PlannedKernel,
  users: Users,
  limits: Limits,
  compilation: Compilation,
): Limit | undefined {
  const plan = compilation.library.plan(kernel.kernel);
  if ("kind" in plan || plan.spills.length > 0) return undefined;
  const groups = allSame(kernel.writes.map((i) => readGroups(at(kernel.args, i), kernel, users, limits)));
  if (!groups) return undefined;
  const points = sizeOf(plan.spec.dims);
  const isWhole = kernel.writes.every((i) => at(kernel.args, i).buffer.root().bytes === 4 * points);
  return isWhole && isPointwise(canonical(plan.spec), groups.rows) ? { groups, points } : undefined;
}

/** Whether a kernel computes one point after the other, whole rows of it. */
function isPointwise({ dims, nodes, stores, fills, args }: KernelSpec, rows: number): boolean {
  return (
    dims.length === 1 &&
    sizeOf(dims) % rows === 0 &&
    fills.length === 0 &&
    nodes.every((node) => node.kind !== "reduce" && (node.kind !== "load" || isInOrder(node))) &&
    stores.every(
      ({ access, combine, index }) =>
        access.strides[0] === 1 && !combine && !index && at(args, access.arg) === "float32",
    )
  );
}

/** Whether a load reads the element of its point, or the same one at all points. */
function isInOrder({ access, index }: Extract<KernelNode, { readonly kind: "load" }>): boolean {
  return index === undefined && (access.strides[0] === 1 || access.strides[0] === 0);
}

/** Points for which a loop is worth its start. */
const FEWEST_POINTS = 2048;

function limited(kernel: PlannedKernel, { groups: filled }: Limit, compilation: Compilation): PlannedKernel {
  const { library } = compilation;
  const plan = library.plan(kernel.kernel);
  if ("kind" in plan) return kernel;
  const spec = canonical(plan.spec);
  let count = filled.rows;
  while (count % 2 === 0 && sizeOf(spec.dims) / count < FEWEST_POINTS) count /= 2;
  const { index, rows } = library.addCut(spec, count);
  const args = [...kernel.args, filled.sizes];
  return { ...kernel, kernel: index, rows, args, reads: [...kernel.reads, kernel.args.length], filled };
}

/** Whether rows after the groups of a product are read by nobody. */
function isRestUnread(gemm: PlannedGemm, users: Users, limits: Limits): boolean {
  const own = groupsOfProduct(gemm);
  if (!own || gemm.ragged?.dim !== "m" || gemm.beta !== 0) return false;
  const readers = readGroups(gemm.c, gemm, users, limits);
  return readers !== undefined && areSame(readers, own);
}
