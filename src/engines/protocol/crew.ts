import { InternalError } from "../../ir/errors.js";
import { layout, onNewLine } from "./layout.js";

/**
 * The threads that help a device: on cores that have no device of their own, they take parts of its large products
 * and kernels. The device publishes a *job*, a number of parts that can run in any order on any thread; it and its
 * helpers take one part after the other until none is left, so that a helper which sleeps or comes late costs
 * nothing. Which thread runs a part never changes what the part computes.
 *
 * `claim` holds the job's number in its upper bits and the next part in its lowest 8. It is *closed* while a job is
 * being written, so that a thread that read an earlier value of it cannot take a part of a job it has not read.
 */
const WORD = layout({
  claim: onNewLine(),
  done: onNewLine(),
  sleepers: onNewLine(),
  waits: 1,
  over: 1,
  /** What helpers sleep on; it changes when there is a job, and when they are dismissed. */
  doorbell: 1,
});

const PART_BITS = 8;
const PART_MASK = (1 << PART_BITS) - 1;
const CLOSED = PART_MASK;

/** The most threads a device can have. */
export const MAX_THREADS = 64;

/** What a job is: how to read the numbers that describe it. */
export const JOB = { kernel: 0, product: 1 } as const;

/** The numbers that every job begins with: its kind and how many parts it has. */
export const JOB_FIELD = layout({ kind: 1, count: 1 });

/** After those, the numbers of a job of kernels: which kernel of a loaded program, and what it is called with. */
export const KERNEL_FIELD = layout(
  { program: 1, module: 1, kernel: 1, table: 1, args: 1, rows: 1 },
  JOB_FIELD.size,
);

/** Maximum number of calls in a job of products. */
export const MAX_CALLS = 512;

/** The numbers of a call: the arguments of the function that computes a product. */
export const CALL_FIELD = layout({ program: 1, a: 1, b: 1, c: 1 });

/** The numbers of products after those of every job: the function to call, the end of each part's calls, the calls. */
export const PRODUCT_FIELD = layout(
  { runner: 1, ends: MAX_THREADS, calls: CALL_FIELD.size * MAX_CALLS },
  JOB_FIELD.size,
);

/** A call of a function that computes a product. */
export interface ProductCall {
  readonly program: number;
  readonly a: number;
  readonly b: number;
  readonly c: number;
}

/** Describes a job of products by the calls of each of its parts; matrices begin at the given addresses. */
export function writeProducts(
  job: Float64Array,
  runner: number,
  parts: readonly (readonly ProductCall[])[],
  [a, b, c]: readonly [a: number, b: number, c: number],
): void {
  job[JOB_FIELD.kind] = JOB.product;
  job[PRODUCT_FIELD.runner] = runner;
  let end = 0;
  parts.forEach((calls, part) => {
    for (const call of calls) {
      const at = PRODUCT_FIELD.calls + CALL_FIELD.size * end;
      job[at + CALL_FIELD.program] = call.program;
      job[at + CALL_FIELD.a] = a + call.a;
      job[at + CALL_FIELD.b] = b + call.b;
      job[at + CALL_FIELD.c] = c + call.c;
      end++;
    }
    job[PRODUCT_FIELD.ends + part] = end;
  });
}

/** Makes the calls of a part of a job of products. */
export function runCalls(
  job: Float64Array,
  part: number,
  run: (program: number, a: number, b: number, c: number) => void,
): void {
  const end = job[PRODUCT_FIELD.ends + part] ?? 0;
  for (let call = part === 0 ? 0 : (job[PRODUCT_FIELD.ends + part - 1] ?? 0); call < end; call++) {
    const at = PRODUCT_FIELD.calls + CALL_FIELD.size * call;
    const { program, a, b, c } = CALL_FIELD;
    run(job[at + program] ?? 0, job[at + a] ?? 0, job[at + b] ?? 0, job[at + c] ?? 0);
  }
}

/** What a device and its helpers share. */
export interface CrewMemory {
  readonly words: Int32Array;
  readonly job: Float64Array;
  /** How many times a thread checks for an event before it sleeps. */
  readonly spins: number;
}

/**
 * Words for one device, without a job.
 *
 * @param crowded whether there are more threads than cores
 */
export function newCrewMemory(crowded: boolean): CrewMemory {
  const words = new Int32Array(new SharedArrayBuffer(4 * WORD.size));
  words[WORD.claim] = CLOSED;
  const job = new Float64Array(new SharedArrayBuffer(8 * PRODUCT_FIELD.size));
  return { words, job, spins: crowded ? SPINS.sharedCore : SPINS.ownCore };
}

/**
 * Checks before a sleep. If every thread has a core, they take a fifth of a millisecond, in which a device often
 * reaches its next large step; if threads share cores, there are almost none.
 */
const SPINS = { ownCore: 20_000, sharedCore: 50 } as const;
/** The longest sleep of a thread before it checks again without being woken. */
const LONGEST_SLEEP_MS = 1000;

/** Takes the next part of a job, if one is left. */
function take({ words, job }: CrewMemory): number | undefined {
  for (;;) {
    const claim = Atomics.load(words, WORD.claim);
    const part = claim & PART_MASK;
    if (part >= (job[JOB_FIELD.count] ?? 0)) return undefined;
    if (Atomics.compareExchange(words, WORD.claim, claim, claim + 1) === claim) return part;
  }
}

function finish({ words, job }: CrewMemory): void {
  const done = Atomics.add(words, WORD.done, 1) + 1;
  if (done === job[JOB_FIELD.count] && Atomics.load(words, WORD.waits) !== 0)
    Atomics.notify(words, WORD.done);
}

/** A device's side: publishes jobs. */
export class Crew {
  private number = 0;

  /** @param size how many threads there are, the device's own included */
  constructor(
    readonly memory: CrewMemory,
    readonly size: number,
  ) {
    if (size > MAX_THREADS) throw new InternalError(`[threads] ${size} threads for one device`);
  }

  /**
   * Runs all parts of a job, some of them here; returns when the last is done.
   *
   * @param describe writes the numbers of the job, all but the number of parts
   */
  share(count: number, describe: (job: Float64Array) => void, run: (part: number) => void): void {
    const { words, job } = this.memory;
    this.number = (this.number + 1) & (0xffffffff >>> PART_BITS);
    const first = this.number << PART_BITS;
    Atomics.store(words, WORD.claim, first | CLOSED);
    job[JOB_FIELD.count] = count;
    describe(job);
    Atomics.store(words, WORD.done, 0);
    Atomics.store(words, WORD.claim, first);
    if (Atomics.load(words, WORD.sleepers) > 0) wakeHelpers(words);
    for (let part = take(this.memory); part !== undefined; part = take(this.memory)) {
      run(part);
      Atomics.add(words, WORD.done, 1);
    }
    this.awaitDone(count);
  }

  private awaitDone(count: number): void {
    const { words, spins } = this.memory;
    for (let i = 0; i < spins; i++) if (Atomics.load(words, WORD.done) === count) return;
    Atomics.store(words, WORD.waits, 1);
    for (;;) {
      const done = Atomics.load(words, WORD.done);
      if (done === count) break;
      Atomics.wait(words, WORD.done, done, LONGEST_SLEEP_MS);
    }
    Atomics.store(words, WORD.waits, 0);
  }
}

/** Tells the helpers to end. */
export function dismissHelpers({ words }: CrewMemory): void {
  Atomics.store(words, WORD.over, 1);
  wakeHelpers(words);
}

function wakeHelpers(words: Int32Array): void {
  Atomics.add(words, WORD.doorbell, 1);
  Atomics.notify(words, WORD.doorbell);
}

/**
 * A helper's side: runs parts until it is dismissed.
 *
 * @param run runs a part of the job that the memory describes
 * @param rest does what can wait until there is nothing else to do
 */
export function help(memory: CrewMemory, run: (part: number) => void, rest: () => void): void {
  const { words, spins } = memory;
  while (Atomics.load(words, WORD.over) === 0) {
    for (let i = 0; i < spins; i++) {
      const part = take(memory);
      if (part === undefined) continue;
      run(part);
      finish(memory);
      i = 0;
    }
    rest();
    Atomics.add(words, WORD.sleepers, 1);
    // Read before what it tells of, so that a job or a dismissal that comes after the checks ends the sleep.
    const bell = Atomics.load(words, WORD.doorbell);
    if (hasNone(memory) && Atomics.load(words, WORD.over) === 0) {
      Atomics.wait(words, WORD.doorbell, bell, LONGEST_SLEEP_MS);
    }
    Atomics.sub(words, WORD.sleepers, 1);
  }
}

function hasNone({ words, job }: CrewMemory): boolean {
  return (Atomics.load(words, WORD.claim) & PART_MASK) >= (job[JOB_FIELD.count] ?? 0);
}
