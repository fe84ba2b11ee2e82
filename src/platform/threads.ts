/** Threads that compute: workers of Node, Deno and Bun here, Web Workers in `threads.browser.ts`. */
import { once } from "node:events";
import {
  MessageChannel,
  type MessagePort,
  parentPort,
  receiveMessageOnPort,
  workerData,
} from "node:worker_threads";
import { describeError, errorOf, type Failure, failureOf } from "./failures.js";
import { startWorker } from "./startWorker.js";

/** A thread as the one that started it sees it. */
export interface Thread {
  /** Sends a message, with buffers that are given away. */
  post(message: unknown, given?: readonly ArrayBuffer[]): void;
  /** Says whether the program stays alive for this thread; at first it does not. */
  keepAlive(isNeeded: boolean): void;
  /** Ends the thread wherever it is. */
  terminate(): void;
  /** Whether it has ended. */
  hasExited(): boolean;
  /** Settles when the thread has ended. */
  readonly exited: Promise<void>;
}

/** How a thread is started. */
export interface ThreadRequest {
  readonly code: string;
  readonly name: string;
  /** What its code gets. */
  readonly data: object;
  /** Called with the reason when the thread cannot continue, and also when it ends as intended. */
  readonly failed: (reason: string, cause?: unknown) => void;
  /** Called with what the thread tells. */
  readonly told?: (message: unknown) => void;
}

/** A thread as its own code sees it. */
export interface OwnThread {
  /** What it was started with. */
  readonly data: unknown;
  /** The next message, if one has arrived. */
  take(): unknown;
  /** The next message; a promise where messages arrive only while the thread does not run. */
  next(): unknown;
  /** The next message once it has arrived, for threads that have nothing to do until then. */
  received(): Promise<unknown>;
  /** Sends a message to the thread that started this one. */
  tell(message: unknown): void;
  /** Calls a function at the very end of the thread. */
  atExit(action: () => void): void;
  /** Ends the thread at once. */
  exit(): never;
}

/** What a thread sends to the one that started it: what it was told to tell, or why it ended. */
interface Told {
  readonly failure?: Failure;
  readonly message?: unknown;
}

/** Starts a thread that does not keep the process alive. */
export function startThread({ code, name, data, failed, told }: ThreadRequest): Thread {
  const { port1, port2 } = new MessageChannel();
  const worker = startWorker(code, {
    workerData: { data, port: port2 },
    transferList: [port2],
    execArgv: [],
    name,
  });
  // Threads report what they throw; errors before they run, or from Node itself, arrive as events.
  const threw = (cause: unknown) => failed(`threw ${describeError(cause)}`, cause);
  worker.on("error", threw);
  worker.on("message", ({ failure, message }: Told) => {
    if (failure) threw(errorOf(failure));
    else told?.(message);
  });
  worker.on("messageerror", (cause) => failed(`lost a message: ${describeError(cause)}`, cause));
  let ended = false;
  const exited = new Promise<void>((resolve) => {
    worker.on("exit", (code) => {
      ended = true;
      failed(`exited with code ${code}`);
      port1.close();
      resolve();
    });
  });
  // A listener for a worker's messages keeps the process alive until it is unreferenced.
  worker.unref();
  port1.unref();
  return {
    post: (message, given = []) => port1.postMessage(message, given),
    keepAlive: (isNeeded) => (isNeeded ? worker.ref() : worker.unref()),
    terminate: () => void worker.terminate(),
    hasExited: () => ended,
    exited,
  };
}

/** Runs what this thread was started for. */
export async function runThread(main: (own: OwnThread) => Promise<void> | void): Promise<void> {
  const { data, port } = workerData as { readonly data: unknown; readonly port: MessagePort };
  const take = () => receiveMessageOnPort(port)?.message as unknown;
  try {
    await main({
      data,
      take,
      next: take,
      received: async () => take() ?? (await once(port, "message"))[0],
      tell: (message) => parentPort?.postMessage({ message } satisfies Told),
      atExit: (action) => process.on("exit", action),
      exit: process.exit,
    });
  } catch (error) {
    // Left to Node, it would abort the process when the main thread happens to end this thread at the same time.
    parentPort?.postMessage({ failure: failureOf(error) } satisfies Told);
  } finally {
    // Nothing listens any more; an open port would keep the thread.
    port.close();
  }
}

/** Whether threads receive messages without giving up what they run; helpers of devices rely on it. */
export const receivesWhileRunning: boolean = true;
