/**
 * Afterwards steps refer to memory by slot and offset alone: a run needs no buffer, equation or type. Copies from a
 * place to itself are gone, equal lists of arguments are stored once, and the start and done of a collective refer
 * to one entry.
 *
 * Unchanged are the order of the steps and the memory that each touches.
 */

import { writeKernelCode } from "#compiler/native/kernelCode";
import { getOrInsert } from "../../ir/collections.js";
import type { Program } from "../../ir/program.js";
import { at, bytesOf } from "../../ir/shape.js";
import type { LibraryPlan } from "../kernel/kernelLibrary.js";
import type {
  CallbackSpec,
  CollectiveSpec,
  CompiledProgram,
  KernelModule,
  SlotAddress,
  SlotBase,
  Step,
} from "../steps.js";
import { ADDRESS_BYTES, newAddresses } from "../wasm/addresses.js";
import { ARENA_SLOT, CONSTANT_SLOT, type Compilation } from "./compilation.js";
import type { MemoryPlan } from "./memoryPlan.js";
import type { Buffer, Ref } from "./planBuffers.js";
import type {
  PlannedCollective,
  PlannedKernel,
  PlannedLoop,
  PlannedWhile,
  UnplacedStep,
} from "./plannedSteps.js";
import { costOf } from "./programCost.js";

/** Turns planned steps into steps by giving every buffer its place. */
export function finalise(
  name: string,
  program: Program,
  compilation: Compilation,
  planned: readonly UnplacedStep[],
  plan: MemoryPlan,
): CompiledProgram {
  const finaliser = new Finaliser(compilation, plan);
  const steps = finaliser.steps(planned);
  const { infos } = compilation;
  const inputs = program.inputs.map(({ type }, i) => ({
    type,
    bytes: bytesOf(type),
    overwritten: [...plan.donatedTo.values()].includes(i),
  }));
  const outputs = program.outputs.map(({ type }, i) => ({
    type,
    bytes: bytesOf(type),
    inputIndex: plan.donatedTo.get(i),
  }));
  const cost = costOf(steps, infos, finaliser.collectives, plan.arenaBytes, inputs, outputs);
  return {
    name,
    modules: compilation.features.gpu ? [] : [moduleOf(compilation)],
    steps,
    slots: finaliser.slots(),
    arenaBytes: plan.arenaBytes,
    arenaPages: plan.pages,
    constants: compilation.constants(),
    inputs,
    outputs,
    collectives: finaliser.collectives,
    callbacks: finaliser.callbacks,
    infos,
    cost,
  };
}

/** The kernels as machine code where that is asked for, else as WebAssembly. */
function moduleOf({ library, addressType, vectorBits }: Compilation): KernelModule {
  if (vectorBits === undefined) return library.module(addressType);
  const target = { bits: vectorBits, addressType };
  return library.module(addressType, (plan, isDivided) => {
    const known = getOrInsert(written, plan, () => new Map<string, Code>());
    const key = `${vectorBits} ${addressType} ${isDivided}`;
    return getOrInsert(known, key, () => writeKernelCode(plan, isDivided, target) ?? null) ?? undefined;
  });
}

/** The machine code of a kernel, or null if it stays WebAssembly. */
type Code = NonNullable<ReturnType<typeof writeKernelCode>> | null;

/** The machine code of plans, which programs share, for each target. */
const written = new WeakMap<LibraryPlan, Map<string, Code>>();

/** Whether a slot was not merged with another one. */
function isOwn({ slot }: { readonly slot: Buffer }): boolean {
  return slot.root() === slot;
}

class Finaliser {
  readonly collectives: CollectiveSpec[] = [];
  readonly callbacks: CallbackSpec[] = [];
  private readonly collectiveIndex = new Map<PlannedCollective, number>();
  private readonly bufferSlots = new Map<string, number>();
  private readonly extraSlots: SlotBase[] = [];
  private readonly argLists = new Map<string, number>();

  constructor(
    private readonly compilation: Compilation,
    private readonly plan: MemoryPlan,
  ) {}

  /** How the address table is filled. */
  slots(): SlotBase[] {
    const table: SlotBase[] = new Array(this.compilation.numSlots).fill({ kind: "dynamic" });
    table[ARENA_SLOT] = { kind: "arena", offset: 0 };
    table[CONSTANT_SLOT] = { kind: "constant", offset: 0 };
    return [...table, ...this.extraSlots];
  }

  private boundarySlot(base: SlotBase & { readonly index: number }): number {
    const key = `${base.kind}:${base.index}`;
    return getOrInsert(this.bufferSlots, key, () => this.extraSlot(base));
  }

  private extraSlot(base: SlotBase): number {
    return this.compilation.numSlots + this.extraSlots.push(base) - 1;
  }

  /** A place in the arena; every page has a slot. */
  private inArena(start: number, offset: number): SlotAddress {
    const { pageBytes } = this.plan;
    const page = Math.floor(start / pageBytes);
    if (page === 0) return { slot: ARENA_SLOT, offset: start + offset };
    const base: SlotBase = { kind: "arena", offset: page * pageBytes, page };
    const slot = getOrInsert(this.bufferSlots, `arena:${page}`, () => this.extraSlot(base));
    return { slot, offset: start - page * pageBytes + offset };
  }

  private place({ buffer, offset }: Ref): SlotAddress {
    const root = buffer.root();
    switch (root.kind.kind) {
      case "temporary":
        return this.inArena(this.plan.offsets.get(root) ?? 0, offset);
      case "constant":
        return { slot: CONSTANT_SLOT, offset: root.kind.offset + offset };
      case "input":
        return { slot: this.boundarySlot({ kind: "input", index: root.kind.index }), offset };
      case "output": {
        const { index } = root.kind;
        const donor = this.plan.donatedTo.get(index);
        const base =
          donor === undefined
            ? ({ kind: "output", index } as const)
            : ({ kind: "input", index: donor } as const);
        return { slot: this.boundarySlot(base), offset };
      }
      case "dynamic":
        return { slot: root.kind.slot, offset };
    }
  }

  private slotOf(buffer: Buffer): number {
    return this.place({ buffer, offset: 0 }).slot;
  }

  private argList(args: readonly Ref[]): number {
    const { addressType } = this.compilation;
    const words = args.flatMap((ref) => {
      const { slot, offset } = this.place(ref);
      return [ADDRESS_BYTES[addressType] * slot, offset];
    });
    const bytes = () => new Uint8Array(newAddresses(addressType, words).buffer);
    return getOrInsert(this.argLists, words.join(), () => this.compilation.constant(bytes()));
  }

  private collective(planned: PlannedCollective): number {
    return getOrInsert(this.collectiveIndex, planned, () => {
      const { source, target, ragged, ...rest } = planned;
      const places = { source: this.place(source), target: this.place(target) };
      const tables = ragged && {
        ragged: { ...ragged, sends: this.place(ragged.sends), receives: this.place(ragged.receives) },
      };
      return this.collectives.push({ ...rest, ...places, ...tables }) - 1;
    });
  }

  private sets(sets: PlannedLoop["sets"]) {
    return sets.filter(isOwn).map(({ slot, from }) => ({ slot: this.slotOf(slot), from: this.place(from) }));
  }

  private swaps(swaps: readonly (readonly [Buffer, Buffer])[]) {
    return swaps.map(([a, b]) => [this.slotOf(a), this.slotOf(b)] as const);
  }

  steps(planned: readonly UnplacedStep[]): Step[] {
    return planned.flatMap((step) => this.step(step) ?? []);
  }

  private kernel({ kernel, args, rows, filled, info }: PlannedKernel): Step {
    return {
      op: "kernel",
      module: 0,
      kernel,
      args: this.argList(args),
      numArgs: args.length,
      rows,
      ...(filled && { filled: { ...filled, sizes: this.place(filled.sizes) } }),
      info,
    };
  }

  private step(step: UnplacedStep): Step | undefined {
    const { info } = step;
    switch (step.op) {
      case "kernel":
        return this.kernel(step);
      case "gemm": {
        const [a, b, c] = [this.place(step.a), this.place(step.b), this.place(step.c)];
        const { ragged, epilogue, ...rest } = step;
        return {
          ...{ ...rest, a, b, c },
          ...(ragged && { ragged: { ...ragged, sizes: this.place(ragged.sizes) } }),
          ...(epilogue && {
            epilogue: { ...epilogue, args: epilogue.args.map((ref) => this.place(ref)) },
          }),
        };
      }
      case "copy": {
        const [source, target] = [this.place(step.source), this.place(step.target)];
        if (source.slot === target.slot && source.offset === target.offset) return undefined;
        return { ...step, source, target };
      }
      case "host":
        return {
          op: "host",
          kernel: step.kernel,
          places: [...step.ins, ...step.outs].map((ref) => this.place(ref)),
          info,
        };
      case "callback":
        return this.callback(step);
      case "address":
        return {
          ...step,
          slot: this.slotOf(step.slot),
          from: this.place(step.from),
          terms: step.terms.map((term) => ({ ...term, index: this.place(term.index) })),
        };
      case "axisIndex":
        return { ...step, target: this.place(step.target) };
      case "loop":
        return this.loop(step);
      case "while":
        return this.while(step);
      case "cond": {
        const index = this.place(step.index);
        return { op: "cond", index, branches: step.branches.map((branch) => this.steps(branch)), info };
      }
      case "start":
      case "done":
        return { op: step.op, collective: this.collective(step.collective), info };
    }
  }

  private callback({ spec, calls, ins, outs, info }: Extract<UnplacedStep, { op: "callback" }>): Step {
    const types = [...spec.ins, ...spec.outs];
    const places = [...ins, ...outs].map((ref, i) => ({ ...this.place(ref), bytes: bytesOf(at(types, i)) }));
    const callback = this.callbacks.push(spec) - 1;
    return { op: "callback", callback, places, numOperands: ins.length, calls, info };
  }

  private loop({ slices: _, ...step }: PlannedLoop): Step {
    return {
      ...step,
      sets: this.sets(step.sets),
      body: this.steps(step.body),
      advances: step.advances.filter(isOwn).map(({ slot, stride }) => ({ slot: this.slotOf(slot), stride })),
      swaps: this.swaps(step.swaps),
    };
  }

  private while(step: PlannedWhile): Step {
    return {
      ...step,
      sets: this.sets(step.sets),
      condition: this.steps(step.condition),
      predicate: this.place(step.predicate),
      body: this.steps(step.body),
      swaps: this.swaps(step.swaps),
    };
  }
}
