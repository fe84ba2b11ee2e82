import { MessageChannel, type MessagePort, Worker } from "node:worker_threads";
import { DisposedError, type ShardwiseError } from "../../ir/errors.js";
import { at, range } from "../../ir/shape.js";
import { DeviceFailedError, type FailurePlace } from "../errors.js";
import { COMMAND, CommandWriter, newCommandRing } from "./commands.js";
import { abortAll, deviceBase, EVENTS, newControl, STATE, WORD } from "./control.js";
import type { WorkerMessage, WorkerSetup } from "./messages.js";
import { Watchdog } from "./watchdog.js";

/** How long closing waits for a thread that does not end, because it is stuck in native code. */
const CLOSE_PATIENCE_MS = 5000;

/** What the pool gives every worker besides its own words. */
export type SharedSetup = Omit<WorkerSetup, "device" | "control" | "commands" | "scratch">;

/** How a pool of workers is made. */
export interface PoolOptions {
  readonly numDevices: number;
  readonly entry: URL;
  readonly setup: SharedSetup;
  /** Where each device has its scratch memory. */
  readonly scratch: readonly number[];
  /** Without progress for so long while it has work, a device counts as failed. */
  readonly deadlineMs: number;
  /** Names the program and the step that a device works on. */
  readonly describe: (device: number, program: number, step: number) => FailurePlace;
}

interface Waiter {
  readonly command: number;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** One device as the main thread sees it. */
interface Member {
  readonly worker: Worker;
  readonly port: MessagePort;
  readonly writer: CommandWriter;
  readonly exited: Promise<void>;
  /** Numbers of commands count from 1. */
  sent: number;
  completed: number;
  waiters: Waiter[];
}

/**
 * The workers of an engine: sends them commands, knows which ones they have finished, and ends everything with
 * one error when a worker fails. The main thread never blocks: it sleeps in `Atomics.waitAsync` while there is
 * work, and the workers keep the process alive only then.
 */
export class WorkerPool {
  private readonly control: Int32Array;
  private readonly members: readonly Member[];
  private readonly watchdog: Watchdog;
  private busy = false;
  private ended: ShardwiseError | undefined;

  constructor(private readonly options: PoolOptions) {
    this.control = newControl(options.numDevices);
    this.members = range(options.numDevices).map((device) => this.start(device));
    this.watchdog = new Watchdog(this.control, options.deadlineMs, (device, reason) =>
      this.fail(device, reason),
    );
  }

  /** Why nothing can be run any more: a failed device, or because the engine is closed. */
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

  /** Sends a message in order with the commands and returns its command's number. */
  post(device: number, message: WorkerMessage): number {
    if (this.ended) throw this.ended;
    at(this.members, device).port.postMessage(message);
    return this.send(device, [COMMAND.message]);
  }

  /** The number of the last command that the device has finished. */
  completed(device: number): number {
    const member = at(this.members, device);
    const word = Atomics.load(this.control, deviceBase(device) + WORD.completed);
    // The word counts around at 2^32; there are never that many commands on the way.
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

  /** Stops all workers; what is still running ends with an error. */
  async close(): Promise<void> {
    this.end(new DisposedError("[engine] the threads engine is closed: open another one to run programs"));
    let timer: NodeJS.Timeout | undefined;
    const patience = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, CLOSE_PATIENCE_MS);
    });
    await Promise.race([Promise.all(this.members.map(({ exited }) => exited)), patience]);
    clearTimeout(timer);
  }

  private start(device: number): Member {
    const commands = newCommandRing();
    const { port1, port2 } = new MessageChannel();
    const { setup: shared, scratch } = this.options;
    const setup: WorkerSetup = {
      ...shared,
      device,
      control: this.control,
      commands,
      scratch: at(scratch, device),
    };
    const worker = new Worker(this.options.entry, {
      workerData: { setup, port: port2 },
      transferList: [port2],
      execArgv: [],
      name: `shardwise device ${device}`,
    });
    // An idle engine does not keep the process alive.
    worker.unref();
    port1.unref();
    worker.on("error", (cause: unknown) =>
      this.fail(device, `its worker threw ${describeError(cause)}`, cause),
    );
    worker.on("messageerror", (cause) =>
      this.fail(device, `a message was lost: ${describeError(cause)}`, cause),
    );
    const exited = new Promise<void>((resolve) => {
      worker.on("exit", (code) => {
        this.fail(device, `its worker exited with code ${code}`);
        port1.close();
        resolve();
      });
    });
    const writer = new CommandWriter(this.control, commands, device);
    return { worker, port: port1, writer, exited, sent: 0, completed: 0, waiters: [] };
  }

  private becomeBusy(): void {
    if (this.busy) return;
    this.busy = true;
    for (const { worker } of this.members) worker.ref();
    this.watchdog.start(this.members);
    // After the current task, so that a burst of commands goes out first.
    queueMicrotask(this.pump);
  }

  private becomeIdle(): void {
    this.busy = false;
    for (const { worker } of this.members) worker.unref();
    this.watchdog.stop();
  }

  private readonly pump = (): void => {
    while (this.busy) {
      const seen = Atomics.load(this.control, EVENTS);
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

  /** Settles what has been finished; returns whether something is still on its way. */
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
    return pending;
  }

  private fail(device: number, reason: string, cause?: unknown): void {
    if (this.ended) return;
    const base = deviceBase(device);
    const program = Atomics.load(this.control, base + WORD.program);
    const starting = Atomics.load(this.control, base + WORD.state) === STATE.starting;
    const place =
      program === 0
        ? { device }
        : this.options.describe(device, program, Atomics.load(this.control, base + WORD.step));
    const what = starting ? `${reason} while it started` : reason;
    this.end(new DeviceFailedError(place, what, cause === undefined ? undefined : { cause }));
  }

  private end(error: ShardwiseError): void {
    if (this.ended) return;
    this.collect();
    this.ended = error;
    abortAll(this.control, this.members.length);
    Atomics.notify(this.control, EVENTS);
    if (this.busy) this.becomeIdle();
    for (const member of this.members) {
      const { waiters } = member;
      member.waiters = [];
      for (const { reject } of waiters) reject(error);
      void member.worker.terminate();
    }
  }
}

function describeError(cause: unknown): string {
  return cause instanceof Error ? `${cause.name}: ${cause.message}` : String(cause);
}

type AsyncWait = { readonly async: false } | { readonly async: true; readonly value: Promise<string> };

function waitAsync(words: Int32Array, index: number, value: number): AsyncWait {
  const { waitAsync: wait } = Atomics as { waitAsync?: (w: Int32Array, i: number, v: number) => AsyncWait };
  if (wait !== undefined) return wait.call(Atomics, words, index, value);
  return { async: true, value: new Promise((resolve) => setTimeout(resolve, 1, "timed-out")) };
}
