import type { TraceEvent, Tracer } from "../../ir/engineReports.js";
import { ValueError } from "../../ir/errors.js";
import { range } from "../../ir/shape.js";
import type { FailurePlace } from "../errors.js";
import { DEFAULT_TRACE_CAPACITY, newTraceBuffer, readTrace } from "../protocol/deviceTrace.js";
import type { WorkerProgram } from "./programs.js";
import type { WorkerPool } from "./workerPool.js";

/** What is traced, and who knows the names of steps. */
interface Traced {
  readonly numDevices: number;
  readonly pool: WorkerPool;
  readonly programs: ReadonlyMap<number, WorkerProgram>;
  describe(device: number, program: number, step: number): FailurePlace;
}

/** Makes the devices of an engine record their steps, and reports them. */
export class EngineTracer implements Tracer {
  private buffers: readonly Float64Array[] | undefined;

  constructor(private readonly traced: Traced) {}

  start(capacity = DEFAULT_TRACE_CAPACITY): void {
    const { numDevices, pool } = this.traced;
    const buffers = range(numDevices).map(() => newTraceBuffer(capacity));
    buffers.forEach((buffer, device) => {
      pool.post(device, { kind: "trace", buffer });
    });
    this.buffers = buffers;
  }

  async stop(): Promise<TraceEvent[]> {
    const { buffers } = this;
    const { pool } = this.traced;
    if (buffers === undefined)
      throw new ValueError("[tracer.stop] no trace was started: call tracer.start first");
    this.buffers = undefined;
    const ends = buffers.map((_, device) => pool.post(device, { kind: "trace", buffer: undefined }));
    await Promise.all(ends.map((command, device) => pool.whenCompleted(device, command)));
    return buffers.flatMap((buffer, device) => this.eventsOf(buffer, device));
  }

  private eventsOf(buffer: Float64Array, device: number): TraceEvent[] {
    return readTrace(buffer).map(({ program, step, iteration, begin, end, waits }) => {
      const place = this.traced.describe(device, program, step);
      const info = this.traced.programs.get(program)?.steps[step];
      return {
        device: place.device,
        program: place.program ?? "",
        step,
        kind: iteration === undefined ? (info?.kind ?? "") : "iteration",
        iteration,
        ops: info?.ops ?? [],
        role: info?.role,
        source: place.source,
        begin,
        end,
        waits,
      };
    });
  }
}
