/** Bugs to plant in the engine of one worker; each must be found, and `oneThreadSeeds.json` says by which seed. */
import type { Change } from "../../load.js";

/** A planted bug. */
export interface PageMutant extends Change {
  readonly name: string;
}

function inFile(file: string, bugs: readonly (readonly [string, string, string])[]): PageMutant[] {
  return bugs.map(([name, from, to]) => ({ name, file: `src/engines/${file}`, from, to }));
}

export const pageMutants: readonly PageMutant[] = [
  // One that this project had.
  ...inFile("devices/turns.ts", [
    [
      "a run gives up its memory while the host may still answer",
      "const outcomes = await Promise.allSettled(answers);",
      'for (const answer of answers) await answer;\n    const outcomes: { status: string; reason?: unknown }[] = answers.map(() => ({ status: "fulfilled" }));',
    ],
    ["devices go on when the first has come", "if (!members.every(", "if (!members.some("],
    [
      "a device is left behind after an exchange",
      "for (const member of members) {\n      member.sequence++;",
      "for (const member of members.slice(0, 2)) {\n      member.sequence++;",
    ],
  ]),
  ...inFile("collectives/meeting.ts", [
    [
      "an exchange reads where its operands lay before",
      "if (member) Object.assign(",
      "if (member?.target === 0) Object.assign(",
    ],
    [
      "a message is taken from the device itself",
      "else moves.own(sources, target, receives);",
      "else moves.own(sources.map(() => sources[0] ?? 0), target, receives);",
    ],
  ]),
  ...inFile("oneThread/devices.ts", [
    ["answers of the host go to the newest call", "this.calls.shift()?.resolve", "this.calls.pop()?.resolve"],
    [
      "orders are followed while a run waits for the host",
      "if (!this.isBusy) void this.followAll();",
      "void this.followAll();",
    ],
    [
      "the worker stays busy after a run that waited",
      "if (later) await later;\n    }\n    this.isBusy = false;",
      "if (later) {\n        await later;\n        return;\n      }\n    }\n    this.isBusy = false;",
    ],
    ["runs go on after a failure", "if (this.hasFailed) return undefined;", ""],
    ["a run that fails keeps its memory", "program.giveUp(taken);\n", ""],
    ["released elements stay in memory", "if (tensor) memory.free(tensor.data);", ""],
    [
      "a copy shares the elements of the original",
      "(memory.moveIn(source.type, source.data) ?? source.data.slice())",
      "source.data",
    ],
    ["an unloaded program keeps its memory", "programs.get(order.program)?.program.release();\n", ""],
    [
      "a failure of a run that waited is not told",
      "?.catch((error) => this.fail(program, error))",
      "?.catch(() => {})",
    ],
    [
      "outputs of devices are exchanged",
      "this.tensors.set(at(at(order.outputs, o), position), tensor);",
      "this.tensors.set(at(at(order.outputs, o), row.length - 1 - position), tensor);",
    ],
  ]),
  ...inFile("oneThread/engine.ts", [
    ["orders are lost before the worker has started", "else this.outbox.push({ order, given });", ""],
    [
      "orders that waited for the worker are sent in the wrong order",
      "this.outbox.splice(0)) this.thread.post",
      "this.outbox.splice(0).reverse()) this.thread.post",
    ],
    [
      "functions of a released program are forgotten while its runs may call them",
      "void this.request(undefined).then(\n          () => this.programs.delete(id),\n          () => {},\n        );",
      "this.programs.delete(id);",
    ],
    [
      "requests wait for a worker that has ended",
      "for (const { reject } of this.requests.values()) reject(this.gone);",
      "",
    ],
    ["a request is made of a worker that has ended", "if (this.gone) return Promise.reject(this.gone);", ""],
    ["released bytes stay counted", "this.taken.set(device, this.usedBy(device) - bytes);", ""],
    ["releases are not told", "if (this.released.push(id) === 1) queueMicrotask(() => this.flush());", ""],
    [
      "a release overtakes the runs before it",
      'this.post({ kind: "run", program, inputs: ids(inputs), outputs: ids(made) });',
      'queueMicrotask(() => this.post({ kind: "run", program, inputs: ids(inputs), outputs: ids(made) }));',
    ],
    ["a host callback that throws is not answered", 'this.post({ kind: "answer", results: undefined });', ""],
    ["a failure of the worker is not kept", "this.failed ??= this.failureOf(news);", ""],
    [
      "a failure names the first device",
      "const place = { device: known?.devices[position] ?? 0, program: known?.name };",
      "const place = { device: -1 - position, program: known?.name };",
    ],
  ]),
];
