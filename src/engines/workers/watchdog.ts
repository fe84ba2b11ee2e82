import { backgroundInterval } from "#platform/system";
import { deviceBase, STATE, WORD } from "../protocol/control.js";
import { THE_HOST } from "../protocol/signals.js";

/** What the watchdog needs to know about a device. */
export interface WatchedDevice {
  readonly sent: number;
}

/** The watchdog's reports. */
export interface WatchdogListener {
  /** A device has failed. */
  fail(device: number, reason: string): void;
  /** A device may be about to fail. */
  warn(device: number, text: string): void;
  /** The engine's number of a device, which other processes know it by. */
  numberOf(device: number): number;
  /** The arithmetic operations of the step that a device runs. */
  flopsOf(device: number): number;
}

/** How long a worker may take to start on a busy machine. */
const START_MS = 30_000;

/** What a device does in a millisecond at least; large steps get the time that they take at this speed besides. */
const LEAST_FLOPS_PER_MS = 1e6;

/** If all devices wait for each other for this long, none of them will continue. */
const DEADLOCK_MS = 10_000;

interface Sample {
  progress: number;
  completed: number;
  loops: number;
  isStarting: boolean;
  /** When it last began a step, or finished starting. */
  since: number;
  /** When it last began a step outside of loops without a fixed trip count. */
  sinceLoop: number;
  warned: boolean;
}

/**
 * The watchdog finds devices that get no further, and those that wait for peers which have diverged where nothing else
 * tells (docs/divergence.md). It looks from time to time whether the devices that have work get on with it. A device
 * has failed that computes without beginning a new step for longer than the deadline and the time that its step takes at
 * 1 GFLOP/s, and so has one that does not leave a `while` loop; one that waits for a peer has not, unless everybody waits.
 * Time counts only while this process runs: what passes while it is stopped, or while the machine sleeps, is nobody's
 * fault.
 */
export class Watchdog {
  private stopTimer: (() => void) | undefined;
  private samples: Sample[] = [];
  private readonly interval: number;
  /** Milliseconds during which the process ran. */
  private clock = 0;
  private looked: number | undefined;

  constructor(
    private readonly control: Int32Array,
    private readonly deadlineMs: number,
    private readonly listener: WatchdogListener,
    /** How long all devices of this process may wait before the run counts as deadlocked. */
    private readonly deadlockMs: number = DEADLOCK_MS,
  ) {
    this.interval = Math.min(1000, Math.max(5, deadlineMs / 4));
  }

  /** Starts watching devices that have been given work. */
  start(devices: readonly WatchedDevice[]): void {
    if (!Number.isFinite(this.deadlineMs)) return;
    this.samples = [];
    this.looked = undefined;
    this.stopTimer = backgroundInterval(() => this.look(devices), this.interval);
  }

  /** Stops watching. */
  stop(): void {
    this.stopTimer?.();
    this.stopTimer = undefined;
  }

  /** Checks once whether the devices make progress. */
  look(devices: readonly WatchedDevice[]): void {
    if (!Number.isFinite(this.deadlineMs)) return;
    this.advance();
    const working = devices.flatMap(({ sent }, device) =>
      this.sample(device) === (sent | 0) ? [] : [device],
    );
    const stuckFor = (device: number) => this.clock - (this.samples[device]?.since ?? this.clock);
    const stuck = working.filter(
      (device) => stuckFor(device) >= this.deadlineMs && stuckFor(device) >= this.patience(device),
    );
    const culprit = stuck.find((device) => this.word(device, WORD.state) !== STATE.waiting);
    if (culprit !== undefined) {
      this.listener.fail(culprit, `it made no progress for ${this.patience(culprit)} ms`);
      return;
    }
    const endless = working.find((device) => this.isEndless(device));
    if (endless !== undefined) {
      const reason = `its whileLoop has not ended for ${this.deadlineMs} ms (if it may take that long, raise deadlineMs)`;
      this.listener.fail(endless, reason);
      return;
    }
    const patience = Math.min(this.deadlineMs, this.deadlockMs);
    const isWaiting = (device: number) =>
      this.word(device, WORD.state) === STATE.waiting && stuckFor(device) >= patience;
    const [first] = working;
    if (first !== undefined && working.every(isWaiting)) {
      this.listener.fail(first, `it has waited ${patience} ms for ${this.whom(first)} no such work`);
      return;
    }
    for (const device of working) this.warn(device, stuckFor(device));
  }

  private advance(): void {
    const now = performance.now();
    this.clock += Math.min(now - (this.looked ?? now), 2 * this.interval);
    this.looked = now;
  }

  private word(device: number, word: number): number {
    return Atomics.load(this.control, deviceBase(device) + word);
  }

  /** Records the progress of a device, and returns how many commands it has finished. */
  private sample(device: number): number {
    const completed = this.word(device, WORD.completed);
    const progress = this.word(device, WORD.progress);
    const loops = this.word(device, WORD.loops);
    const isStarting = this.isStarting(device);
    const before = this.samples[device];
    if (before === undefined || before.completed !== completed) {
      this.samples[device] = {
        progress,
        completed,
        loops,
        isStarting,
        since: this.clock,
        sinceLoop: this.clock,
        warned: false,
      };
      return completed;
    }
    // The time a worker took to start does not count towards its first step.
    if (before.progress !== progress || before.isStarting !== isStarting) before.since = this.clock;
    // An even number means no loop; an odd one that does not change is a loop still running.
    if (before.loops !== loops || loops % 2 === 0) before.sinceLoop = this.clock;
    Object.assign(before, { progress, loops, isStarting });
    return completed;
  }

  private patience(device: number): number {
    if (this.isStarting(device)) return Math.max(this.deadlineMs, START_MS);
    return this.deadlineMs + Math.round(this.listener.flopsOf(device) / LEAST_FLOPS_PER_MS);
  }

  private isStarting(device: number): boolean {
    return this.word(device, WORD.state) === STATE.starting;
  }

  private isEndless(device: number): boolean {
    return this.clock - (this.samples[device]?.sinceLoop ?? this.clock) >= this.deadlineMs;
  }

  private whom(device: number): string {
    const peer = this.word(device, WORD.waitsFor);
    if (peer === THE_HOST) return "a host callback to be called, for which the main thread has";
    if (peer < 0) return "its peers, which wait too or have";
    return `device ${this.listener.numberOf(peer)}, which waits too or has`;
  }

  /** Warns once about a device that has used up half of its deadline. */
  private warn(device: number, stuckFor: number): void {
    const sample = this.samples[device];
    if (sample === undefined || sample.warned) return;
    if (
      stuckFor < this.deadlineMs / 2 ||
      stuckFor < this.patience(device) / 2 ||
      this.word(device, WORD.state) === STATE.waiting
    )
      return;
    sample.warned = true;
    const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`;
    this.listener.warn(
      device,
      `it has made no progress for ${seconds(stuckFor)}; after ${seconds(this.patience(device))} it counts as failed (deadlineMs)`,
    );
  }
}
