/** The main thread sends commands through a ring that is too small for all of them. */
import { CommandReader, CommandWriter, newCommandRing } from "../../../src/engines/protocol/commands.js";
import { deviceBase, EVENTS, newControl, reportEvent, WORD } from "../../../src/engines/protocol/control.js";
import { Signals } from "../../../src/engines/protocol/signals.js";
import { range } from "../../../src/ir/shape.js";
import { label } from "../runtime.js";
import { type Scenario, type ScenarioRun, same } from "../scenario.js";

/** @param lengths how many words each command has; the ring has 16 */
function send(lengths: readonly number[]): () => ScenarioRun {
  return () => {
    const control = newControl(1);
    const words = newCommandRing();
    label(control, "control");
    label(words, "ring");
    const base = deviceBase(0);
    const commandOf = (i: number) => range(lengths[i] ?? 0).map((word) => 100 * i + word);
    const main = () => {
      const writer = new CommandWriter(control, words, 0);
      for (const i of lengths.keys()) writer.send(commandOf(i));
      for (;;) {
        const seen = Atomics.load(control, EVENTS);
        writer.flush();
        if (Atomics.load(control, base + WORD.completed) === lengths.length) return;
        Atomics.wait(control, EVENTS, seen);
      }
    };
    const device = () => {
      const reader = new CommandReader(new Signals(control, 0, true), words);
      for (const i of lengths.keys()) {
        const length = reader.next();
        same(Array.from(reader.command.subarray(0, length)), commandOf(i), `command ${i}`);
        Atomics.add(control, base + WORD.completed, 1);
        reportEvent(control);
      }
    };
    return { threads: { main, device } };
  };
}

export const scenarios: readonly Scenario[] = [
  { name: "commands: one", isSmall: true, setUp: send([1]) },
  { name: "commands: two in a row", isSmall: true, setUp: send([2, 3]) },
  { name: "commands: a full ring", isSmall: true, setUp: send([8, 8]) },
  { name: "commands: a small one after large ones", setUp: send([7, 7, 7, 1, 6, 1]) },
];
