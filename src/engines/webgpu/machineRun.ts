import type { CallbackStep } from "../../compiler/steps.js";
import { callHost } from "../../ir/callbacks.js";
import { byteSize, viewHost } from "../../ir/dtype.js";
import { at } from "../../ir/shape.js";
import type { LimitLoop } from "../loopLimit.js";
import type { Action, Dispatch, Fetch, Guest } from "./actions.js";
import { moveSlabs } from "./expectedDispatches.js";
import type { Machine } from "./gpuMachine.js";
import type { GpuBlock } from "./gpuMemory.js";
import type { MachineProgram } from "./gpuProgram.js";
import type { GpuTrace } from "./gpuTrace.js";

/** Why a device cannot continue yet: others have not reached a collective, or the host has to do something. */
export type Wait =
  | { readonly kind: "collective"; readonly collective: number }
  | { readonly kind: "value"; readonly slot: number }
  | { readonly kind: "host"; readonly work: () => Promise<void> };

/** Where the inputs and the outputs of a run lie on one device. */
export interface RunBlocks {
  readonly inputs: readonly GpuBlock[];
  readonly outputs: readonly (GpuBlock | undefined)[];
}

/** Dispatches after which commands are submitted, so that the GPU starts while the rest is being recorded. */
const SUBMIT_AFTER = 32;

/** What one GPU does in a run of a program. */
export class MachineRun {
  readonly machine: Machine;
  private readonly words: Uint32Array<ArrayBuffer>;
  private readonly slabs: Uint16Array;
  private recorded = 0;

  /** @param blocks where the values of every position lie; those of other GPUs are not looked at */
  constructor(
    readonly program: MachineProgram,
    blocks: readonly RunBlocks[],
    private readonly limitLoop: LimitLoop,
    private readonly trace: GpuTrace | undefined,
  ) {
    this.machine = program.machine;
    this.words = new Uint32Array(Math.max(1, program.numSlots));
    this.slabs = new Uint16Array(program.numSlots);
    for (const position of program.positions) {
      const { inputs, outputs } = at(blocks, position);
      program.fillSlots(position, this.words, this.slabs, inputs, outputs);
    }
    program.fillGuests(this.words, this.slabs);
  }

  /** Compiles what the run will need; a promise if it has to wait. */
  compile(): Promise<unknown> | undefined {
    return this.program.compile(this.slabs);
  }

  begin(): void {
    this.program.writeTable(this.words);
  }

  /** Records a collective that all of its devices have reached, once copies of what other GPUs send are here. */
  meet(collective: number, group: readonly number[]): void {
    const meetings = at(this.program.collectives, collective);
    const here = group.filter((position) => meetings.has(position));
    const { dispatches } = at(
      here.flatMap((position) => meetings.get(position) ?? []),
      0,
    );
    for (const dispatch of dispatches) this.record(dispatch, here);
  }

  /** The devices of other GPUs that a collective of a group takes something from here. */
  guests(collective: number, group: readonly number[]): readonly Guest[] {
    const meetings = at(this.program.collectives, collective);
    return group.flatMap((position) => meetings.get(position) ?? []).at(0)?.guests ?? [];
  }

  /** What some devices send in a collective, by their positions. */
  async sources(
    collective: number,
    positions: readonly number[],
  ): Promise<[number, Uint8Array<ArrayBuffer>][]> {
    if (positions.length === 0) return [];
    const { source, elements, dtype } = at(this.program.program.compiled.collectives, collective);
    const bytes = elements * byteSize(dtype);
    const places = positions.map((position) => ({
      slot: this.program.firstSlot(position) + source.slot,
      offset: source.offset,
      bytes,
    }));
    const read = await this.readPlaces(await this.locate(places));
    return positions.map((position, i) => [position, at(read, i)]);
  }

  /** Puts what a device of another GPU sends where collectives look for it. */
  receive({ slot }: Guest, bytes: Uint8Array): void {
    this.machine.upload(this.program.guest(slot), bytes);
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

  *steps(actions: readonly Action[], position: number): Generator<Wait, void, number> {
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

  /** The values in some slots of the table. */
  async values(slots: readonly number[]): Promise<number[]> {
    if (slots.length === 0) return [];
    const ranges = slots.map((slot) => ({ buffer: this.program.table, offset: 4 * slot, bytes: 4 }));
    const read = await this.machine.download(ranges);
    return read.map(({ buffer }) => new Int32Array(buffer)[0] ?? 0);
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
    const places = await this.locate(
      step.places.map((place) => ({ ...place, slot: firstSlot + place.slot })),
    );
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
  private async locate(places: CallbackStep["places"]): Promise<Place[]> {
    const { machine, program } = this;
    const whole = { buffer: program.table, offset: 0, bytes: 4 * this.words.length };
    const [table = new Uint8Array(0)] = await machine.download([whole]);
    const addresses = new Uint32Array(table.buffer);
    return places.map(({ slot, offset, bytes }) => {
      const slab = this.slabs[slot] ?? 0;
      return { slab, address: (addresses[slot] ?? 0) + offset, bytes };
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
