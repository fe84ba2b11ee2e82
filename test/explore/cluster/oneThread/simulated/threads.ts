/** Stands in for the threads of the system: a worker of the page, and messages that arrive late but in order. */
import type { OwnThread, Thread, ThreadRequest } from "../../../../../src/platform/threads.js";
import { kill, spawn } from "../../../runtime.js";
import { Channel } from "../channel.js";
import { conditions } from "../conditions.js";

type Main = (own: OwnThread) => Promise<void> | void;

/** What the worker runs; its code says so when it is loaded. */
let main: Main | undefined;

export function runThread(given: Main): void {
  main = given;
}

export function startThread({ data, failed, told }: ThreadRequest): Thread {
  const run = main;
  if (run === undefined) throw new Error("the code of the worker is not loaded");
  const [orders, news] = [new Channel(), new Channel()];
  const waiting: ((message: unknown) => void)[] = [];
  const arrived: unknown[] = [];
  let hasExited = false;
  let ended: () => void = () => {};
  const exited = new Promise<void>((resolve) => {
    ended = resolve;
  });
  const exit = (reason: string) => {
    if (hasExited) return;
    hasExited = true;
    orders.close();
    failed(reason);
    ended();
  };
  news.listen(({ message, failure }: { message?: unknown; failure?: string }) => {
    if (failure !== undefined) exit(failure);
    else told?.(message);
  });
  const own = {
    data,
    received: () => {
      if (arrived.length > 0) return Promise.resolve(arrived.shift());
      return new Promise((resolve) => {
        waiting.push(resolve);
      });
    },
    tell: (message: unknown) => news.send({ message }),
  } as unknown as OwnThread;
  const thread = spawn("worker", async () => {
    orders.listen((message: unknown) => {
      if (conditions().dies()) {
        news.send({ failure: "exited with code 1" });
        kill(thread);
        return;
      }
      const next = waiting.shift();
      if (next) next(message);
      else arrived.push(message);
    });
    try {
      await run(own);
    } catch (error) {
      news.send({ failure: `threw ${String(error)}` });
    }
  });
  return {
    post: (message, given = []) => orders.send(message, given),
    keepAlive() {},
    terminate: () => {
      news.close();
      kill(thread);
      queueMicrotask(() => exit("exited with code 1"));
    },
    hasExited: () => hasExited,
    exited,
  };
}

export const receivesWhileRunning = false;
