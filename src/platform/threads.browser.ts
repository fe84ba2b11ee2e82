import { describeError, errorOf, type Failure, failureOf } from "./failures.js";
import type * as node from "./threads.js";

/** What a worker tells the thread that started it. */
type Told =
  | { readonly kind: "told"; readonly message: unknown }
  | { readonly kind: "failed"; readonly failure: Failure }
  | { readonly kind: "exited" };

/** The address of a script. Its code is a string, so that it starts wherever the package itself came from. */
const addresses = new Map<string, string>();

function addressOf(code: string): string {
  const address = addresses.get(code) ?? URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  addresses.set(code, address);
  return address;
}

/** Starts a Web Worker, which ends with its page at the latest. */
export const startThread: typeof node.startThread = ({ code, name, data, failed, told }) => {
  const worker = new Worker(addressOf(code), { name });
  let ended = false;
  let resolve = () => {};
  const exited = new Promise<void>((settle) => {
    resolve = settle;
  });
  const end = (): void => {
    if (ended) return;
    ended = true;
    worker.terminate();
    failed("ended");
    resolve();
  };
  worker.onerror = (event) => {
    // A script that could not be loaded says nothing.
    failed(
      event.message ? `threw ${event.message}` : "did not start: its script could not be loaded",
      event.error,
    );
    end();
  };
  worker.onmessageerror = (event) => failed(`lost a message: ${describeError(event.data)}`);
  worker.onmessage = ({ data: news }: MessageEvent<Told>) => {
    if (news.kind === "exited") return end();
    if (news.kind === "told") return told?.(news.message);
    const cause = errorOf(news.failure);
    failed(`threw ${describeError(cause)}`, cause);
  };
  worker.postMessage(data);
  return {
    post: (message, given = []) => worker.postMessage(message, [...given]),
    keepAlive: () => {},
    terminate: end,
    hasExited: () => ended,
    exited,
  };
};

/** Messages arrive in the event loop only, so that whoever wants the next one gives the thread up for a moment. */
class Inbox {
  private readonly messages: unknown[] = [];
  private waiting: ((message: unknown) => void) | undefined;

  readonly receive = ({ data }: MessageEvent): void => {
    const { waiting } = this;
    this.waiting = undefined;
    if (waiting) waiting(data);
    else this.messages.push(data);
  };

  take(): unknown {
    return this.messages.shift();
  }

  next(): unknown {
    if (this.messages.length > 0) return this.messages.shift();
    return new Promise((resolve) => {
      this.waiting = resolve;
    });
  }
}

export const runThread: typeof node.runThread = async (main) => {
  const inbox = new Inbox();
  const tell = (told: Told) => globalThis.postMessage(told);
  let atExit = () => {};
  const exit = (): never => {
    atExit();
    tell({ kind: "exited" });
    globalThis.close();
    throw new Error("the thread has ended");
  };
  globalThis.onmessage = inbox.receive;
  try {
    await main({
      data: await inbox.next(),
      take: () => inbox.take(),
      next: () => inbox.next(),
      received: async () => inbox.next(),
      tell: (message) => tell({ kind: "told", message }),
      atExit(action) {
        atExit = action;
      },
      exit,
    });
  } catch (error) {
    tell({ kind: "failed", failure: failureOf(error) });
  } finally {
    atExit();
    tell({ kind: "exited" });
  }
};

export const receivesWhileRunning: typeof node.receivesWhileRunning = false;
