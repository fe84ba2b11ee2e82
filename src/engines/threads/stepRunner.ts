import type {
  AddressStep,
  AxisIndexStep,
  CondStep,
  CopyStep,
  GemmStep,
  HostStep,
  KernelStep,
  LoopStep,
  Place,
  Step,
  WhileStep,
} from "../../compiler/steps.js";
import { InternalError } from "../../ir/errors.js";
import { at } from "../../ir/shape.js";
import type { Collective } from "./collectives.js";
import type { PreparedGemm } from "./gemm.js";
import { recordStep } from "./trace.js";

/** What the steps of a loaded program work with. */
export interface StepHost {
  /** The device's address table. */
  readonly table: Int32Array;
  readonly tableAddress: number;
  readonly constantsAddress: number;
  /** The exported functions of each kernel module. */
  readonly kernels: readonly (readonly KernelFunction[])[];
  readonly memory: WebAssembly.Memory;
  readonly position: number;
  readonly collectives: readonly { readonly spec: CollectivePlaces; readonly collective: Collective }[];
  copy(target: number, source: number, bytes: number): void;
  prepareGemm(step: GemmStep): PreparedGemm;
  runHostStep(step: HostStep, tableAddress: number, memory: WebAssembly.Memory): void;
  /** Where the number of the running step is published. */
  readonly status: { readonly words: Int32Array; readonly step: number; readonly progress: number };
  /** Milliseconds since the main thread's origin of time. */
  now(): number;
  /** Replaces the action of a step, for tests. */
  wrap(index: number, action: () => void): () => void;
}

interface CollectivePlaces {
  readonly source: Place;
  readonly target: Place;
}

/** A kernel: takes the addresses of the address table and of its arguments. */
export type KernelFunction = (table: number, args: number) => void;

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
  private trace: Float64Array | undefined;
  private readonly bytes: Uint8Array;
  private readonly words: Int32Array;

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
    this.runList(this.actions);
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
        recordStep(trace, this.id, action.index, begin, this.host.now());
      }
    }
  }

  private prepareList(steps: readonly Step[]): Action[] {
    return steps.map((step) => {
      const index = this.numSteps++;
      return { index, run: this.host.wrap(index, this.prepare(step)) };
    });
  }

  private prepare(step: Step): () => void {
    switch (step.op) {
      case "kernel":
        return this.prepareKernel(step);
      case "gemm":
        return this.prepareGemm(step);
      case "copy":
        return this.prepareCopy(step);
      case "host":
        return () => this.host.runHostStep(step, this.host.tableAddress, this.host.memory);
      case "address":
        return this.prepareAddress(step);
      case "axisIndex":
        return this.prepareAxisIndex(step);
      case "loop":
        return this.prepareLoop(step);
      case "while":
        return this.prepareWhile(step);
      case "cond":
        return this.prepareCond(step);
      case "start": {
        const { spec, collective } = at(this.host.collectives, step.collective);
        return () => collective.start(this.address(spec.source), this.address(spec.target));
      }
      case "done": {
        const { collective } = at(this.host.collectives, step.collective);
        return () => collective.done();
      }
    }
  }

  private address(place: Place): number {
    return ((this.host.table[place.slot] ?? 0) >>> 0) + place.offset;
  }

  private readInt(place: Place): number {
    return this.words[this.address(place) / 4] ?? 0;
  }

  private prepareKernel(step: KernelStep): () => void {
    const kernel = this.host.kernels[step.module]?.[step.kernel];
    if (kernel === undefined) {
      throw new InternalError(`[threads] module ${step.module} has no kernel ${step.kernel}`);
    }
    const { tableAddress } = this.host;
    const args = this.host.constantsAddress + step.args;
    return () => kernel(tableAddress, args);
  }

  private prepareGemm(step: GemmStep): () => void {
    const gemm = this.host.prepareGemm(step);
    return () => gemm(this.address(step.a), this.address(step.b), this.address(step.c));
  }

  private prepareCopy({ source, target, bytes }: CopyStep): () => void {
    const { copy } = this.host;
    return () => copy(this.address(target), this.address(source), bytes);
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

  private prepareLoop({ count, sets, body, advances, swaps }: LoopStep): () => void {
    const { table } = this.host;
    const actions = this.prepareList(body);
    return () => {
      for (const { slot, from } of sets) table[slot] = this.address(from);
      for (let i = 0; i < count; i++) {
        this.runList(actions);
        for (const { slot, stride } of advances) table[slot] = (table[slot] ?? 0) + stride;
        this.swap(swaps);
      }
    };
  }

  private prepareWhile({ sets, condition, predicate, body, swaps }: WhileStep): () => void {
    const { table } = this.host;
    const conditionActions = this.prepareList(condition);
    const actions = this.prepareList(body);
    return () => {
      for (const { slot, from } of sets) table[slot] = this.address(from);
      for (;;) {
        this.runList(conditionActions);
        if (this.bytes[this.address(predicate)] === 0) return;
        this.runList(actions);
        this.swap(swaps);
      }
    };
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
