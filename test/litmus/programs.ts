/**
 * Litmus tests: threads that run a few operations on words of shared memory, and what they must never see together.
 * Words begin with 0. An operation that reads puts what it saw into the next register of the test.
 */

/** How a value gets into memory, or is taken from it. */
export type Way =
  /** A plain access of JavaScript. */
  | "plain"
  /** `Atomics.store`, `Atomics.load`. */
  | "atomic"
  /** The C library's `memcpy`, as devices copy from each other. */
  | "memcpy"
  /** The same through our machine code that makes lists of calls (`callList.ts`). */
  | "list"
  /** A product of 1×1 matrices in our machine code. */
  | "product"
  /** WebAssembly. */
  | "wasm";

export type Operation =
  | { readonly kind: "put"; readonly way: Way; readonly word: number; readonly value: number }
  | { readonly kind: "take"; readonly way: Way; readonly word: number }
  | { readonly kind: "add"; readonly word: number }
  /** Stores what a register holds, by `Atomics.store`. */
  | { readonly kind: "pass"; readonly word: number; readonly register: number }
  /** Writes one more than a register holds. */
  | { readonly kind: "next"; readonly word: number; readonly register: number }
  /** Polls a word by our machine code (`lookLoop.ts`) until it is not 0, or a few times. */
  | { readonly kind: "look"; readonly word: number };

export interface Litmus {
  readonly name: string;
  readonly threads: readonly (readonly Operation[])[];
  /** Whether an outcome, the values of all registers, must not be. */
  readonly forbids: (...registers: readonly number[]) => boolean;
}

const [x, y, z] = [0, 1, 2];

const put = (way: Way, word: number, value = 1): Operation => ({ kind: "put", way, word, value });
const take = (way: Way, word: number): Operation => ({ kind: "take", way, word });
const store = (word: number, value = 1) => put("atomic", word, value);
const load = (word: number) => take("atomic", word);
const add = (word: number): Operation => ({ kind: "add", word });

/** Who writes data, and who reads them. */
const pairs: readonly (readonly [writer: Way, reader: Way])[] = [
  ["plain", "plain"],
  ["memcpy", "memcpy"],
  ["list", "memcpy"],
  ["product", "product"],
  ["wasm", "wasm"],
  ["product", "wasm"],
  ["wasm", "product"],
  ["memcpy", "plain"],
];

export const litmusTests: readonly Litmus[] = [
  ...pairs.map(
    ([writer, reader]): Litmus => ({
      name: `data, then a flag: ${writer} to ${reader}`,
      threads: [
        [put(writer, x), store(y)],
        [load(y), take(reader, x)],
      ],
      forbids: (flag, data) => flag === 1 && data === 0,
    }),
  ),
  ...pairs.map(
    ([writer, reader]): Litmus => ({
      name: `data are read, then may be overwritten: ${reader} before ${writer}`,
      threads: [
        [take(reader, x), store(y)],
        [load(y), put(writer, x)],
      ],
      forbids: (data, flag) => flag === 1 && data === 1,
    }),
  ),
  {
    name: "data, then a flag that machine code polls",
    threads: [
      [put("product", x), store(y)],
      [{ kind: "look", word: y }, load(y), take("memcpy", x)],
    ],
    forbids: (flag, data) => flag === 1 && data === 0,
  },
  {
    name: "store buffering: one announces a value, the other that it sleeps",
    threads: [
      [put("memcpy", z), store(x), load(y)],
      [store(y), load(x)],
    ],
    forbids: (sleeps, value) => sleeps === 0 && value === 0,
  },
  {
    name: "load buffering",
    threads: [
      [load(x), store(y)],
      [load(y), store(x)],
    ],
    forbids: (a, b) => a === 1 && b === 1,
  },
  ...(["atomic", "memcpy", "product", "wasm"] as const).map(
    (way): Litmus => ({
      name: `coherence: one word never goes back (${way})`,
      threads: [
        [put(way, x, 1), put(way, x, 2)],
        [take(way, x), take(way, x)],
      ],
      forbids: (first = 0, second = 0) => first > second,
    }),
  ),
  {
    name: "a barrier: the last to arrive sees the data of all",
    threads: [
      [put("product", x), add(z), take("product", y)],
      [put("product", y), add(z), take("product", x)],
    ],
    forbids: (before, theirs, beforeToo, ours) =>
      (before === 1 && theirs === 0) || (beforeToo === 1 && ours === 0),
  },
  {
    name: "counters: each number is given once",
    threads: [[add(x)], [add(x)]],
    forbids: (a, b) => a === b,
  },
  {
    name: "a flag that is passed on",
    threads: [
      [put("memcpy", x), store(y)],
      [load(y), { kind: "pass", word: z, register: 0 }],
      [load(z), take("memcpy", x)],
    ],
    forbids: (_first, flag, data) => flag === 1 && data === 0,
  },
  {
    name: "two readers agree on the order of two words",
    threads: [[store(x)], [store(y)], [load(x), load(y)], [load(y), load(x)]],
    forbids: (a, b, c, d) => a === 1 && b === 0 && c === 1 && d === 0,
  },
];

/** The same with the order swapped or missing: what is forbidden above must be seen here. */
export const planted: readonly Litmus[] = [
  {
    name: "planted: the flag, then the data",
    threads: [
      [store(y), put("memcpy", x)],
      [load(y), take("memcpy", x)],
    ],
    forbids: (flag, data) => flag === 1 && data === 0,
  },
  {
    name: "planted: the data are read after the flag is read",
    threads: [
      [store(y), take("product", x)],
      [load(y), put("product", x)],
    ],
    forbids: (data, flag) => flag === 1 && data === 1,
  },
  {
    name: "planted: plain accesses where a fence is promised",
    threads: [
      [put("plain", x), take("plain", y)],
      [put("plain", y), take("plain", x)],
    ],
    forbids: (a, b) => a === 0 && b === 0,
  },
  {
    name: "planted: a counter without an atomic operation",
    threads: [
      [take("plain", x), { kind: "next", word: x, register: 0 }],
      [take("plain", x), { kind: "next", word: x, register: 0 }],
    ],
    forbids: (a, b) => a === b,
  },
];

/** All of them; threads know a test by its place here. */
export const allTests: readonly Litmus[] = [...litmusTests, ...planted];

/** The number of registers of a thread. */
export function numRegisters(operations: readonly Operation[]): number {
  return operations.filter(({ kind }) => kind === "take" || kind === "add").length;
}
