import type { GemmStep, HostStep } from "../../compiler/steps.js";
import { type Addresses, viewAddresses } from "../../compiler/wasm/addresses.js";
import { InternalError } from "../../ir/errors.js";
import { at } from "../../ir/shape.js";
import { groupOf, prepareCollective } from "../collectives/collectives.js";
import { DesyncDetector } from "../collectives/desyncDetector.js";
import { instantiateMoveKernels, type MoveKernels } from "../collectives/moveKernels.js";
import { type CopyBetween, connectPeers, type Peers } from "../collectives/peers.js";
import { FlightRecorder } from "../flight/recorder.js";
import { bindKernels } from "../kernels/nativeKernels.js";
import type { MemoryLayout } from "../memory/memoryLayout.js";
import type { PreparedGemm } from "../products/preparedGemm.js";
import { ADDRESS_UNIT, COMMAND, CommandReader, PROGRAM_WORD, readPull } from "../protocol/commands.js";
import { deviceBase, reportEvent, SLEEP, STATE, WORD } from "../protocol/control.js";
import type { Crew } from "../protocol/crew.js";
import { Aborted, Signals } from "../protocol/signals.js";
import { prepareCall } from "./hostCalls.js";
import type { ReleasedObjects } from "./releasedObjects.js";
import { SCRATCH } from "./scratch.js";
import { StepRunner } from "./stepRunner.js";
import type { LoadMessage, MoveMessage, WorkerMessage, WorkerSetup } from "./workerMessages.js";

/** What the host of a worker (Node, a browser) provides to the device loop. */
export interface LoopHost {
  /**
   * Takes the next message; the main thread posts it before the command that announces it. A promise where messages
   * arrive only while the thread does not run.
   */
  receive(): WorkerMessage | Promise<WorkerMessage>;
  /** Matrix products work on another memory from now on. */
  moveTo(memory: WebAssembly.Memory, scratch: number): void;
  /** The imports of a program's kernel modules. */
  kernelImports(memory: WebAssembly.Memory): WebAssembly.Imports;
  /** Makes a matrix product ready to be called with addresses. */
  prepareGemm(step: GemmStep, module: WebAssembly.Module | undefined): PreparedGemm;
  /** Counts what the thread releases, and collects it. */
  readonly released: ReleasedObjects;
  /** The threads that share large steps of this device. */
  readonly crew: Crew | undefined;
  runHostStep(step: HostStep, table: Addresses, memory: WebAssembly.Memory): void;
  /** The fastest way to copy between memories, where there is one besides JavaScript's. */
  copyBetween(memories: readonly WebAssembly.Memory[]): CopyBetween | undefined;
  /** Reaches the devices of other processes. */
  connect(signals: Signals, memory: WebAssembly.Memory): Remote;
  now(): number;
  /** Replaces the action of a step, for tests. */
  wrap(program: string, index: number, action: () => void): () => void;
}

/** How a device reaches those of other processes. */
export interface Remote {
  /** Prepares a collective some of whose members are in other processes. */
  readonly prepare: typeof prepareCollective;
  /** Makes progress with messages while the device computes. */
  readonly progress: () => void;
  /** Tells that the device's elements lie in another memory from now on. */
  moveTo(memory: WebAssembly.Memory): void;
}

/** A program as it lies on one device. */
interface LoadedProgram {
  readonly runner: StepRunner;
  readonly desyncDetector: DesyncDetector;
  readonly table: Addresses;
  /** The slots that inputs and then outputs fill at the start of a run, per argument. */
  readonly argumentSlots: readonly (readonly number[])[];
}

/** Runs commands until the engine stops. */
export async function runDevice(setup: WorkerSetup, host: LoopHost): Promise<void> {
  const device = new Device(setup, host);
  try {
    await device.run();
  } catch (error) {
    if (!(error instanceof Aborted)) throw error;
  }
}

class Device {
  private layout: MemoryLayout;
  private memory: WebAssembly.Memory;
  private scratch: number;
  private readonly signals: Signals;
  private readonly reader: CommandReader;
  private kernels: MoveKernels;
  private peers: Peers;
  private readonly programs = new Map<number, LoadedProgram>();
  private readonly base: number;
  private readonly recorder: FlightRecorder;
  private readonly remote: Remote;
  private trace: Float64Array | undefined;

  constructor(
    private readonly setup: WorkerSetup,
    private readonly host: LoopHost,
  ) {
    this.layout = setup.layout;
    this.memory = at(setup.layout.memories, setup.device);
    this.scratch = setup.scratch;
    this.signals = new Signals(setup.control, setup.device, setup.crowded);
    this.reader = new CommandReader(this.signals, setup.commands);
    this.kernels = instantiateMoveKernels(setup.moveModule, this.memory);
    this.peers = this.connectPeers();
    this.base = deviceBase(setup.device);
    this.remote = host.connect(this.signals, this.memory);
    this.recorder = new FlightRecorder(setup.flight, () => setup.timeOrigin + host.now());
  }

  async run(): Promise<never> {
    const { control } = this.setup;
    for (;;) {
      this.signals.throwIfAborted();
      Atomics.store(control, this.base + WORD.state, STATE.idle);
      const length = this.reader.next();
      Atomics.store(control, this.base + WORD.state, STATE.running);
      const later = this.perform(length);
      if (later !== undefined) await later;
      Atomics.store(control, this.base + WORD.program, 0);
      Atomics.add(control, this.base + WORD.completed, 1);
      reportEvent(control);
      this.signals.wakeFollowers(this.layout.memories.length);
    }
  }

  /** Performs a command; returns a promise if that takes longer than the call. */
  private perform(length: number): Promise<void> | undefined {
    const { command } = this.reader;
    switch (command[0]) {
      case COMMAND.message: {
        const message = this.host.receive();
        if (message instanceof Promise) return message.then((one) => this.take(one));
        this.take(message);
        return undefined;
      }
      case COMMAND.unload:
        this.programs.delete(command[PROGRAM_WORD.program] ?? 0);
        this.host.released.program();
        return undefined;
      case COMMAND.run:
        this.execute(command[PROGRAM_WORD.program] ?? 0, length);
        return undefined;
      case COMMAND.pull:
        this.pull();
        return undefined;
      default:
        throw new InternalError(`[threads] ${command[0]} is not a command`);
    }
  }

  private pull(): void {
    const { target, source, bytes, peer, after } = readPull(this.reader.command);
    if (peer !== this.setup.device) {
      const word = deviceBase(peer) + WORD.completed;
      this.signals.waitForSequence(this.setup.control, word, after, peer, SLEEP.forCompletion);
    }
    this.peers.pull(target, peer, source, bytes);
  }

  private take(message: WorkerMessage): void {
    switch (message.kind) {
      case "load":
        this.programs.set(message.id, this.load(message));
        return;
      case "upload":
        new Uint8Array(this.memory.buffer).set(message.bytes, message.address);
        this.host.released.message(message.bytes.byteLength);
        return;
      case "move":
        this.move(message);
        return;
      case "trace":
        this.trace = message.buffer;
        return;
    }
  }

  private connectPeers(): Peers {
    const { layout, setup, kernels, host } = this;
    return connectPeers(layout, setup.device, kernels, host.copyBetween(layout.memories));
  }

  private move({ layout, scratch, bytes, moveModule }: MoveMessage): void {
    const { device } = this.setup;
    const from = at(this.layout.bases, device);
    const old = new Uint8Array(this.memory.buffer, from, bytes);
    this.layout = layout;
    this.memory = at(layout.memories, device);
    this.scratch = scratch;
    new Uint8Array(this.memory.buffer).set(old, at(layout.bases, device));
    this.kernels = instantiateMoveKernels(moveModule, this.memory);
    this.peers = this.connectPeers();
    this.programs.clear();
    this.remote.moveTo(this.memory);
    this.host.moveTo(this.memory, scratch);
  }

  private execute(id: number, length: number): void {
    const program = this.programs.get(id);
    if (program === undefined) throw new InternalError(`[threads] program ${id} is not loaded`);
    Atomics.store(this.setup.control, this.base + WORD.program, id);
    const { command } = this.reader;
    const { table, argumentSlots } = program;
    if (length !== PROGRAM_WORD.size + argumentSlots.length) {
      throw new InternalError(
        `[threads] ${length - PROGRAM_WORD.size} addresses for ${argumentSlots.length} arguments`,
      );
    }
    for (let i = 0; i < argumentSlots.length; i++) {
      const address = (command[PROGRAM_WORD.size + i] ?? 0) * ADDRESS_UNIT;
      for (const slot of argumentSlots[i] ?? []) table[slot] = address;
    }
    program.desyncDetector.beginRun();
    program.runner.run(this.trace);
    program.desyncDetector.endRun();
  }

  private load(message: LoadMessage): LoadedProgram {
    const { addresses, position, locations, words } = message;
    const bytes = new Uint8Array(this.memory.buffer);
    bytes.set(message.constants, addresses.constants);
    const { addressType } = this.layout;
    const table = viewAddresses(addressType, this.memory.buffer, addresses.table, message.slots.length);
    message.slots.forEach((slot, i) => {
      if (slot.kind === "arena") table[i] = addresses.arena + slot.offset;
      if (slot.kind === "constant") table[i] = addresses.constants + slot.offset;
    });
    this.kernels.touch(addresses.arena, addresses.arenaBytes);
    const desyncDetector = this.newDesyncDetector(message);
    const collectiveHost = {
      signals: this.signals,
      kernels: this.kernels,
      memory: this.memory,
      peers: this.peers,
      scratch: this.scratch + SCRATCH.collectives,
      words,
      position,
      locations,
      desyncDetector,
    };
    const isHere = (member: number) => at(locations.processes, member) === locations.process;
    const imports = this.host.kernelImports(this.memory);
    const runner = new StepRunner(message.id, message.steps, {
      table,
      tableAddress: addresses.table,
      constantsAddress: addresses.constants,
      kernels: message.modules.map((module) => bindKernels(module, imports, this.memory)),
      memory: this.memory,
      position,
      collectives: message.collectives.map((spec, i) => {
        const offset = message.staging[i];
        const address = offset === undefined ? undefined : addresses.staging + offset;
        const prepare = groupOf(spec, position).every(isHere) ? prepareCollective : this.remote.prepare;
        return { spec, collective: prepare(spec, i, collectiveHost, address) };
      }),
      copy: this.kernels.copy,
      prepareGemm: (step) => this.host.prepareGemm(step, message.gemmModule),
      shared: this.host.crew && { crew: this.host.crew, sending: message.sending },
      runHostStep: this.host.runHostStep,
      prepareCall: (step) => prepareCall(step, message.calls, this.memory, this.signals),
      status: {
        words: this.setup.control,
        step: this.base + WORD.step,
        progress: this.base + WORD.progress,
        loops: this.base + WORD.loops,
      },
      now: this.host.now,
      tellWaits: (listener) => {
        this.signals.listener = listener;
      },
      progress: message.collectives.some(({ groups }) => groups.some((group) => !group.every(isHere)))
        ? this.remote.progress
        : undefined,
      wrap: (index, action) => this.host.wrap(message.name, index, action),
    });
    return { runner, desyncDetector, table, argumentSlots: argumentSlotsOf(message) };
  }

  private newDesyncDetector({ id, words, position, locations, collectives }: LoadMessage): DesyncDetector {
    const host = {
      program: id,
      words,
      position,
      numPositions: locations.devices.length,
      recorder: this.recorder,
      diverged: (communicator: number) =>
        void Atomics.store(this.setup.control, this.base + WORD.diverged, communicator + 1),
    };
    return new DesyncDetector(host, collectives);
  }
}

/** For every argument of a run (inputs, then outputs that have slots) the slots it fills. */
function argumentSlotsOf({ slots, numInputs, numOutputs }: LoadMessage): number[][] {
  const lists = Array.from({ length: numInputs + numOutputs }, (): number[] => []);
  slots.forEach((slot, i) => {
    if (slot.kind === "input") at(lists, slot.index).push(i);
    if (slot.kind === "output") at(lists, numInputs + slot.index).push(i);
  });
  return lists;
}
