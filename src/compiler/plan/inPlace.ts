/** Which steps can write a value to the memory of another that they read. */
import { someStep } from "../stepTree.js";
import type { Buffer, Ref } from "./planBuffers.js";
import {
  accesses,
  type PlannedKernel,
  type PlannedLoop,
  type Slices,
  type UnplacedStep,
} from "./plannedSteps.js";

/** Whether a buffer is `wanted` or points into its memory, other than through `except`. */
function leadsTo(buffer: Buffer, wanted: Buffer, except?: Buffer): boolean {
  const root = buffer.root();
  if (root === wanted) return true;
  if (root === except || root.kind.kind !== "dynamic") return false;
  return root.kind.parents.some((parent) => leadsTo(parent, wanted, except));
}

/** Whether a step, or a step inside it, reads or writes the memory of a buffer. */
export function touches(step: UnplacedStep, buffer: Buffer, kind: "reads" | "writes"): boolean {
  return someStep([step], (inner) => accesses(inner)[kind].some((other) => leadsTo(other, buffer)));
}

/**
 * Whether steps that compute one buffer from another can work in place: after the first write of the new value nothing
 * reads the old one, except steps that read every element before they write it. A choice can if all of its branches
 * can.
 */
export function canUpdate(steps: readonly UnplacedStep[], current: Buffer, next: Buffer): boolean {
  const written = steps.findIndex((step) => touches(step, next, "writes"));
  const read = steps.findLastIndex((step) => touches(step, current, "reads"));
  const step = steps[written];
  if (step === undefined || read > written) return false;
  if (read < written) return true;
  if (step.op === "cond") return step.branches.every((branch) => canUpdate(branch, current, next));
  return sharablePairs(step).some(
    ([w, r]) => w.offset === 0 && r.offset === 0 && w.buffer.root() === next && r.buffer.root() === current,
  );
}

/** The pairs of a written and a read buffer of a step that could be one. */
export function sharablePairs(step: UnplacedStep): (readonly [written: Ref, read: Ref])[] {
  switch (step.op) {
    case "copy":
      return [[step.target, step.source]];
    case "kernel":
      return aliased(step);
    case "gemm":
      return step.epilogue ? aliased(step.epilogue) : [];
    case "loop":
      return slicePairs(step)
        .filter(([written, read]) => canReplace(step.body, written, read))
        .map(([written, read]) => [wholeOf(written), wholeOf(read)] as const);
    default:
      return [];
  }
}

function aliased({ args, aliases }: Pick<PlannedKernel, "args" | "aliases">): (readonly [Ref, Ref])[] {
  return aliases.flatMap(([w, r]) => {
    const [written, read] = [args[w], args[r]];
    return written && read ? [[written, read] as const] : [];
  });
}

/** The stacked results of a loop, each with the stacked operands whose slices lie at the same distances. */
export function slicePairs({ slices }: PlannedLoop): (readonly [written: Slices, read: Slices])[] {
  const { written, read } = slices;
  return written.flatMap((w) => read.filter((r) => r.bytes === w.bytes).map((r) => [w, r] as const));
}

/**
 * Whether every iteration can write its slice over the one that it reads: it no longer reads the old slice then, and
 * no iteration touches the slices of others.
 */
function canReplace(body: readonly UnplacedStep[], written: Slices, read: Slices): boolean {
  const reachesOthers = ({ slot, whole }: Slices) =>
    someStep(body, (step) => {
      const { reads, writes } = accesses(step);
      return [...reads, ...writes].some((buffer) => leadsTo(buffer, whole.root(), slot));
    });
  return canUpdate(body, read.slot, written.slot) && !reachesOthers(read) && !reachesOthers(written);
}

function wholeOf({ whole }: Slices): Ref {
  return { buffer: whole, offset: 0 };
}
