import { availableParallelism, hostname } from "node:os";
import { compileProgram } from "../../compiler/compile.js";
import type { CompiledProgram } from "../../compiler/steps.js";
import type { AddressType } from "../../compiler/wasm/addresses.js";
import { detectFeatures, type WasmFeatures } from "../../compiler/wasm/features.js";
import { type HostData, viewHost } from "../../ir/dtype.js";
import type { CompileOptions, DeviceBuffer, Executable } from "../../ir/engine.js";
import type { MemoryUsage, Tracer } from "../../ir/engineReports.js";
import { InternalError } from "../../ir/errors.js";
import type { FlightRecording } from "../../ir/flight.js";
import { needOptions } from "../../ir/options.js";
import type { Program } from "../../ir/program.js";
import { HighWaterMark, reclaim } from "../../ir/reclaim.js";
import { at, bytesOf, formatType, type TensorType } from "../../ir/shape.js";
import { verify } from "../../ir/verify.js";
import { checkDeviceCount, checkSizes } from "../checks.js";
import { moveModuleFor } from "../collectives/moveModule.js";
import { answerCall } from "../devices/hostCalls.js";
import { DesyncError, type FailurePlace } from "../errors.js";
import { chooseKernels, type KernelChoice } from "../kernels/kernelChoice.js";
import { openKernelCode } from "../kernels/loadKernels.js";
import { ThreadsBuffer } from "../memory/buffers.js";
import type { DeviceMemory } from "../memory/deviceMemory.js";
import type { MemoryLayout } from "../memory/memoryLayout.js";
import { chooseGemm, describeGemm, type GemmChoice, takesBfloat16 } from "../products/gemmChoice.js";
import { shareOfPeak } from "../products/shareOfPeak.js";
import { pullCommand } from "../protocol/commands.js";
import { allHere, type DeviceLocations } from "../protocol/locations.js";
import { DEFAULT_DEADLINE_MS } from "../settings.js";
import {
  EngineShell,
  type ShellExecutable,
  type LoadedProgram as ShellProgram,
  signatureOf,
} from "../shell.js";
import type { CodeMemory } from "../system/codeMemory.js";
import { enableRelaxedSimd } from "../system/v8Flags.js";
import { chooseCores, chooseThreads } from "../workers/chooseThreads.js";
import { EngineMemory } from "../workers/engineMemory.js";
import { EngineTracer } from "../workers/engineTracer.js";
import { ThreadsExecutable } from "../workers/executable.js";
import {
  adaptProgram,
  describeProgram,
  type LoadedProgram,
  type LoadTarget,
  loadProgram,
  positionsOf,
  sendProgram,
  unloadProgram,
} from "../workers/programs.js";
import { checkRuntime } from "../workers/runtime.js";
import { WorkerPool } from "../workers/workerPool.js";
import type { PartOptions, TestOptions, ThreadsEngineInfo, ThreadsEngineOptions } from "./engineOptions.js";
import { workerCode } from "./workerCode.js";

/** How many programs may be loaded before unreachable ones are collected. */
const RECLAIM_THRESHOLD_PROGRAMS = 128;

/**
 * Opens an engine whose devices are worker threads of this process: compiled code, shared memory.
 *
 * ```ts
 * const engine = createThreadsEngine({ numDevices: 2 });
 * …
 * await engine.close();
 * ```
 */
export function createThreadsEngine(options: ThreadsEngineOptions): ThreadsEngine {
  needOptions<ThreadsEngineOptions>(
    options,
    {
      numDevices: true,
      memoryBytes: true,
      deadlineMs: true,
      gemm: true,
      threadsPerDevice: true,
      pinned: true,
    },
    "createThreadsEngine",
  );
  return new ThreadsEngine(options);
}

/** Every device is a thread; no machine supports more. */
const maxThreads = 1024;

/** Users hold its buffers as those of any engine. */
type OwnBuffer = ThreadsBuffer;

/** The engine of worker threads; see {@link createThreadsEngine}. */
export class ThreadsEngine extends EngineShell<OwnBuffer> {
  readonly name = "threads";
  readonly numDevices: number;
  readonly tracer: Tracer;
  private readonly memory: EngineMemory;
  private readonly pool: WorkerPool;
  private readonly programs = new Map<number, LoadedProgram>();
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
  constructor(
    options: ThreadsEngineOptions,
    test: TestOptions = {},
    private readonly part?: PartOptions,
  ) {
    super();
    const { numDevices } = options;
    checkDeviceCount(numDevices, "createThreadsEngine", maxThreads);
    checkRuntime();
    this.numDevices = numDevices;
    enableRelaxedSimd();
    this.features = detectFeatures();
    this.gemm = chooseGemm(options.gemm);
    this.kernels = chooseKernels();
    this.code = this.kernels === undefined ? undefined : openKernelCode();
    const numCores = part?.numCores ?? availableParallelism();
    this.threads = chooseThreads(options, this.gemm, numCores);
    this.crowded = numDevices * this.threads > numCores;
    this.memory = new EngineMemory(
      {
        numDevices,
        memoryBytes: options.memoryBytes,
        share: part?.memoryShare,
        layout: test.layout,
        choices: test.choices,
      },
      { relieve: () => this.relieve(), move: (layout, before) => this.move(layout, before.addressType) },
    );
    this.pool = new WorkerPool({
      numDevices,
      code: part?.code ?? workerCode(),
      extra: part?.extra,
      deadlineMs: options.deadlineMs ?? DEFAULT_DEADLINE_MS,
      // Devices of other processes, for which all of this process may wait, can be busy with something else.
      ...(part ? { deadlockMs: options.deadlineMs ?? DEFAULT_DEADLINE_MS } : {}),
      describe: (device, program, step) => this.describe(device, program, step),
      answer: (device, program, step) => this.answer(device, program, step),
      describeDivergence: (program, communicator) => this.describeDivergence(program, communicator),
      scratch: this.memory.devices.map(({ scratch }) => scratch),
      setup: {
        layout: this.memory.layout,
        moveModule: moveModuleFor(this.memory.layout.addressType),
        crowded: this.crowded,
        gemm: this.gemm,
        threads: this.threads,
        cores: chooseCores(options, numDevices * this.threads),
        timeOrigin: performance.timeOrigin,
        faults: test.faults ?? [],
      },
    });
    this.tracer = new EngineTracer({
      numDevices,
      pool: this.pool,
      programs: this.programs,
      describe: (device, program, step) => this.describe(device, program, step),
    });
  }

  protected prepare(program: Program, options: CompileOptions): ShellProgram<ThreadsBuffer> {
    return this.prepareAt(program, options, allHere(options.devices));
  }

  /** @internal Compiles a program whose devices may be in several processes. */
  compileAt(
    program: Program,
    options: CompileOptions,
    locations: DeviceLocations,
  ): ShellExecutable<ThreadsBuffer, ThreadsExecutable> {
    this.checkRuns("compile");
    verify(program, "partitioned");
    const loaded = this.prepareAt(program, options, locations);
    return this.executable(signatureOf(program, options, loaded.devices), loaded);
  }

  /** @internal Loads a step list that was compiled before; by default all devices are here. */
  load(compiled: CompiledProgram, options: CompileOptions, locations = allHere(options.devices)): Executable {
    this.checkRuns("compile");
    const loaded = this.loadAt(compiled, options, locations);
    const inputs = compiled.inputs.map(({ type }) => type);
    const { name = compiled.name, donated = [] } = options;
    return this.executable({ name, inputs, devices: loaded.devices, donated }, loaded);
  }

  private prepareAt(
    program: Program,
    options: CompileOptions,
    locations: DeviceLocations,
  ): ThreadsExecutable {
    checkSizes(program);
    const { features, threads, memory } = this;
    const vectorBits = this.kernels?.bits;
    const bfloat16Products = takesBfloat16(this.gemm);
    const compile = (addressType: AddressType) =>
      compileProgram(program, { ...options, features, threads, addressType, vectorBits, bfloat16Products });
    return this.loadAt(compile(memory.layout.addressType), options, locations, compile);
  }

  private loadAt(
    compiled: CompiledProgram,
    options: CompileOptions,
    locations: DeviceLocations,
    recompile?: LoadedProgram["recompile"],
  ): ThreadsExecutable {
    const { pool, target } = this;
    pool.keepUp();
    this.programMark.check(() => this.programs.size - this.numUnloading);
    const loaded = loadProgram(compiled, options, target, locations, recompile);
    this.programs.set(loaded.id, loaded);
    return new ThreadsExecutable(this, loaded, options, pool, target.memories, () => this.unload(loaded));
  }

  /** @internal Runs pending host callbacks while the main thread waits for something else. */
  look(): void {
    this.pool.look();
  }

  private get target(): LoadTarget {
    const { pool, features, gemm, crowded, memory, part } = this;
    const { devices: memories, layout } = memory;
    const { planStaging } = part ?? {};
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
    const memory = this.memoryOf(device);
    this.pool.keepUp();
    const source = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    const quiet = memory.allocateQuiet(data.byteLength, this.pool.completed(device));
    if (quiet !== undefined) {
      this.memory.bytesOf(device).set(source, memory.addressOf(quiet));
      return new ThreadsBuffer(this, type, device, memory, quiet, 0);
    }
    // Earlier runs still use the free memory: the device copies the elements in when they have finished.
    const allocation = memory.allocate(data.byteLength, "upload", () => formatType(type));
    const bytes = source.slice();
    const message = { kind: "upload", address: memory.addressOf(allocation), bytes } as const;
    const command = this.pool.post(device, message, [bytes.buffer]);
    allocation.lastUse = command;
    return new ThreadsBuffer(this, type, device, memory, allocation, command);
  }

  protected async read(source: ThreadsBuffer): Promise<HostData> {
    source.allocation.readers++;
    try {
      await this.written(source);
      return this.copyOut(source);
    } finally {
      source.memory.endRead(source.allocation);
    }
  }

  protected async written({ device, readyAt }: ThreadsBuffer): Promise<void> {
    await this.pool.whenCompleted(device, readyAt);
  }

  protected view(source: ThreadsBuffer): HostData | undefined {
    return this.pool.completed(source.device) >= source.readyAt ? this.copyOut(source) : undefined;
  }

  readNow(buffer: DeviceBuffer): HostData {
    const source = this.own(buffer, "readNow");
    this.pool.waitFor(source.device, source.readyAt);
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
      peer: source.device,
      after: source.readyAt,
    };
    const command = pool.send(device, pullCommand(pull));
    target.lastUse = command;
    if (device === source.device) {
      allocation.lastUse = command;
    } else {
      // The other device's commands are not ordered with those of the source, so the source must stay alive.
      allocation.readers++;
      pool.afterwards([{ device, command }], () => from.endRead(allocation));
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

  /** What the engine runs on. */
  info(): ThreadsEngineInfo {
    const { bytesPerDevice, layout } = this.memory;
    return {
      engine: "threads",
      numDevices: this.numDevices,
      memoryBytes: bytesPerDevice,
      memoryLayout: layout.kind,
      addressBits: layout.addressType === "i32" ? 32 : 64,
      gemm: describeGemm(this.gemm, this.features),
      gemmShareOfPeak: shareOfPeak(this.gemm, this.features),
      kernels: this.kernels === undefined ? "WebAssembly SIMD" : `native ${this.kernels.set}`,
      wasm: this.features,
      numCores: availableParallelism(),
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
      process: { ...this.process, pid: process.pid, host: hostname() },
      programs: [...this.programs.values()].map(describeProgram),
      devices: this.pool.recordings(),
    };
  }

  private copyOut({ type, device, memory, allocation }: ThreadsBuffer): HostData {
    const address = memory.addressOf(allocation);
    const copy = new Uint8Array(bytesOf(type));
    copy.set(this.memory.bytesOf(device).subarray(address, address + copy.length));
    return viewHost(type.dtype, copy.buffer);
  }

  private describe(device: number, id: number, step: number): FailurePlace {
    const program = this.programs.get(id);
    const info = program?.steps[step];
    return {
      device: device + (this.part?.firstDevice ?? 0),
      program: program?.name,
      step,
      op: info?.ops.join("+"),
      source: info?.source?.text,
    };
  }

  private answer(device: number, id: number, step: number): void {
    const program = this.programs.get(id);
    if (program === undefined) throw new InternalError(`[threads] program ${id} is not loaded`);
    answerCall(program.compiled, step, program.calls[program.devices.indexOf(device)]);
  }

  private describeDivergence(id: number, communicator: number): DesyncError | undefined {
    const program = this.programs.get(id);
    return (
      program && new DesyncError(program.name, positionsOf(program, communicator, this.pool.recordings()))
    );
  }

  private memoryOf(device: number): DeviceMemory {
    return at(this.memory.devices, device);
  }

  private unload(loaded: LoadedProgram): void {
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
