import type {
  CallbackSpec,
  CollectiveSpec,
  GemmStep,
  HostKernel,
  RaggedExchange,
  RaggedGemm,
} from "../steps.js";
import type { Buffer, Ref } from "./buffers.js";

/**
 * A step before the memory plan: like a step, but it names buffers instead of places. `reads` and `writes` are
 * what the plan has to know; a buffer that is only partly written counts as read too.
 */
export type PlannedStep =
  | PlannedKernel
  | PlannedGemm
  | {
      readonly op: "copy";
      readonly source: Ref;
      readonly target: Ref;
      readonly bytes: number;
      readonly info: number;
    }
  | {
      readonly op: "host";
      readonly kernel: HostKernel;
      readonly ins: readonly Ref[];
      readonly outs: readonly Ref[];
      readonly info: number;
    }
  | {
      readonly op: "callback";
      readonly spec: CallbackSpec;
      readonly calls: readonly boolean[];
      readonly ins: readonly Ref[];
      readonly outs: readonly Ref[];
      readonly info: number;
    }
  | PlannedAddress
  | {
      readonly op: "axisIndex";
      readonly target: Ref;
      readonly positions: readonly number[];
      readonly info: number;
    }
  | PlannedLoop
  | PlannedWhile
  | PlannedCond
  | { readonly op: "start"; readonly collective: PlannedCollective; readonly info: number }
  | { readonly op: "done"; readonly collective: PlannedCollective; readonly info: number };

/** A call of a kernel of the library. */
export interface PlannedKernel {
  readonly op: "kernel";
  readonly kernel: number;
  /** Number of rows that threads can share; undefined if they cannot. */
  readonly rows: number | undefined;
  readonly args: readonly Ref[];
  /** Indices into `args`. */
  readonly reads: readonly number[];
  readonly writes: readonly number[];
  /** Pairs `[written, read]` of args that may be the same memory: every element is read before it is written. */
  readonly aliases: readonly (readonly [number, number])[];
  readonly info: number;
}

/** A matrix product. */
export interface PlannedGemm extends Omit<GemmStep, "a" | "b" | "c" | "ragged"> {
  readonly ragged?: RaggedGemm<Ref>;
  readonly a: Ref;
  readonly b: Ref;
  readonly c: Ref;
}

/** Sets a dynamic buffer's slot from indices in memory. */
export interface PlannedAddress {
  readonly op: "address";
  readonly target: Buffer;
  readonly from: Ref;
  readonly terms: readonly { readonly index: Ref; readonly max: number; readonly stride: number }[];
  readonly info: number;
}

/** A counted loop; dynamic buffers are set before it, and advanced and swapped after every iteration. */
export interface PlannedLoop {
  readonly op: "loop";
  readonly count: number;
  readonly sets: readonly { readonly target: Buffer; readonly from: Ref }[];
  readonly body: readonly PlannedStep[];
  readonly advances: readonly { readonly target: Buffer; readonly stride: number }[];
  readonly swaps: readonly (readonly [Buffer, Buffer])[];
  readonly info: number;
}

/** A loop with a condition. */
export interface PlannedWhile {
  readonly op: "while";
  readonly sets: readonly { readonly target: Buffer; readonly from: Ref }[];
  readonly condition: readonly PlannedStep[];
  readonly predicate: Ref;
  readonly body: readonly PlannedStep[];
  readonly swaps: readonly (readonly [Buffer, Buffer])[];
  readonly info: number;
}

/** A choice among branches. */
export interface PlannedCond {
  readonly op: "cond";
  readonly index: Ref;
  readonly branches: readonly (readonly PlannedStep[])[];
  /** Results that some branch returns unchanged, each with the operand it is. */
  readonly handedOn: readonly { readonly result: Buffer; readonly operand: Buffer }[];
  readonly info: number;
}

/** A collective; start and done share one. */
export interface PlannedCollective extends Omit<CollectiveSpec, "source" | "target" | "ragged"> {
  readonly ragged?: RaggedExchange<Ref>;
  readonly source: Ref;
  readonly target: Ref;
}

/** The buffers a step reads and writes itself, without those of the steps inside it. */
export function accesses(step: PlannedStep): { readonly reads: Buffer[]; readonly writes: Buffer[] } {
  switch (step.op) {
    case "kernel": {
      const buffers = (list: readonly number[]) => list.flatMap((i) => step.args[i]?.buffer ?? []);
      return { reads: buffers(step.reads), writes: buffers(step.writes) };
    }
    case "gemm": {
      const reads = [step.a.buffer, step.b.buffer, ...(step.ragged ? [step.ragged.sizes.buffer] : [])];
      return { reads: step.beta === 0 ? reads : [...reads, step.c.buffer], writes: [step.c.buffer] };
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
