/** Turns examples into tokens in worker threads, in the order of the examples. */
import type { Worker } from "node:worker_threads";
import { ValueError } from "../../../ir/errors.js";
import { startWorker } from "../../../platform/startWorker.js";
import type { Example } from "../sources/examples.js";
import {
  jobsOf,
  type TokenizeAnswer,
  type TokenizedExamples,
  type TokenizeSettings,
} from "./tokenizeSettings.js";
import { tokenizeWorkerCode } from "./tokenizeWorkerCode.js";

/** Jobs that wait in each worker, so that it never waits for the next one. */
const jobsAhead = 2;

/** The tokens of examples in order; `numWorkers` threads work on them while later ones are read. */
export async function* tokenizeExamples(
  examples: AsyncIterable<readonly Example[]>,
  settings: TokenizeSettings,
  numWorkers: number,
): AsyncGenerator<TokenizedExamples, void> {
  const workers = Array.from({ length: numWorkers }, () => new TokenizeThread(settings));
  try {
    const pending: Promise<TokenizedExamples>[] = [];
    let next = 0;
    for await (const job of jobsOf(examples)) {
      const worker = workers[next++ % numWorkers];
      if (worker) pending.push(worker.run(job));
      const first = pending.length >= numWorkers * jobsAhead ? pending.shift() : undefined;
      if (first) yield await first;
    }
    for (const one of pending) yield await one;
  } finally {
    await Promise.all(workers.map((worker) => worker.close()));
  }
}

/** A worker whose jobs are answered in order. */
class TokenizeThread {
  private readonly worker: Worker;
  private readonly waiting: { settle: (answer: TokenizeAnswer) => void }[] = [];

  constructor(settings: TokenizeSettings) {
    this.worker = startWorker(tokenizeWorkerCode(), { workerData: settings, execArgv: [], name: "tokenize" });
    this.worker.on("message", (answer: TokenizeAnswer) => this.waiting.shift()?.settle(answer));
    const failed = (reason: string) => {
      for (const { settle } of this.waiting.splice(0)) settle({ problem: reason });
    };
    this.worker.on("error", (error) => failed(`the worker thread failed: ${error.message}`));
    this.worker.on("exit", (code) => failed(`the worker thread exited with code ${code}`));
  }

  run(examples: readonly Example[]): Promise<TokenizedExamples> {
    const answered = new Promise<TokenizedExamples>((resolve, reject) => {
      const settle = (answer: TokenizeAnswer) => {
        if ("problem" in answer) reject(new ValueError(answer.problem));
        else resolve({ ...answer, numExamples: examples.length });
      };
      this.waiting.push({ settle });
    });
    // It is awaited in the order of the jobs.
    answered.catch(() => {});
    this.worker.postMessage({ examples });
    return answered;
  }

  async close(): Promise<void> {
    await this.worker.terminate();
  }
}
