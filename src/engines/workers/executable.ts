import type { CompileOptions } from "../../ir/engine.js";
import { at, formatType } from "../../ir/shape.js";
import { ThreadsBuffer } from "../memory/buffers.js";
import type { Allocation, DeviceMemory } from "../memory/deviceMemory.js";
import { ADDRESS_UNIT, COMMAND, pullCommand } from "../protocol/commands.js";
import type { LoadedProgram as Loaded, Rows } from "../shell.js";
import type { WorkerProgram } from "./programs.js";
import type { WorkerPool } from "./workerPool.js";

/** One run on one device, before anything has been sent. */
interface Launch {
  /** The engine's number of the device. */
  readonly number: number;
  /** Its number among those of this process. */
  readonly device: number;
  readonly inputs: readonly ThreadsBuffer[];
  readonly outputs: readonly Allocation[];
  /** Inputs that are overwritten although a download still needs them: they get new memory first. */
  readonly copies: readonly { readonly index: number; readonly to: Allocation }[];
}

/** A program loaded on the devices of its mesh. */
export class ThreadsExecutable implements Loaded<ThreadsBuffer> {
  private readonly caller: string;
  private readonly donated: readonly boolean[];
  /** The output that reuses each input's memory. */
  private readonly heirs = new Map<number, number>();

  /**
   * @param owner the engine whose buffers it makes
   * @param unload removes the program from the devices
   */
  constructor(
    private readonly owner: object,
    private readonly program: WorkerProgram,
    options: CompileOptions,
    private readonly pool: WorkerPool,
    private readonly memories: readonly DeviceMemory[],
    private readonly unload: () => void,
  ) {
    this.caller = `execute ${JSON.stringify(program.name)}`;
    const { inputs, outputs } = program.compiled;
    this.donated = inputs.map((_, i) => options.donated?.[i] ?? false);
    outputs.forEach(({ inputIndex }, o) => {
      if (inputIndex !== undefined) this.heirs.set(inputIndex, o);
    });
  }

  /** The engine's numbers of its devices in this process. */
  get devices(): readonly number[] {
    const { numbers, positions } = this.program;
    return positions.map((position) => at(numbers, position));
  }

  /** The number of the program in flight recordings. */
  get id(): number {
    return this.program.id;
  }

  start(inputs: Rows<ThreadsBuffer>): ThreadsBuffer[][] {
    this.pool.keepUp();
    const { devices, numbers, positions, compiled } = this.program;
    const launches: Launch[] = [];
    try {
      devices.forEach((device, n) => {
        const own = inputs.map((row) => at(row, n));
        this.plan(at(numbers, at(positions, n)), device, own, launches);
      });
    } catch (error) {
      for (const launch of launches) this.undo(launch);
      throw error;
    }
    const results = compiled.outputs.map((): ThreadsBuffer[] => []);
    for (const launch of launches) {
      this.launch(launch).forEach((buffer, o) => {
        at(results, o).push(buffer);
      });
    }
    return results;
  }

  release(): void {
    this.unload();
  }

  private plan(number: number, device: number, inputs: readonly ThreadsBuffer[], launches: Launch[]): void {
    const memory = at(this.memories, device);
    const outputs: Allocation[] = [];
    const copies: { index: number; to: Allocation }[] = [];
    launches.push({ number, device, inputs, outputs, copies });
    const { compiled } = this.program;
    compiled.outputs.forEach((output, o) => {
      if (output.inputIndex !== undefined) return;
      const what = () => `output ${o} (${formatType(output.type)})`;
      outputs.push(memory.allocate(output.bytes, this.caller, what));
    });
    compiled.inputs.forEach((input, index) => {
      if (!input.overwritten && !this.heirs.has(index)) return;
      if (at(inputs, index).allocation.readers === 0) return;
      const what = () => `a copy of donated input ${index} (${formatType(input.type)}), which is being read`;
      copies.push({ index, to: memory.allocate(input.bytes, this.caller, what) });
    });
  }

  private undo({ device, outputs, copies }: Launch): void {
    const memory = at(this.memories, device);
    for (const allocation of outputs) memory.release(allocation);
    for (const { to } of copies) memory.release(to);
  }

  private launch({ number, device, inputs, outputs, copies }: Launch): ThreadsBuffer[] {
    const { pool } = this;
    const { id, compiled } = this.program;
    const memory = at(this.memories, device);
    const held = inputs.map(({ allocation }) => allocation);
    for (const { index, to } of copies) {
      const from = at(held, index);
      const [target, source] = [memory.addressOf(to), memory.addressOf(from)];
      const pull = { target, source, bytes: from.block.bytes, peer: device, after: 0 };
      const command = pool.send(device, pullCommand(pull));
      from.lastUse = command;
      memory.release(from);
      held[index] = to;
    }
    const command: number[] = [COMMAND.run, id];
    for (const allocation of held) command.push(memory.addressOf(allocation) / ADDRESS_UNIT);
    let next = 0;
    const results = compiled.outputs.map(({ inputIndex }) =>
      inputIndex === undefined ? at(outputs, next++) : at(held, inputIndex),
    );
    for (const allocation of results) command.push(memory.addressOf(allocation) / ADDRESS_UNIT);
    const sent = pool.send(device, command);
    for (const allocation of held) allocation.lastUse = sent;
    for (const allocation of results) allocation.lastUse = sent;
    this.donated.forEach((donated, i) => {
      if (donated && !this.heirs.has(i)) memory.release(at(held, i));
    });
    return results.map((allocation, o) => {
      const { type } = at(compiled.outputs, o);
      return new ThreadsBuffer(this.owner, type, number, memory, allocation, sent);
    });
  }
}
