/**
 * Several processes that share the devices of one engine, played in one: each gets an engine that holds its own
 * devices only and meets the others in every run of a program on devices of several of them, as those of an MPI job.
 */
import { createReferenceEngine } from "../../src/engines/reference/engine.js";
import { EngineBuffer, EngineShell, type LoadedProgram, type Rows } from "../../src/engines/shell.js";
import type { HostData } from "../../src/ir/dtype.js";
import type { CompileOptions, DeviceBuffer, Engine } from "../../src/ir/engine.js";
import type { Program } from "../../src/ir/program.js";
import { at, range, type TensorType } from "../../src/ir/shape.js";
import { printProgram } from "../../src/ir/text/print.js";

/** A block that its process can name at once and read when all others have come as far. */
class PendingBuffer extends EngineBuffer {
  settled: DeviceBuffer | undefined;

  constructor(
    owner: Engine,
    type: TensorType,
    device: number,
    readonly value: Promise<DeviceBuffer>,
  ) {
    super(owner, type, device);
    value.then(
      (buffer) => {
        this.settled = buffer;
      },
      () => {},
    );
  }
}

/** One run of a program, which begins when the last of its processes is there. */
interface Meeting {
  readonly what: string;
  /** For every process its inputs; undefined until it comes. */
  readonly inputs: Map<number, readonly (readonly Promise<DeviceBuffer>[])[]>;
  readonly outputs: Promise<DeviceBuffer[][]>;
  readonly begin: (outputs: Promise<DeviceBuffer[][]>) => void;
}

/** Opens the engines of `count` processes with `numDevices` devices each; the devices of a process are neighbours. */
export function openProcesses(count: number, numDevices: number): Engine[] {
  const world = new World(count, numDevices);
  return range(count).map((index) => new ProcessEngine(world, index));
}

class World {
  readonly engine: Engine;
  private readonly meetings = new Map<string, Meeting[]>();
  private readonly arrivals = new Map<string, number>();

  constructor(
    readonly count: number,
    readonly perProcess: number,
  ) {
    this.engine = createReferenceEngine({ numDevices: count * perProcess });
  }

  processOf(device: number): number {
    return Math.floor(device / this.perProcess);
  }

  /** Brings one process's inputs to the next run on some devices; all processes must come with the same program. */
  meet(
    process: number,
    program: Program,
    options: CompileOptions,
    inputs: readonly (readonly Promise<DeviceBuffer>[])[],
  ): Promise<DeviceBuffer[][]> {
    const where = options.devices.join();
    const members = [...new Set(options.devices.map((device) => this.processOf(device)))];
    const turn = this.arrivals.get(`${process} on ${where}`) ?? 0;
    this.arrivals.set(`${process} on ${where}`, turn + 1);
    const queue = this.meetings.get(where) ?? [];
    this.meetings.set(where, queue);
    const what = `${options.name ?? ""} ${printProgram(program)}`;
    const meeting = queue[turn] ?? newMeeting(what);
    queue[turn] = meeting;
    meeting.inputs.set(process, inputs);
    if (meeting.what !== what) {
      meeting.begin(
        Promise.reject(new Error(`run ${turn} is not the same everywhere: ${meeting.what} / ${what}`)),
      );
    } else if (meeting.inputs.size === members.length) meeting.begin(this.run(meeting, program, options));
    return meeting.outputs;
  }

  private async run(
    { inputs }: Meeting,
    program: Program,
    options: CompileOptions,
  ): Promise<DeviceBuffer[][]> {
    const next = new Map([...inputs.keys()].map((process) => [process, 0]));
    const order = options.devices.map((device) => {
      const process = this.processOf(device);
      const index = next.get(process) ?? 0;
      next.set(process, index + 1);
      return { process, index };
    });
    const rows = program.inputs.map((_, i) =>
      Promise.all(order.map(({ process, index }) => at(at(inputs.get(process) ?? [], i), index))),
    );
    // Buffers are given back by their processes, so the run itself does not donate any.
    const executable = this.engine.compile(program, { ...options, donated: [] });
    return executable.execute(await Promise.all(rows));
  }
}

function newMeeting(what: string): Meeting {
  const { promise, resolve } = withResolver<DeviceBuffer[][]>();
  promise.catch(() => {});
  return { what, inputs: new Map(), outputs: promise, begin: resolve };
}

function withResolver<T>(): { promise: Promise<T>; resolve: (value: Promise<T>) => void } {
  let resolve: (value: Promise<T>) => void = () => {};
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

class ProcessEngine extends EngineShell<PendingBuffer> {
  readonly name = "processes";
  readonly numDevices: number;
  override readonly process: Engine["process"];

  constructor(
    private readonly world: World,
    index: number,
  ) {
    super();
    this.numDevices = world.count * world.perProcess;
    this.process = { index, count: world.count };
  }

  override isAddressable(device: number): boolean {
    return super.isAddressable(device) && this.world.processOf(device) === this.process.index;
  }

  protected prepare(
    program: Program,
    options: CompileOptions,
    devices: readonly number[],
  ): LoadedProgram<PendingBuffer> {
    const start = (inputs: Rows<PendingBuffer>): PendingBuffer[][] => {
      const values = inputs.map((row) => row.map(({ value }) => value));
      const outputs = this.world.meet(this.process.index, program, options, values);
      return program.outputs.map(({ type }, o) =>
        devices.map((device) => {
          const position = options.devices.indexOf(device);
          const block = outputs.then((rows) => at(at(rows, o), position));
          return new PendingBuffer(this, type, device, block);
        }),
      );
    };
    return { start, release: () => {} };
  }

  protected write(type: TensorType, data: HostData, device: number): PendingBuffer {
    const value = Promise.resolve(this.world.engine.upload(type, data, device));
    return new PendingBuffer(this, type, device, value);
  }

  protected async read({ value }: PendingBuffer): Promise<HostData> {
    return this.world.engine.download(await value);
  }

  protected async written({ value }: PendingBuffer): Promise<void> {
    await value;
  }

  protected view({ settled }: PendingBuffer): HostData | undefined {
    return settled && this.world.engine.peek(settled);
  }

  protected copy({ type, value }: PendingBuffer, device: number): PendingBuffer {
    const copy = value.then((source) => this.world.engine.transfer(source, device));
    return new PendingBuffer(this, type, device, copy);
  }

  protected async end(): Promise<void> {}
}
