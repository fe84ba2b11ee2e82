import type { CompileOptions, DeviceBuffer, Executable } from "../../ir/engine.js";
import { DisposedError, ValueError } from "../../ir/errors.js";
import { newCounter } from "../../ir/identity.js";
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
  /** Waits until a start that takes so many milliseconds may happen on the calling thread; false where it never may. */
  turn(milliseconds: number): Promise<boolean>;
  /** Runs something after everything that was asked for before. */
  enqueue(task: () => Promise<void>): void;
  /** Follows a run until it is over. */
  follow(name: string, devices: readonly number[], run: XlaRun<A>): void;
}

/** For every input or output of a program its buffers. */
type Rows<A> = readonly (readonly XlaBuffer<A>[])[];

/** A program of an XLA engine; it may still be compiling. */
export class XlaExecutable<A> implements Executable {
  private readonly name: string;
  private readonly devices: readonly number[];
  private readonly donated: readonly boolean[];
  private readonly outTypes: readonly TensorType[];
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
    this.outTypes = program.outputs.map(({ type }) => ({ dtype: type.dtype, shape: type.shape }));
    compiling.then(
      (loaded) => {
        this.loaded = loaded;
        this.settle();
      },
      () => {},
    );
  }

  execute(inputs: readonly (readonly DeviceBuffer[])[]): DeviceBuffer[][] {
    const { host, devices } = this;
    host.checkOpen("execute");
    if (this.released) throw new DisposedError(`[execute] ${this.name} was released: compile it again`);
    this.checkInputs(inputs);
    const rows: Rows<A> = inputs;
    const outputs = this.outTypes.map((type) => devices.map((device) => host.newBuffer(type, device)));
    const kept = this.keptArguments(rows);
    let isReady = true;
    for (let i = 0; i < rows.length; i++) {
      const isTaken = this.donated[i] && !kept.includes(i);
      for (const buffer of at(rows, i)) {
        buffer.beginRead();
        if (isTaken) buffer.dispose("donated");
        if (buffer.array === undefined) isReady = false;
      }
    }
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

  /** Throws unless these are inputs of the program. */
  private checkInputs(inputs: readonly (readonly DeviceBuffer[])[]): asserts inputs is Rows<A> {
    const { program, devices, name } = this;
    if (inputs.length !== program.inputs.length) {
      throw new ValueError(
        `[execute] ${name} takes ${program.inputs.length} inputs, ${inputs.length} were given`,
      );
    }
    for (let i = 0; i < inputs.length; i++) {
      const row = at(inputs, i);
      if (row.length !== devices.length) {
        throw new ValueError(
          `[execute] ${name}: input ${i} has ${row.length} buffers for ${devices.length} devices`,
        );
      }
      for (let position = 0; position < row.length; position++)
        this.checkInput(at(row, position), i, position);
    }
  }

  private checkInput(given: DeviceBuffer, i: number, position: number): void {
    const { devices, name } = this;
    const { type } = at(this.program.inputs, i);
    const buffer = this.host.own(given, "execute");
    if (buffer.type !== type && !sameType(buffer.type, type)) {
      throw new ValueError(
        `[execute] ${name}: input ${i} is ${formatType(buffer.type)} but must be ${formatType(type)}`,
      );
    }
    if (buffer.device === devices[position]) return;
    throw new ValueError(
      `[execute] ${name}: input ${i} at mesh position ${position} lies on device ${buffer.device}, ` +
        `not on device ${devices[position]}: transfer it first`,
    );
  }

  /** Donated arguments that are given a second time, which XLA would refuse to overwrite. */
  private keptArguments(rows: Rows<A>): readonly number[] {
    if (!this.donated.includes(true) || !hasTwice(rows)) return [];
    const uses = new Map<XlaBuffer<A>, number>();
    for (const buffer of rows.flat()) uses.set(buffer, (uses.get(buffer) ?? 0) + 1);
    return range(rows.length).filter(
      (i) => this.donated[i] && at(rows, i).some((buffer) => (uses.get(buffer) ?? 0) > 1),
    );
  }

  private startNow(loaded: XlaProgram<A>, rows: Rows<A>, kept: readonly number[], outputs: Rows<A>): void {
    try {
      this.startHere(loaded, rows, kept, outputs);
    } catch (error) {
      fail(outputs, error);
    }
    this.finish(rows, kept);
  }

  private async startLater(rows: Rows<A>, kept: readonly number[], outputs: Rows<A>): Promise<void> {
    try {
      const loaded = await this.compiling;
      const isHere = loaded.executeNow !== undefined && (await this.host.turn(this.startMs));
      if (isHere) this.startHere(loaded, rows, kept, outputs);
      else await this.startAway(loaded, rows, kept, outputs);
    } catch (error) {
      fail(outputs, error);
    }
    this.numWaiting--;
    this.finish(rows, kept);
    this.settle();
  }

  private startHere(loaded: XlaProgram<A>, rows: Rows<A>, kept: readonly number[], outputs: Rows<A>): void {
    const begin = performance.now();
    const run = loaded.executeNow?.(this.arguments(rows), kept);
    this.startMs = performance.now() - begin;
    if (run) this.deliver(run, outputs);
  }

  private async startAway(
    loaded: XlaProgram<A>,
    rows: Rows<A>,
    kept: readonly number[],
    outputs: Rows<A>,
  ): Promise<void> {
    const begin = performance.now();
    const run = await loaded.execute(this.arguments(rows), kept);
    // Behind other runs a start may wait for them, which says nothing about itself.
    this.startMs = Math.min(this.startMs, performance.now() - begin);
    this.deliver(run, outputs);
  }

  /** For every replica its arguments; an input that was never made fails the run for the same reason. */
  private arguments(rows: Rows<A>): A[][] {
    return this.devices.map((_, position) =>
      rows.map((row) => {
        const { array, failure } = at(row, position);
        if (array === undefined) throw failure;
        return array;
      }),
    );
  }

  private deliver(run: XlaRun<A>, outputs: Rows<A>): void {
    for (let position = 0; position < this.devices.length; position++) {
      const made = at(run.outputs, position);
      for (let o = 0; o < outputs.length; o++) {
        const buffer = at(at(outputs, o), position);
        buffer.run = run;
        buffer.fulfil(at(made, o));
      }
    }
    this.host.follow(this.name, this.devices, run);
  }

  private finish(rows: Rows<A>, kept: readonly number[]): void {
    for (const row of rows) for (const buffer of row) buffer.endRead();
    for (const i of kept) for (const buffer of at(rows, i)) buffer.dispose("donated");
  }
}

const nextLook = newCounter(1);

/** Whether a buffer is there twice, found without making a set of them. */
function hasTwice<A>(rows: Rows<A>): boolean {
  const look = nextLook();
  for (const row of rows) {
    for (const buffer of row) {
      if (buffer.look === look) return true;
      buffer.look = look;
    }
  }
  return false;
}

function fail<A>(outputs: Rows<A>, error: unknown): void {
  for (const row of outputs) for (const buffer of row) buffer.fail(error);
}
