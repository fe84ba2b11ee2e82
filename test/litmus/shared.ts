/** What the threads of litmus tests share. */

/** A word has a cache line of its own, in 32-bit elements. */
export const LINE = 16;

/** The words of a test. */
export const WORDS = 3;

/** Copies of the words, which threads go through in a round. */
export const COPIES = 256;

/** Registers that a thread may have, and threads that a test may have. */
export const REGISTERS = 4;
export const MAX_THREADS = 4;

/** The bits that stand for 0, 1 and 2: those of float32, so that products can compute with them. */
export const VALUES = [0, 0x3f800000, 0x40000000] as const;

/** Words that the threads meet at, on lines of their own. */
export const CONTROL = { arrived: 0, generation: LINE, isOver: 2 * LINE, begun: 3 * LINE, size: 4 * LINE };

/** Outcomes are numbers with a digit for each register. */
export const BASE = VALUES.length;

export interface LitmusThreadData {
  readonly index: number;
  readonly memory: WebAssembly.Memory;
  readonly control: Int32Array;
  /** What registers hold, by thread, copy and register. */
  readonly results: Int32Array;
}

/** A test to run, by its place in the list of all. */
export interface Task {
  readonly test: number;
  readonly thread: number;
  readonly ms: number;
}

/** What the first thread of a test answers: how often each outcome was seen. */
export interface Counted {
  readonly counts: ReadonlyMap<number, number>;
}
