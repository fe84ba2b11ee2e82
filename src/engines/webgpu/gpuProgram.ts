import type { GpuProgram } from "../../compiler/compileForGpu.js";
import type { StepInfo } from "../../compiler/steps.js";
import { ShaderSlabs } from "../../compiler/wgsl/shaderSlabs.js";
import { getOrInsert } from "../../ir/collections.js";
import { byteSize } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";
import { at, range } from "../../ir/shape.js";
import { OutOfMemoryError } from "../errors.js";
import {
  type Action,
  ActionBuilder,
  type Dispatch,
  type GroupDispatches,
  groupDispatches,
  Params,
  type Prepared,
} from "./actions.js";
import { expectedDispatches } from "./expectedDispatches.js";
import { USAGE } from "./gpu.js";
import type { Machine } from "./gpuMachine.js";
import type { GpuBlock } from "./gpuMemory.js";

/**
 * A program on a GPU: its actions on the positions of the mesh that the GPU has, their parameters, and the address table.
 */
export class MachineProgram {
  /** The actions of every position; none of those on other GPUs. */
  readonly actions: readonly (readonly Action[])[];
  /** For every collective, by the positions that the GPU has: what it does for their group. */
  readonly collectives: readonly ReadonlyMap<number, GroupDispatches>[];
  readonly table: GPUBuffer;
  /** Slots of a position, with one more for values that the host reads. */
  readonly slotsPerPosition: number;
  /** Slots of all positions and of copies from other GPUs. */
  readonly numSlots: number;
  readonly params: GPUBuffer;
  private readonly constants: GpuBlock;
  /** Memory for copies of what devices on other GPUs send, by the slots that lead there. */
  private readonly guests: ReadonlyMap<number, GpuBlock>;
  private readonly bindGroups = new Map<string, GPUBindGroup>();
  /** What the address table holds, where that is known. */
  private tableWords: Uint32Array | undefined;
  /** Whether shaders change the address table. */
  private readonly changesTable: boolean;
  /** The slabs of the slots in the last run. */
  private compiledFor: Uint16Array | undefined;

  /**
   * @param devices the devices of all positions
   * @param positions those that the GPU has
   */
  constructor(
    readonly program: GpuProgram,
    readonly machine: Machine,
    readonly devices: readonly number[],
    readonly positions: readonly number[] = range(devices.length),
  ) {
    const { compiled } = program;
    const { device, facts, largeTile } = machine.gpu;
    this.slotsPerPosition = compiled.slots.length + 1;
    const params = new Params(Math.max(256, facts.limits.minUniformBufferOffsetAlignment));
    const setting = {
      isSoftware: facts.isSoftware,
      subgroupSize: facts.subgroupSize,
      sharedBytes: facts.limits.maxComputeWorkgroupStorageSize,
      matrices: facts.matrices,
      largeTile,
    };
    const isHere = (position: number) => positions.includes(position);
    this.actions = devices.map((_, position) => {
      if (!isHere(position)) return [];
      const first = this.firstSlot(position);
      const fetched = first + compiled.slots.length;
      return new ActionBuilder(program, params, position, first, fetched, setting).steps(compiled.steps);
    });
    const plan = {
      isHere,
      firstSlot: (position: number) => this.firstSlot(position),
      guestSlot: (member: number) => this.firstSlot(devices.length) + member,
    };
    this.collectives = compiled.collectives.map((spec) => {
      const groups = spec.groups.map((group) => {
        const here = group.filter(isHere);
        if (here.length === 0) return [];
        const meeting = groupDispatches(spec, group, params, plan, setting);
        return here.map((position) => [position, meeting] as const);
      });
      return new Map(groups.flat());
    });
    this.guests = this.roomForGuests();
    this.numSlots = Math.max(this.firstSlot(devices.length) - 1, ...this.guests.keys()) + 1;
    const words = params.toWords();
    this.params = device.createBuffer({ size: words.byteLength, usage: USAGE.uniform | USAGE.copyTarget });
    device.queue.writeBuffer(this.params, 0, words);
    this.table = device.createBuffer({
      size: 4 * Math.max(1, this.numSlots),
      usage: USAGE.storage | USAGE.copySource | USAGE.copyTarget,
    });
    this.changesTable = this.actions.some((own, position) => {
      const slabs = new Uint16Array(this.numSlots);
      const all = [...expectedDispatches(own, this.collectivesOf(position), slabs)];
      return all.some(({ writesTable }) => writesTable);
    });
    this.constants = machine.memory.allocate(compiled.constants.byteLength);
    machine.upload(this.constants, compiled.constants);
  }

  private collectivesOf(position: number): readonly (readonly Dispatch[])[] {
    return this.collectives.map((all) => all.get(position)?.dispatches ?? []);
  }

  /** Memory for the largest copy that each slot of a guest leads to. */
  private roomForGuests(): ReadonlyMap<number, GpuBlock> {
    const sizes = new Map<number, number>();
    this.program.compiled.collectives.forEach((spec, i) => {
      const bytes = spec.elements * byteSize(spec.dtype);
      for (const { guests } of at(this.collectives, i).values())
        for (const { slot } of guests) sizes.set(slot, Math.max(bytes, sizes.get(slot) ?? 0));
    });
    const allocate = (bytes: number) => this.machine.memory.allocate(bytes, "copies from other GPUs");
    return new Map([...sizes].map(([slot, bytes]) => [slot, allocate(bytes)]));
  }

  /** Memory for a copy of what a device on another GPU sends. */
  guest(slot: number): GpuBlock {
    const block = this.guests.get(slot);
    if (block === undefined) throw new InternalError(`[webgpu] slot ${slot} leads to no copy`);
    return block;
  }

  /** Writes the address table, unless it holds these words since the last run. */
  writeTable(words: Uint32Array<ArrayBuffer>): void {
    const { tableWords } = this;
    if (tableWords && words.every((word, slot) => word === tableWords[slot])) return;
    this.machine.write(this.table, 0, words);
    this.tableWords = this.changesTable ? undefined : words;
  }

  /** Where the slots of a position begin in the table. */
  firstSlot(position: number): number {
    return position * this.slotsPerPosition;
  }

  /** Fills the slots of copies from other GPUs, as {@link fillSlots} does those of a position. */
  fillGuests(words: Uint32Array, slabs: Uint16Array): void {
    for (const [slot, { address, slab }] of this.guests) {
      words[slot] = address;
      slabs[slot] = slab;
    }
  }

  /**
   * Fills the slots of a position.
   *
   * @param words the addresses of all slots
   * @param slabs the slabs of all slots
   */
  fillSlots(
    position: number,
    words: Uint32Array,
    slabs: Uint16Array,
    inputs: readonly GpuBlock[],
    outputs: readonly (GpuBlock | undefined)[],
  ): void {
    const { compiled } = this.program;
    const arena = this.machine.arena(
      at(this.devices, position),
      compiled.arenaPages ?? [compiled.arenaBytes],
    );
    const first = this.firstSlot(position);
    compiled.slots.forEach((base, slot) => {
      const block =
        base.kind === "arena"
          ? arena[base.page ?? 0]
          : base.kind === "constant"
            ? this.constants
            : base.kind === "input"
              ? at(inputs, base.index)
              : base.kind === "output"
                ? outputs[base.index]
                : undefined;
      // The offset of a page is that in the whole arena, but pages are blocks of their own.
      const offset = base.kind === "constant" ? base.offset : 0;
      words[first + slot] = (block?.address ?? 0) + offset;
      slabs[first + slot] = block?.slab ?? 0;
    });
  }

  /**
   * Compiles what a run will need, all shaders at once, so that the driver's threads share them. The slabs of the slots
   * decide which shaders these are; nothing is left to do where the last run had the same.
   *
   * @returns a promise if the run has to wait
   */
  compile(slabs: Uint16Array): Promise<unknown> | undefined {
    const { compiledFor } = this;
    if (slabs.every((slab, slot) => slab === compiledFor?.[slot])) return undefined;
    this.compiledFor = slabs.slice();
    const { shaders } = this.machine;
    const waits = new Set<Promise<void>>();
    for (const [position, actions] of this.actions.entries()) {
      const moved = slabs.slice();
      for (const dispatch of expectedDispatches(actions, this.collectivesOf(position), moved)) {
        const { pipeline, shader } = this.prepare(dispatch, moved);
        const wait = pipeline ? undefined : shaders.compile(shader);
        if (wait) waits.add(wait);
      }
    }
    return waits.size === 0 ? undefined : Promise.all(waits);
  }

  /** What recording a dispatch takes, given the slabs of all slots. */
  prepare(dispatch: Dispatch, slabs: Uint16Array): Prepared {
    let key = "";
    for (const slot of dispatch.slots) key += String.fromCharCode(slabs[slot] ?? 0);
    const prepared = getOrInsert(dispatch.prepared, key, () => {
      const own = dispatch.slots.map((slot) => slabs[slot] ?? 0);
      return this.make(dispatch, own);
    });
    return prepared;
  }

  private make({ shader: write, writesTable, info }: Dispatch, slabs: readonly number[]): Prepared {
    const { shaders, memory, gpu } = this.machine;
    const bound = [...new Set(slabs)];
    const divided = bound.map((slab) => memory.buffers(slab));
    const buffers = divided.flat();
    const { maxStorageBuffersPerShaderStage, maxComputeWorkgroupsPerDimension } = gpu.facts.limits;
    // One of them is the address table.
    if (buffers.length >= maxStorageBuffersPerShaderStage) {
      throw new OutOfMemoryError(
        `[webgpu] the tensors of ${this.describe(info)} lie in ${buffers.length} buffers, but a shader of ${gpu.facts.name} can use ${maxStorageBuffersPerShaderStage - 1} of at most ${memory.largest} bytes: release tensors that are no longer needed, or split the computation into smaller ones`,
      );
    }
    const places = slabs.map((slab) => bound.indexOf(slab));
    const counts = divided.map(({ length }) => length);
    const { code, workgroups } = write(new ShaderSlabs(places, { bytes: memory.largest, counts }));
    const shader = { code, numBuffers: buffers.length, writesTable, what: this.describe(info) };
    const bindGroup = getOrInsert(this.bindGroups, `${bound.join()} ${writesTable}`, () =>
      shaders.bindGroup(this, buffers, writesTable),
    );
    const grid =
      typeof workgroups === "number" ? inGrid(workgroups, maxComputeWorkgroupsPerDimension) : workgroups;
    return { shader, pipeline: undefined, bindGroup, workgroups: grid };
  }

  /** The ops of a step and where the user wrote them. */
  describe(info: number): string {
    const { ops, source }: StepInfo = at(this.program.compiled.infos, info);
    return `${ops.join(" ")}${source ? ` at ${source.text}` : ""} in program ${JSON.stringify(this.program.compiled.name)}`;
  }

  /** Releases its memory once everything that was submitted has run. */
  release(): void {
    this.machine.submit();
    for (const block of [this.constants, ...this.guests.values()]) this.machine.memory.release(block);
    this.params.destroy();
    this.table.destroy();
  }
}

/** Workgroups in two dims where there are too many for one. */
function inGrid(count: number, most: number): readonly [number, number, number] {
  if (count <= most) return [count, 1, 1];
  const rows = Math.ceil(count / most);
  return [Math.ceil(count / rows), rows, 1];
}
