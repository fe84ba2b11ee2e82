import { getOrInsert } from "../../ir/collections.js";
import type * as steps from "../steps.js";
import { forEachStep } from "../stepTree.js";
import type { Buffer, Ref } from "./planBuffers.js";

/** The names in steps before the memory plan: buffers instead of places. */
interface Planned extends steps.Naming {
  readonly place: Ref;
  readonly slot: Buffer;
  readonly step: UnplacedStep;
  readonly collective: PlannedCollective;
}

/**
 * A step before the memory plan: like a step, but it names buffers instead of places. `reads` and `writes` are
 * what the plan has to know; a buffer that is only partly written counts as read too.
 */
export type UnplacedStep =
  | PlannedKernel
  | PlannedHost
  | PlannedCallback
  | PlannedLoop
  | PlannedWhile
  | PlannedCond
  | PlannedGemm
  | steps.CopyStep<Planned>
  | steps.AddressStep<Planned>
  | steps.AxisIndexStep<Planned>
  | steps.StartStep<Planned>
  | steps.DoneStep<Planned>;

/** A call of a kernel of the library. */
export interface PlannedKernel {
  readonly op: "kernel";
  readonly kernel: number;
  /** Number of rows that threads can share; undefined if they cannot. */
  readonly rows: number | undefined;
  /** The groups whose rows alone are computed; the sizes are the last of `args`, too. */
  readonly filled?: steps.FilledRows<Ref>;
  readonly args: readonly Ref[];
  /** Indices into `args`. */
  readonly reads: readonly number[];
  readonly writes: readonly number[];
  /** Pairs `[written, read]` of args that may be the same memory: every element is read before it is written. */
  readonly aliases: readonly (readonly [number, number])[];
  readonly info: number;
}

/** A matrix product. */
export type PlannedGemm = steps.GemmStep<Planned>;

/** A loop in JavaScript over values in memory. */
interface PlannedHost extends Pick<steps.HostStep, "op" | "kernel" | "info"> {
  readonly ins: readonly Ref[];
  readonly outs: readonly Ref[];
}

/** A host callback. */
interface PlannedCallback extends Pick<steps.CallbackStep, "op" | "calls" | "info"> {
  readonly spec: steps.CallbackSpec;
  readonly ins: readonly Ref[];
  readonly outs: readonly Ref[];
}

/** A counted loop; dynamic buffers are set before it, and advanced and swapped after every iteration. */
export interface PlannedLoop extends steps.LoopStep<Planned> {
  /** The stacked operands and results of a scan that are dense, at the start of a buffer. */
  readonly slices: { readonly read: readonly Slices[]; readonly written: readonly Slices[] };
}

/** A dense buffer of which each iteration of a loop sees one slice, all in the same order. */
export interface Slices {
  /** Points to the slice of the iteration. */
  readonly slot: Buffer;
  readonly whole: Buffer;
  /** Of all slices together. */
  readonly bytes: number;
}

/** A loop with a condition. */
export type PlannedWhile = steps.WhileStep<Planned>;

/** A choice among branches. */
interface PlannedCond extends steps.CondStep<Planned> {
  /** Results that some branch returns unchanged, each with the operand it is. */
  readonly handedOn: readonly { readonly result: Buffer; readonly operand: Buffer }[];
}

/** A collective; start and done share one. */
export type PlannedCollective = steps.CollectiveSpec<Planned>;

/** The buffers a step reads and writes itself, without those of the steps inside it. */
export function accesses(step: UnplacedStep): { readonly reads: Buffer[]; readonly writes: Buffer[] } {
  switch (step.op) {
    case "kernel": {
      const buffers = (list: readonly number[]) => list.flatMap((i) => step.args[i]?.buffer ?? []);
      return { reads: buffers(step.reads), writes: buffers(step.writes) };
    }
    case "gemm": {
      const reads = [step.a.buffer, step.b.buffer, ...(step.ragged ? [step.ragged.sizes.buffer] : [])];
      if (step.beta !== 0) reads.push(step.c.buffer);
      if (step.epilogue === undefined) return { reads, writes: [step.c.buffer] };
      const { args, reads: read, writes: written, keepsProduct } = step.epilogue;
      const buffers = (list: readonly number[]) => list.flatMap((i) => args[i]?.buffer ?? []);
      const product = keepsProduct ? [step.c.buffer] : [];
      return { reads: [...reads, ...buffers(read)], writes: [...product, ...buffers(written)] };
    }
    case "copy":
      return { reads: [step.source.buffer], writes: [step.target.buffer] };
    case "host":
    case "callback":
      return { reads: step.ins.map((r) => r.buffer), writes: step.outs.map((r) => r.buffer) };
    case "address":
      return { reads: [step.from.buffer, ...step.terms.map((t) => t.index.buffer)], writes: [] };
    case "axisIndex":
      return { reads: [], writes: [step.target.buffer] };
    case "loop":
      return { reads: step.sets.map((s) => s.from.buffer), writes: [] };
    case "while":
      return { reads: [...step.sets.map((s) => s.from.buffer), step.predicate.buffer], writes: [] };
    case "cond":
      return { reads: [step.index.buffer], writes: [] };
    case "start":
    case "done": {
      const { source, target, ragged } = step.collective;
      // Rows of the target that no member sends stay.
      const more = ragged ? [target.buffer, ragged.sends.buffer, ragged.receives.buffer] : [];
      return { reads: [source.buffer, ...more], writes: [target.buffer] };
    }
  }
}

/** A step with its lists of inner steps changed. */
export function withInner(
  step: UnplacedStep,
  change: (steps: readonly UnplacedStep[]) => UnplacedStep[],
): UnplacedStep {
  switch (step.op) {
    case "loop":
      return { ...step, body: change(step.body) };
    case "while":
      return { ...step, condition: change(step.condition), body: change(step.body) };
    case "cond":
      return { ...step, branches: step.branches.map(change) };
    default:
      return step;
  }
}

/** The steps that touch the memory of each buffer. */
export type Users = ReadonlyMap<Buffer, readonly UnplacedStep[]>;

/** Finds who touches which memory, also through dynamic slots. */
export function usersOf(list: readonly UnplacedStep[]): Users {
  const users = new Map<Buffer, UnplacedStep[]>();
  const owners = (buffer: Buffer): readonly Buffer[] => {
    const root = buffer.root();
    return root.kind.kind === "dynamic" ? [root, ...root.kind.parents.flatMap(owners)] : [root];
  };
  forEachStep(list, (step) => {
    const { reads, writes } = accesses(step);
    const handedOn = step.op === "cond" ? step.handedOn.map(({ operand }) => operand) : [];
    for (const buffer of new Set([...reads, ...writes, ...handedOn].flatMap(owners))) {
      getOrInsert(users, buffer, () => []).push(step);
    }
  });
  return users;
}
