import type { CompileOptions, DeviceBuffer, Executable } from "../../ir/engine.js";
import { DisposedError, ValueError } from "../../ir/errors.js";
import type { Program } from "../../ir/program.js";
import { at, formatType, range, sameType, type TensorType } from "../../ir/shape.js";
import type { XlaBuffer } from "./buffers.js";
import type { XlaProgram, XlaRun } from "./client.js";

/** What an executable needs of its engine. */
export interface Host<A> {
  checkOpen(caller: string): void;
  own(buffer: DeviceBuffer, caller: string): XlaBuffer<A>;
  newBuffer(type: TensorType, device: number): XlaBuffer<A>;
  /** Whether nothing waits, and a start that takes so many milliseconds may happen on the calling thread. */
  mayStart(milliseconds: number): boolean;
  /** Runs something after everything that was asked for before. */
  enqueue(task: () => Promise<void>): void;
  /** Follows a run until it is over. */
  follow(name: string, devices: readonly number[], run: XlaRun<A>): void;
}

/** A program of an XLA engine; it may still be compiling. */
export class XlaExecutable<A> implements Executable {
  private readonly name: string;
  private readonly devices: readonly number[];
  private readonly donated: readonly boolean[];
  private loaded: XlaProgram<A> | undefined;
  private released = false;
  private numWaiting = 0;
  /** How long a start took last while nothing else was under way; nothing is known of it before the first. */
  private startMs = Number.POSITIVE_INFINITY;

  constructor(
    private readonly host: Host<A>,
    private readonly program: Program,
    options: CompileOptions,
    private readonly compiling: Promise<XlaProgram<A>>,
  ) {
    this.name = options.name ?? "program";
    this.devices = options.devices;
    this.donated = options.donated ?? [];
    compiling.then(
      (loaded) => {
        this.loaded = loaded;
        this.settle();
      },
      () => {},
    );
  }

  execute(inputs: readonly (readonly DeviceBuffer[])[]): DeviceBuffer[][] {
    const { host, devices, program } = this;
    host.checkOpen("execute");
    if (this.released) throw new DisposedError(`[execute] ${this.name} was released: compile it again`);
    const rows = this.checkInputs(inputs);
    const outputs = program.outputs.map(({ type }) =>
      devices.map((device) => host.newBuffer({ dtype: type.dtype, shape: type.shape }, device)),
    );
    const kept = this.keptArguments(rows);
    for (const buffer of rows.flat()) buffer.beginRead();
    for (const [i, row] of rows.entries()) {
      if (this.donated[i] && !kept.includes(i)) for (const buffer of row) buffer.dispose("donated");
    }
    const isReady = rows.every((row) => row.every(({ array }) => array !== undefined));
    if (isReady && this.loaded?.executeNow && host.mayStart(this.startMs)) {
      this.startNow(this.loaded, rows, kept, outputs);
    } else {
      this.numWaiting++;
      host.enqueue(() => this.startLater(rows, kept, outputs));
    }
    return outputs;
  }

  release(): void {
    this.released = true;
    this.settle();
  }

  /** Gives the program back when nobody can run it and no run waits to be started. */
  private settle(): void {
    if (!this.released || this.numWaiting > 0) return;
    this.loaded?.destroy();
    this.loaded = undefined;
  }

  private checkInputs(inputs: readonly (readonly DeviceBuffer[])[]): XlaBuffer<A>[][] {
    const { program, devices, name } = this;
    if (inputs.length !== program.inputs.length) {
      throw new ValueError(
        `[execute] ${name} takes ${program.inputs.length} inputs, ${inputs.length} were given`,
      );
    }
    return inputs.map((row, i) => {
      const { type } = at(program.inputs, i);
      if (row.length !== devices.length) {
        throw new ValueError(
          `[execute] ${name}: input ${i} has ${row.length} buffers for ${devices.length} devices`,
        );
      }
      return row.map((given, position) => {
        const buffer = this.host.own(given, "execute");
        if (!sameType(buffer.type, type)) {
          throw new ValueError(
            `[execute] ${name}: input ${i} is ${formatType(buffer.type)} but must be ${formatType(type)}`,
          );
        }
        if (buffer.device === devices[position]) return buffer;
        throw new ValueError(
          `[execute] ${name}: input ${i} at mesh position ${position} lies on device ${buffer.device}, ` +
            `not on device ${devices[position]}: transfer it first`,
        );
      });
    });
  }

  /** Donated arguments that are given a second time, which XLA would refuse to overwrite. */
  private keptArguments(rows: readonly (readonly XlaBuffer<A>[])[]): number[] {
    if (!this.donated.includes(true)) return [];
    const uses = new Map<XlaBuffer<A>, number>();
    for (const buffer of rows.flat()) uses.set(buffer, (uses.get(buffer) ?? 0) + 1);
    return range(rows.length).filter(
      (i) => this.donated[i] && at(rows, i).some((buffer) => (uses.get(buffer) ?? 0) > 1),
    );
  }

  private startNow(
    loaded: XlaProgram<A>,
    rows: readonly (readonly XlaBuffer<A>[])[],
    kept: readonly number[],
    outputs: readonly (readonly XlaBuffer<A>[])[],
  ): void {
    const begin = performance.now();
    try {
      const run = loaded.executeNow?.(this.arguments(rows), kept);
      if (run) this.deliver(run, outputs);
    } catch (error) {
      fail(outputs, error);
    }
    this.startMs = performance.now() - begin;
    this.finish(rows, kept);
  }

  private async startLater(
    rows: readonly (readonly XlaBuffer<A>[])[],
    kept: readonly number[],
    outputs: readonly (readonly XlaBuffer<A>[])[],
  ): Promise<void> {
    try {
      const loaded = await this.compiling;
      const begin = performance.now();
      const run = await loaded.execute(this.arguments(rows), kept);
      // Behind other runs a start may wait for them, which says nothing about itself.
      this.startMs = Math.min(this.startMs, performance.now() - begin);
      this.deliver(run, outputs);
    } catch (error) {
      fail(outputs, error);
    }
    this.numWaiting--;
    this.finish(rows, kept);
    this.settle();
  }

  /** For every replica its arguments; an input that was never made fails the run for the same reason. */
  private arguments(rows: readonly (readonly XlaBuffer<A>[])[]): A[][] {
    return this.devices.map((_, position) =>
      rows.map((row) => {
        const { array, failure } = at(row, position);
        if (array === undefined) throw failure;
        return array;
      }),
    );
  }

  private deliver(run: XlaRun<A>, outputs: readonly (readonly XlaBuffer<A>[])[]): void {
    for (const [o, row] of outputs.entries()) {
      for (const [position, buffer] of row.entries()) {
        buffer.written = run.done;
        buffer.hurry = run.hurry;
        buffer.fulfil(at(at(run.outputs, position), o));
      }
    }
    this.host.follow(this.name, this.devices, run);
  }

  private finish(rows: readonly (readonly XlaBuffer<A>[])[], kept: readonly number[]): void {
    for (const buffer of rows.flat()) buffer.endRead();
    for (const i of kept) for (const buffer of at(rows, i)) buffer.dispose("donated");
  }
}

function fail<A>(outputs: readonly (readonly XlaBuffer<A>[])[], error: unknown): void {
  for (const buffer of outputs.flat()) {
    buffer.written = Promise.reject(error);
    buffer.written.catch(() => {});
    buffer.fulfil(undefined, error);
  }
}
