/** Stands in for the threads of the system: each is a thread of the simulated machine. */
import type { OwnThread, Thread, ThreadRequest } from "../../../src/platform/threads.js";
import { kill, spawn } from "../runtime.js";
import { queueMicrotask, SimulatedPromise } from "./eventLoop.js";

type Main = (own: OwnThread) => Promise<void> | void;

/** What threads run; the code of the worker says so when it is loaded. */
let main: Main | undefined;

export function runThread(given: Main): void {
  main = given;
}

class Exit extends Error {}

/** Messages for a thread; whoever takes one sees what its sender did before. */
class Inbox {
  private readonly messages: unknown[] = [];
  private readonly count = new Int32Array(new SharedArrayBuffer(4));

  put(message: unknown): void {
    this.messages.push(message);
    Atomics.add(this.count, 0, 1);
  }

  take(): unknown {
    return Atomics.load(this.count, 0) === 0 ? undefined : this.taken();
  }

  private taken(): unknown {
    Atomics.sub(this.count, 0, 1);
    return this.messages.shift();
  }
}

export function startThread({ name, data, failed }: ThreadRequest): Thread {
  const inbox = new Inbox();
  const atExit: (() => void)[] = [];
  let hasExited = false;
  let ended: (value?: unknown) => void = () => {};
  const exited = new SimulatedPromise((resolve) => {
    ended = resolve;
  });
  const own = {
    data,
    take: () => inbox.take(),
    next: () => inbox.take(),
    tell() {},
    atExit: (action: () => void) => atExit.push(action),
    exit() {
      throw new Exit();
    },
  } as unknown as OwnThread;
  // Between the end of a thread and the event that tells of it anything may happen; who hears of it sees what was before.
  const ticket = new Int32Array(new SharedArrayBuffer(4));
  const exit = () => {
    Atomics.load(ticket, 0);
    hasExited = true;
    failed("exited with code 0");
    ended();
  };
  const run = async () => {
    try {
      await main?.(own);
    } catch (error) {
      if (!(error instanceof Exit)) {
        Atomics.add(ticket, 0, 1);
        queueMicrotask(() => {
          Atomics.load(ticket, 0);
          failed(`threw ${error instanceof Error ? error.message : String(error)}`, error);
        });
      }
    }
    for (const action of atExit) action();
    Atomics.add(ticket, 0, 1);
    queueMicrotask(exit);
  };
  const thread = spawn(name.replace("shardwise ", ""), run);
  return {
    post: (message) => inbox.put(message),
    keepAlive() {},
    terminate: () => {
      if (kill(thread)) queueMicrotask(exit);
    },
    hasExited: () => hasExited,
    exited: exited as unknown as Promise<void>,
  };
}

export const receivesWhileRunning = true;
