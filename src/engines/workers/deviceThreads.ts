/** How the threads of an engine start and end; they end themselves if possible. */
import { backgroundTimer, beforeExit, mayBlock } from "#platform/system";
import { startThread, type Thread } from "#platform/threads";
import { at, range } from "../../ir/shape.js";
import type { HelperMessage, HelperSetup } from "../devices/helper.js";
import type { WorkerMessage, WorkerSetup } from "../devices/workerMessages.js";
import { newFlightRing } from "../flight/recorder.js";
import { newCommandRing } from "../protocol/commands.js";
import { abortAll, deviceBase, EVENTS, STATE, WORD } from "../protocol/control.js";
import { type CrewMemory, dismissHelpers, newCrewMemory } from "../protocol/crew.js";

/**
 * How long threads have to end themselves, in milliseconds. Terminating a thread while native code calls back into
 * JavaScript, as koffi does when it binds functions, crashes the whole process.
 */
const GRACE_MS = 1000;

/** The same for threads that are still loading their code, which they cannot interrupt. */
const START_GRACE_MS = 10_000;

/** What every worker gets besides its own words. */
export type SharedSetup = Omit<
  WorkerSetup,
  "device" | "control" | "commands" | "scratch" | "crew" | "flight"
>;

/** How the threads of devices are started. */
export interface DeviceThreadsOptions {
  readonly numDevices: number;
  readonly code: string;
  readonly setup: SharedSetup;
  /** Additional data for the code. */
  readonly extra?: unknown;
  /** The scratch memory of each device. */
  readonly scratch: readonly number[];
}

/** Called with the reason when a thread of a device cannot continue, and also when it ends as intended. */
export type ThreadFailed = (device: number, reason: string, cause: unknown) => void;

/** The threads of one device. */
interface Threads {
  readonly own: Thread;
  /** What the device shares with its helpers, which are started on demand. */
  readonly crew: CrewMemory | undefined;
  helpers: readonly Thread[];
  /** Where its commands are written. */
  readonly commands: Int32Array;
  /** The ring of its flight recorder. */
  readonly flight: Float64Array;
}

/** The threads of all devices of an engine. */
export class DeviceThreads {
  private readonly devices: readonly Threads[];
  /** Removes the exit handler. */
  private readonly stayAtExit: () => void;

  constructor(
    private readonly options: DeviceThreadsOptions,
    private readonly control: Int32Array,
    private readonly failed: ThreadFailed,
  ) {
    this.devices = range(options.numDevices).map((device) => this.start(device));
    // Threads may be in native code when the program ends, and about to use what other exit handlers release.
    this.stayAtExit = beforeExit(() => this.leave());
  }

  /** Where the commands of a device are written. */
  commandsOf(device: number): Int32Array {
    return at(this.devices, device).commands;
  }

  /** The ring of a device's flight recorder. */
  flightOf(device: number): Float64Array {
    return at(this.devices, device).flight;
  }

  /** @param given transferable buffers of the message */
  post(device: number, message: WorkerMessage, given: readonly ArrayBuffer[]): void {
    at(this.devices, device).own.post(message, given);
  }

  /** Sends a message to a device's helpers, which the first message starts. */
  tellHelpers(device: number, message: HelperMessage): void {
    const threads = at(this.devices, device);
    const { crew } = threads;
    if (crew === undefined) return;
    if (threads.helpers.length === 0) {
      const { threads: count, cores } = this.options.setup;
      threads.helpers = range(count - 1).map((i) =>
        this.startHelper(device, i, { crew, core: cores[device * count + 1 + i] }),
      );
    }
    for (const helper of threads.helpers) helper.post(message);
  }

  /** Lets the devices keep the process alive, or not. */
  keepAlive(isNeeded: boolean): void {
    for (const { own } of this.devices) own.keepAlive(isNeeded);
  }

  /** Settles when the devices' own threads have ended. */
  get exited(): Promise<unknown> {
    return Promise.all(this.devices.map(({ own }) => own.exited));
  }

  /** Settles when no thread can run any more. */
  get allExited(): Promise<unknown> {
    return Promise.all(
      this.devices.flatMap(({ own, helpers }) => [own, ...helpers].map(({ exited }) => exited)),
    );
  }

  /** Asks all threads to end, and terminates those that do not in time. */
  end(): void {
    this.dismiss();
    const force = [GRACE_MS, START_GRACE_MS].map((patience) =>
      backgroundTimer(() => this.terminate(patience), patience),
    );
    void this.allExited.then(() => {
      for (const stop of force) stop();
      this.stayAtExit();
    });
  }

  /** Asks all threads to end and waits for those of devices, without the event loop, when the program ends. */
  leave(): void {
    this.dismiss();
    if (!mayBlock()) {
      this.terminate(Number.POSITIVE_INFINITY);
      return;
    }
    const begin = performance.now();
    const isAwaited = ({ own }: Threads, device: number) => {
      const state = Atomics.load(this.control, deviceBase(device) + WORD.state);
      const waited = performance.now() - begin;
      return !own.hasExited() && state !== STATE.gone && waited < this.patienceFor(device);
    };
    while (this.devices.some(isAwaited)) {
      Atomics.wait(this.control, EVENTS, Atomics.load(this.control, EVENTS), 1);
    }
  }

  private start(device: number): Threads {
    const commands = newCommandRing();
    const flight = newFlightRing();
    const { code, extra, setup: shared, scratch } = this.options;
    const crew = shared.threads > 1 ? newCrewMemory(shared.crowded) : undefined;
    const setup: WorkerSetup = {
      ...shared,
      crew,
      device,
      control: this.control,
      commands,
      scratch: at(scratch, device),
      flight,
    };
    const own = startThread({
      code,
      name: `shardwise device ${device}`,
      data: { role: "device", setup, extra },
      failed: (reason, cause) => this.failed(device, `its worker ${reason}`, cause),
    });
    return { own, crew, helpers: [], commands, flight };
  }

  private startHelper(device: number, index: number, setup: HelperSetup): Thread {
    return startThread({
      code: this.options.code,
      name: `shardwise device ${device}, helper ${index}`,
      data: { role: "helper", setup },
      failed: (reason, cause) => this.failed(device, `its helper thread ${reason}`, cause),
    });
  }

  private dismiss(): void {
    abortAll(this.control, this.devices.length);
    for (const { crew } of this.devices) if (crew) dismissHelpers(crew);
  }

  /** Terminates the devices' threads that have not ended themselves in time. */
  private terminate(patience: number): void {
    this.devices.forEach(({ own, helpers }, device) => {
      if (patience < this.patienceFor(device)) return;
      for (const thread of [...helpers, own]) thread.terminate();
    });
  }

  private patienceFor(device: number): number {
    const isStarting = Atomics.load(this.control, deviceBase(device) + WORD.state) === STATE.starting;
    return isStarting ? START_GRACE_MS : GRACE_MS;
  }
}
