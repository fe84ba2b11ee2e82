import { at, range } from "../../../ir/shape.js";
import type { XlaProgram, XlaRun } from "../client.js";
import type { PjrtClient } from "./client.js";
import { Handle } from "./handle.js";

/** A program that a PJRT plug-in compiled. */
export class PjrtProgram implements XlaProgram<Handle> {
  private readonly loaded: Handle;
  private readonly executable: Handle;
  private readonly numOutputs: number;

  constructor(
    private readonly client: PjrtClient,
    loaded: bigint,
    /** The replicas that this process runs. */
    private readonly numReplicas: number,
  ) {
    const { plugin } = client;
    this.loaded = new Handle(loaded, "a program");
    const got = plugin.args("LoadedExecutable_GetExecutable").set("loaded", loaded);
    this.executable = new Handle(
      plugin.call("LoadedExecutable_GetExecutable", got).get("executable"),
      "a program",
    );
    const counted = plugin.args("Executable_NumOutputs").set("executable", this.executable.pointer);
    this.numOutputs = Number(plugin.call("Executable_NumOutputs", counted).get("count"));
  }

  async execute(inputs: readonly (readonly Handle[])[], kept: readonly number[]): Promise<XlaRun<Handle>> {
    const call = this.prepare(inputs, kept);
    await this.client.plugin.callAway("LoadedExecutable_Execute", call.args);
    return this.results(call);
  }

  executeNow(inputs: readonly (readonly Handle[])[], kept: readonly number[]): XlaRun<Handle> {
    const call = this.prepare(inputs, kept);
    this.client.plugin.call("LoadedExecutable_Execute", call.args);
    return this.results(call);
  }

  /** The program in a form that can be written to disk. */
  serialize(): Uint8Array {
    const { plugin } = this.client;
    const args = plugin.args("Executable_Serialize").set("executable", this.executable.pointer);
    plugin.call("Executable_Serialize", args);
    const bytes = plugin.bytesAt(args.get("data"), args.get("size"));
    plugin.koffi.call(args.get("deleter"), plugin.deleter, args.get("owner"));
    return bytes;
  }

  destroy(): void {
    const { plugin } = this.client;
    const executable = plugin.args("Executable_Destroy").set("executable", this.executable.take());
    plugin.call("Executable_Destroy", executable);
    const loaded = plugin.args("LoadedExecutable_Destroy").set("executable", this.loaded.take());
    plugin.call("LoadedExecutable_Destroy", loaded);
  }

  private prepare(inputs: readonly (readonly Handle[])[], kept: readonly number[]) {
    const { plugin } = this.client;
    const { numReplicas, numOutputs } = this;
    const rows = inputs.map((row) => plugin.words(row.map(({ pointer }) => pointer)));
    const outputs = range(numReplicas).map(() => plugin.words(numOutputs));
    const events = plugin.words(numReplicas);
    const options = plugin.struct("ExecuteOptions");
    if (kept.length > 0) options.point("kept", plugin.words(kept)).set("numKept", kept.length);
    const argumentLists = plugin.words(rows.map(({ address }) => address));
    const outputLists = plugin.words(outputs.map(({ address }) => address));
    const args = plugin
      .args("LoadedExecutable_Execute")
      .set("executable", this.loaded.pointer)
      .point("options", options)
      .point("argumentLists", argumentLists)
      .set("numDevices", numReplicas)
      .set("numArguments", at(inputs, 0).length)
      .point("outputLists", outputLists)
      .point("events", events);
    return { args, rows, outputs, events };
  }

  private results({ outputs, events, rows }: ReturnType<PjrtProgram["prepare"]>): XlaRun<Handle> {
    const happenings = [...events.words].map((event) => this.client.events.follow(event, rows));
    const [only] = happenings;
    const done =
      only && happenings.length === 1
        ? only.over
        : Promise.all(happenings.map(({ over }) => over)).then(() => {});
    done.catch(() => {});
    return {
      outputs: outputs.map(({ words }) => Array.from(words, (buffer) => new Handle(buffer, "a result"))),
      done,
      poll: () => happenings.every((one) => one.poll()),
      hurry: () => {
        for (const one of happenings) one.hurry();
      },
    };
  }
}
