import { mayBlock, warn } from "#platform/system";
import { DisposedError, type ShardwiseError } from "../../ir/errors.js";
import type { FlightDevice, FlightState } from "../../ir/flight.js";
import { at, range } from "../../ir/shape.js";
import { describeError } from "../../platform/failures.js";
import type { HelperMessage } from "../devices/helper.js";
import type { WorkerMessage } from "../devices/workerMessages.js";
import { DeviceFailedError, type FailurePlace, formatPlace } from "../errors.js";
import { readFlightRing } from "../flight/recorder.js";
import { COMMAND, CommandWriter } from "../protocol/commands.js";
import { deviceBase, EVENTS, newControl, ring, SLEEP, STATE, WORD } from "../protocol/control.js";
import { DeviceThreads, type DeviceThreadsOptions } from "./deviceThreads.js";
import { Watchdog } from "./watchdog.js";

/** How long closing waits for a thread that does not end because it is stuck in native code. */
const CLOSE_PATIENCE_MS = 5000;

/** How far a device may be behind the main thread, in commands. */
const MAX_BEHIND = 256;

/** How long the main thread sleeps at most before it checks the devices again. */
const LOOK_MS = 20;

/** How a pool of workers is made. */
export interface WorkerPoolOptions extends DeviceThreadsOptions {
  /** The engine's number of the first device; other processes may have the ones before. */
  readonly first: number;
  /** A device that makes no progress for this long while it has work counts as failed. */
  readonly deadlineMs: number;
  /** How long all devices may wait for each other, if not the watchdog's default. */
  readonly deadlockMs?: number;
  /** Names the program and the step that a device works on. */
  readonly describe: (device: number, program: number, step: number) => FailurePlace;
  /** The arithmetic operations of the step that a device works on. */
  readonly flopsOf: (device: number, program: number, step: number) => number;
  /** Calls the host callback that a device asks for in a step. */
  readonly answer: (device: number, program: number, step: number) => void;
  /** Describes where all devices of a program are, if they have diverged. */
  readonly describeDivergence: (program: number, communicator: number) => ShardwiseError | undefined;
}

interface Waiter {
  readonly command: number;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** A command of a device. */
interface Sent {
  readonly device: number;
  readonly command: number;
}

/** An action to run when commands have finished. */
interface Sequel {
  readonly commands: readonly Sent[];
  readonly action: () => void;
}

/** One device as the main thread sees it. */
interface DeviceState {
  readonly writer: CommandWriter;
  /** Commands are numbered from 1. */
  sent: number;
  completed: number;
  waiters: Waiter[];
  /** How many of its host callbacks have been started, counted as in its control word. */
  answered: number;
}

/**
 * The workers of an engine: sends them commands, tracks which ones they have finished, and ends everything with one
 * error when a worker fails. The main thread sleeps in `Atomics.waitAsync` while there is work, and only then do the
 * workers keep the process alive. It blocks only where continuing would take ever more memory: when it is hundreds of
 * commands ahead of a device ({@link keepUp}), or before it reports being out of memory ({@link drain}); and where
 * values are read synchronously ({@link waitFor}).
 */
export class WorkerPool {
  private readonly control: Int32Array;
  private readonly threads: DeviceThreads;
  private readonly members: readonly DeviceState[];
  private readonly watchdog: Watchdog;
  private busy = false;
  private ended: ShardwiseError | undefined;
  private readonly sequels: Sequel[] = [];

  constructor(private readonly options: WorkerPoolOptions) {
    this.control = newControl(options.numDevices);
    this.threads = new DeviceThreads(options, this.control, (device, reason, cause) =>
      this.fail(device, reason, cause),
    );
    this.members = range(options.numDevices).map((device) => ({
      writer: new CommandWriter(this.control, this.threads.commandsOf(device), device),
      sent: 0,
      completed: 0,
      waiters: [],
      answered: 0,
    }));
    const listener = {
      fail: (device: number, reason: string) => this.fail(device, reason),
      warn: (device: number, text: string) => this.warn(device, text),
      numberOf: (device: number) => device + options.first,
      flopsOf: (device: number) => this.workOf(device, options.flopsOf) ?? 0,
    };
    this.watchdog = new Watchdog(this.control, options.deadlineMs, listener, options.deadlockMs);
  }

  /** Why no program can run any more: a failed device, or because the engine is closed. */
  get failure(): ShardwiseError | undefined {
    return this.ended;
  }

  /** Sends a command and returns its number on this device. */
  send(device: number, command: readonly number[]): number {
    if (this.ended) throw this.ended;
    const member = at(this.members, device);
    member.writer.send(command);
    member.sent++;
    this.becomeBusy();
    return member.sent;
  }

  /**
   * Sends a message in order with the commands and returns its command's number.
   *
   * @param given transferable buffers of the message
   */
  post(device: number, message: WorkerMessage, given: readonly ArrayBuffer[] = []): number {
    if (this.ended) throw this.ended;
    this.threads.post(device, message, given);
    return this.send(device, [COMMAND.message]);
  }

  /** Sends a message to a device's helpers, which the first message starts. */
  tellHelpers(device: number, message: HelperMessage): void {
    if (this.ended) throw this.ended;
    this.threads.tellHelpers(device, message);
  }

  /** The number of the last command that the device has finished. */
  completed(device: number): number {
    const member = at(this.members, device);
    const word = Atomics.load(this.control, deviceBase(device) + WORD.completed);
    // The word wraps around at 2^32; there are never that many commands in flight.
    member.completed += (word - (member.completed | 0)) | 0;
    return member.completed;
  }

  /** The number of the last command sent to the device. */
  sent(device: number): number {
    return at(this.members, device).sent;
  }

  /** Resolves when the device has finished the command, rejects when it never will. */
  whenCompleted(device: number, command: number): Promise<void> {
    if (this.completed(device) >= command) return Promise.resolve();
    if (this.ended) return Promise.reject(this.ended);
    return new Promise((resolve, reject) => {
      at(this.members, device).waiters.push({ command, resolve, reject });
    });
  }

  /** Runs an action when all these commands have finished; never, if they fail. */
  afterwards(commands: readonly Sent[], action: () => void): void {
    this.sequels.push({ commands, action });
    this.becomeBusy();
  }

  /**
   * Waits until no device is far behind, and runs the actions of finished commands, so that a loop that never leaves
   * its task can queue neither without bound.
   */
  keepUp(): void {
    this.followUp();
    const isBehind = (member: DeviceState, device: number) =>
      member.sent - this.completed(device) >= MAX_BEHIND;
    if (this.members.some(isBehind)) this.block(() => !this.members.some(isBehind));
  }

  /** Waits until the devices have finished everything, so that their memory can be released. */
  drain(): void {
    this.block(() => this.members.every((member, device) => this.completed(device) === member.sent));
  }

  /** Waits until the device has finished the command. */
  waitFor(device: number, command: number): void {
    if (this.completed(device) < command) this.block(() => this.completed(device) >= command);
  }

  /** Runs pending host callbacks, for a main thread that is blocked on something else. */
  look(): void {
    if (this.ended) throw this.ended;
    this.answerCalls();
    this.collect();
  }

  /** Waits, unless this is the thread of a page, which must not wait. */
  private block(isDone: () => boolean): void {
    while (!this.ended) {
      const seen = Atomics.load(this.control, EVENTS);
      this.answerCalls();
      this.collect();
      if (isDone() || !mayBlock()) return;
      Atomics.wait(this.control, EVENTS, seen, LOOK_MS);
      // Timers and worker events do not arrive while the main thread blocks here.
      this.watchdog.look(this.members);
      const gone = this.members.findIndex((_, device) => this.stateOf(device) === STATE.gone);
      if (gone >= 0) this.fail(gone, "its worker has ended");
    }
    throw this.ended;
  }

  /** Stops all workers; runs in flight end with an error. */
  async close(): Promise<void> {
    this.end(new DisposedError("[engine] the threads engine is closed: open another one to run programs"));
    let timer: ReturnType<typeof setTimeout> | undefined;
    const patience = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, CLOSE_PATIENCE_MS);
    });
    await Promise.race([this.threads.exited, patience]);
    clearTimeout(timer);
  }

  /** Settles when no thread of a closed pool can run any more. */
  get allExited(): Promise<unknown> {
    return this.threads.allExited;
  }

  private becomeBusy(): void {
    if (this.busy) return;
    this.busy = true;
    this.threads.keepAlive(true);
    this.watchdog.start(this.members);
    // After the current task, so that a burst of commands goes out first.
    queueMicrotask(this.pump);
  }

  private becomeIdle(): void {
    this.busy = false;
    this.threads.keepAlive(false);
    this.watchdog.stop();
  }

  private readonly pump = (): void => {
    while (this.busy) {
      const seen = Atomics.load(this.control, EVENTS);
      this.answerCalls();
      if (!this.busy) return;
      if (!this.collect()) {
        this.becomeIdle();
        return;
      }
      const result = waitAsync(this.control, EVENTS, seen);
      if (result.async) {
        void result.value.then(this.pump);
        return;
      }
    }
  };

  /** Runs pending host callbacks; one that throws ends the run, as a device that throws does. */
  private answerCalls(): void {
    this.members.forEach((member, device) => {
      if (this.ended) return;
      const base = deviceBase(device);
      const calls = Atomics.load(this.control, base + WORD.calls);
      if (calls === member.answered) return;
      // Before the call, because the callback may reenter this function.
      member.answered = calls;
      const [program, step] = [WORD.program, WORD.step].map((word) =>
        Atomics.load(this.control, base + word),
      );
      try {
        this.options.answer(device, program ?? 0, step ?? 0);
      } catch (cause) {
        this.fail(device, `the host callback that it called threw ${describeError(cause)}`, cause);
        return;
      }
      Atomics.store(this.control, base + WORD.answers, calls);
      ring(this.control, device, SLEEP.forAnswer);
    });
  }

  /** Settles finished commands; returns whether any are still in flight. */
  private collect(): boolean {
    let pending = false;
    this.members.forEach((member, device) => {
      member.writer.flush();
      const completed = this.completed(device);
      if (completed < member.sent) pending = true;
      if (!member.waiters.some(({ command }) => command <= completed)) return;
      const settled = member.waiters.filter(({ command }) => command <= completed);
      member.waiters = member.waiters.filter(({ command }) => command > completed);
      for (const { resolve } of settled) resolve();
    });
    this.followUp();
    return pending;
  }

  /** Runs the actions of finished commands, in the order in which they were requested. */
  private followUp(): void {
    const { sequels } = this;
    const isFinished = ({ device, command }: Sent) => this.completed(device) >= command;
    const isDue = ({ commands }: Sequel) => commands.every(isFinished);
    const numDue = sequels.findIndex((sequel) => !isDue(sequel));
    const due = sequels.splice(0, numDue < 0 ? sequels.length : numDue);
    for (const { action } of due) action();
  }

  /** The last events of each device, even if it has ended. */
  recordings(): FlightDevice[] {
    return this.members.map((_, device) => {
      const state = stateNames[this.stateOf(device)] ?? "gone";
      const { program } = this.placeOf(device);
      const place = program === undefined ? null : formatPlace(this.placeOf(device));
      return { device, state, place, records: readFlightRing(this.threads.flightOf(device)) };
    });
  }

  private fail(device: number, reason: string, cause?: unknown): void {
    if (this.ended) return;
    const divergence = this.findDivergence();
    if (divergence) {
      this.end(divergence);
      return;
    }
    const starting = this.stateOf(device) === STATE.starting;
    const what = starting ? `${reason} while it started` : reason;
    this.end(new DeviceFailedError(this.placeOf(device), what, cause === undefined ? undefined : { cause }));
  }

  private warn(device: number, text: string): void {
    warn(`[engine] ${formatPlace(this.placeOf(device))}: ${text}`);
  }

  private placeOf(device: number): FailurePlace {
    return this.workOf(device, this.options.describe) ?? { device: device + this.options.first };
  }

  /** What is asked about the step that a device works on, if it runs a program. */
  private workOf<T>(
    device: number,
    ask: (device: number, program: number, step: number) => T,
  ): T | undefined {
    const base = deviceBase(device);
    const program = Atomics.load(this.control, base + WORD.program);
    if (program === 0) return undefined;
    return ask(device, program, Atomics.load(this.control, base + WORD.step));
  }

  /** The error of devices that have diverged, if that is why one of them ended. */
  private findDivergence(): ShardwiseError | undefined {
    for (const [device] of this.members.entries()) {
      const base = deviceBase(device);
      const diverged = Atomics.load(this.control, base + WORD.diverged);
      const program = Atomics.load(this.control, base + WORD.program);
      if (diverged > 0) return this.options.describeDivergence(program, diverged - 1);
    }
    return undefined;
  }

  private stateOf(device: number): number {
    return Atomics.load(this.control, deviceBase(device) + WORD.state);
  }

  private end(error: ShardwiseError): void {
    if (this.ended) return;
    this.collect();
    this.ended = error;
    this.sequels.length = 0;
    this.threads.end();
    Atomics.notify(this.control, EVENTS);
    if (this.busy) this.becomeIdle();
    for (const member of this.members) {
      const { waiters } = member;
      member.waiters = [];
      for (const { reject } of waiters) reject(error);
    }
  }
}

/** The states of {@link STATE} as recordings name them. */
const stateNames: readonly FlightState[] = ["starting", "idle", "running", "waiting", "gone"];

type AsyncWait = { readonly async: false } | { readonly async: true; readonly value: Promise<string> };

function waitAsync(words: Int32Array, index: number, value: number): AsyncWait {
  const { waitAsync: wait } = Atomics as { waitAsync?: (w: Int32Array, i: number, v: number) => AsyncWait };
  if (wait !== undefined) return wait.call(Atomics, words, index, value);
  return { async: true, value: new Promise((resolve) => setTimeout(resolve, 1, "timed-out")) };
}
