import type { CompileOptions, DeviceBuffer, Executable } from "../../ir/engine.js";
import { DisposedError, ValueError } from "../../ir/errors.js";
import { at, formatType, sameType } from "../../ir/shape.js";
import { adoptBuffer, ThreadsBuffer } from "../memory/buffers.js";
import type { Allocation, DeviceMemory } from "../memory/deviceMemory.js";
import { ADDRESS_UNIT, COMMAND } from "../protocol/commands.js";
import type { LoadedProgram } from "./programs.js";
import type { WorkerPool } from "./workerPool.js";

/** One run on one device, before anything is sent. */
interface Launch {
  readonly device: number;
  readonly inputs: readonly ThreadsBuffer[];
  readonly outputs: readonly Allocation[];
  /** Inputs that are overwritten although a download still wants them: they get memory of their own first. */
  readonly copies: readonly { readonly index: number; readonly to: Allocation }[];
}

/** A program that is loaded on the devices of its mesh. */
export class ThreadsExecutable implements Executable {
  private readonly caller: string;
  private readonly donated: readonly boolean[];
  /** For every input the output that takes its memory over. */
  private readonly heirs = new Map<number, number>();
  private released = false;

  /** @param unload makes the devices forget the program */
  constructor(
    private readonly program: LoadedProgram,
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

  /** The number of the program in flight recordings. */
  get id(): number {
    return this.program.id;
  }

  execute(inputs: readonly (readonly DeviceBuffer[])[]): DeviceBuffer[][] {
    if (this.pool.failure) throw this.pool.failure;
    if (this.released)
      throw new DisposedError(`[${this.caller}] this program was released: compile it again`);
    this.pool.keepUp();
    const { devices, compiled } = this.program;
    const launches: Launch[] = [];
    try {
      const checked = this.checkInputs(inputs);
      devices.forEach((device, n) => {
        this.plan(device, at(checked, n), launches);
      });
    } catch (error) {
      for (const launch of launches) this.undo(launch);
      throw error;
    }
    const results = compiled.outputs.map((): DeviceBuffer[] => []);
    for (const launch of launches) {
      this.launch(launch).forEach((buffer, o) => {
        at(results, o).push(buffer);
      });
    }
    return results;
  }

  release(): void {
    if (this.released) return;
    this.released = true;
    this.unload();
  }

  /** For every position the buffers of all inputs. */
  private checkInputs(inputs: readonly (readonly DeviceBuffer[])[]): ThreadsBuffer[][] {
    const { devices, positions, compiled } = this.program;
    if (inputs.length !== compiled.inputs.length) {
      throw new ValueError(
        `[${this.caller}] ${inputs.length} inputs given, the program has ${compiled.inputs.length}`,
      );
    }
    const checked = devices.map((): ThreadsBuffer[] => []);
    const given = new Set<DeviceBuffer>();
    const consumed: DeviceBuffer[] = [];
    inputs.forEach((buffers, i) => {
      if (buffers.length !== devices.length) {
        throw new ValueError(
          `[${this.caller}] input ${i} has ${buffers.length} buffers for ${devices.length} devices`,
        );
      }
      const { type } = at(compiled.inputs, i);
      buffers.forEach((buffer, n) => {
        adoptBuffer(buffer, this.pool, this.caller);
        if (!(buffer instanceof ThreadsBuffer)) return;
        if (buffer.device !== devices[n] || !sameType(buffer.type, type)) {
          throw new ValueError(
            `[${this.caller}] input ${i} at mesh position ${positions[n]} must be ${formatType(type)} on device ` +
              `${devices[n]}, but is ${formatType(buffer.type)} on device ${buffer.device}`,
          );
        }
        at(checked, n).push(buffer);
        if (this.donated[i]) consumed.push(buffer);
        else given.add(buffer);
      });
    });
    for (const buffer of consumed) {
      if (given.has(buffer)) {
        throw new ValueError(
          `[${this.caller}] a donated buffer of ${formatType(buffer.type)} is given a second time: pass a copy or do not donate it`,
        );
      }
      given.add(buffer);
    }
    return checked;
  }

  private plan(device: number, inputs: readonly ThreadsBuffer[], launches: Launch[]): void {
    const memory = at(this.memories, device);
    const outputs: Allocation[] = [];
    const copies: { index: number; to: Allocation }[] = [];
    launches.push({ device, inputs, outputs, copies });
    const { compiled } = this.program;
    compiled.outputs.forEach((output, o) => {
      if (output.inputIndex !== undefined) return;
      const what = () => `output ${o} (${formatType(output.type)})`;
      outputs.push(memory.allocate(output.bytes, this.caller, what));
    });
    compiled.inputs.forEach((input, index) => {
      if (!input.overwritten && !this.heirs.has(index)) return;
      if (at(inputs, index).allocation?.readers === 0) return;
      const what = () => `a copy of donated input ${index} (${formatType(input.type)}), which is being read`;
      copies.push({ index, to: memory.allocate(input.bytes, this.caller, what) });
    });
  }

  private undo({ device, outputs, copies }: Launch): void {
    const memory = at(this.memories, device);
    for (const allocation of outputs) memory.release(allocation);
    for (const { to } of copies) memory.release(to);
  }

  private launch({ device, inputs, outputs, copies }: Launch): ThreadsBuffer[] {
    const { pool } = this;
    const { id, compiled } = this.program;
    const memory = at(this.memories, device);
    const held = inputs.map((buffer) => adoptBuffer(buffer, pool, this.caller).allocation);
    for (const { index, to } of copies) {
      const from = at(held, index);
      const places = [memory.addressOf(to), memory.addressOf(from), from.block.bytes];
      const words = places.map((bytes) => bytes / ADDRESS_UNIT);
      const command = pool.send(device, [COMMAND.pull, ...words, device, 0]);
      from.lastUse = command;
      inputs[index]?.take();
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
    const number = pool.send(device, command);
    for (const allocation of held) allocation.lastUse = number;
    for (const allocation of results) allocation.lastUse = number;
    this.donated.forEach((donated, i) => {
      if (!donated && !this.heirs.has(i)) return;
      inputs[i]?.take();
      if (!this.heirs.has(i)) memory.release(at(held, i));
    });
    return results.map(
      (allocation, o) => new ThreadsBuffer(at(compiled.outputs, o).type, device, allocation, number, pool),
    );
  }
}
