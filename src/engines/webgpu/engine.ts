import { environment } from "#platform/system";
import type { GpuProgram } from "../../compiler/compileForGpu.js";
import { Ambient } from "../../ir/ambient.js";
import { type HostData, viewHost } from "../../ir/dtype.js";
import type { CompileOptions, Engine } from "../../ir/engine.js";
import type { EngineInfo, MemoryUsage } from "../../ir/engineReports.js";
import type { Program } from "../../ir/program.js";
import { reclaim } from "../../ir/reclaim.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, bytesOf, formatType, range, type TensorType } from "../../ir/shape.js";
import { EngineLoadError, OutOfMemoryError } from "../errors.js";
import { limitLoops } from "../loopLimit.js";
import { EngineShell, type LoadedProgram, type Rows } from "../shell.js";
import { checkDeviceCount, checkSizes } from "../sizeChecks.js";
import { WebGpuBuffer } from "./buffers.js";
import type { Gpu } from "./gpu.js";
import type { Machine } from "./gpuMachine.js";
import type { GpuBlock } from "./gpuMemory.js";
import type { MachineProgram } from "./gpuProgram.js";
import type { GpuTracer } from "./gpuTrace.js";
import { WorkQueue } from "./queue.js";
import type { RunBlocks } from "./run.js";
import { checkTypes } from "./shaderTypes.js";

const webGpuEngineOptions = schema({
  /** Number of devices that share the GPU; 1 by default. */
  numDevices: optional("number", 1),
  /** Maximum memory of each device in bytes; by default whatever the GPU has. */
  memoryBytes: optional("number"),
  /** How long a loop without a fixed end may run; by default `SHARDWISE_DEADLINE` (in seconds), or two minutes. */
  deadlineMs: optional("number"),
  /**
   * Whether products of float16 use subgroup matrices (tensor cores), which browsers and Dawn count as experimental; by
   * default whether `SHARDWISE_WEBGPU_MATRICES` is 1. An error where the GPU has none.
   */
  matrices: optional("flag"),
});

/** Options of the WebGPU engine. */
export interface WebGpuEngineOptions extends OptionsOf<typeof webGpuEngineOptions> {}

/** What a WebGPU engine runs on; the GPU's name, limits and features are known once it is open. */
export interface WebGpuEngineInfo extends EngineInfo {
  readonly limits?: Readonly<Record<string, number>>;
  readonly features?: readonly string[];
}

/**
 * Opens an engine on the GPU that WebGPU offers: in browsers that of the page, in Node through the package `webgpu`.
 * Several devices share one GPU, so that meshes can be tried on it.
 *
 * The GPU is opened in the background; whatever is asked of the engine meanwhile waits for it. `await engine.opened`
 * tells whether there is one.
 *
 * @example
 * ```ts
 * engines.createWebGpuEngine({ numDevices: 2 }).numDevices; // 2
 * ```
 */
export function createWebGpuEngine(options?: WebGpuEngineOptions): WebGpuEngine {
  const read = webGpuEngineOptions.read(options, "createWebGpuEngine");
  const { numDevices, memoryBytes, deadlineMs, matrices = wantsMatrices() } = read;
  checkDeviceCount(numDevices, "createWebGpuEngine");
  const known = opened.get();
  const isWanted = known !== undefined && (known.gpu.facts.matrices !== undefined) === matrices;
  const gpu = isWanted ? known : open(matrices);
  if (isWanted) opened.set(undefined);
  return new GpuEngine(numDevices, memoryBytes, deadlineMs, gpu);
}

/** A GPU and the code that runs programs on it. */
interface OpenGpu {
  readonly gpu: Gpu;
  readonly code: typeof import("./gpuCode.js");
}

const opened = new Ambient<OpenGpu | undefined>({
  name: "GPU of the next WebGPU engine",
  initial: undefined,
  setBy: "importEngine",
  dependence: { unkeyed: "programs are compiled for engines, which have their GPU by then" },
});

/** Opens the GPU of the next engine, so that the engine can say at once what it runs on. */
export async function openWebGpu(): Promise<void> {
  if (opened.get() === undefined) opened.set(await open(wantsMatrices()));
}

/** Whether the environment asks for subgroup matrices. */
function wantsMatrices(): boolean {
  const { SHARDWISE_WEBGPU_MATRICES: value = "0" } = environment;
  if (value === "1" || value === "0") return value === "1";
  throw new EngineLoadError(`SHARDWISE_WEBGPU_MATRICES=${JSON.stringify(value)} must be 1 or 0`);
}

async function open(matrices: boolean): Promise<OpenGpu> {
  const code = await import("./gpuCode.js");
  const gpu = await code.openGpu(matrices);
  return { gpu: { ...gpu, largeTile: await code.fastestTile(gpu) }, code };
}

/** Maximum size of elements that are kept on the host after reading them. */
const SMALL_BYTES = 1 << 16;

/** The engine of a GPU; see {@link createWebGpuEngine}. */
export interface WebGpuEngine extends Engine {
  /** Resolved when the GPU is open; rejected with the reason where there is none. */
  readonly opened: Promise<void>;
  info(): WebGpuEngineInfo;
}

class GpuEngine extends EngineShell<WebGpuBuffer> implements WebGpuEngine {
  readonly name = "webgpu";
  readonly opened: Promise<void>;
  /** Where the adapter has `timestamp-query`. */
  tracer?: GpuTracer;
  private readonly queue = new WorkQueue();
  private machine: Machine | undefined;
  private code: OpenGpu["code"] | undefined;
  private openingFailure: Error | undefined;
  private readonly taken: number[];
  private numRuns = 0;

  constructor(
    readonly numDevices: number,
    private readonly memoryBytes: number | undefined,
    private readonly deadlineMs: number | undefined,
    gpu: OpenGpu | Promise<OpenGpu>,
  ) {
    super();
    this.taken = range(numDevices).map(() => 0);
    const capacity = memoryBytes === undefined ? Number.POSITIVE_INFINITY : memoryBytes * numDevices;
    if (!(gpu instanceof Promise)) {
      this.use(gpu, capacity);
      this.opened = Promise.resolve();
      return;
    }
    this.opened = gpu.then(
      (found) => this.use(found, capacity),
      (error: unknown) => {
        this.openingFailure = error instanceof Error ? error : new Error(String(error));
        throw error;
      },
    );
    // Whoever uses the engine is told; nobody has to wait for this.
    this.opened.catch(() => {});
    this.queue.add(() => this.opened.catch(() => {}));
  }

  private use({ gpu, code }: OpenGpu, capacity: number): void {
    const { queue, numDevices } = this;
    this.machine = new code.Machine(gpu, capacity);
    this.code = code;
    if (gpu.facts.features.includes("timestamp-query"))
      this.tracer = new code.GpuTracer(this.machine, queue, numDevices);
  }

  protected override get failure(): Error | undefined {
    return this.openingFailure ?? this.machine?.failure;
  }

  info(): WebGpuEngineInfo {
    const { numDevices } = this;
    if (this.machine === undefined) return { engine: "webgpu", numDevices };
    const { name, driver, limits, features, matrices } = this.machine.gpu.facts;
    const { maxStorageBufferBindingSize: buffer, maxComputeInvocationsPerWorkgroup: threads } = limits;
    const facts = [
      ...(driver === undefined ? [] : [driver]),
      `buffers of ${Math.floor(buffer / 2 ** 20)} MiB`,
      `workgroups of ${threads} threads`,
      ...features,
      ...(matrices ? [`matrices of ${matrices.unit.m} x ${matrices.unit.n} x ${matrices.unit.k}`] : []),
    ];
    return {
      ...{ engine: "webgpu", numDevices, deviceKind: name, limits, features },
      gemm: `${name} (WebGPU, ${facts.join(", ")})`,
      ...(this.memoryBytes === undefined ? {} : { memoryBytes: this.memoryBytes }),
    };
  }

  memoryUsage(device: number): MemoryUsage {
    this.checkDevice(device, "memoryUsage");
    return {
      used: at(this.taken, device),
      capacity: this.memoryBytes ?? Number.POSITIVE_INFINITY,
      arena: this.machine?.arenaBytes(device) ?? 0,
    };
  }

  protected prepare(
    program: Program,
    options: CompileOptions,
    devices: readonly number[],
  ): LoadedProgram<WebGpuBuffer> {
    checkSizes(program);
    checkTypes(program, options.name ?? "program");
    const loaded = new LazyProgram(program, options, devices);
    // What is wrong with it is said at once, unless the GPU is still being opened.
    if (this.machine && this.code) loaded.compiled(this.machine, this.code);
    return {
      start: (inputs) => this.startRun(loaded, inputs),
      release: () =>
        this.queue.add(() => {
          if (this.machine) loaded.release();
          return undefined;
        }),
    };
  }

  private startRun(loaded: LazyProgram, inputs: Rows<WebGpuBuffer>): WebGpuBuffer[][] {
    const { devices, program } = loaded;
    const outputs = program.outputs.map(({ type }) => devices.map((device) => this.newBuffer(type, device)));
    let refused: unknown;
    let isNow = true;
    this.queue.add(() => {
      const fail = (error: unknown) => {
        for (const buffer of outputs.flat()) buffer.failure ??= this.failure ?? error;
      };
      try {
        const { machine, code } = this.open();
        const own = loaded.loaded(machine, code);
        const blocks = this.places(machine, own.program, devices, inputs, outputs);
        const limit = limitLoops(this.deadlineMs);
        const run = new code.Run(own, blocks, limit, this.numRuns++, this.tracer?.current);
        return run.start()?.catch(fail);
      } catch (error) {
        if (isNow) refused = error;
        fail(error);
        return undefined;
      }
    });
    isNow = false;
    if (!(refused instanceof OutOfMemoryError)) return outputs;
    for (const buffer of outputs.flat()) buffer.dispose("released");
    throw refused;
  }

  /** Memory for the results of a run; donated inputs pass theirs on. */
  private places(
    machine: Machine,
    { compiled }: GpuProgram,
    devices: readonly number[],
    inputs: Rows<WebGpuBuffer>,
    outputs: Rows<WebGpuBuffer>,
  ): RunBlocks[] {
    const given = inputs.map((row) => row.map((buffer) => this.blockOf(buffer)));
    // Inputs keep their memory until there is enough for all results.
    compiled.outputs.forEach(({ inputIndex }, o) => {
      if (inputIndex !== undefined) return;
      for (const target of at(outputs, o)) target.block = this.allocate(machine, target);
    });
    compiled.outputs.forEach(({ inputIndex }, o) => {
      if (inputIndex === undefined) return;
      at(outputs, o).forEach((target, position) => {
        const source = at(at(inputs, inputIndex), position);
        target.block = source.block;
        source.block = undefined;
      });
    });
    return devices.map((_, position) => ({
      inputs: given.map((row) => at(row, position)),
      outputs: outputs.map((row) => at(row, position).block),
    }));
  }

  private blockOf({ block, failure, type }: WebGpuBuffer): GpuBlock {
    if (block !== undefined && failure === undefined) return block;
    throw failure ?? new Error(`[webgpu] ${formatType(type)} has no memory`);
  }

  protected write(type: TensorType, data: HostData, device: number): WebGpuBuffer {
    const buffer = this.newBuffer(type, device);
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    // What cannot be uploaded at once is copied: the caller may change it.
    const kept = this.queue.isIdle ? bytes : bytes.slice();
    this.queue.add(() => {
      try {
        const { machine } = this.open();
        buffer.block = this.allocate(machine, buffer);
        machine.upload(buffer.block, kept);
      } catch (error) {
        buffer.failure = error;
      }
      return undefined;
    });
    // The caller is told at once what can be told at once.
    if (buffer.failure instanceof OutOfMemoryError) {
      const { failure } = buffer;
      buffer.dispose("released");
      throw failure;
    }
    return buffer;
  }

  protected async read(buffer: WebGpuBuffer): Promise<HostData> {
    if (buffer.seen) return buffer.seen.slice();
    const { type, bytes } = buffer;
    let result: Promise<Uint8Array<ArrayBuffer>[]> | undefined;
    // The copy is recorded in its turn, so the buffer may be released meanwhile.
    await new Promise<void>((resolve, reject) => {
      this.queue.add(() => {
        try {
          const { machine } = this.open();
          result = machine.read([{ ...this.blockOf(buffer), bytes }]);
          result.catch(() => {});
          resolve();
        } catch (error) {
          reject(error);
        }
        return undefined;
      });
    });
    const [read = new Uint8Array(0)] = (await result) ?? [];
    const data = viewHost(type.dtype, read.buffer);
    if (bytes <= SMALL_BYTES && buffer.isLive) buffer.seen = data.slice();
    return data;
  }

  protected async written(buffer: WebGpuBuffer): Promise<void> {
    await this.queue.idle();
    this.blockOf(buffer);
    this.machine?.submit();
    await this.machine?.gpu.device.queue.onSubmittedWorkDone();
    await this.machine?.settled();
    if (this.failure) throw this.failure;
  }

  protected view(buffer: WebGpuBuffer): HostData | undefined {
    return buffer.seen;
  }

  protected copy(buffer: WebGpuBuffer, device: number): WebGpuBuffer {
    const target = this.newBuffer(buffer.type, device);
    this.queue.add(() => {
      try {
        const { machine } = this.open();
        const source = this.blockOf(buffer);
        target.block = this.allocate(machine, target);
        machine.copy(source, target.block, buffer.bytes);
      } catch (error) {
        target.failure = error;
      }
      return undefined;
    });
    return target;
  }

  protected async end(): Promise<void> {
    await this.queue.idle();
    this.machine?.destroy();
  }

  /** The open GPU; throws why there is none, or why it failed. */
  private open(): { readonly machine: Machine; readonly code: OpenGpu["code"] } {
    const { machine, code } = this;
    if (this.failure) throw this.failure;
    if (machine === undefined || code === undefined) throw new Error("[webgpu] the GPU is not open");
    return { machine, code };
  }

  private allocate(machine: Machine, { type, bytes }: WebGpuBuffer): GpuBlock {
    const allocate = () => machine.memory.allocate(bytes, `a tensor ${formatType(type)}`);
    try {
      return allocate();
    } catch (error) {
      // Tensors that nothing can reach any more give their memory back.
      if (!(error instanceof OutOfMemoryError) || reclaim() === 0) throw error;
      return allocate();
    }
  }

  private newBuffer(type: TensorType, device: number): WebGpuBuffer {
    const buffer = new WebGpuBuffer(this, type, device, bytesOf(type), (left) => {
      this.taken[device] = at(this.taken, device) - left.bytes;
      left.seen = undefined;
      this.queue.add(() => {
        if (left.block && this.machine) this.machine.memory.release(left.block);
        left.block = undefined;
        return undefined;
      });
    });
    this.taken[device] = at(this.taken, device) + buffer.bytes;
    return buffer;
  }
}

/** A program that is compiled once there is a GPU, and loaded there by its first run. */
class LazyProgram {
  private gpuProgram: GpuProgram | undefined;
  private machineProgram: MachineProgram | undefined;

  constructor(
    readonly program: Program,
    private readonly options: CompileOptions,
    readonly devices: readonly number[],
  ) {}

  compiled({ gpu, memory }: Machine, { compileForGpu }: OpenGpu["code"]): GpuProgram {
    const { subgroupSize = 1, isSoftware } = gpu.facts;
    // Four threads share a row; the compilers of software adapters take seconds for it.
    const attentionSteps = subgroupSize >= 4 && !isSoftware;
    const epilogues = !isSoftware;
    const float16Products = gpu.facts.matrices !== undefined;
    const arenaPage = memory.largest;
    const options = { ...this.options, attentionSteps, epilogues, float16Products, arenaPage };
    this.gpuProgram ??= compileForGpu(this.program, options);
    return this.gpuProgram;
  }

  loaded(machine: Machine, code: OpenGpu["code"]): MachineProgram {
    this.machineProgram ??= new code.MachineProgram(this.compiled(machine, code), machine, this.devices);
    return this.machineProgram;
  }

  release(): void {
    this.machineProgram?.release();
  }
}
