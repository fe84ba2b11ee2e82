import { ThreadsEngine, type TraceEvent } from "../engines/threads/engine.js";
import type { Engine } from "../ir/engine.js";
import { openTraceFile } from "./traceFile.js";

/** What kind of work a step of a device is, as reports colour it. */
export type WorkKind = "gemm" | "kernel" | "collective" | "copy";

/** One thing that a device did; times are milliseconds from the beginning of the trace. */
export interface Work {
  readonly device: number;
  readonly kind: WorkKind;
  readonly name: string;
  readonly program: string;
  readonly source: string | undefined;
  readonly begin: number;
  readonly end: number;
}

/** The kinds of steps that stand for work; loops and branches are told by what they contain. */
const kinds: Readonly<Record<string, WorkKind>> = {
  gemm: "gemm",
  kernel: "kernel",
  host: "kernel",
  copy: "copy",
  address: "copy",
  axisIndex: "copy",
  start: "collective",
  done: "collective",
};

/** Runs something while the engine records what its devices do; nothing is recorded by an engine that cannot. */
export async function recordWork<T>(
  engine: Engine,
  run: () => Promise<T>,
): Promise<{ readonly result: T; readonly work: readonly Work[] }> {
  if (!(engine instanceof ThreadsEngine)) return { result: await run(), work: [] };
  engine.startTrace();
  const result = await run();
  const events = await engine.stopTrace();
  const origin = events.reduce((first, { begin }) => Math.min(first, begin), Number.POSITIVE_INFINITY);
  return { result, work: events.flatMap((event) => workOf(event, origin)) };
}

function workOf(event: TraceEvent, origin: number): Work[] {
  const kind = kinds[event.kind];
  if (!kind) return [];
  const { device, program, source, ops } = event;
  const name = `${ops.join(" + ") || event.kind}${kind === "collective" ? ` (${event.kind})` : ""}`;
  return [{ device, kind, name, program, source, begin: event.begin - origin, end: event.end - origin }];
}

/** Writes work as a trace that Perfetto and chrome://tracing open; gaps are idle time. */
export function writeTrace(path: string, work: readonly Work[], title: string): void {
  const file = openTraceFile(path, { title });
  for (const device of new Set(work.map((one) => one.device)))
    file.name({ device, thread: 0 }, `device ${device}`);
  for (const { device, kind, name, program, source, begin, end } of work) {
    file.event({
      device,
      name,
      category: kind,
      start: begin * 1000,
      duration: (end - begin) * 1000,
      args: { program, ...(source === undefined ? {} : { source }) },
    });
  }
  file.close();
}

/** Where the time of every device went, as shares from 0 to 1. */
export interface DeviceShares {
  readonly device: number;
  readonly gemm: number;
  readonly kernel: number;
  readonly collective: number;
  readonly copy: number;
  readonly idle: number;
}

/** Adds up the work of each device over the time from the first beginning to the last end. */
export function sharesOfWork(work: readonly Work[]): DeviceShares[] {
  const end = work.reduce((last, one) => Math.max(last, one.end), 0) || 1;
  return [...new Set(work.map((one) => one.device))]
    .sort((a, b) => a - b)
    .map((device) => {
      const of = (kind: WorkKind) =>
        work
          .filter((one) => one.device === device && one.kind === kind)
          .reduce((sum, one) => sum + one.end - one.begin, 0) / end;
      const shares = {
        gemm: of("gemm"),
        kernel: of("kernel"),
        collective: of("collective"),
        copy: of("copy"),
      };
      const idle = Math.max(0, 1 - shares.gemm - shares.kernel - shares.collective - shares.copy);
      return { device, ...shares, idle };
    });
}
