import type { CompileOptions } from "../../ir/engine.js";
import type { Program } from "../../ir/program.js";
import { at, type TensorType } from "../../ir/shape.js";
import type { LoadedProgram, Rows } from "../shell.js";
import type { XlaBuffer } from "./buffers.js";
import type { XlaProgram, XlaRun } from "./xlaClient.js";

/** What an executable needs from its engine. */
export interface Host<A> {
  newBuffer(type: TensorType, device: number): XlaBuffer<A>;
  /** Whether nothing is queued and a start that takes this many milliseconds may happen on the calling thread. */
  mayStart(milliseconds: number): boolean;
  /** Waits until a start that takes this many milliseconds may happen on the calling thread; false if it never may. */
  turn(milliseconds: number): Promise<boolean>;
  /** Runs something after everything that was requested before; settles after it. */
  enqueue(task: () => Promise<void>): Promise<void>;
  /** The program has been released, so closing the engine need not release it. */
  forget(executable: XlaExecutable<A>): void;
  /** Tracks a run until it has finished. */
  follow(name: string, devices: readonly number[], run: XlaRun<A>): void;
}

/** A program of an XLA engine; it may still be compiling. */
export class XlaExecutable<A> implements LoadedProgram<XlaBuffer<A>> {
  private readonly name: string;
  private readonly devices: readonly number[];
  private readonly outTypes: readonly TensorType[];
  private loaded: XlaProgram<A> | undefined;
  private released = false;
  private numWaiting = 0;
  /** How long the last start took while no other run was in flight; undefined before the first. */
  private startMs = Number.POSITIVE_INFINITY;

  constructor(
    private readonly host: Host<A>,
    program: Program,
    options: CompileOptions,
    private readonly compiling: Promise<XlaProgram<A>>,
  ) {
    this.name = options.name ?? "program";
    this.devices = options.devices;
    this.outTypes = program.outputs.map(({ type }) => ({ dtype: type.dtype, shape: type.shape }));
    compiling.then(
      (loaded) => {
        this.loaded = loaded;
        this.settle();
      },
      () => {},
    );
  }

  start(rows: Rows<XlaBuffer<A>>): XlaBuffer<A>[][] {
    const { host, devices } = this;
    const outputs = this.outTypes.map((type) => devices.map((device) => host.newBuffer(type, device)));
    let isReady = true;
    for (const row of rows) {
      for (const buffer of row) {
        buffer.beginRead();
        if (buffer.array === undefined) isReady = false;
      }
    }
    if (isReady && this.loaded?.executeNow && host.mayStart(this.startMs)) {
      this.startNow(this.loaded, rows, outputs);
    } else {
      this.numWaiting++;
      const queued = host.enqueue(() => this.startLater(rows, outputs));
      for (const row of outputs) for (const buffer of row) buffer.queued = queued;
    }
    return outputs;
  }

  release(): void {
    this.released = true;
    this.host.forget(this);
    this.settle();
  }

  /** Releases the program once it can no longer be run and no run is waiting to start. */
  private settle(): void {
    if (!this.released || this.numWaiting > 0) return;
    this.loaded?.destroy();
    this.loaded = undefined;
  }

  private startNow(loaded: XlaProgram<A>, rows: Rows<XlaBuffer<A>>, outputs: Rows<XlaBuffer<A>>): void {
    try {
      this.startHere(loaded, rows, outputs);
    } catch (error) {
      fail(outputs, error);
    }
    this.finish(rows);
  }

  private async startLater(rows: Rows<XlaBuffer<A>>, outputs: Rows<XlaBuffer<A>>): Promise<void> {
    try {
      const loaded = await this.compiling;
      const isHere = loaded.executeNow !== undefined && (await this.host.turn(this.startMs));
      if (isHere) this.startHere(loaded, rows, outputs);
      else await this.startAway(loaded, rows, outputs);
    } catch (error) {
      fail(outputs, error);
    }
    this.numWaiting--;
    this.finish(rows);
    this.settle();
  }

  private startHere(loaded: XlaProgram<A>, rows: Rows<XlaBuffer<A>>, outputs: Rows<XlaBuffer<A>>): void {
    const begin = performance.now();
    const run = loaded.executeNow?.(this.arguments(rows));
    this.startMs = performance.now() - begin;
    if (run) this.deliver(run, outputs);
  }

  private async startAway(
    loaded: XlaProgram<A>,
    rows: Rows<XlaBuffer<A>>,
    outputs: Rows<XlaBuffer<A>>,
  ): Promise<void> {
    const begin = performance.now();
    const run = await loaded.execute(this.arguments(rows));
    // A start may block on runs in flight, so its duration says nothing then.
    this.startMs = Math.min(this.startMs, performance.now() - begin);
    this.deliver(run, outputs);
  }

  /** The arguments of every replica; an input that failed to compute fails the run for the same reason. */
  private arguments(rows: Rows<XlaBuffer<A>>): A[][] {
    return this.devices.map((_, position) =>
      rows.map((row) => {
        const { array, failure } = at(row, position);
        if (array === undefined) throw failure;
        return array;
      }),
    );
  }

  private deliver(run: XlaRun<A>, outputs: Rows<XlaBuffer<A>>): void {
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

  private finish(rows: Rows<XlaBuffer<A>>): void {
    for (const row of rows) for (const buffer of row) buffer.endRead();
  }
}

function fail<A>(outputs: Rows<XlaBuffer<A>>, error: unknown): void {
  for (const row of outputs) for (const buffer of row) buffer.fail(error);
}
