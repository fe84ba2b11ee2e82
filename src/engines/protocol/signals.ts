import { ABORT, deviceBase, reportEvent, ring, SLEEP, type Sleep, STATE, WORD } from "./control.js";

/** Thrown inside a worker when the engine stops; it ends the worker without being a failure of it. */
export class Aborted extends Error {
  constructor() {
    super("the engine stopped");
  }
}

/** Stands for the peer if a device waits for several. */
export const SEVERAL = -1;

/** Stands for the main thread, which calls host callbacks. */
export const THE_HOST = -2;

/** Something that a device must poll for, because no thread rings when it arrives. */
export interface Awaited {
  /** Whether it has arrived; checks at most `looks` times. */
  isDoneWithin(looks: number): boolean;
}

/** Receives the waits of a device while a trace is recorded; times are in milliseconds. */
export interface WaitListener {
  now(): number;
  waited(begin: number, end: number): void;
}

/** Checks before a sleep: about 9 µs if every worker has a core, almost none if they share cores. */
const SPINS = { ownCore: 1000, sharedCore: 50 } as const;

/** How many checks of a word of memory take about as long as one check for messages. */
const LOOK_COST = 5;

/** How many times in a row a worker checks for messages before it yields its core. */
const LOOKS_PER_TURN = 8;

/** How long a polling worker keeps yielding its core before it sleeps between checks. */
const YIELD_MS = 3;

/** The longest sleep between checks. */
const LONGEST_POLL_MS = 1;

/** The longest sleep of a worker before it checks again without being woken. */
const LONGEST_SLEEP_MS = 1000;

/**
 * One device's side of waiting and waking. A wait first spins, because a sleep costs several microseconds, and
 * then sleeps on the device's doorbell. Whoever changes something that others wait for stores it and then rings
 * those that sleep; both sides use sequentially consistent operations, so no wake-up is lost.
 */
export class Signals {
  private readonly doorbell: number;
  private readonly sleeps: number;
  private readonly state: number;
  private readonly waitsFor: number;

  private readonly spins: number;

  /** While a trace is recorded: receives every wait for a peer, and has the clock to measure it. */
  listener: WaitListener | undefined;

  /**
   * @param crowded whether there are more workers than cores, so that spinning keeps others from working
   */
  constructor(
    readonly control: Int32Array,
    readonly device: number,
    readonly crowded: boolean,
  ) {
    this.spins = crowded ? SPINS.sharedCore : SPINS.ownCore;
    const base = deviceBase(device);
    this.doorbell = base + WORD.doorbell;
    this.sleeps = base + WORD.sleeps;
    this.state = base + WORD.state;
    this.waitsFor = base + WORD.waitsFor;
  }

  /**
   * Waits until `words[index]` has reached `sequence`, counting around; `peer` is named if that never happens.
   *
   * @param verify called before each sleep; it may throw when there is nothing to wait for
   */
  waitForSequence(
    words: Int32Array,
    index: number,
    sequence: number,
    peer: number,
    sleep: Sleep = SLEEP.forPeer,
    verify?: () => void,
  ): void {
    if (((Atomics.load(words, index) - sequence) | 0) >= 0) return;
    const { listener } = this;
    if (listener === undefined) {
      this.wait(words, index, sequence, peer, sleep, verify);
    } else {
      const begin = listener.now();
      this.wait(words, index, sequence, peer, sleep, verify);
      listener.waited(begin, listener.now());
    }
  }

  private wait(
    words: Int32Array,
    index: number,
    sequence: number,
    peer: number,
    sleep: Sleep,
    verify?: () => void,
  ): void {
    for (let i = 0; i < this.spins; i++) {
      if (((Atomics.load(words, index) - sequence) | 0) >= 0) return;
    }
    const { control } = this;
    Atomics.store(control, this.waitsFor, peer);
    Atomics.store(control, this.state, STATE.waiting);
    for (;;) {
      const bell = Atomics.load(control, this.doorbell);
      Atomics.store(control, this.sleeps, sleep);
      if (((Atomics.load(words, index) - sequence) | 0) >= 0) break;
      this.throwIfAborted();
      verify?.();
      Atomics.wait(control, this.doorbell, bell, LONGEST_SLEEP_MS);
    }
    Atomics.store(control, this.sleeps, SLEEP.awake);
    Atomics.store(control, this.state, STATE.running);
  }

  /**
   * Polls for something that no thread rings for, such as a message of another process. The longer it takes, the more
   * time the worker leaves to others between the checks.
   */
  poll(awaited: Awaited, peer: number, yieldCore: () => void): void {
    const { listener } = this;
    // If it has arrived already, no wait is recorded.
    if (listener !== undefined && awaited.isDoneWithin(1)) return;
    const begin = listener?.now() ?? 0;
    if (awaited.isDoneWithin(this.spins / LOOK_COST)) {
      listener?.waited(begin, listener.now());
      return;
    }
    const { control } = this;
    Atomics.store(control, this.waitsFor, peer);
    Atomics.store(control, this.state, STATE.waiting);
    const since = performance.now();
    while (!awaited.isDoneWithin(LOOKS_PER_TURN)) {
      this.throwIfAborted();
      const waited = performance.now() - since;
      if (waited < YIELD_MS) yieldCore();
      else {
        const bell = Atomics.load(control, this.doorbell);
        Atomics.wait(control, this.doorbell, bell, Math.min(LONGEST_POLL_MS, waited / 20));
      }
    }
    Atomics.store(control, this.state, STATE.running);
    listener?.waited(begin, listener.now());
  }

  /** Asks the main thread to call a host callback, and waits until it has. */
  callHost(): void {
    const base = deviceBase(this.device);
    const number = Atomics.add(this.control, base + WORD.calls, 1) + 1;
    reportEvent(this.control);
    this.waitForSequence(this.control, base + WORD.answers, number, THE_HOST, SLEEP.forAnswer);
  }

  /** Waits until `control[index]` is something else than `value`. */
  waitForChange(index: number, value: number): void {
    const { control } = this;
    for (let i = 0; i <= this.spins; i++) {
      if (Atomics.load(control, index) !== value) return;
    }
    for (;;) {
      const bell = Atomics.load(control, this.doorbell);
      Atomics.store(control, this.sleeps, SLEEP.forCommand);
      if (Atomics.load(control, index) !== value) break;
      this.throwIfAborted();
      Atomics.wait(control, this.doorbell, bell, LONGEST_SLEEP_MS);
    }
    Atomics.store(control, this.sleeps, SLEEP.awake);
  }

  /** Wakes the devices that sleep, after something they may wait for was stored. */
  wake(devices: readonly number[]): void {
    for (const device of devices) if (device !== this.device) ring(this.control, device, SLEEP.forPeer);
  }

  /** Wakes those who wait for this device to finish a command. */
  wakeFollowers(numDevices: number): void {
    for (let device = 0; device < numDevices; device++) {
      if (device !== this.device) ring(this.control, device, SLEEP.forCompletion);
    }
  }

  /** Ends the worker when the engine stops. */
  throwIfAborted(): void {
    if (Atomics.load(this.control, ABORT) !== 0) throw new Aborted();
  }
}
