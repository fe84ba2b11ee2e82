/** Runs litmus tests on threads of this machine. */
import { once } from "node:events";
import type { Worker } from "node:worker_threads";
import { bundleWorker } from "../../src/engines/system/bundleWorker.js";
import { startWorker } from "../../src/platform/startWorker.js";
import { allTests, type Litmus, numRegisters } from "./programs.js";
import {
  BASE,
  CONTROL,
  COPIES,
  type Counted,
  LINE,
  type LitmusThreadData,
  MAX_THREADS,
  REGISTERS,
  type Task,
  WORDS,
} from "./shared.js";

/** What a test has seen. */
export interface Seen {
  readonly numTimes: number;
  /** How often each outcome was seen: "r0=1 r1=0". */
  readonly outcomes: ReadonlyMap<string, number>;
  readonly numForbidden: number;
}

/** Threads that run litmus tests. */
export class LitmusThreads {
  private constructor(private readonly workers: readonly Worker[]) {}

  static async start(): Promise<LitmusThreads> {
    const pages = Math.ceil((4 * COPIES * WORDS * LINE) / 65536);
    const data: Omit<LitmusThreadData, "index"> = {
      memory: new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true }),
      control: new Int32Array(new SharedArrayBuffer(4 * CONTROL.size)),
      results: new Int32Array(new SharedArrayBuffer(4 * MAX_THREADS * COPIES * REGISTERS)),
    };
    const code = bundleWorker(new URL("thread.ts", import.meta.url));
    const workers = Array.from({ length: MAX_THREADS }, (_, index) =>
      startWorker(code, { workerData: { ...data, index } satisfies LitmusThreadData }),
    );
    await Promise.all(workers.map((worker) => once(worker, "message")));
    return new LitmusThreads(workers);
  }

  /** Runs a test for a time. */
  async run(test: Litmus, ms: number): Promise<Seen> {
    const answers = test.threads.map((_, thread) => {
      const worker = this.workers[thread];
      if (worker === undefined) throw new Error(`a litmus test of more than ${MAX_THREADS} threads`);
      worker.postMessage({ test: allTests.indexOf(test), thread, ms } satisfies Task);
      return once(worker, "message") as Promise<[Counted]>;
    });
    const [first] = await Promise.all(answers);
    return seen(test, first?.[0].counts ?? new Map());
  }

  async close(): Promise<void> {
    await Promise.all(this.workers.map((worker) => worker.terminate()));
  }
}

function seen(test: Litmus, counts: ReadonlyMap<number, number>): Seen {
  const count = test.threads.reduce((sum, operations) => sum + numRegisters(operations), 0);
  const outcomes = new Map<string, number>();
  let [numTimes, numForbidden] = [0, 0];
  for (const [outcome, times] of [...counts].sort(([a], [b]) => a - b)) {
    const registers = Array.from(
      { length: count },
      (_, i) => Math.floor(outcome / BASE ** (count - 1 - i)) % BASE,
    );
    outcomes.set(registers.map((value, i) => `r${i}=${value}`).join(" "), times);
    numTimes += times;
    if (test.forbids(...registers)) numForbidden += times;
  }
  return { numTimes, outcomes, numForbidden };
}
