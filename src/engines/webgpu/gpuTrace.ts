import type { TraceEvent, Tracer } from "../../ir/engineReports.js";
import { ValueError } from "../../ir/errors.js";
import { at } from "../../ir/shape.js";
import type { Dispatch } from "./actions.js";
import { USAGE } from "./gpu.js";
import type { Machine } from "./gpuMachine.js";
import type { MachineProgram } from "./gpuProgram.js";
import type { WorkQueue } from "./queue.js";

/** A dispatch that is timed. */
interface Span {
  readonly program: MachineProgram;
  readonly dispatch: Dispatch;
  /** The positions of the mesh for which it computes: several for a collective. */
  readonly positions: readonly number[];
}

/** Passes whose times fit into one set of queries, the largest that WebGPU allows. */
const PASSES_PER_SET = 2048;
const BYTES_PER_PASS = 16;

/** Times of passes by the clock of the GPU. */
export class GpuTrace {
  private readonly sets: GPUQuerySet[] = [];
  private readonly spans: Span[] = [];

  /** @param capacity maximum number of passes */
  constructor(
    private readonly machine: Machine,
    private readonly capacity: number,
  ) {}

  /** Where the pass of a dispatch writes its times; nothing where as many as wanted have been recorded. */
  next(span: Span): GPUComputePassTimestampWrites | undefined {
    if (this.spans.length >= this.capacity) return undefined;
    const index = (this.spans.push(span) - 1) % PASSES_PER_SET;
    if (index === 0) this.sets.push(this.newSet(PASSES_PER_SET));
    return timesOf(at(this.sets, this.sets.length - 1), index);
  }

  /** What was recorded, once the GPU has done it. */
  async events(): Promise<TraceEvent[]> {
    const ahead = await this.clockAhead();
    const times: bigint[] = [];
    for (const [i, set] of this.sets.entries()) {
      const count = Math.min(PASSES_PER_SET, this.spans.length - i * PASSES_PER_SET);
      times.push(...(await this.read(set, count)));
    }
    const time = (i: number) => times[i] ?? 0n;
    return this.spans.flatMap((span, i) => {
      const begin = ahead(time(2 * i));
      // WebGPU does not promise that clocks only go forward.
      const end = Math.max(begin, ahead(time(2 * i + 1)));
      return span.positions.map((position) => eventOf(span, position, begin, end));
    });
  }

  /** The host's clock at a time of the GPU's; passes that do nothing tell how far they are apart. */
  private async clockAhead(): Promise<(time: bigint) => number> {
    const { machine } = this;
    const tries = 3;
    const set = this.newSet(tries);
    const done: number[] = [];
    for (let i = 0; i < tries; i++) {
      machine.compute(timesOf(set, i));
      machine.submit();
      await machine.gpu.device.queue.onSubmittedWorkDone();
      done.push(performance.now());
    }
    const times = await this.read(set, tries);
    const origin = times[1] ?? 0n;
    const toMs = (time: bigint) => Number(time - origin) / 1e6;
    // The host hears of the end late, by the least in the quickest try.
    const ahead = Math.min(...done.map((now, i) => now - toMs(times[2 * i + 1] ?? 0n)));
    return (time) => toMs(time) + ahead;
  }

  private newSet(numPasses: number): GPUQuerySet {
    return this.machine.gpu.device.createQuerySet({ type: "timestamp", count: 2 * numPasses });
  }

  private async read(set: GPUQuerySet, numPasses: number): Promise<BigUint64Array> {
    const { machine } = this;
    const size = BYTES_PER_PASS * numPasses;
    const usage = USAGE.queryResolve | USAGE.copySource;
    const buffer = machine.gpu.device.createBuffer({ size, usage });
    machine.commands().resolveQuerySet(set, 0, 2 * numPasses, buffer, 0);
    const [bytes = new Uint8Array(0)] = await machine.download([{ buffer, offset: 0, bytes: size }]);
    buffer.destroy();
    set.destroy();
    return new BigUint64Array(bytes.buffer);
  }
}

function timesOf(querySet: GPUQuerySet, index: number): GPUComputePassTimestampWrites {
  return { querySet, beginningOfPassWriteIndex: 2 * index, endOfPassWriteIndex: 2 * index + 1 };
}

function eventOf({ program, dispatch }: Span, position: number, begin: number, end: number): TraceEvent {
  const { compiled } = program.program;
  const { ops, source } = at(compiled.infos, dispatch.info);
  return {
    device: at(program.devices, position),
    program: compiled.name,
    step: dispatch.info,
    kind: dispatch.step,
    iteration: undefined,
    ops,
    source: source?.text,
    ...{ begin, end, waits: [] },
  };
}

/** Maximum number of dispatches to record, unless another one is given. */
const DEFAULT_CAPACITY = 2 ** 16;

/** What times the passes of a run, by the GPUs that have it. */
export type GpuTraces = ReadonlyMap<Machine, GpuTrace>;

/** Records when GPUs compute which step; every dispatch gets a pass of its own meanwhile. */
export class GpuTracer implements Tracer {
  /** What times the passes of runs that are recorded now. */
  current: GpuTraces | undefined;
  private isStarted = false;

  constructor(
    private readonly machines: readonly Machine[],
    private readonly queue: WorkQueue,
    private readonly numDevices: number,
  ) {}

  start(capacity = DEFAULT_CAPACITY): void {
    this.isStarted = true;
    this.queue.add(() => {
      const traceOf = (machine: Machine) => new GpuTrace(machine, capacity * this.numDevices);
      this.current = new Map(this.machines.map((machine) => [machine, traceOf(machine)]));
      return undefined;
    });
  }

  async stop(): Promise<TraceEvent[]> {
    if (!this.isStarted) throw new ValueError("[tracer.stop] no trace was started: call tracer.start first");
    this.isStarted = false;
    return new Promise((resolve, reject) => {
      this.queue.add(() => {
        const { current } = this;
        this.current = undefined;
        const events = [...(current?.values() ?? [])].map((trace) => trace.events());
        return Promise.all(events).then((all) => resolve(all.flat()), reject);
      });
    });
  }
}
