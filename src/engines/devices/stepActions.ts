import type {
  AddressStep,
  AxisIndexStep,
  CallbackStep,
  CopyStep,
  GemmStep,
  HostStep,
  KernelStep,
  SlotAddress,
  SlotAdvance,
  SlotSet,
} from "../../compiler/steps.js";
import type { Addresses } from "../../compiler/wasm/addresses.js";
import { InternalError } from "../../ir/errors.js";
import { at } from "../../ir/shape.js";
import type { PreparedCollective } from "../collectives/collectives.js";
import { type KernelFunction, runRows } from "../kernels/kernelFunctions.js";
import type { PreparedGemm } from "../products/preparedGemm.js";
import { type Crew, JOB, JOB_FIELD, KERNEL_FIELD } from "../protocol/crew.js";

/** What the steps of a program on one device compute with. */
export interface ActionHost {
  /** The device's address table. */
  readonly table: Addresses;
  readonly tableAddress: number;
  readonly constantsAddress: number;
  /** The exported functions of each kernel module. */
  readonly kernels: readonly (readonly KernelFunction[])[];
  readonly memory: WebAssembly.Memory;
  readonly position: number;
  copy(target: number, source: number, bytes: number): void;
  prepareGemm(step: GemmStep): PreparedGemm;
  /** The threads that share large kernels, and what they call the program. */
  readonly shared?: { readonly crew: Crew; readonly sending: number } | undefined;
  runHostStep(step: HostStep, table: Addresses, memory: WebAssembly.Memory): void;
}

/** Where the operands of a collective lie. */
export interface CollectivePlaces {
  readonly source: SlotAddress;
  readonly target: SlotAddress;
  readonly ragged?: { readonly sends: SlotAddress; readonly receives: SlotAddress };
}

/** A step that only this device takes part in, and that is over when its action has returned. */
export type ActionStep = KernelStep | GemmStep | CopyStep | HostStep | AddressStep | AxisIndexStep;

/**
 * Makes steps ready on one device: each becomes a closure with everything looked up, so that running it costs a call
 * and allocates nothing.
 */
export class StepActions {
  private readonly bytes: Uint8Array;
  private readonly words: Int32Array;

  constructor(private readonly host: ActionHost) {
    this.bytes = new Uint8Array(host.memory.buffer);
    this.words = new Int32Array(host.memory.buffer);
  }

  prepare(step: ActionStep): () => void {
    switch (step.op) {
      case "kernel":
        return this.prepareKernel(step);
      case "gemm":
        return this.prepareGemm(step);
      case "copy":
        return this.prepareCopy(step);
      case "host":
        return () => this.host.runHostStep(step, this.host.table, this.host.memory);
      case "address":
        return this.prepareAddress(step);
      case "axisIndex":
        return this.prepareAxisIndex(step);
    }
  }

  /** What a device does in a callback step in which it does not call: its results are zeros. */
  prepareNoCall({ places, numOperands }: CallbackStep): () => void {
    const results = places.slice(numOperands);
    return () => {
      for (const place of results) {
        const address = this.address(place);
        this.bytes.fill(0, address, address + place.bytes);
      }
    };
  }

  /** The start of a collective, which is given where its operands are by then. */
  prepareStart({ source, target, ragged }: CollectivePlaces, start: PreparedCollective["start"]): () => void {
    if (ragged === undefined) return () => start(this.address(source), this.address(target));
    return () =>
      start(this.address(source), this.address(target), {
        sends: this.address(ragged.sends),
        receives: this.address(ragged.receives),
      });
  }

  /** Where a place is now. */
  address(place: SlotAddress): number {
    return (this.host.table[place.slot] ?? 0) + place.offset;
  }

  /** The int32 at a place. */
  readInt(place: SlotAddress): number {
    return this.words[this.address(place) / 4] ?? 0;
  }

  /** Whether the byte at a place is not 0. */
  isTrue(place: SlotAddress): boolean {
    return this.bytes[this.address(place)] !== 0;
  }

  /** The int32 at a place as the index of one of several branches. */
  branch(place: SlotAddress, numBranches: number): number {
    return Math.min(Math.max(this.readInt(place), 0), numBranches - 1);
  }

  /** Sets the slots of a loop before its first iteration. */
  set(sets: readonly SlotSet[]): void {
    const { table } = this.host;
    for (const { slot, from } of sets) table[slot] = this.address(from);
  }

  /** Moves the slots of a loop after an iteration. */
  advance(advances: readonly SlotAdvance[]): void {
    const { table } = this.host;
    for (const { slot, stride } of advances) table[slot] = (table[slot] ?? 0) + stride;
  }

  /** Exchanges slots of a loop after an iteration. */
  swap(swaps: readonly (readonly [number, number])[]): void {
    const { table } = this.host;
    for (const [a, b] of swaps) {
      const kept = table[a] ?? 0;
      table[a] = table[b] ?? 0;
      table[b] = kept;
    }
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
}
