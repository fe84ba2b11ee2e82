import { Worker, type WorkerOptions } from "node:worker_threads";
import { packagesFrom } from "./modules.js";

/** The package that code of threads looks for. */
const NATIVE_PACKAGE = "koffi";

/** Starts a thread from code that `bundleWorker` made: bundlers of users lose files that only a URL names. */
export function startWorker(code: string, options: WorkerOptions): Worker {
  return new Worker(`const moduleUrl = ${JSON.stringify(packagesFrom(NATIVE_PACKAGE))};\n${code}`, {
    ...options,
    eval: true,
  });
}
