import { allocateHost, type HostData } from "../../ir/dtype.js";
import type { CompileOptions, DeviceBuffer, Engine, Executable } from "../../ir/engine.js";
import type { EngineInfo, MemoryUsage, TraceEvent, Tracer } from "../../ir/engineReports.js";
import { DisposedError, ValueError } from "../../ir/errors.js";
import { axesSize, formatMesh } from "../../ir/mesh.js";
import { newVar, type Program } from "../../ir/program.js";
import { HighWaterMark, reclaim } from "../../ir/reclaim.js";
import { at, bytesOf, formatType, range, sizeOf, type TensorType } from "../../ir/shape.js";
import { verify } from "../../ir/verify.js";
import { checkHostData } from "../checks.js";
import { OutOfMemoryError } from "../errors.js";
import { foreignBuffer, type Keeper, SMALL_BYTES, XlaBuffer } from "./buffers.js";
import { Builder, type Lowering } from "./builder.js";
import type { XlaClient, XlaRun } from "./client.js";
import { type Host, XlaExecutable } from "./executable.js";

/** What an XLA engine runs on. */
export interface XlaEngineInfo extends EngineInfo {
  readonly engine: "xla";
  /** The platform, such as `cuda`. */
  readonly platform: string;
  readonly platformVersion: string;
  /** What the devices are, such as `NVIDIA H200`. */
  readonly deviceKind: string;
  /** Whether attention in 16 bits is a kernel of the devices or products and a softmax. */
  readonly attention: "fused" | "plain";
}

/** The other processes that hold devices of the same engine. */
export interface Companions {
  /** The machine of every process. */
  readonly hosts: readonly string[];
  /** Gives every process the texts of all, in their order. */
  share(text: string): Promise<string[]>;
}

/** Buffers may take so much of a device, in bytes, before unreachable ones are looked for. */
const RECLAIM_THRESHOLD_BYTES = 1 << 30;

/**
 * So many runs are started on the main thread before it waits for none of them: a plug-in lets only some runs
 * be under way, and a call that waits for one to end would keep the callback from running that says so.
 */
const MAX_RUNS = 16;

/** A start that takes less time is short, in milliseconds. */
const SHORT_MS = 0.4;

/** A start that takes more time is never made on the main thread, in milliseconds: handing it over costs half of one. */
const MODERATE_MS = 5;

/** An engine whose devices are those of a client of XLA. */
export class XlaEngine<A> implements Engine {
  readonly name = "xla";
  readonly numDevices: number;
  readonly process: Engine["process"];
  readonly share?: Exclude<Engine["share"], undefined>;
  readonly placeOf?: Exclude<Engine["placeOf"], undefined>;
  readonly tracer: Tracer = {
    start: () => this.startTrace(),
    stop: () => this.stopTrace(),
  };
  private readonly live = new Set<XlaBuffer<A>>();
  private readonly executables = new Set<XlaExecutable<A>>();
  private readonly runs = new Set<XlaRun<A>>();
  private readonly copies = new Map<string, XlaExecutable<A>>();
  private readonly host: Host<A>;
  private readonly marks: readonly HighWaterMark[];
  private readonly taken: number[];
  private queue: Promise<void> = Promise.resolve();
  private numQueued = 0;
  private events: TraceEvent[] | undefined;
  private numRuns = 0;
  private closed = false;

  private readonly builder: Builder<A>;

  constructor(
    private readonly client: XlaClient<A>,
    options: Lowering = {},
    companions?: Companions,
  ) {
    if (companions) {
      const { hosts } = companions;
      this.share = (text) => companions.share(text);
      this.placeOf = (device) => {
        const process = client.processOfDevice?.[device] ?? 0;
        return { process, host: hosts[process] ?? "" };
      };
    }
    this.builder = new Builder(client, options);
    this.numDevices = client.numDevices;
    this.process = client.process;
    this.marks = range(client.numDevices).map(() => new HighWaterMark(RECLAIM_THRESHOLD_BYTES));
    this.taken = range(client.numDevices).map(() => 0);
    this.host = {
      checkOpen: (caller) => this.checkOpen(caller),
      own: (buffer, caller) => this.own(buffer, caller),
      newBuffer: (type, device) => this.newBuffer(type, device),
      mayStart: (milliseconds) => this.mayStart(milliseconds),
      turn: (milliseconds) => this.turn(milliseconds),
      enqueue: (task) => this.enqueue(task),
      follow: (name, devices, run) => this.follow(name, devices, run),
    };
  }

  isAddressable(device: number): boolean {
    return Number.isInteger(device) && this.client.isAddressable(device);
  }

  compile(program: Program, options: CompileOptions): Executable {
    this.checkOpen("compile");
    verify(program, "partitioned");
    const { mesh, devices, name = "program" } = options;
    const numPositions = axesSize(mesh.axes);
    if (devices.length !== numPositions) {
      throw new ValueError(
        `[compile] ${name}: ${devices.length} devices for the ${numPositions} positions of the mesh ` +
          formatMesh(mesh),
      );
    }
    const strange = devices.find(
      (device) => !(Number.isInteger(device) && device >= 0 && device < this.numDevices),
    );
    if (strange !== undefined) this.refuseDevice(strange, "compile");
    const own = devices.filter((device) => this.isAddressable(device));
    if (own.length === 0) {
      throw new ValueError(
        `[compile] ${name}: process ${this.process.index} of ${this.process.count} holds none of the devices ${devices.join(", ")} that run it`,
      );
    }
    const executable = new XlaExecutable(
      this.host,
      program,
      { ...options, devices: own },
      this.builder.build(program, options),
    );
    this.executables.add(executable);
    return {
      execute: (inputs) => executable.execute(inputs),
      release: () => {
        this.executables.delete(executable);
        executable.release();
      },
    };
  }

  upload(type: TensorType, data: HostData, device: number): DeviceBuffer {
    this.checkOpen("upload");
    this.checkDevice(device, "upload");
    checkHostData(type, data, "upload");
    const buffer = this.newBuffer(type, device);
    if (data.byteLength <= SMALL_BYTES) buffer.seen = data.slice();
    try {
      buffer.fulfil(this.withRoom(() => this.client.upload(type, data, device)));
    } catch (error) {
      buffer.dispose("released");
      buffer.fail(error);
      throw error;
    }
    return buffer;
  }

  async download(buffer: DeviceBuffer): Promise<HostData> {
    this.checkOpen("download");
    const source = this.own(buffer, "download");
    if (source.seen) return source.seen.slice();
    source.beginRead();
    try {
      await this.settled(source);
      if (source.array === undefined) throw source.failure;
      const data = await this.client.download(source.array, source.type).catch(async (error: unknown) => {
        // The run that should have written the elements knows better why they are not there.
        await source.written();
        throw error;
      });
      if (data.byteLength <= SMALL_BYTES) source.seen = data.slice();
      return data;
    } finally {
      source.endRead();
    }
  }

  async ready(buffer: DeviceBuffer): Promise<void> {
    this.checkOpen("ready");
    const source = this.own(buffer, "ready");
    await this.settled(source);
    await source.written();
  }

  peek(buffer: DeviceBuffer): HostData | undefined {
    this.checkOpen("peek");
    const { seen, type } = this.own(buffer, "peek");
    return seen ?? (sizeOf(type.shape) === 0 ? allocateHost(type.dtype, 0) : undefined);
  }

  transfer(buffer: DeviceBuffer, device: number): DeviceBuffer {
    this.checkOpen("transfer");
    this.checkDevice(device, "transfer");
    const source = this.own(buffer, "transfer");
    if (source.device === device) return this.copyInPlace(source);
    const target = this.newBuffer(source.type, device);
    source.beginRead();
    this.enqueue(async () => {
      try {
        if (source.array === undefined) throw source.failure;
        const array = source.array;
        target.fulfil(this.withRoom(() => this.client.copy(array, device)));
      } catch (error) {
        target.fail(error);
      } finally {
        source.endRead();
      }
    });
    return target;
  }

  release(buffer: DeviceBuffer): void {
    // After closing there is nothing left to give back, so finalizers may still come here.
    if (this.closed) return;
    this.own(buffer, "release").dispose("released");
  }

  get isOpen(): boolean {
    return !this.closed;
  }

  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    await this.queue;
    await this.builder.settled();
    await this.runsOver();
    for (const executable of [...this.executables, ...this.copies.values()]) executable.release();
    this.executables.clear();
    for (const buffer of [...this.live]) buffer.dispose("released");
    await this.client.close();
  }

  info(): XlaEngineInfo {
    const { platform, numDevices } = this.client;
    const first = range(numDevices).find((device) => this.isAddressable(device)) ?? 0;
    const memory = this.client.memory?.(first);
    return {
      engine: "xla",
      numDevices,
      platform: platform.name,
      platformVersion: platform.version,
      deviceKind: platform.deviceKind,
      attention: this.builder.fuses("attention") ? "fused" : "plain",
      gemm: `${platform.deviceKind} (XLA, ${platform.version})`,
      ...(memory === undefined ? {} : { memoryBytes: memory.capacity }),
    };
  }

  memoryUsage(device: number): MemoryUsage {
    this.checkDevice(device, "memoryUsage");
    const own = { used: at(this.taken, device), capacity: Number.POSITIVE_INFINITY };
    return { ...(this.client.memory?.(device) ?? own), arena: 0 };
  }

  /** A copy on the same device is a program that does nothing: its result is a buffer of its own. */
  private copyInPlace(source: XlaBuffer<A>): DeviceBuffer {
    const key = `${formatType(source.type)} on ${source.device}`;
    let copy = this.copies.get(key);
    if (copy === undefined) {
      const input = newVar({ dtype: source.type.dtype, shape: source.type.shape });
      const program: Program = { inputs: [input], eqns: [], outputs: [input] };
      const options = { mesh: { axes: [] }, devices: [source.device], name: "copy" };
      copy = new XlaExecutable(this.host, program, options, this.builder.build(program, options));
      this.copies.set(key, copy);
    }
    return at(at(copy.execute([[source]]), 0), 0);
  }

  private newBuffer(type: TensorType, device: number): XlaBuffer<A> {
    at(this.marks, device).check(() => at(this.taken, device));
    const buffer = new XlaBuffer<A>(this, type, device, bytesOf(type), this.keeper);
    this.taken[device] = at(this.taken, device) + buffer.bytes;
    this.live.add(buffer);
    return buffer;
  }

  private readonly keeper: Keeper<A> = {
    // Steps that wait to be started have donated what they take: only what they give counts.
    left: ({ device, bytes }) => {
      this.taken[device] = at(this.taken, device) - bytes;
    },
    giveBack: (gone, array) => {
      this.live.delete(gone);
      if (array !== undefined) this.client.destroy(array);
    },
  };

  /** Where a device has no room, what nobody can reach is given back before the second and last try. */
  private withRoom<T>(allocate: () => T): T {
    try {
      return allocate();
    } catch (error) {
      if (!(error instanceof OutOfMemoryError) || reclaim() === 0) throw error;
      return allocate();
    }
  }

  private enqueue(task: () => Promise<void>): void {
    this.numQueued++;
    this.queue = this.queue.then(task).finally(() => {
      this.numQueued--;
    });
  }

  /** Waits until the run that makes a buffer was started. */
  private async settled(buffer: XlaBuffer<A>): Promise<void> {
    if (buffer.array === undefined && buffer.failure === undefined) await this.queue;
  }

  private follow(name: string, devices: readonly number[], run: XlaRun<A>): void {
    const { events } = this;
    const step = this.numRuns++;
    this.runs.add(run);
    // Of a run that can be asked nobody has to be told, unless it is recorded.
    if (events === undefined && run.poll) return;
    const begin = performance.now();
    const over = () => {
      this.runs.delete(run);
      const end = performance.now();
      for (const device of devices) {
        events?.push({
          device,
          program: name,
          step,
          kind: "run",
          iteration: undefined,
          ops: [name],
          source: undefined,
          begin,
          end,
          waits: [],
        });
      }
    };
    run.done.then(over, over);
    // The end of a run that is recorded is when it happens.
    if (events) run.hurry?.();
  }

  /**
   * Short starts happen on the calling thread while few runs are under way, longer ones while there are none, so
   * that they do not wait for others; what takes longer still is left to another thread.
   */
  private mayStart(milliseconds: number): boolean {
    if (this.numQueued > 0 || milliseconds > MODERATE_MS) return false;
    const most = milliseconds > SHORT_MS ? 1 : MAX_RUNS;
    return this.underWay(most) < most;
  }

  /** How many runs are under way; they are asked only where there may be too many. */
  private underWay(most: number): number {
    if (this.runs.size < most) return this.runs.size;
    for (const run of this.runs) {
      if (!run.poll?.()) break;
      this.runs.delete(run);
    }
    return this.runs.size;
  }

  /**
   * Waits until few enough runs are under way that another can be started on the main thread, as long as that takes;
   * tells whether it may be.
   */
  private async turn(milliseconds: number): Promise<boolean> {
    if (milliseconds > SHORT_MS) return false;
    while (this.underWay(MAX_RUNS) >= MAX_RUNS) {
      const [oldest] = this.runs;
      oldest?.hurry?.();
      // What went wrong in it is told to those who wait for its results.
      await oldest?.done.catch(() => {});
      if (oldest) this.runs.delete(oldest);
    }
    return true;
  }

  private async runsOver(): Promise<void> {
    for (const run of this.runs) run.hurry?.();
    await Promise.allSettled([...this.runs].map(({ done }) => done));
  }

  private startTrace(): void {
    this.events = [];
  }

  private async stopTrace(): Promise<TraceEvent[]> {
    const { events } = this;
    if (events === undefined) {
      throw new ValueError("[tracer.stop] no trace was started: call tracer.start first");
    }
    await this.queue;
    this.events = undefined;
    await this.runsOver();
    return events;
  }

  private own(buffer: DeviceBuffer, caller: string): XlaBuffer<A> {
    if (!this.isOwn(buffer)) throw foreignBuffer(buffer, caller);
    buffer.check(caller);
    return buffer;
  }

  private isOwn(buffer: DeviceBuffer): buffer is XlaBuffer<A> {
    return buffer instanceof XlaBuffer && buffer.owner === this;
  }

  private checkOpen(caller: string): void {
    if (this.closed) throw new DisposedError(`[${caller}] the xla engine is closed: create a new one`);
  }

  private checkDevice(device: number, caller: string): void {
    if (!this.isAddressable(device)) this.refuseDevice(device, caller);
  }

  private refuseDevice(device: number, caller: string): never {
    const { numDevices, process } = this;
    if (process.count > 1 && device >= 0 && device < numDevices) {
      throw new ValueError(`[${caller}] device ${device} belongs to another process than ${process.index}`);
    }
    const has = numDevices === 1 ? "the one device is 0" : `devices are 0 … ${numDevices - 1}`;
    throw new ValueError(`[${caller}] no device ${device}: ${has}`);
  }
}
