import type {
  AddressStep,
  AxisIndexStep,
  CallbackStep,
  CondStep,
  CopyStep,
  DoneStep,
  GemmStep,
  HostStep,
  KernelStep,
  LoopStep,
  SlotAddress,
  Step,
  WhileStep,
} from "../../compiler/steps.js";
import type { Addresses } from "../../compiler/wasm/addresses.js";
import { InternalError } from "../../ir/errors.js";
import { at } from "../../ir/shape.js";
import type { PreparedCollective } from "../collectives/collectives.js";
import { type KernelFunction, runRows } from "../kernels/kernelFunctions.js";
import type { LimitLoop } from "../loopLimit.js";
import type { PreparedGemm } from "../products/preparedGemm.js";
import { type Crew, JOB, JOB_FIELD, KERNEL_FIELD } from "../protocol/crew.js";
import { PART, recordPart } from "../protocol/deviceTrace.js";
import type { WaitListener } from "../protocol/signals.js";

/** What the steps of a loaded program work with. */
export interface StepHost {
  /** The device's address table. */
  readonly table: Addresses;
  readonly tableAddress: number;
  readonly constantsAddress: number;
  /** The exported functions of each kernel module. */
  readonly kernels: readonly (readonly KernelFunction[])[];
  readonly memory: WebAssembly.Memory;
  readonly position: number;
  readonly collectives: readonly {
    readonly spec: CollectivePlaces;
    readonly collective: PreparedCollective;
  }[];
  copy(target: number, source: number, bytes: number): void;
  prepareGemm(step: GemmStep): PreparedGemm;
  /** The threads that share large kernels, and what they call the program. */
  readonly shared?: { readonly crew: Crew; readonly sending: number } | undefined;
  runHostStep(step: HostStep, table: Addresses, memory: WebAssembly.Memory): void;
  /** Makes a call of the host ready, which is given where the places of the step are by then. */
  prepareCall(step: CallbackStep): (addressOf: (place: SlotAddress) => number) => void;
  /** Where the number of the running step is published. */
  readonly status: {
    readonly words: Int32Array;
    readonly step: number;
    readonly progress: number;
    readonly loops: number;
  };
  /** Milliseconds since the main thread's origin of time. */
  now(): number;
  /** Says who is told of waits for peers; nobody with `undefined`. */
  tellWaits(listener: WaitListener | undefined): void;
  /** Moves messages to and from other processes on, between steps; undefined where there are none. */
  readonly progress: (() => void) | undefined;
  /** Ends loops without end where no watchdog looks; undefined where one does. */
  readonly limitLoop?: LimitLoop;
  /** Replaces the action of a step, for tests. */
  wrap(index: number, action: () => void): () => void;
}

interface CollectivePlaces {
  readonly source: SlotAddress;
  readonly target: SlotAddress;
  readonly ragged?: { readonly sends: SlotAddress; readonly receives: SlotAddress };
}

/** Steps that take long enough for messages to arrive meanwhile. */
const COMPUTES: ReadonlySet<Step["op"]> = new Set(["kernel", "gemm", "copy", "host"]);

/** A step made ready: its number and what it does. */
interface Action {
  readonly index: number;
  readonly run: () => void;
}

/**
 * Runs the step list of one loaded program on one device. Preparing turns every step into a closure with
 * everything looked up, so that running a step costs a call and allocates nothing.
 */
export class StepRunner {
  private readonly actions: readonly Action[];
  private numSteps = 0;
  private progress = 0;
  /** How many loops without a fixed end are around the running step. */
  private depth = 0;
  private trace: Float64Array | undefined;
  private readonly bytes: Uint8Array;
  private readonly words: Int32Array;
  /** While steps are prepared: the collectives of the ends that come one after the other. */
  private readonly unsettled: PreparedCollective[] = [];

  constructor(
    private readonly id: number,
    steps: readonly Step[],
    private readonly host: StepHost,
  ) {
    this.bytes = new Uint8Array(host.memory.buffer);
    this.words = new Int32Array(host.memory.buffer);
    this.actions = this.prepareList(steps);
  }

  /** Runs the program once; the address table is filled. */
  run(trace: Float64Array | undefined): void {
    this.trace = trace;
    if (trace === undefined) {
      this.runList(this.actions);
      return;
    }
    const { words, step } = this.host.status;
    this.host.tellWaits({
      now: this.host.now,
      waited: (begin, end) => recordPart(trace, this.id, words[step] ?? 0, PART.wait, begin, end),
    });
    this.runList(this.actions);
    this.host.tellWaits(undefined);
  }

  private runList(actions: readonly Action[]): void {
    const { words, step, progress } = this.host.status;
    const { trace } = this;
    for (let i = 0; i < actions.length; i++) {
      const action = actions[i];
      if (action === undefined) continue;
      words[step] = action.index;
      words[progress] = ++this.progress;
      if (trace === undefined) {
        action.run();
      } else {
        const begin = this.host.now();
        action.run();
        recordPart(trace, this.id, action.index, PART.whole, begin, this.host.now());
      }
    }
  }

  /** Runs the body of the loop with this step number once more. */
  private runIteration(index: number, iteration: number, actions: readonly Action[]): void {
    const { trace } = this;
    if (trace === undefined) {
      this.runList(actions);
      return;
    }
    const begin = this.host.now();
    this.runList(actions);
    recordPart(trace, this.id, index, iteration, begin, this.host.now());
  }

  private prepareList(steps: readonly Step[]): Action[] {
    return steps.map((step, i) => {
      const index = this.numSteps++;
      const action = this.prepare(step, index, steps[i + 1]);
      return { index, run: this.host.wrap(index, this.withProgress(step, action)) };
    });
  }

  /** The action of a step that computes, followed by a look at messages that are on their way. */
  private withProgress(step: Step, action: () => void): () => void {
    const { progress } = this.host;
    if (progress === undefined || !COMPUTES.has(step.op)) return action;
    return () => {
      action();
      progress();
    };
  }

  /** @param next the step that comes after it */
  private prepare(step: Step, index: number, next: Step | undefined): () => void {
    switch (step.op) {
      case "kernel":
        return this.prepareKernel(step);
      case "gemm":
        return this.prepareGemm(step);
      case "copy":
        return this.prepareCopy(step);
      case "host":
        return () => this.host.runHostStep(step, this.host.table, this.host.memory);
      case "callback":
        return this.prepareCallback(step);
      case "address":
        return this.prepareAddress(step);
      case "axisIndex":
        return this.prepareAxisIndex(step);
      case "loop":
        return this.prepareLoop(step, index);
      case "while":
        return this.prepareWhile(step, index);
      case "cond":
        return this.prepareCond(step);
      case "start": {
        const { spec, collective } = at(this.host.collectives, step.collective);
        const { source, target, ragged } = spec;
        if (ragged === undefined) return () => collective.start(this.address(source), this.address(target));
        return () =>
          collective.start(this.address(source), this.address(target), {
            sends: this.address(ragged.sends),
            receives: this.address(ragged.receives),
          });
      }
      case "done":
        return this.prepareDone(step, next);
    }
  }

  /** The last of several collectives that end one after the other settles all of them. */
  private prepareDone(step: DoneStep, next: Step | undefined): () => void {
    const { collective } = at(this.host.collectives, step.collective);
    this.unsettled.push(collective);
    if (next?.op === "done") return () => collective.work();
    const all = this.unsettled.splice(0);
    return () => {
      collective.work();
      for (const one of all) one.settle();
    };
  }

  private address(place: SlotAddress): number {
    return (this.host.table[place.slot] ?? 0) + place.offset;
  }

  private readInt(place: SlotAddress): number {
    return this.words[this.address(place) / 4] ?? 0;
  }

  private prepareKernel(step: KernelStep): () => void {
    const kernel = this.host.kernels[step.module]?.[step.kernel];
    if (kernel === undefined) {
      throw new InternalError(`[threads] module ${step.module} has no kernel ${step.kernel}`);
    }
    const { tableAddress } = this.host;
    const args = this.host.constantsAddress + step.args;
    const { rows } = step;
    if (rows === undefined) return () => kernel(tableAddress, args);
    const { shared } = this.host;
    const last = this.lastRow(step, rows);
    if (shared !== undefined) return this.prepareShared(shared, step, last, args, kernel);
    return () => {
      const end = last();
      if (end > 0) kernel(tableAddress, args, 0, end, 0);
    };
  }

  /** The row after the last that a kernel has to compute. */
  private lastRow({ filled }: KernelStep, rows: number): () => number {
    if (filled === undefined) return () => rows;
    return () => {
      const first = this.address(filled.sizes) / 4;
      let count = 0;
      for (let group = 0; group < filled.groups; group++)
        count += Math.max(0, this.words[first + group] ?? 0);
      return Math.ceil((Math.min(count, filled.rows) * rows) / filled.rows);
    };
  }

  private prepareShared(
    { crew, sending }: { readonly crew: Crew; readonly sending: number },
    step: KernelStep,
    lastRow: () => number,
    args: number,
    kernel: KernelFunction,
  ): () => void {
    const { tableAddress } = this.host;
    let rows = 0;
    let count = 0;
    const describe = (job: Float64Array): void => {
      job[JOB_FIELD.kind] = JOB.kernel;
      job[KERNEL_FIELD.program] = sending;
      job[KERNEL_FIELD.module] = step.module;
      job[KERNEL_FIELD.kernel] = step.kernel;
      job[KERNEL_FIELD.table] = tableAddress;
      job[KERNEL_FIELD.args] = args;
      job[KERNEL_FIELD.rows] = rows;
    };
    const run = (part: number): void => runRows(kernel, tableAddress, args, rows, part, count);
    return () => {
      rows = lastRow();
      count = Math.min(crew.size, rows);
      if (count > 0) crew.share(count, describe, run);
    };
  }

  private prepareGemm(step: GemmStep): () => void {
    const gemm = this.host.prepareGemm(step);
    const sizes = step.ragged?.sizes;
    if (sizes === undefined)
      return () => gemm(this.address(step.a), this.address(step.b), this.address(step.c));
    return () => gemm(this.address(step.a), this.address(step.b), this.address(step.c), this.address(sizes));
  }

  private prepareCopy({ source, target, bytes }: CopyStep): () => void {
    const { copy } = this.host;
    return () => copy(this.address(target), this.address(source), bytes);
  }

  private prepareCallback(step: CallbackStep): () => void {
    const addressOf = (place: SlotAddress) => this.address(place);
    if (at(step.calls, this.host.position)) {
      const call = this.host.prepareCall(step);
      return () => call(addressOf);
    }
    const results = step.places.slice(step.numOperands);
    return () => {
      for (const place of results) {
        const address = addressOf(place);
        this.bytes.fill(0, address, address + place.bytes);
      }
    };
  }

  private prepareAddress({ slot, from, terms }: AddressStep): () => void {
    const { table } = this.host;
    return () => {
      let address = this.address(from);
      for (const { index, max, stride } of terms) {
        address += Math.min(Math.max(this.readInt(index), 0), max) * stride;
      }
      table[slot] = address;
    };
  }

  private prepareAxisIndex({ target, positions }: AxisIndexStep): () => void {
    const value = at(positions, this.host.position);
    return () => {
      this.words[this.address(target) / 4] = value;
    };
  }

  private prepareLoop({ count, sets, body, advances, swaps }: LoopStep, index: number): () => void {
    const { table } = this.host;
    const actions = this.prepareList(body);
    return () => {
      for (const { slot, from } of sets) table[slot] = this.address(from);
      for (let i = 0; i < count; i++) {
        this.runIteration(index, i, actions);
        for (const { slot, stride } of advances) table[slot] = (table[slot] ?? 0) + stride;
        this.swap(swaps);
      }
    };
  }

  private prepareWhile({ sets, condition, predicate, body, swaps }: WhileStep, index: number): () => void {
    const { table } = this.host;
    const conditionActions = this.prepareList(condition);
    const actions = this.prepareList(body);
    return () => {
      for (const { slot, from } of sets) table[slot] = this.address(from);
      if (this.depth++ === 0) this.countLoop();
      const look = this.host.limitLoop?.();
      for (let i = 0; ; i++) {
        look?.();
        this.runList(conditionActions);
        if (this.bytes[this.address(predicate)] === 0) break;
        this.runIteration(index, i, actions);
        this.swap(swaps);
      }
      if (--this.depth === 0) this.countLoop();
    };
  }

  /** Tells that an outermost loop without a fixed end begins or ends. */
  private countLoop(): void {
    const { words, loops } = this.host.status;
    words[loops] = (words[loops] ?? 0) + 1;
  }

  private prepareCond({ index, branches }: CondStep): () => void {
    const lists = branches.map((branch) => this.prepareList(branch));
    return () => {
      const chosen = Math.min(Math.max(this.readInt(index), 0), lists.length - 1);
      this.runList(at(lists, chosen));
    };
  }

  private swap(swaps: readonly (readonly [number, number])[]): void {
    const { table } = this.host;
    for (const [a, b] of swaps) {
      const kept = table[a] ?? 0;
      table[a] = table[b] ?? 0;
      table[b] = kept;
    }
  }
}
