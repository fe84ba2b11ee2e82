import { environment } from "#platform/system";
import type { GpuProgram } from "../../compiler/compileForGpu.js";
import { Ambient } from "../../ir/ambient.js";
import { integerFrom } from "../../ir/arguments.js";
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
import { commonFacts } from "./commonFacts.js";
import type { Gpu, GpuFacts } from "./gpu.js";
import type { Machine } from "./gpuMachine.js";
import type { GpuBlock } from "./gpuMemory.js";
import type { MachineProgram } from "./gpuProgram.js";
import type { GpuTracer } from "./gpuTrace.js";
import type { RunBlocks } from "./machineRun.js";
import { WorkQueue } from "./queue.js";
import { checkTypes } from "./shaderTypes.js";

const webGpuEngineOptions = schema({
  /** Number of devices, which share the GPU, or the GPUs that `adapters` names; 1 by default. */
  numDevices: optional("number", 1),
  /**
   * The GPUs that the devices are spread over, the first of them on the first: each a part of an adapter's name, in Node,
   * or what WebGPU calls `high-performance` and `low-power`. By default those that `SHARDWISE_WEBGPU_ADAPTERS` lists with
   * commas, or the one that WebGPU prefers. One that is named twice is opened twice.
   */
  adapters: optional("strings"),
  /** Maximum memory of each device in bytes; by default whatever the GPU has. */
  memoryBytes: optional(integerFrom(1)),
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

/** What a WebGPU engine runs on; the GPU's name, limits and features, or what all GPUs allow and have, once it is open. */
export interface WebGpuEngineInfo extends EngineInfo {
  readonly limits?: Readonly<Record<string, number>>;
  readonly features?: readonly string[];
}

/**
 * Opens an engine on the GPU that WebGPU offers: in browsers that of the page, in Node through the package `webgpu`.
 * Several devices share one GPU, so that meshes can be tried on it, or are spread over several.
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
  const { numDevices, memoryBytes, deadlineMs } = read;
  const wanted = { matrices: read.matrices ?? wantsMatrices(), adapters: adaptersOf(read.adapters) };
  checkDeviceCount(numDevices, "createWebGpuEngine");
  const known = opened.get();
  const isWanted = known !== undefined && sameSetting(known.setting, wanted);
  const gpus = isWanted ? known : open(wanted);
  if (isWanted) opened.set(undefined);
  return new GpuEngine(numDevices, memoryBytes, deadlineMs, gpus);
}

/** Which GPUs are opened, and how. */
interface GpuSetting {
  readonly matrices: boolean;
  readonly adapters: readonly string[];
}

const sameSetting = (a: GpuSetting, b: GpuSetting): boolean =>
  a.matrices === b.matrices && a.adapters.join() === b.adapters.join();

/** GPUs and the code that runs programs on them. */
interface OpenGpus {
  readonly gpus: readonly Gpu[];
  readonly setting: GpuSetting;
  readonly code: typeof import("./gpuCode.js");
}

const opened = new Ambient<OpenGpus | undefined>({
  name: "GPUs of the next WebGPU engine",
  initial: undefined,
  setBy: "importEngine",
  dependence: { unkeyed: "programs are compiled for engines, which have their GPUs by then" },
});

/** Opens the GPUs of the next engine, so that the engine can say at once what it runs on. */
export async function openWebGpu(): Promise<void> {
  if (opened.get() !== undefined) return;
  opened.set(await open({ matrices: wantsMatrices(), adapters: adaptersOf(undefined) }));
}

/** Whether the environment asks for subgroup matrices. */
function wantsMatrices(): boolean {
  const { SHARDWISE_WEBGPU_MATRICES: value = "0" } = environment;
  if (value === "1" || value === "0") return value === "1";
  throw new EngineLoadError(`SHARDWISE_WEBGPU_MATRICES=${JSON.stringify(value)} must be 1 or 0`);
}

/** The adapters that were asked for, or those that the environment lists. */
function adaptersOf(given: readonly string[] | undefined): readonly string[] {
  const { SHARDWISE_WEBGPU_ADAPTERS: listed = "high-performance" } = environment;
  const names = (given ?? listed.split(",")).map((name) => name.trim());
  if (names.length > 0 && !names.includes("")) return names;
  const what = given === undefined ? `SHARDWISE_WEBGPU_ADAPTERS=${JSON.stringify(listed)}` : "adapters";
  throw new EngineLoadError(`${what} must name one adapter or more, such as high-performance,low-power`);
}

async function open(setting: GpuSetting): Promise<OpenGpus> {
  const code = await import("./gpuCode.js");
  const gpus: Gpu[] = [];
  try {
    for (const adapter of setting.adapters) {
      const gpu = await code.openGpu(setting.matrices, adapter);
      gpus.push({ ...gpu, largeTile: await code.fastestTile(gpu) });
    }
  } catch (error) {
    for (const { device } of gpus) device.destroy();
    throw error;
  }
  return { gpus, setting, code };
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
  /** The GPUs, each with a block of neighbouring devices; none until they are open. */
  private machines: readonly Machine[] = [];
  private code: OpenGpus["code"] | undefined;
  private openingFailure: Error | undefined;
  private readonly taken: number[];
  private numRuns = 0;

  constructor(
    readonly numDevices: number,
    private readonly memoryBytes: number | undefined,
    private readonly deadlineMs: number | undefined,
    gpus: OpenGpus | Promise<OpenGpus>,
  ) {
    super();
    this.taken = range(numDevices).map(() => 0);
    if (!(gpus instanceof Promise)) {
      this.use(gpus);
      this.opened = Promise.resolve();
      return;
    }
    this.opened = gpus.then(
      (found) => this.use(found),
      (error: unknown) => {
        this.openingFailure = error instanceof Error ? error : new Error(String(error));
        throw error;
      },
    );
    // Whoever uses the engine is told; nobody has to wait for this.
    this.opened.catch(() => {});
    this.queue.add(() => this.opened.catch(() => {}));
  }

  private use({ gpus, code }: OpenGpus): void {
    const { queue, numDevices, memoryBytes = Number.POSITIVE_INFINITY } = this;
    const used = gpus.slice(0, numDevices);
    for (const { device } of gpus.slice(numDevices)) device.destroy();
    const firsts = [...used, undefined].map((_, i) => Math.ceil((i * numDevices) / used.length));
    this.machines = used.map((gpu, i) => {
      const [first, end] = [at(firsts, i), at(firsts, i + 1)];
      return new code.Machine(gpu, memoryBytes * (end - first), first);
    });
    this.code = code;
    if (used.every(({ facts }) => facts.features.includes("timestamp-query")))
      this.tracer = new code.GpuTracer(this.machines, queue, numDevices);
  }

  protected override get failure(): Error | undefined {
    return this.openingFailure ?? this.machines.find(({ failure }) => failure)?.failure;
  }

  info(): WebGpuEngineInfo {
    const { numDevices, memoryBytes } = this;
    const facts = this.machines.map(({ gpu }) => gpu.facts);
    if (facts.length === 0) return { engine: "webgpu", numDevices };
    return {
      ...{ engine: "webgpu", numDevices, ...commonFacts(facts) },
      deviceKind: [...new Set(facts.map(({ name }) => name))].join(" and "),
      gemm: facts.map(describeGpu).join(" and "),
      ...(memoryBytes === undefined ? {} : { memoryBytes }),
    };
  }

  memoryUsage(device: number): MemoryUsage {
    this.checkDevice(device, "memoryUsage");
    return {
      used: at(this.taken, device),
      capacity: this.memoryBytes ?? Number.POSITIVE_INFINITY,
      arena: this.machines.length === 0 ? 0 : this.machineOf(device).arenaBytes(device),
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
    if (this.code) loaded.compiled(this.machines, this.code);
    return {
      start: (inputs) => this.startRun(loaded, inputs),
      release: () =>
        this.queue.add(() => {
          loaded.release();
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
        const code = this.open();
        const own = loaded.loaded(this.machines, code, (device) => this.machineOf(device));
        const blocks = this.places(loaded.compiled(this.machines, code), devices, inputs, outputs);
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
    { compiled }: GpuProgram,
    devices: readonly number[],
    inputs: Rows<WebGpuBuffer>,
    outputs: Rows<WebGpuBuffer>,
  ): RunBlocks[] {
    const given = inputs.map((row) => row.map((buffer) => this.blockOf(buffer)));
    // Inputs keep their memory until there is enough for all results.
    compiled.outputs.forEach(({ inputIndex }, o) => {
      if (inputIndex !== undefined) return;
      for (const target of at(outputs, o)) target.block = this.allocate(target);
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
        this.open();
        buffer.block = this.allocate(buffer);
        this.machineOf(device).upload(buffer.block, kept);
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
          this.open();
          result = this.machineOf(buffer.device).read([{ ...this.blockOf(buffer), bytes }]);
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
    const machine = this.machineOf(buffer.device);
    machine.submit();
    await machine.gpu.device.queue.onSubmittedWorkDone();
    await machine.settled();
    if (this.failure) throw this.failure;
  }

  protected view(buffer: WebGpuBuffer): HostData | undefined {
    return buffer.seen;
  }

  protected copy(buffer: WebGpuBuffer, device: number): WebGpuBuffer {
    const target = this.newBuffer(buffer.type, device);
    const fail = (error: unknown) => {
      target.failure = error;
    };
    this.queue.add(() => {
      try {
        this.open();
        const source = this.blockOf(buffer);
        const [from, to] = [this.machineOf(buffer.device), this.machineOf(device)];
        const block = this.allocate(target);
        target.block = block;
        if (from !== to) return this.send(from, { ...source, bytes: buffer.bytes }, to, block).catch(fail);
        to.copy(source, block, buffer.bytes);
      } catch (error) {
        fail(error);
      }
      return undefined;
    });
    return target;
  }

  /** Copies a block to another GPU, through the host. */
  private async send(from: Machine, source: GpuBlock, to: Machine, target: GpuBlock): Promise<void> {
    const [bytes = new Uint8Array(0)] = await from.read([source]);
    to.upload(target, bytes);
  }

  protected async end(): Promise<void> {
    await this.queue.idle();
    for (const machine of this.machines) machine.destroy();
  }

  /** The code for the open GPUs; throws why there are none, or why one failed. */
  private open(): OpenGpus["code"] {
    if (this.failure) throw this.failure;
    if (this.code === undefined) throw new Error("[webgpu] the GPU is not open");
    return this.code;
  }

  /** The GPU that has a device. */
  private machineOf(device: number): Machine {
    const found = this.machines.findLast(({ firstDevice }) => firstDevice <= device);
    if (found === undefined) throw new Error("[webgpu] the GPU is not open");
    return found;
  }

  private allocate({ type, bytes, device }: WebGpuBuffer): GpuBlock {
    const allocate = () => this.machineOf(device).memory.allocate(bytes, `a tensor ${formatType(type)}`);
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
        if (left.block) this.machineOf(device).memory.release(left.block);
        left.block = undefined;
        return undefined;
      });
    });
    this.taken[device] = at(this.taken, device) + buffer.bytes;
    return buffer;
  }
}

/** A GPU and what it can do, as part of a sentence. */
function describeGpu({ name, driver, limits, features, matrices }: GpuFacts): string {
  const { maxStorageBufferBindingSize: buffer, maxComputeInvocationsPerWorkgroup: threads } = limits;
  const facts = [
    ...(driver === undefined ? [] : [driver]),
    `buffers of ${Math.floor(buffer / 2 ** 20)} MiB`,
    `workgroups of ${threads} threads`,
    ...features,
    ...(matrices ? [`matrices of ${matrices.unit.m} x ${matrices.unit.n} x ${matrices.unit.k}`] : []),
  ];
  return `${name} (WebGPU, ${facts.join(", ")})`;
}

/** A program that is compiled once there are GPUs, the same for all, and loaded there by its first run. */
class LazyProgram {
  private gpuProgram: GpuProgram | undefined;
  private machinePrograms: readonly MachineProgram[] | undefined;

  constructor(
    readonly program: Program,
    private readonly options: CompileOptions,
    readonly devices: readonly number[],
  ) {}

  compiled(machines: readonly Machine[], { compileForGpu }: OpenGpus["code"]): GpuProgram {
    const facts = machines.map(({ gpu }) => gpu.facts);
    const isHardware = !facts.some(({ isSoftware }) => isSoftware);
    // Four threads share a row; the compilers of software adapters take seconds for it.
    const attentionSteps = isHardware && facts.every(({ subgroupSize = 1 }) => subgroupSize >= 4);
    const epilogues = isHardware;
    const float16Products = facts.every(({ matrices }) => matrices !== undefined);
    const arenaPage = Math.min(...machines.map(({ memory }) => memory.largest));
    const options = { ...this.options, attentionSteps, epilogues, float16Products, arenaPage };
    this.gpuProgram ??= compileForGpu(this.program, options);
    return this.gpuProgram;
  }

  /** @param machineOf the GPU that has a device */
  loaded(
    machines: readonly Machine[],
    code: OpenGpus["code"],
    machineOf: (device: number) => Machine,
  ): readonly MachineProgram[] {
    const { devices } = this;
    this.machinePrograms ??= machines.flatMap((machine) => {
      const own = [...devices.keys()].filter((position) => machineOf(at(devices, position)) === machine);
      if (own.length === 0) return [];
      return new code.MachineProgram(this.compiled(machines, code), machine, devices, own);
    });
    return this.machinePrograms;
  }

  release(): void {
    for (const program of this.machinePrograms ?? []) program.release();
  }
}
