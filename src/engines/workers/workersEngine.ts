import { chooseKernels, type KernelChoice } from "#engines/kernels/kernelChoice";
import { shareOfPeak } from "#engines/products/shareOfPeak";
import { enableRelaxedSimd } from "#engines/system/v8Flags";
import { whoAmI } from "#platform/system";
import type { CompiledProgram } from "../../compiler/steps.js";
import type { AddressType } from "../../compiler/wasm/addresses.js";
import { detectFeatures, type WasmFeatures } from "../../compiler/wasm/features.js";
import { type HostData, viewHost } from "../../ir/dtype.js";
import type { CompileOptions, DeviceBuffer, Executable } from "../../ir/engine.js";
import type { MemoryUsage, Tracer } from "../../ir/engineReports.js";
import { InternalError } from "../../ir/errors.js";
import type { FlightRecording } from "../../ir/flight.js";
import type { Program } from "../../ir/program.js";
import { HighWaterMark, reclaim } from "../../ir/reclaim.js";
import { at, bytesOf, formatType, type TensorType } from "../../ir/shape.js";
import { moveModuleFor } from "../collectives/moveModule.js";
import { answerCall } from "../devices/hostCalls.js";
import { DesyncError, type FailurePlace } from "../errors.js";
import { type CompileSettings, compileWith, isPrepared } from "../kernels/compileWith.js";
import { openKernelCode } from "../kernels/loadKernels.js";
import { ThreadsBuffer } from "../memory/buffers.js";
import type { DeviceMemory } from "../memory/deviceMemory.js";
import type { MemoryLayout } from "../memory/memoryLayout.js";
import {
  chooseGemm,
  describeGemm,
  fusesAttention,
  type GemmChoice,
  takesBfloat16,
} from "../products/gemmChoice.js";
import { pullCommand } from "../protocol/commands.js";
import type { DeviceLocations } from "../protocol/locations.js";
import { DEFAULT_DEADLINE_MS } from "../settings.js";
import { EngineShell, type LoadedProgram as ShellProgram } from "../shell.js";
import { checkSizes } from "../sizeChecks.js";
import type { CodeMemory } from "../system/codeMemory.js";
import { chooseCores, chooseThreads } from "./chooseThreads.js";
import { EngineMemory } from "./engineMemory.js";
import { EngineTracer } from "./engineTracer.js";
import { ThreadsExecutable } from "./executable.js";
import {
  adaptProgram,
  describeProgram,
  type LoadTarget,
  loadProgram,
  positionsOf,
  type StagingPlanner,
  sendProgram,
  unloadProgram,
  type WorkerProgram,
} from "./programs.js";
import { checkRuntime } from "./runtimeGlobals.js";
import { WorkerPool } from "./workerPool.js";
import type { TestOptions, WorkersInfo, WorkersOptions } from "./workersOptions.js";

/** How many programs may be loaded before unreachable ones are collected. */
const RECLAIM_THRESHOLD_PROGRAMS = 128;

/**
 * The devices of an engine that are worker threads of this process, and what these start from.
 *
 * @internal
 */
export interface LocalDevices {
  /** How many there are. */
  readonly count: number;
  /** The engine's number of the first of them; the others follow. */
  readonly first: number;
  /** The code of the workers, and what it needs besides. */
  readonly code: string;
  readonly extra?: unknown;
  /** How many cores this process has. */
  readonly numCores: number;
  /** The share of the machine's memory that this process may take. */
  readonly memoryShare?: number;
  /** How long all of them may wait before that counts as a deadlock; devices of other processes may be late. */
  readonly deadlockMs?: number;
  /** Plans the staging memory of collectives that may reach other processes. */
  readonly planStaging?: StagingPlanner;
}

/** Users hold its buffers as those of any engine. */
type OwnBuffer = ThreadsBuffer;

/**
 * An engine some or all of whose devices are worker threads of this process: compiled code, shared memory. An engine
 * of one process holds all devices; one of several says where the devices of a program are.
 */
export abstract class WorkersEngine extends EngineShell<OwnBuffer> {
  readonly tracer: Tracer;
  private readonly memory: EngineMemory;
  private readonly pool: WorkerPool;
  private readonly programs = new Map<number, WorkerProgram>();
  private readonly features: WasmFeatures;
  private readonly crowded: boolean;
  private readonly gemm: GemmChoice;
  private readonly kernels: KernelChoice | undefined;
  /** The machine code of all programs. */
  private readonly code: CodeMemory | undefined;
  private readonly threads: number;
  /** Programs take memory in the workers that is not accounted for, so their number has its own threshold. */
  private readonly programMark = new HighWaterMark(RECLAIM_THRESHOLD_PROGRAMS);
  private numUnloading = 0;

  /** @internal */
  protected constructor(
    readonly numDevices: number,
    private readonly local: LocalDevices,
    options: WorkersOptions,
    test: TestOptions = {},
  ) {
    super();
    checkRuntime();
    enableRelaxedSimd();
    const { count, numCores } = local;
    this.features = detectFeatures();
    this.gemm = chooseGemm(options.gemm);
    this.kernels = chooseKernels();
    this.code = this.kernels === undefined ? undefined : openKernelCode();
    const choices = { ...options, numDevices: count };
    this.threads = chooseThreads(choices, this.gemm, numCores);
    this.crowded = count * this.threads > numCores;
    this.memory = new EngineMemory(
      {
        numDevices: count,
        memoryBytes: options.memoryBytes,
        share: local.memoryShare,
        layout: test.layout,
        choices: test.choices,
      },
      { relieve: () => this.relieve(), move: (layout, before) => this.move(layout, before.addressType) },
    );
    this.pool = new WorkerPool({
      numDevices: count,
      first: local.first,
      code: local.code,
      extra: local.extra,
      deadlineMs: options.deadlineMs ?? DEFAULT_DEADLINE_MS,
      ...(local.deadlockMs === undefined ? {} : { deadlockMs: local.deadlockMs }),
      describe: (device, program, step) => this.describe(device, program, step),
      flopsOf: (_, program, step) => this.programs.get(program)?.steps[step]?.flops ?? 0,
      answer: (device, program, step) => this.answer(device, program, step),
      describeDivergence: (program, communicator) => this.describeDivergence(program, communicator),
      scratch: this.memory.devices.map(({ scratch }) => scratch),
      setup: {
        layout: this.memory.layout,
        moveModule: moveModuleFor(this.memory.layout.addressType),
        crowded: this.crowded,
        gemm: this.gemm,
        threads: this.threads,
        cores: chooseCores(choices, count * this.threads),
        timeOrigin: performance.timeOrigin,
        faults: test.faults ?? [],
      },
    });
    this.tracer = new EngineTracer({
      numDevices: count,
      pool: this.pool,
      programs: this.programs,
      describe: (device, program, step) => this.describe(device, program, step),
    });
  }

  override isAddressable(device: number): boolean {
    const { first, count } = this.local;
    return Number.isInteger(device) && device >= first && device < first + count;
  }

  /** @internal Where the devices of a program are. */
  protected abstract locate(options: CompileOptions): DeviceLocations;

  protected prepare(program: Program, options: CompileOptions): ShellProgram<ThreadsBuffer> {
    return this.prepareAt(program, options, this.locate(options));
  }

  /** @internal Loads a step list that was compiled before. */
  load(compiled: CompiledProgram, options: CompileOptions): Executable {
    this.checkRuns("compile");
    const loaded = this.loadAt(compiled, options, this.locate(options));
    const { name = compiled.name, donated = [] } = options;
    const inputs = compiled.inputs.map(({ type }) => type);
    return this.executable({ name, inputs, devices: loaded.devices, donated }, loaded);
  }

  /** @internal Compiles and loads a program whose devices may be in several processes. */
  protected prepareAt(
    program: Program,
    options: CompileOptions,
    locations: DeviceLocations,
  ): ThreadsExecutable {
    checkSizes(program);
    const { addressType } = this.memory.layout;
    const prepared = isPrepared(options.prepared, addressType) ? options.prepared.compiled : undefined;
    const compile = (addressType: AddressType) =>
      compileWith({ ...this.settings, addressType }, program, options).compiled;
    return this.loadAt(prepared ?? compile(addressType), options, locations, compile);
  }

  /** @internal How programs are compiled, now that memories have the addresses they have. */
  protected get settings(): CompileSettings {
    const { features, threads, memory } = this;
    const { addressType } = memory.layout;
    const vectorBits = this.kernels?.bits;
    return {
      ...{ features, threads, addressType, vectorBits },
      fusesAttention: fusesAttention(this.gemm),
      bfloat16Products: takesBfloat16(this.gemm),
    };
  }

  private loadAt(
    compiled: CompiledProgram,
    options: CompileOptions,
    locations: DeviceLocations,
    recompile?: WorkerProgram["recompile"],
  ): ThreadsExecutable {
    const { pool, target } = this;
    pool.keepUp();
    this.programMark.check(() => this.programs.size - this.numUnloading);
    const loaded = loadProgram(compiled, options, target, locations, recompile);
    this.programs.set(loaded.id, loaded);
    return new ThreadsExecutable(this, loaded, options, pool, target.memories, () => this.unload(loaded));
  }

  /** Runs pending host callbacks while the main thread waits for something else. */
  protected answerCalls(): void {
    this.pool.look();
  }

  private get target(): LoadTarget {
    const { pool, features, gemm, crowded, memory } = this;
    const { devices: memories, layout } = memory;
    const { planStaging } = this.local;
    return { pool, memories, layout, features, gemm, crowded, code: this.code, planStaging };
  }

  /** Moves all devices to other memories, with their contents; programs are loaded again. */
  private move(layout: MemoryLayout, before: AddressType): void {
    const { pool, target } = this;
    const moveModule = moveModuleFor(layout.addressType);
    pool.drain();
    this.memory.devices.forEach(({ scratch, bytesInUse }, device) => {
      pool.post(device, { kind: "move", layout, moveModule, scratch, bytes: bytesInUse });
    });
    for (const program of this.programs.values()) {
      if (layout.addressType !== before) adaptProgram(program, target);
      sendProgram(program, target);
    }
    this.pool.drain();
  }

  protected write(type: TensorType, data: HostData, device: number): ThreadsBuffer {
    const quiet = this.quietBuffer(type, device);
    const source = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (quiet !== undefined) {
      this.bytesIn(quiet, 0, source.length).set(source);
      return quiet;
    }
    const memory = this.memoryOf(device);
    const worker = this.workerOf(device);
    // Earlier runs still use the free memory: the device copies the elements in when they have finished.
    const allocation = memory.allocate(data.byteLength, "upload", () => formatType(type));
    const bytes = source.slice();
    const message = { kind: "upload", address: memory.addressOf(allocation), bytes } as const;
    const command = this.pool.post(worker, message, [bytes.buffer]);
    allocation.lastUse = command;
    return new ThreadsBuffer(this, type, device, memory, allocation, command);
  }

  async uploadBy(
    type: TensorType,
    device: number,
    fill: (memory: Uint8Array) => Promise<void>,
  ): Promise<DeviceBuffer | undefined> {
    this.checkRuns("uploadBy");
    this.checkDevice(device, "uploadBy");
    const buffer = this.quietBuffer(type, device);
    if (buffer === undefined) return undefined;
    try {
      await fill(this.bytesIn(buffer, 0, bytesOf(type)));
    } catch (error) {
      buffer.dispose("released");
      throw error;
    }
    return buffer;
  }

  /** A buffer in memory that no run uses any more, if there is any. */
  private quietBuffer(type: TensorType, device: number): ThreadsBuffer | undefined {
    const memory = this.memoryOf(device);
    this.pool.keepUp();
    const quiet = memory.allocateQuiet(bytesOf(type), this.pool.completed(this.workerOf(device)));
    return quiet && new ThreadsBuffer(this, type, device, memory, quiet, 0);
  }

  protected read(source: ThreadsBuffer): Promise<HostData> {
    return this.reading(source, () => this.copyOut(source));
  }

  async downloadInto(buffer: DeviceBuffer, start: number, target: Uint8Array): Promise<void> {
    const source = this.own(buffer, "downloadInto");
    await this.reading(source, () => target.set(this.bytesIn(source, start, target.length)));
  }

  /** Reads elements once they are computed, even if the buffer is released meanwhile. */
  private async reading<T>(source: ThreadsBuffer, read: () => T): Promise<T> {
    source.allocation.readers++;
    try {
      await this.arrived(source);
      return read();
    } finally {
      source.memory.endRead(source.allocation);
    }
  }

  protected written(source: ThreadsBuffer): Promise<void> {
    return this.arrived(source);
  }

  private async arrived({ device, readyAt }: ThreadsBuffer): Promise<void> {
    await this.pool.whenCompleted(this.workerOf(device), readyAt);
  }

  protected view(source: ThreadsBuffer): HostData | undefined {
    const completed = this.pool.completed(this.workerOf(source.device));
    return completed >= source.readyAt ? this.copyOut(source) : undefined;
  }

  /** Blocks this thread until the elements are computed. */
  protected waitAndView(source: ThreadsBuffer): HostData {
    this.pool.waitFor(this.workerOf(source.device), source.readyAt);
    return this.copyOut(source);
  }

  protected copy(source: ThreadsBuffer, device: number): ThreadsBuffer {
    const { pool } = this;
    const memory = this.memoryOf(device);
    const { memory: from, allocation } = source;
    const { bytes } = allocation.block;
    const target = memory.allocate(bytes, "transfer", () => formatType(source.type));
    const pull = {
      target: memory.addressOf(target),
      source: from.addressOf(allocation),
      bytes,
      peer: this.workerOf(source.device),
      after: source.readyAt,
    };
    const worker = this.workerOf(device);
    const command = pool.send(worker, pullCommand(pull));
    target.lastUse = command;
    if (device === source.device) {
      allocation.lastUse = command;
    } else {
      // The other device's commands are not ordered with those of the source, so the source must stay alive.
      allocation.readers++;
      pool.afterwards([{ device: worker, command }], () => from.endRead(allocation));
    }
    return new ThreadsBuffer(this, source.type, device, memory, target, command);
  }

  protected async end(): Promise<void> {
    await this.pool.close();
    // A device that does not end in time may still be running a kernel.
    void this.pool.allExited.then(() => {
      this.code?.release();
      this.memory.discard();
    });
  }

  protected override get failure(): Error | undefined {
    return this.pool.failure;
  }

  /** What the devices of this process run on. */
  protected localInfo(): WorkersInfo {
    const { bytesPerDevice, layout } = this.memory;
    return {
      engine: this.name,
      numDevices: this.numDevices,
      memoryBytes: bytesPerDevice,
      memoryLayout: layout.kind,
      addressBits: layout.addressType === "i32" ? 32 : 64,
      gemm: describeGemm(this.gemm, this.features),
      gemmShareOfPeak: shareOfPeak(this.gemm, this.features),
      kernels: this.kernels === undefined ? "WebAssembly SIMD" : `native ${this.kernels.set}`,
      wasm: this.features,
      numCores: this.local.numCores,
      threadsPerDevice: this.threads,
    };
  }

  /** How many bytes the buffers and programs of a device take. */
  memoryUsage(device: number): MemoryUsage {
    this.checkDevice(device, "memoryUsage");
    return this.memoryOf(device).usage;
  }

  flightRecording(reason: string): FlightRecording {
    return {
      reason,
      time: Date.now(),
      engine: this.name,
      numDevices: this.numDevices,
      process: { ...this.process, ...whoAmI() },
      programs: [...this.programs.values()].map(describeProgram),
      devices: this.pool.recordings().map((one) => ({ ...one, device: one.device + this.local.first })),
    };
  }

  private copyOut(source: ThreadsBuffer): HostData {
    const copy = new Uint8Array(bytesOf(source.type));
    copy.set(this.bytesIn(source, 0, copy.length));
    return viewHost(source.type.dtype, copy.buffer);
  }

  /** Bytes of the elements where they are. */
  private bytesIn({ device, memory, allocation }: ThreadsBuffer, start: number, length: number): Uint8Array {
    const address = memory.addressOf(allocation) + start;
    return this.memory.bytesOf(this.workerOf(device)).subarray(address, address + length);
  }

  /** @param worker the device's number in this process */
  private describe(worker: number, id: number, step: number): FailurePlace {
    const program = this.programs.get(id);
    const info = program?.steps[step];
    return {
      device: worker + this.local.first,
      program: program?.name,
      step,
      op: info?.ops.join("+"),
      source: info?.source?.text,
    };
  }

  private answer(worker: number, id: number, step: number): void {
    const program = this.programs.get(id);
    if (program === undefined) throw new InternalError(`[threads] program ${id} is not loaded`);
    answerCall(program.compiled, step, program.calls[program.devices.indexOf(worker)]);
  }

  private describeDivergence(id: number, communicator: number): DesyncError | undefined {
    const program = this.programs.get(id);
    return (
      program && new DesyncError(program.name, positionsOf(program, communicator, this.pool.recordings()))
    );
  }

  /** The number of a device among those of this process. */
  private workerOf(device: number): number {
    return device - this.local.first;
  }

  private memoryOf(device: number): DeviceMemory {
    return at(this.memory.devices, this.workerOf(device));
  }

  private unload(loaded: WorkerProgram): void {
    if (this.pool.failure) return;
    this.numUnloading++;
    unloadProgram(loaded, this.target, () => {
      this.numUnloading--;
      this.programs.delete(loaded.id);
    });
  }

  /** Releases unreachable tensors and programs, and memory the devices no longer need. */
  private relieve(): void {
    reclaim();
    if (!this.pool.failure) this.pool.drain();
  }
}
