import { runHostStep } from "../../compiler/kernel/hostKernels.js";
import { kernelImports } from "../../compiler/kernel/kernelLibrary.js";
import type { CompiledProgram, GemmStep } from "../../compiler/steps.js";
import { allocateHost, type HostData, viewHost } from "../../ir/dtype.js";
import { type Watch, watch } from "../../ir/reclaim.js";
import { at, range, sizeOf, type TensorType } from "../../ir/shape.js";
import type { ActionHost } from "../devices/stepActions.js";
import type { LoadedModule } from "../kernels/loadKernels.js";
import { loadKernels, unloadKernels } from "../kernels/loadKernels.js";
import { bindKernels } from "../kernels/nativeKernels.js";
import type { MovableTensor } from "../localEngine.js";
import { type Block, roundUp } from "../memory/heap.js";
import type { HostTensor } from "../reference/hostTensor.js";
import type { Rows } from "../shell.js";
import type { InlineMachine } from "./inlineMachine.js";
import { byteLength, type InlineMemory } from "./inlineMemory.js";

/**
 * Values smaller than this many bytes stay in JavaScript arrays, which are cheap to create and to collect, and are
 * copied into and out of the memory for every run; copying that little costs less than tracking a block.
 */
const SMALL_BYTES = 4096;

/** Programs whose runs need at most this many bytes besides large values keep them allocated between runs. */
const KEPT_BYTES = 16_384;

/** A value whose address a run writes into a slot of the address table. */
interface Argument {
  readonly type: TensorType;
  readonly slots: readonly number[];
  readonly small: boolean;
  /** Where a small value lies in the memory of a device's run. */
  readonly offset: number;
}

const isSmall = (type: TensorType): boolean => byteLength(type) < SMALL_BYTES;

/** The number of bytes that a value takes in the memory of a run. */
const smallBytes = (type: TensorType): number => (isSmall(type) ? roundUp(byteLength(type)) : 0);

/** What a run has taken of the memory. */
export interface Taken {
  readonly blocks: readonly Block[];
  /** Where the memory of the run begins, device after device. */
  readonly scratch: number;
  /** For every output and device where it is written, unless it is small. */
  readonly places: readonly (readonly (Block | undefined)[])[];
}

/**
 * A program of one or several devices whose kernels can be called on this thread. A run takes its memory
 * ({@link InlineProgram.begin}), calls `steps`, and ends by {@link InlineProgram.finish} or {@link InlineProgram.giveUp}.
 *
 * @typeParam Ran what `steps` returns
 */
export class InlineProgram<Ran = void> {
  readonly steps: () => Ran;
  /** The address table of each device. */
  private readonly tables: readonly Uint32Array[];
  private readonly inputs: readonly Argument[];
  private readonly outputs: readonly Argument[];
  private readonly arena: readonly { readonly slot: number; readonly offset: number }[];
  /** The bytes that a device needs in a run besides large values: small values and intermediate values. */
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
    private readonly machine: InlineMachine<Ran>,
    private readonly numDevices: number,
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
    const firstTable = constants + roundUp(compiled.constants.byteLength);
    const tableBytes = roundUp(4 * slots.length);
    const addresses = range(numDevices).map((position) => firstTable + position * tableBytes);
    this.tables = addresses.map((address) => new Uint32Array(buffer, address, slots.length));
    slots.forEach((slot, i) => {
      if (slot.kind === "constant") for (const table of this.tables) table[i] = constants + slot.offset;
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
    const end = firstTable + numDevices * tableBytes;
    this.kept = end + numDevices * offset <= own.address + own.bytes ? end : undefined;
    const imports = kernelImports(memory.memory);
    const kernels = modules.map((module) => bindKernels(module, imports, memory.memory));
    const devices = this.tables.map((table, position) => ({
      table,
      tableAddress: at(addresses, position),
      constantsAddress: constants,
      kernels,
      memory: memory.memory,
      position,
      copy: (target: number, source: number, bytes: number) => memory.copy(target, source, bytes),
      prepareGemm: (step: GemmStep) => machine.prepareGemm(step),
      runHostStep: (...[step, table]: Parameters<ActionHost["runHostStep"]>) =>
        runHostStep(step, table, buffer),
    }));
    this.steps = machine.prepareSteps(compiled, devices);
    this.watched = watch(this, () => {
      memory.release(own);
      unloadKernels(modules, code);
    });
  }

  /** Prepares a program; undefined if there is no memory for its constants. */
  static load<Ran>(
    compiled: CompiledProgram,
    machine: InlineMachine<Ran>,
    numDevices: number,
  ): InlineProgram<Ran> | undefined {
    const bytes = roundUp(compiled.constants.byteLength) + numDevices * roundUp(4 * compiled.slots.length);
    const runBytes =
      numDevices *
      [...compiled.inputs, ...compiled.outputs].reduce(
        (sum, { type }) => sum + smallBytes(type),
        roundUp(compiled.arenaBytes),
      );
    const own = machine.memory.allocate(bytes + (runBytes <= KEPT_BYTES ? runBytes : 0));
    return own && new InlineProgram(compiled, machine, numDevices, own);
  }

  /**
   * Begins a run; undefined if there is no memory for its values, or while the program is already running.
   *
   * @param inputs for every input one tensor per device; large ones are moved into the memory
   */
  begin(inputs: Rows<MovableTensor>): Taken | undefined {
    const taken = this.isRunning || !this.moveIn(inputs) ? undefined : this.take();
    if (taken === undefined) return undefined;
    // Blocks used by a run are held until its end, so that their addresses stay valid.
    for (let position = 0; position < this.numDevices; position++) this.fillTable(position, inputs, taken);
    this.isRunning = true;
    return taken;
  }

  /** Releases the program's memory; it must not be run again. */
  release(): void {
    this.watched.forget();
    this.memory.release(this.own);
    unloadKernels(this.modules, this.machine.code);
  }

  /** Takes the memory of a run; undefined if there is not enough. */
  private take(): Taken | undefined {
    const { memory, numDevices } = this;
    const blocks: Block[] = [];
    const take = (bytes: number): Block | undefined => {
      const block = memory.allocate(bytes);
      if (block) blocks.push(block);
      return block;
    };
    const scratch = this.kept ?? take(numDevices * this.runBytes)?.address;
    const places = this.outputs.map(({ small, type }) =>
      this.tables.map(() => (small ? undefined : take(byteLength(type)))),
    );
    const isWhole = this.outputs.every(({ small }, o) => small || !at(places, o).includes(undefined));
    if (scratch !== undefined && isWhole) return { blocks, scratch, places };
    for (const block of blocks) memory.release(block);
    return undefined;
  }

  /** The results of a run whose steps have run: for every output one tensor per device. */
  finish({ blocks, scratch, places }: Taken): HostTensor[][] {
    const { memory } = this;
    this.isRunning = false;
    const results = this.outputs.map((output, o) =>
      at(places, o).map((block, position) => {
        const address = scratch + position * this.runBytes + output.offset;
        const data = block ? memory.adopt(output.type, block) : this.copyOut(output.type, address);
        return { type: output.type, data };
      }),
    );
    if (this.kept === undefined && blocks[0]) memory.release(blocks[0]);
    return results;
  }

  /** Ends a run that has failed. */
  giveUp({ blocks }: Taken): void {
    this.isRunning = false;
    for (const block of blocks) this.memory.release(block);
  }

  /** Moves large inputs into the memory permanently; returns whether there was room. */
  private moveIn(inputs: Rows<MovableTensor>): boolean {
    return this.inputs.every(({ small, type }, i) =>
      at(inputs, i).every((tensor) => {
        if (small || this.memory.holds(tensor.data)) return true;
        const moved = this.memory.moveIn(type, tensor.data);
        if (moved) tensor.data = moved;
        return moved !== undefined;
      }),
    );
  }

  private fillTable(position: number, inputs: Rows<MovableTensor>, { scratch, places }: Taken): void {
    const { memory } = this;
    const table = at(this.tables, position);
    const base = scratch + position * this.runBytes;
    for (const { slot, offset } of this.arena) table[slot] = base + offset;
    this.inputs.forEach(({ small, slots, offset }, i) => {
      const { data } = at(at(inputs, i), position);
      const address = memory.holds(data) ? data.byteOffset : base + offset;
      if (small && !memory.holds(data)) this.copyIn(data, address);
      for (const slot of slots) table[slot] = address;
    });
    this.outputs.forEach(({ slots, offset }, o) => {
      const address = at(places, o)[position]?.address ?? base + offset;
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

/** Runs a program whose steps do not wait; undefined if that is not possible now. */
export function runNow(program: InlineProgram, inputs: Rows<MovableTensor>): HostTensor[][] | undefined {
  const taken = program.begin(inputs);
  if (taken === undefined) return undefined;
  try {
    program.steps();
  } catch (error) {
    program.giveUp(taken);
    throw error;
  }
  return program.finish(taken);
}
