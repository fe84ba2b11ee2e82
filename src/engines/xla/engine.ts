import { getOrInsert } from "../../ir/collections.js";
import { allocateHost, type HostData } from "../../ir/dtype.js";
import type { CompileOptions, Engine } from "../../ir/engine.js";
import type { EngineInfo, MemoryUsage, TraceEvent, Tracer } from "../../ir/engineReports.js";
import { ValueError } from "../../ir/errors.js";
import { newVar, type Program } from "../../ir/program.js";
import { HighWaterMark, reclaim } from "../../ir/reclaim.js";
import { at, bytesOf, formatType, range, sizeOf, type TensorType } from "../../ir/shape.js";
import { OutOfMemoryError } from "../errors.js";
import { EngineShell } from "../shell.js";
import { type Keeper, SMALL_BYTES, XlaBuffer } from "./buffers.js";
import { type Host, XlaExecutable } from "./executable.js";
import type { XlaClient, XlaRun } from "./xlaClient.js";
import { XlaBuilder, type XlaLowering } from "./xlaLowering.js";

/** What an XLA engine runs on. */
export interface XlaEngineInfo extends EngineInfo {
  readonly engine: "xla";
  /** The platform, such as `cuda`. */
  readonly platform: string;
  readonly platformVersion: string;
  /** What the devices are, such as `NVIDIA H200`. */
  readonly deviceKind: string;
  /** Whether 16-bit attention uses a kernel of the devices, or products and a softmax. */
  readonly attention: "fused" | "plain";
}

/** The other processes that hold devices of the same engine. */
export interface PeerProcesses {
  /** The host name of every process. */
  readonly hosts: readonly string[];
  /** Gathers one string of every process, in process order. */
  share(text: string): Promise<string[]>;
}

/** How many bytes of a device buffers may take before unreachable ones are collected. */
const RECLAIM_THRESHOLD_BYTES = 1 << 30;

/**
 * Maximum number of executions in flight when the main thread starts a run: a plug-in limits them, to 32 on GPUs, and a
 * call that blocks until one ends would keep the callback that reports the end from running.
 */
const MAX_EXECUTIONS = 16;

/** A start that takes less than this many milliseconds is short. */
const SHORT_MS = 0.4;

/**
 * A start that takes more than this many milliseconds never happens on the main thread; handing it over costs half a
 * millisecond.
 */
const MODERATE_MS = 5;

/** An engine whose devices are those of an XLA client. */
export class XlaEngine<A> extends EngineShell<XlaBuffer<A>> {
  readonly name = "xla";
  readonly numDevices: number;
  override readonly process: Engine["process"];
  readonly share?: Exclude<Engine["share"], undefined>;
  readonly placeOf?: Exclude<Engine["placeOf"], undefined>;
  readonly tracer: Tracer = {
    wholeRuns: true,
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

  private readonly builder: XlaBuilder<A>;

  constructor(
    private readonly client: XlaClient<A>,
    options: XlaLowering = {},
    peers?: PeerProcesses,
  ) {
    super();
    if (peers) {
      const { hosts } = peers;
      this.share = (text) => peers.share(text);
      this.placeOf = (device) => {
        const process = client.processOfDevice?.[device] ?? 0;
        return { process, host: hosts[process] ?? "" };
      };
    }
    this.builder = new XlaBuilder(client, options);
    this.numDevices = client.numDevices;
    this.process = client.process;
    this.marks = range(client.numDevices).map(() => new HighWaterMark(RECLAIM_THRESHOLD_BYTES));
    this.taken = range(client.numDevices).map(() => 0);
    this.host = {
      newBuffer: (type, device) => this.newBuffer(type, device),
      mayStart: (milliseconds) => this.mayStart(milliseconds),
      turn: (milliseconds) => this.turn(milliseconds),
      enqueue: (task) => this.enqueue(task),
      forget: (executable) => this.executables.delete(executable),
      follow: (name, devices, run) => this.follow(name, devices, run),
    };
  }

  override isAddressable(device: number): boolean {
    return Number.isInteger(device) && this.client.isAddressable(device);
  }

  protected prepare(program: Program, options: CompileOptions, devices: readonly number[]): XlaExecutable<A> {
    if (devices.length === 0) {
      const { index, count } = this.process;
      throw new ValueError(
        `[compile] ${options.name ?? "program"}: process ${index} of ${count} holds none of the devices ${options.devices.join(", ")} that run it`,
      );
    }
    const building = this.builder.build(program, options);
    const executable = new XlaExecutable(this.host, program, { ...options, devices }, building);
    this.executables.add(executable);
    return executable;
  }

  protected write(type: TensorType, data: HostData, device: number): XlaBuffer<A> {
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

  protected async read(source: XlaBuffer<A>): Promise<HostData> {
    if (source.seen) return source.seen.slice();
    source.beginRead();
    try {
      await this.settled(source);
      if (source.array === undefined) throw source.failure;
      const data = await this.client.download(source.array, source.type).catch(async (error: unknown) => {
        // The run that should have written the elements has the better reason why they are missing.
        await source.written();
        throw error;
      });
      if (data.byteLength <= SMALL_BYTES) source.seen = data.slice();
      return data;
    } finally {
      source.endRead();
    }
  }

  protected async written(source: XlaBuffer<A>): Promise<void> {
    await this.settled(source);
    await source.written();
  }

  protected view({ seen, type }: XlaBuffer<A>): HostData | undefined {
    return seen ?? (sizeOf(type.shape) === 0 ? allocateHost(type.dtype, 0) : undefined);
  }

  protected copy(source: XlaBuffer<A>, device: number): XlaBuffer<A> {
    if (source.device === device) return this.copyInPlace(source);
    const target = this.newBuffer(source.type, device);
    source.beginRead();
    target.queued = this.enqueue(async () => {
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

  protected async end(): Promise<void> {
    await this.queue;
    await this.builder.settled();
    await this.runsOver();
    for (const executable of [...this.executables, ...this.copies.values()]) executable.release();
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

  /** A copy on the same device is an identity program: its result is a new buffer. */
  private copyInPlace(source: XlaBuffer<A>): XlaBuffer<A> {
    const key = `${formatType(source.type)} on ${source.device}`;
    const copy = getOrInsert(this.copies, key, () => {
      const input = newVar({ dtype: source.type.dtype, shape: source.type.shape });
      const program: Program = { inputs: [input], eqns: [], outputs: [input] };
      const options = { mesh: { axes: [] }, devices: [source.device], name: "copy" };
      return new XlaExecutable(this.host, program, options, this.builder.build(program, options));
    });
    return at(at(copy.start([[source]]), 0), 0);
  }

  private newBuffer(type: TensorType, device: number): XlaBuffer<A> {
    at(this.marks, device).check(() => at(this.taken, device));
    const buffer = new XlaBuffer<A>(this, type, device, bytesOf(type), this.keeper);
    this.taken[device] = at(this.taken, device) + buffer.bytes;
    this.live.add(buffer);
    return buffer;
  }

  private readonly keeper: Keeper<A> = {
    // Runs that have not started yet have already donated their inputs: only their outputs count.
    left: ({ device, bytes }) => {
      this.taken[device] = at(this.taken, device) - bytes;
    },
    giveBack: (gone, array) => {
      this.live.delete(gone);
      if (array !== undefined) this.client.destroy(array);
    },
  };

  /** If a device is out of memory, releases unreachable buffers and tries once more. */
  private withRoom<T>(allocate: () => T): T {
    try {
      return allocate();
    } catch (error) {
      if (!(error instanceof OutOfMemoryError) || reclaim() === 0) throw error;
      return allocate();
    }
  }

  private enqueue(task: () => Promise<void>): Promise<void> {
    this.numQueued++;
    this.queue = this.queue.then(task).finally(() => {
      this.numQueued--;
    });
    return this.queue;
  }

  /** Waits until the run that computes a buffer has started. */
  private async settled(buffer: XlaBuffer<A>): Promise<void> {
    if (buffer.array === undefined && buffer.failure === undefined) await buffer.queued;
  }

  private follow(name: string, devices: readonly number[], run: XlaRun<A>): void {
    const { events } = this;
    const step = this.numRuns++;
    // Runs that are started on another thread never ask how many are in flight.
    this.underWay(MAX_EXECUTIONS);
    this.runs.add(run);
    // A run that can be polled needs no notification, unless it is being recorded.
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
    // The recorded end must be the time at which the run ends, so its promise must settle at once.
    if (events) run.hurry?.();
  }

  /** The number of executions of the runs that are not known to be over. */
  private get numExecutions(): number {
    let count = 0;
    for (const { numExecutions = 1 } of this.runs) count += numExecutions;
    return count;
  }

  /**
   * Short starts happen on the calling thread while few runs are in flight, and longer ones while none are, so that
   * they do not block on other runs; still longer ones are left to another thread.
   */
  private mayStart(milliseconds: number): boolean {
    if (this.numQueued > 0 || milliseconds > MODERATE_MS) return false;
    const most = milliseconds > SHORT_MS ? 1 : MAX_EXECUTIONS;
    return this.underWay(most) < most;
  }

  /** The number of executions in flight; runs are polled only if there may be too many. */
  private underWay(most: number): number {
    if (this.numExecutions < most) return this.numExecutions;
    for (const run of this.runs) {
      if (!run.poll?.()) break;
      this.runs.delete(run);
    }
    return this.numExecutions;
  }

  /**
   * Waits, for as long as it takes, until few enough runs are in flight for another to start on the main thread;
   * returns whether it may.
   */
  private async turn(milliseconds: number): Promise<boolean> {
    if (milliseconds > SHORT_MS) return false;
    while (this.underWay(MAX_EXECUTIONS) >= MAX_EXECUTIONS) {
      const [oldest] = this.runs;
      oldest?.hurry?.();
      // Its failure is reported to those who wait for its results.
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
}
