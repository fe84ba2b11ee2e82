import type { CallbackStep } from "../../compiler/steps.js";
import { callHost } from "../../ir/callbacks.js";
import { viewHost } from "../../ir/dtype.js";
import { at } from "../../ir/shape.js";
import { DesyncError } from "../errors.js";
import type { LimitLoop } from "../loopLimit.js";
import type { Action, Dispatch, Fetch } from "./actions.js";
import { moveSlabs } from "./expectedDispatches.js";
import type { Machine } from "./gpuMachine.js";
import type { GpuBlock } from "./gpuMemory.js";
import type { MachineProgram } from "./gpuProgram.js";
import type { GpuTrace } from "./gpuTrace.js";

/** Why a device cannot continue yet: others have not reached a collective, or the host has to read something. */
type Wait =
  | { readonly kind: "collective"; readonly collective: number }
  | { readonly kind: "value"; readonly slot: number }
  | { readonly kind: "host"; readonly work: () => Promise<void> };

/** What a device is doing. */
interface Progress {
  readonly steps: Generator<Wait, void, number>;
  wait: Wait | undefined;
  /** The collectives that it has passed. */
  sequence: number;
}

/** Where the inputs and the outputs of a run lie on one device. */
export interface RunBlocks {
  readonly inputs: readonly GpuBlock[];
  readonly outputs: readonly (GpuBlock | undefined)[];
}

/** Dispatches after which commands are submitted, so that the GPU starts while the rest is being recorded. */
const SUBMIT_AFTER = 32;

/**
 * Records one run of a program: the devices take turns, each up to its next collective. The host waits only for values
 * that decide which steps come next, and for its own callbacks.
 */
export class Run {
  private readonly words: Uint32Array<ArrayBuffer>;
  private readonly slabs: Uint16Array;
  private readonly devices: readonly Progress[];
  private readonly machine: Machine;
  private recorded = 0;

  constructor(
    private readonly program: MachineProgram,
    blocks: readonly RunBlocks[],
    private readonly limitLoop: LimitLoop,
    private readonly runNumber: number,
    private readonly trace?: GpuTrace | undefined,
  ) {
    this.machine = program.machine;
    const size = blocks.length * program.slotsPerPosition;
    this.words = new Uint32Array(Math.max(1, size));
    this.slabs = new Uint16Array(size);
    blocks.forEach(({ inputs, outputs }, position) => {
      program.fillSlots(position, this.words, this.slabs, inputs, outputs);
    });
    this.devices = blocks.map((_, position) => ({
      steps: this.steps(at(program.actions, position), position),
      wait: undefined,
      sequence: 0,
    }));
  }

  /** Records and submits everything; a promise only where the host has to wait in between. */
  start(): Promise<void> | undefined {
    const compiling = this.program.compile(this.slabs);
    return compiling === undefined ? this.begin() : compiling.then(() => this.afterCompiling());
  }

  private async afterCompiling(): Promise<void> {
    await this.machine.settled();
    if (this.machine.failure) throw this.machine.failure;
    await this.begin();
  }

  private begin(): Promise<void> | undefined {
    this.program.writeTable(this.words);
    for (const device of this.devices) this.advance(device, 0);
    return this.go();
  }

  private go(): Promise<void> | undefined {
    for (;;) {
      if (this.meet()) continue;
      const waiting = this.devices.filter(({ wait }) => wait !== undefined);
      if (waiting.length === 0) {
        this.machine.submitSoon();
        return undefined;
      }
      const read = waiting.filter(({ wait }) => wait?.kind !== "collective");
      if (read.length === 0) throw this.diverged(waiting);
      return this.read(read);
    }
  }

  private advance(device: Progress, value: number): void {
    const { done, value: wait } = device.steps.next(value);
    device.wait = done ? undefined : wait;
  }

  /** Records collectives that all of their devices have reached; returns whether there were any. */
  private meet(): boolean {
    let met = false;
    this.devices.forEach(({ wait }, position) => {
      if (wait?.kind !== "collective") return;
      const { groups } = at(this.program.program.compiled.collectives, wait.collective);
      const group = groups.find((members) => members.includes(position)) ?? [];
      const all = group.map((member) => at(this.devices, member));
      const isMet = all.every(
        ({ wait: other }) => other?.kind === "collective" && other.collective === wait.collective,
      );
      if (!isMet) return;
      met = true;
      const dispatches = at(this.program.collectives, wait.collective).get(position) ?? [];
      for (const dispatch of dispatches) this.record(dispatch, group);
      for (const member of all) {
        member.sequence++;
        this.advance(member, 0);
      }
    });
    return met;
  }

  private diverged(waiting: readonly Progress[]): DesyncError {
    const positions = waiting.map((device) => ({
      device: at(this.program.devices, this.devices.indexOf(device)),
      run: this.runNumber,
      sequence: device.sequence,
      what:
        device.wait?.kind === "collective"
          ? at(this.program.program.compiled.collectives, device.wait.collective).kind
          : "the end of the program",
    }));
    return new DesyncError(this.program.program.compiled.name, positions);
  }

  /** Reads the values that devices wait for and lets the host do its part, then continues. */
  private async read(waiting: readonly Progress[]): Promise<void> {
    const { machine } = this;
    const values = waiting.flatMap((device) =>
      device.wait?.kind === "value" ? [{ device, slot: device.wait.slot }] : [],
    );
    const ranges = values.map(({ slot }) => ({ buffer: this.program.table, offset: 4 * slot, bytes: 4 }));
    const read = await machine.download(ranges);
    for (const { wait } of waiting) if (wait?.kind === "host") await wait.work();
    for (const device of waiting) {
      const index = values.findIndex((value) => value.device === device);
      const bytes = read[index];
      this.advance(device, bytes ? (new Int32Array(bytes.buffer)[0] ?? 0) : 0);
    }
    await this.go();
  }

  private record(dispatch: Dispatch, positions: readonly number[]): void {
    const prepared = this.program.prepare(dispatch, this.slabs);
    const { bindGroup, workgroups } = prepared;
    prepared.pipeline ??= this.machine.shaders.pipeline(prepared.shader);
    const { trace } = this;
    const pass = this.machine.compute(trace?.next({ program: this.program, dispatch, positions }));
    pass.setPipeline(prepared.pipeline);
    pass.setBindGroup(0, bindGroup, [dispatch.params]);
    pass.dispatchWorkgroups(workgroups[0], workgroups[1], workgroups[2]);
    // A pass that is timed has one dispatch.
    if (trace) this.machine.commands();
    if (++this.recorded % SUBMIT_AFTER === 0) this.machine.submit();
  }

  private *steps(actions: readonly Action[], position: number): Generator<Wait, void, number> {
    for (const action of actions) {
      switch (action.kind) {
        case "dispatch":
          this.record(action, [position]);
          break;
        case "moves":
          moveSlabs(this.slabs, action.moves);
          break;
        case "loop":
          yield* this.steps(action.before, position);
          for (let i = 0; i < action.count; i++) yield* this.steps(action.body, position);
          break;
        case "while": {
          yield* this.steps(action.before, position);
          const look = this.limitLoop();
          for (;;) {
            look();
            yield* this.steps(action.condition, position);
            if ((yield this.fetch(action.predicate, position)) === 0) break;
            yield* this.steps(action.body, position);
          }
          break;
        }
        case "cond": {
          const index = yield this.fetch(action.index, position);
          const chosen = Math.min(Math.max(index, 0), action.branches.length - 1);
          yield* this.steps(at(action.branches, chosen), position);
          break;
        }
        case "collective":
          yield { kind: "collective", collective: action.collective };
          break;
        case "callback":
          yield { kind: "host", work: () => this.callback(action, position) };
          break;
      }
    }
  }

  private fetch({ dispatch, slot }: Fetch, position: number): Wait {
    this.record(dispatch, [position]);
    return { kind: "value", slot };
  }

  /** Calls a host callback with what lies on the GPU, and writes its results there. */
  private async callback(
    { step, firstSlot }: Extract<Action, { kind: "callback" }>,
    position: number,
  ): Promise<void> {
    const { fn, ins, outs } = at(this.program.program.compiled.callbacks, step.callback);
    const places = await this.locate(step.places, firstSlot);
    const results = places.slice(step.numOperands);
    if (!at(step.calls, position)) {
      for (const place of results) await this.write(place, new Uint8Array(place.bytes));
      return;
    }
    const read = await this.readPlaces(places.slice(0, step.numOperands));
    const operands = ins.map((type, i) => ({ type, data: viewHost(type.dtype, at(read, i).buffer) }));
    const made = callHost(fn, operands, outs);
    for (const [i, { buffer, byteOffset, byteLength }] of made.entries())
      await this.write(at(results, i), new Uint8Array(buffer, byteOffset, byteLength));
  }

  /** Where places are now; the GPU may have moved their slots. */
  private async locate(places: CallbackStep["places"], firstSlot: number): Promise<Place[]> {
    const { machine, program } = this;
    const whole = { buffer: program.table, offset: 0, bytes: 4 * this.words.length };
    const [table = new Uint8Array(0)] = await machine.download([whole]);
    const addresses = new Uint32Array(table.buffer);
    return places.map(({ slot, offset, bytes }) => {
      const slab = this.slabs[firstSlot + slot] ?? 0;
      return { slab, address: (addresses[firstSlot + slot] ?? 0) + offset, bytes };
    });
  }

  /** The bytes at some places. */
  private async readPlaces(places: readonly Place[]): Promise<Uint8Array<ArrayBuffer>[]> {
    // Copies begin at words, elements of narrow types may not.
    const before = places.map(({ address }) => address % 4);
    const words = places.map(({ slab, address, bytes }, i) => ({
      slab,
      address: address - at(before, i),
      bytes: bytes + at(before, i),
    }));
    const read = await this.machine.read(words);
    return read.map((bytes, i) => bytes.slice(at(before, i)));
  }

  /** Writes bytes, and leaves others in the same words as they are. */
  private async write({ slab, address, bytes }: Place, data: Uint8Array): Promise<void> {
    const before = address % 4;
    const size = Math.ceil((before + bytes) / 4) * 4;
    const words = { slab, address: address - before, bytes: size };
    if (size === bytes) return this.machine.upload(words, data);
    const [old = new Uint8Array(size)] = await this.readPlaces([words]);
    old.set(data, before);
    this.machine.upload(words, old);
  }
}

/** Bytes in a slab. */
type Place = GpuBlock;
