import { Worker, type WorkerOptions } from "node:worker_threads";
import { packagesFrom } from "./koffi.js";

/** Starts a thread from code that `bundleWorker` made: bundlers of users lose files that only a URL names. */
export function startWorker(code: string, options: WorkerOptions): Worker {
  return new Worker(`const moduleUrl = ${JSON.stringify(packagesFrom())};\n${code}`, {
    ...options,
    eval: true,
  });
}
