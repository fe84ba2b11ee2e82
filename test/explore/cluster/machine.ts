/**
 * A simulated cluster: processes whose threads are coroutines, one clock, and a list of what happens later. A thread
 * runs until it sleeps or asks for a turn; then a seed decides who goes on. How threads of one process meet at single
 * words is explored elsewhere (`../machine.ts`); here it is processes, messages, disks and clocks that meet.
 */
import type { Operation, SharedBlock, SimulatedThread, Twin, View } from "../machine.js";
import { Failure } from "../machine.js";
import type { CodeMachine } from "../runtime.js";
import { ClusterPromise, EventLoop, outcomeOf } from "./eventLoop.js";
import type { SimulatedProcess } from "./process.js";

/** A thread of a process. */
export class ClusterThread {
  /** What it waits for; undefined if it can go on. */
  sleeping: Sleep | undefined;
  /** What its last operation returns. */
  result: unknown;
  isDone = false;

  readonly loop: EventLoop;

  constructor(
    readonly name: string,
    readonly process: SimulatedProcess,
    readonly code: Twin,
    isMain: boolean,
  ) {
    this.loop = isMain ? process.loop : new EventLoop(() => process.now());
  }
}

interface Sleep {
  /** The word whose notification wakes it. */
  readonly word?: string;
  readonly isDue?: () => boolean;
  readonly until: number;
}

interface Later {
  readonly at: number;
  readonly action: () => void;
}

/** The most turns of a run: what takes longer does not end. */
const MAX_TURNS = 2_000_000;

export class ClusterMachine implements CodeMachine {
  /** Milliseconds. */
  time = 0;
  numTurns = 0;
  running: ClusterThread | undefined;
  private readonly threads: ClusterThread[] = [];
  private readonly events: Later[] = [];
  private readonly listeners = new Map<string, (() => void)[]>();
  private readonly names = new WeakMap<ArrayBufferLike, number>();
  private numBuffers = 0;

  /** @param random chooses who goes on */
  constructor(private readonly random: () => number) {}

  /** The process of the code that runs. */
  get process(): SimulatedProcess {
    if (this.running === undefined) throw new Error("no process is running");
    return this.running.process;
  }

  /** The event loop of the thread that runs. */
  get loop(): EventLoop {
    if (this.running === undefined) throw new Error("no thread is running");
    return this.running.loop;
  }

  *settle(returned: unknown): Twin {
    return returned instanceof ClusterPromise ? yield* outcomeOf(this.loop, returned) : returned;
  }

  addBlock(): SharedBlock | undefined {
    return undefined;
  }

  mayRace(): void {}

  /** Starts a thread of a process, by default of the one that runs. */
  start(name: string, code: Twin, isWorker = true, process = this.process): SimulatedThread {
    const thread = new ClusterThread(name, process, code, !isWorker);
    this.threads.push(thread);
    // Callers only hand it back.
    return thread as unknown as SimulatedThread;
  }

  kill(thread: SimulatedThread): boolean {
    const own = thread as unknown as ClusterThread;
    const was = !own.isDone;
    own.isDone = true;
    return was;
  }

  /** Ends all threads of a process wherever they are. */
  endThreads(process: SimulatedProcess): void {
    for (const thread of this.threads) if (thread.process === process) thread.isDone = true;
  }

  /** Does something later. */
  after(milliseconds: number, action: () => void): void {
    const event = { at: this.time + milliseconds, action };
    const place = this.events.findIndex(({ at }) => at > event.at);
    this.events.splice(place < 0 ? this.events.length : place, 0, event);
  }

  isImmediate({ kind, array, index, value }: Operation): boolean {
    if (kind === "park") return false;
    return kind !== "wait" || array[index] !== value;
  }

  performAtOnce({ kind, array, index, value, other }: Operation): unknown {
    if (kind === "wait") return "not-equal";
    if (kind === "notify") return this.notify(this.wordOf(array, index), other);
    const before = array[index] ?? 0;
    if (kind === "load" || kind === "read") return before;
    if (kind === "compareExchange") {
      if (before === value) array[index] = other;
      return before;
    }
    array[index] = kind === "add" ? before + value : kind === "sub" ? before - value : value;
    return kind === "add" || kind === "sub" ? before : value;
  }

  whenNotified(array: View, index: number, action: () => void): void {
    const word = this.wordOf(array, index);
    this.listeners.set(word, [...(this.listeners.get(word) ?? []), action]);
  }

  /** Runs until nothing is left to do, or a condition holds. */
  run(isOver: () => boolean): void {
    while (!isOver()) {
      for (let due = this.events[0]; due && due.at <= this.time; due = this.events[0]) {
        this.events.shift();
        due.action();
      }
      const ready = this.threads.filter((thread) => this.canRun(thread));
      if (ready.length === 0) {
        if (!isOver()) this.passTime();
        continue;
      }
      const next = ready[Math.floor(this.random() * ready.length)];
      if (next) this.turn(next);
      if (++this.numTurns > MAX_TURNS)
        throw new Failure("no end", `no end after ${MAX_TURNS} turns and ${this.time} ms`);
      if (this.numTurns % 256 === 0) this.forgetThreads();
    }
  }

  private canRun({ isDone, sleeping, process }: ClusterThread): boolean {
    if (isDone || process.stoppedUntil > this.time) return false;
    return sleeping === undefined || sleeping.until <= this.time || sleeping.isDue?.() === true;
  }

  private turn(thread: ClusterThread): void {
    const { sleeping } = thread;
    if (sleeping?.word !== undefined) thread.result = "timed-out";
    thread.sleeping = undefined;
    this.running = thread;
    try {
      let step = thread.code.next(thread.result);
      while (!step.done && this.isImmediate(step.value)) {
        step = thread.code.next(this.performAtOnce(step.value));
      }
      thread.result = undefined;
      if (step.done) thread.isDone = true;
      else thread.sleeping = this.sleepOf(step.value);
    } finally {
      this.running = undefined;
    }
  }

  private sleepOf({ kind, array, index, other, isDue }: Operation): Sleep {
    const until = this.time + other;
    if (kind === "wait") return { word: this.wordOf(array, index), until };
    if (kind === "park" && isDue) return { isDue, until };
    throw new Error(`${kind} is performed at once`);
  }

  private notify(word: string, count: number): number {
    const woken = this.threads
      .filter(({ isDone, sleeping }) => !isDone && sleeping?.word === word)
      .slice(0, count);
    for (const thread of woken) {
      thread.sleeping = undefined;
      thread.result = "ok";
    }
    const listeners = this.listeners.get(word) ?? [];
    this.listeners.delete(word);
    for (const action of listeners) action();
    return woken.length + listeners.length;
  }

  /** Goes on to the next moment at which something can happen. */
  private passTime(): void {
    const moments = this.threads
      .filter(({ isDone }) => !isDone)
      .map(({ sleeping, process }) => Math.max(sleeping?.until ?? this.time, process.stoppedUntil));
    const next = Math.min(this.events[0]?.at ?? Number.POSITIVE_INFINITY, ...moments);
    if (!Number.isFinite(next)) throw new Failure("deadlock", `nothing can go on: ${this.whereabouts()}`);
    this.time = Math.max(this.time, next);
  }

  private whereabouts(): string {
    const left = this.threads.filter(({ isDone }) => !isDone);
    return left.length === 0 ? "all threads have ended" : left.map(({ name }) => `${name} sleeps`).join(", ");
  }

  private forgetThreads(): void {
    for (let i = this.threads.length - 1; i >= 0; i--) if (this.threads[i]?.isDone) this.threads.splice(i, 1);
  }

  private wordOf(array: View, index: number): string {
    let name = this.names.get(array.buffer);
    if (name === undefined) {
      name = this.numBuffers++;
      this.names.set(array.buffer, name);
    }
    return `${name}:${array.byteOffset + index * array.BYTES_PER_ELEMENT}`;
  }
}
