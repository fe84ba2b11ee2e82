/** Stands in for threads that compile: answers come late, in any order with everything else, or not at all. */
import type { Thread, ThreadRequest } from "../../../../src/platform/threads.js";
import type { CompilingRun } from "../compiling.js";
import { currentRun } from "../turns.js";

export function startThread({ told, failed }: ThreadRequest): Thread {
  const run = currentRun<CompilingRun>();
  const thread = { isTerminated: false, isKeptAlive: false, hasFailed: false };
  run.threads.push(thread);
  const fail = () => {
    if (thread.isTerminated || thread.hasFailed) return;
    thread.hasFailed = true;
    run.numFailures++;
    failed("exited with code 1");
  };
  if (run.happens("fails when idle")) run.turns.later(fail);
  return {
    post: (message) => {
      if (thread.isTerminated) run.wrong("a thread that has ended is given a program");
      if (run.happens("cannot be sent")) throw new Error("could not be cloned");
      const { program } = structuredClone(message) as { program: number };
      const fate = run.happens("fails") ? "fails" : run.happens("answers failed") ? "answers" : "compiles";
      run.turns.later(() => {
        if (thread.isTerminated) return;
        if (fate === "fails") fail();
        else told?.(fate === "answers" ? "failed" : { compiled: program, nextId: 0 });
      });
    },
    keepAlive: (isKept) => {
      thread.isKeptAlive = isKept;
    },
    terminate: () => {
      if (thread.isTerminated) return;
      thread.isTerminated = true;
      // Threads also say that they have ended where they were told to.
      run.turns.later(() => failed("exited with code 1"));
    },
    hasExited: () => thread.isTerminated || thread.hasFailed,
    exited: Promise.resolve(),
  };
}
