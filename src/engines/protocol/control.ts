/**
 * The words that the main thread and the workers share besides tensors: one `Int32Array` for an engine, with a
 * few global words and one block per device. Words that different threads write are on different cache lines, so that
 * a device that publishes its progress does not slow down one that spins on another word.
 */
import { layout, onNewLine } from "./layout.js";

const GLOBAL = layout({ abort: onNewLine(), events: onNewLine() });

/** Set to 1 by the main thread when every device must stop waiting and leave. */
export const ABORT = GLOBAL.abort;
/** Incremented whenever something happens on any device; the main thread sleeps on it. */
export const EVENTS = GLOBAL.events;

/** The words of a device's block, as offsets from {@link deviceBase}. */
export const WORD = layout({
  /** The device's doorbell, which is incremented to wake it. */
  doorbell: onNewLine(),
  /** Not 0 while the device sleeps on its doorbell: one of {@link SLEEP}. */
  sleeps: 1,
  /** Up to which word the main thread has written commands. */
  tail: onNewLine(),
  /** How many calls of the host the main thread has answered. */
  answers: 1,
  /** Up to which word the device has taken commands. */
  head: onNewLine(),
  /** How many commands the device has finished. */
  completed: 1,
  /** The id of the program that runs, or 0. */
  program: onNewLine(),
  /** The index of the step that runs. */
  step: 1,
  /** One of {@link STATE}. */
  state: 1,
  /** Changes whenever the device begins a step. */
  progress: 1,
  /** The device this one waits for while its state is `waiting`; −1 for several, −2 for the main thread. */
  waitsFor: 1,
  /** Not 0 when the device has found that its peers have diverged: one more than the kind of groups. */
  diverged: 1,
  /** Odd while the device is in a loop without a fixed end; counts their begins and ends. */
  loops: 1,
  /** How many calls of the host the device has asked for. */
  calls: 1,
});

/** What a device does; its worker says `gone` when it ends. */
export const STATE = { starting: 0, idle: 1, running: 2, waiting: 3, gone: 4 } as const;

/** What a sleeping device waits for: a peer in a collective, a command, a peer that finishes a command, or the host. */
export const SLEEP = { awake: 0, forPeer: 1, forCommand: 2, forCompletion: 3, forAnswer: 4 } as const;

/** One of {@link SLEEP}. */
export type Sleep = (typeof SLEEP)[keyof typeof SLEEP];

/** Where the block of a device begins. */
export function deviceBase(device: number): number {
  return GLOBAL.size + device * WORD.size;
}

/** A zeroed control area for `numDevices` devices. */
export function newControl(numDevices: number): Int32Array<SharedArrayBuffer> {
  return new Int32Array(new SharedArrayBuffer(4 * (GLOBAL.size + numDevices * WORD.size)));
}

/** Wakes a device that sleeps for the given reason; costs one load when it does not. */
export function ring(control: Int32Array, device: number, sleep: Sleep): void {
  const base = deviceBase(device);
  if (Atomics.load(control, base + WORD.sleeps) !== sleep) return;
  Atomics.add(control, base + WORD.doorbell, 1);
  Atomics.notify(control, base + WORD.doorbell);
}

/** Tells the main thread that something happened. */
export function reportEvent(control: Int32Array): void {
  Atomics.add(control, EVENTS, 1);
  Atomics.notify(control, EVENTS);
}

/** Makes every device leave: sets the abort word and wakes all of them. */
export function abortAll(control: Int32Array, numDevices: number): void {
  Atomics.store(control, ABORT, 1);
  for (let device = 0; device < numDevices; device++) {
    const doorbell = deviceBase(device) + WORD.doorbell;
    Atomics.add(control, doorbell, 1);
    Atomics.notify(control, doorbell);
  }
}
