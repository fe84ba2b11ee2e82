/** Ends a process in which one input takes too long or too much memory, and keeps that input. */
import { Worker } from "node:worker_threads";

/** Milliseconds that one input may take. */
export const LONGEST_MS = 20_000;

/** Bytes that the process may hold, with the engine, all samples and counters. */
export const MAX_MEMORY = 2 ** 30;

const HEAD = { count: 0, length: 1, size: 2 };

/** Watches while inputs are read. */
export interface Watch {
  /** To be called with every input before it is read. */
  notice(bytes: Uint8Array): void;
  stop(): void;
}

/** Watches a process. @param file where the input is kept */
export function watch(name: string, file: string, maxBytes: number): Watch {
  const words = new Int32Array(new SharedArrayBuffer(4 * HEAD.size + maxBytes));
  const held = new Uint8Array(words.buffer, 4 * HEAD.size);
  const worker = new Worker(code, {
    eval: true,
    workerData: { words, held, name, file, LONGEST_MS, MAX_MEMORY },
  });
  worker.unref();
  return {
    notice: (bytes) => {
      held.set(bytes);
      Atomics.store(words, HEAD.length, bytes.length);
      Atomics.add(words, HEAD.count, 1);
    },
    stop: () => void Atomics.store(words, HEAD.length, -1),
  };
}

// The thread that watches must run whatever the other one does, and without TypeScript.
const code = `
const { workerData } = require("node:worker_threads");
const { writeFileSync, writeSync } = require("node:fs");
const { words, held, name, file, LONGEST_MS, MAX_MEMORY } = workerData;
let [seen, since] = [-1, Date.now()];
const timer = setInterval(() => {
  if (Atomics.load(words, 1) < 0) return clearInterval(timer);
  const count = Atomics.load(words, 0);
  if (count !== seen) [seen, since] = [count, Date.now()];
  const memory = process.memoryUsage.rss();
  const problem = Date.now() - since > LONGEST_MS ? "takes longer than " + LONGEST_MS + " ms"
    : memory > MAX_MEMORY ? "takes " + memory + " bytes of memory" : undefined;
  if (problem === undefined) return;
  writeFileSync(file, held.slice(0, Atomics.load(words, 1)));
  writeSync(2, name + ": an input " + problem + ": " + file + "\\n");
  process.kill(process.pid, "SIGKILL");
}, 100);
`;
