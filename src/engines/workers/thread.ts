import { MessageChannel, type MessagePort, type Worker } from "node:worker_threads";
import type { WorkerFailure } from "../devices/messages.js";
import { startWorker } from "../system/startWorker.js";

/** A thread of an engine, and its message port. */
export interface Thread {
  readonly worker: Worker;
  readonly port: MessagePort;
  /** Whether it has ended. */
  readonly hasExited: () => boolean;
  /** Settles when the thread has ended. */
  readonly exited: Promise<void>;
}

/** How a thread is started. */
export interface ThreadRequest {
  readonly code: string;
  readonly name: string;
  /** Data for its code besides the port. */
  readonly data: object;
  /** Called with the reason when the thread cannot continue, and also when it ends as intended. */
  readonly failed: (reason: string, cause?: unknown) => void;
}

/** Starts a thread that does not keep the process alive. */
export function startThread({ code, name, data, failed }: ThreadRequest): Thread {
  const { port1, port2 } = new MessageChannel();
  const worker = startWorker(code, {
    workerData: { ...data, port: port2 },
    transferList: [port2],
    execArgv: [],
    name,
  });
  // Threads report what they throw; errors before they run, or from Node itself, arrive as events.
  const threw = (cause: unknown) => failed(`threw ${describeError(cause)}`, cause);
  worker.on("error", threw);
  worker.on("message", ({ name, message, stack }: WorkerFailure) =>
    threw(Object.assign(new Error(message), { name, stack })),
  );
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
  return { worker, port: port1, hasExited: () => ended, exited };
}

/** An error in one line. */
export function describeError(cause: unknown): string {
  return cause instanceof Error ? `${cause.name}: ${cause.message}` : String(cause);
}
