import { runCallback } from "../../compiler/kernel/callbackStep.js";
import { runHostStep } from "../../compiler/kernel/hostKernels.js";
import { kernelImports } from "../../compiler/kernel/kernelLibrary.js";
import type { CompiledProgram, GemmStep } from "../../compiler/steps.js";
import { allocateHost, type HostData, viewHost } from "../../ir/dtype.js";
import { type Watch, watch } from "../../ir/reclaim.js";
import { at, sizeOf, type TensorType } from "../../ir/shape.js";
import { StepRunner } from "../devices/stepRunner.js";
import type { LoadedModule } from "../kernels/loadKernels.js";
import { loadKernels, unloadKernels } from "../kernels/loadKernels.js";
import { bindKernels } from "../kernels/nativeKernels.js";
import type { MovableTensor } from "../localEngine.js";
import { limitLoops } from "../loopLimit.js";
import { type Block, roundUp } from "../memory/heap.js";
import type { PreparedGemm } from "../products/preparedGemm.js";
import type { HostTensor } from "../reference/hostTensor.js";
import type { CodeMemory } from "../system/codeMemory.js";
import { byteLength, type InlineMemory } from "./inlineMemory.js";

/**
 * Values smaller than this many bytes stay in JavaScript arrays, which are cheap to create and to collect, and are
 * copied into and out of the memory for every run; copying that little costs less than tracking a block.
 */
const SMALL_BYTES = 4096;

/** Programs whose runs need at most this many bytes besides large values keep them allocated between runs. */
const KEPT_BYTES = 16_384;

/** The environment that programs run in. */
export interface InlineMachine {
  readonly memory: InlineMemory;
  /** Memory for the machine code of kernels; undefined if all are WebAssembly. */
  readonly code: CodeMemory | undefined;
  /** Prepares a matrix product to be called with addresses. */
  prepareGemm(step: GemmStep): PreparedGemm;
}

/** A value whose address a run writes into a slot of the address table. */
interface Argument {
  readonly type: TensorType;
  readonly slots: readonly number[];
  readonly small: boolean;
  /** Where a small value lies in the memory of a run. */
  readonly offset: number;
}

const isSmall = (type: TensorType): boolean => byteLength(type) < SMALL_BYTES;

/** The number of bytes that a value takes in the memory of a run. */
const smallBytes = (type: TensorType): number => (isSmall(type) ? roundUp(byteLength(type)) : 0);

/** A program whose kernels can be called on this thread. */
export class InlineProgram {
  private readonly runner: StepRunner;
  private readonly table: Uint32Array;
  private readonly inputs: readonly Argument[];
  private readonly outputs: readonly Argument[];
  private readonly arena: readonly { readonly slot: number; readonly offset: number }[];
  /** The bytes a run needs besides large values: small values and intermediate values. */
  private readonly runBytes: number;
  /** The address of that memory, if the program keeps it allocated. */
  private readonly kept: number | undefined;
  private readonly memory: InlineMemory;
  private readonly modules: readonly LoadedModule[];
  private readonly watched: Watch;
  /** A host callback may run the program again while its memory is in use. */
  private isRunning = false;

  private constructor(
    compiled: CompiledProgram,
    private readonly machine: InlineMachine,
    private readonly own: Block,
  ) {
    const { memory, code } = machine;
    const { slots } = compiled;
    this.memory = memory;
    const modules = loadKernels(compiled, code);
    this.modules = modules;
    const { buffer } = memory.memory;
    const constants = own.address;
    memory.bytes.set(compiled.constants, constants);
    const tableAddress = constants + roundUp(compiled.constants.byteLength);
    this.table = new Uint32Array(buffer, tableAddress, slots.length);
    slots.forEach((slot, i) => {
      if (slot.kind === "constant") this.table[i] = constants + slot.offset;
    });
    this.arena = slots.flatMap((slot, i) =>
      slot.kind === "arena" ? [{ slot: i, offset: slot.offset }] : [],
    );
    let offset = roundUp(compiled.arenaBytes);
    const argument = (kind: "input" | "output", type: TensorType, index: number): Argument => {
      const slotsOf = slots.flatMap((slot, i) => (slot.kind === kind && slot.index === index ? [i] : []));
      const place = offset;
      offset += smallBytes(type);
      return { type, slots: slotsOf, small: isSmall(type), offset: place };
    };
    this.inputs = compiled.inputs.map(({ type }, i) => argument("input", type, i));
    this.outputs = compiled.outputs.map(({ type }, i) => argument("output", type, i));
    this.runBytes = offset;
    const end = tableAddress + roundUp(4 * slots.length);
    this.kept = end + offset <= own.address + own.bytes ? end : undefined;
    const imports = kernelImports(memory.memory);
    this.runner = new StepRunner(0, compiled.steps, {
      table: this.table,
      tableAddress,
      constantsAddress: constants,
      kernels: modules.map((module) => bindKernels(module, imports, memory.memory)),
      memory: memory.memory,
      position: 0,
      collectives: [],
      copy: (target, source, bytes) => memory.copy(target, source, bytes),
      prepareGemm: (step) => machine.prepareGemm(step),
      runHostStep: (step, table) => runHostStep(step, table, buffer),
      prepareCall: (step) => (addressOf) =>
        runCallback(at(compiled.callbacks, step.callback), step, buffer, step.places.map(addressOf)),
      status: { words: new Int32Array(3), step: 0, progress: 1, loops: 2 },
      now: () => performance.now(),
      tellWaits: () => {},
      progress: undefined,
      limitLoop: limitLoops(),
      wrap: (_, action) => action,
    });
    this.watched = watch(this, () => {
      memory.release(own);
      unloadKernels(modules, code);
    });
  }

  /** Prepares a program; undefined if there is no memory for its constants. */
  static load(compiled: CompiledProgram, machine: InlineMachine): InlineProgram | undefined {
    const bytes = roundUp(compiled.constants.byteLength) + roundUp(4 * compiled.slots.length);
    const runBytes = [...compiled.inputs, ...compiled.outputs].reduce(
      (sum, { type }) => sum + smallBytes(type),
      roundUp(compiled.arenaBytes),
    );
    const own = machine.memory.allocate(bytes + (runBytes <= KEPT_BYTES ? runBytes : 0));
    return own && new InlineProgram(compiled, machine, own);
  }

  /** Runs the program; undefined if there is no memory for its values, or while it is already running. */
  run(inputs: readonly MovableTensor[]): HostTensor[] | undefined {
    const { memory } = this;
    if (this.isRunning || !this.moveIn(inputs)) return undefined;
    const taken: Block[] = [];
    const take = (bytes: number): Block | undefined => {
      const block = memory.allocate(bytes);
      if (block) taken.push(block);
      return block;
    };
    const scratch = this.kept ?? take(this.runBytes)?.address;
    const places = this.outputs.map(({ small, type }) => (small ? undefined : take(byteLength(type))));
    if (scratch === undefined || this.outputs.some(({ small }, o) => !small && places[o] === undefined)) {
      for (const block of taken) memory.release(block);
      return undefined;
    }
    // Blocks used by a run are held until its end, so that their addresses stay valid.
    this.fillTable(inputs, scratch, places);
    this.isRunning = true;
    try {
      this.runner.run(undefined);
    } catch (error) {
      for (const block of taken) memory.release(block);
      throw error;
    } finally {
      this.isRunning = false;
    }
    const results = this.outputs.map((output, o): HostData => {
      const block = places[o];
      return block ? memory.adopt(output.type, block) : this.copyOut(output.type, scratch + output.offset);
    });
    if (this.kept === undefined && taken[0]) memory.release(taken[0]);
    return results.map((data, o) => ({ type: at(this.outputs, o).type, data }));
  }

  /** Releases the program's memory; it must not be run again. */
  release(): void {
    this.watched.forget();
    this.memory.release(this.own);
    unloadKernels(this.modules, this.machine.code);
  }

  /** Moves large inputs into the memory permanently; returns whether there was room. */
  private moveIn(inputs: readonly MovableTensor[]): boolean {
    return this.inputs.every(({ small, type }, i) => {
      const tensor = at(inputs, i);
      if (small || this.memory.holds(tensor.data)) return true;
      const moved = this.memory.moveIn(type, tensor.data);
      if (moved) tensor.data = moved;
      return moved !== undefined;
    });
  }

  private fillTable(
    inputs: readonly MovableTensor[],
    scratch: number,
    places: readonly (Block | undefined)[],
  ): void {
    const { table, memory } = this;
    for (const { slot, offset } of this.arena) table[slot] = scratch + offset;
    this.inputs.forEach(({ small, slots, offset }, i) => {
      const { data } = at(inputs, i);
      const address = memory.holds(data) ? data.byteOffset : scratch + offset;
      if (small && !memory.holds(data)) this.copyIn(data, address);
      for (const slot of slots) table[slot] = address;
    });
    this.outputs.forEach(({ small, slots, offset }, o) => {
      const address = small ? scratch + offset : (places[o]?.address ?? 0);
      for (const slot of slots) table[slot] = address;
    });
  }

  private copyIn(data: HostData, address: number): void {
    this.memory.bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), address);
  }

  private copyOut({ dtype, shape }: TensorType, address: number): HostData {
    const data = allocateHost(dtype, sizeOf(shape));
    data.set(viewHost(dtype, this.memory.memory.buffer, address, data.length));
    return data;
  }
}
