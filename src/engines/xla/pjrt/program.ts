import { InternalError } from "../../../ir/errors.js";
import { at, range } from "../../../ir/shape.js";
import type { XlaProgram, XlaRun } from "../client.js";
import type { Events, Happening } from "./events.js";
import { Handle } from "./handle.js";
import type { Arguments, NativeWords, Plugin } from "./plugin.js";

/** What a program needs of the client that compiled it. */
interface ProgramClient {
  readonly plugin: Plugin;
  readonly events: Events;
}

/** A program that a PJRT plug-in compiled. */
export class PjrtProgram implements XlaProgram<Handle> {
  private readonly loaded: Handle;
  private readonly executable: Handle;
  private readonly numOutputs: number;
  /** What calls are made with that nobody makes now. */
  private readonly frames: ExecuteArguments[] = [];

  constructor(
    private readonly client: ProgramClient,
    loaded: bigint,
    /** The replicas that this process runs. */
    private readonly numReplicas: number,
  ) {
    const { plugin } = client;
    this.loaded = new Handle(loaded, "a program");
    this.executable = this.newExecutable();
    const counted = plugin.args("Executable_NumOutputs").set("executable", this.executable.pointer);
    this.numOutputs = Number(plugin.call("Executable_NumOutputs", counted).get("count"));
  }

  async execute(inputs: readonly (readonly Handle[])[]): Promise<XlaRun<Handle>> {
    const frame = this.frameFor(inputs);
    await this.client.plugin.callAway("LoadedExecutable_Execute", frame.args);
    return this.results(frame);
  }

  executeNow(inputs: readonly (readonly Handle[])[]): XlaRun<Handle> {
    const frame = this.frameFor(inputs);
    this.client.plugin.call("LoadedExecutable_Execute", frame.args);
    return this.results(frame);
  }

  /** The program in a form that can be written to disk; it may be destroyed meanwhile. */
  async serialize(): Promise<Uint8Array> {
    const { plugin } = this.client;
    const executable = this.newExecutable();
    const args = plugin.args("Executable_Serialize").set("executable", executable.pointer);
    try {
      await plugin.callAway("Executable_Serialize", args);
    } finally {
      this.release(executable);
    }
    const bytes = plugin.bytesAt(args.get("data"), args.get("size"));
    plugin.koffi.call(args.get("deleter"), plugin.deleter, args.get("owner"));
    return bytes;
  }

  destroy(): void {
    const { plugin } = this.client;
    this.release(this.executable);
    const loaded = plugin.args("LoadedExecutable_Destroy").set("executable", this.loaded.take());
    plugin.call("LoadedExecutable_Destroy", loaded);
  }

  /** What the plug-in knows of the program; the program lives on as long as one of these does. */
  private newExecutable(): Handle {
    const { plugin } = this.client;
    const args = plugin.args("LoadedExecutable_GetExecutable").set("loaded", this.loaded.pointer);
    return new Handle(plugin.call("LoadedExecutable_GetExecutable", args).get("executable"), "a program");
  }

  private release(executable: Handle): void {
    const { plugin } = this.client;
    const args = plugin.args("Executable_Destroy").set("executable", executable.take());
    plugin.call("Executable_Destroy", args);
  }

  /** A frame that holds the arguments of a call. */
  private frameFor(inputs: readonly (readonly Handle[])[]): ExecuteArguments {
    const { numReplicas, numOutputs } = this;
    const numInputs = at(inputs, 0).length;
    const frame =
      this.frames.pop() ?? new ExecuteArguments(this.client.plugin, numReplicas, numInputs, numOutputs);
    frame.fill(this.loaded.pointer, inputs);
    return frame;
  }

  /** Takes what a call gave out of its frame, which the next call may use then. */
  private results(frame: ExecuteArguments): XlaRun<Handle> {
    const { events } = this.client;
    const outputs = frame.outputs.map(({ words }) => {
      const row: Handle[] = [];
      for (const word of words) row.push(new Handle(word, "a result"));
      return row;
    });
    const happenings: Happening[] = [];
    for (const event of frame.events.words) happenings.push(events.follow(event));
    this.frames.push(frame);
    return new PjrtRun(outputs, happenings);
  }
}

/**
 * The memory that one start of a program reads and writes. The plug-in looks at it only while the call lasts, and
 * making it anew would take longer than the call.
 */
class ExecuteArguments {
  readonly args: Arguments<"LoadedExecutable_Execute">;
  /** For every replica what it gives. */
  readonly outputs: readonly NativeWords[];
  /** For every replica the event of its end. */
  readonly events: NativeWords;
  private readonly inputs: readonly NativeWords[];

  constructor(plugin: Plugin, numReplicas: number, numInputs: number, numOutputs: number) {
    this.inputs = range(numReplicas).map(() => plugin.words(numInputs));
    this.outputs = range(numReplicas).map(() => plugin.words(numOutputs));
    this.events = plugin.words(numReplicas);
    this.args = plugin
      .args("LoadedExecutable_Execute")
      .point("options", plugin.struct("ExecuteOptions"))
      .point("argumentLists", plugin.words(this.inputs.map(({ address }) => address)))
      .set("numDevices", numReplicas)
      .set("numArguments", numInputs)
      .point("outputLists", plugin.words(this.outputs.map(({ address }) => address)))
      .point("events", this.events);
  }

  /** Writes the arguments of a call. */
  fill(program: bigint, inputs: readonly (readonly Handle[])[]): void {
    this.args.set("executable", program);
    for (let replica = 0; replica < inputs.length; replica++) {
      const [row, { words }] = [at(inputs, replica), at(this.inputs, replica)];
      if (row.length !== words.length) {
        throw new InternalError(`[xla] ${row.length} arguments for a program that takes ${words.length}`);
      }
      for (let i = 0; i < row.length; i++) words[i] = at(row, i).pointer;
    }
  }
}

/** A run that was started. */
class PjrtRun implements XlaRun<Handle> {
  private over: Promise<void> | undefined;

  constructor(
    readonly outputs: readonly (readonly Handle[])[],
    private readonly happenings: readonly Happening[],
  ) {}

  /** Mostly nobody waits, and a promise costs as much as a call. */
  get done(): Promise<void> {
    const [only] = this.happenings;
    if (this.over === undefined) {
      this.over =
        only && this.happenings.length === 1
          ? only.over
          : Promise.all(this.happenings.map(({ over }) => over)).then(() => {});
      this.over.catch(() => {});
    }
    return this.over;
  }

  poll(): boolean {
    for (const one of this.happenings) if (!one.poll()) return false;
    return true;
  }

  hurry(): void {
    for (const one of this.happenings) one.hurry();
  }
}
