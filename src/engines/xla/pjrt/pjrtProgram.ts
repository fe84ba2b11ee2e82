import { InternalError } from "../../../ir/errors.js";
import { at, range } from "../../../ir/shape.js";
import type { XlaProgram, XlaRun } from "../xlaClient.js";
import type { DeviceEvent, Events } from "./events.js";
import { Handle } from "./handle.js";
import type { Arguments, NativeWords, Plugin } from "./plugin.js";

/** What a program needs from the client that compiled it. */
interface ProgramClient {
  readonly plugin: Plugin;
  readonly events: Events;
}

/** A program compiled by a PJRT plug-in. */
export class PjrtProgram implements XlaProgram<Handle> {
  private readonly loaded: Handle;
  private readonly executable: Handle;
  private readonly numOutputs: number;
  /** Arguments that no call is using, for reuse. */
  private readonly spareArguments: ExecuteArguments[] = [];

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
    const call = this.argumentsFor(inputs);
    await this.client.plugin.callAway("LoadedExecutable_Execute", call.args);
    return this.results(call);
  }

  executeNow(inputs: readonly (readonly Handle[])[]): XlaRun<Handle> {
    const call = this.argumentsFor(inputs);
    this.client.plugin.call("LoadedExecutable_Execute", call.args);
    return this.results(call);
  }

  /** The program in a form that can be written to disk; the program may be destroyed meanwhile. */
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

  /** The plug-in's metadata of the program; the program stays alive as long as one of these does. */
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

  /** Execute arguments filled with these inputs. */
  private argumentsFor(inputs: readonly (readonly Handle[])[]): ExecuteArguments {
    const { numReplicas, numOutputs } = this;
    const numInputs = at(inputs, 0).length;
    const call =
      this.spareArguments.pop() ??
      new ExecuteArguments(this.client.plugin, numReplicas, numInputs, numOutputs);
    call.fill(this.loaded.pointer, inputs);
    return call;
  }

  /** Takes the results out of the arguments of a call, which the next call may then reuse. */
  private results(call: ExecuteArguments): XlaRun<Handle> {
    const { events } = this.client;
    const outputs = call.outputs.map(({ words }) => {
      const row: Handle[] = [];
      for (const word of words) row.push(new Handle(word, "a result"));
      return row;
    });
    const ends: DeviceEvent[] = [];
    for (const event of call.events.words) ends.push(events.follow(event));
    this.spareArguments.push(call);
    return new PjrtRun(outputs, ends);
  }
}

/**
 * The memory that one start of a program reads and writes. The plug-in accesses it only during the call, and allocating
 * it would take longer than the call.
 */
class ExecuteArguments {
  readonly args: Arguments<"LoadedExecutable_Execute">;
  /** The results of every replica. */
  readonly outputs: readonly NativeWords[];
  /** The event of the end of every replica. */
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

  /** Fills in the arguments of a call. */
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

/** A run that has been started. */
class PjrtRun implements XlaRun<Handle> {
  private over: Promise<void> | undefined;

  constructor(
    readonly outputs: readonly (readonly Handle[])[],
    private readonly events: readonly DeviceEvent[],
  ) {}

  /** Created on demand: usually nobody waits, and a promise costs as much as a call. */
  get done(): Promise<void> {
    const [only] = this.events;
    if (this.over === undefined) {
      this.over =
        only && this.events.length === 1
          ? only.over
          : Promise.all(this.events.map(({ over }) => over)).then(() => {});
      this.over.catch(() => {});
    }
    return this.over;
  }

  poll(): boolean {
    for (const event of this.events) if (!event.poll()) return false;
    return true;
  }

  hurry(): void {
    for (const event of this.events) event.hurry();
  }
}
