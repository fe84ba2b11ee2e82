import { chooseKernels } from "#engines/kernels/kernelChoice";
import { availableMemory } from "#engines/system/machineMemory";
import { enableRelaxedSimd } from "#engines/system/v8Flags";
import { beforeExit } from "#platform/system";
import { startThread, type Thread } from "#platform/threads";
import type { CompiledProgram } from "../../compiler/steps.js";
import { detectFeatures } from "../../compiler/wasm/features.js";
import { callHost } from "../../ir/callbacks.js";
import { type HostData, viewHost } from "../../ir/dtype.js";
import type { CompileOptions, Engine } from "../../ir/engine.js";
import type { EngineInfo, MemoryUsage } from "../../ir/engineReports.js";
import { DisposedError, reasonOf, type ShardwiseError } from "../../ir/errors.js";
import { newCounter } from "../../ir/identity.js";
import type { Program } from "../../ir/program.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, bytesOf, formatBytes, formatType, type TensorType } from "../../ir/shape.js";
import { describeError } from "../../platform/failures.js";
import type { AbortSignalLike } from "../../platform/hostTypes.js";
import { DesyncError, DeviceFailedError, OutOfMemoryError } from "../errors.js";
import { type CompileSettings, compileWith, isPrepared } from "../kernels/compileWith.js";
import { chooseGemm, describeGemm, fusesAttention, takesBfloat16 } from "../products/gemmChoice.js";
import { EngineBuffer, EngineShell, type EngineState, type LoadedProgram, type Rows } from "../shell.js";
import { checkDeviceCount, checkSizes } from "../sizeChecks.js";
import type { News, Order, Setup } from "./orders.js";

/** The schema of {@link OneThreadEngineOptions}. */
const oneThreadEngineOptions = schema({
  /** Number of devices; by default as many as a mesh asks for. */
  numDevices: optional("number", Number.POSITIVE_INFINITY),
  /** Maximum memory of each device in bytes; all devices together have up to 4 GiB. */
  memoryBytes: optional("number"),
  /** How long a loop without a fixed end may run before its device counts as failed; 120 000 ms by default. */
  deadlineMs: optional("number"),
  /** Closes the engine when it is aborted: runs and the worker end, and what waits for values gets a `DisposedError`. */
  signal: optional<AbortSignalLike>("object"),
});

/** Options of an engine whose devices take turns in one worker. */
export interface OneThreadEngineOptions extends OptionsOf<typeof oneThreadEngineOptions> {}

type ReadOptions = ReturnType<typeof oneThreadEngineOptions.read>;

/**
 * Opens an engine whose devices take turns in one worker, for pages whose workers cannot share memory, where it is the
 * default. Results have the bits of a threads engine with products by WebAssembly.
 *
 * @example
 * ```ts
 * const engine = engines.createOneThreadEngine({ numDevices: 2 });
 * engine.numDevices; // 2
 * await engine.close();
 * ```
 */
export function createOneThreadEngine(options?: OneThreadEngineOptions): OneThreadEngine {
  const read = oneThreadEngineOptions.read(options, "createOneThreadEngine");
  const { numDevices } = read;
  if (numDevices !== Number.POSITIVE_INFINITY) checkDeviceCount(numDevices, "createOneThreadEngine");
  return new OneWorkerEngine(read);
}

/** An engine whose devices take turns in one worker. */
export interface OneThreadEngine extends Engine {
  readonly state: EngineState;
  memoryUsage(device: number): MemoryUsage;
}

/** Maximum size of elements that are kept on this side after reading them. */
const SMALL_BYTES = 1 << 16;

/** A block of elements in the worker. */
class RemoteBuffer extends EngineBuffer {
  readonly bytes = bytesOf(this.type);
  /** The elements, if they are small and were read before. */
  seen: HostData | undefined;

  constructor(
    owner: object,
    type: TensorType,
    device: number,
    readonly id: number,
    private readonly leave: (buffer: RemoteBuffer) => void,
  ) {
    super(owner, type, device);
  }

  protected override left(): void {
    this.seen = undefined;
    this.leave(this);
  }
}

/** What waits for an answer of the worker. */
interface Request {
  readonly resolve: (data: HostData | undefined) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * An engine for pages whose workers cannot share memory: all devices take turns in one worker, which gets programs and
 * elements by messages. They run the same compiled steps as devices with workers of their own, and their results have
 * the same bits. This thread never waits for it.
 */
class OneWorkerEngine extends EngineShell<RemoteBuffer> implements OneThreadEngine {
  readonly name = "oneThread";
  readonly numDevices: number;
  private readonly gemm = chooseGemm(undefined);
  private readonly settings: CompileSettings;
  /** The most bytes that all devices together may have, and what sets that limit. */
  private readonly limit = availableMemory();
  /** The most bytes of one device. */
  private readonly bytesPerDevice: number;
  private readonly taken = new Map<number, number>();
  private thread: Thread | undefined;
  /** What is sent when the worker has started. */
  private readonly outbox: { readonly order: Order; readonly given: readonly ArrayBuffer[] }[] = [];
  private released: number[] = [];
  private readonly requests = new Map<number, Request>();
  private readonly programs = new Map<
    number,
    { readonly name: string; readonly compiled: CompiledProgram; readonly devices: readonly number[] }
  >();
  private readonly nextId = newCounter(1);
  private readonly stayAtExit: () => void;
  /** Why the worker answers no more. */
  private gone: ShardwiseError | undefined;
  private failed: ShardwiseError | undefined;

  /** @internal */
  constructor({ numDevices, memoryBytes, deadlineMs, signal }: ReadOptions) {
    signal?.throwIfAborted();
    super();
    this.numDevices = numDevices;
    enableRelaxedSimd();
    this.settings = {
      features: detectFeatures(),
      addressType: "i32",
      vectorBits: chooseKernels()?.bits,
      fusesAttention: fusesAttention(this.gemm),
      bfloat16Products: takesBfloat16(this.gemm),
      donated: undefined,
    };
    this.bytesPerDevice = Math.min(memoryBytes ?? this.limit.bytes, this.limit.bytes);
    this.stayAtExit = beforeExit(() => this.thread?.terminate());
    void this.start({ deadlineMs });
    signal?.addEventListener("abort", () => void this.close(), { once: true });
  }

  compileSettings(): CompileSettings {
    return this.settings;
  }

  info(): EngineInfo {
    const { name: engine, numDevices, bytesPerDevice: memoryBytes } = this;
    return { engine, numDevices, memoryBytes, gemm: describeGemm(this.gemm, detectFeatures()), numCores: 1 };
  }

  memoryUsage(device: number): MemoryUsage {
    return { used: this.usedBy(device), capacity: this.bytesPerDevice, arena: 0, together: this.left };
  }

  protected prepare(
    program: Program,
    options: CompileOptions,
    devices: readonly number[],
  ): LoadedProgram<RemoteBuffer> {
    checkSizes(program);
    const { prepared } = options;
    const { compiled } = isPrepared(prepared, "i32")
      ? prepared
      : compileWith(this.settings, program, options);
    const id = this.nextId();
    this.programs.set(id, { name: options.name ?? compiled.name, compiled, devices });
    this.post({ kind: "load", program: id, compiled: { ...compiled, callbacks: [] }, devices });
    return {
      start: (inputs) => this.run(id, compiled, inputs, devices),
      release: () => {
        if (this.gone) return;
        this.post({ kind: "unload", program: id });
        // Runs that were started before may still call its functions.
        void this.request(undefined).then(
          () => this.programs.delete(id),
          () => {},
        );
      },
    };
  }

  private run(
    program: number,
    { outputs, arenaBytes, name }: CompiledProgram,
    inputs: Rows<RemoteBuffer>,
    devices: readonly number[],
  ): RemoteBuffer[][] {
    const bytes = outputs.reduce((sum, output) => sum + output.bytes, arenaBytes);
    const largest = outputs.reduce<(typeof outputs)[number] | undefined>(
      (most, output) => (output.bytes > (most?.bytes ?? arenaBytes) ? output : most),
      undefined,
    );
    const what = largest ? formatType(largest.type) : "its intermediate values";
    this.checkRoom(devices, bytes, `run ${JSON.stringify(name)}`, what);
    const made = outputs.map(({ type }) => devices.map((device) => this.newBuffer(type, device)));
    const ids = (rows: Rows<RemoteBuffer>) => rows.map((row) => row.map(({ id }) => id));
    this.post({ kind: "run", program, inputs: ids(inputs), outputs: ids(made) });
    return made;
  }

  protected write(type: TensorType, data: HostData, device: number): RemoteBuffer {
    this.checkRoom([device], bytesOf(type), "upload", formatType(type));
    const buffer = this.newBuffer(type, device);
    const copy = data.slice();
    this.post({ kind: "upload", buffer: buffer.id, type, data: copy }, [copy.buffer as ArrayBuffer]);
    return buffer;
  }

  protected async read(buffer: RemoteBuffer): Promise<HostData> {
    if (buffer.seen) return buffer.seen.slice();
    const data = await this.request(buffer.id);
    if (data === undefined) throw this.failure ?? new DisposedError("[download] the buffer has no elements");
    if (buffer.bytes <= SMALL_BYTES && buffer.isLive) buffer.seen = data.slice();
    return data;
  }

  protected async written(): Promise<void> {
    await this.request(undefined);
    if (this.failed) throw this.failed;
  }

  protected view(buffer: RemoteBuffer): HostData | undefined {
    return buffer.seen;
  }

  protected copy(source: RemoteBuffer, device: number): RemoteBuffer {
    this.checkRoom([device], source.bytes, "transfer", formatType(source.type));
    const buffer = this.newBuffer(source.type, device);
    this.post({ kind: "copy", from: source.id, to: buffer.id });
    return buffer;
  }

  protected async end(): Promise<void> {
    this.stop(new DisposedError(`[close] the ${this.name} engine was closed before this was computed`));
    this.thread?.terminate();
    await this.thread?.exited;
  }

  protected override get failure(): ShardwiseError | undefined {
    return this.failed;
  }

  /** Starts the worker, whose code is loaded only now. */
  private async start(setup: Setup): Promise<void> {
    try {
      const { workerCode } = await import("#engines/oneThread/workerCode");
      if (this.gone) return;
      this.thread = startThread({
        code: workerCode(),
        name: "shardwise devices",
        data: setup,
        told: (message) => this.take(message as News),
        failed: (reason, cause) => this.lose(`its worker ${reason}`, cause),
      });
      for (const { order, given } of this.outbox.splice(0)) this.thread.post(order, given);
      this.thread.keepAlive(this.requests.size > 0);
    } catch (error) {
      this.lose(`its worker did not start: ${reasonOf(error)}`, error);
    }
  }

  private post(order: Order, given: readonly ArrayBuffer[] = []): void {
    if (order.kind !== "release") this.flush();
    if (this.thread) this.thread.post(order, given);
    else this.outbox.push({ order, given });
  }

  private flush(): void {
    const buffers = this.released;
    if (buffers.length === 0 || this.gone) return;
    this.released = [];
    this.post({ kind: "release", buffers });
  }

  /** Asks the worker for elements, or only to answer. */
  private request(buffer: number | undefined): Promise<HostData | undefined> {
    if (this.gone) return Promise.reject(this.gone);
    return new Promise((resolve, reject) => {
      const request = this.nextId();
      this.requests.set(request, { resolve, reject });
      this.thread?.keepAlive(true);
      this.post({ kind: "read", request, buffer });
    });
  }

  private take(news: News): void {
    switch (news.kind) {
      case "read":
        this.requests.get(news.request)?.resolve(news.data);
        this.requests.delete(news.request);
        if (this.requests.size === 0) this.thread?.keepAlive(false);
        return;
      case "call":
        this.answer(news);
        return;
      case "failed":
        this.failed ??= this.failureOf(news);
        return;
    }
  }

  /** Calls a host callback for the worker. */
  private answer({ program, position, callback, operands }: Extract<News, { kind: "call" }>): void {
    const known = this.programs.get(program);
    try {
      if (known === undefined) throw new DisposedError("[engine] the program was released");
      const { fn, ins, outs } = at(known.compiled.callbacks, callback);
      const values = ins.map((type, i) => ({ type, data: viewHost(type.dtype, at(operands, i).buffer) }));
      const results = callHost(fn, values, outs).map(
        (data) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
      );
      this.post({ kind: "answer", results });
    } catch (error) {
      const place = { device: known?.devices[position] ?? 0, program: known?.name };
      this.failed ??= new DeviceFailedError(place, `a host callback threw ${describeError(error)}`, {
        cause: error,
      });
      this.post({ kind: "answer", results: undefined });
    }
  }

  private failureOf({
    program,
    device,
    failure,
    positions,
    isOutOfMemory,
  }: Extract<News, { kind: "failed" }>) {
    const name = this.programs.get(program)?.name ?? "program";
    if (positions) return new DesyncError(name, positions);
    if (isOutOfMemory)
      return new OutOfMemoryError(`[run ${JSON.stringify(name)}] ${failure.message}: ${this.advice}`);
    return new DeviceFailedError({ device, program: name }, `threw ${failure.name}: ${failure.message}`);
  }

  /** Ends everything because the worker is gone. */
  private lose(reason: string, cause: unknown): void {
    if (this.gone) return;
    this.failed ??= new DeviceFailedError({ device: 0 }, reason, { cause });
    this.stop(this.failed);
  }

  private stop(error: ShardwiseError): void {
    this.gone ??= error;
    this.stayAtExit();
    for (const { reject } of this.requests.values()) reject(this.gone);
    this.requests.clear();
  }

  private get advice(): string {
    const { bytes, limit } = this.limit;
    const own = this.bytesPerDevice < bytes ? ` and ${formatBytes(this.bytesPerDevice)} each` : "";
    return `all devices together have ${formatBytes(bytes)} (${limit})${own}, and their buffers take ${formatBytes(bytes - this.left)}: release tensors, donate inputs, or use smaller ones`;
  }

  private usedBy(device: number): number {
    return this.taken.get(device) ?? 0;
  }

  /** How many bytes all devices together have left. */
  private get left(): number {
    return [...this.taken.values()].reduce((left, bytes) => left - bytes, this.limit.bytes);
  }

  /** Throws if devices have no room for so many more bytes each. */
  private checkRoom(devices: readonly number[], bytes: number, caller: string, what: string): void {
    const isFull = devices.some((device) => this.usedBy(device) + bytes > this.bytesPerDevice);
    if (isFull || devices.length * bytes > this.left)
      throw new OutOfMemoryError(
        `[${caller}] ${what} takes ${formatBytes(bytes)} on each of ${devices.length} devices, but ${this.advice}`,
      );
  }

  private newBuffer(type: TensorType, device: number): RemoteBuffer {
    const buffer = new RemoteBuffer(this, type, device, this.nextId(), ({ id, bytes }) => {
      this.taken.set(device, this.usedBy(device) - bytes);
      if (this.released.push(id) === 1) queueMicrotask(() => this.flush());
    });
    this.taken.set(device, this.usedBy(device) + buffer.bytes);
    return buffer;
  }
}
