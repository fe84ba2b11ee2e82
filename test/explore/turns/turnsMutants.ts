/** Bugs to plant in code that waits for others; each must be found, and `turnsSeeds.json` says by which seed. */
import type { Change } from "../load.js";

/** A planted bug. */
export interface TurnsMutant extends Change {
  readonly name: string;
}

type Bug = readonly [name: string, from: string, to: string];

const inFile = (file: string, bugs: readonly Bug[]): TurnsMutant[] =>
  bugs.map(([name, from, to]) => ({ name, file, from, to }));

export const batchingMutants = inFile("src/train/generation/generator.ts", [
  [
    "a text that is aborted keeps its reader waiting",
    'this.request.signal?.addEventListener("abort", onAbort);',
    "",
  ],
  ["a token wakes nobody", "if (drawn.finish) this.isOver = true;\n    this.wake();", ""],
  [
    "the end of a text wakes nobody",
    "this.failure ??= failure;\n    this.wake();",
    "this.failure ??= failure;",
  ],
  [
    "a text whose reader has left keeps its slot",
    "this.isOver = true;\n      this.request.signal",
    "this.request.signal",
  ],
  [
    "a text joins a slot that still holds another",
    "if (finish) this.leave(slot);",
    "if (finish) this.active.delete(slot);",
  ],
  [
    "a text that has joined gets the tokens of the one before it",
    "if (this.active.get(slot)?.text === text) this.add",
    "if (this.active.has(slot)) this.add",
  ],
  ["devices go on without a text that has joined", "if (isSame && going.size > 0)", "if (going.size > 0)"],
  [
    "a step is started for texts that end",
    "!text.isLeft && !text.isAlmostFull(this.maxLength)",
    "!text.isLeft",
  ],
  ["a step that was started ahead is not released", "this.ahead?.drawn.dispose();", ""],
  [
    "the tokens of a step are not released when the next one cannot be started",
    "step.drawn.dispose();\n      throw error;",
    "throw error;",
  ],
  ["a failure leaves slots full", "for (const slot of this.active.keys()) this.forget(slot);", ""],
  [
    "texts that wait are not told of a failure",
    "[...this.waiting.splice(0), ...[...this.active.values()].map(({ text }) => text)]",
    "[...this.active.values()].map(({ text }) => text)",
  ],
  [
    "a text that comes while the last one ends is left behind",
    "this.running = undefined;\n    }",
    "await nextTurn();\n      this.running = undefined;\n    }",
  ],
  ["closing does not wait for the step that runs", "await this.running;", ""],
  ["closing forgets the texts that wait", "for (const text of this.waiting.splice(0)) text.end();", ""],
]);

export const compilingMutants = inFile("src/spmd/mesh/compileElsewhere.ts", [
  ["an idle thread is given to two at once", "idle.delete(engine);\n  let answer", "let answer"],
  ["a thread that has ended waits for programs", "if (this.hasEnded) return;", ""],
  [
    "every thread waits for the next program",
    'if (idle.has(this.engine)) this.end("failed");\n    else {',
    "{",
  ],
  ["a thread that compiles ends as if it were idle", "this.stopTimer();\n    const answer", "const answer"],
  [
    "a thread that has ended is given the next program",
    "if (idle.get(this.engine) === this) idle.delete(this.engine);",
    "",
  ],
  ["an engine remembers threads that have ended", "for (const forget of this.forget) forget();", ""],
  [
    "who waits is not told that the thread has ended",
    "this.answer(answer);\n    this.thread.terminate();",
    "this.thread.terminate();",
  ],
  ["a thread without work is never ended", "this.thread.terminate();", ""],
  ["an idle thread keeps the process alive", "this.thread.keepAlive(false);", ""],
]);
