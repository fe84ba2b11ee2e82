import { deviceBase, STATE, WORD } from "./control.js";

/** What the watchdog needs to know of a device. */
export interface Watched {
  readonly sent: number;
}

/** A worker may take this long to start on a machine that is busy. */
const START_MS = 30_000;

interface Sample {
  progress: number;
  completed: number;
  since: number;
}

/**
 * Looks from time to time whether the devices that have work get on with it. A device that computes without
 * beginning a new step for longer than the deadline has failed; one that waits for a peer has not, unless
 * everybody waits.
 */
export class Watchdog {
  private timer: NodeJS.Timeout | undefined;
  private samples: Sample[] = [];

  constructor(
    private readonly control: Int32Array,
    private readonly deadlineMs: number,
    private readonly fail: (device: number, reason: string) => void,
  ) {}

  /** Begins to look after devices that have been given work. */
  start(devices: readonly Watched[]): void {
    if (!Number.isFinite(this.deadlineMs)) return;
    this.samples = [];
    const interval = Math.min(1000, Math.max(5, this.deadlineMs / 4));
    this.timer = setInterval(() => this.look(devices), interval);
    this.timer.unref();
  }

  /** Stops looking. */
  stop(): void {
    clearInterval(this.timer);
    this.timer = undefined;
  }

  /** Looks once whether the devices get on. */
  look(devices: readonly Watched[]): void {
    const now = performance.now();
    const state = (device: number) => Atomics.load(this.control, deviceBase(device) + WORD.state);
    const working: number[] = [];
    const stuck: number[] = [];
    devices.forEach(({ sent }, device) => {
      const base = deviceBase(device);
      const progress = Atomics.load(this.control, base + WORD.progress);
      const completed = Atomics.load(this.control, base + WORD.completed);
      const sample = this.samples[device];
      if (sample === undefined || sample.progress !== progress || sample.completed !== completed) {
        this.samples[device] = { progress, completed, since: now };
      }
      if (completed === (sent | 0)) return;
      working.push(device);
      const patience =
        state(device) === STATE.starting ? Math.max(this.deadlineMs, START_MS) : this.deadlineMs;
      if (now - (this.samples[device]?.since ?? now) >= patience) stuck.push(device);
    });
    const culprit = stuck.find((device) => state(device) !== STATE.waiting);
    if (culprit !== undefined) {
      this.fail(culprit, `it made no progress for ${this.deadlineMs} ms`);
      return;
    }
    const first = stuck[0];
    if (first === undefined || stuck.length < working.length) return;
    const peer = Atomics.load(this.control, deviceBase(first) + WORD.waitsFor);
    const whom = peer < 0 ? "its peers, which wait too or have" : `device ${peer}, which waits too or has`;
    this.fail(first, `it has waited ${this.deadlineMs} ms for ${whom} no such work`);
  }
}
