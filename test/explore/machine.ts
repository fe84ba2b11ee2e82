/**
 * A simulated machine with shared memory: threads are coroutines that yield every operation on shared words, and a
 * scheduler decides which one goes on. Memory behaves as JavaScript's memory model says:
 *
 * - `Atomics` operations are sequentially consistent. A load orders what follows after what came before the store
 *   whose value it returns; so does being woken by `notify`.
 * - A plain access that nothing orders with a conflicting one is a data race, which fails the run. Programs without
 *   races cannot tell weak memory from strong memory, so this check stands for all reorderings.
 * - Words on which races are intended are named with {@link Machine.mayRace}. A read of such a word returns any value
 *   that it may have under the memory model, however old, and halves of two values where 64 bits can tear.
 *
 * A timeout passes only when no thread can run: waking up late because nobody notified is reported.
 */
import {
  acquire,
  addTorn,
  type Cell,
  join,
  MAX_THREADS,
  newCell,
  release,
  remember,
  type Written,
} from "./cells.js";
import type { Site } from "./transform.js";
import type { Transitions } from "./transitions.js";

export type View = Int32Array | Uint32Array | Float64Array | Uint8Array | Float32Array;

/** Shared memory, and where its first word lies among those of the machine. */
export interface SharedBlock {
  readonly base: number;
  name: string;
  wordName: (word: number) => string;
}

/** What a thread asks the machine to do. */
export interface Operation {
  readonly kind:
    | "read"
    | "write"
    | "load"
    | "store"
    | "add"
    | "sub"
    | "compareExchange"
    | "wait"
    | "notify"
    | "park";
  readonly site: number;
  readonly array: View;
  readonly index: number;
  /** What is written, added, waited for or expected. */
  readonly value: number;
  /** What `compareExchange` writes, how long `wait` waits, how many `notify` wakes. */
  readonly other: number;
  /** Of `park`: whether the thread may go on. */
  readonly isDue?: () => boolean;
}

export type Twin = Generator<Operation, unknown, unknown>;

/** Says what happens next. */
export interface Scheduler {
  /** Whether threads can be interrupted at plain accesses that do not race. */
  readonly stopsAtPlain: boolean;
  /** Which of the threads goes on. */
  next(enabled: readonly SimulatedThread[], machine: Machine): SimulatedThread;
  /** Which of several values a racing read returns; 0 is the newest. */
  choose(count: number): number;
  /** Called when one thread has woken another. */
  woke?(thread: SimulatedThread, by: SimulatedThread): void;
}

/** Why a run fails. */
export class Failure extends Error {
  constructor(
    readonly kind: "deadlock" | "lost wake-up" | "data race" | "wrong result" | "exception" | "no end",
    message: string,
  ) {
    super(message);
  }
}

/** Thrown by schedulers that have seen enough of a run. */
export class Pruned extends Error {}

interface Waiter {
  readonly location: number;
  wake(): void;
}

/** After so many timeouts in a run, nothing but timeouts will happen. */
const MAX_TIMEOUTS = 200;

/** A thread of the machine. */
export class SimulatedThread {
  /** The operation that the thread performs next. */
  pending: Operation | undefined;
  /** Set while it sleeps. */
  sleeping: Waiter | undefined;
  readonly clock = new Int32Array(MAX_THREADS);
  /** What the last operation returns. */
  result: unknown;
  isDone = false;

  constructor(
    readonly id: number,
    readonly name: string,
    readonly code: Twin,
    /** Whether the run is over without it. */
    readonly isDaemon: boolean,
  ) {}
}

/** One step of a run, for printing. */
export interface Step {
  readonly thread: SimulatedThread;
  readonly operation: Operation;
  readonly result: unknown;
}

export interface MachineOptions {
  readonly sites: readonly Site[];
  /** Whether to keep all steps. */
  readonly keepsSteps?: boolean;
  /** The most steps of a run. */
  readonly maxSteps?: number;
  /** Is told of all accesses. */
  readonly transitions?: Transitions | undefined;
}

export class Machine {
  readonly threads: SimulatedThread[] = [];
  readonly steps: Step[] = [];
  numSteps = 0;
  /** Milliseconds. */
  time = 0;
  /** Whether sleeping until a timeout passes is part of the scenario. */
  timeoutsAreExpected = false;
  private readonly blocks: SharedBlock[] = [];
  private numWords = 0;
  private readonly cells = new Map<number, Cell>();
  private readonly waiters: Waiter[] = [];
  private readonly racing = new Set<number>();
  private scheduler: Scheduler | undefined;
  private running: SimulatedThread | undefined;
  private lateWakes = "";
  private numTimeouts = 0;

  constructor(readonly options: MachineOptions) {}

  /** Gives words of the machine to a buffer. */
  addBlock(bytes: number): SharedBlock {
    const number = this.blocks.length;
    const block = { base: this.numWords, name: `block${number}`, wordName: String };
    this.numWords += Math.ceil(bytes / 8) * 2;
    this.blocks.push(block);
    return block;
  }

  /** Lets races on a word be: reads of it may return old values. */
  mayRace(array: View, index: number): void {
    const location = locationOf(array, index);
    for (let word = 0; word < wordsOf(array); word++) this.racing.add(location + word);
    this.cell(location).history = [{ value: array[index] ?? 0, thread: -1, time: 0 }];
  }

  /** Starts a thread; what its starter did comes before. */
  start(name: string, code: Twin, isDaemon = false): SimulatedThread {
    const thread = new SimulatedThread(this.threads.length, name, code, isDaemon);
    if (thread.id >= MAX_THREADS) throw new Error(`${MAX_THREADS} threads are the most`);
    if (this.running) {
      join(thread.clock, this.running.clock);
      this.running.clock[this.running.id] = (this.running.clock[this.running.id] ?? 0) + 1;
    }
    thread.clock[thread.id] = 1;
    this.threads.push(thread);
    this.advance(thread);
    return thread;
  }

  /** Runs all threads to their ends. */
  run(scheduler: Scheduler): void {
    this.scheduler = scheduler;
    const { maxSteps = 20_000 } = this.options;
    for (;;) {
      const enabled = this.threads.filter(isEnabled);
      if (enabled.length === 0) {
        if (this.threads.every(({ isDone, isDaemon }) => isDone || isDaemon)) break;
        this.passTime();
        continue;
      }
      const thread = scheduler.next(enabled, this);
      this.step(thread);
      while (!scheduler.stopsAtPlain && isEnabled(thread) && !this.isVisible(thread.pending))
        this.step(thread);
      if (this.numSteps > maxSteps) {
        throw new Failure("no end", `no end after ${maxSteps} steps: ${this.whereabouts()}`);
      }
    }
    if (this.lateWakes !== "" && !this.timeoutsAreExpected) {
      throw new Failure("lost wake-up", `all slept until a timeout passed: ${this.lateWakes}`);
    }
  }

  /** Whether the order of this operation and others matters even if there are no data races. */
  isVisible(operation: Operation | undefined): boolean {
    if (operation === undefined) return true;
    const { kind, array, index } = operation;
    return (kind !== "read" && kind !== "write") || this.racing.has(locationOf(array, index));
  }

  /** Whether an access can be performed without asking which thread goes on. */
  isImmediate(operation: Operation): boolean {
    return this.scheduler?.stopsAtPlain === false && !this.isVisible(operation);
  }

  /** Performs an access of the running thread. */
  performAtOnce(operation: Operation): unknown {
    const { running: thread } = this;
    if (thread === undefined) throw new Error("no thread is running");
    this.numSteps++;
    const result = this.perform(thread, operation);
    if (this.options.keepsSteps) this.steps.push({ thread, operation, result });
    return result;
  }

  private step(thread: SimulatedThread): void {
    const { pending } = thread;
    if (pending === undefined) return;
    this.numSteps++;
    this.running = thread;
    thread.result = this.perform(thread, pending);
    if (this.options.keepsSteps) this.steps.push({ thread, operation: pending, result: thread.result });
    if (thread.sleeping === undefined) this.advance(thread);
  }

  /** Runs a thread's own code up to its next operation. */
  private advance(thread: SimulatedThread): void {
    const outer = this.running;
    this.running = thread;
    try {
      const { done, value } = thread.code.next(thread.result);
      thread.isDone = done === true;
      thread.pending = done === true ? undefined : value;
    } catch (error) {
      if (error instanceof Failure || error instanceof Pruned) throw error;
      const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
      throw new Failure("exception", `${thread.name} threw ${text}`);
    } finally {
      this.running = outer;
    }
  }

  /** Lets the next timeout pass, since nothing else can happen. */
  private passTime(): void {
    const sleepers = this.threads.filter(({ isDone, pending }) => !isDone && Number.isFinite(pending?.other));
    const next = Math.min(...sleepers.map(({ pending }) => pending?.other ?? 0));
    const late = sleepers.find(({ pending }) => pending?.other === next);
    if (late === undefined) throw new Failure("deadlock", `nothing can go on: ${this.whereabouts()}`);
    if (this.lateWakes === "") this.lateWakes = this.whereabouts();
    if (++this.numTimeouts > MAX_TIMEOUTS)
      throw new Failure("deadlock", `only timeouts pass: ${this.lateWakes}`);
    this.time += next;
    // No store takes that long to become visible.
    for (const location of this.racing) {
      const { history } = this.cell(location);
      history?.splice(0, history.length - 1);
    }
    this.wake(late, "timed-out");
  }

  /** Ends a thread wherever it is; returns whether it was running. */
  kill(thread: SimulatedThread): boolean {
    if (thread.isDone) return false;
    const { sleeping } = thread;
    if (sleeping) this.waiters.splice(this.waiters.indexOf(sleeping), 1);
    thread.sleeping = undefined;
    thread.isDone = true;
    return true;
  }

  private wake(thread: SimulatedThread, result: "ok" | "timed-out"): void {
    const { sleeping } = thread;
    if (sleeping) this.waiters.splice(this.waiters.indexOf(sleeping), 1);
    thread.sleeping = undefined;
    thread.result = result;
    this.advance(thread);
  }

  /** Calls a function when a word is notified; for `Atomics.waitAsync`. */
  whenNotified(array: View, index: number, action: () => void): void {
    const waiter: Waiter = {
      location: locationOf(array, index),
      wake: () => {
        this.waiters.splice(this.waiters.indexOf(waiter), 1);
        action();
      },
    };
    this.waiters.push(waiter);
  }

  private perform(thread: SimulatedThread, operation: Operation): unknown {
    const { kind, array, index, value, other } = operation;
    if (kind === "park") return undefined;
    const location = locationOf(array, index);
    this.options.transitions?.add(thread.id, operation.site, location);
    if (kind === "read") return this.readPlain(thread, operation, location);
    if (kind === "write") return this.writePlain(thread, operation, location);
    if (kind === "notify") return this.notify(thread, location, other);
    const cell = this.cell(location);
    this.checkRace(thread, cell, operation, location);
    acquire(thread, cell);
    if (kind === "load" && cell.history) return this.chooseValue(thread, array, cell.history);
    const before = array[index] ?? 0;
    if (kind === "load") return before;
    if (kind === "wait") return this.wait(thread, operation, location, before);
    if (kind === "compareExchange" && before !== value) return before;
    const after = { store: value, add: before + value, sub: before - value, compareExchange: other }[kind];
    array[index] = after;
    if (kind === "store") cell.released = undefined;
    release(thread, cell);
    remember(cell, thread, array[index] ?? 0);
    thread.clock[thread.id] = (thread.clock[thread.id] ?? 0) + 1;
    return kind === "store" ? value : before;
  }

  private wait(thread: SimulatedThread, { value }: Operation, location: number, before: number): string {
    if (before !== value) return "not-equal";
    const waiter: Waiter = { location, wake: () => this.wake(thread, "ok") };
    thread.sleeping = waiter;
    this.waiters.push(waiter);
    return "ok";
  }

  private notify(thread: SimulatedThread, location: number, count: number): number {
    const woken = this.waiters.filter((waiter) => waiter.location === location).slice(0, count);
    for (const other of this.threads) {
      if (!other.sleeping || !woken.includes(other.sleeping)) continue;
      join(other.clock, thread.clock);
      this.scheduler?.woke?.(other, thread);
    }
    if (woken.length > 0) thread.clock[thread.id] = (thread.clock[thread.id] ?? 0) + 1;
    for (const waiter of woken) waiter.wake();
    return woken.length;
  }

  private readPlain(thread: SimulatedThread, operation: Operation, location: number): number {
    const { array, index } = operation;
    for (let word = 0; word < wordsOf(array); word++) {
      this.checkRace(thread, this.cell(location + word), operation, location + word);
    }
    const { history } = this.cell(location);
    return history ? this.chooseValue(thread, array, history) : (array[index] ?? 0);
  }

  private writePlain(thread: SimulatedThread, operation: Operation, location: number): number {
    const { array, index, value } = operation;
    for (let word = 0; word < wordsOf(array); word++) {
      this.checkRace(thread, this.cell(location + word), operation, location + word);
    }
    array[index] = value;
    const cell = this.cell(location);
    // A later atomic load of a value that was written plainly orders nothing.
    cell.released = undefined;
    remember(cell, thread, array[index] ?? 0);
    return value;
  }

  /** One of the values that a word may have for a thread, given what it knows. */
  private chooseValue(thread: SimulatedThread, array: View, history: readonly Written[]): number {
    const values: number[] = [];
    for (let i = history.length - 1; i >= 0; i--) {
      const written = history[i];
      if (written === undefined) break;
      if (!values.includes(written.value)) values.push(written.value);
      if (written.thread < 0 || written.time <= (thread.clock[written.thread] ?? 0)) break;
    }
    if (array instanceof Float64Array) addTorn(values);
    const chosen = values.length === 1 ? 0 : (this.scheduler?.choose(values.length) ?? 0);
    return values[chosen] ?? 0;
  }

  private checkRace(thread: SimulatedThread, cell: Cell, operation: Operation, location: number): void {
    const { kind, site } = operation;
    const isAtomic = kind !== "read" && kind !== "write";
    const writes = kind !== "read" && kind !== "load" && kind !== "wait";
    const { id, clock } = thread;
    if (!this.racing.has(location)) {
      const isUnordered =
        cell.writer >= 0 && cell.writer !== id && cell.writeTime > (clock[cell.writer] ?? 0);
      if (isUnordered && !(isAtomic && cell.writeIsAtomic))
        this.reportRace(thread, operation, cell.writer, cell.writeSite);
      for (let other = 0; writes && other < this.threads.length; other++) {
        if (other === id) continue;
        const last = Math.max(cell.reads[other] ?? 0, isAtomic ? 0 : (cell.atomicReads[other] ?? 0));
        if (last > (clock[other] ?? 0)) this.reportRace(thread, operation, other, cell.readSites[other] ?? 0);
      }
    }
    const now = clock[id] ?? 0;
    if (writes) {
      [cell.writer, cell.writeTime, cell.writeIsAtomic, cell.writeSite] = [id, now, isAtomic, site];
    } else {
      (isAtomic ? cell.atomicReads : cell.reads)[id] = now;
      cell.readSites[id] = site;
    }
  }

  private reportRace(thread: SimulatedThread, operation: Operation, other: number, site: number): never {
    const [own, their] = [operation.site, site].map((number) => this.siteText(number));
    throw new Failure(
      "data race",
      `nothing orders ${thread.name} at ${own} and ${this.threads[other]?.name} at ${their} (${this.nameOf(operation)})`,
    );
  }

  private cell(location: number): Cell {
    const found = this.cells.get(location);
    if (found !== undefined) return found;
    const made = newCell();
    this.cells.set(location, made);
    return made;
  }

  /** Where all threads are that have not ended. */
  whereabouts(): string {
    return this.threads
      .filter(({ isDone }) => !isDone)
      .map(({ name, pending, sleeping }) => {
        return `${name} ${sleeping ? "sleeps" : "is"} at ${pending ? this.siteText(pending.site) : "its start"}`;
      })
      .join("; ");
  }

  siteText(number: number): string {
    const site = this.options.sites[number];
    return site ? `${site.file.replace(/^src\/engines\//, "")}:${site.line}` : "the machine";
  }

  /** The name of the word that an operation is about. */
  nameOf({ array, index, kind }: Operation): string {
    if (kind === "park") return "its event loop";
    const location = locationOf(array, index);
    const block = this.blocks.findLast(({ base }) => base <= location);
    return block ? `${block.name}[${block.wordName(location - block.base)}]` : String(location);
  }
}

function isEnabled({ isDone, sleeping, pending }: SimulatedThread): boolean {
  return !isDone && sleeping === undefined && (pending?.isDue?.() ?? true);
}

/** The number of the word among those of the machine. */
export function locationOf(array: View & { $shared?: SharedBlock }, index: number): number {
  return (array.$shared?.base ?? 0) + ((array.byteOffset + index * array.BYTES_PER_ELEMENT) >> 2);
}

function wordsOf(array: View): number {
  return array.BYTES_PER_ELEMENT === 8 ? 2 : 1;
}
